"""Checks what the training relies on, on the CPU in fp32; needs transformers, jinja2 and numpy.

    python -m tools.tiny.check_model [MODEL_DIR]

1. model.py gives the logits of transformers' Qwen3_5MoeForCausalLM on the same weights, also when documents are packed.
2. gated_delta agrees with the step-by-step recurrence, gradients included.
3. The quantiser reproduces MLX's fixture values, and pack/unpack are inverse.
4. chat.py renders what chat_template.jinja renders.
5. tokenizer.json round-trips text and keeps control tokens whole.
6. decode.py (cached decoding) agrees with the whole pass.
"""

import json
import random
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from .chat import render, render_prompt
from .config import CONTROL, Shape, text_config
from .model import effective, forward, gated_delta, init
from .quant import encode, pack, unpack


def random_weights(s, seed=0):
    """Weights that leave nothing at its neutral value."""
    w = init(s, seed)
    gen = torch.Generator().manual_seed(seed + 1)
    for name, t in w.items():
        if name.endswith("norm.weight"):
            t += 0.1 * torch.randn(t.shape, generator=gen)
        elif name.endswith("dt_bias"):
            t.copy_(torch.rand(t.shape, generator=gen) * 5 - 4)
        elif name.endswith("lm_head.weight"):
            t *= 6
    return w


def reference(s, weights):
    """transformers' model with these weights."""
    from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
    from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForCausalLM

    config = text_config(s)
    keep = {k: v for k, v in config.items() if k not in ("dtype", "model_type", "mamba_ssm_dtype", "attn_output_gate", "full_attention_interval", "partial_rotary_factor", "bos_token_id", "eos_token_id", "pad_token_id")}
    config = Qwen3_5MoeTextConfig(**keep)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = Qwen3_5MoeForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return model


def check_forward():
    s = Shape()
    weights = random_weights(s)
    model = reference(s, weights)
    gen = torch.Generator().manual_seed(5)
    lengths = [5, 63, 64, 65, 123]
    docs = [torch.randint(0, s.vocab, (n,), generator=gen) for n in lengths]
    ids = torch.cat(docs)[None]
    doc = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)])[None]
    assert ids.shape[1] % 64 == 0
    with torch.no_grad():
        w = effective(weights, torch.float32, False)
        hidden, _ = forward(w, ids, doc, s)
        ours = F.linear(hidden, w["lm_head.weight"])[0].split(lengths)
        worst = 0.0
        for d, o in zip(docs, ours):
            worst = max(worst, (model(d[None]).logits[0] - o).abs().max().item())
    print(f"forward: max difference {worst:.1e} at logit std {torch.cat(ours).std():.2f}")
    assert worst < 5e-4


def step_by_step(q, k, v, beta, g, doc):
    out, b, t = [], v.shape[0], v.shape[1]
    state = torch.zeros(b, v.shape[2], v.shape[3], v.shape[3], dtype=v.dtype)
    for i in range(t):
        fresh = torch.ones(b, dtype=torch.bool) if i == 0 else doc[:, i] != doc[:, i - 1]
        state = state * (~fresh)[:, None, None, None] * g[:, i].exp()[..., None, None]
        delta = beta[:, i, :, None] * (v[:, i] - torch.einsum("bhkv,bhk->bhv", state, k[:, i]))
        state = state + k[:, i, :, :, None] * delta[:, :, None, :]
        out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, i]))
    return torch.stack(out, 1)


def check_delta():
    gen = torch.Generator().manual_seed(7)
    b, t, h, d = 2, 256, 2, 128
    q, k, v = (torch.randn(b, t, h, d, generator=gen, dtype=torch.float64) for _ in range(3))
    k[:, 40:50] = k[:, 40:41]  # equal keys make the solve hard
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    beta, g = torch.rand(b, t, h, generator=gen, dtype=torch.float64), -torch.rand(b, t, h, generator=gen, dtype=torch.float64) * 0.2
    doc = torch.zeros(b, t, dtype=torch.long)
    for cut in (3, 64, 100, 190):
        doc[:, cut:] += 1
    doc[1] = 0
    grads = []
    for rule in (gated_delta, step_by_step):
        leaves = [x.float().clone().requires_grad_() if rule is gated_delta else x.clone().requires_grad_() for x in (q, k, v, beta, g)]
        out = rule(*leaves, doc)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(out.dtype)
        (out * weights).sum().backward()
        grads.append([out.detach()] + [x.grad for x in leaves])
    worst = max(((a.double() - b).norm() / b.norm()).item() for a, b in zip(*grads))
    print(f"delta rule: worst relative difference of output and gradients {worst:.1e}")
    assert worst < 1e-4


def check_quantiser():
    ramp = (torch.arange(64) * 0.5 - 16)[None]
    codes, scale, bias = encode(ramp, 4)
    words = pack(codes, 4)[0]
    assert (scale.item(), bias.item()) == (2, -16)
    assert words.tolist() == [571543808, 1144206114, 1716868420, 2289530726, 2862193032, 3434855338, 4007517644, 4294967278]
    codes, scale, bias = encode(ramp, 8)
    words = pack(codes, 8)[0]
    assert scale.item() == 0.123046875 and words[:3].tolist() == [201851904, 471340048, 757671201] and words[-1] == 4294768884
    codes, scale, bias = encode(torch.full((1, 64), 3.25), 4)
    assert abs(scale.item() + 1.0011717677116394e-07) < 1e-12 and bias.item() == 3.25 and not pack(codes, 4).any()
    for bits in (4, 8):
        codes, _, _ = encode(torch.randn(8, 256).bfloat16().float(), bits)
        assert torch.equal(unpack(pack(codes, bits), bits), codes)
    print("quantiser: MLX's fixture values reproduced")


def check_template(path, n=500):
    import jinja2

    from .dialogue import make

    def fail(message):
        raise ValueError(message)

    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda v: json.dumps(v, ensure_ascii=False)
    env.globals["raise_exception"] = fail
    template = env.from_string((path / "chat_template.jinja").read_text(encoding="utf-8"))
    rng = random.Random(11)
    for _ in range(n):
        d = make(rng)
        whole = "".join(t for t, _ in render(d.messages, d.tools))
        prompt = render_prompt(d.prompt, d.tools, d.thinking)
        assert whole == template.render(messages=d.messages, tools=d.tools)
        assert prompt == template.render(messages=d.prompt, tools=d.tools, add_generation_prompt=True, enable_thinking=d.thinking)
        assert whole.startswith(prompt)
    print(f"chat template: {n} conversations rendered alike")


def check_tokenizer(path, n=300):
    from tokenizers import Tokenizer

    from .dialogue import make

    s = Shape()
    tok = Tokenizer.from_file(str(path / "tokenizer.json"))
    for token, _ in CONTROL:
        assert tok.encode(token).ids == [s.control_id(token)]
    rng = random.Random(12)
    chars = tokens = 0
    for _ in range(n):
        d = make(rng)
        text = "".join(t for t, _ in render(d.messages, d.tools))
        ids = tok.encode(text).ids
        assert tok.decode(ids, skip_special_tokens=False) == text
        chars, tokens = chars + len(text), tokens + len(ids)
    for text in ("Caffè già 中文 👩 \t\n\n x", "a\x00b"):
        assert tok.decode(tok.encode(text).ids, skip_special_tokens=False) == text
    print(f"tokenizer: round trips, {chars / tokens:.2f} characters a token")


def check_decode():
    from .decode import Decoder

    s = Shape()
    weights = random_weights(s, 3)
    w = effective(weights, torch.float32, False)
    gen = torch.Generator().manual_seed(9)
    lengths = [70, 100, 128]
    ids = [torch.randint(0, s.vocab, (n,), generator=gen) for n in lengths]
    with torch.no_grad():
        dec = Decoder(w, s, len(ids), 128, "cpu")
        got = {}
        for step in range(128):
            token = torch.stack([x[min(step, len(x) - 1)] for x in ids])
            logits = dec.step(token)
            for row, n in enumerate(lengths):
                if step < n:
                    got.setdefault(row, []).append(logits[row].clone())
        worst = 0.0
        for row, x in enumerate(ids):
            padded = F.pad(x, (0, 128 - len(x)))
            hidden, _ = forward(w, padded[None], torch.zeros(1, 128, dtype=torch.long), s)
            whole = F.linear(hidden, w["lm_head.weight"])[0, : len(x)]
            worst = max(worst, (torch.stack(got[row]) - whole).abs().max().item())
    print(f"cached decoding: max difference {worst:.1e}")
    assert worst < 5e-4


if __name__ == "__main__":
    torch.manual_seed(0)
    model_dir = Path(sys.argv[1] if len(sys.argv) > 1 else "models/tiny")
    check_quantiser()
    check_delta()
    check_forward()
    check_decode()
    check_template(model_dir)
    check_tokenizer(model_dir)
