"""Export: weights -> a checkpoint directory in MLX layout, and back.

    python -m tools.tiny.export OUT_DIR [WEIGHTS.pt]     without weights: a random model
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from .config import Shape, generation_config, model_config, tokenizer_config
from .model import init, is_matrix
from .quant import bits_of, decode, encode, pack, unpack

DTYPES = {"U32": np.uint32, "BF16": np.uint16}


def bf16_bytes(t):
    """Tensor -> numpy uint16 holding bf16 bits."""
    return t.detach().float().bfloat16().contiguous().view(torch.int16).numpy().view(np.uint16)


def from_bf16(a):
    return torch.from_numpy(a.view(np.int16).copy()).view(torch.bfloat16).float()


def mlx_parts(name, w, s: Shape):
    """One weight in our names -> [(MLX name without prefix, dtype, numpy array)]."""
    if name.endswith("experts.gate_up_proj"):
        base = name[: -len("experts.gate_up_proj")] + "switch_mlp."
        gate, up = w.split(s.expert_width, 1)
        return mlx_parts(base + "gate_proj.weight", gate, s) + mlx_parts(base + "up_proj.weight", up, s)
    if name.endswith("experts.down_proj"):
        return mlx_parts(name[: -len("experts.down_proj")] + "switch_mlp.down_proj.weight", w, s)
    if is_matrix(name):
        bits = bits_of(name)
        codes, scale, bias = encode(w.detach().bfloat16().float(), bits)
        stem = name[: -len("weight")]
        return [(name, "U32", pack(codes, bits)), (stem + "scales", "BF16", bf16_bytes(scale[..., 0])), (stem + "biases", "BF16", bf16_bytes(bias[..., 0]))]
    if name.endswith("conv1d.weight"):
        w = w.transpose(1, 2)
    elif name.endswith("norm.weight") and "linear_attn" not in name:
        w = 1 + w
    return [(name, "BF16", bf16_bytes(w))]


def save(weights, out, s: Shape):
    """Write model.safetensors: header unpadded, as MLX writes it."""
    parts = sorted(("language_model." + n, d, a) for name, w in weights.items() for n, d, a in mlx_parts(name, w.cpu(), s))
    header, offset = {"__metadata__": {"format": "mlx"}}, 0
    for name, dtype, array in parts:
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    with open(out / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, _, array in parts:
            f.write(np.ascontiguousarray(array).tobytes())
    return sum(a.nbytes for _, _, a in parts)


def load(path, s: Shape):
    """A checkpoint directory -> weights as the engine sees them (dequantised fp32), in our names."""
    raw = (Path(path) / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    data = {}
    for name, info in header.items():
        if name != "__metadata__":
            a, b = info["data_offsets"]
            data[name[len("language_model.") :]] = np.frombuffer(raw[8 + size + a : 8 + size + b], DTYPES[info["dtype"]]).reshape(info["shape"])

    def matrix(stem):
        bits = 8 if stem.endswith(("mlp.gate", "mlp.shared_expert_gate")) else 4
        scale, bias = from_bf16(data[stem + ".scales"]), from_bf16(data[stem + ".biases"])
        return decode(unpack(data[stem + ".weight"], bits), scale[..., None], bias[..., None])

    weights = {}
    for name in data:
        if ".switch_mlp." in name:
            base = name.split("switch_mlp.")[0]
            if name.endswith("switch_mlp.down_proj.weight"):
                weights[base + "experts.down_proj"] = matrix(name[: -len(".weight")])
            elif name.endswith("switch_mlp.gate_proj.weight"):
                weights[base + "experts.gate_up_proj"] = torch.cat([matrix(base + "switch_mlp.gate_proj"), matrix(base + "switch_mlp.up_proj")], 1)
        elif name.endswith((".scales", ".biases")):
            continue
        elif data[name].dtype == np.uint32:
            weights[name] = matrix(name[: -len(".weight")])
        else:
            w = from_bf16(data[name])
            if name.endswith("conv1d.weight"):
                w = w.transpose(1, 2)
            elif name.endswith("norm.weight") and "linear_attn" not in name:
                w = w - 1
            weights[name] = w
    return weights


def write_json(path, value):
    path.write_text(json.dumps(value, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")


def export(weights, out, s=Shape()):
    """Write model.safetensors and the configuration files; returns the tensor bytes."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", model_config(s))
    write_json(out / "generation_config.json", generation_config(s))
    write_json(out / "tokenizer_config.json", tokenizer_config(s))
    return save(weights, out, s)


if __name__ == "__main__":
    shape = Shape()
    weights = torch.load(sys.argv[2], map_location="cpu", weights_only=True) if len(sys.argv) > 2 else init(shape)
    print(export(weights, sys.argv[1], shape), "bytes of tensors")
