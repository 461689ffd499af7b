#include "tests/engine/goldens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace lily::testing {
namespace {

template <class T>
std::vector<T> copy_as(const TensorView& tensor) {
  std::vector<T> out(tensor.data.size() / sizeof(T));
  std::memcpy(out.data(), tensor.data.data(), tensor.data.size());
  return out;
}

std::vector<double> log_softmax(std::span<const float> row) {
  const double largest = *std::ranges::max_element(row);
  double sum = 0;
  for (const float l : row) sum += std::exp(l - largest);
  std::vector<double> out;
  out.reserve(row.size());
  for (const float l : row) out.push_back(l - largest - std::log(sum));
  return out;
}

}  // namespace

std::string reference_path(const std::string& name) {
  const char* folder = std::getenv("LILY_REFERENCE");
  return (folder != nullptr ? std::string(folder) : LILY_SOURCE_DIR "/../shared/reference") + "/" + name;
}

Goldens::Goldens(const std::string& name)
    : file_(MappedFile::open(reference_path(name) + "/golden.safetensors").value()) {
  auto tensors = parse_safetensors("golden.safetensors", file_.bytes()).value();
  for (TensorView& tensor : tensors) {
    std::string key = tensor.name;
    tensors_.emplace(std::move(key), std::move(tensor));
  }
}

std::vector<TokenId> Goldens::ids(const std::string& name) const {
  return copy_as<TokenId>(tensors_.at(name));
}
std::vector<float> Goldens::floats(const std::string& name) const {
  return copy_as<float>(tensors_.at(name));
}

Agreement compare(std::span<const float> expected, std::span<const float> actual, std::size_t vocab) {
  Agreement a;
  const std::size_t rows = expected.size() / vocab;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto e = expected.subspan(r * vocab, vocab);
    const auto b = actual.subspan(r * vocab, vocab);
    const auto p = log_softmax(e);
    const auto q = log_softmax(b);
    for (std::size_t i = 0; i < vocab; ++i) {
      const double difference = std::abs(static_cast<double>(e[i]) - b[i]);
      // NaN compares false with everything: count it as infinitely far.
      a.max_abs = difference <= a.max_abs ? a.max_abs : (difference > a.max_abs ? difference : HUGE_VAL);
      a.mean_kl += std::exp(p[i]) * (p[i] - q[i]) / static_cast<double>(rows);
    }
    const bool same = std::ranges::max_element(e) - e.begin() == std::ranges::max_element(b) - b.begin();
    a.top1 += (same ? 1.0 : 0.0) / static_cast<double>(rows);
  }
  return a;
}

std::vector<float> logits_of(LoadedModel& model, std::span<const TokenId> tokens, std::int64_t chunk) {
  auto sequence = Sequence::create(model.pool());
  EXPECT_TRUE(sequence.ok());
  std::vector<float> logits;
  const auto done = model.prefill(*sequence, tokens, Logits::kAll, logits, chunk);
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  return logits;
}

}  // namespace lily::testing
