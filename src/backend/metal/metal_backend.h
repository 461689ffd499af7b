// The backend for Apple GPUs, real or emulated. A step is encoded block by block and submitted in a few
// lists; host and device share memory, so state is copied by the host. Decoding rows take matrix-vector
// kernels and keep f32 activations; prefill takes products of 8x8 matrices. What the blocks run is in
// blocks_decode.cpp, blocks_prefill.cpp and head.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/metal/encoder.h"
#include "backend/metal/pipelines.h"
#include "backend/metal/row_block.h"
#include "backend/metal/scratch.h"

namespace lily::metal {

class MetalBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> create(std::string name, std::unique_ptr<GpuDevice> device,
                                                 const ModelWeights& weights, const BackendLimits& limits);

  [[nodiscard]] std::string description() const override;
  [[nodiscard]] std::int64_t max_rows() const override { return limits_.max_rows; }
  void begin(const Batch& batch) override;
  void embed(const EmbedBlock& block) override;
  void recurrent_block(const RecurrentBlock& block) override;
  void attention_block(const AttentionBlock& block) override;
  void moe_block(const MoeBlock& block) override;
  void mlp_block(const MlpBlock& block) override;
  void head(const HeadBlock& block) override;
  [[nodiscard]] bool chooses() const override { return true; }
  [[nodiscard]] std::int64_t candidate_rows() const override { return kLogitsRows; }
  void read_logits(std::int64_t row, std::span<float> out) override;
  Result<void> finish() override;
  void read_residual(std::span<float> out) override;

  void zero_slot(SlotId slot) override;
  void copy_slot(SlotId from, SlotId to) override;
  void copy_page(PageId from, PageId to) override;
  [[nodiscard]] std::int64_t host_bytes() const override;
  [[nodiscard]] std::int64_t slot_bytes() const override { return slot_floats_ * 4; }
  [[nodiscard]] std::int64_t page_bytes() const override { return page_values_ * 2; }
  void read_slot(SlotId slot, std::span<std::byte> out) override;
  void write_slot(SlotId slot, std::span<const std::byte> in) override;
  void read_page(PageId page, std::span<std::byte> out) override;
  void write_page(PageId page, std::span<const std::byte> in) override;

  /// Lists handed over, levels and dispatches encoded so far, for tests and accounts.
  [[nodiscard]] std::int64_t lists() const { return encoder_.lists(); }
  [[nodiscard]] std::int64_t levels() const { return encoder_.levels(); }
  [[nodiscard]] std::int64_t dispatches() const { return encoder_.dispatches(); }

 private:
  MetalBackend(std::string name, std::unique_ptr<GpuDevice> device, const ModelWeights& weights,
               const BackendLimits& limits);
  Result<void> allocate();
  void check(const Segment& segment) const;

  [[nodiscard]] int prefill_rows() const { return prefill_.rows(); }
  [[nodiscard]] int decode_rows() const { return decode_.rows(); }
  [[nodiscard]] View decode_residual() const {
    return scratch_.residual.from(std::int64_t{4} * prefill_rows() * s_.hidden);
  }
  [[nodiscard]] std::byte* slot_at(SlotId slot) const { return slots_.as<std::byte>() + slot * slot_bytes(); }
  [[nodiscard]] std::byte* page_at(PageId page) const { return pages_.as<std::byte>() + page * page_bytes(); }

  /// Arguments of a block's kernels.
  [[nodiscard]] DeltaArgs delta_args(const RecurrentOnDevice& w, int linear_index,
                                     const RowBlock& rows) const;
  [[nodiscard]] AttentionArgs attention_args(const AttentionOnDevice& w, int attention_index,
                                             const RowBlock& rows) const;
  [[nodiscard]] MoeArgs moe_args(const MoeOnDevice& w, int rows) const;

  void bind(unsigned first, const Matrix& matrix);
  void embed_rows(const RowBlock& rows, const View& residual);
  /// out[t] = stack * norm(x[t]), by matrix-vector kernels; `index`: rows of x, or none.
  struct Projection {
    View x;
    int rows = 0;
    View gain;
    View out;
    View index = {};
  };
  void project(const Stack& stack, const Projection& p);
  void prepare_heads(const AttentionOnDevice& w, const AttentionArgs& args, const RowBlock& rows,
                     const View& projected, const View& query);
  void add_product(const Matrix& matrix, const View& x, int gate_stride);
  void recurrent_decode(const RecurrentOnDevice& w, int linear_index);
  void attention_decode(const AttentionOnDevice& w, int attention_index);
  void attend_ranges(const AttentionArgs& args, std::int64_t tiles);
  void moe_decode(const MoeOnDevice& w);
  void mlp_decode(const MlpOnDevice& w);
  /// out = SiLU(gate h) * (up h), h = norm of a decoding row.
  void expand(const View& norm, const Matrix& gate, const Matrix& up, const View& out);
  void experts_in(const MoeOnDevice& w, const MoeArgs& args);
  void experts_out(const MoeOnDevice& w, const MoeArgs& args);
  void norm_prefill_rows(const View& gain);
  /// out = stack * normed.
  void project_prefill(const Stack& stack, const View& out);
  /// What a product reads, list row by list row, and where it goes.
  struct Product {
    View input;
    View out;
    View tiles;
    std::int64_t tile_count = 0;
    int tile_rows = kTileRows;
    View index = {};
    View weight = {};
    bool is_part = false;  ///< of a stack's outputs
  };
  void multiply(const Pipelines::ByBitsAndHeight& kernel, const Matrix& matrix, const Product& p,
                std::int64_t out_stride);
  void multiply_gated(const Matrix& gate, const Matrix& up, const Product& p);
  /// A product over all prefill rows.
  [[nodiscard]] Product dense(const View& input, const View& out) const {
    return {.input = input,
            .out = out,
            .tiles = prefill_.tiles,
            .tile_count = prefill_.dense_tiles(),
            .tile_rows = prefill_.tile_rows()};
  }
  void recurrent_prefill(const RecurrentOnDevice& w, int linear_index);
  void convolve(const RecurrentOnDevice& w, const DeltaArgs& args);
  void run_delta_chunks(const DeltaArgs& args);
  void attention_prefill(const AttentionOnDevice& w, int attention_index);
  void moe_prefill(const MoeOnDevice& w);
  void mlp_prefill(const MlpOnDevice& w);
  [[nodiscard]] int expert_tile_rows() const;
  void sort_rows();
  void expert_products(const MoeOnDevice& w);
  /// After a layer: hands over the first layers of a step, so that the device starts early, and long prefill
  /// steps layer by layer, so that no list takes seconds.
  void end_slice(int layer);
  /// Of the rows of the residual stream that `index` names.
  void compute_logits(const View& index, int rows);
  void choose(int rows, TokenId end);
  void list_candidates(int rows, TokenId end);
  [[nodiscard]] Candidates candidates_of(std::int64_t row) const;
  /// `rows` rows of what the head wants, from its `first` on.
  void take_results(const HeadBlock& block, std::int64_t first, std::int64_t rows) const;

  const std::string name_;
  const ModelWeights& weights_;
  const Shapes s_;
  const BackendLimits limits_;
  const std::unique_ptr<GpuDevice> device_;
  const std::int64_t slot_floats_;
  const std::int64_t page_values_;
  Pipelines pipelines_;
  Arena weight_arena_;
  Arena state_arena_;
  Arena scratch_arena_;
  std::unique_ptr<DeviceWeights> device_weights_;
  Scratch scratch_;
  View slots_;  ///< a slot's layer: S [Hv, Dk, Dv], then ring [kConvRing, C], f32
  View pages_;  ///< a page: [attention layer][K|V][Nkv][256][D] bf16
  RowBlock prefill_;
  RowBlock decode_;
  Encoder encoder_;
  Batch batch_;
  std::vector<std::int64_t> first_rows_;  ///< of each segment of the batch, among all rows
  Result<void> status_;                   ///< of what ran before finish()
};

}  // namespace lily::metal
