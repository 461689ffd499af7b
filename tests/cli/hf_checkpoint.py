"""Small original checkpoints (bf16 safetensors under Hugging Face's names), and MLX's affine quantiser in plain Python.

Numbers are bf16 values held as floats; standard library only."""

import array
import json
import math
import pathlib
import random
import struct


def to_bf16(value):
    """The 16 bits of a float, rounded to nearest even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Tensor:
    def __init__(self, shape, values):
        self.shape, self.values = shape, values

    def bf16(self):
        return array.array("H", [to_bf16(v) for v in self.values]).tobytes()


def text_config(dense, width):
    config = {"model_type": "qwen3_5_text" if dense else "qwen3_5_moe_text", "hidden_size": width, "vocab_size": 96,
              "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "num_attention_heads": 1,
              "num_key_value_heads": 1, "head_dim": 256, "linear_num_key_heads": 1, "linear_num_value_heads": 1,
              "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
              "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
              "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25}}
    if dense:
        return config | {"intermediate_size": 128}
    return config | {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
                     "shared_expert_intermediate_size": 64}


def tensors(dense, seed=1, separate_experts=False, width=64):
    """name -> Tensor of a text-only checkpoint, as its publisher names them, without the prefix of the text model."""
    rng = random.Random(seed)

    def normal(*shape):
        return Tensor(list(shape), [from_bf16(to_bf16(rng.gauss(0, 0.2))) for _ in range(math.prod(shape))])

    out = {"embed_tokens.weight": normal(96, width), "norm.weight": normal(width)}
    for layer in range(2):
        at = f"layers.{layer}."
        out |= {at + "input_layernorm.weight": normal(width), at + "post_attention_layernorm.weight": normal(width)}
        if layer == 0:
            mixer = at + "linear_attn."
            out |= {mixer + "in_proj_qkv.weight": normal(384, width), mixer + "in_proj_z.weight": normal(128, width),
                    mixer + "in_proj_a.weight": normal(1, width), mixer + "in_proj_b.weight": normal(1, width),
                    mixer + "conv1d.weight": normal(384, 1, 4), mixer + "A_log": normal(1), mixer + "dt_bias": normal(1),
                    mixer + "norm.weight": normal(128), mixer + "out_proj.weight": normal(width, 128)}
        else:
            mixer = at + "self_attn."
            out |= {mixer + "q_proj.weight": normal(512, width), mixer + "k_proj.weight": normal(256, width),
                    mixer + "v_proj.weight": normal(256, width), mixer + "o_proj.weight": normal(width, 256),
                    mixer + "q_norm.weight": normal(256), mixer + "k_norm.weight": normal(256)}
        mlp = at + "mlp."
        if dense:
            out |= {mlp + "gate_proj.weight": normal(128, width), mlp + "up_proj.weight": normal(128, width),
                    mlp + "down_proj.weight": normal(width, 128)}
            continue
        out |= {mlp + "gate.weight": normal(3, width), mlp + "shared_expert_gate.weight": normal(1, width),
                mlp + "shared_expert.gate_proj.weight": normal(64, width),
                mlp + "shared_expert.up_proj.weight": normal(64, width),
                mlp + "shared_expert.down_proj.weight": normal(width, 64)}
        fused, down = normal(3, 128, 64), normal(3, 64, 64)
        if not separate_experts:
            out |= {mlp + "experts.gate_up_proj": fused, mlp + "experts.down_proj": down}
            continue
        for e in range(3):
            rows = fused.values[e * 128 * 64 : (e + 1) * 128 * 64]
            out[f"{mlp}experts.{e}.gate_proj.weight"] = Tensor([64, 64], rows[: 64 * 64])
            out[f"{mlp}experts.{e}.up_proj.weight"] = Tensor([64, 64], rows[64 * 64 :])
            out[f"{mlp}experts.{e}.down_proj.weight"] = Tensor([64, 64], down.values[e * 4096 : (e + 1) * 4096])
    return out


def write(folder, dense=False, seed=1, prefix="model.language_model.", separate_experts=False, tied=False, width=64, edit=None):
    """The checkpoint as two shards with an index; returns its tensors. `edit` may change names and tensors."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    made = tensors(dense, seed, separate_experts, width)
    stored = {prefix + name: tensor for name, tensor in made.items()}
    if not tied:
        made["lm_head.weight"] = stored["lm_head.weight"] = Tensor([96, width], [from_bf16(to_bf16(math.sin(i))) for i in range(96 * width)])
    stored |= {"model.visual.pos_embed.weight": Tensor([2, 2], [0.0] * 4), "mtp.fc.weight": Tensor([2, 2], [0.0] * 4)}
    if edit:
        edit(stored)
    names = sorted(stored)
    weight_map = {}
    for i, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
        file = f"model-0000{i}-of-00002.safetensors"
        header, data = {}, b""
        for name in part:
            body = stored[name].bf16()
            header[name] = {"dtype": "BF16", "shape": stored[name].shape, "data_offsets": [len(data), len(data) + len(body)]}
            data += body
            weight_map[name] = file
        text = json.dumps(header).encode()
        (folder / file).write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    kind = "qwen3_5" if dense else "qwen3_5_moe"
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "tie_word_embeddings": tied, "text_config": text_config(dense, width)}))
    (folder / "generation_config.json").write_text('{"temperature": 1.0}')
    return made


def half_away(x):
    return math.copysign(math.floor(abs(x) + 0.5), x)


def quantize_group(values, bits, rounding):
    """MLX's rule in float32, step by step: (codes, scale, bias), the latter as bf16 bits."""
    levels = float((1 << bits) - 1)
    low, high = min(values), max(values)
    if rounding == "metal":
        high = max(high, 0.0)
    nearest = half_away if rounding == "metal" else round
    scale = max(f32(f32(high - low) / levels), f32(1e-7))
    edge = low if abs(low) > abs(high) else high
    if not abs(low) > abs(high):
        scale = -scale
    q0, bias = nearest(f32(edge / scale)), 0.0
    if q0 != 0:
        scale, bias = f32(edge / q0), edge
    codes = [int(min(max(nearest(f32(f32(v - bias) / scale)), 0), levels)) for v in values]
    return codes, to_bf16(scale), to_bf16(bias)


def quantize(values, bits, group_size, rounding):
    """The bytes of weight, scales and biases."""
    weight, scales, biases = b"", [], []
    for at in range(0, len(values), group_size):
        codes, scale, bias = quantize_group(values[at : at + group_size], bits, rounding)
        scales.append(scale)
        biases.append(bias)
        stream = sum(code << (bits * i) for i, code in enumerate(codes))
        weight += stream.to_bytes(group_size * bits // 8, "little")
    return weight, array.array("H", scales).tobytes(), array.array("H", biases).tobytes()


def read(folder):
    """name -> (dtype, shape, bytes) of every shard."""
    out = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        for name, entry in json.loads(raw[8 : 8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                out[name] = (entry["dtype"], entry["shape"], raw[8 + length + begin : 8 + length + end])
    return out
