// The model's weights in device memory, in the checkpoint's own layout but aligned and with codes of 4 or 8
// bits: matrices that one product multiplies with lie one after the other. Groups are of 64 inputs, or of 32
// in a model that has any such.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "backend/metal/arena.h"
#include "backend/metal/weight_copies.h"
#include "model/weights.h"

namespace lily::metal {

/// Codes [experts, out, in bits / 8], scales and biases [experts, out, in / group size] bf16.
struct Matrix {
  View codes;
  View scales;
  View biases;
  std::int64_t out = 0;
  std::int64_t in = 0;
  int bits = 4;  ///< or 8: device_bits()
};
/// Matrices over the same input, as one output: a part for each run of equal width.
struct Stack {
  struct Part {
    Matrix matrix;
    std::int64_t first = 0;  ///< output of its row 0
  };
  std::vector<Part> parts;
  std::vector<std::int64_t> offsets;  ///< outputs at which its matrices start
  std::int64_t out = 0;               ///< floats from row to row of the output
};

struct RecurrentOnDevice {
  View input_norm;  ///< [H]
  Stack in_proj;    ///< qkv, z, b, a
  View taps;        ///< [C, 4]
  View A_log;
  View dt_bias;
  View norm;  ///< [128]
  Matrix out_proj;
};
struct AttentionOnDevice {
  View input_norm;
  Stack in_proj;  ///< q with gate, k, v
  View q_norm;
  View k_norm;
  Matrix out_proj;
};
struct MoeOnDevice {
  View norm;
  Stack router;  ///< E rows, then the shared expert's gate
  Matrix gate;   ///< experts
  Matrix up;
  Matrix down;
  Matrix shared_gate;
  Matrix shared_up;
  Matrix shared_down;
};
/// The feed-forward of a dense member.
struct MlpOnDevice {
  View norm;
  Matrix gate;
  Matrix up;
  Matrix down;
};
struct LayerOnDevice {
  std::variant<RecurrentOnDevice, AttentionOnDevice> mixer;
  std::variant<MoeOnDevice, MlpOnDevice> mlp;
};

class DeviceWeights {
 public:
  /// Places everything in `arena`; nothing is copied yet.
  DeviceWeights(const ModelWeights& weights, Arena& arena);

  Matrix embedding;
  std::vector<LayerOnDevice> layers;
  View norm;
  Stack head;
  WeightCopies copies;  ///< of everything

 private:
  using Sources = std::vector<const QuantizedMatrix*>;

  Matrix place_run(Arena& arena, const Sources& run);
  Matrix place(Arena& arena, const QuantizedMatrix& matrix) { return place_run(arena, {&matrix}); }
  Stack place(Arena& arena, const Sources& sources);
  Stack place_padded(Arena& arena, const Sources& sources);
  View place(Arena& arena, const Vector& vector);
  RecurrentOnDevice place(Arena& arena, const RecurrentWeights& weights);
  AttentionOnDevice place(Arena& arena, const AttentionWeights& weights);
  MoeOnDevice place(Arena& arena, const MoeWeights& weights);
  MlpOnDevice place(Arena& arena, const MlpWeights& weights);

  const int group_size_;
};

/// Whether any matrix has groups of 32 inputs.
[[nodiscard]] bool has_small_groups(const ModelWeights& weights);
/// Whether the kernels know the model's sizes.
[[nodiscard]] Result<void> check_supported(const ModelWeights& weights);

}  // namespace lily::metal
