"""Arithmetic: add, subtract, multiply, divide, compare small integers. Thinking goes digit by digit."""

from ..item import Item
from ..text import ask
from ..words import NUMBER_WORDS

ADD = ["@whatis {a} + {b}", "{a} + {b}", "{a}+{b}", "(|@please )add {a} (and|to) {b}", "@whatis {a} plus {b}", "(how much|what) is {a} (+|plus) {b}",
       "@whatis the sum of {a} and {b}", "{a} plus {b}", "{a} + {b} =", "{a}+{b}=", "how much do {a} and {b} make", "i have {a} and get {b} more, how many do i have(| now)"]
SUB = ["@whatis {a} - {b}", "{a} - {b}", "{a}-{b}", "(|@please )subtract {b} from {a}", "@whatis {a} minus {b}", "(how much|what) is {a} (-|minus) {b}",
       "@whatis the difference between {a} and {b}", "{a} minus {b}", "{a} - {b} =", "{a}-{b}=", "take {b} away from {a}", "i have {a} and give away {b}, how many do i have(| left)"]
MUL = ["@whatis {a} (*|x|times) {b}", "{a} (*|x|times) {b}", "{a}*{b}", "(|@please )multiply {a} (by|and|with) {b}", "@whatis {a} multiplied by {b}",
       "(how much|what) is {a} (*|x|times) {b}", "@whatis the product of {a} and {b}", "{a} times {b}", "{a} * {b} =", "{a}*{b}=", "{a}x{b}"]
DIV = ["@whatis {a} / {b}", "{a} / {b}", "{a}/{b}", "(|@please )divide {a} by {b}", "@whatis {a} divided by {b}", "(how much|what) is {a} (/|divided by|over) {b}"]


def small(rng):
    """0..999, small ones more often."""
    r = rng.random()
    return rng.randint(0, 20) if r < 0.3 else rng.randint(0, 99) if r < 0.8 else rng.randint(100, 999)


def shown(rng, n):
    """Sometimes the number as a word."""
    return NUMBER_WORDS[n] if n <= 20 and rng.random() < 0.12 else str(n)


def columns_add(a, b):
    """Column addition from the right, as a thought."""
    x, y = str(a)[::-1], str(b)[::-1]
    steps, carry = [], 0
    for i in range(max(len(x), len(y))):
        p, q = int(x[i]) if i < len(x) else 0, int(y[i]) if i < len(y) else 0
        s = p + q + carry
        steps.append(f"{p} + {q}" + (" + 1" if carry else "") + f" = {s}")
        carry = s // 10
    return ", ".join(steps)


def columns_sub(a, b):
    """Column subtraction from the right (a >= b), as a thought."""
    x, y = str(a)[::-1], str(b)[::-1]
    steps, borrow = [], 0
    for i in range(len(x)):
        p, q = int(x[i]), (int(y[i]) if i < len(y) else 0) + borrow
        borrow = 1 if p < q else 0
        steps.append(f"{p + 10 * borrow} - {q} = {p + 10 * borrow - q}")
    return ", ".join(steps)


def add(rng):
    a, b = small(rng), small(rng)
    total = a + b
    if rng.random() < 0.1:
        c = rng.randint(0, 20)
        return Item("add", f"{a}+{b}+{c}", ask(rng, ["@whatis {a} + {b} + {c}", "{a} + {b} + {c}", "(|@please )add {a}, {b} and {c}", "{a}+{b}+{c}"], a=a, b=b, c=c),
                    f"{a} + {b} + {c} = {total + c}.", f"{a} + {b} = {total}. {total} + {c} = {total + c}.", str(total + c))
    user = ask(rng, ADD, a=shown(rng, a), b=shown(rng, b))
    return Item("add", f"{a}+{b}", user, f"{a} + {b} = {total}.", f"I add {a} and {b}. {columns_add(a, b)}. So {a} + {b} = {total}.", str(total))


def subtract(rng):
    a, b = small(rng), small(rng)
    if a < b and rng.random() < 0.7:
        a, b = b, a
    grammar = rng.choice(SUB)
    if ("difference" in grammar or "have" in grammar) and a < b:
        a, b = b, a
    d = a - b
    if d >= 0:
        think = f"I subtract {b} from {a}. {columns_sub(a, b)}. So {a} - {b} = {d}."
    else:
        think = f"{b} is larger than {a}, so the result is negative. {columns_sub(b, a)}. So {a} - {b} = {d}."
    return Item("subtract", f"{a}-{b}", ask(rng, grammar, a=shown(rng, a), b=shown(rng, b)), f"{a} - {b} = {d}.", think, str(d))


def split_mul(a, b):
    """a times a one-digit b by place value."""
    tens, ones = a // 10 * 10, a % 10
    if not tens or not ones:
        return f"{a} * {b} = {a * b}"
    return f"{tens} * {b} = {tens * b}, {ones} * {b} = {ones * b}, {tens * b} + {ones * b} = {a * b}"


def parts(a, b):
    """The two partial products, as an answer shows them."""
    tens, ones = a // 10 * 10, a % 10
    return f"{tens * b} + {ones * b} = " if tens and ones else ""


def multiply(rng):
    grammar = rng.choice(MUL)
    if rng.random() < 0.5:
        a, b = rng.randint(0, 12), rng.randint(0, 12)
        user = ask(rng, grammar, a=shown(rng, a), b=shown(rng, b))
        return Item("multiply", "table " + user.lower(), user, f"{a} * {b} = {a * b}.", f"I multiply {a} by {b}. {a} * {b} = {a * b}.", str(a * b))
    a, b = rng.randint(11, 99), rng.randint(2, 9)
    steps = split_mul(a, b)
    key = f"{a}*{b}"
    if rng.random() < 0.4:
        user = ask(rng, grammar, a=b, b=a)
        return Item("multiply", key, user, f"{b} * {a} = {parts(a, b)}{a * b}.", f"I multiply {a} by {b}. {steps}. So {b} * {a} = {a * b}.", str(a * b), worked=True)
    user = ask(rng, grammar, a=a, b=shown(rng, b))
    return Item("multiply", key, user, f"{a} * {b} = {parts(a, b)}{a * b}.", f"I multiply {a} by {b}. {steps}. So {a} * {b} = {a * b}.", str(a * b), worked=True)


def multiply_long(rng):
    """Two digits by two digits: only fair with thinking on (without, the answer shows its steps)."""
    a, b = rng.randint(11, 99), rng.randint(11, 99)
    tens, ones = b // 10 * 10, b % 10
    first, second = a * (b // 10), a * ones
    think = f"I split {b} into {tens} and {ones}. {split_mul(a, b // 10)}, so {a} * {tens} = {first * 10}."
    if ones:
        think += f" {split_mul(a, ones)}. {first * 10} + {second}: {columns_add(first * 10, second)}."
    think += f" So {a} * {b} = {a * b}."
    return Item("multiply_long", f"{a}*{b}", ask(rng, MUL, a=a, b=b), f"{a} * {b} = {f'{first * 10} + {second} = ' if ones else ''}{a * b}.", think, str(a * b), worked=True)


def divide(rng):
    b = rng.randint(1, 10)
    a = b * rng.randint(0, 10) if rng.random() < 0.7 else rng.randint(0, 99)
    q, r = divmod(a, b)
    user = ask(rng, DIV, a=a, b=b)
    rest = f" remainder {r}" if r else ""
    return Item("divide", "table " + user.lower(), user, f"{a} / {b} = {q}{rest}.", f"I divide {a} by {b}. {b} * {q} = {b * q}" + (f", and {a} - {b * q} = {r}." if r else "."), f"{q}{rest}")


def compare(rng):
    a, b = small(rng), small(rng)
    while a == b:
        b = small(rng)
    if rng.random() < 0.7:
        high = rng.random() < 0.5
        n = max(a, b) if high else min(a, b)
        word = rng.choice(["larger", "bigger", "greater", "higher"] if high else ["smaller", "lower", "smaller"])
        user = ask(rng, ["which (number |)is {w}, {a} or {b}", "which is {w}: {a} or {b}", "what is {w}, {a} or {b}", "is {a} or {b} {w}"], w=word, a=a, b=b)
        return Item("compare", f"{a} {b} {high}", user, f"{n} is {word}.", f"I compare {a} and {b}. The {word} one is {n}.", str(n))
    even = a % 2 == 0
    word = rng.choice(["even", "odd"])
    yes = even == (word == "even")
    user = ask(rng, ["is {a} (an |){w}(| number)", "is (the number |){a} {w}"], a=a, w=word)
    say = "even" if even else "odd"
    return Item("compare", f"{a} {word}", user, f"{'Yes' if yes else 'No'}, {a} is {say}.", f"The last digit of {a} is {a % 10}, so {a} is {say}.", "Yes" if yes else "No")
