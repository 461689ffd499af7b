"""Writes the held-out set: heldout.jsonl (one exercise a line) and heldout.txt (rendered conversations).

    python -m tools.tiny.heldout OUT_DIR                the shipped files
    python -m tools.tiny.heldout OUT_DIR COUNT SEED     another draw: COUNT exercises a skill, no text
"""

import json
import random
import sys
from pathlib import Path

from .chat import render, render_prompt
from .dialogue import MORE, SKILLS, expected, recall, single_of, tool_dialogue
from .item import SPLIT, clean

TOOL_CASES = ["tool_none", "tool_one", "tool_many", "tool_answer"]
COUNT = 50
SEED = 2024
TEXT_BYTES = 45000


def exercises(seed, count):
    """Held-out dialogues, `count` a skill, no prompt twice."""
    rng = random.Random(seed)
    makers = [(s, lambda s=s: single_of(rng, s, True)) for s in list(SKILLS) + list(MORE)]
    makers += [("recall", lambda: recall(rng, True))] + [(c, lambda c=c: tool_dialogue(rng, True, c)) for c in TOOL_CASES]
    for skill, make in makers:
        seen = set()
        tries = 0
        while len(seen) < count and tries < 50 * count:
            tries += 1
            d = make()
            prompt = render_prompt(d.prompt, d.tools, d.thinking)
            if prompt in seen or len(prompt) > (4500 if d.tools else 2500):
                continue
            seen.add(prompt)
            yield skill, d


def line(skill, d):
    content, calls = expected(d)
    return {"skill": skill, "enable_thinking": d.thinking, "messages": d.prompt, "tools": d.tools, "content": content, "tool_calls": calls}


def text(seed=77):
    """Held-out conversations as text, control tokens spelled out."""
    rng = random.Random(seed)
    size = 0
    while size < TEXT_BYTES:
        r = rng.random()
        d = recall(rng, True) if r < 0.15 else tool_dialogue(rng, True) if r < 0.2 else single_of(rng, rng.choice(list(SKILLS) + list(MORE)), True)
        out = clean("".join(t for t, _ in render(d.messages, d.tools)))
        size += len(out.encode())
        yield out


if __name__ == "__main__":
    SPLIT["by"] = "prompt"
    folder = Path(sys.argv[1])
    count, seed = (int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) == 4 else (COUNT, SEED)
    with open(folder / "heldout.jsonl", "w", encoding="utf-8") as f:
        for skill, d in exercises(seed, count):
            f.write(json.dumps(line(skill, d), ensure_ascii=False) + "\n")
    if len(sys.argv) == 2:
        (folder / "heldout.txt").write_text("".join(text()), encoding="utf-8")
