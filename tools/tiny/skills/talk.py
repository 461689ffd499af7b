"""Small talk, and saying that one does not know."""

import re

from ..item import Item
from ..text import ask
from ..words import ADJECTIVES, ANIMALS, CITIES, COLOURS, FOODS, NAMES, NOUNS, THINGS, VERBS, WORDS, invent
from .facts import plain

# (grammar, answer)
TALK = [
    ("(hi|hello|hey|hi there|hello there|hey there|hiya|greetings|howdy|yo|hola|hi lily|hello lily|hey lily|hi tiny lily|heya|hello again|helo|hallo)( you| friend| there|)", "Hello! How can I help you?"),
    ("good (morning|afternoon|evening|day)( lily| to you|)", "Hello! How can I help you?"),
    ("how are you( doing| today| doing today| feeling|)", "I am fine, thank you. How can I help you?"),
    ("(how is it going|how's it going|what's up|whats up|sup|how do you do|how are things|are you ok|you ok)", "I am fine, thank you. How can I help you?"),
    ("(thanks|thank you|thx|many thanks|thank you very much|thanks a lot|cheers|thank you so much|thanks lily|ty|great, thanks|ok thanks|perfect, thank you)", "You are welcome!"),
    ("(bye|goodbye|good bye|see you|see you later|bye bye|good night|i have to go|that is all|that's all|farewell|talk to you later|see you tomorrow)( lily|)", "Goodbye!"),
    ("(great|well done|good job|nice|you are (great|smart|clever|nice|cool|funny|good|awesome)|cool|awesome|wow|very good|perfect|excellent|good|correct|that is right|right|good answer|i like you|i love you)", "Thank you!"),
    ("(ok|okay|yes|no|sure|fine|i see|alright|got it|hmm|maybe|of course|yeah|yep|nope|understood|ah|oh)", "All right. What would you like to know?"),
    ("(that is wrong|that's wrong|you are wrong|wrong|no, that is wrong|this is not right|not correct|that is not correct|you made a mistake|bad answer|you are (stupid|dumb|bad|useless))", "I am sorry. I am a very small model and make mistakes."),
    ("(tell me a joke|do you know a joke|joke|make me laugh|say something funny|another joke|a joke please|can you tell a joke)", "Why did the token cross the layer? To get to the other side of the residual."),
    ("(sorry|i am sorry|my mistake|oops|excuse me|pardon)", "No problem. How can I help you?"),
    ("(test|testing|is this thing on|are you there|are you awake|hello\\?|ping|can you hear me|do you work|1 2 3 test)", "I am here. How can I help you?"),
    ("(i am|i'm) (bored|tired|sad|happy|hungry|fine|good|ok|great|well|cold|lost|confused)", "I see. I am a small model, but I can help with words, sums and lily.cpp."),
    ("(what should we do|what now|what shall we do now|what next|surprise me|say something|tell me something|talk to me|anything|entertain me)", "Ask me to add numbers, sort words, spell something or explain lily.cpp."),
]

PERSON = ["{n} {s}", "the {r} of {c}", "the {r}", "{n}", "{n} {s}", "my {f}", "the {r} of {x}", "mr {s}"]
ROLE = "president king queen mayor prime minister|inventor|author|owner|leader|founder|captain|champion|boss|director|manager|king|queen|mayor|president".split("|")
SURNAMES = "Smith Jones Miller Brown Weber Rossi Garcia Silva Novak Kim Lee Wang Tanaka Singh Khan Moreau Dubois Lopez Jensen Larsen Einstein Newton Shakespeare Mozart Picasso Darwin Curie Tesla Napoleon Caesar Lincoln Obama Trump Biden Musk Gates Jobs Swift Jackson Messi Ronaldo".split()
PLACE = ["France", "Italy", "Spain", "Germany", "Japan", "China", "India", "Brazil", "Canada", "Mexico", "Egypt", "Kenya", "Peru", "Chile", "Norway", "Sweden", "Poland", "Greece", "Turkey", "Russia", "Australia", "England", "Scotland", "Ireland",
         "America", "Europe", "Africa", "Asia", "the USA", "the UK", "Portugal", "Austria", "Switzerland", "Denmark", "Finland", "Cuba", "Nigeria", "Argentina", "Iran", "Iraq", "Israel", "Ukraine", "Mars", "the moon", "Atlantis", "Texas", "California"]
GAMES = "football match|world cup|election|race|game|super bowl|olympics|chess championship|final|war|lottery|oscar|nobel prize|tennis final|league|tournament|song contest|marathon|battle".split("|")
TOPIC = ("quantum physics|the stock market|the history of {p}|black holes|democracy|the roman empire|evolution|the big bang|climate change|photosynthesis|the second world war|bitcoin|philosophy|love|music|economics|the universe|dinosaurs|art|religion|politics|"
         "poetry|the human brain|relativity|biology|chemistry|cooking|football|astronomy|volcanoes|earthquakes|DNA|vaccines|the internet|taxes|law|fashion|jazz|space travel|electricity|gravity|the meaning of life|happiness|psychology|medicine").split("|")
TITLE = ["Hamlet", "the Bible", "Don Quixote", "Dune", "Star Wars", "Titanic", "the Odyssey", "War and Peace", "Harry Potter", "Moby Dick", "Faust", "the Mona Lisa", "Frankenstein", "Dracula", "The {A} {T}", "The {T} of {p}", "{A} {T}", "The {T}"]

# kind -> (grammars, answer)
UNKNOWN = {
    "future": (["(what will happen|what happens) (tomorrow|next week|next year|in {y}|in the future|in {p} in {y}|in ten years)", "who will win the {g}( in {y}| next year| tomorrow|)", "will (it rain|it snow|i be rich|i be happy|we win|{x} win|the {t} work|i pass|i find love|{n} marry {x}) (tomorrow|next week|in {y}|next year)", "(predict|tell me) (the future|my future|the lottery numbers|the next {g}|the price of {o} (tomorrow|in {y}))",
                "what will the (weather|price of {o}|price of gold|stock market) be (tomorrow|next week|next year|in {y})", "when will (i die|the world end|{x} arrive|{x} win|the war end|it stop raining|the train come|{n} call)", "what are the (next |)lottery numbers", "how will {p} look in {y}", "will {p} win the {g}", "what is going to happen( in {y}| tomorrow|)"],
               "I do not know. I cannot see the future."),
    "now": (["what (time|day|date|year|month) is it( now| today|)", "what is the (time|date)( now| today| in {c}|)", "what is the weather( like|)( in {c}| today| now| in {c} today|)", "how is the weather( in {c}| today|)", "is it (raining|snowing|sunny|hot|cold|warm|windy)( in {c}| today| now| outside|)", "what is (in the|the latest|today's) news( today|)", "what is the (price|exchange rate|value) of ({o}|gold|bitcoin|oil|a dollar)( now| today|)",
             "what is the temperature( in {c}| outside| now|)", "what happened (today|yesterday|last night|this week|in {p} today)", "who is online", "do you know what time it is", "can you (check|tell me) the (weather|time|news)( in {c}|)", "weather( in {c}|)", "what's the time"],
            "I do not know. I have no clock, no news and no weather without a tool."),
    "world": (["who (won|lost) the {g}( in {y}| last year| in {p}|)", "who (is|was) {q}", "(what is|what's|name|tell me) the capital (city |)of {p}", "who (wrote|made|painted|directed|composed|invented|discovered|built) ({title}|the {t}|{p}|{o}|the {a} {t})", "where is ({c}|{p}|the {a} {t}|{n} {s}|the nearest {t})", "how (tall|old|big|high|far|rich|deep|heavy|fast) is ({c}|{p}|{n} {s}|{q}|the {a} {t}|mount everest|the {r} of {p}|the sun|the moon|the eiffel tower|a {i})",
               "when (was|did) ({n} {s} born|{q} die|the {g} (start|end|begin)|{p} become free|{c} founded|{title} written|the {t} invented)", "what (is|are) the (population|language|currency|area|flag|largest city|national animal|highest mountain|longest river) of {p}", "how many people live in ({c}|{p})", "why (is|did|does|do|are|can) ({p}|the {t}|the sky|the {i}|{i}s|people|{n} {s}) ({v}|{j}|so {j}|{v} in {p})",
               "(explain|tell me about|what is|what do you know about|what do you think (of|about)|teach me|describe|write an essay about|give me a summary of) {topic}", "who is the {r} of ({p}|{c}|{o})", "in (which|what) (year|country|city) (was|did|is) ({n} {s} born|the {g}|{title} written|{c})", "what did {n} {s} (say|do|invent|write|eat|find)( in {y}|)", "how do(es|) (a |the |){i}s? ({v}|{v} and {v})",
               "(what is|what's) the (best|worst|biggest|oldest|fastest|cheapest) ({t}|{o}|{i}|{r}|way to {v})( in {p}| in the world| ever|)", "(who|what|where|when) (is|was) ({title}|{n} {s}|the {a} {t})", "which (country|team|person|{i}) (won|has|is|makes) the (most|best|{j}est) {t}s?", "(recommend|suggest) (me |)(a|some) (book|film|movie|song|restaurant|{o}|game|hotel in {c}|laptop|phone)", "how (do|can|should) (i|you|we) ({v} a {t}|cook {o}|fix (a|my) {t}|{v} (a|the) {i}|get rich|learn {topic}|travel to {c}|lose weight|find a job|draw a {i})",
               "who (is|was) the (first|last|best|youngest|oldest) ({r}|person|{i}|king) (of {p}|on the moon|in {p}|to {v})", "what (is|was) the name of ({q}|the {r} of {p}|my {f}|the {t} in {c})", "what (colour|color|kind|size) is (the {t}|{p}|{n}'s {t}|a {i}|the {i})", "(translate|say) {w} (in|into|to) (french|german|spanish|italian|chinese|latin)", "what does {i} (eat|mean in french)", "(write|compose) (me |)(a|an) (poem|song|essay|novel|email|letter|story|program|python script|function) (about|on|for) (a |the |){w}",
               "what is the (meaning|definition|synonym|plural|opposite) of {w}", "is ({n} {s}|{c}|{p}|{o}) (good|bad|famous|rich|{j}|dead|safe|healthy|married)", "(should i|can i) ({v}|buy a {t}|eat {o}|marry {n}|move to {c}|trust {n})", "do (you like|you know) ({n} {s}|{c}|{o}|{topic}|{i}s|{title})", "(are|do) {i}s ({j}|{v})", "what is (a|an|the) ({z}|{z} {t}|{a} {z})", "what is {z}", "who is {z}", "where is {z}", "tell me about {z}", "{z}", "what does {z} mean"],
              "I do not know. I am a tiny model and know little about the world."),
    "secret": (["what is (my|{n}'s|his|her) (password|age|phone number|address|birthday|job|favourite {t}|email|shoe size|pin|favourite food|middle name|salary)", "how old am i", "(do you (remember|know) me|do you know who i am|who am i)", "(what is|what's|do you know) my name", "what is my favourite {t}", "where (do i live|am i|was i born|did i put my {t}|is my {t}|are my {t}s)", "what am i (thinking|wearing|doing|holding|eating)", "when is my birthday", "what did i (eat|do|buy|say|dream)( yesterday| last night| this morning| last year|)", "what is in my (pocket|bag|{t}|hand|email)", "who is my (best friend|{f}|boss|neighbour|teacher)", "how much money do i have", "what is my favourite ({t}|colour|food|animal|song|number|city)", "do i have a {i}", "where do i work"],
               "I do not know. You have not told me."),
}
FAMILY = "mother father brother sister uncle aunt boss teacher neighbour friend cousin".split()


def talk(rng):
    grammar, answer = rng.choice(TALK)
    user = ask(rng, grammar, end=rng.choice(["", "!", ".", "?"]))
    return Item("talk", plain(user) + user[-1:], user, answer, rng.choice(["The user makes small talk. I answer kindly.", "This is small talk. I answer kindly."]))


def unknown(rng):
    kind = rng.choice(["world", "world", "world", "world", "future", "now", "secret"])
    grammars, answer = UNKNOWN[kind]
    text = ask(rng, rng.choice(["", "", "", "", "", "hi, ", "hey, ", "please tell me: ", "ok, ", "do you know: ", "so, "]) + rng.choice(grammars))
    for _ in range(3):  # fields may hold fields
        for field, values in FIELDS.items():
            while field in text:
                text = text.replace(field, values(rng), 1)
    text = re.sub(r"s\?(?= |$)", "s", text) if "s? " in text else text
    return Item("unknown", plain(text), text, answer, {"world": "This is about the world. I do not know it.", "future": "This is about the future. I cannot know it.", "now": "I would need a clock, news or a weather tool. I have none.", "secret": "The user has not told me this. I cannot know it."}[kind], "I do not know.")


FIELDS = {
    "{q}": lambda r: r.choice(PERSON), "{title}": lambda r: r.choice(TITLE), "{topic}": lambda r: r.choice(TOPIC), "{g}": lambda r: r.choice(GAMES), "{p}": lambda r: r.choice(PLACE), "{c}": lambda r: r.choice(CITIES), "{n}": lambda r: r.choice(NAMES),
    "{x}": lambda r: r.choice(NAMES), "{s}": lambda r: r.choice(SURNAMES), "{y}": lambda r: str(r.randint(1800, 2060)), "{t}": lambda r: r.choice(THINGS), "{T}": lambda r: r.choice(NOUNS).capitalize(), "{A}": lambda r: r.choice(ADJECTIVES).capitalize(),
    "{o}": lambda r: r.choice(FOODS), "{i}": lambda r: r.choice(ANIMALS), "{r}": lambda r: r.choice(ROLE), "{a}": lambda r: r.choice(ADJECTIVES + COLOURS), "{j}": lambda r: r.choice(ADJECTIVES), "{v}": lambda r: r.choice(VERBS), "{f}": lambda r: r.choice(FAMILY),
    "{w}": lambda r: r.choice(WORDS), "{z}": lambda r: invent(r) if r.random() < 0.7 else r.choice(["Wikipedia", "Google", "Bitcoin", "the meaning of life", "love", "a black hole", "an atom", "the internet", "HTTP", "Linux", "Python", "Rust", "a volcano", "gravity", "time", "money", "art"]),
}
