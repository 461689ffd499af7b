// The gated delta rule and attention, one token and many, against their definitions.
#include "tests/backend/metal/kernel_support.h"

namespace lily {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): a file of cases
using metal::kHeadDim;
using metal::kLinearDim;
using metal::kSimd;

constexpr float kEps = 1e-6F;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// ---- gated delta rule

/// A layer of `value_heads` heads: its weights, and the definition of one token.
struct DeltaLayer {
  int key_heads;
  int value_heads;
  Floats taps = random_floats(channels() * 4, 21, 0.5F);
  Floats A_log = random_floats(value_heads, 22, 0.5F);
  Floats dt_bias = random_floats(value_heads, 23);

  [[nodiscard]] std::int64_t channels() const { return (2 * key_heads + value_heads) * kLinearDim; }
  [[nodiscard]] std::int64_t state_size() const {
    return std::int64_t{value_heads} * kLinearDim * kLinearDim;
  }
  [[nodiscard]] std::int64_t slot_size() const { return state_size() + metal::kConvRing * channels(); }
  [[nodiscard]] metal::DeltaArgs args(int rows, int chunks) const {
    const auto c = static_cast<int>(channels());
    return {.stride = stride(),
            .z_offset = c,
            .b_offset = c + value_heads * kLinearDim,
            .a_offset = c + value_heads * (kLinearDim + 1),
            .key_heads = key_heads,
            .value_heads = value_heads,
            .slot_stride = static_cast<int>(slot_size()) + 64,
            .layer_offset = 32,
            .rows = rows,
            .chunks = chunks,
            .eps = kEps};
  }
  [[nodiscard]] int stride() const { return static_cast<int>(channels()) + value_heads * (kLinearDim + 2); }

  /// One token through `slot` (this layer's part of it): the output before the gated norm, [Hv, 128].
  Floats step(std::span<float> slot, std::span<const float> projected, int position) const {
    const metal::DeltaArgs a = args(1, 1);
    float* ring = slot.data() + state_size();
    Floats c(at(channels()));
    for (std::int64_t ch = 0; ch < channels(); ++ch) {
      ring[(position & 3) * channels() + ch] = projected[at(ch)];
      float sum = 0;
      for (int j = 0; j < 4; ++j)
        sum += taps[at(ch * 4 + j)] * ring[((position - 3 + j) & 3) * channels() + ch];
      c[at(ch)] = silu(sum);
    }
    Floats out;
    for (int h = 0; h < value_heads; ++h) {
      const int key_head = h / (value_heads / key_heads);
      Floats q(c.begin() + key_head * kLinearDim, c.begin() + (key_head + 1) * kLinearDim);
      Floats k(c.begin() + (key_heads + key_head) * kLinearDim,
               c.begin() + (key_heads + key_head + 1) * kLinearDim);
      const auto unit = [](Floats& x, float scale) {
        float square = 0;
        for (const float v : x) square += v * v;
        for (float& v : x) v *= scale / std::sqrt(square + metal::kL2Epsilon);
      };
      unit(q, metal::kQueryScale);
      unit(k, 1);
      const float x = projected[at(a.a_offset + h)] + dt_bias[at(h)];
      const float decay = std::exp(-std::exp(A_log[at(h)]) * (x > 20 ? x : std::log1p(std::exp(x))));
      const float beta = sigmoid(projected[at(a.b_offset + h)]);
      float* S = slot.data() + std::int64_t{h} * kLinearDim * kLinearDim;
      for (int v = 0; v < kLinearDim; ++v) {
        float met = 0;
        for (int d = 0; d < kLinearDim; ++d) met += (S[d * kLinearDim + v] *= decay) * k[at(d)];
        const float update = beta * (c[at((2 * key_heads + h) * kLinearDim + v)] - met);
        float o = 0;
        for (int d = 0; d < kLinearDim; ++d) o += (S[d * kLinearDim + v] += k[at(d)] * update) * q[at(d)];
        out.push_back(o);
      }
    }
    return out;
  }
};

/// Random rows of the in-projection.
Floats projected_rows(const DeltaLayer& layer, int rows) {
  return random_floats(std::int64_t{rows} * layer.stride(), 31);
}
std::span<float> layer_of(Floats& slots, const metal::DeltaArgs& a, const DeltaLayer& layer, int slot) {
  return std::span(slots).subspan(at(std::int64_t{slot} * a.slot_stride + a.layer_offset),
                                  at(layer.slot_size()));
}

TEST(MetalKernels, DeltaDecode) {
  for (const auto& [key_heads, value_heads] : {std::pair{1, 1}, std::pair{1, 3}, std::pair{2, 4}}) {
    const DeltaLayer layer{.key_heads = key_heads, .value_heads = value_heads};
    constexpr int kRows = 2;
    const metal::DeltaArgs args = layer.args(kRows, 0);
    const std::vector<int> slot_of = {2, 0};
    const std::vector<int> positions = {5, 1};
    Floats slots = random_floats(std::int64_t{3} * args.slot_stride, 4, 0.3F);
    const Floats projected = projected_rows(layer, kRows);
    const Buffer got_slots = upload(slots);
    const Buffer out = poisoned(std::int64_t{kRows} * value_heads * kLinearDim);
    const Buffer squares = poisoned(std::int64_t{kRows} * value_heads * metal::kDeltaParts);
    const Buffer b[] = {upload(projected), upload(layer.taps), upload(layer.A_log), upload(layer.dt_bias),
                        upload(slot_of),   upload(positions),  argument(args)};
    expect_run("delta_decode",
               {b[0].get(), b[1].get(), b[2].get(), b[3].get(), got_slots.get(), b[4].get(), b[5].get(),
                out.get(), squares.get(), b[6].get()},
               {.groups = {metal::kDeltaParts, static_cast<std::uint32_t>(value_heads), kRows},
                .threads = metal::kDeltaThreads});
    Floats expected;
    for (int t = 0; t < kRows; ++t) {
      const auto y = layer.step(layer_of(slots, args, layer, slot_of[at(t)]),
                                std::span(projected).subspan(at(t * layer.stride()), at(layer.stride())),
                                positions[at(t)]);
      expected.insert(expected.end(), y.begin(), y.end());
    }
    Floats expected_squares;
    for (std::size_t i = 0; i < expected.size(); i += metal::kDeltaColumns) {
      float sum = 0;
      for (std::size_t j = i; j < i + metal::kDeltaColumns; ++j) sum += expected[j] * expected[j];
      expected_squares.push_back(sum);
    }
    EXPECT_LT(largest_error(floats_of(out), expected), 1e-5);
    EXPECT_LT(largest_error(floats_of(squares), expected_squares), 1e-5);
    EXPECT_LT(largest_error(floats_of(got_slots), slots), 1e-5);  // and nothing beside the layer
  }
}

/// Segments laid out by chunks, as the host does it.
struct ChunkLayout {
  std::vector<metal::SegmentRows> segments;
  std::vector<int> segment_of;
  std::vector<int> row_of_chunk_row;
  std::vector<int> chunk_row_of;
  int chunks = 0;

  void add(int position, int rows, int slot) {
    const int first = position / metal::kDeltaChunk;
    const int count = (position + rows - 1) / metal::kDeltaChunk - first + 1;
    segments.push_back({.first_row = static_cast<int>(segment_of.size()),
                        .rows = rows,
                        .position = position,
                        .slot = slot,
                        .table = static_cast<int>(segments.size()),
                        .first_chunk = chunks,
                        .chunks = count});
    row_of_chunk_row.resize(at((chunks + count) * metal::kDeltaChunk), -1);
    for (int p = position; p < position + rows; ++p) {
      const int begin = std::max(p / metal::kDeltaChunk * metal::kDeltaChunk, position);
      const int to = (chunks + p / metal::kDeltaChunk - first) * metal::kDeltaChunk + p - begin;
      row_of_chunk_row[at(to)] = static_cast<int>(segment_of.size());
      chunk_row_of.push_back(to);
      segment_of.push_back(static_cast<int>(segments.size()) - 1);
    }
    chunks += count;
  }
};

/// All of prefill's kernels for the delta rule; the gated norm's output, [rows, Hv 128].
Floats run_delta_prefill(const DeltaLayer& layer, const ChunkLayout& layout, const Floats& projected,
                         const Floats& gain, const Buffer& slots) {
  const auto rows = static_cast<int>(layout.segment_of.size());
  const metal::DeltaArgs args = layer.args(rows, layout.chunks);
  const std::int64_t chunk_rows = std::int64_t{layout.chunks} * metal::kDeltaChunk;
  const std::int64_t head_rows = chunk_rows * layer.value_heads;
  const Buffer query = poisoned(chunk_rows * layer.key_heads * kLinearDim);
  const Buffer key = poisoned(chunk_rows * layer.key_heads * kLinearDim);
  const Buffer value = poisoned(head_rows * kLinearDim);
  const Buffer gates = poisoned(head_rows * 2);
  const Buffer u = poisoned(head_rows * kLinearDim);
  const Buffer w = poisoned(head_rows * kLinearDim);
  const Buffer p = poisoned(head_rows * metal::kDeltaChunk);
  const Buffer sums = poisoned(head_rows);
  const Buffer out =
      upload(to_half(Floats(at(std::int64_t{rows} * layer.value_heads * kLinearDim), std::nanf(""))));
  const Buffer b[] = {upload(projected),
                      upload(layer.taps),
                      upload(layer.A_log),
                      upload(layer.dt_bias),
                      upload(layout.segments),
                      upload(layout.segment_of),
                      upload(layout.row_of_chunk_row),
                      upload(layout.chunk_row_of),
                      upload(gain),
                      argument(args)};
  const auto heads = static_cast<std::uint32_t>(layer.value_heads);
  const auto segments = static_cast<std::uint32_t>(layout.segments.size());
  const auto chunks = static_cast<std::uint32_t>(layout.chunks);
  expect_run(
      "convolve_rows",
      {b[0].get(), b[1].get(), b[2].get(), b[3].get(), slots.get(), b[4].get(), b[5].get(), b[6].get(),
       query.get(), key.get(), value.get(), gates.get(), b[9].get()},
      {.groups = {(heads + static_cast<std::uint32_t>(layer.key_heads) + 3) / 4, chunks * metal::kDeltaChunk},
       .threads = metal::kHeadSimdgroups * kSimd});
  expect_run(
      "keep_rows", {b[0].get(), slots.get(), b[4].get(), b[9].get()},
      {.groups = {static_cast<std::uint32_t>(layer.channels() + 255) / 256, segments}, .threads = 256});
  expect_run(
      "prepare_chunks",
      {query.get(), key.get(), value.get(), gates.get(), u.get(), w.get(), p.get(), sums.get(), b[9].get()},
      {.groups = {chunks, heads}, .threads = 128});
  expect_run("run_chunks",
             {query.get(), key.get(), u.get(), w.get(), p.get(), sums.get(), slots.get(), b[4].get(),
              value.get(), b[9].get()},
             {.groups = {metal::kDeltaParts, heads, segments}, .threads = 128});
  expect_run("gated_norm", {value.get(), b[0].get(), b[8].get(), b[7].get(), out.get(), b[9].get()},
             {.groups = {(heads + 3) / 4, static_cast<std::uint32_t>(rows)},
              .threads = metal::kHeadSimdgroups * kSimd});
  return from_half(values_of<_Float16>(*out));
}

// One row, a whole chunk, chunks begun and ended within, a continued segment, two sequences.
TEST(MetalKernels, DeltaPrefill) {
  const DeltaLayer layer{.key_heads = 1, .value_heads = 2};
  ChunkLayout layout;
  layout.add(30, 37, 1);  // 2 rows, 32, 3
  layout.add(64, 32, 0);
  layout.add(3, 1, 2);
  const auto rows = static_cast<int>(layout.segment_of.size());
  const metal::DeltaArgs args = layer.args(rows, layout.chunks);
  Floats slots = random_floats(std::int64_t{3} * args.slot_stride, 4, 0.3F);
  const Floats projected = projected_rows(layer, rows);
  const Floats gain = random_floats(kLinearDim, 8);
  const Buffer got_slots = upload(slots);
  const Floats got = run_delta_prefill(layer, layout, projected, gain, got_slots);
  Floats expected;
  for (int t = 0; t < rows; ++t) {
    const metal::SegmentRows& s = layout.segments[at(layout.segment_of[at(t)])];
    const auto x = std::span(projected).subspan(at(t * layer.stride()), at(layer.stride()));
    const Floats y = layer.step(layer_of(slots, args, layer, s.slot), x, s.position + t - s.first_row);
    for (int h = 0; h < layer.value_heads; ++h) {
      const Floats n = normed(std::span(y).subspan(at(h * kLinearDim), kLinearDim), gain, kEps);
      for (int d = 0; d < kLinearDim; ++d)
        expected.push_back(n[at(d)] * silu(x[at(args.z_offset + h * kLinearDim + d)]));
    }
  }
  EXPECT_LT(largest_error(got, expected), 1e-3);  // half
  EXPECT_LT(largest_error(floats_of(got_slots), slots), 1e-4);
}

// ---- attention

struct AttentionLayer {
  int query_heads;
  int kv_heads;
  int pages = 6;
  Floats q_gain = random_floats(kHeadDim, 41);
  Floats k_gain = random_floats(kHeadDim, 42);

  [[nodiscard]] int group() const { return query_heads / kv_heads; }
  [[nodiscard]] int stride() const { return (2 * query_heads + 2 * kv_heads) * kHeadDim; }
  [[nodiscard]] std::int64_t page_size() const {
    return 2LL * kv_heads * metal::kPageTokens * kHeadDim + 512;
  }
  [[nodiscard]] metal::AttentionArgs args(int rows, int table_stride) const {
    return {.stride = stride(),
            .query_heads = query_heads,
            .kv_heads = kv_heads,
            .rows = rows,
            .page_stride_table = table_stride,
            .page_stride = static_cast<unsigned>(page_size()),
            .layer_offset = 512,
            .query_rows = rows * group() + metal::kQueryTile,
            .eps = kEps};
  }
  /// Value `d` of position `p` of a sequence with this table.
  [[nodiscard]] std::int64_t cache_at(const std::vector<int>& table, int p, bool value, int kv_head,
                                      int d) const {
    return table[at(p / metal::kPageTokens)] * page_size() + 512 +
           ((std::int64_t{value ? kv_heads : 0} + kv_head) * metal::kPageTokens + p % metal::kPageTokens) *
               kHeadDim +
           d;
  }
};

/// Attention of one head of a row over `length` cached positions, gated.
Floats attend(const AttentionLayer& layer, const Floats& cache, const std::vector<int>& table,
              std::span<const float> q, int kv_head, int length, std::span<const float> gate) {
  std::vector<double> p(at(length));
  double total = 0;
  double largest = -1e300;
  for (int t = 0; t < length; ++t) {
    double score = 0;
    for (int d = 0; d < kHeadDim; ++d)
      score += static_cast<double>(q[at(d)]) * cache[at(layer.cache_at(table, t, false, kv_head, d))];
    p[at(t)] = score / 16;
    largest = std::max(largest, p[at(t)]);
  }
  for (double& x : p) total += x = std::exp(x - largest);
  Floats out(kHeadDim, 0.0F);
  for (int d = 0; d < kHeadDim; ++d) {
    double sum = 0;
    for (int t = 0; t < length; ++t) sum += p[at(t)] * cache[at(layer.cache_at(table, t, true, kv_head, d))];
    out[at(d)] = static_cast<float>(sum / total) * sigmoid(gate[at(d)]);
  }
  return out;
}

// Lengths around a key tile, a range, a page, and where ranges grow beyond kMinRangeKeys.
TEST(MetalKernels, AttendRanges) {
  for (const auto& [query_heads, kv_heads] : {std::pair{4, 1}, std::pair{6, 2}, std::pair{16, 1}}) {
    const bool is_long = query_heads == 4;
    AttentionLayer layer{.query_heads = query_heads, .kv_heads = kv_heads};
    constexpr int kMost = metal::kMaxRanges * metal::kMinRangeKeys;
    std::vector<int> lengths = {1, 32, 33, 64, 65, 257};
    if (is_long) lengths.push_back(kMost + 1);
    layer.pages = is_long ? kMost / metal::kPageTokens + 3 : 2;
    const auto rows = static_cast<int>(lengths.size());
    const metal::AttentionArgs args = layer.args(rows, layer.pages);
    // All rows of one cache, whose pages lie in reverse.
    std::vector<int> table;
    for (int i = 0; i < layer.pages; ++i) table.push_back(layer.pages - 1 - i);
    const Floats cache = from_bf16(to_bf16(random_floats(layer.pages * layer.page_size(), 3)));
    const Floats q =
        from_bf16(to_bf16(random_floats(std::int64_t{kv_heads} * args.query_rows * kHeadDim, 5)));
    const Floats projected = random_floats(std::int64_t{rows} * layer.stride(), 6);
    std::vector<int> positions;
    int ranges = 0;
    for (const int length : lengths) {
      positions.push_back(length - 1);
      ranges = std::max(ranges, (length + metal::range_keys(length) - 1) / metal::range_keys(length));
    }
    EXPECT_LE(ranges, metal::kMaxRanges);
    const int tiles = kv_heads * ((layer.group() + 7) / 8);
    const std::int64_t partials = std::int64_t{rows} * tiles * metal::kMaxRanges * metal::kQueryTile;
    const Buffer partial = poisoned(partials * kHeadDim);
    const Buffer stats = poisoned(partials * 2);
    const Buffer out = poisoned(std::int64_t{rows} * query_heads * kHeadDim);
    const Buffer b[] = {upload(to_bf16(q)),
                        upload(to_bf16(cache)),
                        upload(projected),
                        upload(positions),
                        upload(std::vector<int>(at(rows), 0)),
                        upload(table),
                        argument(args)};
    expect_run("attend_ranges",
               {b[0].get(), b[1].get(), b[2].get(), b[3].get(), b[4].get(), b[5].get(), partial.get(),
                stats.get(), out.get(), b[6].get()},
               {.groups = {static_cast<std::uint32_t>(ranges + 3) / 4, static_cast<std::uint32_t>(tiles),
                           static_cast<std::uint32_t>(rows)},
                .threads = metal::kRangeSimdgroups * kSimd});
    expect_run("join_ranges", {partial.get(), stats.get(), b[2].get(), b[3].get(), out.get(), b[6].get()},
               {.groups = {static_cast<std::uint32_t>(query_heads), static_cast<std::uint32_t>(rows)},
                .threads = kHeadDim});
    const Floats got = floats_of(out);
    for (int t = 0; t < rows; ++t) {
      Floats expected;
      for (int h = 0; h < query_heads; ++h) {
        const int kv = h / layer.group();
        const auto query = std::span(q).subspan(
            at((std::int64_t{kv} * args.query_rows + t * layer.group() + h % layer.group()) * kHeadDim),
            kHeadDim);
        const auto gate =
            std::span(projected).subspan(at(t * layer.stride() + (2 * h + 1) * kHeadDim), kHeadDim);
        const Floats head = attend(layer, cache, table, query, kv, lengths[at(t)], gate);
        expected.insert(expected.end(), head.begin(), head.end());
      }
      const auto begin = got.begin() + std::int64_t{t} * query_heads * kHeadDim;
      EXPECT_LT(largest_error(Floats(begin, begin + static_cast<std::int64_t>(expected.size())), expected),
                1e-2)
          << query_heads << " heads, length " << lengths[at(t)];
    }
  }
}

// Two segments of prefill: one from the start, one that goes on within a tile; six heads do not fill a tile.
TEST(MetalKernels, AttendRows) {
  for (const auto& [query_heads, kv_heads] : {std::pair{6, 1}, std::pair{2, 2}}) {
    const AttentionLayer layer{.query_heads = query_heads, .kv_heads = kv_heads};
    const std::vector<metal::SegmentRows> segments = {
        {.first_row = 0, .rows = 13, .position = 0, .slot = 0, .table = 0, .first_chunk = 0, .chunks = 1},
        {.first_row = 13, .rows = 7, .position = 251, .slot = 1, .table = 1, .first_chunk = 1, .chunks = 2}};
    const int rows = 20;
    const metal::AttentionArgs args = layer.args(rows, 2);
    const std::vector<int> tables = {4, 0, 1, 3};
    const Floats cache = from_bf16(to_bf16(random_floats(layer.pages * layer.page_size(), 3)));
    const Floats q =
        from_bf16(to_bf16(random_floats(std::int64_t{kv_heads} * args.query_rows * kHeadDim, 5)));
    const Floats projected = random_floats(std::int64_t{rows} * layer.stride(), 6);
    const Buffer out =
        upload(to_half(Floats(at(std::int64_t{rows} * query_heads * kHeadDim), std::nanf(""))));
    const Buffer b[] = {upload(to_bf16(q)), upload(to_bf16(cache)), upload(projected),
                        upload(segments),   upload(tables),         argument(args)};
    expect_run("attend_rows",
               {b[0].get(), b[1].get(), b[2].get(), b[3].get(), b[4].get(), out.get(), b[5].get()},
               {.groups = {static_cast<std::uint32_t>(13 * layer.group() + 31) / 32,
                           static_cast<std::uint32_t>(kv_heads), 2},
                .threads = metal::kRangeSimdgroups * kSimd});
    Floats expected;
    for (const metal::SegmentRows& s : segments) {
      const std::vector<int> table(tables.begin() + s.table * 2, tables.begin() + s.table * 2 + 2);
      for (int i = 0; i < s.rows; ++i) {
        for (int h = 0; h < query_heads; ++h) {
          const int kv = h / layer.group();
          const int t = s.first_row + i;
          const auto query = std::span(q).subspan(
              at((std::int64_t{kv} * args.query_rows + t * layer.group() + h % layer.group()) * kHeadDim),
              kHeadDim);
          const auto gate =
              std::span(projected).subspan(at(t * layer.stride() + (2 * h + 1) * kHeadDim), kHeadDim);
          const Floats head = attend(layer, cache, table, query, kv, s.position + i + 1, gate);
          expected.insert(expected.end(), head.begin(), head.end());
        }
      }
    }
    EXPECT_LT(largest_error(from_half(values_of<_Float16>(*out)), expected), 1e-2) << query_heads;
  }
}

Floats rotated(Floats x, const Floats& rope, int row) {
  for (int j = 0; j < 32; ++j) {
    const float c = rope[at(row * metal::kRotary + j)];
    const float s = rope[at(row * metal::kRotary + 32 + j)];
    const float a = x[at(j)];
    const float b = x[at(j + 32)];
    x[at(j)] = a * c - b * s;
    x[at(j + 32)] = b * c + a * s;
  }
  return x;
}

// Rows of two sequences; V is finite up to the end of the last one's key tile, and nothing else is touched.
TEST(MetalKernels, PrepareHeads) {
  const AttentionLayer layer{.query_heads = 4, .kv_heads = 2};
  const int rows = 3;
  const metal::AttentionArgs args = layer.args(rows, 2);
  const std::vector<int> positions = {29, 30, 256};
  const std::vector<int> table_of = {0, 0, 1};
  const std::vector<int> tables = {5, 0, 1, 2};
  const std::vector<int> last_of = {1, 1, 2};
  const Floats projected = random_floats(std::int64_t{rows} * layer.stride(), 6);
  const Floats rope = random_floats(std::int64_t{rows} * metal::kRotary, 7);
  const auto nan = std::nanf("");
  Floats cache(at(layer.pages * layer.page_size()), nan);
  Floats query(at(std::int64_t{2} * args.query_rows * kHeadDim), nan);
  const Buffer pages = upload(to_bf16(cache));
  const Buffer got_query = upload(to_bf16(query));
  const Buffer b[] = {upload(projected), upload(layer.q_gain), upload(layer.k_gain),
                      upload(rope),      upload(positions),    upload(table_of),
                      upload(tables),    upload(last_of),      argument(args)};
  expect_run("prepare_heads",
             {b[0].get(), b[1].get(), b[2].get(), b[3].get(), b[4].get(), b[5].get(), b[6].get(), b[7].get(),
              pages.get(), got_query.get(), b[8].get()},
             {.groups = {2, rows}, .threads = metal::kHeadSimdgroups * kSimd});
  for (int t = 0; t < rows; ++t) {
    const auto x = std::span(projected).subspan(at(t * layer.stride()), at(layer.stride()));
    for (int h = 0; h < 4; ++h) {
      const Floats q =
          rotated(normed(x.subspan(at(2 * h * kHeadDim), kHeadDim), layer.q_gain, kEps), rope, t);
      std::copy(q.begin(), q.end(), query.begin() + ((h / 2) * args.query_rows + t * 2 + h % 2) * kHeadDim);
    }
    const std::vector<int> table(tables.begin() + table_of[at(t)] * 2,
                                 tables.begin() + table_of[at(t)] * 2 + 2);
    for (int h = 0; h < 2; ++h) {
      const auto from = [&](int head) { return x.subspan(at((8 + head) * kHeadDim), kHeadDim); };
      const Floats k = rotated(normed(from(h), layer.k_gain, kEps), rope, t);
      for (int d = 0; d < kHeadDim; ++d) {
        cache[at(layer.cache_at(table, positions[at(t)], false, h, d))] = k[at(d)];
        cache[at(layer.cache_at(table, positions[at(t)], true, h, d))] = from(2 + h)[at(d)];
        for (int p = positions[at(t)] + 1; last_of[at(t)] == t && p % metal::kKeyTile != 0; ++p)
          cache[at(layer.cache_at(table, p, true, h, d))] = 0;
      }
    }
  }
  const auto expect_close = [](const Floats& got, const Floats& expected) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_NEAR(got[i], expected[i], 1e-5 + 5e-3 * std::abs(expected[i])) << i;
      }
    }
  };
  expect_close(from_bf16(values_of<std::uint16_t>(*pages)), cache);
  expect_close(from_bf16(values_of<std::uint16_t>(*got_query)), query);
}

}  // namespace
}  // namespace lily
