"""Tool use: definitions, requests that need none, one or several calls, and answers from the results."""

import json

from ..text import ask
from ..words import CITIES, COLOURS, FOODS, MONTHS, NAMES, THINGS, WORDS, invent

STRING, INTEGER, NUMBER, BOOLEAN = "string", "integer", "number", "boolean"
LANGUAGES = "French German Spanish Italian Japanese Latin Chinese Greek".split()
ROOMS = "kitchen bedroom bathroom office hall garage garden cellar".split()
CURRENCIES = "USD EUR GBP JPY CHF CAD".split()
CONDITIONS = "sunny cloudy rainy windy foggy snowy clear stormy".split()


def filename(rng):
    stem = rng.choice(WORDS) if rng.random() < 0.7 else invent(rng)
    return rng.choice(["", "", "src/", "docs/", "/tmp/", "data/", "~/"]) + stem + rng.choice([".txt", ".md", ".json", ".csv", ".py", ".cpp", ".log", ".yaml"])


def topic(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 3))) if rng.random() < 0.7 else rng.choice(NAMES) + " " + invent(rng).capitalize()


def expression(rng):
    n = [rng.randint(1, 9999) for _ in range(3)]
    op = rng.choice("+-*/")
    return f"{n[0]} {op} {n[1]}" if rng.random() < 0.85 else f"{n[0]} {op} {n[1]} {rng.choice('+-')} {n[2]}"


def clock(rng):
    return f"{rng.randint(0, 23):02d}:{rng.choice([0, 5, 10, 15, 20, 30, 40, 45, 50]):02d}"


def sentence(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 5)))


# Parameter: (names, type, descriptions, value)
CITY = (["city", "location", "place", "town"], STRING, ["The city", "Name of the city", "City name, e.g. Paris", "The city and state, e.g. San Francisco, CA", "", ""], lambda r: r.choice(CITIES) if r.random() < 0.85 else invent(r, 2, 3).capitalize())

# family: names, descriptions, parameters, requests ({0}, {1} are the arguments), result(rng, args) -> (result object, answer)
FAMILIES = {
    "weather": (["get_weather", "weather", "current_weather", "get_current_weather", "fetch_weather", "weather_lookup"], ["Get the current weather in a city", "Get weather", "Returns the weather for a location", "Current weather by city", "Get the current weather"], [CITY],
                ["(what is|what's|how is|tell me|check) the weather( like|) in {0}( today| now| right now|)", "weather in {0}", "how warm is it in {0}", "is it (raining|sunny|cold|warm|hot|snowing) in {0}( today| now|)", "do i need (an umbrella|a coat|a jacket) in {0}", "@please tell me the weather in {0}", "(what is|what's) the temperature in {0}", "weather {0}"],
                lambda r, a: (lambda t, c: ({"temperature": t, "condition": c}, f"In {a[0]} it is {t} degrees and {c}."))(r.randint(-15, 40), r.choice(CONDITIONS))),
    "calculator": (["calculator", "calculate", "calc", "evaluate", "compute", "math"], ["Evaluate an arithmetic expression", "Calculator", "Do a calculation", "Computes the value of an expression"], [(["expression", "expr", "formula", "input"], STRING, ["The expression to evaluate", "Arithmetic expression", "e.g. 2 + 2", ""], expression)],
                   ["@whatis {0}", "{0}", "{0} =", "calculate {0}", "@please compute {0}", "use the calculator for {0}", "how much is {0}", "work out {0}", "i need the result of {0}"],
                   lambda r, a: (lambda v: ({"result": v}, f"{a[0]} = {v}."))(r.randint(-999, 99999) if "/" not in a[0] else round(r.uniform(0, 99), 2))),
    "search": (["search", "web_search", "search_web", "google", "find_information", "lookup"], ["Search the web", "Search for information", "Look something up on the internet", "Web search"], [(["query", "q", "text", "question"], STRING, ["The search query", "What to search for", ""], topic)],
               ["@please search (the web |the internet |online |)for {0}", "look up {0}", "find information (about|on) {0}", "search {0}", "google {0}", "what can you find about {0}", "@please look for {0}", "search for {0}"],
               lambda r, a: (lambda w: ({"results": [w]}, f"I found this: {w}"))(f"{a[0]} is a {r.choice(COLOURS)} {r.choice(THINGS)} from {r.choice(CITIES)}.")),
    "time": (["get_time", "current_time", "time", "get_current_time", "clock"], ["Get the current time in a city", "Current time", "Tells the time in a place"], [CITY],
             ["what time is it in {0}( now|)", "(what is|what's|tell me) the time in {0}", "current time in {0}", "time in {0}", "how late is it in {0}", "do you know what time it is in {0}"],
             lambda r, a: (lambda t: ({"time": t}, f"It is {t} in {a[0]}."))(clock(r))),
    "read_file": (["read_file", "open_file", "get_file", "cat_file", "file_read", "load_file"], ["Read a file", "Returns the content of a file", "Read a text file from disk"], [(["path", "file", "filename", "file_path"], STRING, ["Path of the file", "The file to read", ""], filename)],
                  ["@please read {0}", "@please read the file {0}", "what is in {0}", "what does {0} say", "show me {0}", "open {0}", "show (me |)the content of {0}", "what's in the file {0}", "print {0}"],
                  lambda r, a: (lambda s: ({"content": s}, f"The file {a[0]} says: {s}"))(sentence(r))),
    "list_files": (["list_files", "ls", "list_directory", "list_dir"], ["List the files in a folder", "Directory listing", "Lists a directory"], [(["path", "directory", "folder", "dir"], STRING, ["The folder", "Path of the directory", ""], lambda r: r.choice(["src", "docs", "/tmp", "tests", "data", ".", "/home", "models", "tools", r.choice(WORDS)]))],
                   ["(which|what) files are in {0}", "list (the |all |)files in {0}", "list {0}", "@please show the files in {0}", "what is in the folder {0}", "ls {0}"],
                   lambda r, a: (lambda f: ({"files": f}, f"In {a[0]} there are: {', '.join(f)}."))([filename(r).split("/")[-1] for _ in range(r.randint(1, 4))])),
    "send": (["send_message", "send_email", "message", "send_text", "notify"], ["Send a message to a person", "Send a text message", "Sends an email"], [(["to", "recipient", "name", "person"], STRING, ["Who gets the message", "The recipient", ""], lambda r: r.choice(NAMES)), (["text", "message", "body", "content"], STRING, ["The message", "Text to send", ""], sentence)],
             ["send {0} (a message|an email|a text): {1}", "tell {0}: {1}", "@please (send|write) {0} the message {1}", "message {0}: {1}", "send a message to {0}: {1}", "write to {0}: {1}"],
             lambda r, a: ({"sent": True}, f"The message to {a[0]} was sent.")),
    "currency": (["convert_currency", "currency", "exchange", "exchange_rate"], ["Convert an amount of money", "Currency conversion", "Convert between currencies"], [(["amount", "value"], NUMBER, ["The amount", ""], lambda r: r.randint(1, 5000)), (["from", "from_currency", "source"], STRING, ["Currency code", ""], lambda r: r.choice(CURRENCIES)), (["to", "to_currency", "target"], STRING, ["Target currency", ""], lambda r: r.choice(CURRENCIES))],
                 ["convert {0} {1} to {2}", "how much is {0} {1} in {2}", "{0} {1} in {2}", "@please change {0} {1} into {2}", "{0} {1} to {2}"],
                 lambda r, a: (lambda v: ({"amount": v}, f"{a[0]} {a[1]} is {v} {a[2]}."))(r.randint(1, 9999))),
    "translate": (["translate", "translate_text", "translator"], ["Translate a text", "Translate text into a language"], [(["text", "input"], STRING, ["The text", "Text to translate", ""], sentence), (["language", "target", "to", "target_language"], STRING, ["Target language", ""], lambda r: r.choice(LANGUAGES))],
                  ["@please translate {0} (into|to) {1}", "how do you say {0} in {1}", "what is {0} in {1}", "translate to {1}: {0}", "say {0} in {1}"],
                  lambda r, a: (lambda s: ({"translation": s}, f"In {a[1]} it is: {s}"))(" ".join(invent(r) for _ in a[0].split()))),
    "timer": (["set_timer", "start_timer", "timer", "countdown"], ["Set a timer", "Start a timer of some minutes"], [(["minutes", "duration", "time"], INTEGER, ["Minutes", "Duration in minutes", ""], lambda r: r.randint(1, 120))],
              ["set a timer (for|to|of) {0} minutes", "timer {0} minutes", "@please start a timer (for|of) {0} minutes", "wake me in {0} minutes", "remind me in {0} minutes", "{0} minute timer"],
              lambda r, a: ({"status": "started"}, f"The timer runs for {a[0]} minutes.")),
    "alarm": (["set_alarm", "alarm", "create_alarm"], ["Set an alarm", "Set an alarm at a time of day"], [(["time", "at"], STRING, ["Time as HH:MM", ""], clock)],
              ["set an alarm (for|at) {0}", "wake me( up|) at {0}", "@please set the alarm (to|for) {0}", "alarm at {0}"],
              lambda r, a: ({"status": "set"}, f"The alarm is set for {a[0]}.")),
    "light": (["set_light", "switch_light", "light", "lights", "control_light"], ["Switch a light on or off", "Control the light of a room"], [(["room", "where", "name"], STRING, ["The room", ""], lambda r: r.choice(ROOMS)), (["on", "state", "enabled"], BOOLEAN, ["true for on", "On or off", ""], lambda r: r.random() < 0.5)],
              ["(turn|switch) {1} the light in the {0}", "(turn|switch) {1} the {0} light", "@please (turn|switch) the {0} light {1}", "lights {1} in the {0}", "{0} light {1}"],
              lambda r, a: ({"ok": True}, f"The light in the {a[0]} is {'on' if a[1] else 'off'}.")),
    "thermostat": (["set_temperature", "thermostat", "heating", "set_thermostat"], ["Set the temperature of a room", "Control the heating"], [(["room", "zone"], STRING, ["The room", ""], lambda r: r.choice(ROOMS)), (["temperature", "degrees", "value"], INTEGER, ["Degrees Celsius", ""], lambda r: r.randint(10, 28))],
                   ["set the (temperature|heating) in the {0} to {1}( degrees|)", "heat the {0} to {1}( degrees|)", "@please set the {0} to {1} degrees", "make it {1} degrees in the {0}"],
                   lambda r, a: ({"ok": True}, f"The {a[0]} is set to {a[1]} degrees.")),
    "music": (["play_music", "play", "play_song", "music"], ["Play music", "Play a song or an artist"], [(["song", "title", "query", "name"], STRING, ["What to play", "Song title", ""], topic)],
              ["play {0}", "@please play {0}", "play the song {0}", "i want to hear {0}", "put on {0}"], lambda r, a: ({"playing": a[0]}, f"Now playing {a[0]}.")),
    "stock": (["get_stock_price", "stock_price", "stock", "quote"], ["Get the price of a stock", "Stock quote"], [(["symbol", "ticker", "company"], STRING, ["Ticker symbol", "The company", ""], lambda r: "".join(r.choice("ABCDEFGHIKLMNOPQRSTUVWXYZ") for _ in range(r.randint(2, 4))))],
              ["what is the (stock |)price of {0}", "how much is {0} (stock|trading at)", "stock price of {0}", "price of {0}", "quote {0}", "how is {0} stock doing"], lambda r, a: (lambda v: ({"price": v}, f"{a[0]} is at {v}."))(r.randint(1, 2000))),
    "event": (["create_event", "add_event", "calendar_add", "schedule"], ["Add an event to the calendar", "Create a calendar event"], [(["title", "name", "event"], STRING, ["Title of the event", ""], lambda r: r.choice(["lunch", "meeting", "dinner", "party", "call", "dentist", "concert", "training", "breakfast"]) + ("" if r.random() < 0.5 else " with " + r.choice(NAMES))), (["date", "day", "when"], STRING, ["The date", ""], lambda r: f"{r.choice(MONTHS)} {r.randint(1, 28)}")],
              ["(add|schedule|create|plan) (a |an |){0} on {1}", "put {0} on {1} in(to|) my calendar", "@please add {0} to my calendar (on|for) {1}", "i have {0} on {1}, add it to my calendar"], lambda r, a: ({"id": r.randint(1, 999)}, f"{a[0][:1].upper() + a[0][1:]} is in the calendar for {a[1]}.")),
    "shopping": (["add_to_list", "add_items", "shopping_list", "add_to_cart"], ["Add items to the shopping list", "Adds things to a list"], [(["items", "things", "products"], "array", ["The items", ""], lambda r: r.sample(FOODS, r.randint(1, 3)))],
                 ["add {0} to (my|the) (shopping |)list", "@please put {0} on the (shopping |)list", "i need to buy {0}", "we need {0}, put (it|them) on the list"], lambda r, a: ({"ok": True}, f"Added {joined(a[0])} to the list.")),
    "dice": (["random_number", "roll_dice", "random", "dice"], ["Draw a random number", "Random number up to a limit"], [(["max", "limit", "sides", "upper"], INTEGER, ["Largest number", ""], lambda r: r.choice([6, 10, 12, 20, 100, 1000, r.randint(2, 99)]))],
             ["(give me|draw|pick) a random number (up to|below|from 1 to|between 1 and) {0}", "roll a dice with {0} sides", "random number up to {0}"], lambda r, a: (lambda v: ({"number": v}, f"The number is {v}."))(r.randint(1, a[0]))),
    "command": (["run_command", "shell", "bash", "execute", "terminal"], ["Run a shell command", "Execute a command in the terminal"], [(["command", "cmd", "script"], STRING, ["The command", "Shell command to run", ""], lambda r: r.choice(["ls", "pwd", "make test", "git status", "date", "whoami", "df -h", "uname -a", "lily devices", "make build", "git log", "ls -la", "echo " + r.choice(WORDS), "cat " + filename(r), "rm " + filename(r), "mkdir " + r.choice(WORDS)]))],
                ["@please run {0}", "run the command {0}", "execute {0}", "@please execute the command {0}", "run {0} in the (shell|terminal)"], lambda r, a: (lambda s: ({"output": s}, f"The output is: {s}"))(sentence(r))),
    "define": (["define", "dictionary", "get_definition", "define_word"], ["Look up the definition of a word", "Dictionary"], [(["word", "term"], STRING, ["The word", ""], lambda r: r.choice(WORDS) if r.random() < 0.7 else invent(r))],
               ["define {0}", "what is the (meaning|definition) of {0}", "look up the word {0}", "@please define the word {0}", "look {0} up in the dictionary"], lambda r, a: (lambda s: ({"definition": s}, f"{a[0]}: {s}"))(f"a {r.choice(COLOURS)} {r.choice(THINGS)}")),
    "user": (["get_user", "find_user", "get_customer", "lookup_user"], ["Get a user by id", "Look up a customer"], [(["id", "user_id", "number"], INTEGER, ["The id", ""], lambda r: r.randint(1, 9999))],
             ["who is user {0}", "@please (get|find|show) (the |)user (with id |number |){0}", "look up user {0}", "show me customer {0}"], lambda r, a: (lambda n, c: ({"name": n, "city": c}, f"User {a[0]} is {n} from {c}."))(r.choice(NAMES), r.choice(CITIES))),
    "route": (["get_route", "distance", "get_distance", "route"], ["Distance between two cities", "Find the route between two places"], [(["from", "start", "origin"], STRING, ["Start", ""], lambda r: r.choice(CITIES)), (["to", "end", "destination"], STRING, ["Destination", ""], lambda r: r.choice(CITIES))],
              ["how far is it from {0} to {1}", "@please (find|show) (me |)the (way|route) from {0} to {1}", "distance from {0} to {1}", "what is the distance (between {0} and|from {0} to) {1}", "how far is {1} from {0}"], lambda r, a: (lambda v: ({"km": v}, f"From {a[0]} to {a[1]} it is {v} km."))(r.randint(10, 9000))),
}
GENERIC_VERBS = "open close start stop delete create update find lock unlock check count clean move order book cancel paint fix print hide show sell rent".split()
GENERIC_FIELDS = [(["name", "label", "title"], STRING, ["The name", ""], lambda r: r.choice(WORDS) if r.random() < 0.6 else invent(r)), (["level", "size", "speed", "volume"], INTEGER, ["A number", ""], lambda r: r.randint(0, 100)), (["id", "number", "code"], INTEGER, ["The id", ""], lambda r: r.randint(1, 9999)), (["colour", "color"], STRING, ["The colour", ""], lambda r: r.choice(COLOURS)),
                  (["owner", "user", "person"], STRING, ["A person", ""], lambda r: r.choice(NAMES)), (["city", "location"], STRING, ["A city", ""], lambda r: r.choice(CITIES)), (["amount", "count", "quantity"], INTEGER, ["How many", ""], lambda r: r.randint(1, 50)), (["room", "place"], STRING, ["The room", ""], lambda r: r.choice(ROOMS)), (["date", "day"], STRING, ["The date", ""], lambda r: f"{r.choice(MONTHS)} {r.randint(1, 28)}")]


def joined(names):
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def generic(rng):
    """A family nobody wrote down: verb_noun with one to three named parameters."""
    verb, noun = rng.choice(GENERIC_VERBS), rng.choice(THINGS)
    fields = [(([rng.choice(f[0])],) + f[1:]) for f in rng.sample(GENERIC_FIELDS, rng.randint(1, 3))]
    phrase = " (and|and|,) ".join("(with |)%s {%d}" % (f[0][0], i) for i, f in enumerate(fields))
    return ([f"{verb}_{noun}"], [f"{verb.capitalize()} a {noun}", f"{verb} the {noun}"], fields, [f"@please {verb} (the|a) {noun} with " + phrase.replace("(with |)", ""), f"{verb} (the|a) {noun}: " + phrase.replace("(with |)", "")],
            lambda r, a: ({"status": "ok"}, f"Done: {verb} {noun}."))


class Tool:
    """One tool as this conversation has it: names and descriptions drawn, requests to follow."""

    def __init__(self, rng, family):
        self.family = family
        names, descriptions, params, self.requests, self.result = FAMILIES[family] if family else generic(rng)
        self.name = rng.choice(names)
        self.keys = [rng.choice(p[0]) for p in params]
        self.params = params
        properties = {}
        for key, (_, kind, notes, _) in zip(self.keys, params):
            properties[key] = {"type": kind}
            if kind == "array":
                properties[key]["items"] = {"type": STRING}
            note = rng.choice(notes)
            if note:
                properties[key]["description"] = note
        if family == "weather" and rng.random() < 0.3:
            properties[rng.choice(["unit", "units"])] = {"type": STRING, "enum": ["celsius", "fahrenheit"]}
        elif rng.random() < 0.12:  # an option nobody asks for
            properties.setdefault(rng.choice(["limit", "verbose", "format", "options", "timeout"]), {"type": rng.choice([INTEGER, BOOLEAN, STRING]), "description": "Optional"})
        body = {"type": "object", "properties": properties}
        if rng.random() < 0.9:
            body["required"] = list(self.keys)
        function = {"name": self.name, "description": rng.choice(descriptions), "parameters": body}
        if rng.random() < 0.06:
            function["strict"] = True
        self.definition = {"type": "function", "function": function}

    def arguments(self, rng):
        values = [p[3](rng) for p in self.params]
        if self.family == "route" or self.family == "currency":
            while values[-1] == values[-2]:
                values[-1] = self.params[-1][3](rng)
        return values

    def request(self, rng, values):
        """The user's words for one call."""
        text = ask(rng, self.requests)
        for i, v in enumerate(values):
            shown = ("on" if v else "off") if isinstance(v, bool) else joined(v) if isinstance(v, list) else str(v)
            if isinstance(v, str) and " " in v and self.family in ("send", "translate", "read_file", "command") and rng.random() < 0.5:
                shown = f'"{v}"'
            text = text.replace("{%d}" % i, shown)
        return text

    def call(self, values):
        return {"name": self.name, "arguments": dict(zip(self.keys, values))}


def shown_result(rng, result):
    """A tool result as servers send it: JSON, or just its text."""
    if rng.random() < 0.25 and len(result) == 1:
        value = next(iter(result.values()))
        if isinstance(value, str):
            return value
    return json.dumps(result, ensure_ascii=False)


def say_call(call):
    args = call["arguments"]
    return f"{call['name']} with " + " and ".join(f"{k} {json.dumps(v) if not isinstance(v, str) else v}" for k, v in args.items())


def tool_set(rng, low=1, high=4):
    """Some tools with different names."""
    tools = []
    for family in rng.sample(list(FAMILIES), rng.randint(low, high)):
        tool = Tool(rng, family if rng.random() < 0.7 else None)
        if tool.name not in [t.name for t in tools]:
            tools.append(tool)
    return tools


def request(rng, tools, count):
    """`count` calls: (user text, calls, results, answer)."""
    if count == 1:
        tool = rng.choice(tools)
        values = tool.arguments(rng)
        user = tool.request(rng, values)
        picks = [(tool, values)]
    else:
        tool = rng.choice(tools)
        if rng.random() < 0.55 and tool.family in ("weather", "time", "stock", "define", "read_file", "user", "search", "list_files"):
            picks = []
            while len(picks) < count:
                values = tool.arguments(rng)
                if values not in [v for _, v in picks]:
                    picks.append((tool, values))
            user = tool.request(rng, [joined([str(v[0]) for _, v in picks])])
        else:
            chosen = rng.sample(tools, min(count, len(tools)))
            picks = [(t, t.arguments(rng)) for t in chosen]
            parts = [t.request(rng, v).rstrip("?. ") for t, v in picks]
            user = rng.choice([" and ", " and also ", ". ", ", and ", "? ", " and then "]).join([parts[0]] + [p if rng.random() < 0.5 else p[:1].lower() + p[1:] for p in parts[1:]]) + rng.choice(["", "?", "."])
    calls = [t.call(v) for t, v in picks]
    results, answers = [], []
    for tool, values in picks:
        if rng.random() < 0.05:
            error = rng.choice(["not found", "timeout", "permission denied", "unknown value", "service unavailable", "no connection"])
            results.append(json.dumps({"error": error}))
            answers.append(f"{tool.name} failed: {error}.")
        else:
            result, answer = tool.result(rng, values)
            results.append(shown_result(rng, result))
            answers.append(answer)
    return user, calls, results, " ".join(answers)
