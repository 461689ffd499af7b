"""What the comparisons of logits share: ids of a text, lily's logits, and how two distributions differ."""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np


def comparison(description):
    """A parser of what every comparison is told: the program, the model and its text."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--lily", required=True)
    parser.add_argument("--model", type=Path, default=Path("models/tiny"))
    parser.add_argument("--text", type=Path, default=Path("models/tiny/heldout.txt"))
    parser.add_argument("--tokens", type=int, default=1024)
    return parser


def text_ids(lily, model, text, tokens):
    """The first `tokens` ids of the file `text`; of a model without a tokenizer, random ones."""
    if (model / "tokenizer.json").exists():
        encoded = subprocess.run([lily, "tokenize", str(model)], input=text.read_bytes(), check=True, capture_output=True)
        return [int(i) for i in encoded.stdout.replace(b",", b" ").split()][:tokens]
    vocab = json.loads((model / "config.json").read_text())["text_config"]["vocab_size"]
    return np.random.default_rng(1).integers(0, vocab, tokens).tolist()


def lily_logits(lily, folder, ids, *flags):
    with tempfile.TemporaryDirectory() as scratch:
        ids_file, out = Path(scratch, "ids.npy"), Path(scratch, "out.npy")
        np.save(ids_file, np.asarray(ids, np.int32))
        subprocess.run([lily, "logits", str(folder), "--ids-file", str(ids_file), "--out", str(out), *flags], check=True)
        return np.load(out)


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(p, q):
    """KL of each row, from log-probabilities."""
    return (np.exp(p) * (p - q)).sum(-1)
