"""Recall: what was said earlier in the conversation, with other talk in between."""

from ..text import ask
from ..words import ANIMALS, CITIES, COLOURS, FOODS, NAMES, THINGS, invent
from .facts import plain

JOBS = "teacher baker doctor farmer painter writer driver pilot sailor nurse cook engineer lawyer student singer plumber dentist gardener".split()


def name(rng):
    return rng.choice(NAMES) if rng.random() < 0.6 else invent(rng, 2, 3).capitalize()


# kind: (value, tellings, acknowledgement, questions, answer)
KINDS = {
    "name": (name, ["(hi, |hello, |hey, |)my name is {v}", "i am {v}", "(hi, |hello, |hey, |)i'm {v}", "call me {v}", "(hi, |hello, |)i am called {v}", "please call me {v}", "you can call me {v}"], "Nice to meet you, {v}.",
             ["what is my name", "what's my name", "who am i", "do you (remember|know) my name", "what did i say my name was", "tell me my name", "whats my name", "(ok, |so |and |)what is my name( again|)", "say my name", "what am i called", "can you tell me my name", "do you know who i am", "do you remember me"], "Your name is {v}."),
    "colour": (lambda r: r.choice(COLOURS), ["my favourite colour is {v}", "my favorite color is {v}", "i like the colour {v} (best|most)", "{v} is my favourite colour", "i love the color {v}"], "I will remember that your favourite colour is {v}.",
               ["what is my favourite colour", "what's my favorite color", "which colour do i like( best| most|)", "do you (remember|know) my favourite colour", "(so |and |)what colour do i like", "what is my favorite color", "tell me my favourite colour", "what colour did i say i like"], "Your favourite colour is {v}."),
    "city": (lambda r: r.choice(CITIES), ["i live in {v}", "my home is in {v}", "i am from {v}", "i'm from {v}", "i come from {v}", "(my city is|my home town is) {v}", "i moved to {v}"], "I will remember that you live in {v}.",
             ["where do i live", "where am i from", "what city do i live in", "do you (remember|know) where i live", "which city am i from", "in which city do i live", "where is my home", "(so |and |)where do i live", "tell me where i live"], "You live in {v}."),
    "age": (lambda r: str(r.randint(5, 99)), ["i am {v} years old", "i'm {v}( years old|)", "my age is {v}", "i turned {v}( today| last week|)"], "I will remember that you are {v} years old.",
            ["how old am i", "what is my age", "do you (remember|know) how old i am", "what's my age", "tell me my age", "(so |and |)how old am i"], "You are {v} years old."),
    "food": (lambda r: r.choice(FOODS), ["my favourite food is {v}", "my favorite food is {v}", "i (love|like) to eat {v}", "i like {v} (best|most)", "{v} is my favourite food"], "I will remember that your favourite food is {v}.",
             ["what is my favourite food", "what's my favorite food", "what do i like to eat", "do you (remember|know) my favourite food", "what food do i like( best| most|)", "tell me my favourite food"], "Your favourite food is {v}."),
    "animal": (lambda r: r.choice(ANIMALS), ["my favourite animal is (the |a |){v}", "my favorite animal is the {v}", "i like the {v} most of all animals"], "I will remember that your favourite animal is the {v}.",
               ["what is my favourite animal", "what's my favorite animal", "which animal do i like( best| most|)", "do you (remember|know) my favourite animal"], "Your favourite animal is the {v}."),
    "number": (lambda r: str(r.randint(0, 9999)), ["my lucky number is {v}", "remember the number {v}", "my number is {v}", "the number is {v}", "keep the number {v} in mind", "please remember (this number: |){v}", "i am thinking of the number {v}"], "I will remember the number {v}.",
               ["what is my (lucky |)number", "what's the number", "which number did i (say|tell you|give you)", "what number should you remember", "do you (remember|know) the number", "what was the number", "tell me the number", "what number did i tell you"], "The number is {v}."),
    "code": (lambda r: invent(r, 2, 3) if r.random() < 0.6 else r.choice(THINGS), ["the (secret |)(password|code word) is {v}", "remember the word {v}", "my (password|code word) is {v}", "the magic word is {v}", "please remember the word {v}", "keep the word {v} in mind"], "I will remember the word {v}.",
             ["what is the (password|code word|magic word|secret word|word)", "what's the (password|code word|word)", "which word did i (say|tell you|give you)", "what word should you remember", "do you (remember|know) the (word|password)", "what was the (word|password|code word)", "tell me the (word|password)"], "The word is {v}."),
    "pet": (lambda r: r.choice(["dog", "cat", "horse", "rabbit", "parrot", "turtle", "goat", "snake"]), ["i have a {v}", "my pet is a {v}", "i own a {v}", "i got a {v}( for my birthday| last year|)", "there is a {v} in my house"], "I will remember that you have a {v}.",
            ["what pet do i have", "which animal do i have", "what kind of pet do i have", "do you (remember|know) what pet i have", "what pet do i own", "which pet do i have"], "You have a {v}."),
    "petname": (name, ["my (dog|cat|horse|pet|rabbit) is called {v}", "the name of my (dog|cat|pet|horse) is {v}", "my pet's name is {v}"], "I will remember that your pet is called {v}.",
                ["what is my pet called", "what is the name of my (pet|dog|cat)", "what's my pet's name", "how is my pet called", "do you remember the name of my pet", "what is my (dog|cat|horse) called"], "Your pet is called {v}."),
    "job": (lambda r: r.choice(JOBS), ["i work as a {v}", "i am a {v}", "my job is {v}", "i'm a {v}", "i earn my money as a {v}"], "I will remember that you work as a {v}.",
            ["what is my job", "what's my job", "what do i work as", "do you (remember|know) my job", "what do i do for a living", "what is my profession"], "You work as a {v}."),
    "friend": (name, ["my (best |)friend is (called |){v}", "my friend's name is {v}", "{v} is my (best |)friend"], "I will remember that your friend is {v}.",
               ["who is my (best |)friend", "what is my friend's name", "what is my friend called", "do you (remember|know) my friend", "what is the name of my (best |)friend"], "Your friend is {v}."),
}


def tell(rng, kind):
    """One telling: (user, assistant, value)."""
    value, tellings, acknowledge, _, _ = KINDS[kind]
    v = value(rng)
    return ask(rng, tellings, end=rng.choice([".", "", "!"]), v=v), acknowledge.format(v=v), v


def recall(rng, small_talk):
    """A conversation that ends in a question about it; `small_talk(rng)` gives an unrelated (user, assistant).

    Returns (turns, question, answer, think, brief, key); turns are (user, assistant) pairs.
    """
    if rng.random() < 0.08:  # told and asked in one breath
        kind = rng.choice(list(KINDS))
        user, _, v = tell(rng, kind)
        question = ask(rng, KINDS[kind][3])
        answer = KINDS[kind][4].format(v=v)
        return [], user.rstrip(".!") + rng.choice([". ", ". ", ", ", "! "]) + question, answer, f"The user just told me: {answer[0].lower() + answer[1:]}", v, f"breath {kind} {v} {plain(question)}"
    kinds = rng.sample(list(KINDS), rng.randint(1, 4))
    turns, known = [], {}
    for kind in kinds:
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 3])):
            turns.append(small_talk(rng))
        user, reply, v = tell(rng, kind)
        known[kind] = v
        if rng.random() < 0.12:  # two facts in one message
            other = rng.choice([k for k in KINDS if k not in kinds])
            more, reply2, v2 = tell(rng, other)
            user, reply, known[other] = user.rstrip(".!") + " and " + more, reply + " " + reply2, v2
        turns.append((user, reply))
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3, 4])):
        turns.append(small_talk(rng))
    r = rng.random()
    if r < 0.08 and turns:
        said = turns[-1][0]
        question = ask(rng, ["what did i just say", "what was my last message", "what did i (say|ask|write) before", "repeat my last message", "what was my last question", "what did i just (ask|write|tell you)"])
        return turns, question, f"You said: {said}", f"The last message of the user was: {said}", said, "last " + said
    if r < 0.13 and turns:
        said = turns[0][0]
        question = ask(rng, ["what was my first message", "what did i say first", "what was the first thing i (said|wrote|asked)", "how did i start this conversation"])
        return turns, question, f"You said: {said}", f"The first message of the user was: {said}", said, "first " + said
    if r < 0.26:
        kind = rng.choice([k for k in KINDS if k not in known])
        question = ask(rng, KINDS[kind][3])
        return turns, question, "I do not know. You have not told me.", "The user has not told me this. I cannot know it.", "I do not know.", f"none {' '.join(map(str, known.values()))} {plain(question)}"
    if r < 0.34 and len(known) > 1:
        pick = list(known)[:3]
        question = ask(rng, ["what do you know about me", "what have i told you( about me| so far|)", "what do you remember( about me|)", "summarize what i told you", "tell me what you know about me"])
        answer = " ".join(KINDS[k][4].format(v=known[k]) for k in pick)
        return turns, question, answer, f"The user told me: {', '.join(known[k] for k in pick)}.", answer, f"all {' '.join(map(str, known.values()))} {plain(question)}"
    kind = rng.choice(list(known))
    v = known[kind]
    if rng.random() < 0.08:  # changed later on
        user, reply, v = tell(rng, kind)
        turns.append((user, reply))
    question = ask(rng, KINDS[kind][3])
    answer = KINDS[kind][4].format(v=v)
    return turns, question, answer, f"The user told me earlier: {answer[0].lower() + answer[1:]}", v, f"{kind} {v} {plain(question)}"
