"""The other protocols: completions, responses, Anthropic's messages, tokens of texts."""

import json

from chain_checkpoint import Chain, write_chain
from lily_server import ServerCase, main
from tools_test import tool

WEATHER = tool()["function"]
QUESTION = "What is the weather in Paris?"


def events(body):
    """[(name, data)] of a stream; comments left out."""
    out = []
    for block in body.decode("utf-8").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if lines:
            out.append((lines.get("event"), lines["data"]))
    return out


class Protocol(ServerCase):
    path = None

    def ask(self, request, status=200, path=None):
        found, answer = self.server.post(request, path or self.path)
        self.assertEqual(found, status, answer)
        return answer

    def stream(self, request, path=None):
        body = json.dumps({**request, "stream": True})
        status, headers, answer = self.server.request("POST", path or self.path, body)
        self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"), answer)
        return events(answer)


class Completions(Protocol):
    path = "/v1/completions"

    @classmethod
    def setUpClass(cls):
        chain = Chain().follow(b"x", b"one", b" two", "<think>", b" three", b" four", "<|im_end|>").follow(b"\n", b"no")
        cls.start(write_chain(cls.folder() / "script", chain))

    def test_continues_a_text(self):
        for prompt in ("x", ["x"]):
            answer = self.ask({"prompt": prompt})
            choice = answer["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"]), ("one two<think> three four", "stop"))
            self.assertEqual(answer["object"], "text_completion")
            self.assertEqual(answer["usage"]["prompt_tokens"], 1)
        ids = self.ask({"content": "x"}, path="/tokenize")["tokens"]
        self.assertEqual(self.ask({"prompt": ids})["choices"][0]["text"], "one two<think> three four")

    def test_streams_the_same(self):
        request = {"prompt": "x", "stream_options": {"include_usage": True}, "max_tokens": 3}
        whole = self.ask(request)
        chunks = self.stream(request)
        self.assertEqual(chunks[-1][1], "[DONE]")
        parsed = [json.loads(data) for _, data in chunks[:-1]]
        self.assertEqual("".join(c["choices"][0]["text"] for c in parsed if c["choices"]), whole["choices"][0]["text"])
        self.assertEqual(parsed[-1]["usage"], whole["usage"])
        self.assertEqual(parsed[-2]["choices"][0]["finish_reason"], "length")

    def test_stop_limits_logprobs(self):
        self.assertEqual(self.ask({"prompt": "x", "stop": "thr"})["choices"][0]["text"], "one two<think> ")
        logprobs = self.ask({"prompt": "x", "logprobs": 2, "max_tokens": 2})["choices"][0]["logprobs"]
        self.assertEqual(logprobs["tokens"], ["one", " two"])
        self.assertEqual(logprobs["text_offset"], [0, 3])
        self.assertEqual(len(logprobs["top_logprobs"][0]), 2)

    def test_refusals(self):
        for request, param in (({}, "prompt"), ({"prompt": ["a", "b"]}, "prompt"), ({"prompt": 5}, "prompt"),
                               ({"prompt": ""}, "prompt"), ({"prompt": [-1]}, "prompt"), ({"prompt": "x", "echo": True}, "echo"),
                               ({"prompt": "x", "n": 2}, "n"), ({"prompt": "x", "suffix": "y"}, "suffix")):
            self.assertEqual(self.ask(request, 400)["error"]["param"], param)

    def test_tokens_and_back(self):
        ids = self.ask({"content": "x one <|im_end|>"}, path="/tokenize")
        self.assertEqual(ids["count"], len(ids["tokens"]))
        self.assertEqual(self.ask({"tokens": ids["tokens"]}, path="/detokenize")["content"], "x one <|im_end|>")
        chat = self.ask({"messages": [{"role": "user", "content": "hi"}]}, path="/tokenize")
        text = self.ask({"tokens": chat["tokens"]}, path="/detokenize")["content"]
        self.assertTrue(text.endswith("<|im_start|>assistant\n<think>\n"), text)
        self.assertEqual(self.ask({"tokens": [10**9]}, 400, "/detokenize")["error"]["param"], "tokens[0]")
        self.assertEqual(self.ask({}, 400, "/tokenize")["error"]["param"], "content")


class Anthropic(Protocol):
    path = "/v1/messages"
    tools = [{"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}]

    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    def say(self, *messages, **fields):
        messages = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
        request = {"messages": messages, "max_tokens": 300, "temperature": 0, "model": "any", **fields}
        answer = self.ask(request)
        stream = self.stream(request)
        self.check_stream(stream, answer)
        return answer

    def check_stream(self, stream, answer):
        """The stream, put together, is the answer."""
        blocks, current = [], None
        for name, data in stream:
            data = json.loads(data)
            self.assertEqual(data["type"], name)
            if name == "content_block_start":
                self.assertIsNone(current)
                self.assertEqual(data["index"], len(blocks))
                current = {**data["content_block"], "json": ""}
            elif name == "content_block_delta":
                self.assertEqual(data["index"], len(blocks))
                delta = data["delta"]
                if delta["type"] == "input_json_delta":
                    current["json"] += delta["partial_json"]
                else:
                    field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}[delta["type"]]
                    current[field] += delta[field]
            elif name == "content_block_stop":
                text = current.pop("json")
                if current["type"] == "tool_use":
                    current["input"] = json.loads(text)
                blocks.append(current)
                current = None
        for ours, theirs in zip(blocks, answer["content"], strict=True):
            if ours["type"] == "tool_use":
                self.assertTrue(ours.pop("id").startswith("toolu_"))
                theirs = {key: value for key, value in theirs.items() if key != "id"}
            self.assertEqual(ours, theirs)
        self.assertEqual([stream[0][0], stream[-2][0], stream[-1][0]], ["message_start", "message_delta", "message_stop"])
        tail = json.loads(stream[-2][1])
        self.assertEqual(tail["delta"], {"stop_reason": answer["stop_reason"], "stop_sequence": answer["stop_sequence"]})
        self.assertEqual(tail["usage"]["output_tokens"], answer["usage"]["output_tokens"])

    def test_text(self):
        answer = self.say("What is 17 + 25?")
        self.assertEqual([block["type"] for block in answer["content"]], ["text"])
        self.assertIn("42", answer["content"][0]["text"])
        self.assertEqual((answer["stop_reason"], answer["stop_sequence"], answer["role"]), ("end_turn", None, "assistant"))

    def test_thinking_is_asked_for(self):
        answer = self.say("What is 17 + 25?", thinking={"type": "enabled", "budget_tokens": 1024})
        self.assertEqual([block["type"] for block in answer["content"]], ["thinking", "text"])

    def test_tools(self):
        answer = self.say(QUESTION, tools=self.tools)
        use = answer["content"][-1]
        self.assertEqual((use["type"], use["name"], use["input"]), ("tool_use", "get_weather", {"city": "Paris"}))
        self.assertEqual(answer["stop_reason"], "tool_use")
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": [{"type": "text", "text": "rain, 7 degrees"}]}
        final = self.say(QUESTION, {"role": "assistant", "content": answer["content"]},
                         {"role": "user", "content": [result]}, tools=self.tools)
        self.assertIn("7", final["content"][0]["text"])
        forced = self.say("Hello", tools=self.tools, tool_choice={"type": "any", "disable_parallel_tool_use": True})
        self.assertEqual(forced["stop_reason"], "tool_use")
        none = self.say(QUESTION, tools=self.tools, tool_choice={"type": "none"})
        self.assertEqual(none["stop_reason"], "end_turn")

    def test_limits_and_stop_sequences(self):
        self.assertEqual(self.say("What is lily.cpp?", max_tokens=3)["stop_reason"], "max_tokens")
        answer = self.say("What is 17 + 25?", stop_sequences=["42", "zz"])
        self.assertEqual((answer["stop_reason"], answer["stop_sequence"]), ("stop_sequence", "42"))

    def test_system_blocks(self):
        def count(**fields):
            return self.ask({"messages": [{"role": "user", "content": "hi"}], **fields},
                            path="/v1/messages/count_tokens")["input_tokens"]
        text = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
        billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=00001;"}
        self.assertEqual(count(system="Be brief."), count(system=[text]))
        self.assertEqual(count(system=[billing, text]), count(system=[text]))
        self.assertGreater(count(system=[text, text]), count(system=[text]))
        self.assertEqual(count(), self.say("hi")["usage"]["input_tokens"])

    def test_refusals(self):
        user = [{"role": "user", "content": "hi"}]
        for request, place in (({}, "messages"), ({"messages": []}, "messages"),
                               ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
                               ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].type"),
                               ({"messages": user, "tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0].type"),
                               ({"messages": user, "tool_choice": {"type": "any"}}, "tool_choice"),
                               ({"messages": user, "output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
                               ({"messages": user, "output_config": {"effort": "huge"}}, "output_config.effort"),
                               ({"messages": user, "thread": {"type": "create"}}, "thread"),
                               ({"messages": user, "max_tokens": 0}, "max_tokens")):
            error = self.ask(request, 400)
            self.assertEqual((error["type"], error["error"]["type"]), ("error", "invalid_request_error"))
            self.assertIn(place, error["error"]["message"])

    def test_threads_are_refused_as_clients_expect(self):
        error = self.ask({"messages": [{"role": "user", "content": "hi"}],
                          "thread": {"type": "continue", "previous_message_id": "msg_1"}}, 400)["error"]
        self.assertEqual(error["details"], {"error_code": "thread_unsupported_request", "unsupported": ["thread"]})

    def test_output_config(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        answer = self.say("What is 17 + 25?", output_config={"format": {"type": "json_schema", "schema": schema}})
        self.assertIsInstance(json.loads(answer["content"][0]["text"])["n"], int)
        for effort, thinking, kinds in (("low", None, ["text"]), ("low", {"type": "adaptive"}, ["thinking", "text"]),
                                        ("max", {"type": "disabled"}, ["text"])):
            fields = {"thinking": thinking} if thinking else {}
            answer = self.say("What is 17 + 25?", output_config={"effort": effort}, **fields)
            self.assertEqual([block["type"] for block in answer["content"]], kinds)


class Responses(Protocol):
    path = "/v1/responses"
    tools = [{"type": "function", **WEATHER}]

    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    def say(self, given, **fields):
        request = {"input": given, "temperature": 0, "reasoning": {"effort": "none"}, **fields}
        answer = self.ask(request)
        stream = [(name, json.loads(data)) for name, data in self.stream(request)]
        self.assertEqual([data["sequence_number"] for _, data in stream], list(range(len(stream))))
        self.assertTrue(all(data["type"] == name for name, data in stream))
        self.assertEqual([name for name, _ in stream[:2]], ["response.created", "response.in_progress"])
        last = stream[-1][1]["response"]
        strip = lambda items: [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in items]
        self.assertEqual(strip(last["output"]), strip(answer["output"]))
        cached = [usage.pop("input_tokens_details")["cached_tokens"] for usage in (last["usage"], answer["usage"])]
        self.assertLess(max(cached), answer["usage"]["input_tokens"])  # the second finds what the first left
        self.assertEqual(last["usage"], answer["usage"])
        done = [data["item"] for name, data in stream if name == "response.output_item.done"]
        self.assertEqual(done, last["output"])
        deltas = "".join(data["delta"] for name, data in stream if name == "response.output_text.delta")
        self.assertEqual(deltas, "".join(item["content"][0]["text"] for item in done if item["type"] == "message"))
        return answer

    def test_text(self):
        answer = self.say("What is 17 + 25?")
        self.assertEqual([item["type"] for item in answer["output"]], ["message"])
        self.assertIn("42", answer["output"][0]["content"][0]["text"])
        self.assertEqual((answer["status"], answer["object"]), ("completed", "response"))

    def test_reasoning_is_an_item(self):
        answer = self.say("What is 17 + 25?", reasoning={"effort": "high"})
        self.assertEqual([item["type"] for item in answer["output"]], ["reasoning", "message"])
        again = self.say([{"role": "user", "content": "What is 17 + 25?"}, *answer["output"],
                          {"role": "user", "content": [{"type": "input_text", "text": "And 1 + 1?"}]}])
        self.assertEqual(again["status"], "completed")

    def test_tools(self):
        answer = self.say(QUESTION, tools=self.tools)
        call = answer["output"][-1]
        self.assertEqual((call["type"], call["name"], json.loads(call["arguments"])),
                         ("function_call", "get_weather", {"city": "Paris"}))
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain, 7 degrees"}
        final = self.say([{"role": "user", "content": QUESTION}, *answer["output"], result], tools=self.tools)
        self.assertIn("7", final["output"][-1]["content"][0]["text"])

    def test_instructions_and_developers_are_the_system(self):
        def count(given, **fields):
            return self.say(given, **fields)["usage"]["input_tokens"]
        user = {"role": "user", "content": "hi"}
        self.assertEqual(count("hi", instructions="Be brief."), count([{"role": "developer", "content": "Be brief."}, user]))
        self.assertGreater(count([{"role": "developer", "content": "Be brief."}, user], instructions="Be brief."),
                           count("hi", instructions="Be brief."))

    def test_formats_and_limits(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        answer = self.say("What is 17 + 25?", text={"format": {"type": "json_schema", "name": "n", "schema": schema}})
        self.assertIsInstance(json.loads(answer["output"][0]["content"][0]["text"])["n"], int)
        cut = self.say("What is lily.cpp?", max_output_tokens=3)
        self.assertEqual((cut["status"], cut["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))

    def test_refusals(self):
        for request, param in (({}, "input"), ({"input": 5}, "input"), ({"input": "x", "previous_response_id": "resp_1"},
                               "previous_response_id"), ({"input": "x", "background": True}, "background"),
                               ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
                               ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
                               ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type"),
                               ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type")):
            self.assertEqual(self.ask(request, 400)["error"]["param"], param)


if __name__ == "__main__":
    main()
