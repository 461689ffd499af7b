"""Train the tiny model and write its checkpoint.

    python -m tools.tiny.train OUT_DIR [--steps N ...]

OUT_DIR already holds tokenizer.json. Runs on one GPU: bf16 matrix products, fp32 recurrence, router, norms and weights;
the last part of the run sees the weights as they will be shipped (4-bit, straight-through).
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from . import model
from .config import Shape
from .corpus import Stream
from .export import export, load
from .optimizer import Optimizer

BALANCE = 0.01


def rate(step, steps, peak, warmup):
    """Linear warm-up, then linear to 2 %."""
    return peak * min((step + 1) / warmup, max(0.02, (steps - step) / (steps - warmup)))


def head_loss(hidden, head, ids, weight):
    """Weighted cross entropy of the next token. hidden [B, T, H], ids [B, T], weight [B, T]."""
    logits = F.linear(hidden[:, :-1], head).float()
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    w = weight[:, :-1].flatten()
    right = (logits.argmax(-1).flatten() == ids[:, 1:].flatten()) & (w == 1)
    return (loss * w).sum() / w.sum(), right.sum() / (w == 1).sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--quantise-from", type=float, default=0.7, help="fraction of the run after which the weights are seen quantised")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=13)
    parser.add_argument("--stage", type=int, default=1, help="2: the second stage's mixture")
    parser.add_argument("--start", type=Path, help="checkpoint directory to go on from")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--eager", action="store_true", help="no torch.compile")
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds after which to give up (a run that was cut is not reproducible)")
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--no-export", action="store_true")
    args = parser.parse_args()

    began = time.time()
    torch.set_float32_matmul_precision("high")
    shape = Shape()
    stream = Stream(args.out / "tokenizer.json", args.seed, args.rows, args.length, args.workers, args.stage)
    first = load(args.start, shape) if args.start else model.init(shape, args.seed)
    weights = {k: v.to(args.device).requires_grad_() for k, v in first.items()}
    print(f"{sum(w.numel() for w in weights.values()) / 1e6:.2f} M parameters", flush=True)
    optimizer = Optimizer(weights, compile=not args.eager)
    compiled = (lambda f, **_: f) if args.eager else torch.compile
    blocks = tuple(compiled(b) for b in (model.recurrent_block, model.attention_block, model.moe_block))
    loss_of = compiled(head_loss)
    pin = (lambda t: t.pin_memory()) if args.device == "cuda" else (lambda t: t)

    tokens, log, last = 0, [], time.time()
    sums = torch.zeros(3, device=args.device)
    for step in range(args.steps):
        ids, doc, weight = (pin(torch.from_numpy(x)).to(args.device, non_blocking=True) for x in stream.batch())
        ids, doc, weight = ids.long(), doc.int(), weight.float()
        w = model.effective(weights, torch.bfloat16, step >= args.quantise_from * args.steps)
        hidden, balance = model.forward(w, ids, doc, shape, blocks)
        loss, right = loss_of(hidden, w["lm_head.weight"], ids, weight)
        (loss + BALANCE * balance).backward()
        grads = [p.grad for p in weights.values()]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        torch._foreach_mul_(grads, (1.0 / norm).clamp(max=1.0))
        lr = rate(step, args.steps, args.lr, args.warmup)
        optimizer.step(lr)
        optimizer.zero()
        sums += torch.stack([loss.detach(), right, balance.detach()])
        tokens += ids.numel()
        if (step + 1) % args.log_every == 0 or step + 1 == args.steps:
            torch.cuda.synchronize() if args.device == "cuda" else None
            n = args.log_every
            mean = [round(x / n, 5) for x in sums.tolist()]
            sums.zero_()
            now = time.time()
            entry = {"step": step + 1, "loss": mean[0], "right": mean[1], "balance": mean[2], "norm": round(norm.item(), 3), "lr": round(lr, 6), "tokens/s": int(n * ids.numel() / (now - last)), "s": round(now - began, 1)}
            last = now
            log.append(entry)
            print(json.dumps(entry), flush=True)
            if now - began > args.stop_after:
                print("stopped early", flush=True)
                break
    stream.close()
    if args.device == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, {tokens / 1e6:.0f} M tokens, {time.time() - began:.0f} s", flush=True)
    if not args.no_export:
        export({k: v.detach().cpu() for k, v in weights.items()}, args.out, shape)
        (args.out / "train.json").write_text(json.dumps({"arguments": {k: str(v) for k, v in vars(args).items()}, "log": log}, indent=1))


if __name__ == "__main__":
    main()
