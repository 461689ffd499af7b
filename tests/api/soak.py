"""Five hundred mixed requests: good ones, malformed ones, clients that leave. Prints what the server's memory did.

    LILY=build/release/lily python3 tests/api/soak.py [REQUESTS] [SEED]

Fails if a good request is answered wrongly, something other than the expected errors comes back, the server dies, or
work is left behind. Memory is printed rather than judged: allocators differ.
"""

import json
import pathlib
import random
import sys
import tempfile
import threading

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


def whole(server, rng):
    prompt = "x" * rng.randrange(1, 400)
    status, answer = server.post(chat(prompt, thinking=rng.random() < 0.5, logprobs=rng.random() < 0.3))
    assert (status, text_of(answer)) == (200, b"".join(SENTENCE).decode()), answer


def stream(server, rng):
    events = server.stream(chat("x" * rng.randrange(1, 400), thinking=False, stop=["zzz"]))
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == b"".join(SENTENCE).decode(), text


def leaver(server, rng):
    with server.connect() as client:
        client.send(chat_bytes(chat("x" * rng.randrange(1, 2000), stream=rng.random() < 0.5))[: rng.randrange(10, 9999)])
        if rng.random() < 0.5:
            client.reset()


def malformed(server, rng):
    status, answer = server.post(rng.choice(MALFORMED))
    assert status == 400 and "error" in answer, answer


def not_http(server, rng):
    with server.connect() as client:
        client.send(rng.choice(NOT_HTTP))
        client.half_close()
        answer = client.read_to_end()
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 505")), answer


def health(server, rng):
    assert server.get(rng.choice(["/health", "/v1/models"]))[0] == 200


KINDS = [whole, stream, leaver, malformed, not_http, health]


def work(server, requests, seed, failures):
    rng = random.Random(seed)
    for _ in range(requests):
        kind = rng.choice(KINDS)
        try:
            kind(server, rng)
        except Exception as problem:  # every kind of failure counts, and the others go on
            failures.append(f"{kind.__name__}: {problem!r}")


def soak(requests, seed):
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        with Server(write_chain(pathlib.Path(folder) / "chain", Chain.answer(SENTENCE, [b"Hm."]))) as server:
            work(server, 20, seed, failures)  # what is allocated once is allocated now
            before = resident_kib(server.process)
            threads = [threading.Thread(target=work, args=(server, requests // THREADS, seed + i + 1, failures))
                       for i in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if not server.wait_idle(30):
                failures.append(f"work is left behind: {server.stats()}")
            after = resident_kib(server.process)
            code, log = server.stop()
    if code != 0:
        failures.append(f"exit code {code}: {log}")
    print(json.dumps({"requests": requests // THREADS * THREADS, "seed": seed, "rss_before_kib": before,
                      "rss_after_kib": after, "failures": failures}, indent=2))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(soak(int(sys.argv[1]) if len(sys.argv) > 1 else 500, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
