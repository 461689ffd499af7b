// The choice of experts, their products for a few rows, their sorting for many, the choice of a token and of
// candidates.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tests/backend/metal/kernel_support.h"

namespace lily {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a file of cases
using metal::kSimd;

constexpr float kEps = 1e-6F;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}
std::span<const float> row(const Floats& x, std::int64_t i, std::int64_t width) {
  return std::span(x).subspan(at(i * width), at(width));
}

struct Choice {
  std::vector<int> experts;
  Floats weights;
};
Choice choose(std::span<const float> logits, int k) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return logits[at(a)] > logits[at(b)]; });
  Choice c;
  float total = 0;
  for (int i = 0; i < k; ++i) {
    c.experts.push_back(order[at(i)]);
    c.weights.push_back(std::exp(logits[at(order[at(i)])] - logits[at(order[0])]));
    total += c.weights.back();
  }
  for (float& w : c.weights) w /= total;
  return c;
}

struct MoeCase {
  metal::MoeArgs args;
  Floats x = random_floats(std::int64_t{args.rows} * args.hidden, 1);
  Floats gain = random_floats(args.hidden, 2);
  Floats logits = make_logits();

  /// Equal logits among them: the lower expert is meant.
  [[nodiscard]] Floats make_logits() const {
    Floats l = random_floats(std::int64_t{args.rows} * args.logits_stride, 3, 2.0F);
    for (int t = 0; t < args.rows; ++t) {
      l[at(t * args.logits_stride + args.experts - 1)] = 9;
      l[at(t * args.logits_stride + 1)] = 9;
      l[at(t * args.logits_stride + 2)] = 9;
    }
    return l;
  }
  [[nodiscard]] Choice choice(int t) const {
    return choose(row(logits, t, args.logits_stride).first(at(args.experts)), args.experts_per_token);
  }
};

metal::MoeArgs moe_args(int hidden, int experts, int k, int width, int shared) {
  return {.hidden = hidden,
          .experts = experts,
          .experts_per_token = k,
          .expert_width = width,
          .shared_width = shared,
          .logits_stride = experts + 1,
          .rows = 2,
          .eps = kEps};
}

TEST(MetalKernels, ExpertsIn) {
  for (const auto& [gate_bits, up_bits, hidden] :
       {std::tuple{4, 4, 64}, {4, 8, 576}, {8, 4, 1088}, {8, 8, 128}, {4, 4, 2048}}) {
    const MoeCase c{.args = moe_args(hidden, 40, 3, 21, 64)};
    const auto& a = c.args;
    const MatrixCase gate(a.experts, a.expert_width, hidden, gate_bits, 4);
    const MatrixCase up(a.experts, a.expert_width, hidden, up_bits, 5);
    const Buffer expanded = poisoned(a.rows * a.experts_per_token * a.expert_width);
    const Buffer chosen = poisoned(a.rows * a.experts_per_token);
    const Buffer weights = poisoned(a.rows * a.experts_per_token);
    const Buffer b[] = {upload(c.x), upload(c.gain), upload(c.logits), argument(a)};
    const std::int64_t of_group =
        std::int64_t{metal::kDotSimdgroups} * (kSimd / metal::lanes_of_row(hidden)) * metal::kGatedColumns;
    expect_run(fmt::format("experts_in_q{}_q{}", gate_bits, up_bits),
               join({{b[0].get(), b[1].get(), b[2].get()},
                     gate.buffers(),
                     up.buffers(),
                     {expanded.get(), chosen.get(), weights.get(), b[3].get()}}),
               {.groups = {static_cast<std::uint32_t>((a.expert_width + of_group - 1) / of_group), 3, 2},
                .threads = metal::kDotSimdgroups * kSimd});
    Floats expected;
    Floats expected_weights;
    std::vector<int> expected_choice;
    for (int t = 0; t < a.rows; ++t) {
      const Choice choice = c.choice(t);
      const Floats h = normed(row(c.x, t, hidden), c.gain, kEps);
      expected_choice.insert(expected_choice.end(), choice.experts.begin(), choice.experts.end());
      expected_weights.insert(expected_weights.end(), choice.weights.begin(), choice.weights.end());
      for (const int e : choice.experts) {
        for (int r = 0; r < a.expert_width; ++r)
          expected.push_back(silu(gate.dot(e, r, h)) * up.dot(e, r, h));
      }
    }
    EXPECT_EQ(values_of<int>(*chosen), expected_choice);
    EXPECT_LT(largest_error(floats_of(weights), expected_weights), 1e-6);
    EXPECT_LT(largest_error(floats_of(expanded), expected), 2e-5)
        << gate_bits << " " << up_bits << " " << hidden;
  }
}

TEST(MetalKernels, ExpertsOut) {
  for (const auto& [bits, shared_bits, width, shared_width] :
       {std::tuple{4, 4, 64, 128}, {4, 8, 512, 576}, {8, 4, 192, 2112}, {8, 8, 640, 64}}) {
    const MoeCase c{.args = moe_args(72, 5, 3, width, shared_width)};
    const auto& a = c.args;
    const MatrixCase down(a.experts, a.hidden, width, bits, 4);
    const MatrixCase shared_down(1, a.hidden, shared_width, shared_bits, 5);
    const Floats expanded = random_floats(std::int64_t{a.rows} * a.experts_per_token * width, 6);
    const Floats shared = random_floats(std::int64_t{a.rows} * shared_width, 7);
    Floats expected = random_floats(std::int64_t{a.rows} * a.hidden, 8);
    std::vector<int> chosen;
    Floats weights;
    for (int t = 0; t < a.rows; ++t) {
      const Choice choice = c.choice(t);
      chosen.insert(chosen.end(), choice.experts.begin(), choice.experts.end());
      weights.insert(weights.end(), choice.weights.begin(), choice.weights.end());
    }
    const Buffer residual = upload(expected);
    const Buffer b[] = {upload(expanded), upload(chosen),   upload(weights),
                        upload(shared),   upload(c.logits), argument(a)};
    expect_run(fmt::format("experts_out_q{}_q{}", bits, shared_bits),
               join({{b[0].get(), b[1].get(), b[2].get(), b[3].get(), b[4].get()},
                     down.buffers(),
                     shared_down.buffers(),
                     {residual.get(), b[5].get()}}),
               {.groups = {(72 + metal::kExpertsOutRows - 1) / metal::kExpertsOutRows, 2},
                .threads = static_cast<std::uint32_t>((a.experts_per_token + 1) * kSimd)});
    for (int t = 0; t < a.rows; ++t) {
      const float share = sigmoid(c.logits[at(t * a.logits_stride + a.experts)]);
      for (int r = 0; r < a.hidden; ++r) {
        float& sum = expected[at(t * a.hidden + r)];
        for (int k = 0; k < a.experts_per_token; ++k) {
          const int i = t * a.experts_per_token + k;
          sum += weights[at(i)] * down.dot(chosen[at(i)], r, row(expanded, i, width));
        }
        sum += share * shared_down.dot(0, r, row(shared, t, shared_width));
      }
    }
    EXPECT_LT(largest_error(floats_of(residual), expected), 2e-5)
        << bits << " " << shared_bits << " " << width;
  }
}

// Every row's choices come out of the sort once, in its expert's list, with their weights and tiles.
TEST(MetalKernels, RowsAreSortedByExpert) {
  for (const auto& [rows, height] : {std::pair{1, 32}, {5, 32}, {70, 32}, {70, 64}}) {
    constexpr int kExperts = 17;
    constexpr int kPerToken = 3;
    const int most = rows * kPerToken / metal::kTileRows + kExperts;
    const metal::RouteArgs args = {.experts = kExperts,
                                   .experts_per_token = kPerToken,
                                   .logits_stride = kExperts + 1,
                                   .rows = rows,
                                   .most_tiles = most,
                                   .tile_rows = height};
    Floats logits = random_floats(std::int64_t{rows} * (kExperts + 1), 3);
    for (int t = 0; t < rows; ++t) logits[at(t * (kExperts + 1) + 4)] = 6;  // everybody's first
    const std::int64_t choices = std::int64_t{rows} * kPerToken;
    const std::vector<int> garbage(metal::kMaxExperts, -7);
    const Buffer counts = upload(garbage);
    const Buffer first = upload(garbage);
    const Buffer chosen = poisoned(choices);
    const Buffer place = poisoned(choices);
    const Buffer weights = poisoned(choices);
    const Buffer share = poisoned(rows);
    const Buffer tiles = poisoned(std::int64_t{most} * 3);
    const Buffer row_index = poisoned(choices);
    const Buffer row_weight = poisoned(choices);
    const Buffer b[] = {upload(logits), argument(args)};
    expect_run("zero_counts", {counts.get()}, {.groups = {2}, .threads = 256});
    expect_run(
        "choose_rows",
        {b[0].get(), chosen.get(), place.get(), weights.get(), share.get(), counts.get(), b[1].get()},
        {.groups = {static_cast<std::uint32_t>(rows + 3) / 4}, .threads = metal::kRouteSimdgroups * kSimd});
    expect_run("list_tiles", {counts.get(), first.get(), tiles.get(), b[1].get()},
               {.groups = {}, .threads = metal::kMaxExperts});
    expect_run(
        "place_rows",
        {chosen.get(), weights.get(), first.get(), place.get(), row_index.get(), row_weight.get(),
         b[1].get()},
        {.groups = {static_cast<std::uint32_t>(choices + 255) / 256}, .threads = metal::kPlaceThreads});

    const auto index = values_of<int>(*row_index);
    const auto places = values_of<int>(*place);
    const Floats list_weights = floats_of(row_weight);
    std::vector<int> expert_of(at(choices), -1);
    std::int64_t listed = 0;
    for (const metal::Tile& tile : values_of<metal::Tile>(*tiles)) {
      ASSERT_LE(tile.rows, height);
      for (int i = tile.start; i < tile.start + tile.rows; ++i, ++listed) expert_of[at(i)] = tile.expert;
    }
    EXPECT_EQ(listed, choices);
    for (int t = 0; t < rows; ++t) {
      const Choice expected = choose(row(logits, t, kExperts + 1).first(kExperts), kPerToken);
      EXPECT_NEAR(floats_of(share)[at(t)], sigmoid(logits[at(t * (kExperts + 1) + kExperts)]), 1e-6);
      for (int k = 0; k < kPerToken; ++k) {
        const int to = places[at(t * kPerToken + k)];
        ASSERT_GE(to, 0);
        ASSERT_LT(to, choices);
        EXPECT_EQ(index[at(to)], t);
        EXPECT_EQ(expert_of[at(to)], expected.experts[at(k)]);
        EXPECT_NEAR(list_weights[at(to)], expected.weights[at(k)], 1e-6);
      }
    }
    auto sorted = places;
    std::ranges::sort(sorted);
    for (std::int64_t i = 0; i < choices; ++i) EXPECT_EQ(sorted[at(i)], i);
  }
}

TEST(MetalKernels, NormRows) {
  const int hidden = 320;
  Floats x = random_floats(2 * hidden, 1);
  x[3] = 1e6F;
  Floats gain = random_floats(hidden, 2);
  gain[3] = 1e5F;  // beyond half: cut off, not infinite
  const Buffer out = upload(to_half(Floats(2 * hidden, std::nanf(""))));
  const Buffer b[] = {upload(x), upload(gain), argument(metal::NormArgs{.hidden = hidden, .eps = kEps})};
  expect_run("norm_rows", {b[0].get(), b[1].get(), out.get(), b[2].get()}, {.groups = {2}, .threads = 256});
  const Floats got = from_half(values_of<_Float16>(*out));
  EXPECT_EQ(got[3], 65504.0F);
  for (int t = 0; t < 2; ++t) {
    const Floats expected = normed(row(x, t, hidden), gain, kEps);
    for (int i = 0; i < hidden; ++i) {
      const float bounded = std::clamp(expected[at(i)], -65504.0F, 65504.0F);
      EXPECT_NEAR(got[at(t * hidden + i)], bounded, 1e-3 * std::abs(bounded) + 1e-7);
    }
  }
}

TEST(MetalKernels, CombineRows) {
  const int hidden = 300;
  const Floats expert_out = from_bf16(to_bf16(random_floats(6 * hidden, 1)));
  const std::vector<int> place = {5, 0, 2, 1, 4, 3};
  Floats expected = random_floats(2 * hidden, 2);
  const Buffer residual = upload(expected);
  const Buffer b[] = {upload(to_bf16(expert_out)), upload(place),
                      argument(metal::CombineArgs{.hidden = hidden, .experts_per_token = 3})};
  expect_run("combine_rows", {b[0].get(), b[1].get(), residual.get(), b[2].get()},
             {.groups = {2, 2}, .threads = metal::kRowThreads});
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < hidden; ++i) {
      for (int k = 0; k < 3; ++k)
        expected[at(t * hidden + i)] += expert_out[at(place[at(t * 3 + k)] * hidden + i)];
    }
  }
  EXPECT_LT(largest_error(floats_of(residual), expected), 1e-6);
}

std::vector<int> argmax(const Floats& logits, int stride, int limit) {
  const auto rows = static_cast<std::uint32_t>(logits.size() / at(stride));
  const Buffer values = poisoned(rows * metal::kArgmaxGroups);
  const Buffer indices = poisoned(rows * metal::kArgmaxGroups);
  const Buffer best = poisoned(rows);
  const Buffer b[] = {upload(logits), argument(metal::ArgmaxArgs{.stride = stride, .limit = limit})};
  expect_run("argmax_parts", {b[0].get(), values.get(), indices.get(), b[1].get()},
             {.groups = {metal::kArgmaxGroups, rows}, .threads = metal::kArgmaxThreads});
  expect_run("argmax_join", {values.get(), indices.get(), best.get()}, {.groups = {rows}, .threads = kSimd});
  return values_of<int>(*best);
}

TEST(MetalKernels, ArgmaxTakesTheFirstOfEqualsAndNoNan) {
  const float nan = std::nanf("");
  EXPECT_EQ(argmax({1, 3, 3, 9}, 4, 3), std::vector{1});
  EXPECT_EQ(argmax({nan, -4, nan, -4}, 4, 4), std::vector{1});
  EXPECT_EQ(argmax({nan, nan, nan, 5}, 4, 3), std::vector{-1});
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(argmax({-infinity, -infinity}, 2, 2), std::vector{0});
  const int width = metal::kArgmaxGroups * metal::kArgmaxThreads + 50;
  Floats wide = random_floats(2LL * width, 5);
  wide[at(width - 2)] = wide[at(width - 1)] = 50;
  wide[at(width + 300)] = wide[at(width + 40)] = 60;
  EXPECT_EQ(argmax(wide, width, width), (std::vector{width - 2, 40}));
}

/// What the host reads of one row.
struct Listed {
  std::vector<int> ids;  ///< ascending
  float above;           ///< the largest logit that is not among them
};
Listed list_candidates(const Floats& logits, int limit) {
  const Buffer largest = poisoned(metal::kCandidateGroups);
  const Buffer bins = poisoned(metal::kCandidateBins);
  const Buffer counts = poisoned(1);
  const Buffer list = poisoned(2LL * metal::kMostCandidates);
  const Buffer left_out = poisoned(metal::kCandidateParts);
  const Buffer b[] = {upload(logits), argument(metal::CandidateArgs{.stride = static_cast<int>(logits.size()),
                                                                    .limit = limit})};
  const Shape grid{.groups = {metal::kCandidateGroups}, .threads = metal::kCandidateThreads};
  expect_run("find_largest", {b[0].get(), largest.get(), bins.get(), counts.get(), b[1].get()}, grid);
  expect_run("count_bins", {b[0].get(), largest.get(), bins.get(), b[1].get()}, grid);
  expect_run("collect_candidates",
             {b[0].get(), largest.get(), bins.get(), counts.get(), list.get(), left_out.get(), b[1].get()},
             grid);
  const auto entries = values_of<metal::ListedLogit>(*list);
  Listed found{.ids = {}, .above = std::ranges::max(floats_of(left_out))};
  for (int i = 0; i < values_of<int>(*counts).front(); ++i) {
    EXPECT_EQ(entries[at(i)].logit, logits[at(entries[at(i)].id)]);
    found.ids.push_back(entries[at(i)].id);
  }
  std::ranges::sort(found.ids);
  return found;
}

TEST(MetalKernels, CandidatesAreTheLogitsOfTheFirstBins) {
  // 100 logits within a half of the largest, 500 two below it, others out of reach: 192 are wanted.
  Floats logits(9000, -50.0F);
  std::vector<int> near;
  std::vector<int> nearer;
  for (int i = 0; i < 600; ++i) {
    const int id = (i * 37) % 8999;
    (i < 100 ? nearer : near).push_back(id);
    logits[at(id)] = i < 100 ? 7.0F - static_cast<float>(i) * 0.005F : 5.0F;
  }
  logits[8999] = 1000.0F;  // beyond the limit
  std::vector<int> both = near;
  both.insert(both.end(), nearer.begin(), nearer.end());
  std::ranges::sort(both);
  Listed found = list_candidates(logits, 8999);
  EXPECT_EQ(found.ids, both);
  EXPECT_EQ(found.above, -50.0F);

  for (int i = 0; i < 1000; ++i) logits[at(8998 - i)] = std::max(logits[at(8998 - i)], 5.0F);  // too many
  std::ranges::sort(nearer);
  found = list_candidates(logits, 8999);
  EXPECT_EQ(found.ids, nearer);
  EXPECT_EQ(found.above, 5.0F);
}

TEST(MetalKernels, CandidatesOfFewLogitsAreAllInReach) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Listed found = list_candidates({1, -infinity, 3, -28, -29.5F, 9}, 5);
  EXPECT_EQ(found.ids, (std::vector{0, 2, 3}));
  EXPECT_EQ(found.above, -29.5F);
}

TEST(MetalKernels, ThereAreNoCandidatesWhereALogitIsNoNumber) {
  Floats logits = random_floats(9000, 4);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    logits[4321] = bad;
    EXPECT_TRUE(list_candidates(logits, 9000).ids.empty());
    EXPECT_FALSE(list_candidates(logits, 4321).ids.empty());
  }
}

}  // namespace
}  // namespace lily
