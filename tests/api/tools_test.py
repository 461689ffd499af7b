"""Tool calls end to end: offered, called, streamed, answered. The embedded model calls tools."""

import json

from chain_checkpoint import Chain, write_chain
from lily_server import ServerCase, chat, finish_of, main


def tool(name="get_weather", description="Get the weather", **properties):
    properties = properties or {"city": {"type": "string"}}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def calls_of(answer):
    """[(name, arguments)] of a whole answer, ids checked."""
    calls = answer["choices"][0]["message"].get("tool_calls", [])
    ids = [call["id"] for call in calls]
    assert all(id.startswith("call_") for id in ids) and len(set(ids)) == len(ids), ids
    assert all(call["type"] == "function" for call in calls), calls
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def streamed_calls(events):
    """The same of a stream: id, type and name in a call's first part alone, indexes counted up."""
    calls = []
    for event in events:
        for part in event["choices"][0]["delta"].get("tool_calls", []) if event["choices"] else []:
            if "id" in part:
                assert part["index"] == len(calls) and part["type"] == "function", part
                calls.append([part["function"]["name"], ""])
            else:
                assert set(part) == {"index", "function"} and set(part["function"]) == {"arguments"}, part
                assert part["index"] == len(calls) - 1, part
            calls[-1][1] += part["function"]["arguments"]
    return [tuple(call) for call in calls]


class ToolCase(ServerCase):
    def call(self, request):
        """The answer, whole; the stream says the same. Its calls as (name, parsed arguments)."""
        answer = self.both(request)
        events = self.server.stream(request)
        self.assertEqual(streamed_calls(events), calls_of(answer))
        self.assertNotIn("<tool_call>", json.dumps([e["choices"][0]["delta"].get("content") for e in events]))
        return answer, [(name, json.loads(arguments)) for name, arguments in calls_of(answer)]


class Calls(ToolCase):
    """The embedded model."""

    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    def ask(self, text, thinking=False, **fields):
        return self.call(chat(text, thinking=thinking, **{"tools": [tool()], "temperature": 0, **fields}))

    def test_one_call(self):
        for thinking in (False, True):
            answer, calls = self.ask("What is the weather in Paris?", thinking)
            self.assertEqual(calls, [("get_weather", {"city": "Paris"})])
            choice = answer["choices"][0]
            self.assertEqual(choice["finish_reason"], "tool_calls")
            self.assertIsNone(choice["message"]["content"])
            self.assertEqual("reasoning_content" in choice["message"], thinking)

    def test_several_calls(self):
        _, calls = self.ask("What is the weather in Paris and in Oslo?")
        self.assertEqual(calls, [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Oslo"})])
        _, calls = self.ask("What is the weather in Paris and in Oslo?", parallel_tool_calls=False)
        self.assertEqual(calls, [("get_weather", {"city": "Paris"})])

    def test_arguments_grow(self):
        events = self.server.stream(chat("What is the weather in Paris?", thinking=False, tools=[tool()],
                                         temperature=0))
        parts = [part for event in events for part in event["choices"][0]["delta"].get("tool_calls", [])]
        self.assertGreater(len(parts), 4, "in one piece")

    def test_none_is_none(self):
        for fields in ({"tool_choice": "none"}, {"tools": []}, {"tools": None}):
            answer, calls = self.ask("What is the weather in Paris?", **fields)
            self.assertEqual(calls, [])
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
            self.assertNotIn("tool_calls", answer["choices"][0]["message"])

    def test_the_result_is_answered(self):
        request = chat("What is the weather in Paris?", thinking=False, tools=[tool()], temperature=0)
        answer, _ = self.call(request)
        message = answer["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "rain, 7 degrees"}
        request["messages"] += [message, result]
        final, calls = self.call(request)
        self.assertEqual(calls, [])
        self.assertIn("7", final["choices"][0]["message"]["content"])

    def test_cut_off_calls_are_json_and_say_so(self):
        whole, _ = self.ask("What is the weather in Paris?")
        total = whole["usage"]["completion_tokens"]
        seen = set()
        for limit in range(1, total):
            answer, calls = self.ask("What is the weather in Paris?", max_tokens=limit)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length", limit)
            seen.update(json.dumps(arguments) for _, arguments in calls)
        self.assertIn("{}", seen)
        self.assertIn('{"city": "Paris"}', seen)

    def test_tools_stand_in_the_prompt(self):
        plain, _ = self.ask("Hello", tools=[])
        offered, _ = self.ask("Hello")
        self.assertGreater(offered["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"] + 50)
        extra = tool()
        extra["cache_control"] = {"type": "ephemeral"}
        extra["function"]["strict"] = False
        self.assertEqual(self.ask("Hello", tools=[extra])[0]["usage"], offered["usage"])

    def test_wrong_tools_are_refused(self):
        self.assertIn("function", self.refused(chat(tools=[{"type": "web_search"}]), "tools[0].type"))
        self.refused(chat(tools=[{"type": "function"}]), "tools[0].function")
        self.refused(chat(tool_choice="required"), "tool_choice")


class Scripted(ToolCase):
    """A model that says exactly what the test wants, markup in odd tokens."""

    pieces = [b"I will look. ", "<tool_call>", b"\n<func", b"tion=", b"read>\n<parameter", b"=path>\n  a", "é😀".encode()[:3],
              "é😀".encode()[3:], b"\n</param", b"eter>\n</", b"function>\n", "</tool_call>"]

    @classmethod
    def setUpClass(cls):
        chain = Chain.answer(cls.pieces, [b"Let me. ", b"Yes."])
        cls.start(write_chain(cls.folder() / "script", chain))

    def test_markup_in_odd_tokens(self):
        for thinking in (True, False):
            answer, calls = self.call(chat(thinking=thinking, tools=[tool("read", path={"type": "string"})]))
            self.assertEqual(calls, [("read", {"path": "  aé😀"})])
            self.assertEqual(answer["choices"][0]["message"]["content"], "I will look.")
            self.assertEqual(answer["choices"][0]["finish_reason"], "tool_calls")

    def test_a_stop_string_changes_nothing_in_a_call(self):
        plain, _ = self.call(chat(tools=[tool("read", path={"type": "string"})], thinking=True))
        for stop in ("zzzzzzzz", "path", "a"):
            answer, calls = self.call(chat(tools=[tool("read", path={"type": "string"})], thinking=True, stop=[stop]))
            self.assertEqual(calls_of(answer), calls_of(plain), stop)
            self.assertEqual(calls, [("read", {"path": "  aé😀"})])

    def test_without_tools_it_is_text(self):
        answer = self.both(chat(thinking=False))
        self.assertIn("<tool_call>\n<function=read>", answer["choices"][0]["message"]["content"])
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")

    def test_cut_inside_a_character(self):
        answer, calls = self.call(chat(thinking=False, tools=[tool("read", path={"type": "string"})], max_tokens=7))
        self.assertEqual(calls, [("read", {"path": "  aé\ufffd"})])
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")


class CallInThought(ToolCase):
    """Thinks, calls inside the think block, and stops."""

    @classmethod
    def setUpClass(cls):
        call = ["<tool_call>", b"\n<function=", b"read>\n", b"</function>\n", "</tool_call>", "<|im_end|>"]
        cls.start(write_chain(cls.folder() / "script", Chain().follow(b"\n", b"I read it.", b"\n\n", *call)))

    def test_it_is_not_lost(self):
        answer, calls = self.call(chat(thinking=True, tools=[tool("read")]))
        self.assertEqual(calls, [("read", {})])
        self.assertEqual(answer["choices"][0]["message"]["reasoning_content"], "I read it.")
        self.assertEqual(answer["choices"][0]["finish_reason"], "tool_calls")
        events = self.server.stream(chat(thinking=True, tools=[tool("read")]))
        self.assertEqual(finish_of(events), "tool_calls")


if __name__ == "__main__":
    main()
