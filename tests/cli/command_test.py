"""Every command but chat end to end on the embedded model; errors, exit codes, files."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request
import xml.etree.ElementTree

import lily

HELLO = "Hello! Grüße, 世界 😀\n\tdef f(x):\n    return x\n"


class Folder(lily.Case):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)

    def files(self):
        return sorted(p.name for p in self.folder.iterdir())


class Program(lily.Case):
    def test_help_and_version(self):
        self.assertIn("lily COMMAND", self.lily("--help"))
        self.assertRegex(self.lily("--version"), r"^lily \d+\.\d+\.\d+( \([0-9a-z-]+\))?\n$")
        self.assertIn("--temperature", self.lily("run", "--help"))

    def test_errors_are_one_line_and_exit_codes_tell_them_apart(self):
        self.fails(code=2, says="expected a command")
        self.fails("frobnicate", code=2, says="unknown command 'frobnicate'")
        self.fails("run", "-p", "x", "--frob", code=2, says="unknown flag --frob")
        self.fails("run", "-p", "x", "--threads", "many", code=2, says=["--threads", "found 'many'"])
        self.fails("run", "/no/such/model", "-p", "x", code=1, says="/no/such/model")
        self.fails("run", "-p", "x", "--backend", "cuda", code=1, says="cuda")
        self.fails("run", "-p", "x", "--max-seq", "999999999", code=2, says=["max-seq", "999999999"])

    def test_a_model_folder_without_files_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for command in (["run", folder, "--ids", "1"], ["serve", folder, "--port", "0"], ["chat", folder],
                            ["bench", folder], ["logits", folder, "--ids", "1", "--out", folder + "/x.npy"]):
                self.fails(*command, code=1, says=folder)
            self.assertEqual(os.listdir(folder), [])

    def test_a_full_disk_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("SKIPPED: no /dev/full")
        for command in (["tokenize", "-p", "x"], ["run", "-p", "x", "-n", "2"], ["devices"], ["--help"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([lily.LILY, *command], stdin=subprocess.DEVNULL, stdout=full,
                                      stderr=subprocess.PIPE, text=True, check=False, timeout=60)
            self.assertEqual((done.returncode, done.stderr),
                             (1, "lily: stdout: cannot write: No space left on device\n"), command)


class Tokens(Folder):
    def test_text_survives_the_round_trip(self):
        for text in (HELLO, "", "a", "<|im_end|>", "\r\n \n"):
            ids = self.lily("tokenize", stdin=text)
            self.assertEqual(self.lily("detokenize", stdin=ids), text)
            self.assertEqual(self.lily("tokenize", "-p", text), ids)

    def test_json_holds_the_pieces(self):
        report = json.loads(self.lily("tokenize", "-p", "Hello, world!", "--json"))
        self.assertEqual(report["count"], len(report["ids"]))
        self.assertEqual("".join(report["pieces"]), "Hello, world!")

    def test_literal_keeps_control_strings_as_text(self):
        control = self.lily("tokenize", "-p", "<|im_end|>").strip().split(",")
        literal = self.lily("tokenize", "-p", "<|im_end|>", "--literal").strip().split(",")
        self.assertEqual(len(control), 1)
        self.assertGreater(len(literal), 1)
        self.assertEqual(self.lily("detokenize", "--ids", ",".join(literal)), "<|im_end|>")

    def test_bytes_that_are_not_utf8_become_replacement_characters(self):
        ids = self.lily("tokenize", stdin=b"a\xffb")
        self.assertEqual(self.lily("detokenize", stdin=ids), "a\ufffdb")

    def test_ids_files(self):
        out = self.folder / "ids.npy"
        self.assertEqual(self.lily("tokenize", "-p", HELLO, "--out", out), "")
        shape, ids = lily.read_npy(out)
        self.assertEqual(",".join(map(str, ids)) + "\n", self.lily("tokenize", "-p", HELLO))
        self.assertEqual(shape, (len(ids),))
        self.assertEqual(self.lily("detokenize", "--ids-file", out), HELLO)
        self.assertEqual(self.files(), ["ids.npy"])

    def test_errors(self):
        self.fails("detokenize", code=2, says="stdin: expected token ids like 1,2,3, found 'one'", stdin="one")
        self.fails("detokenize", "--ids", "1,999999", code=2, says="token id 999999 at item 2")
        self.fails("detokenize", "--ids-file", "/no/such/file.npy", code=1, says="/no/such/file.npy")
        self.fails("tokenize", "-p", "x", "--out", "/no/such/folder/x.npy", code=1, says="/no/such/folder/x.npy")


class Run(Folder):
    FLAGS = ["--temperature", "0", "-n", "12"]

    def test_the_ways_to_give_a_prompt_agree(self):
        ids = self.lily("tokenize", "-p", HELLO).strip()
        raw = self.lily("run", "-p", HELLO, "--raw", "--print-ids", *self.FLAGS)
        self.assertEqual(self.lily("run", "--ids", ids, "--print-ids", *self.FLAGS), raw)
        self.assertEqual(self.lily("run", "-p", "-", "--raw", "--print-ids", *self.FLAGS, stdin=HELLO), raw)
        lily.write_npy_ids(self.folder / "ids.npy", [int(i) for i in ids.split(",")])
        self.assertEqual(self.lily("run", "--ids-file", self.folder / "ids.npy", "--print-ids", *self.FLAGS), raw)

    def test_text_and_ids_are_the_same_answer(self):
        report = json.loads(self.lily("run", "-p", "What is 2 + 3?", "--json", *self.FLAGS))
        self.assertEqual(report["finish_reason"], "length" if len(report["ids"]) == 12 else "stop")
        self.assertEqual(self.lily("run", "-p", "What is 2 + 3?", *self.FLAGS), report["text"] + "\n")
        ids = self.lily("run", "-p", "What is 2 + 3?", "--print-ids", *self.FLAGS)
        self.assertEqual(ids, ",".join(map(str, report["ids"])) + "\n")

    def test_the_chat_format_is_the_templates(self):
        prompt = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        for think, tail in ([], "<think>\n\n</think>\n\n"), (["--think"], "<think>\n"):
            chat = json.loads(self.lily("run", "-p", "Hi", "--system", "Be brief.", "--json", *think, *self.FLAGS))
            raw = json.loads(self.lily("run", "-p", prompt + tail, "--raw", "--json", *self.FLAGS))
            self.assertEqual(chat["ids"], raw["ids"])
            self.assertEqual(chat["prompt_tokens"], raw["prompt_tokens"])

    def test_seeds(self):
        def sample(*seed):
            return self.lily("run", "-p", "Tell me a story.", "-n", "24", "--temperature", "50", "--top-k", "0",
                             "--top-p", "1", "--print-ids", "--ignore-eos", *seed)

        self.assertEqual(sample("--seed", "7"), sample("--seed", "7"))
        self.assertGreater(len({sample("--seed", str(s)) for s in range(4)}), 1)

    def test_chunks_and_threads_do_not_change_a_greedy_answer(self):
        text = "Tell me something about lilies. " * 12
        ids = {self.lily("run", "-p", text, "--print-ids", *self.FLAGS, "--backend", "cpu", *more)
               for more in ([], ["--threads", "1"], ["--chunk", "64"])}
        self.assertEqual(len(ids), 1)

    def test_where_pages_and_threads_are_does_not_change_a_greedy_answer(self):
        ids = {self.lily("run", "-p", HELLO, "--print-ids", *self.FLAGS, "--backend", "cpu", *more)
               for more in ([], ["--prefault"], ["--pin", "--threads", "2"])}
        self.assertEqual(len(ids), 1)

    def test_errors(self):
        self.fails("run", "-p", "x", "--kv-type", "q3", code=2, says=["--kv-type", "q3"])
        self.fails("run", "-p", "x", "--kv-type", "q8", "--backend", "reference", code=1, says="K and V in f32")
        self.fails("run", code=2, says="expected one of -p TEXT")
        self.fails("run", "-p", "x", "--ids", "1", code=2, says="found several")
        self.fails("run", "--ids", "1", "--think", code=2, says="--think")
        self.fails("run", "-p", "x", "--raw", "--system", "y", code=2, says="--raw")
        self.fails("run", "--ids", "999999", code=2, says="token id 999999")
        self.fails("run", "-p", "", "--raw", code=2, says="the prompt is empty")
        self.fails("run", "-p", "word " * 300, "--max-seq", "64", code=2, says=["the prompt has", "the context holds 64"])

    def test_ctrl_c_ends_it_with_130(self):
        process = subprocess.Popen([lily.LILY, "run", "-p", "x", "--ignore-eos", "--backend", "reference"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        self.assertEqual((process.returncode, stderr), (130, "lily: interrupted\n"))


class Logits(Folder):
    def test_chunks_agree_and_the_last_row_is_what_run_samples(self):
        ids = self.lily("tokenize", "-p", HELLO * 4).strip()
        rows = {}
        for chunk in ("1", "7", "64", "0"):
            out = self.folder / f"{chunk}.npy"
            self.lily("logits", "--ids", ids, "--out", out, "--chunk", chunk, "--backend", "reference")
            shape, rows[chunk] = lily.read_npy(out)
            self.assertEqual(shape, (len(ids.split(",")), 2048))
        for chunk in ("7", "64", "0"):
            self.assertLess(max(abs(a - b) for a, b in zip(rows["1"], rows[chunk])), 2e-3)
        last = rows["0"][-2048:]
        token = self.lily("run", "--ids", ids, "-n", "1", "--temperature", "0", "--print-ids", "--ignore-eos",
                          "--backend", "reference")
        self.assertEqual(int(token), max(range(2048), key=lambda i: last[i]))

    def test_nothing_is_left_behind_by_a_failure(self):
        out = self.folder / "x.npy"
        self.fails("logits", "--ids", "1,999999", "--out", out, code=2, says="token id 999999 at item 2")
        self.fails("logits", "--out", out, code=2, says="--ids")
        self.fails("logits", "--ids", "1", code=2, says="--out")
        self.fails("logits", "--ids", "1", "--out", self.folder, code=2, says="directory")
        self.assertEqual(self.files(), [])

    def test_a_full_disk_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("SKIPPED: no /dev/full")
        self.fails("logits", "--ids", "1,2", "--out", "/dev/full", code=1, says="/dev/full: cannot write: No space left")


class Eval(Folder):
    TEXT = (HELLO + "The lily is a flower. It grows in the garden near the water.\n") * 4

    def evaluate(self, *flags):
        path = self.folder / "text"
        path.write_text(self.TEXT)
        return json.loads(self.lily("eval", "--text", path, "--json", *flags))

    def test_every_token_but_a_windows_first_is_scored(self):
        count = json.loads(self.lily("tokenize", "-p", self.TEXT, "--json"))["count"]
        whole = self.evaluate()
        self.assertEqual((whole["tokens"], whole["windows"], whole["scored"]), (count, 1, count - 1))
        cut = self.evaluate("--context", "50")
        windows = -(-count // 50)
        self.assertEqual((cut["windows"], cut["scored"]), (windows, count - windows))
        self.assertGreater(cut["nll_standard_error"], 0)

    def test_chunks_do_not_matter_and_a_backend_is_no_distance_from_itself(self):
        whole = self.evaluate("--backend", "reference", "--against", "reference", "--context", "64")
        self.assertEqual(whole["against"]["kl_max"], 0)
        self.assertEqual(whole["against"]["top1_agreement"], 1)
        self.assertEqual(whole["against"]["first_disagreement"], -1)
        self.assertEqual(whole["against"]["perplexity"], whole["perplexity"])
        chunked = self.evaluate("--backend", "reference", "--chunk", "16", "--context", "64")
        self.assertAlmostEqual(chunked["nll"], whole["nll"], delta=1e-5)

    def test_exact_and_integer_activations_are_near(self):
        report = self.evaluate("--backend", "cpu", "--against", "cpu:exact")
        self.assertGreater(report["against"]["kl_mean"], 0)
        self.assertLess(report["against"]["kl_mean"], 0.05)

    def test_eight_bit_keys_and_values_are_near_the_others(self):
        report = self.evaluate("--backend", "cpu", "--kv-type", "q8", "--against", "cpu")
        self.assertIn("q8 K/V", report["backend"])
        self.assertIn("bf16 K/V", report["against"]["backend"])
        self.assertGreater(report["against"]["kl_mean"], 0)
        self.assertLess(report["against"]["kl_mean"], 0.01)

    def test_prompts_are_texts_of_their_own_that_the_other_side_continues(self):
        path = self.folder / "p.jsonl"
        path.write_text('{"text": "Hello there"}\n\n{"text": "1 + 2 ="}\n', encoding="utf-8")
        counts = [json.loads(self.lily("tokenize", "-p", text, "--json"))["count"] for text in ("Hello there", "1 + 2 =")]
        flags = ("eval", "--prompts", path, "--backend", "cpu", "--json")
        report = json.loads(self.lily(*flags, "--against", "reference", "--continue", "5"))
        self.assertEqual((report["tokens"], report["windows"], report["scored"]), (sum(counts), 2, sum(counts) - 2))
        continued = report["against"]["continuation"]
        self.assertEqual((continued["prompts"], continued["tokens"]), (2, 10))
        self.assertGreater(continued["kl_mean"], 0)
        self.assertLess(continued["kl_mean"], 0.05)
        self.assertNotIn("continuation", json.loads(self.lily(*flags, "--against", "reference", "--continue", "0"))["against"])
        path.write_text('{"text": "Hello"}\n{"prompt": "x"}\n')
        self.fails(*flags, code=2, says=["p.jsonl: line 2", '{"text": "..."}'])
        path.write_text("\n")
        self.fails(*flags, code=2, says="at least one prompt")
        self.fails("eval", "--text", path, "--against", "http://127.0.0.1:9", code=2, says="at least 2 tokens, found 1")

    def test_the_shipped_prompts_are_read(self):
        report = json.loads(self.lily("eval", "--prompts", lily.SOURCE / "bench" / "prompts.jsonl", "--json"))
        self.assertGreaterEqual(report["windows"], 16)

    def test_the_text_report_has_the_same_numbers(self):
        report = self.evaluate("--backend", "reference")
        text = self.lily("eval", "--text", self.folder / "text", "--backend", "reference")
        self.assertIn(f"{report['perplexity']:.4f}", text)

    def test_errors(self):
        self.fails("eval", code=2, says="--text F")
        self.fails("eval", "--text", "/no/such/text", code=1, says="/no/such/text")
        self.fails("eval", "--text", "-", code=2, says="at least 2 tokens, found 0")
        self.fails("eval", "--text", "-", "--against", "cpu:fast", code=2, says="cpu:fast", stdin=HELLO)
        self.fails("eval", "--text", "-", "--against", "warp", code=2, says="warp", stdin=HELLO)


class Bench(Folder):
    def test_table_json_and_csv_agree(self):
        table = self.lily("bench", "--contexts", "33,8", "--decode", "3", "--rounds", "2", "--json",
                          self.folder / "b.json", "--csv", self.folder / "b.csv")
        report = json.loads((self.folder / "b.json").read_text())
        lines = (self.folder / "b.csv").read_text().splitlines()
        self.assertEqual(len(lines), 3)
        self.assertEqual([(row["cached"], row["prompt"], row["streams"]) for row in report["rows"]], [(0, 33, 1), (0, 8, 1)])
        for row in report["rows"]:
            self.assertEqual(len(row["runs"]), 2)
            self.assertEqual(len(row["tokens"]), 4)
            for run in row["runs"]:
                self.assertEqual(len(run["step_seconds"]), 3)
            self.assertIn(f"{row['decode_tokens_per_second']:.2f}", table)
            self.assertIn(f"0,{row['prompt']},1,{row['prefill_tokens_per_second']}"[:14], "\n".join(lines))
        self.assertGreater(report["bandwidth_bytes_per_second"], 0)
        peak = report["arithmetic_multiplies_per_second"]
        self.assertGreater(peak, 0)
        columns = lines[0].split(",")
        for row, line, shown in zip(report["rows"], lines[1:], table.splitlines()[-2:]):
            rate = row["multiplies_per_token"] * row["prefill_tokens_per_second"]
            self.assertAlmostEqual(row["multiplies_per_second"] / rate, 1)
            values = dict(zip(columns, line.split(",")))
            self.assertAlmostEqual(float(values["multiplies_per_s"]) / rate, 1)
            self.assertAlmostEqual(float(values["arithmetic_multiplies_per_s"]) / peak, 1)
            self.assertIn(f" {100 * rate / peak:.0f} % ", shown)
        self.assertGreater(report["planned_bytes"], 0)
        self.assertGreaterEqual(report["resident_bytes"], report["mapped_file_bytes"])
        self.assertGreaterEqual(report["peak_bytes"], report["resident_bytes"])
        self.assertGreater(report["load_seconds"], 0)
        refused = [row["refused"] for row in report["rows"] if row["refused"]]  # the machine may be busy
        self.assertEqual(table.count("refused: "), len(refused))
        for reason in refused:
            self.assertIn(f"refused: {reason}", table)

    def test_warm_turns_and_streams_are_rows_too(self):
        self.lily("bench", "--contexts", "40", "--warm", "8,16", "--warm-context", "32", "--streams", "1,3",
                  "--stream-context", "12", "--decode", "3", "--rounds", "1", "--json", self.folder / "b.json",
                  "--markdown", self.folder / "b.md", "--svg", self.folder / "b.svg")
        rows = json.loads((self.folder / "b.json").read_text())["rows"]
        self.assertEqual([(row["cached"], row["prompt"], row["streams"]) for row in rows],
                         [(0, 40, 1), (32, 8, 1), (32, 16, 1), (0, 12, 1), (0, 12, 3)])
        self.assertEqual(rows[1]["tokens"][0], json.loads(self.first_token_of(40))[0])
        self.assertEqual([len(row["tokens"]) for row in rows], [4, 4, 4, 4, 12])
        table = (self.folder / "b.md").read_text().splitlines()
        self.assertEqual(sum(line.startswith("| ") and line[2].isdigit() for line in table), 5)
        plot = xml.etree.ElementTree.parse(self.folder / "b.svg").getroot()
        self.assertEqual(len(plot.findall("{http://www.w3.org/2000/svg}circle")), 4)

    def first_token_of(self, length):
        """As JSON, what greedy decoding gives first behind the synthetic prompt."""
        prompt = ",".join(str((i * 2654435761) % 2**32 % 2048) for i in range(length))
        return "[" + self.lily("run", "--ids", prompt, "-n", "1", "--temperature", "0", "--ignore-eos", "--print-ids") + "]"

    def test_the_tokens_are_those_of_run(self):
        self.lily("bench", "--contexts", "16", "--decode", "4", "--rounds", "1", "--json", self.folder / "b.json")
        row = json.loads((self.folder / "b.json").read_text())["rows"][0]
        prompt = ",".join(str((i * 2654435761) % 2**32 % 2048) for i in range(16))
        ids = self.lily("run", "--ids", prompt, "-n", "5", "--temperature", "0", "--ignore-eos", "--print-ids")
        self.assertEqual(row["tokens"], [int(i) for i in ids.split(",")])

    def test_errors(self):
        self.fails("bench", "--contexts", "0", code=2, says="--contexts")
        self.fails("bench", "--contexts", "9999999", code=2, says="9999999")


class Completion(Folder):
    def setUp(self):
        super().setUp()
        self.commands = [line.split()[0] for line in self.lily("--help").splitlines() if line.startswith("  ")]

    def test_every_command_and_flag_is_in_all_of_them(self):
        texts = {kind: self.lily("completion", kind) for kind in ("bash", "zsh", "fish", "man")}
        self.assertGreater(len(self.commands), 12)
        for command in self.commands:
            for kind, text in texts.items():
                self.assertIn(command, text, kind)
            for name in re.findall(r"(?m)^  (?:-.,|   ) --([a-z-]+)", self.lily(command, "--help")):
                self.assertIn("--" + name, texts["bash"])
                self.assertIn("--" + name, texts["zsh"])
                self.assertIn(f"-l {name} ", texts["fish"])
                self.assertIn("\\-\\-" + name.replace("-", "\\-"), texts["man"])

    def complete(self, *words):
        (self.folder / "lily.bash").write_text(self.lily("completion", "bash"))
        script = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lily; echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", script, self.folder / "lily.bash", *words], capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_completes_commands_flags_and_choices(self):
        self.assertEqual(self.complete("lily", "ev"), ["eval"])
        self.assertEqual(sorted(self.complete("lily", "")), sorted([*self.commands, "--help", "--version"]))
        self.assertEqual(self.complete("lily", "run", "--top-"), ["--top-p", "--top-k"])
        self.assertIn("metal-emulated", self.complete("lily", "run", "--backend", ""))
        self.assertEqual(self.complete("lily", "bench", "--json", str(self.folder / "lily.b")), [str(self.folder / "lily.bash")])
        self.assertEqual(self.complete("lily", "run", "--json", "--see"), ["--seed"])

    def test_what_else_there_is_to_say(self):
        self.fails("completion", code=2, says="bash|zsh|fish|man")
        self.fails("completion", "tcsh", code=2, says="tcsh")
        if shutil.which("man"):
            (self.folder / "lily.1").write_text(self.lily("completion", "man"))
            done = subprocess.run(["man", "--warnings", "-l", self.folder / "lily.1"], capture_output=True, text=True, check=True,
                                  env={**os.environ, "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
            self.assertEqual(done.stderr, "")


class Config(Folder):
    def config(self, text, *flags):
        path = self.folder / "lily.conf"
        path.write_text(text)
        lines = self.lily("serve", "--config", path, *flags, "--print-config").splitlines()
        return dict(line.split(" = ") for line in lines if line and not line.startswith("#"))

    def test_the_command_line_counts_more(self):
        text = "# a server\n\nport = 77\n  exact=true \nalias = a,b\nmodel = /m\n"
        found = self.config(text, "--port", "78")
        self.assertEqual((found["port"], found["exact"], found["alias"], found["model"]), ("78", "true", "a,b", "/m"))
        self.assertEqual(self.config("exact = false")["exact"], "false")
        self.assertEqual(self.config(text, "tiny")["model"], "tiny")

    def test_what_is_printed_is_read_back(self):
        printed = self.lily("serve", "--slots", "3", "--pin", "--print-config", "--alias", "x")
        (self.folder / "again.conf").write_text(printed)
        self.assertEqual(self.lily("serve", "--config", self.folder / "again.conf", "--print-config"), printed)

    def test_errors_name_the_line(self):
        path = self.folder / "bad.conf"
        for text, says in (("\nport = x", ["line 2", "--port", "'x'"]), ("prt = 1", ["line 1", "'prt'"]), ("port", ["name = value"]),
                           ("exact = yes", ["true or false"]), ("temperature = 1", ["a flag of 'lily serve'"])):
            path.write_text(text)
            self.fails("serve", "--config", path, code=2, says=[str(path), *says])
        self.fails("serve", "--config", "/no/such.conf", code=1, says="/no/such.conf")


class Ablate(Folder):
    def test_every_optimisation_of_the_backend_and_of_the_engine_is_measured(self):
        table = self.lily("ablate", "--backend", "cpu", "--contexts", "70,8", "--decode", "2", "--rounds", "1", "--threads", "2",
                          "--json", self.folder / "a.json", "--markdown", self.folder / "a.md")
        report = json.loads((self.folder / "a.json").read_text())
        self.assertEqual([context["context"] for context in report["contexts"]], [70, 8])
        for context in report["contexts"]:
            names = [row["without"] for row in context["ablations"]]
            for name in ("integer-activations", "threads", "bf16-kv", "prompt-rows", "prefill"):
                self.assertIn(name, names)
            for row in context["ablations"]:
                self.assertIn(f"{row['prefill_factor']:.2f}x", table)
                self.assertAlmostEqual(row["decode_factor"] * row["decode_tokens_per_second"],
                                       context["decode_tokens_per_second"], delta=0.01 * context["decode_tokens_per_second"])
            lines = (self.folder / "a.md").read_text().splitlines()
            self.assertEqual(sum("| threads |" in line for line in lines), 2)
        # A prompt read token by token reads the weights once a token.
        slow = {row["without"]: row["prefill_factor"] for row in report["contexts"][0]["ablations"]}
        self.assertGreater(slow["prefill"], 1)

    def test_only_those_asked_for_are_measured(self):
        self.lily("ablate", "--backend", "cpu", "--contexts", "4", "--decode", "1", "--rounds", "1", "--without", "prefill,bf16-kv",
                  "--json", self.folder / "a.json")
        rows = json.loads((self.folder / "a.json").read_text())["contexts"][0]["ablations"]
        self.assertEqual([row["without"] for row in rows], ["prefill", "bf16-kv"])
        self.fails("ablate", "--backend", "cpu", "--contexts", "4", "--decode", "1", "--rounds", "1", "--without", "magic",
                   code=2, says=["magic", "prefill"])

    def test_the_reference_has_the_engines_alone(self):
        self.lily("ablate", "--backend", "reference", "--contexts", "4", "--decode", "1", "--rounds", "1", "--json", self.folder / "a.json")
        rows = json.loads((self.folder / "a.json").read_text())["contexts"][0]["ablations"]
        self.assertEqual([row["without"] for row in rows], ["prompt-rows", "prefill"])


class Synth(Folder):
    def test_a_synthetic_checkpoint_runs(self):
        out = self.folder / "model"
        self.assertIn("small", self.lily("synth", out, "--preset", "small", "--seed", "3"))
        self.assertIn("loads", self.lily("inspect", out))
        ids = self.lily("run", out, "--ids", "1,2,3", "-n", "4", "--temperature", "0", "--ignore-eos")
        self.assertEqual(len(ids.split(",")), 4)
        self.fails("run", out, "-p", "x", code=1, says="tokenizer.json")
        self.fails("chat", out, code=1, says="tokenizer.json")
        self.fails("synth", out, "--preset", "small", code=2, says=str(out))
        self.assertEqual(self.files(), ["model"])

    def test_a_checkpoint_cut_short_while_it_runs_ends_the_program(self):
        out = self.folder / "model"
        self.lily("synth", out, "--preset", "small")
        # In a sanitizer's build the signal is the sanitizer's, unless it is told to leave it.
        env = dict(os.environ)
        for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"):
            env[name] = ":".join(filter(None, (env.get(name), "handle_sigbus=0")))
        process = subprocess.Popen([lily.LILY, "run", out, "--ids", "1", "-n", "100000", "--ignore-eos"], env=env,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertTrue(process.stdout.read(1))
        for shard in out.glob("*.safetensors"):
            os.truncate(shard, 0)
        _, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(stderr, r"^lily: [^\n]*\.safetensors: cut short while it was in use\n$")

    def test_a_folder_may_be_called_anything(self):
        out = os.fsencode(self.folder / "model") + b"\xff \xc3\xa4"
        self.lily("synth", os.fsdecode(out), "--preset", "small")
        ids = json.loads(self.lily("run", os.fsdecode(out), "--ids", "1", "-n", "2", "--json"))
        self.assertEqual(ids["model"], "model\ufffd ä")

    def test_errors(self):
        self.fails("synth", code=2, says="lily synth OUT")
        self.fails("synth", self.folder / "x", "--preset", "huge", code=2, says=["huge", "qwen3.6-35b-a3b"])
        self.assertEqual(self.files(), [])


class Inspect(Folder):
    def test_text_and_json(self):
        report = json.loads(self.lily("inspect", "--json"))
        self.assertEqual((report["model"], report["loads"], report["problems"]), ("tiny", True, []))
        self.assertGreater(report["token_bytes"]["total"], 0)
        self.assertIn("loads", self.lily("inspect"))
        eight = json.loads(self.lily("inspect", "--json", "--kv-type", "q8"))
        self.assertEqual((report["kv_type"], eight["kv_type"]), ("bf16", "q8"))
        self.assertEqual(eight["kv_bytes_per_token"] * 512, report["kv_bytes_per_token"] * 272)

    def test_verify(self):
        out = self.folder / "model"
        self.lily("synth", out, "--preset", "small")
        self.assertIn("nothing to compare digests with", self.lily("inspect", out, "--verify"))
        files = sorted(p for p in out.iterdir())
        sums = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)
        (out / "SHA256SUMS").write_text(sums)
        report = json.loads(self.lily("inspect", out, "--verify", "--json"))
        self.assertEqual((report["verified"]["files"], report["verified"]["against"]), (len(files), "SHA256SUMS"))
        self.assertNotIn("verified", json.loads(self.lily("inspect", out, "--json")))

        shard = next(out.glob("*.safetensors"))
        body = bytearray(shard.read_bytes())
        body[-1] ^= 1
        shard.write_bytes(body)
        done = lily.run("inspect", out, "--verify")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{shard.name}: expected SHA-256", done.stdout)
        self.assertIn("1 file is not what SHA256SUMS says", done.stderr)

        other = self.folder / "other"
        other.write_text(sums.replace(shard.name, "missing.safetensors"))
        done = lily.run("inspect", out, "--checksums", other)
        self.assertEqual((done.returncode, "missing.safetensors: listed, and missing" in done.stdout), (1, True))
        other.write_text("not a digest\n")
        self.fails("inspect", out, "--checksums", other, code=1, says=["line 1", "64 hexadecimal digits"])
        self.fails("inspect", out, "--checksums", self.folder / "none", code=1, says="cannot open")
        self.fails("inspect", "tiny", "--verify", code=2, says="expected a checkpoint directory")

        (out / "SHA256SUMS").unlink()
        index = out / "model.safetensors.index.json"
        index.write_text(index.read_text().replace('"total_size": ', '"total_size": 1'))
        done = lily.run("inspect", out, "--verify")
        self.assertEqual((done.returncode, "total_size: 1" in done.stdout), (1, True))

    def test_a_damaged_checkpoint_is_reported_whole(self):
        out = self.folder / "model"
        self.lily("synth", out, "--preset", "small")
        shard = next(out.glob("*.safetensors"))
        shard.write_bytes(shard.read_bytes()[:-5])
        done = lily.run("inspect", out, "--json")
        self.assertEqual(done.returncode, 1)
        report = json.loads(done.stdout)
        self.assertFalse(report["loads"])
        self.assertIn(shard.name, " ".join(report["problems"]))
        self.assertEqual(len(done.stderr.splitlines()), 1)


class Devices(lily.Case):
    def test_every_backend_is_listed_with_a_reason(self):
        report = json.loads(self.lily("devices", "--json"))
        states = {b["name"]: b for b in report["backends"]}
        self.assertEqual(set(states), {"cpu", "cuda", "metal", "metal-emulated", "reference"})
        self.assertTrue(states["reference"]["works"] and states["cpu"]["works"])
        for state in states.values():
            self.assertTrue(state["detail"])
            self.assertIn(state["detail"], self.lily("devices"))


class Selftest(lily.Case):
    def test_the_cpu_agrees_with_the_reference(self):
        report = self.lily("selftest", "--backend", "cpu", "--exact")
        self.assertEqual(report.count("\nok "), 3, report)
        self.assertNotIn("FAILED", report)
        self.assertIn("backend  cpu (", report)


class Serve(lily.Case):
    def start(self, *flags):
        process = subprocess.Popen([lily.LILY, "serve", *flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_says_where_it_listens_answers_and_leaves_on_sigterm(self):
        process = self.start("--port", "0")
        line = process.stdout.readline()
        self.assertRegex(line, r"^listening on http://127\.0\.0\.1:\d+\n$")
        url = line.split()[-1]
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "temperature": 0}
        request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            self.assertEqual(json.load(reply)["object"], "chat.completion")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0)

    def test_a_port_in_use_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.fails("serve", "--port", port, code=1, says=str(port))


if __name__ == "__main__":
    lily.main()
