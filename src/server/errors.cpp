#include "server/errors.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "server/json.h"

namespace lily {

ApiError invalid_field(std::string param, const std::string& problem) {
  ApiError error;
  error.message = param + ": " + problem;
  error.param = std::move(param);
  error.code = "invalid_value";
  return error;
}

ApiError unsupported_field(std::string param, const std::string& problem) {
  ApiError error = invalid_field(std::move(param), problem);
  error.code = "unsupported_parameter";
  return error;
}

ApiError to_api_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return {.message = error.message};
    case ErrorCode::kExhausted:
      return {.status = 503, .message = error.message, .type = "overloaded_error", .code = "overloaded"};
    case ErrorCode::kCancelled:
      return {.status = 503,
              .message = "the server is shutting down",
              .type = "overloaded_error",
              .code = "shutting_down"};
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
    case ErrorCode::kUnsupported:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  log::error("request failed: {}", error.message);
  return {
      .status = 500, .message = "internal error; the server's log has the details", .type = "server_error"};
}

std::string error_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  return dump_json({{"error",
                     {{"message", error.message},
                      {"type", error.type},
                      {"param", or_null(error.param)},
                      {"code", or_null(error.code)}}}});
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = error_json(error)};
  if (error.status == 503) response.headers.push_back({"Retry-After", "1"});
  return response;
}

}  // namespace lily
