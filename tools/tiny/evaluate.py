"""Exact match per skill on heldout.jsonl, greedy decoding.

    python -m tools.tiny.evaluate MODEL_DIR                       with model.py on the shipped (dequantised) weights
    python -m tools.tiny.evaluate MODEL_DIR --lily PATH [--args]  through `lily run --ids`
    python -m tools.tiny.evaluate MODEL_DIR --url URL             through the OpenAI-style server at URL, e.g. http://127.0.0.1:8080

An exercise counts if the content (without reasoning, trimmed) and the tool calls are exactly the expected ones.
"""

import argparse
import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .chat import render_prompt, to_json
from .config import Shape

CALL = re.compile(r"<tool_call>\s*<function=([^>\n]+)>\s*(.*?)</function>\s*</tool_call>", re.S)
PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.S)
NEW_TOKENS = 260


def parse(text, thinking):
    """Generated text -> (content, [(name, {key: value as text})])."""
    if thinking:
        text = text.split("</think>", 1)[1] if "</think>" in text else ""
    calls = [(name, dict(PARAMETER.findall(body))) for name, body in CALL.findall(text)]
    return CALL.sub("", text).strip(), calls


def as_text(value):
    return value if isinstance(value, str) else to_json(value)


def wanted(e):
    return e["content"], [(c["name"], {k: as_text(v) for k, v in c["arguments"].items()}) for c in e["tool_calls"]]


def by_torch(exercises, folder, device):
    """All exercises at once with decode.py."""
    import torch
    from tokenizers import Tokenizer

    from .decode import generate
    from .export import load
    from .model import effective

    shape = Shape()
    torch.set_float32_matmul_precision("highest")
    tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
    w = effective({k: v.to(device) for k, v in load(folder, shape).items()}, torch.float32, False)
    prompts = [tok.encode(prompt_of(e)).ids for e in exercises]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    out = [None] * len(prompts)
    stop = [shape.control_id("<|im_end|>"), shape.control_id("<|endoftext|>")]
    batch = 512 if device == "cuda" else 16
    for at in range(0, len(order), batch):
        some = order[at : at + batch]
        for i, ids in zip(some, generate(w, shape, [prompts[i] for i in some], NEW_TOKENS, stop, device, tok.get_vocab_size())):
            out[i] = parse(tok.decode(ids, skip_special_tokens=False), exercises[i]["enable_thinking"])
    return out


def prompt_of(e):
    return render_prompt(e["messages"], e["tools"], e["enable_thinking"])


def by_lily(exercises, folder, lily, extra, workers):
    """One `lily run` per exercise, token ids in and out."""
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
    stop = {Shape().control_id("<|im_end|>"), Shape().control_id("<|endoftext|>")}

    def one(e):
        ids = ",".join(map(str, tok.encode(prompt_of(e)).ids))
        done = subprocess.run([lily, "run", str(folder), "--ids", ids, "-n", str(NEW_TOKENS), "--print-ids", "--temperature", "0"] + extra, capture_output=True, text=True, check=True)
        new = [int(x) for x in re.findall(r"\d+", done.stdout)]
        new = new[: next((i for i, x in enumerate(new) if x in stop), len(new))]
        return parse(tok.decode(new, skip_special_tokens=False), e["enable_thinking"])

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, exercises))


def for_openai(messages):
    """Messages with tool calls in OpenAI's form."""
    out, pending = [], []
    for m in messages:
        m = dict(m)
        if m.get("tool_calls"):
            pending = [f"call_{len(out)}_{i}" for i in range(len(m["tool_calls"]))]
            m["tool_calls"] = [{"id": i, "type": "function", "function": {"name": c["name"], "arguments": to_json(c["arguments"])}} for i, c in zip(pending, m["tool_calls"])]
        if m["role"] == "tool":
            m["tool_call_id"] = pending.pop(0) if pending else "call"
        out.append(m)
    return out


def by_server(exercises, url, workers):
    def one(e):
        body = {"model": "tiny", "messages": for_openai(e["messages"]), "temperature": 0, "max_tokens": NEW_TOKENS, "chat_template_kwargs": {"enable_thinking": e["enable_thinking"]}}
        if e["tools"]:
            body["tools"] = e["tools"]
        request = urllib.request.Request(url.rstrip("/") + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                m = json.load(answer)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}: {error.read().decode()}", []
        calls = [(c["function"]["name"], {k: as_text(v) for k, v in json.loads(c["function"]["arguments"]).items()}) for c in m.get("tool_calls") or []]
        return (m.get("content") or "").strip(), calls

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, exercises))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lily")
    parser.add_argument("--url")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--limit", type=int, default=1000, help="exercises per skill")
    parser.add_argument("--skill", help="only skills that start with this")
    parser.add_argument("--wrong", type=int, default=3, help="wrong answers to show per skill")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--heldout", type=Path, help="another file of exercises")
    args, extra = parser.parse_known_args()
    counts, exercises = defaultdict(int), []
    for text in (args.heldout or args.folder / "heldout.jsonl").read_text(encoding="utf-8").splitlines():
        e = json.loads(text)
        counts[e["skill"]] += 1
        if counts[e["skill"]] <= args.limit and e["skill"].startswith(args.skill or ""):
            exercises.append(e)
    began = time.time()
    if args.url:
        got = by_server(exercises, args.url, args.workers)
    elif args.lily:
        got = by_lily(exercises, args.folder, args.lily, extra, args.workers)
    else:
        got = by_torch(exercises, args.folder, args.device)
    table = defaultdict(lambda: {True: [0, 0], False: [0, 0]})
    wrong = defaultdict(list)
    for e, g in zip(exercises, got):
        cell = table[e["skill"]][e["enable_thinking"]]
        cell[1] += 1
        if tuple(g) == wanted(e):
            cell[0] += 1
        else:
            wrong[e["skill"]].append((e, g))
    for skill, cases in wrong.items():
        for e, g in cases[: args.wrong]:
            print(f"[{skill}, thinking {'on' if e['enable_thinking'] else 'off'}] {e['messages'][-1]['content'][:160]!r}\n    wanted {wanted(e)}\n    got    {g}")
    total = [0, 0]
    result = {}
    print("| skill | thinking on | thinking off | exact match |\n|---|---|---|---|")
    for skill, cell in table.items():
        right, n = cell[True][0] + cell[False][0], cell[True][1] + cell[False][1]
        total = [total[0] + right, total[1] + n]
        result[skill] = [right, n]
        print(f"| {skill} | {cell[True][0]}/{cell[True][1]} | {cell[False][0]}/{cell[False][1]} | {100 * right / n:.1f} % |")
    print(f"| all | | | {100 * total[0] / total[1]:.1f} % of {total[1]} |")
    print(f"{time.time() - began:.0f} s")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
