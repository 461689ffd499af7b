"""Item: one question with its answer, and the train / held-out split by key."""

import hashlib
from dataclasses import dataclass

HELDOUT_SHARE = 20  # one key in twenty is never trained on
SPLIT = {"by": "key"}  # "key": as it says; "prompt": an item with `also` is only held out if that hashes odd, too


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
    family: str = ""  # the skill the key belongs to, if not this one: what one holds out the other must not teach
    also: str = ""  # for words of the lists: the prompt; see SPLIT


LETTERS = "\x1f"  # in an answer: a token ends here (a reversed word is written letter by letter, not in the tokens of its text)


def clean(text):
    """The text without token marks."""
    return text.replace(LETTERS, "")


def number(text):
    return int.from_bytes(hashlib.md5(text.encode()).digest()[:4], "little")


def heldout(skill, key, also=""):
    """True if this exercise belongs to the held-out set."""
    held = number(f"{skill}\0{key}") % HELDOUT_SHARE == 0
    if also and SPLIT["by"] == "prompt":
        return held and number(also) % 2 == 1
    return held


def draw(make, rng, held=False):
    """Draw items from a generator until one lies on the wanted side of the split."""
    while True:
        item = make(rng)
        if heldout(item.family or item.skill, item.key, item.also) == held:
            return item
