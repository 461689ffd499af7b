"""The model in plain PyTorch, for training: a dict of weights and functions over it.

Names and shapes of the weights are those of transformers' Qwen3_5MoeForCausalLM (check_model.py compares the two).
Rows are packed: `doc` [B, T] numbers the documents of a row, and nothing flows from one document to the next: not
through attention, not through the convolution, not through the recurrent state.

B rows, T tokens, H hidden, N query heads, G kv heads, K / V linear key / value heads, E experts, C chunk.
"""

import math

import torch
import torch.nn.functional as F

from .config import Shape
from .quant import bits_of, fake, fake_bf16

CHUNK = 64
MATRICES = ("embed_tokens.weight", "lm_head.weight", "_proj.weight", "in_proj_qkv.weight", "in_proj_z.weight", "in_proj_a.weight", "in_proj_b.weight", "gate.weight", "gate_up_proj", "experts.down_proj")


def is_matrix(name):
    """True for the weights that are quantised."""
    return name.endswith(MATRICES)


def init(s: Shape, seed=0):
    """Fresh weights: {name: fp32 tensor}."""
    gen = torch.Generator().manual_seed(seed)

    def normal(*shape, std):
        return torch.randn(*shape, generator=gen) * std

    h = s.hidden
    w = {"model.embed_tokens.weight": normal(s.vocab, h, std=1.0), "lm_head.weight": normal(s.vocab, h, std=0.5 / math.sqrt(h)), "model.norm.weight": torch.zeros(h)}
    out = 1 / math.sqrt(2 * s.layers)  # residual branches start small
    for i in range(s.layers):
        p = f"model.layers.{i}."
        w[p + "input_layernorm.weight"] = torch.zeros(h)
        w[p + "post_attention_layernorm.weight"] = torch.zeros(h)
        if s.is_full(i):
            w[p + "self_attn.q_proj.weight"] = normal(2 * s.heads * s.head_dim, h, std=h**-0.5)
            w[p + "self_attn.k_proj.weight"] = normal(s.kv_heads * s.head_dim, h, std=h**-0.5)
            w[p + "self_attn.v_proj.weight"] = normal(s.kv_heads * s.head_dim, h, std=h**-0.5)
            w[p + "self_attn.o_proj.weight"] = normal(h, s.heads * s.head_dim, std=out * (s.heads * s.head_dim) ** -0.5)
            w[p + "self_attn.q_norm.weight"] = torch.zeros(s.head_dim)
            w[p + "self_attn.k_norm.weight"] = torch.zeros(s.head_dim)
        else:
            a = p + "linear_attn."
            w[a + "in_proj_qkv.weight"] = normal(s.conv_dim, h, std=h**-0.5)
            w[a + "in_proj_z.weight"] = normal(s.value_dim, h, std=h**-0.5)
            w[a + "in_proj_b.weight"] = normal(s.linear_value_heads, h, std=h**-0.5)
            w[a + "in_proj_a.weight"] = normal(s.linear_value_heads, h, std=0.3 * h**-0.5)
            w[a + "out_proj.weight"] = normal(h, s.value_dim, std=out * s.value_dim**-0.5)
            w[a + "conv1d.weight"] = normal(s.conv_dim, 1, s.conv, std=0.2) + torch.tensor([0.0, 0.0, 0.0, 0.7])
            w[a + "A_log"] = torch.log(torch.empty(s.linear_value_heads).uniform_(1, 16, generator=gen))
            dt = torch.exp(torch.empty(s.linear_value_heads).uniform_(math.log(1e-3), math.log(0.1), generator=gen))
            w[a + "dt_bias"] = dt + torch.log(-torch.expm1(-dt))
            w[a + "norm.weight"] = torch.ones(s.linear_dim)
        m = p + "mlp."
        w[m + "gate.weight"] = normal(s.experts, h, std=h**-0.5)
        w[m + "experts.gate_up_proj"] = normal(s.experts, 2 * s.expert_width, h, std=h**-0.5)
        w[m + "experts.down_proj"] = normal(s.experts, h, s.expert_width, std=out * s.expert_width**-0.5)
        w[m + "shared_expert.gate_proj.weight"] = normal(s.shared_width, h, std=h**-0.5)
        w[m + "shared_expert.up_proj.weight"] = normal(s.shared_width, h, std=h**-0.5)
        w[m + "shared_expert.down_proj.weight"] = normal(h, s.shared_width, std=out * s.shared_width**-0.5)
        w[m + "shared_expert_gate.weight"] = normal(1, h, std=h**-0.5)
    return w


def effective(weights, dtype, quantised):
    """What the forward pass uses: as shipped if quantised (straight-through), else as they are; matrices in `dtype`.

    The router's matrices, and everything that is no matrix, stay fp32. All matrices of one width go through the
    quantiser as one tensor: a group of 64 never crosses a row. (Not compiled: a compiler may drop the bf16 roundings.)
    """
    out = {}
    for bits, kind in ((4, dtype), (8, torch.float32)):
        names = [n for n in weights if is_matrix(n) and bits_of(n) == bits]
        flat = torch.cat([weights[n].flatten() for n in names])
        if quantised:
            flat = fake(flat, bits)
        parts = flat.to(kind).split([weights[n].numel() for n in names])
        out.update({n: part.view(weights[n].shape) for n, part in zip(names, parts)})
    for name, w in weights.items():
        if name in out:
            continue
        if quantised:
            zero_centred = name.endswith("norm.weight") and "linear_attn" not in name
            w = fake_bf16(1 + w) - 1 if zero_centred else fake_bf16(w)
        out[name] = w
    return out


def rms_norm(x, w, eps=1e-6):
    """x [..., D] * (1 + w), in fp32."""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1 + w)


def unit_lower_inverse(low):
    """(I + low)^-1 for strictly lower triangular low [..., C, C]: forward substitution by halves, 8-blocks by their series."""
    c, b = low.shape[-1], 8
    blocks = low.unflatten(-1, (c // b, b)).unflatten(-3, (c // b, b))  # [..., n, b, n, b]
    diag = torch.stack([blocks[..., i, :, i, :] for i in range(c // b)], -3)  # [..., n, b, b]
    eye = torch.eye(b, device=low.device, dtype=low.dtype)
    sq = diag @ diag
    inv = (eye - diag) @ (eye + sq)
    inv = inv @ (eye + sq @ sq)
    while b < c:
        n = c // (2 * b)
        off = torch.stack([low[..., 2 * i * b + b : 2 * (i + 1) * b, 2 * i * b : 2 * i * b + b] for i in range(n)], -3)  # [..., n, b, b]
        top, bottom = inv[..., 0::2, :, :], inv[..., 1::2, :, :]
        corner = -(bottom @ off @ top)
        inv = torch.cat([torch.cat([top, torch.zeros_like(top)], -1), torch.cat([corner, bottom], -1)], -2)
        b *= 2
    return inv[..., 0, :, :]


def gated_delta(q, k, v, beta, g, doc, c=CHUNK):
    """The gated delta rule in chunks. q, k, v [B, T, V, 128]; beta, g [B, T, V]; doc [B, T] -> [B, T, V, 128], all fp32.

    In a chunk, with cumulative log decay c_i and state S0 before it:
        (I + L) D = beta V - (beta exp(c) K) S0,   L_ij = beta_i exp(c_i - c_j) k_i.k_j  (j < i)
        O_i = exp(c_i) S0^T q_i + sum_{j<=i} exp(c_i - c_j) (q_i.k_j) D_j
        S1  = exp(c_last) S0 + sum_i exp(c_last - c_i) k_i D_i^T
    so S1 = A S0 + B with A, B of all chunks computed at once; only that one product runs chunk after chunk.
    """
    b, t, h, d = v.shape
    n = t // c
    q, k, v = (x.transpose(1, 2).reshape(b, h, n, c, d) for x in (q, k, v))
    beta, g = (x.transpose(1, 2).reshape(b, h, n, c) for x in (beta, g))
    doc = doc.view(b, 1, n, c)
    before = torch.cat([torch.full_like(doc[:, :, :1, -1:], -1), doc[:, :, :-1, -1:]], 2)  # document of the token before the chunk
    carried = doc == before  # [b, 1, n, c] sees the incoming state
    leaving = doc == doc[..., -1:]  # reaches the outgoing state
    cum = g.cumsum(-1)
    index = torch.arange(c, device=v.device)
    causal = (index[:, None] >= index) & (doc[..., :, None] == doc[..., None, :])
    decay = (cum[..., :, None] - cum[..., None, :]).masked_fill(~causal, float("-inf")).exp()  # [b, h, n, c, c]
    low = (beta[..., None] * decay * (k @ k.mT)).tril(-1)
    inverse = unit_lower_inverse(low)
    start = cum.exp() * carried
    u = inverse @ (beta[..., None] * v)
    w = inverse @ ((beta * start)[..., None] * k)
    tail = ((cum[..., -1:] - cum).masked_fill(~leaving, float("-inf")).exp()[..., None] * k).mT  # [b, h, n, d, c]
    keep = cum[..., -1].exp() * carried[..., -1]  # [b, h, n]
    step = keep[..., None, None] * torch.eye(d, device=v.device) - tail @ w
    add = tail @ u
    state = torch.zeros(b, h, d, d, device=v.device, dtype=v.dtype)
    states = []
    for i in range(n):
        states.append(state)
        state = add[:, :, i] + step[:, :, i] @ state
    s0 = torch.stack(states, 2)
    out = (start[..., None] * q) @ s0 + (decay * (q @ k.mT)) @ (u - w @ s0)
    return out.reshape(b, h, t, d).transpose(1, 2)


def recurrent_block(x, w, doc, s: Shape):
    """x [B, T, H] fp32 + gated delta net. w: this layer's weights without prefix."""
    b, t, _ = x.shape
    kind = w["linear_attn.in_proj_qkv.weight"].dtype
    h = rms_norm(x, w["input_layernorm.weight"], s.eps).to(kind)
    qkv = F.linear(h, w["linear_attn.in_proj_qkv.weight"])
    z = F.linear(h, w["linear_attn.in_proj_z.weight"])
    beta = F.linear(h, w["linear_attn.in_proj_b.weight"]).float().sigmoid()
    a = F.linear(h, w["linear_attn.in_proj_a.weight"]).float()
    g = -w["linear_attn.A_log"].exp() * F.softplus(a + w["linear_attn.dt_bias"])
    taps = w["linear_attn.conv1d.weight"]  # [C, 1, 4]
    conv = qkv.float() * taps[:, 0, 3]
    for back in (1, 2, 3):
        same = (doc[:, back:] == doc[:, :-back])[..., None]
        conv = conv + F.pad(qkv[:, :-back].float() * same, (0, 0, back, 0)) * taps[:, 0, 3 - back]
    conv = F.silu(conv).to(kind).float()
    q, k, v = conv.split([s.key_dim, s.key_dim, s.value_dim], -1)
    q, k = (y.view(b, t, s.linear_key_heads, s.linear_dim) for y in (q, k))
    v = v.view(b, t, s.linear_value_heads, s.linear_dim)
    q, k = (y * torch.rsqrt(y.pow(2).sum(-1, keepdim=True) + 1e-6) for y in (q, k))
    group = s.linear_value_heads // s.linear_key_heads
    q, k = (y.repeat_interleave(group, 2) for y in (q * s.linear_dim**-0.5, k))
    o = gated_delta(q, k, v, beta, g, doc)
    o = o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + s.eps) * w["linear_attn.norm.weight"]
    o = o.reshape(b, t, s.value_dim) * F.silu(z.float())
    return x + F.linear(o.to(kind), w["linear_attn.out_proj.weight"]).float()


def rope(x, cos, sin):
    """Rotate the first 64 dims of x [B, T, heads, 256], halves paired."""
    r = cos.shape[-1]
    a, b, rest = x[..., :r], x[..., r : 2 * r], x[..., 2 * r :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def attention_block(x, w, doc, s: Shape):
    """x [B, T, H] fp32 + gated attention."""
    b, t, _ = x.shape
    kind = w["self_attn.q_proj.weight"].dtype
    h = rms_norm(x, w["input_layernorm.weight"], s.eps).to(kind)
    q, gate = F.linear(h, w["self_attn.q_proj.weight"]).view(b, t, s.heads, 2 * s.head_dim).chunk(2, -1)
    k = F.linear(h, w["self_attn.k_proj.weight"]).view(b, t, s.kv_heads, s.head_dim)
    v = F.linear(h, w["self_attn.v_proj.weight"]).view(b, t, s.kv_heads, s.head_dim)
    q, k = rms_norm(q, w["self_attn.q_norm.weight"], s.eps), rms_norm(k, w["self_attn.k_norm.weight"], s.eps)
    inv = s.theta ** (-torch.arange(0, s.rotary, 2, device=x.device, dtype=torch.float32) / s.rotary)
    angle = torch.arange(t, device=x.device)[:, None] * inv
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    q, k = rope(q, cos, sin).to(kind), rope(k, cos, sin).to(kind)
    k, v = (y.repeat_interleave(s.heads // s.kv_heads, 2) for y in (k, v))
    mask = (doc[:, None, :, None] == doc[:, None, None, :]) & torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
    o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, scale=s.head_dim**-0.5)
    o = o.transpose(1, 2).float() * gate.float().sigmoid()
    return x + F.linear(o.reshape(b, t, -1).to(kind), w["self_attn.o_proj.weight"]).float()


def route(h, gate, s: Shape):
    """h [..., H] fp32 -> (weights [..., E], zero outside the top k; probabilities [..., E])."""
    p = F.linear(h, gate).softmax(-1)
    rank = (p[..., None, :] > p[..., :, None]).sum(-1)
    top = p * (rank < s.top_k)
    return top / top.sum(-1, keepdim=True), p


def moe_block(x, w, s: Shape):
    """x [B, T, H] fp32 + mixture of experts (every expert is computed, unused ones weigh 0); and the balance loss."""
    gate_up, down = w["mlp.experts.gate_up_proj"], w["mlp.experts.down_proj"]
    kind = gate_up.dtype
    h = rms_norm(x, w["post_attention_layernorm.weight"], s.eps).to(kind)
    weight, p = route(h.float(), w["mlp.gate.weight"], s)
    share = (weight > 0).float().flatten(0, 1).mean(0)
    balance = s.experts / s.top_k * (share * p.flatten(0, 1).mean(0)).sum()
    g, u = F.linear(h, gate_up.flatten(0, 1)).unflatten(-1, (s.experts, 2 * s.expert_width)).chunk(2, -1)
    a = (F.silu(g.float()) * u.float() * weight[..., None]).to(kind)
    y = F.linear(a.flatten(-2), down.transpose(0, 1).flatten(1)).float()
    a = F.silu(F.linear(h, w["mlp.shared_expert.gate_proj.weight"]).float()) * F.linear(h, w["mlp.shared_expert.up_proj.weight"]).float()
    shared = F.linear(a.to(kind), w["mlp.shared_expert.down_proj.weight"]).float()
    return x + y + F.linear(h.float(), w["mlp.shared_expert_gate.weight"]).sigmoid() * shared, balance


def layer_of(w, i):
    """The weights of layer i, without prefix."""
    prefix = f"model.layers.{i}."
    return {k[len(prefix) :]: v for k, v in w.items() if k.startswith(prefix)}


def forward(w, ids, doc, s: Shape, blocks=(recurrent_block, attention_block, moe_block)):
    """Effective weights, ids and doc [B, T] (T a multiple of 64) -> (last hidden [B, T, H] normed, balance loss)."""
    recurrent, attention, moe = blocks
    x = F.embedding(ids, w["model.embed_tokens.weight"]).float()
    balance = 0.0
    for i in range(s.layers):
        layer = layer_of(w, i)
        x = attention(x, layer, doc, s) if s.is_full(i) else recurrent(x, layer, doc, s)
        x, loss = moe(x, layer, s)
        balance = balance + loss / s.layers
    return rms_norm(x, w["model.norm.weight"], s.eps).to(w["lm_head.weight"].dtype), balance
