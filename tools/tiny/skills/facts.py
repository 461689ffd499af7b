"""Questions about lily.cpp and about the model itself, from facts.txt."""

import re
from pathlib import Path

from ..item import Item
from ..text import ask

SUBJECT = ["@mean {x}", "@mean {x}", "what is {x}", "{x}", "what does {x} mean", "(can you |please |)explain {x}( to me|)", "tell me (something |more |)about {x}", "what do you know about {x}",
           "(i do not|i don't) understand {x}", "(hi, |hello, |hey, |so, |ok, )what is {x}", "what exactly is {x}", "give me a (short |)(definition|explanation) of {x}"]
ABOUT_LILY = ["", "", "", "", "", "", " in lily", " in lily.cpp", " with lily", " with lily.cpp"]
LEAD = ["", "", "", "", "", "", "", "", "hi, ", "hello, ", "hey, ", "ok, ", "so ", "and ", "please tell me: ", "question: ", "one question: ", "tell me, "]


class Fact:
    def __init__(self, name):
        self.name, self.questions, self.answer, self.brief = name, [], "", ""


def load(path=Path(__file__).parent.parent / "facts.txt"):
    """Parse facts.txt: (facts of both stages, facts of the second stage)."""
    facts, later = [], 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            facts.append(Fact(line[3:].strip()))
        elif line.startswith("# ---- second stage"):
            later = len(facts)
        elif line.startswith("? "):
            facts[-1].questions.append((line[2:], None))
        elif line.startswith("* "):
            facts[-1].questions.append((None, line[2:].split("|")))
        elif line.startswith("= "):
            facts[-1].answer = line[2:]
        elif line.startswith("- "):
            facts[-1].brief = line[2:]
    return facts[:later], facts[later:]


FACTS, MORE_FACTS = load()
SELF = {"who", "human", "other_model", "can_do", "cannot_do", "size", "training", "where_stored", "languages"}


def plain(text):
    """A question without casing and punctuation at its ends: what the split goes by."""
    return re.sub(r"\s+", " ", text.lower()).strip(" ?.!")


def fact(rng):
    return about(rng, rng.choice(FACTS))


def about(rng, f, skill=None):
    """A question about this fact."""
    grammar, subjects = rng.choice(f.questions)
    if subjects:
        user = ask(rng, SUBJECT, x=rng.choice(subjects))
    else:
        user = ask(rng, rng.choice(LEAD) + "(" + grammar + ")" if "@" not in grammar else grammar + "{tail}", tail=rng.choice(ABOUT_LILY))
    skill = skill or ("identity" if f.name in SELF else "lily")
    topic = f.name.replace("_", " ")
    return Item(skill, plain(user), user, f.answer, f"The user asks about {topic}. I know this.", f.brief)
