// Which backend runs a model.
#include "backend/backend.h"
#include "base/check.h"
#include "base/log.h"
#include "model/kv_type.h"

namespace lily {
namespace {

using Made = Result<std::unique_ptr<Backend>>;
using Fitted = Result<FittedBackend>;

struct Maker {
  const char* name;
  bool automatic;            ///< `auto` may take it
  std::int64_t prompt_rows;  ///< of a step, where the caller leaves it open
  bool ablates;              ///< knows BackendOptions::without
  bool own_memory;           ///< a card's, which limits may be fitted to
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
    {"cuda", true, kCardRows, true, true, make_cuda_backend},
    {"metal", true, kCardRows, false, false, make_metal_backend},
    {"cpu", true, kProcessorRows, true, false, make_cpu_backend},
    {"metal-emulated", false, kProcessorRows, false, false, make_metal_backend},
    {"reference", false, kProcessorRows, false, false, make_reference},
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

/// What the caller leaves to the backend.
struct Request {
  const BackendOptions& options;
  const ModelWeights& weights;
  const BackendLimits& limits;
  std::span<const BackendLimits> for_card;
};

Fitted make_fitting(const Maker& maker, const Request& request) {
  const auto fitted = [&](const BackendLimits& limits) -> Fitted {
    LILY_TRY(auto backend, make(maker, request.options, request.weights, limits));
    return FittedBackend{std::move(backend), limits};
  };
  if (!maker.own_memory || request.for_card.empty()) return fitted(request.limits);
  for (const BackendLimits& limits : request.for_card.first(request.for_card.size() - 1)) {
    Fitted made = fitted(limits);
    if (made.ok() || made.error().code != ErrorCode::kExhausted) return made;
  }
  return fitted(request.for_card.back());
}

Fitted make_automatic(const Request& request) {
  for (const Maker& maker : kMakers) {
    if (!maker.automatic || !is_built(maker)) continue;
    Fitted made = make_fitting(maker, request);
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

void Backend::read_logits(std::int64_t row, std::span<float> /*out*/) {
  LILY_CHECK(false, "{} lists no candidates, row {}", description(), row);
}

Result<FittedBackend> make_fitting_backend(const BackendOptions& options, const ModelWeights& weights,
                                           const BackendLimits& limits,
                                           std::span<const BackendLimits> for_card) {
  const Request request{options, weights, limits, for_card};
  if (options.name == "auto") return make_automatic(request);
  std::string known = "auto";
  for (const Maker& maker : kMakers) {
    if (options.name == maker.name) return make_fitting(maker, request);
    known += std::string(", ") + maker.name;
  }
  return fail(ErrorCode::kInvalidArgument, "backend '{}': expected one of {}", options.name, known);
}

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options, const ModelWeights& weights,
                                              const BackendLimits& limits) {
  LILY_TRY(auto made, make_fitting_backend(options, weights, limits, {}));
  return std::move(made.backend);
}

}  // namespace lily
