"""What `lily bench` promises of a row, for engines that are driven from Python: the prompt's ids, a warm-up of the same shape before each
run, rounds that go back and forth, and one JSON object with what was measured."""

import argparse
import json
import pathlib


def vocabulary(model):
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    return config.get("text_config", config)["vocab_size"]


def synthetic_prompt(length, vocab):
    return [(i * 2654435761) % 2**32 % vocab for i in range(length)]


def measure(engine, contexts, decode, rounds):
    rows = [{"cached": 0, "prompt": context, "streams": 1, "runs": []} for context in contexts]
    for number in range(rounds):
        for row in rows if number % 2 == 0 else reversed(rows):
            prompt = synthetic_prompt(row["prompt"], engine.vocab)
            engine.run(prompt, decode)
            first, steps, tokens = engine.run(prompt, decode)
            row["runs"].append({"prefill_seconds": first, "decode_seconds": sum(steps), "decoded_tokens": len(steps)})
            row["tokens"] = tokens
    return rows


def main(make_engine):
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--contexts", default="256,512")
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    engine = make_engine(options.model)
    rows = measure(engine, [int(c) for c in options.contexts.split(",")], options.decode, options.rounds)
    print(json.dumps({"engine": engine.name, "rows": rows}))
