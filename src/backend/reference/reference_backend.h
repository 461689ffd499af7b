// The reference backend: every block in plain f32, one token after the other, written to be read beside the
// specification (docs/model.md). It is the documentation and the judge of the other backends.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/reference/math.h"

namespace lily::reference {

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(const ModelWeights& weights, const BackendLimits& limits);

  [[nodiscard]] std::string description() const override { return "reference (plain f32, 1 thread)"; }
  [[nodiscard]] std::int64_t max_rows() const override { return limits_.max_rows; }
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
  [[nodiscard]] std::int64_t slot_bytes() const override { return slot_size() * 4; }
  [[nodiscard]] std::int64_t page_bytes() const override { return page_size() * 4; }
  [[nodiscard]] std::int64_t host_bytes() const override {
    return limits_.slots * slot_bytes() + limits_.kv_pages * page_bytes();
  }
  void read_slot(SlotId slot, std::span<std::byte> out) override;
  void write_slot(SlotId slot, std::span<const std::byte> in) override;
  void read_page(PageId page, std::span<std::byte> out) override;
  void write_page(PageId page, std::span<const std::byte> in) override;
  void release_page(PageId page) override;
  void release_slot(SlotId slot) override;

 private:
  using State = std::vector<float>;

  /// Floats of a slot: per gated-delta layer S [Hv, Dk, Dv], then the last 3 pre-convolution rows [3, C].
  [[nodiscard]] std::int64_t slot_size() const;
  [[nodiscard]] std::int64_t layer_slot_size() const;
  /// Floats of a page: [attention layer, K|V, token, Nkv, D].
  [[nodiscard]] std::int64_t page_size() const;
  [[nodiscard]] std::span<float> recurrent_state(SlotId slot, int linear_index);
  [[nodiscard]] std::span<float> conv_window(SlotId slot, int linear_index);
  /// K (or V) of one position, [Nkv, D].
  [[nodiscard]] std::span<float> kv_row(const Segment& segment, int attention_index, bool value,
                                        std::int64_t position);

  void convolve(std::span<float> window, const Vector& taps, std::span<float> channels) const;
  void delta_rule(std::span<float> state, std::span<float> channels, std::span<const float> a,
                  std::span<const float> b, const RecurrentWeights& weights, std::span<float> out) const;
  void attend(const Segment& segment, int attention_index, std::int64_t position, std::span<const float> q,
              std::span<float> out);

  const ModelWeights& weights_;
  Shapes s_;
  BackendLimits limits_;
  Batch batch_;
  Rows residual_{0, 0};
  std::vector<State> slots_;
  std::vector<State> pages_;
};

}  // namespace lily::reference
