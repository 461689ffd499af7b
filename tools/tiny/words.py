"""Word lists the generators draw from, and a maker of words nobody has seen."""

NAMES = (
    "Ana Ben Carla David Elena Frank Grace Hugo Ida Jack Kira Leo Maria Nora Oscar Paul Quinn Rosa Sam Tom Uma Victor Wendy Xenia Yara Zoe "
    "Alice Bob Carol Dan Eva Felix Gina Henry Iris James Kate Liam Mia Noah Olivia Peter Rita Sara Theo Vera Will Lucas Emma Julia Marco "
    "Luca Anna Lena Max Nina Otto Pia Ravi Sofia Tara Yuki Omar Aisha Chen Diego Ines Jonas Karim Lily Mateo Nadia Priya Robin Simon Tina "
    "Alex Amy Andre Anton Bella Boris Clara Daniel Emil Erik Fatima George Hannah Helen Ivan Jane John Jose Kevin Laura Linda Lisa Lucy Mark "
    "Martin Mary Mike Monica Nick Pablo Rachel Ruth Sven Thomas Tim Ursula Zara Chloe Adam Ali Amir Dina Ella Finn Greta Hans Joy Kai Lara"
).split()
CITIES = (
    "Paris|Rome|Madrid|Berlin|London|Lisbon|Vienna|Prague|Oslo|Dublin|Athens|Tokyo|Delhi|Cairo|Lima|Boston|Chicago|Denver|Sydney|Toronto|"
    "Milan|Turin|Naples|Venice|Munich|Hamburg|Zurich|Geneva|Lyon|Nice|Porto|Seville|Warsaw|Krakow|Budapest|Sofia|Helsinki|Stockholm|Bergen|"
    "Kyoto|Osaka|Seoul|Beijing|Mumbai|Nairobi|Lagos|Bogota|Quito|Austin|Seattle|Miami|Dallas|Montreal|Perth|New York|San Francisco|Los Angeles|"
    "Copenhagen|Amsterdam|Brussels|Barcelona|Florence|Bologna|Istanbul|Dubai|Singapore|Bangkok|Hanoi|Jakarta|Manila|Havana|Santiago"
).split("|")
COLOURS = "red blue green yellow orange purple pink black white brown grey violet gold silver turquoise crimson".split()
ANIMALS = (
    "cat dog horse cow sheep goat pig hen duck goose mouse rabbit fox wolf bear lion tiger zebra camel monkey whale shark dolphin seal "
    "penguin owl eagle parrot crow swan frog snake lizard turtle spider bee ant butterfly snail octopus crab otter beaver hedgehog deer donkey"
).split()
FOODS = (
    "apple pear plum peach cherry grape lemon orange banana melon mango kiwi fig date nut bread cheese butter milk rice pasta pizza soup salad "
    "potato tomato carrot onion garlic bean pea corn egg honey sugar salt pepper cake cookie chocolate tea coffee juice water yogurt sandwich"
).split()
THINGS = (
    "book pen paper desk chair table lamp door window key clock phone bag box cup glass plate spoon fork knife bottle shirt shoe hat coat sock "
    "ring coin ball kite drum guitar piano violin flute bike car bus train boat plane ship truck wheel road bridge house tower castle garden "
    "tree leaf flower rose lily grass stone rock sand river lake sea ocean island hill mountain valley forest field farm village city street "
    "school shop market bank church museum library hospital hotel kitchen bedroom mirror carpet curtain pillow blanket candle basket bucket "
    "ladder hammer nail saw rope needle button pocket wallet ticket letter stamp map flag camera picture radio screen keyboard mouse cable "
    "battery engine robot rocket planet star moon sun cloud rain snow wind storm thunder rainbow summer winter spring autumn morning evening "
    "night week month year hour minute second music song dance story poem word number colour shape circle square triangle line point"
).split()
ADJECTIVES = (
    "small big tall short long wide narrow old new young fast slow hot cold warm cool wet dry soft hard heavy light dark bright clean dirty "
    "quiet loud happy sad kind brave clever funny gentle strong weak rich poor sweet sour bitter fresh round flat sharp smooth rough empty full "
    "early late simple strange lucky busy lazy calm proud curious friendly golden wooden gentle tiny huge lovely"
).split()
VERBS = (
    "run walk jump swim fly sing dance read write draw paint cook eat drink sleep dream laugh cry smile talk listen look see hear feel think "
    "know learn teach help play work build make break open close start stop push pull throw catch carry bring send give take buy sell pay find "
    "lose keep hold turn move climb fall sit stand wait follow lead visit travel return answer ask call shout whisper wash dry clean cut"
).split()
OTHER = (
    "computer program memory model token vector matrix kernel thread server client stream branch compiler language science history geography "
    "biology physics chemistry energy gravity magnet electron molecule crystal diamond copper iron wood plastic cotton leather doctor teacher "
    "farmer baker painter singer writer driver pilot sailor soldier king queen prince princess wizard dragon giant monster ghost treasure "
    "mystery adventure journey holiday birthday wedding party present surprise question problem solution answer reason example pattern order "
    "family mother father sister brother daughter cousin friend neighbour people person children baby strawberry blueberry raspberry pineapple "
    "mississippi banana committee balloon coffee cheese butterfly elephant giraffe kangaroo crocodile alphabet umbrella vegetable tomorrow "
    "yesterday beautiful wonderful necessary different important interesting dangerous favourite together between without because hello world "
    "orange purple yellow silver bottle apple letter little middle puddle parrot carrot rabbit sunflower waterfall football snowman bookshop"
).split()
WORDS = sorted(set(ANIMALS + FOODS + THINGS + ADJECTIVES + VERBS + OTHER + COLOURS))
NOUNS = sorted(set(ANIMALS + FOODS + [w for w in THINGS if w not in ("second", "minute")]))
NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
).split()
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

_ONSET = "b c d f g h j k l m n p r s t v w z br ch cl cr dr fl fr gr pl pr sh sl sp st th tr".split()
_VOWEL = "a e i o u a e i o u ai ea ee oo ou".split()
_CODA = ["", "", "", "n", "r", "l", "s", "t", "m", "d", "k", "p", "nd", "st", "ng", "ck", "ll"]


def invent(rng, low=1, high=3):
    """A pronounceable word that is in no list."""
    return "".join(rng.choice(_ONSET) + rng.choice(_VOWEL) + rng.choice(_CODA) for _ in range(rng.randint(low, high)))


def letters(rng, low=2, high=8):
    """A random string of letters."""
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(low, high)))


def word(rng):
    """A word: mostly from the lists, often invented, sometimes just letters."""
    r = rng.random()
    if r < 0.55:
        return rng.choice(WORDS)
    if r < 0.65:
        return rng.choice(NAMES).lower()
    if r < 0.92:
        return invent(rng)
    return letters(rng)
