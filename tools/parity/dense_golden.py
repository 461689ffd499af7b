#!/usr/bin/env python3
"""Writes the golden logits of a synthetic dense checkpoint, which its seed determines, as transformers computes them.

    python3 tools/parity/dense_golden.py --lily build/release/lily > tests/goldens/small-dense.json
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from transformers_logits import reference_logits

SYNTH = ["--preset", "small-dense", "--seed", "5", "--bits", "6", "--group-size", "32"]
ROWS = [0, 3, 63, 64, 69]  # both sides of a prefill chunk's end
COLUMNS = 96


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lily", required=True)
    args = parser.parse_args()
    ids = np.random.default_rng(7).integers(0, 1024, 70).tolist()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.lily, "synth", f"{folder}/m", *SYNTH], check=True, capture_output=True)
        logits = reference_logits(Path(folder, "m"), ids)
    rows = {str(row): [round(float(v), 4) for v in logits[row, :COLUMNS]] for row in ROWS}
    print(json.dumps({"synth": SYNTH, "ids": ids, "argmax": logits.argmax(-1).tolist(), "rows": rows}))


if __name__ == "__main__":
    main()
