#!/usr/bin/env python3
"""Compares our chat template with Jinja's rendering of the checkpoint's file on thousands of random conversations.

    python3 tools/parity/chat_template.py --tool build/release/tests/text/text_tool --template chat_template.jinja

Both the file given (Qwen3.6's) and Qwen3.5's, which differs in two clauses, are compared: texts byte for byte, and
where the template raises we have to refuse with the same words. Needs Debian's python3-jinja2. Exit code 77: skipped.
"""

import argparse
import hashlib
import json
import pathlib
import random
import sys
import tempfile

import frames

try:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

QWEN35_SHA256 = "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715"
QWEN36_TO_QWEN35 = [
    (
        "{%- if (preserve_thinking is defined and preserve_thinking is true) or (loop.index0 > ns.last_query_index) %}",
        "{%- if loop.index0 > ns.last_query_index %}",
    ),
    (
        "args_value | string if args_value is string else args_value | tojson | safe %}",
        "args_value | tojson | safe if args_value is mapping or (args_value is sequence and args_value is not string)"
        " else args_value | string %}",
    ),
]
TEXTS = [
    "", " ", "Hi", "  Hi \n", "\n\nx\n", "é漢\u2028\u00a0", "\u3000wide\u3000", "\x1csep\x1f", "<tool_response>\n1\n</tool_response>",
    "<tool_response>", " <tool_response>a</tool_response>\n", "<think>\nR\n</think>\n\nB", "R\n</think>\n\n  B ", "</think>",
    "<think>a<think>\nb\n\n</think>\n\nC</think>\nD", "<think></think>", "a & b < c > \"d\" 'e'", "<|im_end|>", "👩‍💻", "x</think>", "{{ x }}{% y %}",
]  # fmt: skip
KEYS = ["city", "n", "é", "a b", "", "<k>", "path", "q\"uote"]


def random_json(rng, depth=0):
    """Any JSON value Python can hold."""
    kinds = ["text", "int", "float", "constant", "big"] + (["list", "dict"] if depth < 3 else [])
    kind = rng.choice(kinds)
    if kind == "text":
        return rng.choice(TEXTS + ["\x00\x07\b\f\r\t\x1f\x7f", "\\ \" /", "\ufeff\U0010ffff"])
    if kind == "int":
        return rng.choice([0, 1, -1, 42, 2**53, 2**63 - 1, -(2**63), 2**64 - 1])
    if kind == "big":
        return rng.choice([2**64, -(2**63) - 1, 10**30, -(10**40)])
    if kind == "float":
        return rng.choice(
            [0.0, -0.0, 1.0, 1.5, 1e-5, 1e-4, 1e15, 1e16, 1e17, 1e20, 1e22, 1e100, 5e-324, 1.7976931348623157e308, 0.1, 1 / 3, 123456789012345680.0]
            + [rng.uniform(-1, 1) * 10.0 ** rng.randint(-300, 300)]
        )  # fmt: skip
    if kind == "constant":
        return rng.choice([True, False, None])
    if kind == "list":
        return [random_json(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(KEYS): random_json(rng, depth + 1) for _ in range(rng.randint(0, 4))}


def random_content(rng):
    """A string, parts, null, or (rarely) something the template refuses."""
    if rng.random() < 0.7:
        return rng.choice(TEXTS)
    if rng.random() < 0.2:
        return None
    if rng.random() < 0.1:
        return rng.choice([5, 1.5, True, {"text": "x"}])
    parts = [
        {"type": "text", "text": "A "},
        {"type": "text", "text": " B"},
        {"type": "text", "text": "\n"},
        {"text": "bare"},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "image"},
        {"type": "video"},
        {"video": None},
    ]
    if rng.random() < 0.1:
        parts.append({"type": "input_audio", "input_audio": {}})
    return [rng.choice(parts) for _ in range(rng.randint(0, 3))]


def random_call(rng):
    function = {"name": rng.choice(["f", "get_weather", "é"])}
    if rng.random() < 0.9:
        function["arguments"] = {rng.choice(KEYS): random_json(rng) for _ in range(rng.randint(0, 4))}
    if rng.random() < 0.02:
        function["arguments"] = rng.choice(['{"a": 1}', None, 3, []])
    return {"type": "function", "id": "c", "function": function} if rng.random() < 0.8 else function


def random_message(rng, role):
    message = {"role": role}
    if rng.random() < 0.95:
        message["content"] = random_content(rng)
    if role == "assistant":
        if rng.random() < 0.5:
            message["reasoning_content"] = rng.choice(TEXTS + [None, "R1", 7])
        if rng.random() < 0.4:
            message["tool_calls"] = rng.choice([None, [random_call(rng) for _ in range(rng.randint(0, 3))]])
    return message


def random_request(rng):
    roles = ["user", "assistant", "tool", "user", "assistant", "tool"] + (["system", "developer"] if rng.random() < 0.1 else [])
    messages = [random_message(rng, "system")] if rng.random() < 0.4 else []
    messages += [random_message(rng, rng.choice(roles)) for _ in range(rng.randint(0, 6))]
    if rng.random() < 0.8:
        messages.insert(rng.randint(min(1, len(messages)), len(messages)), {"role": "user", "content": "question"})
    tools = None
    if rng.random() < 0.3:
        tools = [
            {"type": "function", "function": {"name": "f", "description": rng.choice(TEXTS), "parameters": random_json(rng)}}
            for _ in range(rng.randint(0, 3))
        ]
    options = ["add_generation_prompt", "enable_thinking", "preserve_thinking", "add_vision_id"]
    return {"messages": messages, "tools": tools} | {name: rng.random() < 0.5 for name in options}


def compile_template(text):
    """The template under the settings transformers uses."""

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(text)


def compare(tool, name, text, requests):
    """The number of requests that render differently."""
    template = compile_template(text)
    with tempfile.NamedTemporaryFile(suffix=".jinja") as file:
        file.write(text.encode())
        file.flush()
        answers = frames.run(tool, "render", file.name, [json.dumps(request).encode() for request in requests])
    wrong = refused = 0
    for request, answer in zip(requests, answers):
        try:
            expected, same = template.render(**request), None
            same = answer.get("text") == expected
        except (jinja2.exceptions.TemplateError, TypeError) as error:
            expected = str(error)
            refused += 1
            # Jinja says no more than the type error for what is no mapping; the words of raise_exception are ours too.
            same = "error" in answer and (isinstance(error, TypeError) or expected in answer["error"])
        if not same:
            wrong += 1
            if wrong <= 5:
                print(f"{json.dumps(request)}\n  expected {expected!r}\n  found    {answer!r}")
    print(f"{name}: {len(requests)} conversations ({refused} refused), {wrong} differ (jinja2 {jinja2.__version__})")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="tests/text/text_tool of a build")
    parser.add_argument("--template", required=True, help="chat_template.jinja of Qwen3.6")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    requests = [random_request(rng) for _ in range(arguments.count)]
    text = pathlib.Path(arguments.template).read_bytes().decode()
    wrong = compare(arguments.tool, "Qwen3.6", text, requests)
    for ours, theirs in QWEN36_TO_QWEN35:
        text = text.replace(ours, theirs)
    if hashlib.sha256(text.encode()).hexdigest() != QWEN35_SHA256:
        sys.exit("the template given is not Qwen3.6's: Qwen3.5's could not be made from it")
    wrong += compare(arguments.tool, "Qwen3.5", text, requests)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
