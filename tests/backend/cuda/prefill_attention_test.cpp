// The kernels of prompts' attention by themselves: against f64, and cut and split in ways that must not show.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels.h"

namespace lily::cuda {
namespace {

#ifdef LILY_CUDA_EMULATED
constexpr int kTokens = 150;  // of the emulator's patience
#else
constexpr int kTokens = 2500;
#endif
constexpr int kRangeForTests = 64;  // many ranges, of what the kernels take at a time
constexpr float kEps = 1e-6F;

float as_float(std::uint16_t bf16) {
  const std::uint32_t bits = static_cast<std::uint32_t>(bf16) << 16;
  float f = 0;
  std::memcpy(&f, &bits, 4);
  return f;
}

/// Device memory that tests fill and read.
template <class T>
class Array {
 public:
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    EXPECT_EQ(
        cudaMemcpyAsync(data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, nullptr),
        cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  explicit Array(std::size_t size)
      : size_(size),
        memory_(Memory::allocate(Memory::Kind::kDevice, static_cast<std::int64_t>(size * sizeof(T)), "a test")
                    .value()) {}
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), data(), size_ * sizeof(T), cudaMemcpyDeviceToHost, nullptr),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    return values;
  }

 private:
  std::size_t size_;
  Memory memory_;
};

/// Projected rows of a prompt, the same for every way to compute it.
struct Prompt {
  int query_heads, kv_heads;
  std::vector<std::uint16_t> projected;
  std::vector<float> gain = std::vector<float>(kHeadDim);
  std::vector<float> rope = std::vector<float>(static_cast<std::size_t>(kTokens) * kRotary);

  Prompt(int queries, int kvs) : query_heads(queries), kv_heads(kvs) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0F, 1.0F);
    projected.resize(static_cast<std::size_t>(kTokens * stride()));
    for (std::uint16_t& x : projected) {
      const float f = normal(random);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &f, 4);
      x = static_cast<std::uint16_t>(bits >> 16);
    }
    for (float& g : gain) g = 1.0F + 0.2F * normal(random);
    for (std::size_t i = 0; i < rope.size(); ++i) {
      const auto position = static_cast<double>(i / kRotary);
      const double angle = position * std::pow(1e7, -static_cast<double>(i % 32) / 32);
      rope[i] = static_cast<float>(i % kRotary < 32 ? std::cos(angle) : std::sin(angle));
    }
  }
  [[nodiscard]] int stride() const { return (2 * query_heads + 2 * kv_heads) * kHeadDim; }
  [[nodiscard]] const std::uint16_t* row(int token, int channel) const {
    return projected.data() + static_cast<std::ptrdiff_t>(token) * stride() + channel;
  }
  /// A head of queries or keys, normed and rotated.
  [[nodiscard]] std::vector<double> prepared(int token, int channel) const {
    std::vector<double> x(kHeadDim);
    double square = 0;
    for (int i = 0; i < kHeadDim; ++i) square += std::pow(as_float(row(token, channel)[i]), 2.0);
    const double inverse = 1 / std::sqrt(square / kHeadDim + kEps);
    for (int i = 0; i < kHeadDim; ++i) x[i] = as_float(row(token, channel)[i]) * inverse * gain[i];
    for (int i = 0; i < 32; ++i) {
      const double cosine = rope[static_cast<std::size_t>(token) * kRotary + i];
      const double sine = rope[static_cast<std::size_t>(token) * kRotary + 32 + i];
      const double low = x[i];
      x[i] = low * cosine - x[i + 32] * sine;
      x[i + 32] = x[i + 32] * cosine + low * sine;
    }
    return x;
  }
  /// What a head of a token must give.
  [[nodiscard]] std::vector<double> expected(int token, int head) const {
    const int kv_head = head / (query_heads / kv_heads);
    const auto query = prepared(token, head * 2 * kHeadDim);
    std::vector<double> out(kHeadDim);
    double total = 0;
    for (int key = 0; key <= token; ++key) {
      const auto k = prepared(key, (2 * query_heads + kv_head) * kHeadDim);
      double score = 0;
      for (int i = 0; i < kHeadDim; ++i) score += query[i] * k[i] / 16;
      const double p = std::exp(score);  // of rows of length 16: below e^30
      total += p;
      const std::uint16_t* v = row(key, (2 * query_heads + kv_heads + kv_head) * kHeadDim);
      for (int i = 0; i < kHeadDim; ++i) out[i] += p * as_float(v[i]);
    }
    for (int i = 0; i < kHeadDim; ++i)
      out[i] /= total * (1 + std::exp(-as_float(row(token, (head * 2 + 1) * kHeadDim)[i])));
    return out;
  }
};

/// The prompt in pieces that end at `cuts`, in two segments a step where `together` (a copy of the prompt
/// beside it).
class PrefillAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << "NOT CHECKED: " << opened.error().message;
    device_ = opened.value().device;
  }

  /// The output of the prompt in steps that end at `cuts`.
  [[nodiscard]] std::vector<std::uint16_t> run(const Prompt& prompt, std::vector<int> cuts, int partial_tiles,
                                               int factor = 1) const {
    const int least_range = factor * kRangeForTests;
    auto stream = Stream::create().value();
    constexpr int kPages = (kTokens + kPageTokens - 1) / kPageTokens;
    const int page_values = 2 * prompt.kv_heads * kPageTokens * kHeadDim;
    std::vector<std::uint16_t> stale(static_cast<std::size_t>(kPages * page_values), 0x7fc0);  // NaN
    const Array<std::uint16_t> pages(stale);
    std::vector<int> table(kPages);
    for (int i = 0; i < kPages; ++i) table[i] = kPages - 1 - i;
    const Array<int> page_table(table);
    const Array<float> gain(prompt.gain);
    const Array<float> partial(static_cast<std::size_t>(partial_tiles) * kAttentionPartialFloats);
    std::vector<std::uint16_t> result;
    int begin = 0;
    cuts.push_back(kTokens);
    for (const int end : cuts) {
      const int rows = end - begin;
      const auto width = static_cast<std::size_t>(prompt.query_heads * kHeadDim);
      std::vector<int> positions(static_cast<std::size_t>(rows));
      for (int i = 0; i < rows; ++i) positions[static_cast<std::size_t>(i)] = begin + i;
      const Array<int> position(positions);
      const Array<int> tables(std::vector<int>(static_cast<std::size_t>(rows), 0));
      const Array<SegmentRows> segment({{.first_row = 0,
                                         .rows = rows,
                                         .position = begin,
                                         .slot = 0,
                                         .table = 0,
                                         .first_chunk = 0,
                                         .chunks = 0}});
      const Array<std::uint16_t> projected(
          std::vector<std::uint16_t>(prompt.row(begin, 0), prompt.row(begin, 0) + rows * prompt.stride()));
      const Array<float> rope(
          std::vector<float>(prompt.rope.begin() + begin * kRotary, prompt.rope.begin() + end * kRotary));
      const Array<std::uint16_t> query(static_cast<std::size_t>(rows) * width);
      const Array<std::uint16_t> out(static_cast<std::size_t>(rows) * width);
      attention_prefill({.device = &device_, .stream = stream.get()},
                        {.projected = reinterpret_cast<const __nv_bfloat16*>(projected.data()),
                         .stride = prompt.stride(),
                         .query_heads = prompt.query_heads,
                         .q_gain = gain.data(),
                         .k_gain = gain.data(),
                         .eps = kEps,
                         .cache = {.layer = reinterpret_cast<__nv_bfloat16*>(pages.data()),
                                   .stride = page_values,
                                   .kv_heads = prompt.kv_heads},
                         .rows = {.position = position.data(),
                                  .table = tables.data(),
                                  .pages = page_table.data(),
                                  .page_stride = kPages,
                                  .rope = rope.data(),
                                  .count = rows},
                         .segments = segment.data(),
                         .segment_count = 1,
                         .longest_segment = rows,
                         .query = reinterpret_cast<__nv_bfloat16*>(query.data()),
                         .partial = partial.data(),
                         .partial_tiles = partial_tiles,
                         .least_range = least_range,
                         .out = reinterpret_cast<__nv_bfloat16*>(out.data())});
      EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
      EXPECT_TRUE(take_error().ok());
      const auto piece = out.read();
      result.insert(result.end(), piece.begin(), piece.end());
      begin = end;
    }
    return result;
  }

  Device device_;
};

constexpr int kManyTiles = 8 * (2 * kTokens / 16 + 8);
constexpr int kFewTiles = kManyTiles / 8;  // each block takes all ranges of its tile

TEST_F(PrefillAttention, IsThatOfDoublePrecision) {
  for (const auto& [query_heads, kv_heads] : {std::pair{8, 1}, {6, 2}}) {
    const Prompt prompt(query_heads, kv_heads);
    const auto got = run(prompt, {}, kManyTiles);
    for (const int token : {0, 1, 31, 32, 63, 64, 65, 127, 128, 140, kTokens - 1}) {
      for (int head = 0; head < query_heads; ++head) {
        const auto expected = prompt.expected(token, head);
        double error = 0;
        double size = 0;
        for (int i = 0; i < kHeadDim; ++i) {
          const float value =
              as_float(got[static_cast<std::size_t>((token * query_heads + head) * kHeadDim + i)]);
          error += std::pow(value - expected[static_cast<std::size_t>(i)], 2.0);
          size += std::pow(expected[static_cast<std::size_t>(i)], 2.0);
        }
        EXPECT_LT(std::sqrt(error / size), 1e-2) << "token " << token << " head " << head;
      }
    }
  }
}

TEST_F(PrefillAttention, GivesEqualBitsHoweverItIsCutAndSplit) {
  for (const auto& [query_heads, kv_heads] : {std::pair{8, 1}, {6, 2}}) {
    const Prompt prompt(query_heads, kv_heads);
    const auto expected = run(prompt, {}, kManyTiles);
    EXPECT_EQ(run(prompt, {}, kFewTiles), expected);
    EXPECT_EQ(run(prompt, {64, 128}, kManyTiles), expected);
    EXPECT_EQ(run(prompt, {64, 128}, kFewTiles), expected);
    EXPECT_EQ(run(prompt, {33, 40, 149}, kManyTiles), expected);
    EXPECT_NE(run(prompt, {}, kManyTiles, 2), expected);  // there are ranges
  }
}

}  // namespace
}  // namespace lily::cuda
