// Matrix-vector products and products of many rows, at both sides of every route and at tails.
#include <fmt/format.h>

#include "tests/backend/metal/kernel_support.h"

namespace lily {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a file of cases
using metal::kSimd;

constexpr float kEps = 1e-6F;
constexpr std::uint32_t kDotThreads = metal::kDotSimdgroups * kSimd;

/// Inputs whose groups are spread over 8, 16 and 32 lanes, with lanes left over and lanes that take two.
constexpr std::array kWidths = {64, 512, 576, 1024, 1088, 2048, 2112};

std::uint32_t groups_for(std::int64_t out, int in, int rows) {
  const std::int64_t of_group =
      std::int64_t{metal::kDotSimdgroups} * (kSimd / metal::lanes_of_row(in)) * rows;
  return static_cast<std::uint32_t>((out + of_group - 1) / of_group);
}
/// Inputs under one scale.
int group_size(bool small) {
  return small ? metal::kGroup / 2 : metal::kGroup;
}
std::span<const float> row(const Floats& x, std::int64_t i, std::int64_t width) {
  return std::span(x).subspan(static_cast<std::size_t>(i * width), static_cast<std::size_t>(width));
}

TEST(MetalKernels, LanesOfARow) {
  EXPECT_EQ(metal::lanes_of_row(64), 8);
  EXPECT_EQ(metal::lanes_of_row(512), 8);
  EXPECT_EQ(metal::lanes_of_row(576), 16);
  EXPECT_EQ(metal::lanes_of_row(1024), 16);
  EXPECT_EQ(metal::lanes_of_row(1088), 32);
}

// A place of the output that no row owns keeps its poison, or the test's own value.
TEST(MetalKernels, Project) {
  for (const int bits : {4, 8}) {
    for (const int tokens : {1, 2, 4}) {
      for (const int in : kWidths) {
        const int out = in == 2048 ? 37 : 5;
        const int rows = tokens == 1 ? 1 : tokens + 1;  // the last round is not full
        const int stride = out + 3;
        const Floats x = random_floats(std::int64_t{rows + 1} * in, 1, 3.0F);
        const Floats gain = random_floats(in, 2);
        std::vector<int> index;
        for (int t = 0; t < rows; ++t) index.push_back(rows - t);
        for (const int indexed : {0, 1}) {
          const bool small = indexed != 0;
          const MatrixCase matrix(1, out, in, bits, 7, group_size(small));
          const Buffer got = poisoned(std::int64_t{rows} * stride);
          const metal::ProjectArgs args = {
              .in = in, .out = out, .out_stride = stride, .rows = rows, .indexed = indexed, .eps = kEps};
          const Buffer buffers[] = {upload(x), upload(index), upload(gain), argument(args)};
          expect_run(fmt::format("project_q{}_t{}", bits, tokens),
                     join({{buffers[0].get(), buffers[1].get(), buffers[2].get()},
                           matrix.buffers(),
                           {got.get(), buffers[3].get()}}),
                     {.groups = {.x = groups_for(out, in, metal::kDotRows),
                                 .y = static_cast<std::uint32_t>((rows + tokens - 1) / tokens)},
                      .threads = kDotThreads},
                     small);
          Floats values = floats_of(got);
          Floats mine;
          Floats expected;
          for (int t = 0; t < rows; ++t) {
            const int from = indexed != 0 ? index[static_cast<std::size_t>(t)] : t;
            const Floats h = normed(row(x, from, in), gain, kEps);
            for (int r = 0; r < stride; ++r) {
              const float value = values[static_cast<std::size_t>(t * stride + r)];
              if (r >= out) {
                EXPECT_TRUE(std::isnan(value)) << "written beyond the outputs";
                continue;
              }
              mine.push_back(value);
              expected.push_back(matrix.dot(0, r, h));
            }
          }
          EXPECT_LT(largest_error(mine, expected), 2e-5) << bits << " bits, " << tokens << " tokens, " << in;
        }
      }
    }
  }
}

TEST(MetalKernels, GatedProduct) {
  for (const int gate_bits : {4, 8}) {
    for (const int up_bits : {4, 8}) {
      for (const auto& [in, small] :
           {std::pair{64, false}, {576, false}, {2112, false}, {64, true}, {576, true}}) {
        const int out = 19;
        const int rows = 2;
        const MatrixCase gate(1, out, in, gate_bits, 3, group_size(small));
        const MatrixCase up(1, out, in, up_bits, 4, group_size(small));
        const Floats x = random_floats(std::int64_t{rows} * in, 5);
        const Floats gain = random_floats(in, 6);
        const Buffer got = poisoned(std::int64_t{rows} * out);
        const metal::GatedArgs args = {.in = in, .out = out, .rows = rows, .eps = kEps};
        const Buffer buffers[] = {upload(x), upload(gain), argument(args)};
        expect_run(
            fmt::format("gated_q{}_q{}", gate_bits, up_bits),
            join({{buffers[0].get(), buffers[1].get()},
                  gate.buffers(),
                  up.buffers(),
                  {got.get(), buffers[2].get()}}),
            {.groups = {.x = groups_for(out, in, metal::kGatedColumns), .y = rows}, .threads = kDotThreads},
            small);
        Floats expected;
        for (int t = 0; t < rows; ++t) {
          const Floats h = normed(row(x, t, in), gain, kEps);
          for (int r = 0; r < out; ++r) expected.push_back(silu(gate.dot(0, r, h)) * up.dot(0, r, h));
        }
        EXPECT_LT(largest_error(floats_of(got), expected), 2e-5) << gate_bits << " " << up_bits << " " << in;
      }
    }
  }
}

TEST(MetalKernels, AddProduct) {
  for (const int bits : {4, 8}) {
    for (const int tokens : {1, 2, 4}) {
      for (const int in : {64, 1024, 2112}) {
        const int out = 70;
        const int rows = tokens;
        const MatrixCase matrix(1, out, in, bits, 9);
        const Floats x = random_floats(std::int64_t{rows} * in, 1);
        const Floats residual = random_floats(std::int64_t{rows} * out, 2);
        const Buffer got = upload(residual);
        const metal::AddProductArgs args = {
            .in = in, .out = out, .rows = rows, .gate_stride = 0, .eps = kEps};
        const Buffer buffers[] = {upload(x), argument(args)};
        expect_run(fmt::format("add_plain_q{}_t{}", bits, tokens),
                   join({{buffers[0].get()}, matrix.buffers(), {got.get(), buffers[1].get()}}),
                   {.groups = {.x = groups_for(out, in, metal::kDotRows)}, .threads = kDotThreads});
        Floats expected = residual;
        for (int t = 0; t < rows; ++t) {
          for (int r = 0; r < out; ++r)
            expected[static_cast<std::size_t>(t * out + r)] += matrix.dot(0, r, row(x, t, in));
        }
        EXPECT_LT(largest_error(floats_of(got), expected), 2e-5) << bits << " " << tokens << " " << in;
      }
    }
  }
}

TEST(MetalKernels, AddGatedNorm) {
  for (const int bits : {4, 8}) {
    for (const int heads : {1, 5, 9, 33}) {
      const int in = heads * metal::kLinearDim;
      const int out = 23;
      const int rows = 3;
      const int stride = in + 5 * 4;
      const MatrixCase matrix(1, out, in, bits, 2);
      const Floats x = random_floats(std::int64_t{rows} * in, 1);
      const Floats gate = random_floats(std::int64_t{rows} * stride, 3, 2.0F);
      const Floats gain = random_floats(metal::kLinearDim, 4);
      Floats squares;
      Floats expected(static_cast<std::size_t>(rows * out), 0.5F);
      for (int t = 0; t < rows; ++t) {
        Floats y;
        for (int h = 0; h < heads; ++h) {
          const auto head = row(x, t * heads + h, metal::kLinearDim);
          for (int part = 0; part < metal::kDeltaParts; ++part) {
            float sum = 0;
            for (const float v : row(x, (t * heads + h) * metal::kDeltaParts + part, metal::kDeltaColumns))
              sum += v * v;
            squares.push_back(sum);
          }
          const Floats n = normed(head, gain, kEps);
          for (std::size_t d = 0; d < n.size(); ++d)
            y.push_back(n[d] *
                        silu(row(gate, t, stride)[static_cast<std::size_t>(h * metal::kLinearDim) + d]));
        }
        for (int r = 0; r < out; ++r) expected[static_cast<std::size_t>(t * out + r)] += matrix.dot(0, r, y);
      }
      const Buffer got = upload(Floats(static_cast<std::size_t>(rows * out), 0.5F));
      const metal::AddProductArgs args = {
          .in = in, .out = out, .rows = rows, .gate_stride = stride, .eps = kEps};
      const Buffer buffers[] = {upload(x), argument(args), upload(gate), upload(squares), upload(gain)};
      expect_run(fmt::format("add_gated_norm_q{}_t4", bits),
                 join({{buffers[0].get()},
                       matrix.buffers(),
                       {got.get(), buffers[1].get(), buffers[2].get(), buffers[3].get(), buffers[4].get()}}),
                 {.groups = {.x = groups_for(out, in, metal::kDotRows)}, .threads = kDotThreads});
      EXPECT_LT(largest_error(floats_of(got), expected), 2e-5) << bits << " " << heads;
    }
  }
}

TEST(MetalKernels, Embed) {
  for (const auto& [bits, small] : {std::pair{4, false}, {8, false}, {4, true}, {8, true}}) {
    const int hidden = 192;
    const MatrixCase matrix(1, 9, hidden, bits, 5, group_size(small));
    const std::vector<int> tokens = {8, 0, 3};
    const Buffer got = poisoned(3 * hidden);
    const Buffer buffers[] = {upload(tokens), argument(metal::EmbedArgs{.hidden = hidden, .rows = 3})};
    expect_run(fmt::format("embed_q{}", bits),
               join({matrix.buffers(), {buffers[0].get(), got.get(), buffers[1].get()}}),
               {.groups = {.x = 2, .y = 3}, .threads = kDotThreads}, small);
    Floats expected;
    for (const int token : tokens) {
      for (int i = 0; i < hidden; ++i) {
        Floats unit(static_cast<std::size_t>(hidden), 0.0F);
        unit[static_cast<std::size_t>(i)] = 1;
        expected.push_back(matrix.dot(0, token, unit));
      }
    }
    EXPECT_LT(largest_error(floats_of(got), expected), 1e-6) << bits;
  }
}

// ---- many rows

/// Lists of rows of three experts: an empty one, a short one, and one of a whole tile and a tail.
struct ExpertRows {
  std::vector<int> index;
  std::vector<int> expert;  ///< of each list row
  std::vector<metal::Tile> tiles;
};
ExpertRows expert_rows(int input_rows, int height) {
  ExpertRows r;
  for (const auto& [expert, count] : {std::pair{0, 3}, std::pair{2, 66}}) {
    for (int start = 0; start < count; start += height) {
      r.tiles.push_back({.expert = expert,
                         .start = static_cast<int>(r.index.size()) + start,
                         .rows = std::min(count - start, height)});
    }
    for (int i = 0; i < count; ++i) {
      r.index.push_back((i * 7 + expert) % input_rows);
      r.expert.push_back(expert);
    }
  }
  r.tiles.push_back({.expert = 0, .start = 0, .rows = 0});
  return r;
}

/// Rounded as the kernel's operands are.
Floats rounded(const Floats& x, bool half) {
  return half ? from_half(to_half(x)) : from_bf16(to_bf16(x));
}

struct GemmKind {
  const char* name;
  bool half;  ///< operands
  bool adds;  ///< to what is there
  bool bf16;  ///< output
  double tolerance;
};

TEST(MetalKernels, Gemm) {
  for (const GemmKind& kind : {GemmKind{"gemm_store", true, false, false, 2e-3},
                               {"gemm_add", true, true, false, 2e-3},
                               {"gemm_down_add", false, true, false, 1.2e-2},
                               {"gemm_down", false, false, true, 1.5e-2}}) {
    for (const auto& [bits, height, small] :
         {std::tuple{4, 32, false}, {4, 64, true}, {8, 32, true}, {8, 64, false}}) {
      const int in = 192;
      const int out = 71;
      const int stride = 80;
      const ExpertRows rows = expert_rows(20, height);
      const auto count = static_cast<std::int64_t>(rows.index.size());
      const MatrixCase matrix(3, out, in, bits, 8, group_size(small));
      const Floats x = rounded(random_floats(std::int64_t{20} * in, 3), kind.half);
      const Floats weight = random_floats(count, 4);
      const float before = kind.adds ? 2.0F : std::numeric_limits<float>::quiet_NaN();
      Floats start(static_cast<std::size_t>(count * stride), before);
      const Buffer got = kind.bf16 ? upload(to_bf16(start)) : upload(start);
      const metal::GemmArgs args = {.in = in, .out = out, .out_stride = stride, .indexed = 1, .weighted = 1};
      const Buffer buffers[] = {kind.half ? upload(to_half(x)) : upload(to_bf16(x)), upload(rows.index),
                                upload(rows.tiles), upload(weight), argument(args)};
      expect_run(fmt::format("{}_q{}_r{}", kind.name, bits, height),
                 join({{buffers[0].get(), buffers[1].get(), buffers[2].get()},
                       matrix.buffers(),
                       {got.get(), buffers[3].get(), buffers[4].get()}}),
                 {.groups = {.x = static_cast<std::uint32_t>(rows.tiles.size()), .y = 2},
                  .threads = metal::kTileThreads},
                 small);
      const Floats values = kind.bf16 ? from_bf16(values_of<std::uint16_t>(*got)) : floats_of(got);
      Floats mine;
      Floats expected;
      for (std::int64_t r = 0; r < count; ++r) {
        const auto at = static_cast<std::size_t>(r);
        for (int c = 0; c < stride; ++c) {
          const float value = values[at * static_cast<std::size_t>(stride) + static_cast<std::size_t>(c)];
          if (c >= out) {
            EXPECT_TRUE(kind.adds ? value == before : std::isnan(value)) << "written beyond the outputs";
            continue;
          }
          mine.push_back(value);
          expected.push_back((kind.adds ? before : 0.0F) +
                             weight[at] * matrix.dot(rows.expert[at], c, row(x, rows.index[at], in)));
        }
      }
      EXPECT_LT(largest_error(mine, expected), kind.tolerance) << kind.name << " " << bits;
    }
  }
}

TEST(MetalKernels, GatedGemm) {
  for (const int gate_bits : {4, 8}) {
    for (const auto& [up_bits, height] : {std::pair{4, 32}, {4, 64}, {8, 32}, {8, 64}}) {
      const int in = 128;
      const int out = 39;
      const ExpertRows rows = expert_rows(12, height);
      const auto count = static_cast<std::int64_t>(rows.index.size());
      const MatrixCase gate(3, out, in, gate_bits, 1);
      const MatrixCase up(3, out, in, up_bits, 2);
      const Floats x = rounded(random_floats(std::int64_t{12} * in, 3), true);
      const Buffer got = upload(to_bf16(Floats(static_cast<std::size_t>(count * out), std::nanf(""))));
      const metal::GemmArgs args = {.in = in, .out = out, .out_stride = out, .indexed = 1, .weighted = 0};
      const Buffer buffers[] = {upload(to_half(x)), upload(rows.index), upload(rows.tiles), argument(args)};
      expect_run(fmt::format("gemm_gated_q{}_q{}_r{}", gate_bits, up_bits, height),
                 join({{buffers[0].get(), buffers[1].get(), buffers[2].get()},
                       gate.buffers(),
                       up.buffers(),
                       {got.get(), buffers[3].get()}}),
                 {.groups = {.x = static_cast<std::uint32_t>(rows.tiles.size()), .y = 2},
                  .threads = metal::kTileThreads});
      Floats expected;
      for (std::size_t r = 0; r < rows.index.size(); ++r) {
        const auto h = row(x, rows.index[r], in);
        for (int c = 0; c < out; ++c)
          expected.push_back(silu(gate.dot(rows.expert[r], c, h)) * up.dot(rows.expert[r], c, h));
      }
      EXPECT_LT(largest_error(from_bf16(values_of<std::uint16_t>(*got)), expected), 5e-3)
          << gate_bits << " " << up_bits;
    }
  }
}

}  // namespace
}  // namespace lily
