// Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}} and the status they travel with.
#pragma once

#include <string>

#include "base/result.h"
#include "server/http.h"

namespace lily {

struct ApiError {
  int status = 400;
  std::string message = {};
  std::string type = "invalid_request_error";
  std::string param = {};  ///< the field at fault, e.g. "messages[1].content"; empty: null
  std::string code = {};   ///< for programs, e.g. "context_length_exceeded"; empty: null
};

/// 400 that names the field at fault.
[[nodiscard]] ApiError invalid_field(std::string param, const std::string& problem);

/// 400 for a field that is understood but not served yet.
[[nodiscard]] ApiError unsupported_field(std::string param, const std::string& problem);

/// A failure from below: the client's fault is 400 with the full message, a full queue or a shutdown 503,
/// anything else 500 with the details in the log only.
[[nodiscard]] ApiError to_api_error(const Error& error);

/// The JSON body, valid UTF-8 whatever the message holds.
[[nodiscard]] std::string error_json(const ApiError& error);
[[nodiscard]] HttpResponse error_response(const ApiError& error);

}  // namespace lily
