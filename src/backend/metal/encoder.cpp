#include "backend/metal/encoder.h"

#include <algorithm>

namespace lily::metal {

CommandList& Encoder::list() {
  if (list_ == nullptr) list_ = device_.begin();
  return *list_;
}

Encoder& Encoder::use(const GpuPipeline& pipeline) {
  list().set_pipeline(pipeline);
  accesses_.clear();
  return *this;
}

Encoder& Encoder::constants(unsigned index, const View& view) {
  list().set_buffer(index, *view.buffer, static_cast<std::size_t>(view.offset),
                    static_cast<std::size_t>(view.size));
  return *this;
}

Encoder& Encoder::access(unsigned index, const View& view, AccessKind kind) {
  accesses_.push_back(
      {.buffer = view.buffer, .begin = view.offset, .end = view.offset + view.size, .kind = kind});
  return constants(index, view);
}

void Encoder::dispatch(Extents threadgroups, std::uint32_t threads) {
  if (planner_.add(accesses_)) list().barrier();
  list().dispatch(threadgroups, {.x = threads, .y = 1, .z = 1});
  ++dispatches_;
}

void Encoder::submit() {
  if (list_ == nullptr) return;
  list_->submit();
  submitted_.push_back(std::move(list_));
  ++lists_;
  planner_.end();
}

Result<void> Encoder::finish() {
  submit();
  Result<void> done;
  for (const auto& list : submitted_) {
    auto result = list->wait();
    if (done.ok()) done = std::move(result);
  }
  submitted_.clear();
  return done;
}

}  // namespace lily::metal
