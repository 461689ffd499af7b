"""MLX affine quantisation: codes, scales and biases per group of 64; and the same as a straight-through estimate for training."""

import numpy as np
import torch

GROUP = 64


def bits_of(name):
    """4 bits everywhere but the router and the shared expert's gate."""
    return 8 if name.endswith(("mlp.gate.weight", "mlp.shared_expert_gate.weight")) else 4


def half_away(x):
    """Round to nearest, halves away from zero."""
    return torch.sign(x) * torch.floor(x.abs() + 0.5)


def encode(w, bits):
    """w [..., in], fp32 holding bf16 values -> codes [..., in/64, 64] fp32, scale and bias [..., in/64, 1] rounded to bf16 (MLX on the GPU)."""
    n = {4: 15.0, 8: 255.0}[bits]
    g = w.reshape(*w.shape[:-1], -1, GROUP)
    lo, hi = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True).clamp_min(0)
    s = ((hi - lo) / n).clamp_min(1e-7)
    low = lo.abs() > hi.abs()
    edge = torch.where(low, lo, hi)
    s = torch.where(low, s, -s)
    q0 = half_away(edge / s)
    s = torch.where(q0 != 0, edge / torch.where(q0 != 0, q0, torch.ones_like(q0)), s)
    bias = torch.where(q0 != 0, edge, torch.zeros_like(edge))
    codes = half_away((g - bias) / s).clamp(0, n)
    return codes, s.bfloat16().float(), bias.bfloat16().float()


def decode(codes, scale, bias):
    """The weights an engine sees, [..., in] fp32."""
    return (codes * scale + bias).flatten(-2)


def fake(w, bits):
    """Quantise and dequantise; gradients pass straight through."""
    with torch.no_grad():
        seen = decode(*encode(w.detach().bfloat16().float(), bits))
    return w + (seen - w).detach()


def fake_bf16(w):
    return w + (w.detach().bfloat16().float() - w).detach()


def pack(codes, bits):
    """codes [..., groups, 64] -> uint32 words [..., in*bits/32], lowest bits first (numpy)."""
    per = 32 // bits
    c = codes.flatten(-2).to(torch.int64).numpy().astype(np.uint32)
    c = c.reshape(*c.shape[:-1], -1, per)
    return np.bitwise_or.reduce(c << (np.arange(per, dtype=np.uint32) * bits), axis=-1).astype(np.uint32)


def unpack(words, bits):
    """Inverse of pack: words (numpy uint32) -> codes [..., groups, 64] fp32."""
    per = 32 // bits
    c = (words[..., None] >> (np.arange(per, dtype=np.uint32) * bits)) & np.uint32((1 << bits) - 1)
    c = c.reshape(*words.shape[:-1], -1, GROUP)
    return torch.from_numpy(c.astype(np.float32))
