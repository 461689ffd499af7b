"""Cached greedy decoding of many prompts at once, in plain PyTorch: the yardstick until the engine speaks."""

import torch
import torch.nn.functional as F

from .config import Shape
from .model import layer_of, rms_norm, rope, route


class Decoder:
    """`rows` sequences in step, each of at most `limit` tokens. Weights are the effective ones of model.py."""

    def __init__(self, w, s: Shape, rows, limit, device):
        self.w, self.s, self.limit = w, s, limit
        self.layers = [layer_of(w, i) for i in range(s.layers)]
        self.at = 0
        self.fixed_at = torch.zeros((), dtype=torch.long, device=device)
        kind = dict(device=device, dtype=torch.float32)
        self.state = []
        for i in range(s.layers):
            if s.is_full(i):
                self.state.append([torch.zeros(rows, limit, s.kv_heads, s.head_dim, **kind) for _ in range(2)])
            else:
                self.state.append([torch.zeros(rows, s.linear_value_heads, s.linear_dim, s.linear_dim, **kind), torch.zeros(rows, 3, s.conv_dim, **kind)])
        inv = s.theta ** (-torch.arange(0, s.rotary, 2, device=device, dtype=torch.float32) / s.rotary)
        self.angle = torch.arange(limit, device=device)[:, None] * inv

    def step(self, ids):
        """ids [rows] -> logits [rows, vocab]; every row advances by one token."""
        s, w = self.s, self.w
        x = F.embedding(ids, w["model.embed_tokens.weight"]).float()
        for i, layer in enumerate(self.layers):
            x = x + (self.attention(i, layer, x) if s.is_full(i) else self.recurrent(i, layer, x))
            h = rms_norm(x, layer["post_attention_layernorm.weight"])
            x = x + moe(h, layer, s)
        self.at += 1
        self.fixed_at += 1
        return F.linear(rms_norm(x, w["model.norm.weight"]), w["lm_head.weight"].float())

    def recurrent(self, i, w, x):
        s, (state, window) = self.s, self.state[i]
        n = x.shape[0]
        h = rms_norm(x, w["input_layernorm.weight"])
        qkv = F.linear(h, w["linear_attn.in_proj_qkv.weight"])
        z = F.linear(h, w["linear_attn.in_proj_z.weight"])
        beta = F.linear(h, w["linear_attn.in_proj_b.weight"]).sigmoid()
        decay = (-w["linear_attn.A_log"].exp() * F.softplus(F.linear(h, w["linear_attn.in_proj_a.weight"]) + w["linear_attn.dt_bias"])).exp()
        taps = w["linear_attn.conv1d.weight"][:, 0]  # [C, 4]
        rows = torch.cat([window, qkv[:, None]], 1)
        window.copy_(rows[:, 1:])
        c = F.silu(torch.einsum("btc,ct->bc", rows, taps))
        q, k, v = c.split([s.key_dim, s.key_dim, s.value_dim], -1)
        q, k = (y.view(n, s.linear_key_heads, s.linear_dim) for y in (q, k))
        q, k = (y * torch.rsqrt(y.pow(2).sum(-1, keepdim=True) + 1e-6) for y in (q, k))
        q, k = (y.repeat_interleave(s.linear_value_heads // s.linear_key_heads, 1) for y in (q * s.linear_dim**-0.5, k))
        v = v.view(n, s.linear_value_heads, s.linear_dim)
        state.mul_(decay[..., None, None])
        delta = beta[..., None] * (v - (k[:, :, None] @ state)[:, :, 0])
        state.add_(k[..., :, None] * delta[..., None, :])
        o = (q[:, :, None] @ state)[:, :, 0]
        o = o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + s.eps) * w["linear_attn.norm.weight"]
        return F.linear(o.reshape(n, -1) * F.silu(z), w["linear_attn.out_proj.weight"])

    def attention(self, i, w, x):
        s, (keys, values) = self.s, self.state[i]
        n, at = x.shape[0], self.fixed_at
        h = rms_norm(x, w["input_layernorm.weight"])
        q, gate = F.linear(h, w["self_attn.q_proj.weight"]).view(n, 1, s.heads, 2 * s.head_dim).chunk(2, -1)
        k = F.linear(h, w["self_attn.k_proj.weight"]).view(n, 1, s.kv_heads, s.head_dim)
        v = F.linear(h, w["self_attn.v_proj.weight"]).view(n, 1, s.kv_heads, s.head_dim)
        angle = self.angle.index_select(0, at[None])[:, None]
        q = rope(rms_norm(q, w["self_attn.q_norm.weight"]), angle.cos(), angle.sin())
        keys.index_copy_(1, at[None], rope(rms_norm(k, w["self_attn.k_norm.weight"]), angle.cos(), angle.sin()))
        values.index_copy_(1, at[None], v)
        g = s.heads // s.kv_heads
        scores = torch.einsum("bghd,btgd->bght", q.view(n, s.kv_heads, g, s.head_dim), keys) * s.head_dim**-0.5
        scores = scores.masked_fill(torch.arange(self.limit, device=x.device) > at, float("-inf"))
        o = torch.einsum("bght,btgd->bghd", scores.softmax(-1), values).reshape(n, s.heads, s.head_dim) * gate[:, 0].sigmoid()
        return F.linear(o.reshape(n, -1), w["self_attn.o_proj.weight"])


def moe(h, w, s):
    """h [rows, H] fp32, normed."""
    weight, _ = route(h, w["mlp.gate.weight"], s)
    g, u = F.linear(h, w["mlp.experts.gate_up_proj"].flatten(0, 1)).unflatten(-1, (s.experts, 2 * s.expert_width)).chunk(2, -1)
    y = F.linear((F.silu(g) * u * weight[..., None]).flatten(-2), w["mlp.experts.down_proj"].transpose(0, 1).flatten(1))
    a = F.silu(F.linear(h, w["mlp.shared_expert.gate_proj.weight"])) * F.linear(h, w["mlp.shared_expert.up_proj.weight"])
    return y + F.linear(h, w["mlp.shared_expert_gate.weight"]).sigmoid() * F.linear(a, w["mlp.shared_expert.down_proj.weight"])


def generate(w, s: Shape, prompts, new_tokens, stop, device, tokens=None):
    """Greedy continuations of prompts (lists of ids): lists of ids without the stop token. `tokens`: ids from there on are never chosen."""
    limit = max(len(p) for p in prompts) + new_tokens
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    grid = torch.zeros(len(prompts), limit + 1, dtype=torch.long, device=device)
    for i, p in enumerate(prompts):
        grid[i, : len(p)] = torch.tensor(p, device=device)
    done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    ends = lengths + new_tokens
    with torch.no_grad():
        dec = Decoder(w, s, len(prompts), limit, device)
        run = dec.step
        if torch.device(device).type == "cuda":
            run = graphed(dec, grid[:, 0].clone())
        for at in range(limit):
            logits = run(grid[:, at])
            if tokens:
                logits = logits[:, :tokens]
            best = logits.argmax(-1)
            ours = at + 1 >= lengths
            grid[:, at + 1] = torch.where(ours, best, grid[:, at + 1])
            stopped = ours & ~done & torch.isin(best, torch.tensor(stop, device=device))
            ends = torch.where(stopped, at + 1, ends)
            done |= stopped | (at + 1 >= lengths + new_tokens)
            if at % 32 == 31 and bool(done.all()):
                break
    grid, ends = grid.tolist(), ends.tolist()
    return [row[len(p) : end] for row, p, end in zip(grid, prompts, ends)]


def graphed(dec, ids):
    """dec.step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        dec.step(ids)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = dec.step(ids)
    for pair in dec.state:
        for t in pair:
            t.zero_()
    dec.fixed_at.zero_()

    def run(new):
        ids.copy_(new)
        graph.replay()
        return out

    return run
