"""Letters and words: spell, reverse, count, sort, repeat."""

from ..item import LETTERS, Item
from ..text import ask
from ..words import ANIMALS, COLOURS, FOODS, NAMES, THINGS, WORDS, word

KNOWN = set(WORDS) | {n.lower() for n in NAMES}
SPELL = ["(|@please )spell {w}", "(|@please )spell (the word |out |){w}", "how (do|would) you spell {w}", "how is {w} spelled", "spell {w} for me", "(can|could) you spell {w}",
         "spell the word {w} letter by letter", "what are the letters (of|in) {w}", "(|@please )spell \"{w}\"", "(|@please )spell '{w}'", "spelling of {w}", "(|@please )spell: {w}"]
REVERSE = ["(|@please )reverse {w}", "(|@please )reverse (the word |the string |){w}", "(|@please )write {w} backwards", "what is {w} backwards", "what is {w} (spelled |)(backwards|in reverse|reversed)",
           "spell {w} backwards", "(|@please )reverse \"{w}\"", "say {w} backwards", "(|@please )turn {w} around", "(|@please )reverse the letters (of|in) {w}", "{w} backwards", "(|@please )reverse: {w}"]
COUNT_ALL = ["how many letters (are in|are there in|does) {w}( have|)", "how many letters (are|are there) in (the word |){w}", "how many letters has {w}", "(|@please )count the letters (in|of) {w}", "(|@please )count the letters in \"{w}\"",
             "number of letters in {w}", "how long is the word {w}", "what is the length of {w}"]
COUNT_ONE = ["how many times does (the letter |){c} (appear|occur) in {w}", "how many {c}'s are (there |)in {w}", "how many {c} are (there |)in {w}", "(|@please )count the letter {c} in {w}", "how often does {c} (appear|occur) in {w}",
             "how many (letters |letter |){c} (are in|does) {w}( have|)", "count the {c}'s in {w}", "how many {c}s in {w}", "how many {c}'s are in the word {w}", "how many \"{c}\" in \"{w}\""]


def joined(names, last="and"):
    """a, b and c"""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" {last} {names[-1]}"


def listed(w, user):
    """For a word of the lists, which people will ask about: the prompt."""
    return " ".join(user.lower().split()).strip(" ?.!") if w.lower() in KNOWN else ""


def short_word(rng, limit=12):
    while True:
        w = word(rng)
        if 2 <= len(w) <= limit:
            return w


def spell(rng):
    w = short_word(rng)
    r = rng.random()
    w = w.capitalize() if r < 0.12 else w.upper() if r < 0.15 else w
    out = "-".join(w)
    user = ask(rng, SPELL, w=w)
    return Item("spell", w.lower(), user, out, f"I spell {w} letter by letter: {' '.join(w)}. That is {len(w)} letters.", styled=False, also=listed(w, user))


def reverse(rng):
    w = short_word(rng, 10)
    w = w.capitalize() if rng.random() < 0.08 else w
    out = LETTERS.join(w[::-1])
    user = ask(rng, REVERSE, w=w)
    return Item("reverse", w.lower(), user, out, f"The letters of {w} are {' '.join(w)}. Backwards they are {' '.join(w[::-1])}.", styled=False, also=listed(w, user))


def count(rng):
    """Letters of a word, one letter in a word, words of a sentence, items of a list."""
    r = rng.random()
    if r < 0.35:
        w = short_word(rng)
        steps = ", ".join(f"{c} {i + 1}" for i, c in enumerate(w))
        user = ask(rng, COUNT_ALL, w=w)
        return Item("count", "all " + w, user, f"{'-'.join(w)}: {len(w)} letters.", f"I count the letters of {w}: {steps}. That is {len(w)}.", styled=False, also=listed(w, user))
    if r < 0.65:
        w = short_word(rng)
        c = rng.choice(w) if rng.random() < 0.85 else rng.choice("abcdefghijklmnoprstuvwyz")
        n = w.count(c)
        steps = ", ".join(x + (f" {w[:i + 1].count(c)}" if x == c else "") for i, x in enumerate(w))
        times = "time" if n == 1 else "times"
        user = ask(rng, COUNT_ONE, w=w, c=c)
        return Item("count", f"{c} {w}", user, f"{'-'.join(w)}: the letter {c} appears {n} {times}.", f"I go through {w}: {steps}. The letter {c} appears {n} {times}.", styled=False, also=listed(w, user))
    if r < 0.82:
        n = rng.randint(2, 9)
        words = [rng.choice(WORDS) for _ in range(n)]
        text = " ".join(words)
        steps = ", ".join(f"{x} {i + 1}" for i, x in enumerate(words))
        user = ask(rng, ["how many words (are|are there) in \"{t}\"", "(|@please )count the words: {t}", "(|@please )count the words in \"{t}\"", "how many words are in this sentence: {t}", "how many words: {t}"], end=rng.choice(["", "?"]), t=text)
        return Item("count", "words " + text, user, f"There are {n} words.", f"I count the words: {steps}. That is {n}.", str(n))
    n = rng.randint(2, 8)
    things = rng.sample(rng.choice([ANIMALS, FOODS, THINGS, COLOURS, NAMES]), n)
    text = rng.choice([", ".join(things), joined(things)])
    steps = ", ".join(f"{x} {i + 1}" for i, x in enumerate(things))
    user = ask(rng, ["how many (items|things) are in (this list|the list): {t}", "(|@please )count (the items|these|the items in this list): {t}", "how many (items|things): {t}"], end=rng.choice(["", "?"]), t=text)
    return Item("count", "items " + text, user, f"There are {n} items.", f"I count the items: {steps}. That is {n}.", str(n))


def sort(rng):
    """Numbers up or down, words alphabetically."""
    n = rng.randint(2, 6)
    down = rng.random() < 0.3
    if rng.random() < 0.5:
        top = rng.choice([9, 20, 99, 99, 999])
        values = rng.sample(range(top + 1), n)
        done = sorted(values, reverse=down)
        text = rng.choice([", ", ", ", " ", ","]).join(map(str, values))
        how = rng.choice(["from largest to smallest", "in descending order", "from high to low", "descending", "from biggest to smallest"] if down else
                         ["from smallest to largest", "in ascending order", "from low to high", "", "", "in order", "ascending"])
        user = ask(rng, ["(|@please )sort (these numbers |the numbers |){h}: {t}", "(|@please )order (these numbers |){h}: {t}", "(|@please )sort {t} {h}", "(|@please )put (these numbers |)in order {h}: {t}" if not h_order(how) else "(|@please )put these numbers {h}: {t}",
                         "(|@please )arrange {t} {h}"], end="", h=how, t=text)
        out = ", ".join(map(str, done))
        kind = "largest" if down else "smallest"
    else:
        values = rng.sample(rng.choice([ANIMALS, FOODS, THINGS, COLOURS, WORDS, WORDS, NAMES]), n)
        done = sorted(values, reverse=down, key=str.lower)
        text = rng.choice([", ", ", ", " ", ","]).join(values)
        how = rng.choice(["in reverse alphabetical order", "from z to a", "alphabetically in reverse"] if down else ["alphabetically", "in alphabetical order", "", "from a to z", "by alphabet"])
        user = ask(rng, ["(|@please )sort (these words |the words |){h}: {t}", "(|@please )sort {t} {h}", "(|@please )order (these words |){h}: {t}", "(|@please )put these words in (the right |)order {h}: {t}" if not h_order(how) else "(|@please )put these words {h}: {t}",
                         "(|@please )arrange {t} {h}"], end="", h=how, t=text)
        out = ", ".join(done)
        kind = "last" if down else "first"
    user = " ".join(user.replace(" :", ":").split(" ")).replace("  ", " ").strip()
    left, steps = list(values), []
    for v in done[:-1]:
        steps.append(f"{' '.join(map(str, left))}: {v}.")
        left.remove(v)
    think = f"I take the {kind} one each time. {' '.join(steps)} {done[-1]} is left."
    return Item("sort", f"{down} " + " ".join(map(str, values)), user, out, think, styled=False)


def h_order(how):
    return how.startswith("in ")


def repeat(rng):
    """Say back what was given."""
    n = rng.randint(1, 6)
    words = [word(rng) if rng.random() < 0.3 else rng.choice(WORDS) for _ in range(n)]
    if rng.random() < 0.3:
        words.append(str(rng.randint(0, 999)))
    text = " ".join(words)
    if rng.random() < 0.3:
        text = text.capitalize() + rng.choice([".", "!", ""])
    user = ask(rng, ["(|@please )repeat after me: {t}", "(|@please )repeat: {t}", "(|@please )say: {t}", "(|@please )say \"{t}\"", "(|@please )repeat this: {t}", "(|@please )echo {t}", "(|@please )write: {t}", "(|@please )copy this text: {t}"], end="", t=text)
    return Item("repeat", text.lower(), user, text, f"The user wants me to say: {text}", styled=False)
