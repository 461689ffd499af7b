"""The prefix cache, deadlines, metrics and health, as a client sees them."""

import re
import time
import unittest

from chain_checkpoint import Chain, write_chain
from lily_server import Server, ServerCase, chat, chat_bytes, main

SYSTEM = "You are a careful assistant. " * 80
WORDS = [f" w{i}".encode() for i in range(40)]


def talk(*turns, system=SYSTEM, preserve=False, **fields):
    roles = ["user", "assistant"]
    messages = [{"role": "system", "content": system}]
    messages += [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return {"messages": messages, "temperature": 0, "max_tokens": 12, **fields,
            "chat_template_kwargs": {"enable_thinking": False, "preserve_thinking": preserve}}


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def prompt_tokens(answer):
    return answer["usage"]["prompt_tokens"]


class Cache(ServerCase):
    """Every answer has to be that of a server without a cache."""

    @classmethod
    def setUpClass(cls):
        cls.start("tiny", "--exact", "--slots", 2)
        cls.cold = Server("tiny", "--exact", "--cache-mib", 0)
        cls.addClassCleanup(cls.cold.stop)

    def ask(self, request):
        _, answer = self.server.post(request)
        _, expected = self.cold.post(request)
        self.assertEqual(answer["choices"], expected["choices"])
        self.assertEqual(cached(expected), 0)
        self.assertLess(cached(answer), prompt_tokens(answer))
        return answer

    def test_a_conversation(self):
        question = "What is 3 + 4? Tell me about one thing of a conversation."
        first = self.ask(talk(question))
        text = first["choices"][0]["message"]["content"]
        again = self.ask(talk(question))
        self.assertGreater(cached(again), prompt_tokens(first) - 128)
        second = self.ask(talk(question, text, "And what is 5 + 6?"))
        self.assertGreaterEqual(cached(second), cached(again))  # the template drops the empty think block
        kept = self.ask(talk(question, text, "And what is 5 + 6?", preserve=True))
        self.assertEqual(cached(kept), prompt_tokens(first) + first["usage"]["completion_tokens"] - 1)
        other = self.ask(talk("Something else in the same place, long enough to be told from the first one."))
        self.assertGreater(cached(other), 100)
        edited = self.ask(talk(question.replace("3", "8"), text, "And what is 5 + 6?"))
        self.assertGreater(cached(edited), 100)
        self.assertLessEqual(cached(edited), cached(second))
        self.ask(talk(question))

    def test_prompts_of_every_relation(self):
        base = "Once upon a time there was a small engine. " * 12
        for text in [base, base, base + "x", base, base[:-1], base[:-1] + "!", "x", "x", base[:200], base]:
            self.ask(talk(text))

    def test_the_billing_line_does_not_defeat_it(self):
        line = "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch={};\n"
        first = self.ask(talk("Hello there", system=line.format("eb6c6") + SYSTEM + "Be brief."))
        second = self.ask(talk("Hello there", system=line.format("0a1b2") + SYSTEM + "Be brief."))
        self.assertEqual(prompt_tokens(first), prompt_tokens(second))
        self.assertGreater(cached(second), 100)
        plain = self.ask(talk("Hello there", system=SYSTEM + "Be brief."))
        self.assertEqual(prompt_tokens(plain), prompt_tokens(first))

    def metrics(self):
        status, headers, body = self.server.request("GET", "/metrics")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        values = {}
        for line in body.decode().splitlines():
            if line.startswith("# "):
                self.assertRegex(line, r"^# (HELP|TYPE) [a-z_]+ .+$")
                continue
            found = re.fullmatch(r"([a-z_]+(?:\{[a-z]+=\"[^\"]*\"\})?) (\S+)", line)
            self.assertTrue(found, line)
            self.assertNotIn(found[1], values, "said twice")
            values[found[1]] = float(found[2])
        return values

    def test_metrics(self):
        self.ask(talk("Count me."))
        before = self.metrics()
        answer = self.ask(talk("Count me."))
        after = self.metrics()
        grown = {name: after[name] - before[name] for name in after}
        self.assertEqual(grown['lily_requests_total{reason="length"}'] + grown['lily_requests_total{reason="stop"}'], 1)
        self.assertEqual(grown["lily_generated_tokens_total"], answer["usage"]["completion_tokens"])
        self.assertEqual(grown["lily_prompt_tokens_evaluated_total"], prompt_tokens(answer) - cached(answer))
        self.assertEqual(grown["lily_prefix_cache_hit_tokens_total"], cached(answer))
        self.assertEqual(grown["lily_time_to_first_token_seconds_count"], 1)
        self.assertGreater(after["lily_prefix_cache_bytes"], 0)
        self.assertLessEqual(after["lily_prefix_cache_bytes"], after["lily_prefix_cache_budget_bytes"])
        self.assertEqual(after["lily_requests_running"], 0)

    def test_health(self):
        self.assertEqual(self.server.get("/health/live"), (200, {"status": "ok"}))
        status, ready = self.server.get("/health/ready")
        self.assertEqual((status, ready), self.server.get("/health"))
        self.assertEqual((status, ready["status"]), (200, "ok"))


class Deadlines(ServerCase):
    @classmethod
    def setUpClass(cls):
        model = write_chain(cls.folder() / "forever", Chain.forever(WORDS), context=30_000)
        cls.start(model, "--max-seq", 30_000, "--request-timeout", 60)

    def test_a_request_ends_at_its_own(self):
        for request in (chat(timeout=0.3), chat("x" * 25_000, timeout=0.05)):
            begin = time.monotonic()
            status, answer = self.server.post(request)
            self.assertEqual((status, answer["error"]["code"]), (504, "timeout"))
            self.assertLess(time.monotonic() - begin, 30)
        self.assertTrue(self.server.wait_idle())

    def test_one_that_waits_too(self):
        with self.server.connect() as running:
            running.send(chat_bytes(chat(stream=True)))
            running.read_until(b" w5")
            status, answer = self.server.post(chat(timeout=0.2))
            self.assertEqual((status, answer["error"]["code"]), (504, "timeout"))

    def test_a_stream_says_so(self):
        with self.server.connect() as client:
            client.send(chat_bytes(chat(stream=True, timeout=0.3), extra="Connection: close\r\n"))
            self.assertIn(b'"code":"timeout"', client.read_to_end()[-200:])

    def test_bad_values(self):
        for value in (0, -1, "1", 1e9):
            self.assertIn("timeout", self.refused(chat(timeout=value), "timeout"))


if __name__ == "__main__":
    main()
