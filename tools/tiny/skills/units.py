"""Unit conversion with whole numbers, and the calendar."""

from ..item import Item
from ..text import ask
from ..words import DAYS, MONTHS

# unit -> (plural, short)
NAMES = {
    "km": ("kilometres", "km"), "m": ("metres", "m"), "cm": ("centimetres", "cm"), "mm": ("millimetres", "mm"),
    "kg": ("kilograms", "kg"), "g": ("grams", "g"), "t": ("tonnes", "t"), "mg": ("milligrams", "mg"),
    "h": ("hours", "h"), "min": ("minutes", "min"), "s": ("seconds", "s"), "d": ("days", "days"), "wk": ("weeks", "weeks"), "yr": ("years", "years"), "mo": ("months", "months"),
    "l": ("litres", "l"), "ml": ("millilitres", "ml"), "KB": ("kilobytes", "KB"), "byte": ("bytes", "bytes"), "eur": ("euros", "euros"), "ct": ("cents", "cents"),
    "doz": ("dozen", "dozen"), "pc": ("pieces", "pieces"), "C": ("Celsius", "C"), "F": ("Fahrenheit", "F"),
}
SPELLING = {"kilometres": "kilometers", "metres": "meters", "centimetres": "centimeters", "millimetres": "millimeters", "litres": "liters", "millilitres": "milliliters"}
# larger, smaller, factor, largest count worth asking
FACTORS = [
    ("km", "m", 1000, 99), ("m", "cm", 100, 99), ("cm", "mm", 10, 99), ("m", "mm", 1000, 20), ("kg", "g", 1000, 99), ("t", "kg", 1000, 50), ("g", "mg", 1000, 50),
    ("h", "min", 60, 24), ("min", "s", 60, 24), ("d", "h", 24, 10), ("wk", "d", 7, 20), ("yr", "mo", 12, 12), ("l", "ml", 1000, 50), ("KB", "byte", 1024, 4), ("eur", "ct", 100, 99), ("doz", "pc", 12, 12),
]
ASK = ["convert {n} {a} (to|into) {b}", "how many {b} (are|is|are in|are there in) {n} {a}", "@whatis {n} {a} in {b}", "{n} {a} in {b}", "{n} {a} to {b}", "(|@please )change {n} {a} (to|into) {b}", "(|@please )convert {n} {a} to {b}", "express {n} {a} in {b}", "how much is {n} {a} in {b}", "turn {n} {a} into {b}"]


def shown(rng, unit):
    """A unit as people write it."""
    plural, short = NAMES[unit]
    r = rng.random()
    if unit in "CF":
        return f"degrees {plural}" if r < 0.3 else plural if r < 0.6 else f"degrees {short}" if r < 0.7 else short
    if r < 0.5 or len(short) < 1:
        return short
    return SPELLING.get(plural, plural) if r < 0.7 else plural


def convert(rng):
    if rng.random() < 0.16:
        c = 5 * rng.randint(-8, 40)
        f = c * 9 // 5 + 32
        if rng.random() < 0.5:
            user = ask(rng, ASK, n=c, a=shown(rng, "C"), b=shown(rng, "F"))
            return Item("convert", "C " + user.lower(), user, f"{c} C = {f} F.", f"Fahrenheit is Celsius times 9 divided by 5, plus 32. {c} / 5 = {c // 5}. {c // 5} * 9 = {c // 5 * 9}. {c // 5 * 9} + 32 = {f}.", f"{f} F")
        user = ask(rng, ASK, n=f, a=shown(rng, "F"), b=shown(rng, "C"))
        return Item("convert", "F " + user.lower(), user, f"{f} F = {c} C.", f"Celsius is Fahrenheit minus 32, times 5, divided by 9. {f} - 32 = {f - 32}. {f - 32} / 9 = {c // 5}. {c // 5} * 5 = {c}.", f"{c} C")
    big, little, factor, limit = rng.choice(FACTORS)
    n = rng.randint(1, 10) if rng.random() < 0.4 else rng.randint(1, limit)
    down = rng.random() < 0.6
    x, a, y, b = (n, big, n * factor, little) if down else (n * factor, little, n, big)
    user = ask(rng, ASK, n=x, a=shown(rng, a), b=shown(rng, b))
    step = f"{x} * {factor} = {y}" if down else f"{x} / {factor} = {y}"
    easy = factor in (10, 100, 1000)
    key = f"{x} {a} {b}" if easy and n > 12 else "table " + user.lower()
    out = f"{x} {NAMES[a][1]} = {y} {NAMES[b][1]}."
    return Item("convert", key, user, out, f"1 {NAMES[big][1]} is {factor} {NAMES[little][1]}. {step}.", f"{y} {NAMES[b][1]}")


LENGTH = dict(zip(MONTHS, [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]))


def calendar(rng):
    """Order of days and months, days in a month, letters of the alphabet."""
    r = rng.random()
    if r < 0.6:
        names, what = rng.choice([(DAYS, "day"), (MONTHS, "month"), (list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), "letter")])
        i = rng.randrange(len(names))
        after = rng.random() < 0.6
        if what == "letter":
            i = rng.randrange(0, 25) if after else rng.randrange(1, 26)
        j = (i + (1 if after else -1)) % len(names)
        user = ask(rng, ["(what|which) {k} (comes |is |)(right |) {d} {x}", "what is the {k} {d} {x}", "(|@please )name the {k} {d} {x}", "{d} {x} comes which {k}", "what comes {d} {x}"], d="after" if after else "before", k=what, x=names[i] if rng.random() < 0.8 else names[i].lower())
        out = names[j]
        return Item("calendar", user.lower(), user, f"{out} comes {'after' if after else 'before'} {names[i]}.", f"The {what} {'after' if after else 'before'} {names[i]} is {out}.", out)
    if r < 0.8:
        m = rng.choice(MONTHS)
        user = ask(rng, ["how many days (are in|has|does) {m}( have|)", "how many days are there in {m}", "how long is {m}", "number of days in {m}"], m=m)
        extra = ", or 29 in a leap year" if m == "February" else ""
        return Item("calendar", user.lower(), user, f"{m} has {LENGTH[m]} days{extra}.", f"I recall the length of {m}: {LENGTH[m]} days.", str(LENGTH[m]))
    q, n, unit = rng.choice([("days are in a week", 7, "A week has 7 days."), ("months are in a year", 12, "A year has 12 months."), ("hours are in a day", 24, "A day has 24 hours."), ("minutes are in an hour", 60, "An hour has 60 minutes."),
                             ("seconds are in a minute", 60, "A minute has 60 seconds."), ("days are in a year", 365, "A year has 365 days, or 366 in a leap year."), ("weeks are in a year", 52, "A year has 52 weeks."), ("letters are in the alphabet", 26, "The English alphabet has 26 letters."),
                             ("seconds are in an hour", 3600, "An hour has 3600 seconds."), ("metres are in a kilometre", 1000, "A kilometre has 1000 metres."), ("grams are in a kilogram", 1000, "A kilogram has 1000 grams."), ("sides does a triangle have", 3, "A triangle has 3 sides."),
                             ("sides does a square have", 4, "A square has 4 sides."), ("legs does a spider have", 8, "A spider has 8 legs."), ("legs does a dog have", 4, "A dog has 4 legs."), ("legs does an ant have", 6, "An ant has 6 legs."), ("wheels does a bike have", 2, "A bike has 2 wheels.")])
    user = ask(rng, ["how many {q}", "(|@please )tell me how many {q}", "do you know how many {q}", "(hi, |hey, |so, |ok, )how many {q}"], q=q)
    return Item("calendar", user.lower(), user, unit, f"I know this: {unit}", str(n))
