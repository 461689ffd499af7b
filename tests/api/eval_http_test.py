"""lily eval --against URL: our own server, and servers that do not answer as they should."""

import json
import pathlib
import subprocess

from bench_http_test import StubCase
from lily_server import LILY, Server, main

PROMPTS = pathlib.Path(__file__).resolve().parents[2] / "bench" / "prompts.jsonl"
FLAGS = ("--prompts", PROMPTS, "--continue", "6", "--backend", "cpu")


def evaluate(url, *flags):
    command = [LILY, "eval", *map(str, flags or FLAGS), "--json", "--against", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


class EvalHttp(StubCase):
    def test_a_server_of_the_same_backend_agrees(self):
        with Server("tiny", "--backend", "cpu") as server:
            done = evaluate(f"http://127.0.0.1:{server.port}")
        self.assertEqual(done.returncode, 0, done.stderr)
        against = json.loads(done.stdout)["against"]
        self.assertEqual(against["model"], "tiny")
        continued = against["continuation"]
        self.assertEqual(continued["prompts"], 16)
        self.assertGreater(continued["tokens"], 48)
        self.assertEqual((continued["top1_agreement"], continued["diverged_at"]), (1, []))
        self.assertLess(continued["kl_99th"], 1e-4)

    def test_both_forms_of_log_probabilities_are_read(self):
        entry = {"token": "Hello", "logprob": -0.5, "top_logprobs": [{"token": "Hello", "logprob": -0.5}, {"token": "!", "logprob": -1.5}]}
        legacy = {"tokens": ["Hello"], "token_logprobs": [-0.5], "top_logprobs": [{"Hello": -0.5, "!": -1.5}]}
        reports = []
        for logprobs in ({"content": [entry]}, legacy):
            done = evaluate(self.stub(completion=self.answer(logprobs)), *self.one_prompt())
            self.assertEqual(done.returncode, 0, done.stderr)
            reports.append(json.loads(done.stdout)["against"]["continuation"])
            self.assertEqual(reports[-1]["tokens"], 1)
        self.assertEqual(reports[0], reports[1])

    def one_prompt(self):
        """Flags for one short prompt, of `tokens` tokens."""
        text = "Hello, who are you?"
        path = self.folder() / "p.jsonl"
        path.write_text(json.dumps({"text": text}))
        done = subprocess.run([LILY, "tokenize", "-p", text, "--json"], capture_output=True, check=True)
        self.tokens = json.loads(done.stdout)["count"]
        return "--prompts", path, "--continue", "1", "--backend", "cpu"

    def answer(self, logprobs):
        self.one_prompt()
        return {"choices": [{"text": "Hello", "logprobs": logprobs}], "usage": {"prompt_tokens": self.tokens}}

    def test_servers_that_do_not_answer_as_they_should(self):
        flags = self.one_prompt()
        self.fails(evaluate(self.stub(status=500), *flags), "HTTP 500")
        self.fails(evaluate(self.stub(completion={"choices": [], "usage": {"prompt_tokens": self.tokens + 1}}), *flags), "not the same model")
        self.fails(evaluate(self.stub(completion=self.answer(None)), *flags), "expected log-probabilities")
        self.fails(evaluate("http://127.0.0.1:9", *flags), "127.0.0.1:9/v1/models")
        done = evaluate("http://127.0.0.1:9", "--text", PROMPTS)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a server is asked to continue --prompts", done.stderr)


if __name__ == "__main__":
    main()
