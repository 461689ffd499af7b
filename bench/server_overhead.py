"""What the server adds to a token: processor time of the connection's thread, which does HTTP, JSON, the template, the
tokenizer, and on the way back the detokenizer, the parser of reasoning and calls, and the events.

    LILY=build/release/lily python3 bench/server_overhead.py [MODEL] [TOKENS] [ROUNDS]

Each line is the least of ROUNDS answers of TOKENS tokens on a connection that stays open. The engine's thread is not in it:
it computes beside this one. The shares are what the time would be of a step, were it all waited for. Processor time, so that a
busy machine only adds cold caches.
"""

import http.client
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests" / "api"))
from lily_server import Server  # noqa: E402

STEPS_MS = {"35B on 16 cores": 65.0, "35B on an H200": 1.5}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


class Connection:
    """One that stays open, and the processor time of the thread behind it."""

    def __init__(self, server):
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task")
        before = set(tasks.iterdir())
        self.http = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        self.post("/tokenize", {"content": "x"})
        [self.task] = set(tasks.iterdir()) - before

    def post(self, path, request):
        self.http.request("POST", path, json.dumps(request))
        response = self.http.getresponse()
        body = response.read()
        assert response.status == 200, body
        return body

    def microseconds(self):
        return int((self.task / "schedstat").read_text().split()[0]) / 1e3

    def cost(self, path, request):
        begin = self.microseconds()
        self.post(path, request)
        return self.microseconds() - begin


def ends(connection):
    """logit_bias that forbids the end of an answer."""
    ids = json.loads(connection.post("/tokenize", {"content": "<|im_end|><|endoftext|>"}))["tokens"]
    return {str(token): -100 for token in ids}


def main(model="tiny", tokens=1000, rounds=7):
    with Server(model, "--max-seq", 8192, "--cache-mib", 0) as server:
        connection = Connection(server)
        base = {"messages": [{"role": "user", "content": "Tell me about lily."}], "temperature": 0,
                "logit_bias": ends(connection), "thinking_budget": tokens // 2}
        cases = {"streamed": {"stream": True}, "streamed, tools": {"stream": True, "tools": [TOOL]},
                 "streamed, log-probabilities": {"stream": True, "logprobs": True, "top_logprobs": 5}, "whole": {}}
        for name, fields in cases.items():
            # Two lengths, so that what a request costs once drops out.
            runs = [[connection.cost("/v1/chat/completions", {**base, **fields, "max_tokens": count}) for count in (tokens, tokens // 5)]
                    for _ in range(rounds)]
            token = min((long - short) / (tokens - tokens // 5) for long, short in runs)
            shares = ", ".join(f"{100 * token / 1e3 / ms:.2f} % of {ms:g} ms ({where})" for where, ms in STEPS_MS.items())
            print(f"{name:28} {token:6.1f} us a token: {shares}", flush=True)
        text = "It was a dark and stormy night; the rain fell in torrents. " * 60
        request = {**base, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
        count = json.loads(connection.post("/v1/chat/completions", request))["usage"]["prompt_tokens"]
        prompt = min(connection.cost("/v1/chat/completions", request) for _ in range(rounds))
        print(f"{'prompt of ' + str(count) + ' tokens':28} {prompt / count:6.2f} us a prompt token, {prompt / 1e3:.2f} ms in all")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
