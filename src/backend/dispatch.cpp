// Which backend runs a model.
#include "backend/backend.h"
#include "base/log.h"
#include "model/kv_type.h"

namespace lily {
namespace {

using Made = Result<std::unique_ptr<Backend>>;

struct Maker {
  const char* name;
  bool automatic;            ///< `auto` may take it
  std::int64_t prompt_rows;  ///< of a step, where the caller leaves it open
  bool ablates;              ///< knows BackendOptions::without
  Made (*make)(const BackendOptions&, const ModelWeights&, const BackendLimits&);
};

Made make_reference(const BackendOptions& options, const ModelWeights& weights, const BackendLimits& limits) {
  LILY_TRY(const KvType kv_type, parse_kv_type(options.kv_type, KvType::kF32));
  if (kv_type != KvType::kF32) {
    return fail(ErrorCode::kUnsupported, "reference: keeps K and V in f32, kv-type {} is for the cpu backend",
                options.kv_type);
  }
  return make_reference_backend(weights, limits);
}

// A card works through 4,096 rows in the time that it takes to read all experts' weights a few times.
constexpr std::int64_t kCardRows = 4096;
constexpr std::int64_t kProcessorRows = 512;

// Best first.
constexpr Maker kMakers[] = {
    {"cuda", true, kCardRows, true, make_cuda_backend},
    {"metal", true, kCardRows, false, make_metal_backend},
    {"cpu", true, kProcessorRows, true, make_cpu_backend},
    {"metal-emulated", false, kProcessorRows, false, make_metal_backend},
    {"reference", false, kProcessorRows, false, make_reference},
};

bool is_built(const Maker& maker) {
  const std::string_view name = maker.name;
  if (name == "cuda") return has_cuda_backend();
  if (name.starts_with("metal")) return has_metal_backend(name);
  return true;
}

Made make(const Maker& maker, BackendOptions options, const ModelWeights& weights, BackendLimits limits) {
  options.name = maker.name;
  if (!options.without.empty() && !maker.ablates) {
    return fail(ErrorCode::kUnsupported, "{}: has nothing to do without, found '{}'", maker.name,
                options.without);
  }
  if (limits.max_rows == 0) limits.max_rows = maker.prompt_rows + limits.slots;
  return maker.make(options, weights, limits);
}

Made make_automatic(const BackendOptions& options, const ModelWeights& weights, const BackendLimits& limits) {
  for (const Maker& maker : kMakers) {
    if (!maker.automatic || !is_built(maker)) continue;
    Made made = make(maker, options, weights, limits);
    if (made.ok() || std::string_view(maker.name) == "cpu") return made;
    log::warn("backend {} does not work here: {}", maker.name, made.error().message);
  }
  return fail(ErrorCode::kInternal, "no backend in this build");
}

}  // namespace

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const Maker& maker : kMakers) {
    if (is_built(maker)) names.emplace_back(maker.name);
  }
  return names;
}

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options, const ModelWeights& weights,
                                              const BackendLimits& limits) {
  if (options.name == "auto") return make_automatic(options, weights, limits);
  std::string known = "auto";
  for (const Maker& maker : kMakers) {
    if (options.name == maker.name) return make(maker, options, weights, limits);
    known += std::string(", ") + maker.name;
  }
  return fail(ErrorCode::kInvalidArgument, "backend '{}': expected one of {}", options.name, known);
}

}  // namespace lily
