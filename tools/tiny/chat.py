"""Chat rendering: messages -> text, as chat_template.jinja does it, and the spans the loss looks at.

The Jinja template is the authority; this file repeats it in plain Python because a corpus renders
millions of conversations. check_model.py compares the two on generated conversations.
"""

import json

TOOLS_HEAD = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
TOOLS_TAIL = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within "
    "<tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge and do not tell "
    "the user about function calls\n</IMPORTANT>"
)


def to_json(value):
    """The template's tojson: Python separators, non-ASCII and <>& kept as they are."""
    return json.dumps(value, ensure_ascii=False)


def render_calls(calls, content):
    """Tool calls in the model's own format, as they follow `content`."""
    out = []
    for i, call in enumerate(calls or ()):
        lead = "\n" if i else ("\n\n" if content.strip() else "")
        out.append(f"{lead}<tool_call>\n<function={call['name']}>\n")
        for key, value in call["arguments"].items():
            out.append(f"<parameter={key}>\n{value if isinstance(value, str) else to_json(value)}\n</parameter>\n")
        out.append("</function>\n</tool_call>")
    return "".join(out)


def render(messages, tools=None):
    """Render a whole conversation; returns [(text, is_target)], where the targets are what the model writes.

    Assistant turns after the last user query carry their think block; of those the target starts behind
    "<think>\\n" (thinking on) or behind the empty block (reasoning ""), which is where a prompt ends.
    Earlier assistant turns are plain, as the template strips their reasoning.
    """
    spans = []
    start = 0
    if messages[0]["role"] == "system":
        start = 1
    system = messages[0]["content"].strip() if start else ""
    if tools:
        text = "<|im_start|>system\n" + TOOLS_HEAD + "".join("\n" + to_json(t) for t in tools) + TOOLS_TAIL
        spans.append((text + ("\n\n" + system if system else "") + "<|im_end|>\n", False))
    elif start:
        spans.append(("<|im_start|>system\n" + system + "<|im_end|>\n", False))
    last_query = max(i for i, m in enumerate(messages) if m["role"] == "user")
    for i in range(start, len(messages)):
        m = messages[i]
        role, content = m["role"], (m.get("content") or "").strip()
        if role == "user":
            spans.append((f"<|im_start|>user\n{content}<|im_end|>\n", False))
        elif role == "assistant":
            body = content + render_calls(m.get("tool_calls"), content) + "<|im_end|>"
            reasoning = (m.get("reasoning_content") or "").strip()
            if i < last_query:
                spans.append(("<|im_start|>assistant\n", False))
                spans.append((body, True))
            elif reasoning:
                spans.append(("<|im_start|>assistant\n<think>\n", False))
                spans.append((reasoning + "\n</think>\n\n" + body, True))
            else:
                spans.append(("<|im_start|>assistant\n<think>\n\n</think>\n\n", False))
                spans.append((body, True))
            spans.append(("\n", False))
        elif role == "tool":
            head = "<|im_start|>user" if messages[i - 1]["role"] != "tool" else ""
            tail = "<|im_end|>\n" if i + 1 == len(messages) or messages[i + 1]["role"] != "tool" else ""
            spans.append((f"{head}\n<tool_response>\n{content}\n</tool_response>{tail}", False))
    return spans


def render_prompt(messages, tools=None, thinking=True):
    """The text a generation starts from."""
    text = "".join(t for t, _ in render(messages, tools))
    return text + "<|im_start|>assistant\n" + ("<think>\n" if thinking else "<think>\n\n</think>\n\n")
