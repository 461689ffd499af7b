"""Small JSON objects and arrays on demand."""

import json

from ..item import Item
from ..text import ask
from ..words import ADJECTIVES, ANIMALS, CITIES, COLOURS, FOODS, NAMES, THINGS, invent

FIELDS = {
    "name": lambda r: r.choice(NAMES), "age": lambda r: r.randint(1, 99), "city": lambda r: r.choice(CITIES), "colour": lambda r: r.choice(COLOURS), "color": lambda r: r.choice(COLOURS), "price": lambda r: r.randint(1, 999), "count": lambda r: r.randint(0, 50),
    "food": lambda r: r.choice(FOODS), "animal": lambda r: r.choice(ANIMALS), "title": lambda r: r.choice(THINGS), "year": lambda r: r.randint(1900, 2030), "id": lambda r: r.randint(1, 9999), "size": lambda r: r.choice(["small", "medium", "large"]), "active": lambda r: r.random() < 0.5,
    "score": lambda r: r.randint(0, 100), "friend": lambda r: r.choice(NAMES), "country": lambda r: r.choice(["France", "Italy", "Spain", "Japan", "Peru", "Kenya", "India", "Norway"]), "weight": lambda r: r.randint(1, 200), "done": lambda r: r.random() < 0.5, "user": lambda r: r.choice(NAMES).lower(),
    "mood": lambda r: r.choice(ADJECTIVES), "product": lambda r: r.choice(THINGS), "quantity": lambda r: r.randint(1, 20), "pet": lambda r: r.choice(ANIMALS), "level": lambda r: r.randint(1, 10), "code": lambda r: invent(r), "job": lambda r: r.choice(["teacher", "baker", "doctor", "farmer", "pilot"]), "status": lambda r: r.choice(["open", "closed", "ready", "late", "new"]),
}
LEAD = ["(|@please )(give|write|make|return|create|show) (me |)(a |)json (object |)with", "(|@please )(write|make|generate|create) a (small |)json object with", "json with", "(|@please )(give|return) (me |)json: ", "(|@please )make json (with|from|of|for)", "a json object with", "write as json:", "convert to json:", "turn (this |)into json:", "(|@please )put this in(to|) json:", "as json:", "i need a json object with"]


def spoken(rng, key, value, style):
    """A field as people say it."""
    shown = {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value
    return {"plain": f"{key} {shown}", "is": f"{key} is {shown}", "equals": f"{key}={shown}", "colon": f"{key}: {shown}", "quoted": f'{key} "{shown}"'}[style]


def pairs(rng, low=1, high=4):
    keys = rng.sample(list(FIELDS), rng.randint(low, high))
    return {k: FIELDS[k](rng) for k in keys}


def listed(parts, rng):
    if len(parts) == 1:
        return parts[0]
    return rng.choice([", ".join(parts[:-1]) + " and " + parts[-1], ", ".join(parts), " and ".join(parts)])


def json_object(rng):
    r = rng.random()
    style = rng.choice(["plain", "plain", "is", "equals", "colon", "quoted"])
    if r < 0.62:
        value = pairs(rng)
        text = listed([spoken(rng, k, v, style) for k, v in value.items()], rng)
        user = ask(rng, [g + " {t}" for g in LEAD], end=rng.choice(["", "", "."]), t=text)
        think = "The object has " + ("one field: " if len(value) == 1 else f"{len(value)} fields: ") + ", ".join(value) + "."
    elif r < 0.82:
        kind = rng.choice([NAMES, COLOURS, ANIMALS, FOODS, CITIES, None])
        value = rng.sample(kind, rng.randint(2, 5)) if kind else [rng.randint(0, 99) for _ in range(rng.randint(2, 6))]
        text = rng.choice([", ".join(map(str, value)), listed([str(v) for v in value], rng)])
        user = ask(rng, ["(|@please )(give|write|make|return|create) (me |)a json (array|list) (with|of) {t}", "json (array|list) (with|of) {t}", "(|@please )(make|write) an array of {t}", "(|@please )turn this into a json (array|list): {t}", "as (a |)json (array|list): {t}", "(|@please )put {t} in(to|) a json (array|list)"], end="", t=text)
        think = f"The array has {len(value)} values."
    else:
        outer, inner = rng.choice(["person", "user", "address", "item", "order", "animal", "car", "book", "house", "team", "owner", "result"]), pairs(rng, 1, 3)
        text = listed([spoken(rng, k, v, style) for k, v in inner.items()], rng)
        value = {outer: inner}
        user = ask(rng, ["(|@please )(give|write|make|return|create) (me |)a json (object |)with a nested object {o} (with|that has|holding) {t}", "json with (an object |a nested |){o} (that has|containing|holding) {t}", "(|@please )make a nested json (object |): {o} (with|containing) {t}", "nested json: {o} with {t}"], end=rng.choice(["", "."]), o=outer, t=text)
        think = f"The field {outer} holds an object with {', '.join(inner)}."
    out = json.dumps(value, ensure_ascii=False)
    return Item("json", user.lower(), user, out, think, styled=False)
