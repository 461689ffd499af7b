// The CPU backend on the reference checkpoints, against their golden logits. The checkpoints lie beside the
// repository (LILY_REFERENCE_DIR, or ../shared/reference); without them the test is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "base/bf16.h"
#include "base/mmap.h"
#include "checkpoint/checkpoint.h"
#include "tests/backend/random_model.h"

namespace lily {
namespace {

using testing::run_step;
using testing::Timeline;

std::filesystem::path reference_dir() {
  if (const char* dir = std::getenv("LILY_REFERENCE_DIR")) return dir;
  return std::filesystem::path(LILY_SOURCE_DIR) / "../shared/reference";
}

/// One reference checkpoint and its goldens.
struct Reference {
  explicit Reference(const std::string& name) {
    const auto dir = reference_dir() / name;
    auto files = ModelFiles::open(dir.string());
    LILY_CHECK(files.ok(), "{}", files.error().message);
    auto checkpoint = Checkpoint::open(files.value());
    LILY_CHECK(checkpoint.ok(), "{}", checkpoint.error().message);
    auto loaded = load_weights(checkpoint.value());
    LILY_CHECK(loaded.ok(), "{}", loaded.error().message);
    weights = std::move(loaded).value();
    auto file = MappedFile::open(dir / "golden.safetensors");
    LILY_CHECK(file.ok(), "{}", file.error().message);
    golden_file.emplace(std::move(file).value());
    auto parsed = parse_safetensors("golden.safetensors", golden_file->bytes());
    LILY_CHECK(parsed.ok(), "{}", parsed.error().message);
    golden = std::move(parsed).value();
  }
  template <class T>
  [[nodiscard]] std::vector<T> tensor(const std::string& name) const {
    const auto found = std::ranges::find(golden, name, &TensorView::name);
    LILY_CHECK(found != golden.end(), "no golden {}", name);
    std::vector<T> values(found->data.size() / sizeof(T));
    std::memcpy(values.data(), found->data.data(), found->data.size());
    return values;
  }
  [[nodiscard]] std::unique_ptr<Backend> backend(const BackendOptions& options) const {
    auto made = make_backend(options, weights, {.kv_pages = 4, .slots = 1, .max_rows = 520});
    LILY_CHECK(made.ok(), "{}", made.error().message);
    made.value()->zero_slot(0);
    return std::move(made).value();
  }

  ModelWeights weights;
  std::optional<MappedFile> golden_file;
  std::vector<TensorView> golden;
};

struct Difference {
  double largest = 0;     ///< of any logit
  double divergence = 0;  ///< mean KL(golden || ours) over rows
  double agreement = 0;   ///< share of rows with the same top token
};

Difference compare(const std::vector<float>& got, const std::vector<float>& expected, std::size_t vocab) {
  Difference d;
  const std::size_t rows = expected.size() / vocab;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* p = &expected[row * vocab];
    const float* q = &got[got.size() - expected.size() + row * vocab];
    double zp = 0;
    double zq = 0;
    for (std::size_t i = 0; i < vocab; ++i) {
      zp += std::exp(static_cast<double>(p[i]));
      zq += std::exp(static_cast<double>(q[i]));
      d.largest = std::max(d.largest, std::abs(static_cast<double>(p[i]) - q[i]));
    }
    for (std::size_t i = 0; i < vocab; ++i) {
      const double log_p = p[i] - std::log(zp);
      d.divergence += std::exp(log_p) * (log_p - (q[i] - std::log(zq))) / static_cast<double>(rows);
    }
    const bool same = std::max_element(p, p + vocab) - p == std::max_element(q, q + vocab) - q;
    d.agreement += (same ? 1.0 : 0.0) / static_cast<double>(rows);
  }
  return d;
}

/// The golden prompt of `length`, in steps of `chunk`, all logits.
std::vector<float> logits_of(const Reference& reference, const BackendOptions& options, std::int64_t length,
                             std::size_t chunk) {
  const auto tokens = reference.tensor<std::int32_t>("tokens_" + std::to_string(length));
  const std::span<const TokenId> x(tokens);
  const auto backend = reference.backend(options);
  Timeline timeline{.pages = {2, 0, 3}};
  std::vector<float> logits;
  for (std::size_t i = 0; i < x.size(); i += chunk) {
    const auto part = x.subspan(i, std::min(chunk, x.size() - i));
    const auto some = run_step(*backend, reference.weights, {timeline.extend(part, Logits::kAll)});
    logits.insert(logits.end(), some.begin(), some.end());
  }
  return logits;
}

class CpuGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(reference_dir() / GetParam())) {
      GTEST_SKIP() << "NOT CHECKED: no reference checkpoint " << (reference_dir() / GetParam());
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Checkpoints, CpuGolden, ::testing::Values("small", "wide"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(CpuGolden, ExactLogits) {
  const Reference reference(GetParam());
  const auto vocab = static_cast<std::size_t>(reference.weights.shapes.vocab);
  const auto check = [&](std::int64_t length, std::size_t chunk) {
    const auto expected = reference.tensor<float>("logits_" + std::to_string(length));
    const Difference d =
        compare(logits_of(reference, {.name = "cpu", .exact = true}, length, chunk), expected, vocab);
    EXPECT_LT(d.largest, 5e-4) << length << " tokens in steps of " << chunk;
  };
  for (const std::int64_t length : {1, 5, 63, 64, 65, 200, 513}) check(length, 520);
  for (const std::size_t chunk : {1, 7, 64}) check(65, chunk);
}

// On `small` a random model's routing flips weigh more than the roundings themselves: its 16 experts lie
// close together.
TEST_P(CpuGolden, Int8LogitsByDivergence) {
  const Reference reference(GetParam());
  const auto vocab = static_cast<std::size_t>(reference.weights.shapes.vocab);
  const double bound = std::string(GetParam()) == "small" ? 0.05 : 0.005;
  const auto expected = reference.tensor<float>("logits_200");
  for (const char* kv_type : {"bf16", "q8"}) {
    for (const std::size_t chunk : {1, 7, 520}) {
      const BackendOptions options = {.name = "cpu", .kv_type = kv_type};
      const Difference d = compare(logits_of(reference, options, 200, chunk), expected, vocab);
      EXPECT_LT(d.divergence, bound) << kv_type << " in steps of " << chunk;
      EXPECT_GT(d.agreement, 0.85) << kv_type << " in steps of " << chunk;
    }
  }
}

}  // namespace
}  // namespace lily
