"""Plain English for raw prompts: tiny stories from a grammar."""

from ..words import ADJECTIVES, ANIMALS, COLOURS, FOODS, NAMES, THINGS

START = ["Once upon a time there was a {a} {i} named {n}.", "Once upon a time, a {a} {i} lived near a {p}.", "There was once a {a} {i} called {n}.", "{n} was a {a} {i} who lived by the {p}.", "One day {n} went to the {p}.", "{n} had a {a} {t}.", "In a {a} {p} lived a {i} named {n}.", "Long ago, {n} the {i} found a {c} {t}."]
MIDDLE = ["{n} liked to eat {o} and to look at the {p}.", "Every morning {n} walked to the {p}.", "One day {n} found a {c} {t} under a tree.", "The {t} was {a} and {b}.", "{n} met {m}, who was very {a}.", "They played together until the evening.", "It began to rain, so {n} went home.", "{m} gave {n} a {a} {t}.", "{n} said: \"What a {a} {t}!\"", "\"Do you want some {o}?\" asked {m}.",
          "Together they went to the {p} and sat in the sun.", "{n} was {a}, but {m} was {b}.", "The sun was warm and the {p} was quiet.", "{n} looked for the {t} all day.", "In the {p} there was a {c} {t}.", "{m} laughed and ran to the {p}."]
END = ["In the evening {n} went home and slept.", "From then on they were good friends.", "And {n} was happy.", "So {n} kept the {t} for ever.", "That night {n} dreamed of the {p}.", "And they lived happily by the {p}.", "Then it was time to sleep. The end."]
PLACES = "river lake sea hill forest garden field village castle bridge mountain valley island market park beach road farm".split()
PLAIN = ["The lily is a white flower that grows near the water.", "lily.cpp runs a language model on your own machine.", "A token is a piece of text.", "The sky is blue and the grass is green.", "The sun is a star.", "Water is wet and ice is cold.", "A week has seven days.", "A year has twelve months.", "Cats and dogs are animals.", "Apples and pears grow on trees.", "Fish live in the water and birds fly in the air.", "In winter it is cold and in summer it is warm.",
         "The capital of a country is its main city.", "A model reads tokens and writes tokens.", "The moon shines at night.", "People read books and write letters.", "Snow is white and coal is black.", "A river flows to the sea."]


def story(rng):
    """A story of three to ten sentences."""
    n, m = rng.sample(NAMES, 2)
    fixed = {"{n}": n, "{m}": m}

    def fill(s):
        s = s.replace("{n}", fixed["{n}"]).replace("{m}", fixed["{m}"])
        for f, values in (("{a}", ADJECTIVES), ("{b}", ADJECTIVES), ("{i}", ANIMALS), ("{c}", COLOURS), ("{t}", THINGS), ("{p}", PLACES), ("{o}", FOODS)):
            if f in s:
                s = s.replace(f, rng.choice(values))
        return s.replace(" a a", " an a").replace(" a e", " an e").replace(" a i", " an i").replace(" a o", " an o")

    if rng.random() < 0.25:
        return " ".join(rng.sample(PLAIN, rng.randint(2, 6)))
    return " ".join(fill(s) for s in [rng.choice(START)] + rng.sample(MIDDLE, rng.randint(2, 7)) + [rng.choice(END)])
