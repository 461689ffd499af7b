#include "engine/engine.h"

namespace lily {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kTimeout:
      return "timeout";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

std::optional<Sampled> Generation::next() {
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [&] { return !tokens_.empty() || reason_.has_value(); });
  return take();
}

std::optional<Sampled> Generation::next_for(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  ready_.wait_for(lock, timeout, [&] { return !tokens_.empty() || reason_.has_value(); });
  return take();
}

std::optional<Sampled> Generation::take() {
  if (tokens_.empty()) return std::nullopt;
  Sampled token = std::move(tokens_.front());
  tokens_.pop_front();
  return token;
}

void Generation::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
}

bool Generation::finished() const {
  const std::lock_guard lock(mutex_);
  return tokens_.empty() && reason_.has_value();
}

FinishReason Generation::finish_reason() const {
  const std::lock_guard lock(mutex_);
  LILY_CHECK(reason_.has_value(), "finish_reason() of a running generation");
  return *reason_;
}

Error Generation::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

GenerationUsage Generation::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

std::int64_t Generation::prefilled() const {
  const std::lock_guard lock(mutex_);
  return prefilled_;
}

}  // namespace lily
