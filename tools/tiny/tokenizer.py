"""Tokenizer: trains the byte-level BPE on generated text and writes tokenizer.json in the family's form.

    python -m tools.tiny.tokenizer OUT_DIR
"""

import random
import re
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from .chat import render
from .config import CONTROL, Shape
from .dialogue import make
from .item import clean
from .skills.facts import fact
from .skills.stories import story

SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTROL = re.compile("|".join(re.escape(t) for t, _ in CONTROL))


def sample(seed=1, dialogues=30000):
    """Text the vocabulary is learnt from, without control tokens."""
    rng = random.Random(seed)
    for _ in range(dialogues):
        d = make(rng)
        yield from _CONTROL.split(clean("".join(t for t, _ in render(d.messages, d.tools))))
        yield fact(rng).answer
        if rng.random() < 0.2:
            yield story(rng)


def train(shape=Shape()):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    byte_level = dict(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False), pre_tokenizers.ByteLevel(**byte_level)])
    tok.post_processor = processors.ByteLevel(**byte_level)
    tok.decoder = decoders.ByteLevel(**byte_level)
    trainer = trainers.BpeTrainer(vocab_size=shape.base_vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=[])
    tok.train_from_iterator(sample(), trainer)
    assert tok.get_vocab_size() == shape.base_vocab
    for name, special in CONTROL:
        token = AddedToken(name, single_word=False, lstrip=False, rstrip=False, normalized=False, special=special)
        (tok.add_special_tokens if special else tok.add_tokens)([token])
    assert tok.token_to_id("<|audio_pad|>") == shape.base_vocab + len(CONTROL) - 1 < shape.vocab - 1
    return tok


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    train().save(str(out / "tokenizer.json"), pretty=True)
