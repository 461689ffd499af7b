"""What a turn costs on a long context that is cached, against the same number of tokens on no context.

    LILY=build/release/lily python3 bench/warm_turn.py MODEL [CONTEXT] [NEW] [ROUNDS]

Cold: a prompt of about NEW tokens like no other. Branch: the same after CONTEXT cached tokens. Next: a turn of NEW tokens after
an answer on that context. Each until its first token, taken in turns, on one thread; minimum and median of the server's
processor time in ms (wall time on a busy machine says nothing).
"""

import pathlib
import random
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests" / "api"))
from lily_server import Server  # noqa: E402

WORDS = "the of and to in is you that it he was for on are as with his they at be".split()


def words(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


class Bench:
    def __init__(self, server):
        self.server = server

    def processor_ms(self):
        tasks = pathlib.Path(f"/proc/{self.server.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6

    def ask(self, messages):
        begin = self.processor_ms()
        status, answer = self.server.post({"messages": messages, "max_tokens": 1, "temperature": 0,
                                           "chat_template_kwargs": {"preserve_thinking": True, "enable_thinking": False}})
        assert status == 200, answer
        usage = answer["usage"]
        return {"ms": self.processor_ms() - begin, "prompt": usage["prompt_tokens"],
                "cached": usage["prompt_tokens_details"]["cached_tokens"],
                "text": answer["choices"][0]["message"]["content"]}


def user(text):
    return {"role": "user", "content": text}


def main(model, context=4096, new=50, rounds=7):
    rng = random.Random(1)
    with Server(model, "--max-seq", context + 4096, "--threads", 1) as server:
        bench = Bench(server)
        start = [{"role": "system", "content": words(rng, context)}]
        rows = {"cold": [], "branch": [], "next": []}
        bench.ask([*start, user(words(rng, new))])
        talk = [*start, user(words(rng, new))]
        talk.append({"role": "assistant", "content": bench.ask(talk)["text"]})
        for _ in range(rounds):
            rows["cold"].append(bench.ask([user(words(rng, new))]))
            rows["branch"].append(bench.ask([*start, user(words(rng, new))]))
            talk.append(user(words(rng, new)))
            rows["next"].append(bench.ask(talk))
            talk.append({"role": "assistant", "content": rows["next"][-1]["text"]})
    for name, runs in rows.items():
        times = [run["ms"] for run in runs]
        read = statistics.mean(run["prompt"] - run["cached"] for run in runs)
        print(f"{name:8} {runs[-1]['prompt']:6} tokens, {read:5.0f} read: min {min(times):8.1f}  median {statistics.median(times):8.1f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
