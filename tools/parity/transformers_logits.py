#!/usr/bin/env python3
"""Compares `lily logits` with transformers' Qwen3_5MoeForCausalLM, or Qwen3_5ForCausalLM of a dense model, in f32 on the
same (dequantised) weights.

    python3 tools/parity/transformers_logits.py --lily build/release/lily [--model models/tiny] [--text FILE]

For checkpoints small enough to hold in f32. Needs torch, transformers and numpy; says 'skipped' without them.
"""
import json
import sys

try:
    import numpy as np
    import torch
    from logits import comparison, divergence, lily_logits, log_softmax, text_ids
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM
    from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
    from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)

ZERO_CENTRED = ("input_layernorm.weight", "post_attention_layernorm.weight", "q_norm.weight", "k_norm.weight")
DTYPES = {"F32": np.float32, "F16": np.float16, "U32": np.uint32, "BF16": np.uint16}
# Keys of config.json that transformers' text config derives by itself or does not take.
NOT_CONFIG = {"model_type", "dtype", "mamba_ssm_dtype", "attn_output_gate", "full_attention_interval",
              "partial_rotary_factor", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"}


def read_tensors(folder):
    """name -> f32 or uint32 array, of every shard; the headers are unpadded, so nothing is aligned."""
    tensors = {}
    for shard in sorted(folder.glob("model*.safetensors")):
        raw = shard.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        for name, entry in json.loads(raw[8:8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            array = np.frombuffer(raw[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
            if entry["dtype"] == "BF16":
                array = (array.astype(np.uint32) << 16).view(np.float32)
            tensors[name] = array
    return tensors


def dequantise(tensors, module, inputs):
    """scale * code + bias, [.., out, inputs]. A row's codes are one stream of bits, lowest first."""
    packed, scales, biases = (tensors[f"{module}.{part}"] for part in ("weight", "scales", "biases"))
    bits = packed.shape[-1] * 32 // inputs
    stream = np.unpackbits(np.ascontiguousarray(packed).view(np.uint8), axis=-1, bitorder="little")
    codes = stream.reshape(*packed.shape[:-1], inputs, bits) @ (1 << np.arange(bits))
    codes = codes.reshape(*scales.shape, inputs // scales.shape[-1]).astype(np.float32)
    return (codes * scales[..., None] + biases[..., None]).reshape(*packed.shape[:-1], inputs)


def group_size(quantization, module):
    override = quantization.get(module)
    return (override or quantization).get("group_size", quantization["group_size"])


def transformers_weights(tensors, quantization):
    """MLX names and layouts to those of transformers."""
    out = {}
    modules = {name.rsplit(".", 1)[0] for name in tensors if name.endswith(".scales")}
    plain = {n: t for n, t in tensors.items() if n.rsplit(".", 1)[0] not in modules}
    weights = {}
    for module in modules:
        inputs = tensors[f"{module}.scales"].shape[-1] * group_size(quantization, module)
        weights[f"{module}.weight"] = dequantise(tensors, module, inputs)
    weights |= plain
    for name, value in weights.items():
        name = name.removeprefix("language_model.")
        if name.endswith(ZERO_CENTRED) or name == "model.norm.weight":
            value = value - 1
        if name.endswith("conv1d.weight"):
            value = value.transpose(0, 2, 1)
        if ".switch_mlp.gate_proj" in name:
            up = weights["language_model." + name.replace("gate_proj", "up_proj")]
            name = name.replace("switch_mlp.gate_proj.weight", "experts.gate_up_proj")
            value = np.concatenate([value, up], axis=1)
        elif ".switch_mlp.up_proj" in name:
            continue
        elif ".switch_mlp.down_proj" in name:
            name = name.replace("switch_mlp.down_proj.weight", "experts.down_proj")
        out[name] = torch.from_numpy(np.ascontiguousarray(value, dtype=np.float32))
    return out


def reference_logits(folder, ids):
    file = json.loads((folder / "config.json").read_text())
    dense = file["model_type"] == "qwen3_5"
    config_class = Qwen3_5TextConfig if dense else Qwen3_5MoeTextConfig
    config = config_class(**{k: v for k, v in file["text_config"].items() if k not in NOT_CONFIG})
    config._attn_implementation = config._experts_implementation = "eager"
    model = (Qwen3_5ForCausalLM if dense else Qwen3_5MoeForCausalLM)(config).float().eval()
    weights = transformers_weights(read_tensors(folder), file["quantization"])
    missing, unexpected = model.load_state_dict(weights, strict=False)
    tied = ["lm_head.weight"] if config.tie_word_embeddings else []
    assert missing in ([], tied) and not unexpected, (missing, unexpected)
    model.tie_weights()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def main():
    args = comparison(__doc__).parse_args()

    ids = text_ids(args.lily, args.model, args.text, args.tokens)
    expected = reference_logits(args.model, ids)
    p = log_softmax(expected)

    failed = False
    for flags, limit in ((["--backend", "reference"], 2e-3), (["--backend", "cpu", "--exact"], 2e-3),
                         (["--backend", "cpu", "--exact", "--chunk", "1"], 2e-3), (["--backend", "cpu"], None)):
        actual = lily_logits(args.lily, args.model, ids, *flags)
        worst = np.abs(actual - expected).max()
        kl = divergence(p, log_softmax(actual)).mean()
        top1 = (actual.argmax(-1) == expected.argmax(-1)).mean()
        bad = worst > limit if limit else kl > 2e-3 or top1 < 0.99
        failed = failed or bad
        print(f"{' '.join(flags):40} max |error| {worst:.2e}  mean KL {kl:.2e}  top-1 {100 * top1:.2f} %"
              f"{'  FAILED' if bad else ''}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
