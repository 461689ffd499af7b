// The NVIDIA backend: the five blocks by hand-written kernels, for compute capability 8.0 and later, tuned
// for Hopper.
//
// Rows of prefill segments come first, then decoding rows; each block runs both kinds of kernels on its
// share. A step that only decodes (at most kGraphRows rows) is recorded block by block and replayed as one
// CUDA graph; reading the residual in between runs what is recorded so far.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/row_block.h"
#include "backend/cuda/scratch.h"

namespace lily::cuda {

inline constexpr int kGraphRows = 8;

class CudaBackend final : public Backend {
 public:
  /// `without`: one of ablations(), or empty.
  static Result<std::unique_ptr<Backend>> create(const ModelWeights& weights, const BackendLimits& limits,
                                                 const std::string& without);
  ~CudaBackend() override;

  [[nodiscard]] std::string description() const override;
  [[nodiscard]] std::vector<Ablation> ablations() const override;
  [[nodiscard]] std::int64_t max_rows() const override { return limits_.max_rows; }
  void begin(const Batch& batch) override;
  void embed(const EmbedBlock& block) override;
  void recurrent_block(const RecurrentBlock& block) override;
  void attention_block(const AttentionBlock& block) override;
  void moe_block(const MoeBlock& block) override;
  void mlp_block(const MlpBlock& block) override;
  void head(const HeadBlock& block) override;
  [[nodiscard]] bool chooses() const override { return chooses_; }
  [[nodiscard]] std::int64_t candidate_rows() const override { return chooses_ ? kLogitsRows : 0; }
  void read_logits(std::int64_t row, std::span<float> out) override;
  Result<void> finish() override;
  void read_residual(std::span<float> out) override;

  void zero_slot(SlotId slot) override;
  void copy_slot(SlotId from, SlotId to) override;
  void copy_page(PageId from, PageId to) override;
  [[nodiscard]] std::int64_t slot_bytes() const override { return slot_floats_ * 4; }
  [[nodiscard]] std::int64_t page_bytes() const override { return page_values_ * 2; }
  void read_slot(SlotId slot, std::span<std::byte> out) override;
  void write_slot(SlotId slot, std::span<const std::byte> in) override;
  void read_page(PageId page, std::span<std::byte> out) override;
  void write_page(PageId page, std::span<const std::byte> in) override;

 private:
  enum class Wanted { kLogits, kBest, kCandidates };

  CudaBackend(const ModelWeights& weights, const BackendLimits& limits, OpenDevice device, Stream stream);
  Result<void> leave_out(const std::string& ablation);
  Result<void> allocate();
  Result<void> send_frequencies();
  void check(const Segment& segment) const;

  /// Runs `work` now, or records it where the step may become a graph.
  void run(std::function<void()> work);
  void run_recorded();
  /// Runs this step block by block after all.
  void stop_recording();
  void replay(Wanted wanted);

  [[nodiscard]] Launch where() const { return {.device = &device_.device, .stream = stream_.get()}; }
  [[nodiscard]] int prefill_rows() const { return prefill_.rows(); }
  [[nodiscard]] int decode_rows() const { return decode_.rows(); }
  [[nodiscard]] float* decode_residual() const { return scratch_.residual + prefill_rows() * s_.hidden; }
  [[nodiscard]] SlotView slot_view(int linear_index) const;
  [[nodiscard]] PageView page_view(int attention_index) const;

  void list_dense_tiles();
  [[nodiscard]] int dense_tile_list(const Packed& matrix) const;
  void norm_prefill_rows(const float* gain);
  /// norm(residual) of the prefill rows, times the in-projection.
  void project_prefill(const float* gain, const Packed& matrix);
  void project_decode(const Packed& matrix);
  void out_decode(const Packed& matrix, int layer, bool norm_heads);
  /// Of the norm before layer `layer`, or after the last one.
  [[nodiscard]] const float* mixer_gain(int layer) const;
  [[nodiscard]] const float* mlp_gain(int layer) const;
  void dense_product(GemmOut out, const Packed& matrix, const __nv_bfloat16* input, void* to,
                     std::int64_t stride);
  void recurrent_prefill(const RecurrentOnDevice& w, int linear_index);
  void recurrent_decode(const RecurrentOnDevice& w, int linear_index, int layer);
  void attention_prefill_rows(const AttentionOnDevice& w, int attention_index);
  void attention_decode_rows(const AttentionOnDevice& w, int attention_index, int layer);
  void mlp_prefill_rows(const MlpOnDevice& w);
  void mlp_decode_rows(const MlpOnDevice& w, const float* next_gain);
  void moe_prefill_rows(const MoeOnDevice& w);
  void expert_products(const MoeOnDevice& w);
  void moe_decode_rows(const MoeOnDevice& w, const float* next_gain);
  void embed_rows(const RowBlock& rows, float* residual, const float* gain);
  void compute_logits(const int* wanted, int rows);
  void compute_best(int rows, TokenId end);
  void compute_candidates(int rows, TokenId end);
  /// What is `wanted` of rows whose logits are there.
  void choose(Wanted wanted, int rows, TokenId end);
  /// Of the wanted rows from `first` on, what the head block asks for.
  void copy_results(const HeadBlock& block, std::int64_t first, std::int64_t rows);
  void copy_to_host(std::span<std::byte> out, const void* from);
  void copy_to_device(void* to, std::span<const std::byte> in);

  const ModelWeights& weights_;
  const Shapes s_;
  const BackendLimits limits_;
  OpenDevice device_;
  Stream stream_;
  Memory weight_memory_;
  Memory state_memory_;
  Memory scratch_memory_;
  Memory pinned_logits_;
  std::unique_ptr<DeviceWeights> device_weights_;
  Scratch scratch_{};
  std::int64_t slot_floats_ = 0;
  std::int64_t page_values_ = 0;
  float* slots_ = nullptr;
  __nv_bfloat16* pages_ = nullptr;

  RowBlock prefill_;
  RowBlock decode_;
  Batch batch_;
  std::vector<std::int64_t> first_rows_;  ///< of each segment of the batch, among all rows
  bool graphs_allowed_ = true;
  bool chooses_ = true;
  /// How kernels go about it, but for `lily ablate`.
  struct Ways {
    bool host_routing = false;
    bool sequential_delta = false;
    bool heads_apart = false;
  } ways_;
  bool recording_ = false;
  std::vector<std::function<void()>> recorded_;
  struct Graph {
    cudaGraphExec_t graph = nullptr;
    bool warm = false;  ///< its kernels have run: loading them while recording would fail
  };
  std::array<std::array<Graph, kGraphRows + 1>, 3> graphs_{};  ///< [Wanted][rows]
  TokenId best_end_ = 0;                                       ///< in the graphs
};

}  // namespace lily::cuda
