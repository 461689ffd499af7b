// The CPU backend: the five blocks over the checkpoint's mapped bytes, with kernels chosen for the machine.
//
// A block is a few parallel regions with a little serial work between. Everything a step needs is allocated
// when the backend is made. Two modes: products of integer activations and integer codes (the default), or of
// f32 activations and dequantised weights, with K and V in f32 unless asked otherwise
// (BackendOptions::exact).
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/activations.h"
#include "backend/cpu/expert_lists.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/products.h"
#include "backend/cpu/state_memory.h"
#include "backend/cpu/step.h"
#include "base/threads.h"

namespace lily::cpu {

class CpuBackend final : public Backend {
 public:
  struct Settings {
    const Kernels& kernels;
    int threads;
    bool pin_threads;
    bool exact;
  };
  CpuBackend(const Settings& settings, const ModelWeights& weights, const BackendLimits& limits,
             StateMemory memory);

  [[nodiscard]] std::string description() const override;
  [[nodiscard]] std::vector<Ablation> ablations() const override;
  [[nodiscard]] std::int64_t max_rows() const override { return limits_.max_rows; }
  [[nodiscard]] std::optional<double> measure_arithmetic() override;
  void begin(const Batch& batch) override;
  void embed(const EmbedBlock& block) override;
  void recurrent_block(const RecurrentBlock& block) override;
  void attention_block(const AttentionBlock& block) override;
  void moe_block(const MoeBlock& block) override;
  void mlp_block(const MlpBlock& block) override;
  void head(const HeadBlock& block) override;
  Result<void> finish() override { return {}; }
  void read_residual(std::span<float> out) override;

  void zero_slot(SlotId slot) override;
  void copy_slot(SlotId from, SlotId to) override;
  void copy_page(PageId from, PageId to) override;
  [[nodiscard]] std::int64_t slot_bytes() const override { return slot_bytes_; }
  [[nodiscard]] std::int64_t page_bytes() const override { return page_bytes_; }
  [[nodiscard]] std::int64_t host_bytes() const override;
  void read_slot(SlotId slot, std::span<std::byte> out) override;
  void write_slot(SlotId slot, std::span<const std::byte> in) override;
  void read_page(PageId page, std::span<std::byte> out) override;
  void write_page(PageId page, std::span<const std::byte> in) override;
  void release_page(PageId page) override { memory_.pages().release(page); }
  void release_slot(SlotId slot) override { memory_.slots().release(slot); }

 private:
  /// What attention over one range of K/V rows leaves behind, to be joined with other ranges of the same
  /// queries.
  struct AttentionState {
    float* largest;  ///< [queries of a KV head]
    float* total;
    float* sums;  ///< [the same padded to 8, D]
  };
  /// A block of rows of one segment, or of K/V rows of one decoding row: one task of attention.
  struct AttentionTask {
    const StepSegment* placed;
    std::int64_t begin;  ///< prefill: first row of the segment; decode: first K/V row
    std::int64_t end;
    std::int64_t slot;  ///< decode: which partial result, before the KV head is added
  };
  /// Buffers of one thread.
  struct ThreadScratch {
    Buffer<float> attention;  ///< attend_scratch()
    Buffer<float> queries;    ///< [kAttentionQueries, D]
    Buffer<float> sums;       ///< [kAttentionQueries, D]
    Buffer<float> gate;       ///< [kMoeTokens, kExpandColumns]
    Buffer<float> up;         ///< [kMoeTokens, kExpandColumns]
  };
  /// SiLU(gate x) * (up x) for rows `tokens` of input_, into entries of `out`.
  struct Expansion {
    const QuantizedMatrix& gate_proj;
    const QuantizedMatrix& up_proj;
    std::int64_t expert = 0;
    const std::int32_t* tokens = nullptr;  ///< [count]
    std::int64_t count = 0;
    Activations& out;
    std::int64_t first_entry = 0;
    Precision precision = Precision::kFine;
  };
  static constexpr std::int64_t kMoeTokens = 128;  ///< whose gate and up rows stay in the cache together
  /// Inner columns that a task of a prompt's experts makes: kernels that gather an expert's tokens into tiles
  /// do it once for so many.
  static constexpr std::int64_t kExpandColumns = 256;
  struct ColumnRange {
    std::int64_t begin;
    std::int64_t end;
  };

  [[nodiscard]] float* residual(std::int64_t row) { return residual_.data() + row * s_.hidden; }
  [[nodiscard]] std::int64_t group_size() const { return s_.query_heads / s_.kv_heads; }
  [[nodiscard]] PerPhase<std::int64_t> counts(std::int64_t per_row = 1) const;
  /// norm(residual) of every row into input_, quantised.
  void norm_rows(const Vector& gain);

  void delta_rule(const RecurrentBlock& block, const StepSegment& placed, std::int64_t key_head);

  void store_keys_and_values(const AttentionBlock& block);
  void attend_prefill(const AttentionBlock& block);
  void attend_rows(const AttentionBlock& block, const AttentionTask& task, std::int64_t kv_head, int thread);
  void attend_decode(const AttentionBlock& block);
  void attend_range(const AttentionBlock& block, const AttentionTask& task, std::int64_t kv_head, int thread);
  void join_ranges(std::int64_t row, std::int64_t first_slot, std::int64_t slots, std::int64_t kv_head);
  void gather_queries(std::int64_t row, std::int64_t kv_head, float* out);
  void finish_query(std::int64_t row, std::int64_t head, const float* sums, float total);
  [[nodiscard]] AttentionState partial(std::int64_t slot, std::int64_t kv_head);
  [[nodiscard]] AttendArgs attend_args(const AttentionBlock& block, const Segment& segment,
                                       std::int64_t kv_head, int thread);

  void route_tokens(const MoeWeights& weights);
  void choose_experts(std::int64_t row);
  void expand_experts(const MoeWeights& weights);
  void contract_experts(const MoeWeights& weights);
  void contract_columns(const MoeWeights& weights, std::int64_t begin, std::int64_t end, int thread);
  /// Of one routed expert's tokens, into expanded_.
  void expand_expert(const MoeWeights& weights, std::int64_t expert, Phase phase, ColumnRange columns,
                     int thread);
  /// Of every row, into dense_expanded_.
  void expand_all(const QuantizedMatrix& gate_proj, const QuantizedMatrix& up_proj, Phase phase,
                  ColumnRange columns, int thread);
  void expand(const Expansion& expansion, Phase phase, ColumnRange columns, int thread);

  const Kernels& kernels_;
  void (*const attend_)(const AttendArgs& args);  ///< of the cache's type
  const bool exact_;
  const ModelWeights& weights_;
  const Shapes s_;
  const BackendLimits limits_;
  const std::int64_t slot_bytes_;
  const std::int64_t page_bytes_;
  StateMemory memory_;
  ThreadPool pool_;
  Products products_;
  Step step_;
  std::vector<ThreadScratch> scratch_;
  std::vector<Buffer<float>> conv_taps_;  ///< [linear layer] -> [4, C]

  Buffer<float> residual_;        ///< [rows, H]
  Activations input_;             ///< [rows, H]: a block's normed input
  Buffer<float> projected_;       ///< [rows, all projections of a mixer]
  Activations mixed_;             ///< [rows, Hv Dv or Nq D]: a mixer's output before its last product
  Buffer<float> router_;          ///< [rows, E]
  Buffer<float> shared_gate_;     ///< [rows]
  Buffer<std::int32_t> chosen_;   ///< [rows, K]
  Buffer<float> chosen_weights_;  ///< [rows, K]
  PerPhase<ExpertLists> lists_;
  Buffer<std::int32_t> all_rows_;  ///< 0, 1, 2, ... as a list of entries
  std::vector<std::int64_t> active_experts_;
  Activations expanded_;        ///< [entries, I]: inner rows of the routed experts
  Activations dense_expanded_;  ///< [rows, S or F]: of the shared expert or the dense feed-forward
  std::vector<AttentionTask> attention_tasks_;
  Buffer<float> partials_;  ///< [slot][KV head] AttentionState
};

/// `options` with the one named in `without` put in place: each is a setting that there is anyway.
Result<BackendOptions> options_without(BackendOptions options);

}  // namespace lily::cpu
