"""Constrained output and the thinking budget end to end: what the model says fits, whatever it would have said."""

import json
import re

from chain_checkpoint import Chain, write_chain
from lily_server import ServerCase, chat, main, text_of
from tools_test import ToolCase, tool

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer",
          "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}},
          "required": ["name", "age", "tags"], "additionalProperties": False}


def json_schema(schema, **fields):
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, **fields}}


class Schemas(ServerCase):
    """The embedded model, hot enough to want to say anything."""

    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    def fits(self, value):
        self.assertEqual(list(value), ["name", "age", "tags"])
        self.assertIsInstance(value["name"], str)
        self.assertLessEqual(len(value["name"]), 12)
        self.assertTrue(0 <= value["age"] <= 150)
        self.assertTrue(len(value["tags"]) <= 3 and set(value["tags"]) <= {"a", "b"})

    def test_content_fits_the_schema(self):
        for seed in range(8):
            answer = self.both(chat("Tell me about lily.", thinking=False, temperature=2, seed=seed, max_tokens=800,
                                    response_format=json_schema(PERSON, strict=seed % 2 == 0)))
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
            self.fits(json.loads(text_of(answer)))

    def test_thinking_is_free(self):
        answer = self.both(chat("What is 17 + 25?", thinking=True, temperature=0, response_format=json_schema(
            {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]})))
        reasoning = text_of(answer, "reasoning_content")
        self.assertTrue(reasoning)
        self.assertFalse(reasoning.lstrip().startswith("{"))
        self.assertIsInstance(json.loads(text_of(answer))["answer"], int)

    def test_json_object(self):
        for seed in range(4):
            answer = self.both(chat("What is lily.cpp?", thinking=False, temperature=1, seed=seed, max_tokens=300,
                                    response_format={"type": "json_object"}))
            if answer["choices"][0]["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(text_of(answer)), dict)
            else:
                self.assertTrue(text_of(answer).startswith("{"))

    def test_recursive_schemas(self):
        node = {"type": "object", "properties": {"v": {"enum": [1, 2]}, "next": {"anyOf": [{"type": "null"},
                {"$ref": "#/$defs/node"}]}}, "required": ["v", "next"], "additionalProperties": False}
        schema = {"$defs": {"node": node}, "$ref": "#/$defs/node"}
        answer = self.both(chat("hi", thinking=False, temperature=0, max_tokens=400, response_format=json_schema(schema)))
        if answer["choices"][0]["finish_reason"] == "stop":
            self.assertIn(json.loads(text_of(answer))["v"], (1, 2))

    def test_what_cannot_be_kept_is_named(self):
        def refused(schema, path):
            message = self.refused(chat(response_format=json_schema(schema)), "response_format.json_schema.schema" + path)
            self.assertIn("response_format.json_schema.schema" + path, message)
        refused({"properties": {"a": {"not": {}}}}, ".properties.a.not")
        refused({"type": "string", "pattern": "(?=x)"}, ".pattern")
        refused({"$ref": "#"}, "")
        refused(5, "")
        self.refused(chat(response_format={"type": "json_schema"}), "response_format.json_schema.schema")
        self.refused(chat(response_format={"type": "xml"}), "response_format.type")
        self.refused(chat(response_format="text"), "response_format")
        self.both(chat(thinking=False, max_tokens=2, response_format={"type": "text"}))

    def test_equal_requests_give_equal_answers(self):
        request = chat("hi", thinking=False, temperature=1.5, seed=3, max_tokens=200, response_format=json_schema(PERSON))
        self.assertEqual(self.both(request)["choices"], self.both(request)["choices"])


class ForcedCalls(ToolCase):
    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    tools = [tool("get_weather"), tool("pick", n={"type": "integer", "minimum": 1, "maximum": 9},
                                       who={"enum": ["ann", "bob"]}, why={"type": "string", "maxLength": 20})]

    def ask(self, text="Hello!", **fields):
        return self.call(chat(text, **{"thinking": False, "tools": self.tools, "temperature": 1, "max_tokens": 600,
                                       **fields}))

    def picked(self, arguments):
        self.assertEqual(list(arguments), ["n", "who", "why"])
        self.assertIn(arguments["n"], range(1, 10))
        self.assertIn(arguments["who"], ("ann", "bob"))
        self.assertLessEqual(len(arguments["why"]), 20)

    def test_required(self):
        for thinking in (False, True):
            answer, calls = self.ask(tool_choice="required", seed=1, parallel_tool_calls=False, thinking=thinking)
            self.assertEqual(len(calls), 1)
            self.assertEqual(answer["choices"][0]["finish_reason"], "tool_calls")
            self.assertIsNone(text_of(answer))

    def test_named(self):
        for seed in range(5):
            for choice in ({"type": "function", "function": {"name": "pick"}}, {"type": "function", "name": "pick"}):
                answer, calls = self.ask(tool_choice=choice, seed=seed)
                self.assertEqual([name for name, _ in calls], ["pick"])
                self.picked(calls[0][1])
                self.assertEqual(answer["choices"][0]["finish_reason"], "tool_calls")

    def test_strict(self):
        strict = tool("get_weather", city={"enum": ["Rome", "Bern"]})
        strict["function"]["strict"] = True
        _, calls = self.ask("What is the weather in Paris?", tools=[strict], temperature=0)
        self.assertEqual(len(calls), 1)
        self.assertIn(calls[0][1]["city"], ("Rome", "Bern"))
        answer, calls = self.ask("What is 2 + 3?", tools=[strict], temperature=0)
        self.assertEqual(calls, [])
        self.assertIn("5", text_of(answer))

    def test_schemas_that_cannot_be_kept(self):
        hard = tool("hard", x={"type": "string", "pattern": "(?=a)"}, y={"type": "array", "uniqueItems": True})
        answer, _ = self.ask(tools=[hard], temperature=0)  # says nothing about an answer that may call
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        _, calls = self.ask(tools=[hard], tool_choice="required", parallel_tool_calls=False, max_tokens=300,
                            seed=1)
        self.assertEqual([name for name, _ in calls], ["hard"])
        self.assertLessEqual(set(calls[0][1]), {"x", "y"})
        hard["function"]["strict"] = True
        self.refused(chat(tools=[hard]), "tools[0].function.parameters.properties.x.pattern")


class BracesInTheThought(ServerCase):
    """A model whose thought looks like the answer, and whose answer would not be JSON."""

    @classmethod
    def setUpClass(cls):
        chain = Chain.answer([b"Gladly: ", b"no JSON."], [b'{"answer": ', b'"no"}', b" {{ }"])
        cls.start(write_chain(cls.folder() / "script", chain))

    def test_only_the_answer_is_held_to_the_schema(self):
        schema = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 5}}, "required": ["answer"],
                  "additionalProperties": False}
        for thinking in (True, False):
            answer = self.both(chat(thinking=thinking, seed=4, max_tokens=200, response_format=json_schema(schema)))
            self.assertEqual(list(json.loads(text_of(answer))), ["answer"])
            self.assertEqual(text_of(answer, "reasoning_content"), '{"answer": "no"} {{ }' if thinking else None)


class Budget(ServerCase):
    """A model that thinks for ever."""

    @classmethod
    def setUpClass(cls):
        chain = Chain.forever([b"Hm. ", b"So. ", b"But. "]).follow(b"\n\n", b"It", b" is", b" five.", "<|im_end|>")
        cls.start(write_chain(cls.folder() / "script", chain))

    def test_the_block_is_closed(self):
        for field in ("thinking_budget", "thinking_token_budget", "max_thinking_tokens"):
            answer = self.both(chat(thinking=True, max_tokens=400, **{field: 7}))
            self.assertEqual(text_of(answer), "It is five.")
            self.assertRegex(text_of(answer, "reasoning_content"),
                             r"^Hm\. So\. But\. Hm\. So\. But\. Hm\. \n\nConsidering the limited time .*now\.$")
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")

    def test_zero_is_no_thought(self):
        answer = self.both(chat(thinking=True, thinking_budget=0))
        self.assertEqual(text_of(answer), "It is five.")
        self.assertNotIn("reasoning_content", answer["choices"][0]["message"])

    def test_without_one_the_limit_ends_it(self):
        answer = self.both(chat(thinking=True, max_tokens=50))
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(text_of(answer), "")

    def test_switches(self):
        for fields in ({"reasoning_effort": "none"}, {"enable_thinking": False}, {"thinking": {"type": "disabled"}},
                       {"reasoning": {"enabled": False}}):
            answer = self.both({**chat(max_tokens=50), **fields})
            self.assertEqual(text_of(answer), "It is five.", fields)
            self.assertNotIn("reasoning_content", answer["choices"][0]["message"])

    def test_then_the_schema(self):
        answer = self.both(chat(thinking=True, thinking_budget=3, max_tokens=400, seed=1,
                                response_format=json_schema({"enum": ["x", "y"]})))
        self.assertTrue(re.match(r'^"[xy]"$', text_of(answer)), answer)


if __name__ == "__main__":
    main()
