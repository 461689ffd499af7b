#include "backend/metal/gpu_device.h"

#include "base/units.h"

namespace lily::metal {

Result<void> check_working_set(const DeviceFacts& facts, std::int64_t allocated, std::size_t size,
                               std::string_view what) {
  const auto wanted = static_cast<std::int64_t>(size);
  if (wanted > facts.max_buffer_bytes) {
    return fail(ErrorCode::kExhausted, "{}: {} of {}, a buffer has at most {}", facts.name,
                format_bytes(static_cast<double>(wanted)), what,
                format_bytes(static_cast<double>(facts.max_buffer_bytes)));
  }
  if (allocated + wanted > facts.working_set_bytes) {
    return fail(ErrorCode::kExhausted, "{}: {} of {} beside {}, the system recommends at most {}", facts.name,
                format_bytes(static_cast<double>(wanted)), what, format_bytes(static_cast<double>(allocated)),
                format_bytes(static_cast<double>(facts.working_set_bytes)));
  }
  return {};
}

}  // namespace lily::metal
