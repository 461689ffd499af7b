#!/usr/bin/env python3
"""Compares `lily quantize --rounding cpu` with mx.quantize of the mlx package on the CPU, byte for byte, in every width and group
size.

    python3 tools/parity/quantize.py --lily build/release/lily

Needs mlx (its CPU build will do) and numpy; says 'skipped' without them.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import mlx.core as mx
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cli"))
import hf_checkpoint  # noqa: E402


def mlx_bytes(tensor, bits, group_size):
    """weight, scales and biases as MLX's conversion stores them."""
    values = mx.array(np.asarray(tensor.values, np.float32).reshape(tensor.shape)).astype(mx.bfloat16)
    parts = mx.quantize(values, group_size=group_size, bits=bits, stream=mx.cpu)
    return [np.array(part.view(mx.uint8)).tobytes() for part in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lily", required=True)
    args = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "hf")
        # Every input is a multiple of 128, so that all group sizes fit.
        made = hf_checkpoint.write(source, dense=True, width=128)
        for bits in (2, 3, 4, 5, 6, 8):
            for group_size in (32, 64, 128):
                out = Path(scratch, f"{bits}-{group_size}")
                subprocess.run([args.lily, "quantize", source, out, "--rounding", "cpu", "--bits", str(bits),
                                "--group-size", str(group_size)], check=True, capture_output=True)
                found = hf_checkpoint.read(out)
                wrong = tensors = 0
                for name, tensor in made.items():
                    if len(tensor.shape) != 2:
                        continue
                    module = "language_model." + (name if name.startswith("lm_head") else "model." + name).removesuffix(".weight")
                    ours = [found[f"{module}.{part}"][2] for part in ("weight", "scales", "biases")]
                    tensors += 1
                    wrong += ours != mlx_bytes(tensor, bits, group_size)
                failed = failed or wrong > 0
                print(f"{bits} bits, groups of {group_size:3}: {tensors - wrong} of {tensors} tensors equal"
                      f"{'  FAILED' if wrong else ''}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
