#!/usr/bin/env python3
"""MLX-LM on the very bytes that lily reads: how near each is to plain f32, and to the other.

    python3 tools/parity/mlx_logits.py --lily build/release/lily [--model models/tiny] [--text FILE]

The truth is `lily --backend reference`, which transformers_logits.py holds against transformers. Fails where lily is farther
from it than MLX-LM is. Needs mlx, mlx-lm and numpy; says 'skipped' without them.
"""
import sys

try:
    import mlx.core as mx
    import mlx_lm
    import numpy as np
    from logits import comparison, divergence, lily_logits, log_softmax, text_ids
    from mlx_lm.utils import load_model
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)


def mlx_logits(folder, ids):
    model, _ = load_model(folder)
    return np.array(model(mx.array([ids]))[0].astype(mx.float32))


def main():
    parser = comparison(__doc__)
    parser.add_argument("--window", type=int, default=512)
    args = parser.parse_args()

    ids = text_ids(args.lily, args.model, args.text, args.tokens)
    windows = [ids[i:i + args.window] for i in range(0, len(ids), args.window)]
    following = np.concatenate([w[1:] for w in windows])

    def by(logits_of):
        return np.concatenate([log_softmax(logits_of(w)[:-1]) for w in windows])

    def lily(*flags):
        return by(lambda w: lily_logits(args.lily, args.model, w, *flags))

    truth = lily("--backend", "reference")
    mlx = by(lambda w: mlx_logits(args.model, w))
    ways = {f"MLX-LM {mlx_lm.__version__} ({mx.default_device()})": mlx,
            "lily cpu, exact": lily("--backend", "cpu", "--exact"), "lily cpu": lily("--backend", "cpu")}

    def perplexity(p):
        return np.exp(-p[np.arange(len(following)), following].mean())

    print(f"{args.model}: {len(following)} tokens in windows of {args.window}")
    print("| | perplexity, from f32 | KL from f32, mean | 99th percentile | top-1 as f32 | KL from MLX-LM | top-1 as MLX-LM |\n|---|---|---|---|---|---|---|")
    nearness = {}
    for name, q in ways.items():
        kl, kl_mlx = divergence(truth, q), divergence(mlx, q)
        nearness[name] = kl.mean()
        print(f"| {name} | {100 * (perplexity(q) / perplexity(truth) - 1):+.3f} % | {kl.mean():.2e} | {np.quantile(kl, 0.99):.2e} | "
              f"{100 * (truth.argmax(-1) == q.argmax(-1)).mean():.2f} % | {kl_mlx.mean():.2e} | "
              f"{100 * (mlx.argmax(-1) == q.argmax(-1)).mean():.2f} % |")
    of_mlx, *of_lily = nearness.values()
    sys.exit(0 if all(kl <= of_mlx for kl in of_lily) else 1)


if __name__ == "__main__":
    main()
