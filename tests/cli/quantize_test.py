"""lily quantize: every tensor byte for byte as MLX's rule gives it, and what is refused."""

import json
import pathlib
import tempfile

import hf_checkpoint
import lily

ZERO_CENTRED = ("input_layernorm.weight", "post_attention_layernorm.weight", "q_norm.weight", "k_norm.weight")
PREFIX = "language_model.model."


class Quantize(lily.Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source, self.out = self.folder / "hf", self.folder / "mlx"

    def expect_matrix(self, found, module, values, spec, rounding):
        weight, scales, biases = hf_checkpoint.quantize(values, *spec, rounding)
        self.assertEqual(found.pop(module + ".weight")[2], weight, module)
        self.assertEqual(found.pop(module + ".scales")[2], scales, module)
        self.assertEqual(found.pop(module + ".biases")[2], biases, module)

    def expect_converted(self, made, rounding="metal", spec=(4, 64), overrides={}):
        """All of `made` in self.out and nothing else."""
        found = hf_checkpoint.read(self.out)
        for name, tensor in made.items():
            name = name if name.startswith("lm_head") else "model." + name
            module = "language_model." + name.removesuffix(".weight")
            if module.endswith(("mlp.gate", "mlp.shared_expert_gate")):
                self.expect_matrix(found, module, tensor.values, (8, 64), rounding)
            elif name.endswith("experts.gate_up_proj"):
                half = 64 * 64
                for part, offset in (("gate_proj", 0), ("up_proj", half)):
                    rows = [v for e in range(3) for v in tensor.values[e * 2 * half + offset :][:half]]
                    self.expect_matrix(found, module.replace("experts.gate_up_proj", "switch_mlp." + part), rows, spec, rounding)
            elif name.endswith("experts.down_proj"):
                self.expect_matrix(found, module.replace("experts", "switch_mlp"), tensor.values, spec, rounding)
            elif len(tensor.shape) == 1 or "conv1d" in name:
                one = 1.0 if name.endswith(ZERO_CENTRED) or name == "model.norm.weight" else 0.0
                expected = hf_checkpoint.Tensor(tensor.shape, [v + one for v in tensor.values]).bf16()
                dtype, shape, body = found.pop("language_model." + name)
                self.assertEqual((dtype, body), ("BF16", expected), name)
                self.assertEqual(shape, [384, 4, 1] if "conv1d" in name else tensor.shape)
            else:
                self.expect_matrix(found, module, tensor.values, overrides.get(module, spec), rounding)
        self.assertEqual(list(found), [])

    def test_a_mixture_of_experts_in_both_roundings(self):
        made = hf_checkpoint.write(self.source)
        for rounding in ("metal", "cpu"):
            self.out = self.folder / rounding
            said = self.lily("quantize", self.source, self.out, "--rounding", rounding)
            self.assertIn("4 bits in groups of 64", said)
            self.expect_converted(made, rounding)
            self.assertIn("loads", self.lily("inspect", self.out))
            ids = self.lily("run", self.out, "--ids", "1,2,3", "-n", 3, "--temperature", 0, "--ignore-eos")
            self.assertEqual(len(ids.split(",")), 3)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["cpu", "hf", "metal"])
        self.assertEqual(sorted(p.name for p in self.out.iterdir()),
                         ["config.json", "generation_config.json", "model-00001-of-00001.safetensors",
                          "model.safetensors.index.json"])

    def test_every_width(self):
        made = hf_checkpoint.write(self.source, dense=True, tied=True)
        for bits, group_size in ((2, 32), (3, 64), (5, 32), (6, 64), (8, 32)):
            self.out = self.folder / f"{bits}-{group_size}"
            self.lily("quantize", self.source, self.out, "--bits", bits, "--group-size", group_size)
            self.expect_converted(made, spec=(bits, group_size))
            self.lily("inspect", self.out)

    def test_rules(self):
        made = hf_checkpoint.write(self.source, dense=True)
        self.lily("quantize", self.source, self.out, "--rules", "self_attn.*_proj=5,layers.[1-9].*down_proj=6:32,lm_head=8")
        overrides = {PREFIX + f"layers.1.self_attn.{p}_proj": (5, 64) for p in "qkvo"}
        overrides |= {PREFIX + "layers.1.mlp.down_proj": (6, 32), "language_model.lm_head": (8, 64)}
        self.expect_converted(made, overrides=overrides)
        block = json.loads((self.out / "config.json").read_text())["quantization"]
        self.assertEqual((block.pop("bits"), block.pop("group_size"), block.pop("mode")), (4, 64, "affine"))
        self.assertEqual(block, {m: {"group_size": g, "bits": b} for m, (b, g) in overrides.items()})
        self.assertIn("loads", self.lily("inspect", self.out))

    def test_experts_as_tensors_of_their_own(self):
        fused = hf_checkpoint.write(self.source)
        hf_checkpoint.write(self.folder / "apart", separate_experts=True, prefix="model.")
        self.lily("quantize", self.folder / "apart", self.out)
        self.expect_converted(fused)

    def test_what_is_no_original_is_refused(self):
        hf_checkpoint.write(self.source)
        self.lily("quantize", self.source, self.out)
        self.fails("quantize", self.out, self.folder / "x", code=1, says=["mlx", "quantization: expected none"])
        self.fails("quantize", self.source, self.out, code=2, says="expected a new directory")
        self.fails("quantize", code=2, says="lily quantize HF_DIR OUT")
        self.fails("quantize", self.source, self.folder / "x", "--rules", "a=7", code=2, says=["'a=7'", "found '7'"])
        self.fails("quantize", self.source, self.folder / "x", "--rules", "a", code=2, says="PATTERN=BITS")
        self.assertFalse((self.folder / "x").exists())

    def test_damaged_originals(self):
        def lacks(stored):
            del stored["model.language_model.layers.1.self_attn.v_proj.weight"]

        def misshapen(stored):
            stored["model.language_model.layers.0.mlp.experts.down_proj"].shape = [3, 32, 128]

        def more(stored):
            stored["model.language_model.layers.0.mystery"] = hf_checkpoint.Tensor([1], [0.0])

        def not_finite(stored):
            stored["model.language_model.embed_tokens.weight"].values[64 * 5] = float("inf")

        def converted(stored):
            stored["model.language_model.layers.0.linear_attn.conv1d.weight"].shape = [384, 4, 1]

        for edit, says in ((lacks, ["layers.1.self_attn.v_proj.weight", "no such tensor"]),
                           (misshapen, ["experts.down_proj", "expected shape [3, 64, 64]", "[3, 32, 128]"]),
                           (more, ["no place for", "layers.0.mystery"]),
                           (not_finite, ["embed_tokens", "row 5", "not finite"]),
                           (converted, ["conv1d", "converted checkpoint"])):
            source = self.folder / edit.__name__
            hf_checkpoint.write(source, edit=edit)
            self.fails("quantize", source, self.out, code=1, says=says)
            self.assertFalse(self.out.exists())


if __name__ == "__main__":
    lily.main()
