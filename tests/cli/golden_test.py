"""Logits and greedy continuations of the reference checkpoints against their goldens (transformers, float32)."""

import json
import pathlib
import tempfile
import unittest

import lily

# The scalar implementation of the same formulas stays within 8e-5; a mistake moves logits by 1e-2 and more.
TOLERANCE = 2e-3
BACKENDS = {"reference": ["--backend", "reference"], "cpu exact": ["--backend", "cpu", "--exact"]}


class Golden:
    def logits_stay_close(self, length, chunk, backend):
        _, tokens = self.golden[f"tokens_{length}"]
        (rows, vocab), expected = self.golden[f"logits_{length}"]
        with tempfile.TemporaryDirectory() as folder:
            ids, out = pathlib.Path(folder, "ids.npy"), pathlib.Path(folder, "logits.npy")
            lily.write_npy_ids(ids, tokens)
            self.lily("logits", self.folder, "--ids-file", ids, "--out", out, "--chunk", chunk, *BACKENDS[backend])
            self.assertEqual(sorted(p.name for p in pathlib.Path(folder).iterdir()), ["ids.npy", "logits.npy"])
            shape, found = lily.read_npy(out)
        self.assertEqual(shape, (length, vocab))
        found = found[(length - rows) * vocab :]
        largest = max(abs(a - b) for a, b in zip(expected, found))
        self.assertLessEqual(largest, TOLERANCE, f"length {length}, chunk {chunk}, {backend}")

    def test_logits(self):
        for backend in BACKENDS:
            for length in (1, 5, 63, 64, 65):
                for chunk in (1, 7, 64):
                    with self.subTest(backend=backend, length=length, chunk=chunk):
                        self.logits_stay_close(length, chunk, backend)

    def test_greedy(self):
        margins = {g["prompt"]: g["min_margin"] for g in self.margins["greedy"]}
        for backend, flags in BACKENDS.items():
            for length, margin in margins.items():
                with self.subTest(backend=backend, length=length):
                    _, tokens = self.golden[f"tokens_{length}"]
                    _, expected = self.golden[f"greedy_{length}"]
                    out = self.lily("run", self.folder, "--ids", ",".join(map(str, tokens)), "-n", len(expected),
                                    "--temperature", 0, "--ignore-eos", *flags)
                    found = [int(i) for i in out.split(",")]
                    if margin < 1e-4:  # a tie within the error of any float32 path
                        self.skipTest(f"{self.name}: the goldens' smallest margin is {margin}")
                    self.assertEqual(found, list(expected))

    def test_eval_matches_the_goldens(self):
        """Perplexity from the golden logits themselves, and no distance between the two exact backends."""
        import math

        _, tokens = self.golden["tokens_200"]
        (rows, vocab), logits = self.golden["logits_200"]
        self.assertEqual(rows, len(tokens))
        nll = 0.0
        for i in range(rows - 1):
            row = logits[i * vocab : (i + 1) * vocab]
            top = max(row)
            nll += top + math.log(sum(math.exp(l - top) for l in row)) - row[tokens[i + 1]]
        nll /= rows - 1
        with tempfile.TemporaryDirectory() as folder:
            ids = pathlib.Path(folder, "ids.npy")
            lily.write_npy_ids(ids, tokens)
            report = json.loads(self.lily("eval", self.folder, "--ids-file", ids, "--context", 200, "--json",
                                          "--backend", "cpu", "--exact", "--against", "reference"))
        self.assertEqual((report["tokens"], report["windows"], report["scored"]), (200, 1, 199))
        self.assertAlmostEqual(report["nll"], nll, delta=1e-3)
        self.assertAlmostEqual(report["perplexity"], math.exp(nll), delta=1e-3 * math.exp(nll))
        self.assertLess(report["against"]["kl_max"], 1e-5)
        self.assertGreaterEqual(report["against"]["top1_agreement"], 0.99)


def golden_case(name):
    """The tests of one reference folder."""
    folder = lily.REFERENCE / name
    present = (folder / "golden.safetensors").is_file()

    @unittest.skipUnless(present, f"SKIPPED: no reference checkpoint at {folder}")
    class GoldenCase(Golden, lily.Case):
        @classmethod
        def setUpClass(cls):
            cls.folder = folder
            cls.name = name
            cls.golden = lily.SafeTensors(folder / "golden.safetensors")
            cls.margins = json.loads((folder / "golden.json").read_text())

    GoldenCase.__qualname__ = GoldenCase.__name__ = f"Golden_{name}"
    return GoldenCase


Small = golden_case("small")
Wide = golden_case("wide")

if __name__ == "__main__":
    lily.main()
