// TLS on the server's side: a certificate with its key, and encrypted streams that show them.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "server/byte_stream.h"

namespace lily {

/// What clients see of this server. TLS 1.2 and later. Thread-safe.
class TlsIdentity {
 public:
  /// A PEM file with the certificate, those that signed it behind it, and a PEM file with its private key,
  /// without passphrase. Errors name the file at fault.
  static Result<std::shared_ptr<const TlsIdentity>> load(const std::string& certificate_file,
                                                         const std::string& key_file);
  ~TlsIdentity();
  TlsIdentity(const TlsIdentity&) = delete;
  TlsIdentity& operator=(const TlsIdentity&) = delete;

  /// The encrypted stream of an accepted socket, which stays the caller's.
  [[nodiscard]] std::unique_ptr<ByteStream> stream(int socket) const;

 private:
  struct Context;
  explicit TlsIdentity(std::unique_ptr<Context> context);
  std::unique_ptr<Context> context_;
};

}  // namespace lily
