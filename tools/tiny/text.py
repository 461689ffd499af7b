"""Phrase grammar: `(a|b|)` picks one branch, `@name` pastes a macro, `{x}` takes a value; casing and punctuation vary."""

import re

MACROS = {
    "please": "(|||please |can you |could you |could you please |can you please |would you |i want you to |now |ok, |ok now |hey, )",
    "whatis": "(what is|what's|whats|what is|tell me what|do you know what|calculate|compute|work out)",
    "how": "(how do i|how do i|how can i|how can i|how to|how would i|how should i|what command do i use to|which command should i use to|"
    "tell me how to|i want to|i would like to|show me how to|can you tell me how to|is there a command to|what is the way to|"
    "what do i type to|what should i run to|how does one|explain how to|i need to|help me)",
    "mean": "(what is|what's|whats|explain|what does it mean,|tell me about|can you explain|what do you mean by|describe|define)",
}
_CHOICE = re.compile(r"\(([^()]*)\)")
_MACRO = re.compile(r"@([a-z]+)")
_FIELD = re.compile(r"(\{[a-z0-9_]+\})")


def expand(rng, grammar):
    """One random sentence of the grammar, fields left in place."""
    while True:
        new = _MACRO.sub(lambda m: MACROS[m.group(1)], grammar)
        new = _CHOICE.sub(lambda m: rng.choice(m.group(1).split("|")), new)
        if new == grammar:
            return re.sub(r"  +", " ", new).strip()
        grammar = new


def tidy(text):
    """Capitalise the first letter."""
    return text[:1].upper() + text[1:]


def roughen(rng, text, end="?"):
    """Vary casing and final punctuation the way people type; {fields} stay as they are."""
    r = rng.random()
    if r < 0.45:
        text = tidy(text)
    elif r < 0.49:
        text = "".join(p if _FIELD.fullmatch(p) else p.upper() for p in _FIELD.split(text))
    r = rng.random()
    if r < 0.5:
        text += end
    elif r < 0.6 and end == "?":
        text += "."
    elif r < 0.64:
        text += " " + end
    elif r < 0.66:
        text += end + end
    return text


def ask(rng, grammar, end="?", **values):
    """Expand, roughen, fill in."""
    if not isinstance(grammar, str):
        grammar = rng.choice(grammar)
    text = roughen(rng, expand(rng, grammar), end)
    for key, value in values.items():
        text = text.replace("{%s}" % key, str(value))
    return text
