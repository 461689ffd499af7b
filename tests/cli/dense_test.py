"""A dense member of the family against transformers' float32 logits. The checkpoint is synthetic, so its seed stands for it;
tools/parity/dense_golden.py made the goldens."""

import json
import pathlib
import re
import tempfile

import lily

GOLDEN = json.loads((lily.SOURCE / "tests" / "goldens" / "small-dense.json").read_text())
# The goldens have four decimals; a mistake moves logits by 1e-2 and more.
TOLERANCE = 2e-3
BACKENDS = {"reference": ["--backend", "reference"], "cpu exact": ["--backend", "cpu", "--exact"]}


class Dense(lily.Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.lily("synth", self.folder / "model", *GOLDEN["synth"])
        lily.write_npy_ids(self.folder / "ids.npy", GOLDEN["ids"])

    def logits(self, *flags):
        out = self.folder / "logits.npy"
        self.lily("logits", self.folder / "model", "--ids-file", self.folder / "ids.npy", "--out", out, *flags)
        (rows, vocab), values = lily.read_npy(out)
        return [values[i * vocab : (i + 1) * vocab] for i in range(rows)]

    def test_logits_match_transformers(self):
        for name, flags in BACKENDS.items():
            for chunk in (1, 64):
                with self.subTest(backend=name, chunk=chunk):
                    found = self.logits("--chunk", chunk, *flags)
                    for row, expected in GOLDEN["rows"].items():
                        largest = max(abs(a - b) for a, b in zip(expected, found[int(row)]))
                        self.assertLessEqual(largest, TOLERANCE, f"row {row}")

    def test_faster_modes_choose_the_same_tokens(self):
        for backend in ("cpu", "metal-emulated"):
            if not re.search(rf"^{backend} +yes", self.lily("devices"), re.MULTILINE):
                continue  # a build without clang has no executor
            for chunk in (1, 64):
                with self.subTest(backend=backend, chunk=chunk):
                    found = self.logits("--backend", backend, "--chunk", chunk)
                    same = sum(list(row).index(max(row)) == best for row, best in zip(found, GOLDEN["argmax"]))
                    self.assertGreaterEqual(same, len(found) - 2)

    def test_it_generates_and_is_described(self):
        ids = self.lily("run", self.folder / "model", "--ids", "1,2,3", "-n", 4, "--temperature", 0, "--ignore-eos")
        self.assertEqual(len(ids.split(",")), 4)
        report = json.loads(self.lily("inspect", self.folder / "model", "--json"))
        self.assertTrue(report["loads"])
        self.assertEqual(report["experts"], 0)
        self.assertGreater(report["token_bytes"]["dense_mlps"], 0)
        self.assertIn("dense feed-forward of 384", self.lily("inspect", self.folder / "model"))


if __name__ == "__main__":
    lily.main()
