#include "server/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace lily {
namespace {

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct FreeSession {
  void operator()(SSL* session) const { SSL_free(session); }
};

// OpenSSL's own words for the first of this thread's errors, and an end to all of them.
std::string take_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "unknown error";
}

int no_passphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) {
  return 0;
}

Result<void> check_readable(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return fail(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  std::fclose(file);
  return {};
}

void set_policy(SSL_CTX& context) {
  SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION);
  // An end without TLS's own goodbye is an end: HTTP says itself where its messages stop.
  SSL_CTX_set_options(&context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(&context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                 SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(&context, no_passphrase);  // it would ask on the terminal
}

Result<void> use_files(SSL_CTX& context, const std::string& certificate_file, const std::string& key_file) {
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(&context, certificate_file.c_str()) != 1) {
    return fail(ErrorCode::kInvalidArgument, "{}: expected a certificate in PEM: {}", certificate_file,
                take_error());
  }
  const bool read = SSL_CTX_use_PrivateKey_file(&context, key_file.c_str(), SSL_FILETYPE_PEM) == 1;
  // Of keys of the certificate's kind the first call says it, of others the second.
  const bool mismatch = read ? SSL_CTX_check_private_key(&context) != 1
                             : ERR_GET_REASON(ERR_peek_error()) == X509_R_KEY_VALUES_MISMATCH;
  const std::string reason = take_error();
  if (mismatch) {
    return fail(ErrorCode::kInvalidArgument, "{}: is not the key of the certificate in {}", key_file,
                certificate_file);
  }
  if (!read) {
    return fail(ErrorCode::kInvalidArgument, "{}: expected a private key in PEM, without passphrase: {}",
                key_file, reason);
  }
  return {};
}

class TlsStream final : public ByteStream {
 public:
  TlsStream(SSL_CTX& context, int socket) : session_(SSL_new(&context)) {
    LILY_CHECK(session_ != nullptr && SSL_set_fd(session_.get(), socket) == 1, "TLS: {}", take_error());
    SSL_set_accept_state(session_.get());
  }

  Step handshake() override {
    ERR_clear_error();
    const int result = SSL_accept(session_.get());
    if (result == 1) return {Progress::kDone};
    const bool plain = ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
    return plain ? Step{Progress::kPlainText} : stopped(result);
  }

  Step receive(std::span<char> into) override {
    ERR_clear_error();
    const int count = SSL_read(session_.get(), into.data(), length(into.size()));
    return count > 0 ? Step{Progress::kDone, static_cast<std::size_t>(count)} : stopped(count);
  }

  Step send(std::string_view bytes) override {
    ERR_clear_error();
    const int count = SSL_write(session_.get(), bytes.data(), length(bytes.size()));
    return count > 0 ? Step{Progress::kDone, static_cast<std::size_t>(count)} : stopped(count);
  }

  void end() override {
    ERR_clear_error();
    // After a fatal error OpenSSL wants to hear nothing more of this session.
    if (!failed_ && SSL_is_init_finished(session_.get()) == 1) SSL_shutdown(session_.get());
  }

 private:
  static int length(std::size_t size) { return static_cast<int>(std::min<std::size_t>(size, INT_MAX)); }

  Step stopped(int result) {
    switch (SSL_get_error(session_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return {Progress::kNeedsRead};
      case SSL_ERROR_WANT_WRITE:
        return {Progress::kNeedsWrite};
      case SSL_ERROR_ZERO_RETURN:
        return {Progress::kEnd};
      default:
        failed_ = true;
        return {Progress::kFailed};
    }
  }

  std::unique_ptr<SSL, FreeSession> session_;
  bool failed_ = false;
};

}  // namespace

struct TlsIdentity::Context {
  std::unique_ptr<SSL_CTX, FreeContext> ssl;
};

TlsIdentity::TlsIdentity(std::unique_ptr<Context> context) : context_(std::move(context)) {}
TlsIdentity::~TlsIdentity() = default;

Result<std::shared_ptr<const TlsIdentity>> TlsIdentity::load(const std::string& certificate_file,
                                                             const std::string& key_file) {
  LILY_TRY_VOID(check_readable(certificate_file));
  LILY_TRY_VOID(check_readable(key_file));
  auto context = std::make_unique<Context>();
  context->ssl.reset(SSL_CTX_new(TLS_server_method()));
  LILY_CHECK(context->ssl != nullptr, "TLS: {}", take_error());
  set_policy(*context->ssl);
  LILY_TRY_VOID(use_files(*context->ssl, certificate_file, key_file));
  return std::shared_ptr<const TlsIdentity>(new TlsIdentity(std::move(context)));
}

std::unique_ptr<ByteStream> TlsIdentity::stream(int socket) const {
  return std::make_unique<TlsStream>(*context_->ssl, socket);
}

}  // namespace lily
