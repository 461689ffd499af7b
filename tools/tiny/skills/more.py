"""What the second stage of the training adds: freer phrasing, longer numbers, lists, stories, two questions in one."""

import json

from ..item import Item, clean, draw
from ..text import ask
from ..words import ANIMALS, CITIES, COLOURS, DAYS, FOODS, MONTHS, NAMES, NUMBER_WORDS, THINGS, VERBS, WORDS
from . import arithmetic, facts, units, wordplay
from .talk import UNKNOWN


def sort_free(rng):
    """Sorting, asked for in other ways."""
    n = rng.randint(2, 6)
    if rng.random() < 0.5:
        values = rng.sample(range(rng.choice([10, 21, 100, 100, 1000])), n)
        done, kind = sorted(values), "smallest"
        grammar = ["(|@please )sort these: {t}", "(|@please )sort this list: {t}", "sort: {t}", "(|@please )sort {t} for me", "can you sort {t}", "(|@please )sort the list {t}", "what is the order of {t}", "sort {t}", "(|@please )sort [{t}]", "{t} sorted", "{t}: sort (these|them)"]
    else:
        values = rng.sample(rng.choice([ANIMALS, FOODS, THINGS, COLOURS, WORDS, NAMES]), n)
        done, kind = sorted(values, key=str.lower), "first"
        grammar = ["(|@please )sort these: {t}", "(|@please )sort this list: {t}", "sort: {t}", "(|@please )alphabetize {t}", "(|@please )put {t} in alphabetical order", "(|@please )sort {t} for me", "can you sort {t}", "sort {t}", "{t} in alphabetical order", "which comes first alphabetically: {t}", "{t}: sort (these|them)", "(|@please )sort the words {t} alphabetically"]
    grammar = rng.choice(grammar)
    text = ", ".join(map(str, values))
    if rng.random() < 0.25 and "[" not in grammar:
        text = wordplay.joined([str(v) for v in values])
    left, steps = list(values), []
    for v in done[:-1]:
        steps.append(f"{' '.join(map(str, left))}: {v}.")
        left.remove(v)
    out = str(done[0]) if "first" in grammar else ", ".join(map(str, done))
    return Item("sort_free", f"False {' '.join(map(str, values))}", ask(rng, grammar, end=rng.choice(["", ".", "?"]), t=text), out, f"I take the {kind} one each time. {' '.join(steps)} {done[-1]} is left.", styled=False, family="sort")


def json_free(rng):
    """JSON about people and things, said in sentences."""
    ask_for = "(|@please )(give me|write|make|create|show me|return|i need) (a |a small |)json( object|) (describing|for|about|of|with|representing)"
    n, a, c = rng.choice(NAMES), rng.randint(1, 99), rng.choice(CITIES)
    r = rng.random()
    if r < 0.35:
        value, tail = {"name": n, "age": a}, "(a person|someone|a user|a man|a woman|a person) (named|called|with name|with the name) {n} (who is|aged|and age|with age) {a}( years old|)"
        if rng.random() < 0.5:
            value["city"] = c
            tail += " (and lives in|who lives in|from|living in|in|and from) {c}"
    elif r < 0.55:
        value, tail = {"name": n, "city": c}, "(a person|someone|a user) (named|called) {n} (who lives in|from|living in) {c}"
    elif r < 0.8:
        p, t = rng.randint(1, 999), rng.choice(THINGS)
        value, tail = {"product": t, "price": p}, "(a|the) {t} (that costs|for|which costs|with price|with a price of) {p}( dollars| euros|)"
        return Item("json_free", f"{t} {p}", ask(rng, ask_for + " " + tail, end=rng.choice(["", "."]), t=t, p=p), json.dumps(value), f"The object has 2 fields: {', '.join(value)}.", styled=False)
    else:
        x, o = rng.choice(ANIMALS), rng.choice(COLOURS)
        value, tail = {"animal": x, "colour": o}, "(a|the) {o} {x}"
        return Item("json_free", f"{x} {o}", ask(rng, ask_for + " " + tail, end=rng.choice(["", "."]), x=x, o=o), json.dumps(value), f"The object has 2 fields: {', '.join(value)}.", styled=False)
    return Item("json_free", " ".join(map(str, value.values())), ask(rng, ask_for + " " + tail, end=rng.choice(["", "."]), n=n, a=a, c=c), json.dumps(value), f"The object has {len(value)} fields: {', '.join(value)}.", styled=False)


LISTS = {"(colors|colours)": COLOURS, "animals": ANIMALS, "(foods|things to eat)": FOODS, "cities": CITIES, "names": NAMES, "(days|days of the week)": DAYS, "(months|months of the year)": MONTHS, "verbs": VERBS, "(things|objects)": THINGS, "(numbers|number words)": NUMBER_WORDS[1:]}


def lists(rng):
    """Name a few; count up and down."""
    r = rng.random()
    if r < 0.5:
        what = rng.choice(list(LISTS))
        n = rng.randint(1, 6)
        out = ", ".join(LISTS[what][:n])
        w = what if n > 1 or "days" in what or "months" in what or "things to" in what else what
        user = ask(rng, [f"(list|name|give me|tell me|say|write) {{n}} {w}", f"(|@please )(list|name) {{n}} {w}", f"{{n}} {w}", f"can you (name|list) {{n}} {w}"], end=rng.choice(["", ".", "?"]), n=n if rng.random() < 0.4 else NUMBER_WORDS[n])
        return Item("lists", facts.plain(user), user, out, f"I name {n}.", styled=False)
    if r < 0.6:
        what, all_of = rng.choice([("the days of the week", DAYS), ("the months( of the year|)", MONTHS), ("the alphabet", list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")), ("all days", DAYS), ("all months", MONTHS)])
        user = ask(rng, f"(|@please )(list|name|say|tell me|write|what are) {what}", end=rng.choice(["", ".", "?"]))
        return Item("lists", facts.plain(user), user, ", ".join(all_of), "I know this list.", styled=False)
    a, b = (1, rng.randint(2, 20)) if rng.random() < 0.5 else (lambda x: (x, x + rng.randint(1, 12)))(rng.randint(0, 90))
    if rng.random() < 0.3:
        a = min(a, 80)
        user = ask(rng, ["(|@please )count (down|backwards) from {b} to {a}", "count back from {b} to {a}"], end=rng.choice(["", "."]), a=a, b=b)
        return Item("lists", f"down {b} {a}", user, ", ".join(map(str, range(b, a - 1, -1))), f"I count down from {b} to {a}.", styled=False)
    shown = NUMBER_WORDS[b] if b <= 20 and rng.random() < 0.5 else b
    grammar = ["(|@please )count to {b}", "(|@please )count from {a} to {b}", "can you count to {b}", "count up to {b}"] if a == 1 else ["(|@please )count from {a} to {b}", "the numbers from {a} to {b}", "(list|write|say) the numbers from {a} to {b}"]
    user = ask(rng, grammar, end=rng.choice(["", ".", "?"]), a=a, b=shown)
    return Item("lists", f"up {a} {shown}", user, ", ".join(map(str, range(a, b + 1))), f"I count from {a} to {b}.", styled=False)


TALES = [
    ("(tell|write|make up|give) (me |us |)(a|another|one|a short|a little|a nice) (story|tale|fairy tale|bedtime story)( please| about a lily| about a flower|)", "Once upon a time a small lily grew by a lake. Every morning it counted its leaves, and every evening it slept. The end."),
    ("(write|compose|make|tell|give|recite) (me |us |)(a|one|a short|a little) (haiku|poem|verse|rhyme)( please|)", "A lily is white, the lake is deep; I count to ten and fall asleep."),
    ("sing( me| us|)( a song| something|)", "La la la. I am a small model, and this is all I can sing."),
]


def tales(rng):
    grammar, answer = rng.choice(TALES)
    user = ask(rng, grammar, end=rng.choice(["", ".", "!", "?"]))
    return Item("tales", facts.plain(user), user, answer, "I know a short one.", styled=False)


def big_numbers(rng):
    """Addition and subtraction of up to four digits."""
    a, b = rng.randint(100, 9999), rng.randint(1, 9999)
    if rng.random() < 0.5:
        return Item("big_numbers", f"{a}+{b}", ask(rng, arithmetic.ADD[:10], a=a, b=b), f"{a} + {b} = {a + b}.", f"I add {a} and {b}. {arithmetic.columns_add(a, b)}. So {a} + {b} = {a + b}.", str(a + b), worked=True, family="add")
    a, b = max(a, b), min(a, b)
    return Item("big_numbers", f"{a}-{b}", ask(rng, arithmetic.SUB[:10], a=a, b=b), f"{a} - {b} = {a - b}.", f"I subtract {b} from {a}. {arithmetic.columns_sub(a, b)}. So {a} - {b} = {a - b}.", str(a - b), worked=True, family="subtract")


def count_more(rng):
    """Counting one letter, double letters above all."""
    while True:
        w = rng.choice(WORDS) if rng.random() < 0.7 else wordplay.short_word(rng)
        c = max(set(w), key=lambda x: (w.count(x), x)) if rng.random() < 0.6 else rng.choice(w)
        if len(w) > 2:
            break
    n = w.count(c)
    user = ask(rng, wordplay.COUNT_ONE + ["how many times is {c} (used |)in {w}", "how many (times|{c}s) {c} in {w}", "number of {c} in {w}", "count {c} in {w}", "how many {c}'s does {w} have", "how many {c}'s (are|are there) in {w}", "how many {c}'s (are|are there) in the word {w}"], w=w, c=c)
    steps = ", ".join(x + (f" {w[:i + 1].count(c)}" if x == c else "") for i, x in enumerate(w))
    times = "time" if n == 1 else "times"
    return Item("count_more", f"{c} {w}", user, f"{'-'.join(w)}: the letter {c} appears {n} {times}.", f"I go through {w}: {steps}. The letter {c} appears {n} {times}.", styled=False, family="count", also=wordplay.listed(w, user))


ODD_UNITS = "miles feet inches yards pounds ounces gallons acres knots stones cups pints joules watts volts amperes parsecs dollars yen light-years kelvin newtons pascals hertz tablespoons teaspoons".split()


def unknown_more(rng):
    """Units, code and texts it cannot handle."""
    if rng.random() < 0.4:
        a, b = rng.choice(ODD_UNITS), rng.choice(ODD_UNITS + ["km", "m", "kg", "g", "l", "cm", "meters", "kilometers", "litres", "grams", "kilograms"])
        if rng.random() < 0.4:
            a, b = b, a
        n = rng.randint(1, 500)
        if a == b:
            b = "km"
        user = ask(rng, units.ASK, n=n, a=a, b=b)
        return Item("unknown_more", facts.plain(user), user, "I do not know this conversion.", "I do not know these units.", "I do not know.", family="unknown")
    user = ask(rng, ["(|@please )write (me |)(a|some|a short) (python|c++|rust|java|javascript|bash|go|c) (function|program|script|code|class|loop) (to|that|which|for|that can) {v} (a {t}|the {t}|two numbers|a list|{i}s|a string|files)", "(|@please )write (some |)(code|a program|a function) (to|that can|for) {v} (a {t}|the {t}|two numbers|a list|numbers)",
                     "(|@please )(fix|debug|explain|review|improve) (this|my) code", "(|@please )(summarize|summarise|translate|proofread|rewrite) (this|the following|my) (text|article|email|paragraph|letter)", "(|@please )draw (me |)(a|the) {t}", "how do i (write|make|build) a (website|game|app|compiler|robot|web server)", "what is (the square root of {n}|{n} squared|pi|the {n}th prime number|infinity)",
                     "(solve|integrate|differentiate) (x|this equation|the equation|x squared)", "(open|start|launch) (the browser|an app|spotify|my email)", "(call|text|email) {p}", "buy (me |)a {t}", "(book|order) (a flight|a pizza|a taxi|a hotel|a table)( for me|)"], v=rng.choice(VERBS), t=rng.choice(THINGS), i=rng.choice(ANIMALS), n=rng.randint(2, 99), p=rng.choice(NAMES))
    return Item("unknown_more", facts.plain(user), user, UNKNOWN["world"][1], "I cannot do this.", "I do not know.", family="unknown")


def lily_more(rng):
    """The second stage's facts, and settings with a value in them."""
    if rng.random() < 0.6:
        return facts.about(rng, rng.choice(facts.MORE_FACTS), "lily_more")
    n = rng.randint(1024, 9999)
    k = rng.randint(1, 64)
    x = rng.choice(["0", "0.1", "0.2", "0.3", "0.5", "0.6", "0.7", "0.8", "0.9", "1", "1.2", "1.5", "2"])
    b = rng.choice(["cpu", "cuda", "metal", "reference"])
    user, answer, brief = rng.choice([
        ("@how (start|run|launch) (the|a) server on port {n}", "Run lily serve --port {n}.", "lily serve --port {n}"), ("@how (serve|run|listen) on port {n}", "Run lily serve --port {n}.", "lily serve --port {n}"),
        ("@how (use|run with|set) {k} threads", "Use --threads {k}.", "--threads {k}"), ("@how (set|change) the temperature to {x}", "Use --temperature {x}.", "--temperature {x}"), ("@how (run on|use|select|choose) the {b} backend", "Use --backend {b}.", "--backend {b}"),
        ("@how (generate|get|limit the answer to) (at most |)(|only ){k} tokens", "Use -n {k}.", "-n {k}"), ("@how (answer|handle|serve) {k} requests at (once|the same time)", "Run lily serve --slots {k}.", "lily serve --slots {k}"), ("@how (set|use|fix) (the |)seed {k}", "Use --seed {k}.", "--seed {k}"),
        ("@how (set|use) top-p (to |){x}", "Use --top-p {x}.", "--top-p {x}"), ("@how (set|use) top-k (to |){k}", "Use --top-k {k}.", "--top-k {k}"),
    ])
    values = {"n": n, "k": k, "x": x, "b": b}
    user = ask(rng, user, **values)
    for key, value in values.items():
        answer, brief = answer.replace("{%s}" % key, str(value)), brief.replace("{%s}" % key, str(value))
    return Item("lily_more", facts.plain(user), user, answer, "The user asks about a flag. I know this.", brief)


def two(rng):
    """Two small questions in one message."""
    makers = [arithmetic.add, arithmetic.multiply, wordplay.spell, units.calendar, wordplay.reverse, facts.fact, arithmetic.compare, units.convert]
    first, second = (draw(rng.choice(makers), rng) for _ in range(2))
    a, b = first.user.rstrip("?. !="), second.user.rstrip("?. !=")
    join = rng.choice([" and ", "? Then ", " and then ", ", then ", ". Then ", "? And ", ". Also, ", "? Also: ", " and also ", "; ", ". "])
    if rng.random() < 0.6:
        b = b[:1].lower() + b[1:]
    return Item("two", (a + b).lower(), a + join + b + rng.choice(["?", "", "."]), first.answer + (" " if first.answer.endswith(".") else ". ") + second.answer, f"There are two questions. {clean(first.think)} {clean(second.think)}", styled=False)
