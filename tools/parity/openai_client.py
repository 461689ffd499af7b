#!/usr/bin/env python3
"""Lets OpenAI's own Python client use `lily serve`: whatever it parses, streams and checks has to work.

    LILY=build/release/lily python3 tools/parity/openai_client.py

Needs the PyPI package openai. Exit code 77: skipped.
"""

import pathlib
import sys
from typing import Literal

try:
    import openai
    import pydantic
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "api"))
import lily_server  # noqa: E402

SUM = "What is 17 + 25?"
WEATHER = "What is the weather in Paris?"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
FUNCTION = {"name": "get_weather", "description": "Get the weather", "parameters": PARAMETERS}


class Verdict(pydantic.BaseModel):
    answer: int
    mood: Literal["sure", "unsure"]
    steps: list[str] = pydantic.Field(max_length=2)


class Client(lily_server.ServerCase):
    @classmethod
    def setUpClass(cls):
        cls.start("tiny")
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="none", max_retries=0)


class Chat(Client):
    off = {"temperature": 0, "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}

    def ask(self, text, **fields):
        return self.client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": text}], **{**self.off, **fields})

    def test_models(self):
        [model] = self.client.models.list().data
        self.assertEqual(self.client.models.retrieve(model.id).id, model.id)

    def test_chat(self):
        answer = self.ask(SUM)
        [choice] = answer.choices
        self.assertIn("42", choice.message.content)
        self.assertEqual((choice.finish_reason, choice.message.role, choice.message.tool_calls), ("stop", "assistant", None))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_reasoning(self):
        for effort, thinks in (("none", False), ("low", True), ("high", True)):
            message = self.ask(SUM, reasoning_effort=effort, extra_body={}).choices[0].message
            self.assertEqual(bool(getattr(message, "reasoning_content", "")), thinks, effort)
            self.assertIn("42", message.content)

    def test_stream(self):
        chunks = list(self.ask(SUM, stream=True, stream_options={"include_usage": True}))
        whole = self.ask(SUM)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(len({c.id for c in chunks}), 1)

    def test_stream_helper(self):
        with self.client.chat.completions.stream(model="tiny", messages=[{"role": "user", "content": SUM}], **self.off) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertIn("content.delta", kinds)
        self.assertEqual(final.choices[0].message.content, self.ask(SUM).choices[0].message.content)

    def test_tools(self):
        tools = [{"type": "function", "function": FUNCTION}]
        message = self.ask(WEATHER, tools=tools).choices[0].message
        [call] = message.tool_calls
        self.assertEqual((call.function.name, call.function.arguments), ("get_weather", '{"city":"Paris"}'))
        after = self.client.chat.completions.create(
            model="tiny", tools=tools, **self.off,
            messages=[{"role": "user", "content": WEATHER}, message.model_dump(exclude_none=True),
                      {"role": "tool", "tool_call_id": call.id, "content": "rain, 7 degrees"}])
        self.assertIn("7", after.choices[0].message.content)
        forced = self.ask("Hello", tools=tools, tool_choice={"type": "function", "function": {"name": "get_weather"}})
        self.assertEqual(forced.choices[0].message.tool_calls[0].function.name, "get_weather")

    def test_streamed_tools(self):
        tools = [{"type": "function", "function": {**FUNCTION, "strict": True}}]
        with self.client.chat.completions.stream(model="tiny", messages=[{"role": "user", "content": WEATHER}],
                                                 tools=tools, **self.off) as stream:
            kinds = [event.type for event in stream]
            [call] = stream.get_final_completion().choices[0].message.tool_calls
        self.assertIn("tool_calls.function.arguments.delta", kinds)
        self.assertIn("tool_calls.function.arguments.done", kinds)
        self.assertEqual(call.function.parsed_arguments, {"city": "Paris"})

    def test_structured_output(self):
        answer = self.client.chat.completions.parse(model="tiny", messages=[{"role": "user", "content": SUM}],
                                                    response_format=Verdict, max_tokens=600, **self.off)
        self.assertIsInstance(answer.choices[0].message.parsed, Verdict)

    def test_logprobs(self):
        choice = self.ask(SUM, logprobs=True, top_logprobs=3).choices[0]
        self.assertEqual("".join(entry.token for entry in choice.logprobs.content)[-2:], choice.message.content[-2:])
        self.assertEqual({len(entry.top_logprobs) for entry in choice.logprobs.content}, {3})

    def test_completions(self):
        answer = self.client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=8, temperature=0)
        self.assertEqual((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 8))
        pieces = self.client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=8, temperature=0, stream=True)
        self.assertEqual("".join(piece.choices[0].text for piece in pieces), answer.choices[0].text)

    def test_errors_are_typed(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.ask(SUM, temperature=9)
        self.assertEqual((caught.exception.param, caught.exception.code), ("temperature", "invalid_value"))
        self.assertRaises(openai.NotFoundError, self.client.embeddings.create, model="tiny", input="x")


class Responses(Client):
    off = {"model": "tiny", "temperature": 0, "reasoning": {"effort": "none"}}
    tools = [{"type": "function", "strict": True, **FUNCTION}]

    def test_text(self):
        answer = self.client.responses.create(input=SUM, instructions="Be brief.", **self.off)
        self.assertIn("42", answer.output_text)
        self.assertEqual(answer.status, "completed")
        self.assertEqual(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)

    def test_reasoning_goes_back(self):
        first = self.client.responses.create(input=SUM, **{**self.off, "reasoning": {"effort": "high"}})
        self.assertEqual([item.type for item in first.output], ["reasoning", "message"])
        second = self.client.responses.create(
            input=[{"role": "user", "content": SUM}, *[item.model_dump() for item in first.output],
                   {"role": "user", "content": "And 1 + 1?"}], **self.off)
        self.assertEqual(second.status, "completed")

    def test_stream(self):
        with self.client.responses.stream(input=SUM, **self.off) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
        self.assertEqual(text, final.output_text)
        self.assertEqual(text, self.client.responses.create(input=SUM, **self.off).output_text)

    def test_tools(self):
        first = self.client.responses.create(input=WEATHER, tools=self.tools, **self.off)
        [call] = [item for item in first.output if item.type == "function_call"]
        self.assertEqual((call.name, call.arguments), ("get_weather", '{"city":"Paris"}'))
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain, 7 degrees"}
        second = self.client.responses.create(
            input=[{"role": "user", "content": WEATHER}, *first.output, result], tools=self.tools, **self.off)
        self.assertIn("7", second.output_text)
        with self.client.responses.stream(input=WEATHER, tools=self.tools, **self.off) as stream:
            done = [event for event in stream if event.type == "response.function_call_arguments.done"]
        self.assertEqual([event.arguments for event in done], ['{"city":"Paris"}'])

    def test_structured_output(self):
        answer = self.client.responses.parse(input=SUM, text_format=Verdict, max_output_tokens=600, **self.off)
        self.assertIsInstance(answer.output_parsed, Verdict)


if __name__ == "__main__":
    print(f"openai {openai.__version__}")
    lily_server.main()
