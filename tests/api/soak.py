"""Five hundred mixed requests: good ones, conversations, malformed ones, slow senders, clients that leave, and a server that
is stopped (SIGSTOP) for a moment now and then. Prints what its memory did.

    LILY=build/release/lily python3 tests/api/soak.py [REQUESTS] [SEED] [MODEL]

Without MODEL a checkpoint is made whose answer is known; a MODEL's answers are taken from a server without a prefix cache.
Fails if a good request is answered wrongly, something other than the expected errors comes back, the server dies, work is
left behind, or memory goes on growing after the first quarter.
"""

import json
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time

from chain_checkpoint import Chain, write_chain
from lily_server import Server, chat, chat_bytes, text_of

THREADS = 8
SENTENCE = [b"All", b" is", b" well", b" and", b" will", b" be", b"."]
MALFORMED = [b"", b"{", b"[]", b"\xff\xfe", b'{"messages":' + b"[" * 5000, b'{"messages":[{"role":"user","content":5}]}',
             b'{"messages":[{"role":"user","content":"\\ud83d"}]}']
NOT_HTTP = [b"nonsense\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x00\x00"]


def resident_kib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def asked(content, thinking=False, **fields):
    return chat(content, thinking, temperature=0, max_tokens=8, **fields)


class Known:
    """What the model answers, from the text or from a server that caches nothing."""

    def __init__(self, cold=None):
        self.cold = cold
        self.answers = {}
        self.lock = threading.Lock()

    def of(self, content):
        if self.cold is None:
            return b"".join(SENTENCE).decode()
        with self.lock:
            if content not in self.answers:
                self.answers[content] = text_of(self.cold.post(asked(content))[1])
            return self.answers[content]


def prompt_of(rng):
    """One of forty beginnings, some of them long, with one of a few ends: what a cache can share."""
    start = rng.randrange(40)
    return f"Tell me about thing {start}. " * (1 + start % 13) + "Please. " * rng.randrange(4)


def whole(server, rng, known):
    content = prompt_of(rng)
    status, answer = server.post(asked(content, logprobs=rng.random() < 0.3))
    assert (status, text_of(answer)) == (200, known.of(content)), answer


def stream(server, rng, known):
    content = prompt_of(rng)
    events = server.stream(asked(content, stop=["zzz"]))
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == known.of(content), text


def conversation(server, rng, known):
    """The same question twice, then a turn after the answer."""
    content = prompt_of(rng)
    answers = [server.post(asked(content))[1] for _ in range(2)]
    assert text_of(answers[0]) == text_of(answers[1]) == known.of(content), answers
    turns = [{"role": "user", "content": content}, {"role": "assistant", "content": known.of(content)},
             {"role": "user", "content": "And then?"}]
    status, _ = server.post({**asked(""), "messages": turns})
    assert status == 200


def slow(server, rng, known):
    content = prompt_of(rng)
    data = chat_bytes(asked(content))
    with server.connect() as client:
        step = 1 + len(data) // 5
        for begin in range(0, len(data), step):
            client.send(data[begin : begin + step])
            time.sleep(rng.random() * 0.05)
        status, _, body = client.answer()
    assert (status, text_of(json.loads(body))) == (200, known.of(content)), body


def leaver(server, rng, _):
    with server.connect() as client:
        client.send(chat_bytes(chat("x" * rng.randrange(1, 2000), stream=rng.random() < 0.5))[: rng.randrange(10, 9999)])
        if rng.random() < 0.5:
            client.reset()


def malformed(server, rng, _):
    status, answer = server.post(rng.choice(MALFORMED))
    assert status == 400 and "error" in answer, answer


def not_http(server, rng, _):
    with server.connect() as client:
        client.send(rng.choice(NOT_HTTP))
        client.half_close()
        answer = client.read_to_end()
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 505")), answer


def health(server, rng, _):
    assert server.request("GET", rng.choice(["/health", "/v1/models", "/metrics"]))[0] == 200


KINDS = [whole, stream, conversation, slow, leaver, malformed, not_http, health]


def pauses(server, seed, done):
    rng = random.Random(seed)
    while not done.wait(rng.random() * 4):
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(rng.random() * 0.5)
        server.process.send_signal(signal.SIGCONT)


def work(server, requests, seed, failures, known):
    rng = random.Random(seed)
    for _ in range(requests):
        kind = rng.choice(KINDS)
        try:
            kind(server, rng, known)
        except Exception as problem:  # every kind of failure counts, and the others go on
            failures.append(f"{kind.__name__}: {problem!r}")


def soak(server, requests, seed, known):
    failures = []
    done = threading.Event()
    stopper = threading.Thread(target=pauses, args=(server, seed, done))
    stopper.start()
    memory = []
    for quarter in range(4):
        threads = [threading.Thread(target=work, args=(server, requests // 4 // THREADS, f"{seed}.{quarter}.{i}", failures, known))
                   for i in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        memory.append(resident_kib(server.process))
    done.set()
    stopper.join()
    if not server.wait_idle(30):
        failures.append(f"work is left behind: {server.stats()}")
    if memory[-1] > memory[0] * 1.1 + 16 * 1024:
        failures.append("memory goes on growing")
    metrics = server.request("GET", "/metrics")[2].decode()
    counts = {line.split()[0]: float(line.split()[1]) for line in metrics.splitlines() if "prefix_cache" in line and line[0] != "#"}
    code, log = server.stop()
    if code != 0:
        failures.append(f"exit code {code}: {log}")
    print(json.dumps({"requests": requests // 4 // THREADS * THREADS * 4, "seed": seed, "rss_kib": memory, "cache": counts,
                      "failures": failures[:20]}, indent=2))
    return 1 if failures else 0


def main(requests=500, seed=1, model=None):
    flags = ["--exact", "--slots", 4, "--cache-mib", 32]
    with tempfile.TemporaryDirectory() as folder:
        if model is not None:
            with Server(model, "--exact", "--cache-mib", 0) as cold, Server(model, *flags) as server:
                return soak(server, requests, seed, Known(cold))
        with Server(write_chain(pathlib.Path(folder) / "chain", Chain.answer(SENTENCE, [b"Hm."])), *flags) as server:
            return soak(server, requests, seed, Known())


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(*map(int, arguments[:2]), *arguments[2:]))
