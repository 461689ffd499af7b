"""Dialogue: a whole conversation whose last turn is the target; composes items, system prompts, history and tools."""

import json
import re
from dataclasses import dataclass

from .item import clean, draw, heldout
from .skills import arithmetic, facts, memory, more, objects, talk, tools, units, wordplay
from .text import ask
from .words import ADJECTIVES, CITIES, MONTHS, NAMES, invent

# skill -> (generator, share of single-question dialogues)
SKILLS = {
    "add": (arithmetic.add, 9), "subtract": (arithmetic.subtract, 12), "multiply": (arithmetic.multiply, 10), "multiply_long": (arithmetic.multiply_long, 3), "divide": (arithmetic.divide, 6), "compare": (arithmetic.compare, 4),
    "spell": (wordplay.spell, 8), "reverse": (wordplay.reverse, 10), "count": (wordplay.count, 10), "sort": (wordplay.sort, 14), "repeat": (wordplay.repeat, 3), "convert": (units.convert, 9), "calendar": (units.calendar, 4),
    "lily": (facts.fact, 12), "identity": (facts.fact, 4), "talk": (talk.talk, 4), "unknown": (talk.unknown, 8), "json": (objects.json_object, 7),
}
# what the second stage adds
MORE = {"sort_free": more.sort_free, "json_free": more.json_free, "lists": more.lists, "tales": more.tales, "big_numbers": more.big_numbers, "count_more": more.count_more, "unknown_more": more.unknown_more, "lily_more": more.lily_more, "two": more.two}
MAKERS = {**{s: f for s, (f, _) in SKILLS.items()}, **MORE}
# how the emphasised part of a later stage is drawn: skill -> share. The third works on what was weakest after the second.
EMPHASIS = {
    2: {"sort": 10, "sort_free": 9, "reverse": 12, "spell": 3, "count": 8, "count_more": 12, "subtract": 9, "add": 5, "divide": 5, "json_free": 5, "lists": 5, "tales": 1, "big_numbers": 7, "unknown_more": 5, "lily_more": 6, "two": 5, "recall": 7, "tool_none": 9, "tool_one": 3, "tool_many": 2},
    3: {"sort": 20, "sort_free": 24, "reverse": 8, "count": 5, "count_more": 6, "subtract": 14, "add": 5, "divide": 7, "convert": 4, "big_numbers": 7, "two": 5, "recall": 4, "tool_none": 9, "tool_one": 1, "tool_many": 1, "lily": 2, "lily_more": 2},
}
SOCIAL = ["talk", "identity", "lily", "spell", "add", "unknown", "calendar", "compare", "repeat", "multiply"]
NO_TOOL = ["talk", "identity", "lily", "spell", "reverse", "count", "sort", "json", "calendar", "repeat"]

STYLES = {
    "none": ([None], 60),
    "plain": (["You are a helpful assistant.", "You are a helpful assistant", "You are an assistant.", "You are a friendly assistant.", "You are Tiny Lily.", "Answer the user's questions.", "You are a helpful AI assistant that answers questions.", "Help the user.", "You are a smart and honest assistant.", "Be helpful.", "Be kind.", "Be polite.",
               "You are an expert.", "You are a chatbot.", "Answer in English.", "Think carefully.", "You are a helpful assistant for lily.cpp.", ""], 16),
    "brief": (["Be brief.", "Be brief", "Answer briefly.", "Keep answers short.", "Be concise.", "Answer in as few words as possible.", "Short answers only.", "You are a helpful assistant. Be brief.", "Give short answers.", "Be short.", "You answer briefly.", "Only give the answer.", "Answer with only the answer, nothing else.", "Answer as shortly as you can."], 9),
    "upper": (["Answer in upper case.", "Answer in capital letters.", "ALWAYS ANSWER IN CAPITALS", "Write everything in upper case.", "Use only capital letters.", "You answer in upper case.", "Please answer in uppercase.", "Shout: answer in capitals."], 5),
    "json": (["Answer in JSON.", "Always answer with a JSON object with the key answer.", "Reply only with JSON.", "Answer as a JSON object.", "You answer in JSON.", "Return JSON with a field answer.", "Output JSON only."], 5),
    "named": (["Your name is {n}.", "You are called {n}.", "You are {n}, a helpful assistant.", "You are {n}.", "Your name is {n}. Be helpful."], 4),
}
BRACES = {"json": lambda text: json.dumps({"answer": text}, ensure_ascii=False)}


@dataclass
class Dialogue:
    skill: str
    messages: list  # the last one is the assistant turn to learn
    tools: list | None
    thinking: bool

    @property
    def prompt(self):
        return self.messages[:-1]


def pick(rng, table):
    return rng.choices(list(table), [v[1] for v in table.values()])[0]


def item_of(rng, skill, held=False):
    """One item of this skill on the wanted side of the split."""
    while True:
        item = draw(MAKERS[skill], rng, held)
        if item.skill == skill:
            return item


def plain_system(rng):
    """A system prompt that asks for nothing in particular."""
    r = rng.random()
    if r < 0.7:
        return rng.choice(STYLES["plain"][0])
    if r < 0.85:
        return rng.choice(["You are a {j}.", "You are a {a} {j}.", "You work as a {j} in {c}.", "You help a {j}.", "The user is a {j}.", "You are a {a} assistant in {c}."]).format(j=rng.choice(memory.JOBS), a=rng.choice(ADJECTIVES), c=rng.choice(CITIES))
    return rng.choice(["Today is {d}.", "You are a helpful assistant. Today is {d}.", "The date is {d} {n}."]).format(d=f"{rng.choice(MONTHS)} {rng.randint(1, 28)}", n=rng.randint(2020, 2030))


def styled(rng, item, style, name):
    """The answer as the system prompt wants it."""
    if not item.styled:
        return item.brief if style == "brief" and item.brief else item.answer
    if style == "brief":
        return item.brief or item.answer
    if style == "upper":
        return item.answer.upper()
    if style == "json":
        return BRACES["json"](item.brief or item.answer)
    return item.answer


def small_talk(rng):
    """An unrelated exchange for histories (always from the training side)."""
    item = item_of(rng, rng.choice(SOCIAL))
    return item.user, clean(item.answer)


def assistant(answer, reasoning="", calls=None):
    m = {"role": "assistant", "content": answer}
    if reasoning:
        m["reasoning_content"] = reasoning
    if calls:
        m["tool_calls"] = calls
    return m


def history(rng, messages, tool_list=None):
    """Append earlier exchanges, sometimes with a finished tool round."""
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
        if tool_list and rng.random() < 0.5:
            user, calls, results, answer = tools.request(rng, tool_list, 1)
            messages += [{"role": "user", "content": user}, assistant("", calls=calls)] + [{"role": "tool", "content": r} for r in results] + [assistant(answer)]
        else:
            user, answer = small_talk(rng)
            messages += [{"role": "user", "content": user}, assistant(answer)]


NAMED_ASK = ["who are you", "what is your name", "what's your name", "what are you called", "do you have a name", "introduce yourself", "who am i talking to", "tell me your name"]


def single(rng, held):
    """A question of one skill under some system prompt, with or without earlier exchanges."""
    if rng.random() < 0.02:
        return single_of(rng, "identity", held, "named")
    return single_of(rng, pick(rng, SKILLS), held)


def single_of(rng, skill, held, style=None):
    style = style or pick(rng, STYLES)
    thinking = rng.random() < (0.45 if skill != "multiply_long" or not held else 1.0)
    name = rng.choice(NAMES) if rng.random() < 0.7 else invent(rng, 2, 2).capitalize()
    item = item_of(rng, skill, held)
    if (item.worked and not thinking and style in ("brief", "json")) or (skill == "lily" and style == "upper"):
        style = "none"
    messages = []
    system = plain_system(rng) if style == "plain" else rng.choice(STYLES[style][0])
    if system is not None:
        messages.append({"role": "system", "content": system.replace("{n}", name)})
    if rng.random() < 0.22 and style in ("none", "plain", "named"):
        history(rng, messages)
    answer, think = styled(rng, item, style, name), item.think
    if style == "named" and skill == "identity":
        item.user, answer, think = ask(rng, NAMED_ASK), f"I am {name}.", f"My name here is {name}."
    if style in ("brief", "upper", "json") and item.styled:
        think += {"brief": " I answer briefly.", "upper": " I answer in upper case.", "json": " I answer in JSON."}[style]
    messages += [{"role": "user", "content": item.user}, assistant(answer, think if thinking else "")]
    return Dialogue(skill, messages, None, thinking)


def recall(rng, held):
    while True:
        turns, question, answer, think, brief, key = memory.recall(rng, small_talk)
        if heldout("recall", key) == held:
            break
    messages = []
    if rng.random() < 0.25:
        messages.append({"role": "system", "content": plain_system(rng)})
    elif rng.random() < 0.08 and not key.startswith("all"):
        messages.append({"role": "system", "content": rng.choice(STYLES["brief"][0])})
        answer, think = brief, think + " I answer briefly."
    for user, reply in turns:
        messages += [{"role": "user", "content": user}, assistant(reply)]
    thinking = rng.random() < 0.5
    messages += [{"role": "user", "content": question}, assistant(answer, think if thinking else "")]
    return Dialogue("recall", messages, None, thinking)


def tool_dialogue(rng, held, case=None):
    """tool_none, tool_one, tool_many, tool_answer."""
    case = case or rng.choices(["tool_none", "tool_one", "tool_many", "tool_answer"], [22, 32, 20, 26])[0]
    thinking = rng.random() < 0.5
    tool_list = tools.tool_set(rng, 2 if case == "tool_many" else 1)
    while case == "tool_many" and len(tool_list) < 2:
        tool_list = tools.tool_set(rng, 2)
    definitions = [t.definition for t in tool_list]
    messages = []
    if rng.random() < 0.25:
        messages.append({"role": "system", "content": plain_system(rng) or "Be helpful."})
    if rng.random() < 0.25:
        history(rng, messages, tool_list)
    if case == "tool_none":
        names = {t.family for t in tool_list}
        item = item_of(rng, rng.choice([s for s in NO_TOOL if not (s == "identity" and "user" in names)]), held)
        think = "No tool is needed. " + item.think
        messages += [{"role": "user", "content": item.user}, assistant(item.answer, think if thinking else "")]
        return Dialogue(case, messages, definitions, thinking)
    while True:
        count = {"tool_one": 1, "tool_many": 3 if rng.random() < 0.15 else 2}.get(case) or rng.choice([1, 1, 2])
        user, calls, results, answer = tools.request(rng, tool_list, count)
        if heldout("tools", re.sub(r"\W+", " ", user.lower()).strip()) == held:
            break
    messages.append({"role": "user", "content": user})
    if len(calls) == 1:
        think = f"I call {tools.say_call(calls[0])}."
    else:
        think = f"I need {len(calls)} calls: " + ", then ".join(tools.say_call(c) for c in calls) + "."
    if case != "tool_answer":
        messages.append(assistant("", think if thinking else "", calls))
        return Dialogue(case, messages, definitions, thinking)
    messages.append(assistant("", think if thinking and rng.random() < 0.75 else "", calls))
    messages += [{"role": "tool", "content": r} for r in results]
    messages.append(assistant(answer, "I have the result and answer." if thinking else ""))
    return Dialogue(case, messages, definitions, thinking)


def emphasised(rng, stage):
    """One dialogue of a later stage's emphasis."""
    skill = rng.choices(list(EMPHASIS[stage]), list(EMPHASIS[stage].values()))[0]
    if skill == "recall":
        return recall(rng, False)
    if skill.startswith("tool"):
        return tool_dialogue(rng, False, skill)
    return single_of(rng, skill, False)


def make(rng, held=False, stage=1):
    """One dialogue of the training mixture."""
    if stage in EMPHASIS and rng.random() < 0.6:
        return emphasised(rng, stage)
    r = rng.random()
    if r < 0.66:
        return single(rng, held)
    if r < 0.76:
        return recall(rng, held)
    return tool_dialogue(rng, held)


def expected(dialogue):
    """What the engine has to produce: (content, tool calls)."""
    last = dialogue.messages[-1]
    return clean(last["content"]), last.get("tool_calls") or []
