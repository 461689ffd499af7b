#!/usr/bin/env python3
"""Lets Anthropic's own Python client use `lily serve`: whatever it parses, streams and checks has to work.

    LILY=build/release/lily python3 tools/parity/anthropic_client.py

Needs the PyPI package anthropic. Exit code 77: skipped.
"""

import pathlib
import sys

try:
    import anthropic
    import pydantic
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "api"))
import lily_server  # noqa: E402

SUM = "What is 17 + 25?"
WEATHER = "What is the weather in Paris?"
TOOLS = [{"name": "get_weather", "description": "Get the weather",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]


class Verdict(pydantic.BaseModel):
    answer: int
    sure: bool


class Messages(lily_server.ServerCase):
    @classmethod
    def setUpClass(cls):
        cls.start("tiny")
        cls.client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{cls.server.port}", api_key="none", max_retries=0)

    def fields(self, *turns, **fields):
        messages = [{"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)]
        # The client no longer knows of sampling; the server does.
        return {"model": "tiny", "max_tokens": 600, "messages": messages, "extra_body": {"temperature": 0}, **fields}

    def say(self, *turns, **fields):
        return self.client.messages.create(**self.fields(*turns, **fields))

    def test_text(self):
        answer = self.say(SUM, system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
        [block] = answer.content
        self.assertIn("42", block.text)
        self.assertEqual((answer.stop_reason, answer.role, answer.type), ("end_turn", "assistant", "message"))
        self.assertGreater(answer.usage.output_tokens, 0)

    def test_stream(self):
        with self.client.messages.stream(**self.fields(SUM)) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, final.content[0].text)
        self.assertEqual(text, self.say(SUM).content[0].text)
        self.assertEqual(final.stop_reason, "end_turn")
        raw = [event.type for event in self.client.messages.create(stream=True, **self.fields(SUM))]
        self.assertEqual((raw[0], raw[-1]), ("message_start", "message_stop"))

    def test_thinking(self):
        thinking = {"type": "enabled", "budget_tokens": 1024}
        answer = self.say(SUM, thinking=thinking)
        self.assertEqual([block.type for block in answer.content], ["thinking", "text"])
        with self.client.messages.stream(**self.fields(SUM, thinking=thinking)) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_message()
        self.assertIn("thinking", kinds)
        self.assertEqual([block.model_dump() for block in final.content], [block.model_dump() for block in answer.content])
        again = self.say(SUM, answer.content, "And 1 + 1?", thinking={"type": "disabled"})
        self.assertEqual([block.type for block in again.content], ["text"])
        adaptive = self.say(SUM, thinking={"type": "adaptive"}, output_config={"effort": "low"})
        self.assertEqual([block.type for block in adaptive.content], ["thinking", "text"])

    def test_tools(self):
        answer = self.say(WEATHER, tools=TOOLS)
        self.assertEqual(answer.stop_reason, "tool_use")
        use = answer.content[-1]
        self.assertEqual((use.name, use.input), ("get_weather", {"city": "Paris"}))
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain, 7 degrees"}
        final = self.say(WEATHER, answer.content, [result], tools=TOOLS)
        self.assertIn("7", final.content[0].text)
        forced = self.say("Hello", tools=TOOLS, tool_choice={"type": "tool", "name": "get_weather"})
        self.assertEqual(forced.content[-1].name, "get_weather")

    def test_streamed_tools(self):
        with self.client.messages.stream(**self.fields(WEATHER, tools=TOOLS)) as stream:
            pieces = [event.partial_json for event in stream if event.type == "input_json"]
            use = stream.get_final_message().content[-1]
        self.assertEqual("".join(pieces), '{"city":"Paris"}')
        self.assertEqual((use.type, use.input), ("tool_use", {"city": "Paris"}))

    def test_tool_runner(self):
        @anthropic.beta_tool
        def get_weather(city: str) -> str:
            """Get the weather

            Args:
                city: where
            """
            return f"rain in {city}, 7 degrees"
        runner = self.client.beta.messages.tool_runner(tools=[get_weather], **self.fields(WEATHER))
        self.assertEqual(runner.until_done().stop_reason, "end_turn")

    def test_structured_output(self):
        answer = self.client.messages.parse(output_format=Verdict, **self.fields(SUM))
        self.assertIsInstance(answer.parsed_output, Verdict)

    def test_count_tokens(self):
        fields = {"model": "tiny", "messages": [{"role": "user", "content": SUM}], "tools": TOOLS}
        counted = self.client.messages.count_tokens(**fields).input_tokens
        usage = self.client.messages.create(max_tokens=1, **fields).usage
        self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens)

    def test_errors_are_typed(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.say(SUM, extra_body={"temperature": 9})
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")


if __name__ == "__main__":
    print(f"anthropic {anthropic.__version__}")
    lily_server.main()
