// Speed of the CPU kernels on one core, in the shapes of Qwen3.6-35B-A3B. Rates are of weight bytes (decode)
// or of multiply-adds (the rest), to be set against the machine's bandwidth and its 64 integer or 16 f32
// multiply-adds a clock.
#include <benchmark/benchmark.h>

#include <cstring>
#include <limits>
#include <string>

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/quantized_memory.h"
#include "tests/backend/quantized_matrix.h"

namespace lily::cpu {
namespace {

using lily::testing::random_floats;
using lily::testing::RandomMatrix;

struct Inputs {
  Inputs(const Kernels& kernels, std::int64_t tokens, std::int64_t in, bool by_group)
      : values(random_floats(tokens * in, 1)), memory(tokens, in), rows(memory.rows(tokens)) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      kernels.quantize({values.data() + t * in, rows, t, 0, in / 64, in / 64, by_group});
    }
  }
  std::vector<float> values;
  QuantizedMemory memory;
  QuantizedRows rows;
};

void set_rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] = benchmark::Counter(per_iteration, benchmark::Counter::kIsIterationInvariantRate,
                                            benchmark::Counter::kIs1000);
}

MatmulArgs product(const QuantizedMatrix& m, Inputs& x, std::int64_t tokens, std::vector<float>& out,
                   std::vector<float>& scratch) {
  out.resize(static_cast<std::size_t>(tokens * m.out));
  scratch.resize(static_cast<std::size_t>(matmul_scratch(m.in)));
  MatmulArgs a{};
  a.weight = m.weight;
  a.scales = m.scales;
  a.biases = m.biases;
  a.in = m.in;
  a.bits = m.bits;
  a.group_size = m.group_size;
  a.row_end = m.out;
  a.values = x.values.data();
  a.quantized = x.rows;
  a.count = tokens;
  a.out = out.data();
  a.out_stride = m.out;
  a.scratch = scratch.data();
  return a;
}

void decode(benchmark::State& state, const Kernels* kernels, std::int64_t out, std::int64_t in, int bits,
            Precision precision) {
  const RandomMatrix matrix(1, out, in, bits, 1);
  Inputs x(*kernels, 1, in, false);
  std::vector<float> y;
  std::vector<float> scratch;
  MatmulArgs a = product(matrix.view(), x, 1, y, scratch);
  a.precision = precision;
  for (auto _ : state) kernels->matmul_decode(a);
  set_rate(state, "bytes", static_cast<double>(matrix.view().bytes()));
}

void prefill(benchmark::State& state, const Kernels* kernels, std::int64_t out, std::int64_t in, int bits,
             Precision precision) {
  const std::int64_t tokens = state.range(0);
  const RandomMatrix matrix(1, out, in, bits, 1);
  Inputs x(*kernels, tokens, in, true);
  std::vector<float> y;
  std::vector<float> scratch;
  MatmulArgs a = product(matrix.view(), x, tokens, y, scratch);
  a.precision = precision;
  for (auto _ : state) kernels->matmul_prefill(a);
  set_rate(state, "mac", static_cast<double>(out * in * tokens));
}

void exact(benchmark::State& state, const Kernels* kernels, std::int64_t out, std::int64_t in, int bits) {
  const std::int64_t tokens = state.range(0);
  const RandomMatrix matrix(1, out, in, bits, 1);
  Inputs x(*kernels, tokens, in, true);
  std::vector<float> y;
  std::vector<float> scratch;
  const MatmulArgs a = product(matrix.view(), x, tokens, y, scratch);
  for (auto _ : state) kernels->matmul_exact(a);
  set_rate(state, "mac", static_cast<double>(out * in * tokens));
}

void quantize_row(benchmark::State& state, const Kernels* kernels) {
  Inputs x(*kernels, 1, 2048, true);
  for (auto _ : state) kernels->quantize({x.values.data(), x.rows, 0, 0, 32, 32, true});
  set_rate(state, "elements", 2048);
}

void norm_row(benchmark::State& state, const Kernels* kernels) {
  const auto x = random_floats(2048, 1);
  std::vector<float> y(2048);
  for (auto _ : state) kernels->rms_norm(x.data(), x.data(), 1e-6F, 2048, y.data());
  set_rate(state, "elements", 2048);
}

void delta(benchmark::State& state, const Kernels* kernels) {
  const std::int64_t tokens = state.range(0);
  constexpr std::int64_t kWidth = 12352;
  auto x = random_floats(tokens * kWidth, 1);
  const auto taps = random_floats(4 * 8192, 2, 0.3F);
  auto history = random_floats(3 * 8192, 3);
  auto recurrent = random_floats(2 * 128 * 128, 4);
  const std::vector<float> gates(2, -2.0F);
  const std::vector<float> gain(128, 1.0F);
  std::vector<float> out(static_cast<std::size_t>(tokens * 4096));
  for (auto _ : state) {
    kernels->delta_rule({.tokens = tokens,
                         .value_heads = 2,
                         .q = x.data(),
                         .k = x.data() + 2048,
                         .v = x.data() + 4096,
                         .z = x.data() + 8192,
                         .a = x.data() + 12288,
                         .b = x.data() + 12320,
                         .stride = kWidth,
                         .q_taps = taps.data(),
                         .k_taps = taps.data() + 2048,
                         .v_taps = taps.data() + 4096,
                         .q_history = history.data(),
                         .k_history = history.data() + 2048,
                         .v_history = history.data() + 4096,
                         .history_stride = 8192,
                         .a_log = gates.data(),
                         .dt_bias = gates.data(),
                         .norm = gain.data(),
                         .eps = 1e-6F,
                         .state = recurrent.data(),
                         .out = out.data(),
                         .out_stride = 4096});
  }
  set_rate(state, "heads", static_cast<double>(2 * tokens));
}

void attention(benchmark::State& state, const Kernels* kernels, std::int64_t queries, KvType type) {
  const std::int64_t length = state.range(0);
  const auto q = random_floats(queries * 256, 1, 0.1F);
  const auto cache = random_floats(length * 256, 2);
  const std::int64_t page_bytes = 256 * kv_row_bytes(type);
  std::vector<std::byte> keys(static_cast<std::size_t>((length + 255) / 256 * page_bytes));
  auto values = keys;
  for (std::int64_t t = 0; t < length; ++t) {
    const std::int64_t page = t / 256 * page_bytes;
    kernels->store_kv({cache.data() + t * 256, type, false, keys.data() + page, t % 256});
    kernels->store_kv({cache.data() + t * 256, type, true, values.data() + page, t % 256});
  }
  std::vector<std::int32_t> pages;
  for (std::int64_t p = 0; p * 256 < length; ++p) pages.push_back(static_cast<std::int32_t>(p));
  const std::vector<std::int64_t> positions(static_cast<std::size_t>(queries), length - 1);
  std::vector<float> largest(static_cast<std::size_t>(queries), -std::numeric_limits<float>::infinity());
  std::vector<float> total(static_cast<std::size_t>(queries));
  std::vector<float> sums(static_cast<std::size_t>(queries * 256));
  std::vector<float> scratch(static_cast<std::size_t>(attend_scratch()));
  for (auto _ : state) {
    attend_of(*kernels, type)({.queries = q.data(),
                               .count = queries,
                               .positions = positions.data(),
                               .keys = keys.data(),
                               .values = values.data(),
                               .page_stride = page_bytes,
                               .pages = pages.data(),
                               .begin = 0,
                               .end = length,
                               .largest = largest.data(),
                               .total = total.data(),
                               .sums = sums.data(),
                               .scratch = scratch.data()});
  }
  set_rate(state, "mac", static_cast<double>(2 * queries * length * 256));
}

void register_kernels(const Kernels* k) {
  const std::string isa = std::string(k->isa) + "/";
  const auto add = [&](const std::string& name, auto&& f, auto... args) {
    return benchmark::RegisterBenchmark((isa + name).c_str(), f, k, args...);
  };
  for (const auto& [name, precision] :
       {std::pair{"coarse_", Precision::kCoarse}, {"fine_", Precision::kFine}}) {
    const std::string kind = name;
    add(kind + "decode_4bit_2048_from_memory", decode, 131072, 2048, 4, precision);
    add(kind + "decode_4bit_2048_from_cache", decode, 256, 2048, 4, precision);
    add(kind + "decode_4bit_512_from_cache", decode, 1024, 512, 4, precision);
    add(kind + "decode_8bit_2048_from_cache", decode, 128, 2048, 8, precision);
    for (const std::int64_t tokens : {2, 4, 8, 16, 128, 512}) {
      add(kind + "prefill_4bit_2048", prefill, 64, 2048, 4, precision)->Arg(tokens);
      add(kind + "prefill_4bit_512", prefill, 256, 512, 4, precision)->Arg(tokens);
    }
    add(kind + "prefill_8bit_2048", prefill, 64, 2048, 8, precision)->Arg(128);
  }
  add("exact_8bit_2048", exact, 256, 2048, 8)->Arg(1)->Arg(128);
  add("exact_4bit_2048", exact, 256, 2048, 4)->Arg(1)->Arg(128);
  add("quantize_2048", quantize_row);
  add("rms_norm_2048", norm_row);
  add("delta_rule_key_head", delta)->Arg(1)->Arg(64);
  for (const KvType type : {KvType::kBf16, KvType::kQ8}) {
    const std::string name = "attend_" + std::string(kv_type_name(type));
    add(name + "_decode_8", attention, 8, type)->Arg(256)->Arg(4096)->Arg(65536);
    add(name + "_prefill_64", attention, 64, type)->Arg(4096);
  }
}

}  // namespace
}  // namespace lily::cpu

int main(int argc, char** argv) {
  for (const lily::cpu::Kernels* kernels : lily::cpu::usable_kernels()) lily::cpu::register_kernels(kernels);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
