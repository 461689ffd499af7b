// The model's weights in device memory: matrices that are multiplied together stacked into one, all packed.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/packed.h"
#include "base/result.h"
#include "model/weights.h"

namespace lily::cuda {

struct RecurrentOnDevice {
  const float* input_norm;  ///< [H]
  Packed in_proj;           ///< qkv, z, b, a
  int z_offset;
  int b_offset;
  int a_offset;
  const float* taps;  ///< [C, 4]
  const float* A_log;
  const float* dt_bias;
  const float* norm;  ///< [128]
  Packed out_proj;
};
struct AttentionOnDevice {
  const float* input_norm;
  Packed in_proj;  ///< q with gate, k, v
  const float* q_norm;
  const float* k_norm;
  Packed out_proj;
};
struct MoeOnDevice {
  const float* norm;
  Packed router;    ///< E rows, then the shared expert's gate
  int shared_gate;  ///< its channel
  Packed experts_in;
  Packed experts_out;
  Packed shared_in;
  Packed shared_out;
};
struct MlpOnDevice {
  const float* norm;
  Packed in;   ///< gate and up
  Packed out;  ///< down
};
struct LayerOnDevice {
  std::variant<RecurrentOnDevice, AttentionOnDevice> mixer;
  std::variant<MoeOnDevice, MlpOnDevice> mlp;
};
/// An embedding as the checkpoint has it: rows are looked up.
struct RawMatrix {
  std::uint8_t* codes;
  std::uint16_t* scales;
  std::uint16_t* biases;
  int bits;
  int group_size;
};

/// Rows of a checkpoint matrix and their place in a packed one.
struct MatrixPart {
  const QuantizedMatrix* source;
  Packed target;
  int channel_offset;
  int bank;  ///< 0 gate, 1 up; -1: not gated
};
struct VectorPart {
  const Vector* source;
  float* target;
};

class DeviceWeights {
 public:
  /// Places everything in `layout`; nothing is copied yet.
  DeviceWeights(const ModelWeights& weights, Layout& layout);

  RawMatrix embedding{};
  std::vector<LayerOnDevice> layers;
  const float* norm = nullptr;
  Packed head;
  int head_channels = 0;

  [[nodiscard]] const std::vector<MatrixPart>& matrices() const { return matrices_; }
  [[nodiscard]] const std::vector<VectorPart>& vectors() const { return vectors_; }

 private:
  struct Stacked {
    const QuantizedMatrix* source;
    int bank = -1;
  };
  /// One packed matrix of `stack`; the channel of each part in `offsets` where that is given.
  Packed place(Layout& layout, const std::vector<Stacked>& stack, std::vector<int>* offsets = nullptr);
  const float* place(Layout& layout, const Vector& vector);
  RecurrentOnDevice place(Layout& layout, const RecurrentWeights& weights);
  AttentionOnDevice place(Layout& layout, const AttentionWeights& weights);
  MoeOnDevice place(Layout& layout, const MoeWeights& weights);
  MlpOnDevice place(Layout& layout, const MlpWeights& weights);

  std::vector<MatrixPart> matrices_;
  std::vector<VectorPart> vectors_;
};

/// Copies and packs everything: several threads from the mapped file through pinned buffers. `memory` is all
/// of the layout's.
[[nodiscard]] Result<void> load(const Device& device, const ModelWeights& weights,
                                const DeviceWeights& placed, const Memory& memory, std::int64_t bytes);

/// Whether the kernels know the model's bits, groups and head counts.
[[nodiscard]] Result<void> check_supported(const ModelWeights& weights);

}  // namespace lily::cuda
