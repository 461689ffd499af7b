"""Item: one question with its answer, and the train / held-out split by key."""

import hashlib
from dataclasses import dataclass, field

HELDOUT_SHARE = 20  # one key in twenty is never trained on


@dataclass
class Item:
    """A single-turn exercise. `key` decides the split: what must not be seen in training."""

    skill: str
    key: str
    user: str
    answer: str
    think: str
    brief: str = ""  # the bare answer; empty: same as answer
    styled: bool = True  # may be re-styled by a system prompt (upper case, JSON)
    worked: bool = False  # without thinking the answer has to show its steps, so it is never asked for bare
    tools: list = field(default_factory=list)


LETTERS = "\x1f"  # in an answer: a token ends here (a reversed word is written letter by letter, not in the tokens of its text)


def clean(text):
    """The text without token marks."""
    return text.replace(LETTERS, "")


def heldout(skill, key):
    """True if this exercise belongs to the held-out set."""
    digest = hashlib.md5(f"{skill}\0{key}".encode()).digest()
    return int.from_bytes(digest[:4], "little") % HELDOUT_SHARE == 0


def draw(make, rng, held=False):
    """Draw items from a generator until one lies on the wanted side of the split."""
    while True:
        item = make(rng)
        if heldout(item.skill, item.key) == held:
            return item
