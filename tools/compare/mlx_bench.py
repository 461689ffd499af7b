"""The measurements of `lily bench` (one sequence) by MLX-LM: the same ids from the same checkpoint, the same timed region.

    python mlx_bench.py MODEL_DIR --contexts 256,512 --decode 64 --rounds 2      (needs mlx[cpu] or mlx[cuda], and mlx-lm)
"""

import pathlib
import time

import mlx.core as mx
import mlx_lm
from contract import main, vocabulary
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model


class Mlx:
    def __init__(self, model):
        self.model, _ = load_model(pathlib.Path(model))
        mx.eval(self.model.parameters())
        self.vocab = vocabulary(model)
        self.name = f"MLX-LM {mlx_lm.__version__}, mlx {mx.__version__} on {mx.default_device()}"

    def run(self, prompt, decode):
        """(seconds to the first token, seconds of each step, tokens)."""
        start = time.perf_counter()
        times, tokens = [], []
        for token, _ in generate_step(mx.array(prompt), self.model, max_tokens=decode + 1, sampler=lambda x: mx.argmax(x, axis=-1)):
            tokens.append(int(token))
            times.append(time.perf_counter())
        return times[0] - start, [b - a for a, b in zip(times, times[1:])], tokens


if __name__ == "__main__":
    main(Mlx)
