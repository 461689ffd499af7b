// Any body is a request within its limits, or an error that can be sent.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "server/openai.h"

namespace {

void check(const lily::ChatRequest& request) {
  LILY_CHECK(request.messages->is_array() && !request.messages->empty(), "no messages");
  for (const auto& message : *request.messages) {
    LILY_CHECK(message["role"].is_string() && message["content"].is_string(), "not normalized: {}",
               message.dump());
  }
  const lily::SamplingParams& sampling = request.sampling;
  LILY_CHECK(sampling.temperature >= 0 && sampling.temperature <= 2, "temperature {}", sampling.temperature);
  LILY_CHECK(sampling.top_p >= 0 && sampling.top_p <= 1, "top_p {}", sampling.top_p);
  LILY_CHECK(sampling.top_k >= -1, "top_k {}", sampling.top_k);
  LILY_CHECK(sampling.repetition_penalty > 0, "repetition_penalty {}", sampling.repetition_penalty);
  LILY_CHECK(request.max_tokens >= 0, "max_tokens {}", request.max_tokens);
  for (const std::string& stop : request.stop) LILY_CHECK(!stop.empty(), "an empty stop string");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const lily::ChatDefaults defaults{.sampling = {}, .vocab_end = 1000};
  const auto parsed = lily::parse_chat_request({reinterpret_cast<const char*>(data), size}, defaults);
  if (const auto* request = std::get_if<lily::OpenAiChat>(&parsed)) {
    check(request->chat);
  } else {
    const auto& error = std::get<lily::ApiError>(parsed);
    LILY_CHECK(error.status == 400, "status {}", error.status);
    LILY_CHECK(nlohmann::json::accept(lily::error_json(error)), "an error that is no JSON: {}",
               error.message);
  }
  return 0;
}
