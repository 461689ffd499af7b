// Any bytes as a safetensors file: an error, or views that lie inside it and tile its data.
#include <cstdint>

#include "base/check.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto views = lily::parse_safetensors("fuzz", bytes);
  if (!views.ok()) return 0;
  const std::byte* next = nullptr;
  for (const lily::TensorView& view : *views) {
    const auto expected = static_cast<std::size_t>(view.elements()) * lily::dtype_size(view.dtype);
    LILY_CHECK(view.data.size() == expected, "{}: {} bytes", view.describe(), view.data.size());
    LILY_CHECK(view.data.data() >= bytes.data() && view.data.data() + expected <= bytes.data() + size,
               "outside");
    LILY_CHECK(next == nullptr || view.data.data() == next, "not contiguous");
    next = view.data.data() + expected;
  }
  LILY_CHECK(next == nullptr || next == bytes.data() + size, "trailing bytes");
  return 0;
}
