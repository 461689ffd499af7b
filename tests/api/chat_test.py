"""What a chat answer holds, whole and streamed, with models that say exactly what the test wants."""

import json

from chain_checkpoint import Chain, write_chain
from lily_server import ServerCase, chat, finish_of, joined, main, text_of

EMOJI = "😀".encode()
FAMILY = "👨‍👩‍👧".encode()
COLOURS = [b"red", b" blue", b" gre", b"en", b" gold"]


class Script(ServerCase):
    """A server whose model says `content`, after `reasoning` when thinking is on."""

    content = COLOURS
    reasoning = []
    flags = []
    checkpoint = {}

    @classmethod
    def setUpClass(cls):
        chain = Chain.answer(cls.content, cls.reasoning)
        cls.start(write_chain(cls.folder() / "script", chain, **cls.checkpoint), *cls.flags)

    def say(self, thinking=False, **fields):
        return self.both(chat(thinking=thinking, **fields))

    def finish(self, answer):
        return answer["choices"][0]["finish_reason"]


class StopStrings(Script):
    def cut(self, *stop):
        answer = self.say(stop=list(stop))
        return text_of(answer), self.finish(answer), answer["usage"]["completion_tokens"]

    def test_over_token_borders(self):
        self.assertEqual(self.cut("blue green"), ("red ", "stop", 4))
        self.assertEqual(self.cut("e gre"), ("red blu", "stop", 3))
        self.assertEqual(self.cut("en g"), ("red blue gre", "stop", 5))
        self.assertEqual(self.cut("red"), ("", "stop", 1))

    def test_the_first_match_counts(self):
        self.assertEqual(self.cut("green gold", "blue")[0], "red ")
        self.assertEqual(self.cut("lue gree", "e g")[0], "red blu", "the one that ends first")

    def test_a_partial_match_is_released(self):
        self.assertEqual(self.cut("gold!"), ("red blue green gold", "stop", 6))
        self.assertEqual(self.cut("zzzzzzzzzz"), ("red blue green gold", "stop", 6))

    def test_a_string_alone(self):
        self.assertEqual(text_of(self.say(stop=" gold")), "red blue green")


class OverlappingStop(Script):
    content = [b"a", b"aa", b"b", b"c"]

    def test_the_match_begins_as_early_as_it_can(self):
        answer = self.say(stop=["aab"])
        self.assertEqual(text_of(answer), "a")


class Reasoning(Script):
    reasoning = [b"Let me see. ", b"Step", b" 1", b": add.", b" Fine."]
    content = [b"The steps. ", b"S", b"tep 1", b": two", b" and ", b"two."]

    def test_is_split_from_the_content(self):
        answer = self.say(thinking=True)
        self.assertEqual(text_of(answer, "reasoning_content"), "Let me see. Step 1: add. Fine.")
        self.assertEqual(text_of(answer, "reasoning"), text_of(answer, "reasoning_content"))
        self.assertEqual(text_of(answer), "The steps. Step 1: two and two.")
        usage = answer["usage"]
        self.assertEqual(usage["completion_tokens_details"]["reasoning_tokens"], 6)
        self.assertEqual(usage["completion_tokens"], 6 + 1 + 6 + 1)

    def test_thinking_is_on_unless_it_is_switched_off(self):
        self.assertEqual(self.say(thinking=None)["choices"], self.say(thinking=True)["choices"])
        self.assertNotIn("reasoning_content", self.say(thinking=False)["choices"][0]["message"])

    def test_stop_strings_leave_the_reasoning_alone(self):
        answer = self.say(thinking=True, stop=["Step 1:"])
        self.assertEqual(text_of(answer, "reasoning_content"), "Let me see. Step 1: add. Fine.")
        self.assertEqual(text_of(answer), "The steps. ")
        self.assertEqual(self.finish(answer), "stop")

    def test_a_stop_string_that_never_comes_changes_nothing(self):
        with_stop, without = self.say(thinking=True, stop=["zzzzzzzzzz"]), self.say(thinking=True)
        self.assertEqual(with_stop["choices"], without["choices"])
        self.assertEqual(with_stop["usage"], without["usage"])

    def test_cut_while_thinking_is_all_reasoning(self):
        answer = self.say(thinking=True, max_tokens=3)
        self.assertEqual(text_of(answer, "reasoning_content"), "Let me see. Step 1")
        self.assertEqual(text_of(answer), "")
        self.assertEqual(self.finish(answer), "length")
        self.assertEqual(answer["usage"]["completion_tokens"], 3)

    def test_only_the_exact_boolean_switches_thinking_off(self):
        for value in (None, 0, "false"):
            answer = self.both(chat(thinking=None, chat_template_kwargs={"enable_thinking": value, "other": 1}))
            self.assertIn("reasoning_content", answer["choices"][0]["message"], value)


class SpelledTag(Script):
    reasoning = [b"say ", b"<", b"/", b"think", b">", b" not"]
    content = [b"Done."]

    def test_the_boundary_is_the_token(self):
        answer = self.say(thinking=True)
        self.assertEqual(text_of(answer, "reasoning_content"), "say </think> not")
        self.assertEqual(text_of(answer), "Done.")


class StrayOpener(Script):
    content = [b"The answer.", "<think>"]

    def test_does_not_cost_the_answer(self):
        answer = self.say()
        self.assertEqual(text_of(answer), "The answer.")
        self.assertEqual(self.finish(answer), "stop")


class Limits(Script):
    def test_the_limit_is_the_finish_reason(self):
        for limit in (1, 3, 5):  # 5: the answer's length, the end of the turn would come next
            answer = self.say(max_tokens=limit)
            self.assertEqual(self.finish(answer), "length", limit)
            self.assertEqual(answer["usage"]["completion_tokens"], limit)
            self.assertEqual(text_of(answer), b"".join(COLOURS[:limit]).decode())
        answer = self.say(max_tokens=6)
        self.assertEqual((self.finish(answer), answer["usage"]["completion_tokens"]), ("stop", 6))

    def test_both_names_of_the_limit(self):
        self.assertEqual(self.say(max_completion_tokens=2)["usage"]["completion_tokens"], 2)
        self.assertEqual(self.say(max_completion_tokens=2, max_tokens=4)["usage"]["completion_tokens"], 2)
        self.assertEqual(self.say(max_completion_tokens=4, max_tokens=2)["usage"]["completion_tokens"], 2)
        self.assertEqual(self.say(max_tokens=2.0)["usage"]["completion_tokens"], 2)
        self.assertEqual(self.finish(self.say(max_tokens=10**12)), "stop")
        for value in (0, -1, "5", 1.5):
            self.refused(chat(max_tokens=value), "max_tokens")
            self.refused(chat(max_completion_tokens=value), "max_completion_tokens")

    def test_usage_comes_once_and_when_asked(self):
        request = chat(thinking=False)
        _, whole = self.server.post(request)
        for options in (None, {}, {"include_usage": False}):
            events = self.server.stream({**request, "stream_options": options})
            self.assertFalse([event for event in events if "usage" in event], options)
        events = self.server.stream({**request, "stream_options": {"include_usage": True}})
        self.assertEqual([event.get("usage") for event in events[:-1]], [None] * (len(events) - 1))
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"], whole["usage"])
        self.assertEqual(whole["usage"]["total_tokens"],
                         whole["usage"]["prompt_tokens"] + whole["usage"]["completion_tokens"])
        self.assertEqual(self.server.post({**request, "stream_options": {"include_usage": True}})[0], 200)


class Fields(Script):
    reasoning = [b"Hm."]

    def nulls(self, value, path=""):
        if value is None:
            return [path]
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return [null for key, inner in items for null in self.nulls(inner, f"{path}.{key}")]

    def test_absent_is_absent(self):
        for thinking in (True, False):
            answer = self.say(thinking=thinking)
            self.assertEqual(self.nulls(answer), [])
            self.assertNotIn("tool_calls", answer["choices"][0]["message"])
            for event in self.server.stream(chat(thinking=thinking))[:-1]:
                self.assertEqual(self.nulls(event), [".choices.0.finish_reason"])

    def test_the_stream_keeps_its_identity_and_order(self):
        events = self.server.stream(chat(thinking=True))
        self.assertEqual(len({(event["id"], event["created"], event["model"]) for event in events}), 1)
        self.assertTrue(events[0]["id"].startswith("chatcmpl-"))
        deltas = [event["choices"][0]["delta"] for event in events]
        self.assertEqual(deltas[0], {"role": "assistant"})
        self.assertEqual(deltas[-1], {})
        self.assertFalse([delta for delta in deltas[1:] if "role" in delta])
        kinds = ["reasoning_content" in delta for delta in deltas[1:-1]]
        self.assertEqual(kinds, sorted(kinds, reverse=True), "reasoning first, then content")

    def test_unknown_fields_are_ignored(self):
        plain = self.say()
        extra = self.say(store=True, metadata={"a": "b"}, service_tier="x", parallel_tool_calls=True,
                         reasoning_effort="low", foo=[1, {"bar": None}], user="me")
        self.assertEqual(plain["choices"], extra["choices"])
        message = {"role": "user", "content": "hi", "name": "n", "id": "1", "refusal": None, "annotations": [],
                   "audio": None}
        answer = self.both({**chat(thinking=False), "messages": [message]})
        self.assertEqual(answer["usage"], plain["usage"])

    def test_more_than_one_choice_is_refused(self):
        self.refused(chat(n=2), "n")
        self.both(chat(tools=[], response_format={"type": "text"}, n=1, tool_choice="auto", thinking=False))

    def test_wrong_types_name_the_field(self):
        for field in ("temperature", "top_p", "max_tokens", "stream", "logprobs", "stop", "logit_bias", "seed"):
            message = self.refused(chat(**{field: {"a": [1]}}), field)
            self.assertIn(field, message)
        self.refused({"messages": "hi"}, "messages")
        self.refused({}, "messages")


class Conversations(Script):
    def prompt_tokens(self, *messages, **fields):
        answer = self.both({**chat(thinking=False, max_tokens=1, **fields), "messages": list(messages)})
        return answer["usage"]["prompt_tokens"]

    def turn(self, role, content, **fields):
        return {"role": role, "content": content, **fields}

    def test_parts_are_the_string_they_make(self):
        for role in ("user", "system", "assistant", "tool"):
            others = [self.turn("user", "q")] if role != "system" else []
            tail = [self.turn("user", "q")] if role == "system" else []
            parts = [{"type": "text", "text": "A "}, {"type": "text", "text": " B"}]
            self.assertEqual(self.prompt_tokens(*others, self.turn(role, parts), *tail),
                             self.prompt_tokens(*others, self.turn(role, "A  B"), *tail), role)
            self.assertEqual(self.prompt_tokens(*others, self.turn(role, []), *tail),
                             self.prompt_tokens(*others, self.turn(role, ""), *tail), role)

    def test_other_content_names_the_part(self):
        for content, param in (([{"type": "input_audio", "input_audio": {}}], "messages[0].content[0].type"),
                               ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}],
                                "messages[0].content[1].type"),
                               (5, "messages[0].content"), ({"text": "x"}, "messages[0].content")):
            self.refused({"messages": [self.turn("user", content)]}, param)

    def test_orders_the_template_refuses(self):
        user, system = self.turn("user", "q"), self.turn("system", "s")
        wrapped = self.turn("user", "<tool_response>\n1\n</tool_response>")
        assistant = self.turn("assistant", "a", reasoning_content="R1")
        for stream in (True, False):
            for messages in ([user, system, user], [system, system, user], [system], [system, assistant], [wrapped],
                             [self.turn("wizard", "w"), user], [user, self.turn("function", "w")]):
                self.refused({"messages": messages, "stream": stream}, "messages")
            self.assertIn("1", self.refused({"messages": [user, system], "stream": stream}, "messages"))
        self.assertGreater(self.prompt_tokens(user, assistant, wrapped), self.prompt_tokens(user, wrapped) + 10)

    def test_developer_is_system(self):
        self.assertEqual(self.prompt_tokens(self.turn("developer", "s"), self.turn("user", "q")),
                         self.prompt_tokens(self.turn("system", "s"), self.turn("user", "q")))

    def test_reasoning_of_earlier_turns(self):
        def tokens(kwargs, **reasoning):
            history = [self.turn("user", "q"), self.turn("assistant", "ok", **reasoning), self.turn("user", "n")]
            request = {"messages": history, "max_tokens": 1, "chat_template_kwargs": kwargs}
            return self.both(request)["usage"]["prompt_tokens"]

        bare = tokens({})
        self.assertEqual(tokens({}, reasoning_content="R1"), bare)
        self.assertEqual(tokens({"preserve_thinking": "true"}, reasoning_content="R1"), bare)
        kept = tokens({"preserve_thinking": True}, reasoning_content="R1")
        self.assertGreater(kept, bare)
        self.assertEqual(tokens({"preserve_thinking": True}, reasoning="R1"), kept)

    def test_broken_arguments_do_not_cost_the_conversation(self):
        for arguments in ("{", '{"path": "a', '{"a":1}}', '{"a":1}{"b":2}', '{"a": [1, "é"]}', {"a": 1}, "", None):
            call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
            history = [self.turn("user", "q"), self.turn("assistant", None, tool_calls=[call]), self.turn("user", "n")]
            self.prompt_tokens(*history)
            self.prompt_tokens(*history[:2], self.turn("tool", "21", tool_call_id="1"))


class Unicode(Script):
    reasoning = [EMOJI[:2], EMOJI[2:], " ".encode() + "ď".encode()[:1], "ď".encode()[1:]]
    content = [EMOJI[:1], EMOJI[1:], b"\xf0\x9f\x91", b"\xa8", b"\xe2\x80", b"\x8d\xf0\x9f\x91\xa9", b"\xe2\x80\x8d\xf0",
               b"\x9f\x91\xa7", *(bytes([byte]) for byte in "漢字".encode())]

    def test_characters_are_never_split(self):
        answer = self.say(thinking=True)
        self.assertEqual(text_of(answer, "reasoning_content"), "😀 ď")
        self.assertEqual(text_of(answer), "😀" + FAMILY.decode() + "漢字")
        for event in self.server.stream(chat(thinking=True)):
            self.assertNotIn("\ufffd", json.dumps(event, ensure_ascii=False))

    def test_a_limit_inside_a_character(self):
        for thinking, limit in ((False, 1), (True, 1), (True, 3), (False, 3)):
            for stop in (None, ["zzz"]):
                answer = self.say(thinking=thinking, max_tokens=limit, stop=stop)
                self.assertEqual(self.finish(answer), "length")
                self.assertEqual(answer["usage"]["completion_tokens"], limit)
        self.assertEqual(self.server.get("/health")[0], 200)

    def test_logprobs_keep_the_bytes(self):
        request = chat(thinking=False, logprobs=True, top_logprobs=2)
        answer = self.both(request)
        entries = answer["choices"][0]["logprobs"]["content"]
        self.assertEqual(b"".join(bytes(entry["bytes"]) for entry in entries).decode(), text_of(answer))
        self.assertEqual(len(entries), answer["usage"]["completion_tokens"] - 1, "all but the end of the turn")
        streamed = [entry for event in self.server.stream(request)
                    for entry in event["choices"][0].get("logprobs", {}).get("content", [])]
        self.assertEqual(streamed, entries)


class StopIds(ServerCase):
    def test_the_end_of_the_turn_ends_it_whatever_the_files_say(self):
        chain = Chain.answer(COLOURS).follow("<|im_end|>", b"more")
        for i, (eos, generation) in enumerate(((["<|endoftext|>"], None), (["<|endoftext|>"], {}),
                                               (["<|endoftext|>", "<|im_end|>"], {}),
                                               (["<|endoftext|>"], {"eos_token_id": "<|endoftext|>"}))):
            type(self).start(write_chain(self.folder() / str(i), chain, eos=eos, generation=generation))
            answer = self.both(chat(thinking=False))
            self.assertEqual(text_of(answer), "red blue green gold")
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")


class Context(Script):
    checkpoint = {"context": 256}

    def fill(self, tokens, **fields):
        """A request of that many prompt tokens."""
        empty = self.server.post(chat("a", thinking=False, max_tokens=1))[1]["usage"]["prompt_tokens"]
        return chat("a" * (tokens - empty + 1), thinking=False, **fields)

    def test_over_the_context_names_both_numbers(self):
        for tokens in (257, 300, 2560):
            for stream in (False, True):
                status, answer = self.server.post(self.fill(tokens, stream=stream))
                self.assertEqual(status, 400, answer)
                self.assertEqual(answer["error"]["code"], "context_length_exceeded")
                self.assertIn(str(tokens), answer["error"]["message"])
                self.assertIn("256", answer["error"]["message"])
        self.assertEqual(text_of(self.say()), "red blue green gold")

    def test_what_fits_is_generated(self):
        answer = self.both(self.fill(254, max_tokens=100))
        self.assertEqual(answer["usage"]["prompt_tokens"], 254)
        self.assertEqual(self.finish(answer), "length")
        self.assertGreaterEqual(answer["usage"]["completion_tokens"], 1)
        self.assertLessEqual(answer["usage"]["total_tokens"], 257)
        self.assertEqual(self.finish(self.both(self.fill(256, max_tokens=100))), "length")
        self.assertEqual(text_of(self.say()), "red blue green gold")


class Sampling(ServerCase):
    """A flat model: what comes out is the sampler's doing."""

    @classmethod
    def setUpClass(cls):
        words = [f" w{i}".encode() for i in range(40)]
        chain = Chain.forever(words, thinking=False)
        cls.model = write_chain(cls.folder() / "flat", chain, certainty=0.0625)
        cls.start(cls.model)

    def sample(self, **fields):
        fields = {"max_tokens": 40, "temperature": 1, "top_k": 0, "top_p": 1, **fields}
        status, answer = self.server.post(chat(thinking=False, **fields))
        self.assertEqual(status, 200, answer)
        return text_of(answer)

    def greedy(self):
        return self.sample(temperature=0)

    def test_a_seed_decides(self):
        self.assertEqual(self.sample(seed=7), self.sample(seed=7))
        self.assertGreater(len({self.sample(seed=seed) for seed in (1, 2, 3)}), 1)
        self.assertGreater(len({self.sample() for _ in range(5)}), 1)
        self.assertGreater(len({self.sample(seed=None) for _ in range(5)}), 1)
        for seed in (0, -1, 2**63 - 1):
            self.assertEqual(self.sample(seed=seed), self.sample(seed=seed))
        for seed in (2**64, 2**63, "7", 1.5, True):
            self.refused(chat(seed=seed), "seed")

    def test_a_seed_outlives_the_server(self):
        before = self.sample(seed=7)
        type(self).start(self.model)
        self.assertEqual(self.sample(seed=7), before)

    def test_edges(self):
        self.assertEqual(self.sample(top_p=0), self.greedy())
        self.assertEqual(self.sample(top_p=1e-9), self.greedy())
        self.assertEqual(self.sample(top_k=1), self.greedy())
        self.assertEqual(self.sample(min_p=1), self.greedy())
        off = self.sample(seed=5)
        for top_k in (0, -1, 10**9):
            self.assertEqual(self.sample(seed=5, top_k=top_k), off, top_k)
        for field, values in {"top_p": (1.5, -0.1), "top_k": (-2, 1.5), "min_p": (-0.1, 1.1), "temperature": (-1, 3),
                              "repetition_penalty": (0, -1), "presence_penalty": (3,),
                              "frequency_penalty": (-3,)}.items():
            for value in values:
                self.refused(chat(**{field: value}), field)

    def test_logprobs_are_log_probabilities(self):
        _, answer = self.server.post(chat(thinking=False, temperature=0, max_tokens=20, logprobs=True, top_logprobs=5))
        entries = answer["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(entries), 20)
        for entry in entries:
            top = [other["logprob"] for other in entry["top_logprobs"]]
            self.assertEqual(len(top), 5)
            self.assertEqual(top, sorted(top, reverse=True))
            self.assertLessEqual(top[0], 0)
            self.assertEqual(entry["token"], entry["top_logprobs"][0]["token"])
            self.assertEqual(entry["logprob"], top[0])
        self.refused(chat(top_logprobs=5), "top_logprobs")
        self.refused(chat(logprobs=True, top_logprobs=21), "top_logprobs")

    def test_logit_bias(self):
        self.assertEqual(self.sample(temperature=0, max_tokens=1), " w0")
        self.assertEqual(self.sample(temperature=0, max_tokens=1, logit_bias={str(ord("Z")): 100}), "Z")
        self.assertNotIn("Z", self.sample(temperature=1, max_tokens=40, logit_bias={str(ord("Z")): -100}))
        self.refused(chat(logit_bias={"100000": 1}), "logit_bias")

    def test_penalties_reach_far_back(self):
        # The next word has logit 1, Z is lifted to 0.75: a penalty on a word seen 40 tokens ago lets Z win.
        def repeats(**fields):
            text = self.sample(temperature=0, max_tokens=60, logit_bias={str(ord("Z")): 0.75}, **fields)
            self.assertTrue(text.startswith(" w0 w1 w2"), text)
            return " w39 w0" in text

        self.assertTrue(repeats())
        for fields in ({"frequency_penalty": 1}, {"presence_penalty": 1}, {"repetition_penalty": 2}):
            self.assertFalse(repeats(**fields), fields)
        self.assertTrue(repeats(repetition_penalty=2, repetition_context_size=20))


class Defaults(ServerCase):
    def test_come_from_the_checkpoint(self):
        words = [f" w{i}".encode() for i in range(40)]
        greedy = {"do_sample": False}
        narrow = {"do_sample": True, "temperature": 1.0, "top_p": 0.95, "top_k": 1}
        for i, generation in enumerate((greedy, narrow)):
            chain = Chain.forever(words, thinking=False)
            type(self).start(write_chain(self.folder() / str(i), chain, certainty=0.0625, generation=generation))
            status, answer = self.server.post(chat(thinking=False, max_tokens=4))
            self.assertEqual((status, text_of(answer)), (200, " w0 w1 w2 w3"))


if __name__ == "__main__":
    main()
