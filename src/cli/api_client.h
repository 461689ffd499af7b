// Requests to a server that speaks OpenAI's API, for the commands that measure one.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lily {

class ApiClient {
 public:
  /// `base`: "http://127.0.0.1:8080", with or without "/v1". `key_file`: its first line is sent as the bearer
  /// token; empty: none is.
  static Result<ApiClient> create(const std::string& base, const std::string& key_file);

  /// The JSON answer of `path` ("/models"). A bad status is an error that quotes the answer.
  [[nodiscard]] Result<nlohmann::json> get(const std::string& path) const;
  [[nodiscard]] Result<nlohmann::json> post(const std::string& path, const nlohmann::json& body) const;
  /// A streamed answer: `on_event` gets the data of each server-sent event but the last, "[DONE]".
  Result<void> stream(const std::string& path, const nlohmann::json& body,
                      const std::function<Result<void>(const nlohmann::json&)>& on_event) const;

  [[nodiscard]] const std::string& base() const { return base_; }

 private:
  using OnData = std::function<Result<void>(std::string_view)>;
  /// `body` null: a GET. `on_data` gets the pieces of a good answer; its error ends the request.
  Result<void> request(const std::string& path, const std::string* body, const OnData& on_data) const;
  /// The same, for an answer that is read as a whole.
  [[nodiscard]] Result<nlohmann::json> request_json(const std::string& path, const std::string* body) const;

  std::string base_;  // without a slash at the end, with /v1
  std::string key_;
};

}  // namespace lily
