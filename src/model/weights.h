// The model's weights as the checkpoint holds them: tensor names to one struct per layer. Matrices stay
// packed where they lie (views into the mapped shards); small vectors are widened to f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/shapes.h"

namespace lily {

/// An MLX affine matrix, [experts, out, in] with experts = 1 for a plain linear. w = scale * code + bias, one
/// scale and bias (bf16) for `group_size` consecutive inputs; a row's codes are one stream of bits, lowest
/// first. Pointers are unaligned.
struct QuantizedMatrix {
  std::int64_t experts = 1;
  std::int64_t out = 0;
  std::int64_t in = 0;
  int bits = 4;                       ///< 2, 3, 4, 5, 6 or 8
  int group_size = 64;                ///< 32, 64 or 128
  const std::byte* weight = nullptr;  ///< [experts, out, in * bits / 8] bytes
  const std::byte* scales = nullptr;  ///< [experts, out, in / group_size] bf16
  const std::byte* biases = nullptr;  ///< [experts, out, in / group_size] bf16

  [[nodiscard]] std::int64_t row_bytes() const { return in * bits / 8; }
  [[nodiscard]] std::int64_t groups() const { return in / group_size; }
  [[nodiscard]] std::int64_t bytes() const { return experts * out * (row_bytes() + 4 * groups()); }
};

/// A norm gain or another small vector, in f32.
using Vector = std::vector<float>;

/// One gated-delta mixer (model card: linear_attn).
struct RecurrentWeights {
  Vector input_layernorm;       ///< [H]
  QuantizedMatrix in_proj_qkv;  ///< [C, H]
  QuantizedMatrix in_proj_z;    ///< [Hv Dv, H]
  QuantizedMatrix in_proj_a;    ///< [Hv, H]
  QuantizedMatrix in_proj_b;    ///< [Hv, H]
  Vector conv1d;                ///< [C, 4], tap 3 multiplies the current token
  Vector A_log;                 ///< [Hv]
  Vector dt_bias;               ///< [Hv]
  Vector norm;                  ///< [Dv]
  QuantizedMatrix out_proj;     ///< [H, Hv Dv]
};

/// One gated full-attention mixer (model card: self_attn).
struct AttentionWeights {
  Vector input_layernorm;  ///< [H]
  QuantizedMatrix q_proj;  ///< [Nq 2D, H]: per head D query rows, then D gate rows
  QuantizedMatrix k_proj;  ///< [Nkv D, H]
  QuantizedMatrix v_proj;  ///< [Nkv D, H]
  Vector q_norm;           ///< [D]
  Vector k_norm;           ///< [D]
  QuantizedMatrix o_proj;  ///< [H, Nq D]
};

/// One mixture of experts (model card: mlp).
struct MoeWeights {
  Vector post_attention_layernorm;     ///< [H]
  QuantizedMatrix gate;                ///< [E, H], the router
  QuantizedMatrix shared_expert_gate;  ///< [1, H]
  QuantizedMatrix gate_proj;           ///< [E][I, H] (switch_mlp)
  QuantizedMatrix up_proj;             ///< [E][I, H]
  QuantizedMatrix down_proj;           ///< [E][H, I]
  QuantizedMatrix shared_gate_proj;    ///< [S, H] (shared_expert)
  QuantizedMatrix shared_up_proj;      ///< [S, H]
  QuantizedMatrix shared_down_proj;    ///< [H, S]
};

/// The feed-forward of a dense member (model card: mlp).
struct MlpWeights {
  Vector post_attention_layernorm;  ///< [H]
  QuantizedMatrix gate_proj;        ///< [F, H]
  QuantizedMatrix up_proj;          ///< [F, H]
  QuantizedMatrix down_proj;        ///< [H, F]
};

struct LayerWeights {
  std::variant<RecurrentWeights, AttentionWeights> mixer;
  std::variant<MoeWeights, MlpWeights> mlp;
};

/// A quantity of weights (bytes, parameters) by part of the model.
struct WeightParts {
  std::int64_t embedding = 0;
  std::int64_t recurrent_mixers = 0;
  std::int64_t attention_mixers = 0;
  std::int64_t experts = 0;  ///< switch_mlp
  std::int64_t shared_experts = 0;
  std::int64_t routers = 0;  ///< mlp.gate and mlp.shared_expert_gate
  std::int64_t dense_mlps = 0;
  std::int64_t norms = 0;  ///< input, post-attention and final
  std::int64_t head = 0;

  [[nodiscard]] std::int64_t total() const;
};

struct ModelWeights {
  Shapes shapes;
  QuantizedMatrix embed_tokens;  ///< [V, H]
  std::vector<LayerWeights> layers;
  Vector norm;                        ///< [H]
  QuantizedMatrix lm_head;            ///< [V, H]; the embedding when tied
  std::shared_ptr<ModelFiles> files;  ///< keeps the mapped bytes alive

  /// Bytes as the checkpoint stores them (small vectors counted as bf16); a tied head counts as the
  /// embedding.
  [[nodiscard]] WeightParts stored_bytes() const;
  /// What decoding one token reads: the routed experts' share, one row of the embedding, the head even when
  /// tied.
  [[nodiscard]] WeightParts token_bytes() const;
  [[nodiscard]] std::int64_t bytes_per_token() const { return token_bytes().total(); }
  [[nodiscard]] WeightParts parameters() const;
  /// Parameters that one token is multiplied with: as token_bytes(), without the embedding.
  [[nodiscard]] WeightParts active_parameters() const;
};

/// Takes every tensor of the checkpoint, checks dtype and shape of each against the config, and that none is
/// left. Bits follow from the shapes and must be what config.json says. Norm gains are used as stored; a raw
/// (unconverted) layout, recognised by conv1d [C, 1, 4], is refused. Fails with all that is wrong, in one
/// message.
Result<ModelWeights> load_weights(Checkpoint& checkpoint);

/// load_weights() for a report: problems are added to `problems`, and what has one is left empty.
ModelWeights load_weights_collecting(Checkpoint& checkpoint, std::vector<Error>& problems);

}  // namespace lily
