"""The prefix cache, deadlines, metrics and health, as a client sees them."""

import itertools
import re
import threading
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

    def continue_ids(self, ids, **fields):
        """The same on the completions route: exact tokens, no template."""
        request = {"prompt": ids, "max_tokens": 6, "temperature": 0, **fields}
        (_, answer), (_, expected) = (server.post(request, "/v1/completions") for server in (self.server, self.cold))
        self.assertEqual(answer["choices"][0]["text"], expected["choices"][0]["text"], len(ids))
        self.assertLess(cached(answer), len(ids))
        return cached(answer)

    def ids(self, seed, count):
        return [256 + (seed * 7919 + i * i * 31) % 200 for i in range(count)]

    def test_suffixes_of_every_size(self):
        base = self.ids(1, 300)
        self.continue_ids(base)
        for suffix in (1, 2, 40):
            self.assertGreaterEqual(self.continue_ids(base + self.ids(9 + suffix, suffix)), 256)

    def test_the_same_a_shorter_and_another_last_token(self):
        prompt = self.ids(2, 90)
        for ids in (prompt, prompt, prompt + [300], prompt[:-1], prompt[:-1] + [301], prompt, [302], [302]):
            self.continue_ids(ids)

    def test_what_shares_too_little_starts_anew(self):
        prompt = self.ids(3, 20)
        self.continue_ids(prompt + self.ids(4, 30))
        for other in (prompt + self.ids(5, 30), prompt[:1] + self.ids(6, 49), self.ids(7, 50)):
            self.assertEqual(self.continue_ids(other), 0)

    def test_prompts_shorter_than_the_convolution(self):
        self.continue_ids(self.ids(8, 700))
        for count in range(1, 6):
            self.continue_ids(self.ids(20 + count, count))

    def test_twenty_edits_in_the_middle(self):
        """Agents shorten old tool results: what was cached behind them must be gone."""
        turns = [{"role": "user", "content": "Read the files and remember 8675309."}]
        previous = []
        for i in range(20):
            call = {"type": "function", "id": f"call_{i}", "function": {"name": "read", "arguments": {"path": f"{i}.txt"}}}
            turns += [{"role": "assistant", "content": "", "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": f"call_{i}", "content": f"line {i * 7919} of the file. " * 6}]
            if i % 2:
                turns[2 + 2 * (i * 5 % (i + 1))]["content"] = "cut"
            request = {"messages": turns, "temperature": 0, "max_tokens": 3, "chat_template_kwargs": {"enable_thinking": False}}
            answer = self.ask(request)
            tokens = self.server.post(request, "/tokenize")[1]["tokens"]
            self.assertEqual(len(tokens), prompt_tokens(answer))
            shared = max((sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(tokens, old)))
                          for old in previous), default=0)
            self.assertLessEqual(cached(answer), max(shared, 30))  # 30: what other tests' prompts begin with
            previous.append(tokens)
        self.ask({**request, "max_tokens": 40})

    def test_requests_that_join_and_leave(self):
        """Four conversations that meet in every phase; none finds a word of another."""
        names = ["ann", "bob", "cleo", "dora"]
        requests = [talk(f"I am {name}. {text}", system=f"You speak to {name}. " * 20, max_tokens=count)
                    for name, text, count in zip(names, ["hi", "What is 2 + 3?", "long " * 300, "bye"], [120, 12, 12, 40])]
        expected = [self.cold.post(request)[1]["choices"] for request in requests]
        for _ in range(3):  # cold, then from the cache
            answers = [None] * 4

            def run(i):
                answers[i] = self.server.post(requests[i])[1]["choices"]
            threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
                time.sleep(0.03)
            for thread in threads:
                thread.join()
            self.assertEqual(answers, expected)

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
