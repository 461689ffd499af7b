#pragma once

#include "cuda_runtime.h"

struct __nv_bfloat16 {
  std::uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 v) {
  return __uint_as_float(static_cast<std::uint32_t>(v.bits) << 16);
}
