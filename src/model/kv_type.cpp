#include "model/kv_type.h"

namespace lily {

std::string_view kv_type_name(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kBf16:
      return "bf16";
    case KvType::kQ8:
      break;
  }
  return "q8";
}

Result<KvType> parse_kv_type(std::string_view name, KvType automatic) {
  if (name == "auto") return automatic;
  for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kQ8}) {
    if (name == kv_type_name(type)) return type;
  }
  return fail(ErrorCode::kInvalidArgument, "kv-type '{}': expected one of auto, f32, bf16, q8", name);
}

}  // namespace lily
