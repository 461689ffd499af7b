#!/usr/bin/env python3
"""Writes src/text/unicode_ranges.inc: what the tokenizer has to know about each code point.

The classes are those of the reference tokenizer's own regular-expression engine, asked one code point at a time, so
that our splits agree with it whatever Unicode version the system's libraries carry. The NFC part says which code
points the reference's older normalisation tables do not know. Needs the PyPI packages tokenizers and regex.

    python3 tools/unicode/ranges.py > src/text/unicode_ranges.inc
"""

import sys
import unicodedata

try:
    import regex
    import tokenizers
    from tokenizers import Regex, normalizers, pre_tokenizers
except ImportError as error:
    sys.exit(f"skipped: {error}")

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
# Blocks younger than the reference's NFC tables whose letters compose; their marks are found by asking.
YOUNG_COMPOSING_BLOCKS = [
    range(0x105C0, 0x10600),  # Todhri
    range(0x11380, 0x11400),  # Tulu-Tigalari
    range(0x11900, 0x11960),  # Dives Akuru
    range(0x16100, 0x16140),  # Gurung Khema
    range(0x16D40, 0x16D80),  # Kirat Rai
]


def reference_class(pattern):
    """Code points that match `pattern` in the reference's engine."""
    splitter = pre_tokenizers.Split(Regex(pattern), "removed")
    rest = splitter.pre_tokenize_str("".join(map(chr, CODE_POINTS)))
    return set(CODE_POINTS) - {ord(c) for piece, _ in rest for c in piece}


def nfc_inert(nfc):
    """Code points that newer tables reorder or compose, but the reference's treat as plain starters."""
    marks = [c for c in CODE_POINTS if regex.match(r"\P{ccc=0}", chr(c))]
    # A mark the reference knows changes places with a neighbour of another class: 1 and 230 bracket all others, and
    # q composes with neither.
    def moves(mark):
        return any(nfc(text) != text for text in ("q" + mark + "\u0334", "q\u0301" + mark))

    inert = {c for c in marks if not moves(chr(c))}
    for block in YOUNG_COMPOSING_BLOCKS:
        inert.update(block)
    return inert


def nfc_unsafe(nfc, inert):
    """Code points whose presence means that NFC may change a text."""
    seconds = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels and finals
    for c in CODE_POINTS:
        decomposition = unicodedata.decomposition(chr(c)).split()
        if len(decomposition) == 2 and not decomposition[0].startswith("<"):
            seconds.add(int(decomposition[1], 16))
    unsafe = {c for c in CODE_POINTS if nfc(chr(c)) != chr(c) or unicodedata.combining(chr(c)) or c in seconds}
    return unsafe - inert


def main():
    nfc = normalizers.NFC().normalize_str
    inert = nfc_inert(nfc)
    bits = {
        "L": reference_class(r"\p{L}"),
        "M": reference_class(r"\p{M}"),
        "N": reference_class(r"\p{N}"),
        "S": reference_class(r"\s"),
        "I": inert,
        "U": nfc_unsafe(nfc, inert),
    }
    flags = {c: "|".join(name for name, members in bits.items() if c in members) for c in CODE_POINTS}
    print("// Written by tools/unicode/ranges.py from tokenizers " + tokenizers.__version__ + "; do not edit.")
    print("// {first, last, flags}: letter, mark, number, space, NFC-inert, NFC-unsafe.")
    print("// clang-format off")
    first = 0
    for c in range(1, 0x110001):
        if flags.get(c, "") != flags.get(first, "") or c == 0x110000:
            if flags.get(first):
                print(f"{{0x{first:X}, 0x{c - 1:X}, {flags[first]}}},")
            first = c
    print("// clang-format on")


if __name__ == "__main__":
    main()
