"""Starts `lily serve` (the binary of environment variable LILY) and talks to it. Standard library only."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

LILY = os.environ.get("LILY", "build/release/lily")


class Server:
    """A running server; use it in a with statement."""

    tls = None  # an ssl.SSLContext: connections are encrypted

    def __init__(self, model, *flags):
        command = [LILY, "serve", str(model), "--port", "0", "--threads", "1", "--log-level", "error", *map(str, flags)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"https?://127\.0\.0\.1:(\d+)", line)
        if not found:
            raise RuntimeError(f"{command}: {line}{self.process.communicate()[1]}")
        self.port = int(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """SIGTERM; returns the exit code and what was logged."""
        if self.process.poll() is None:
            self.process.terminate()
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body) of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=900)
        if self.tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=900, context=self.tls)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def get(self, path):
        status, _, body = self.request("GET", path)
        return status, json.loads(body)

    def post(self, request, path="/v1/chat/completions"):
        """(status, parsed answer); `request` is an object, or bytes that are sent as they are."""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        status, _, answer = self.request("POST", path, body, {"Content-Type": "application/json"})
        return status, json.loads(answer.decode("utf-8"))

    def stream(self, request):
        """All events of a streamed answer, parsed, [DONE] checked and left out."""
        body = json.dumps({**request, "stream": True}).encode()
        status, headers, answer = self.request("POST", "/v1/chat/completions", body)
        assert status == 200, answer
        assert headers["Content-Type"] == "text/event-stream", headers
        events = [event for event in answer.decode("utf-8").split("\n\n") if event and not event.startswith(":")]
        assert all(event.startswith("data: ") for event in events), events
        assert events[-1] == "data: [DONE]", events[-1]
        return [json.loads(event[len("data: ") :]) for event in events[:-1]]

    def connect(self):
        return Raw(self.port)

    def stats(self):
        return self.get("/health")[1]

    def wait_idle(self, seconds=10):
        """True once nothing runs or waits."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            stats = self.stats()
            if stats["running"] == 0 and stats["queued"] == 0:
                return True
            time.sleep(0.01)
        return False


class Raw:
    """A socket for exact bytes."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.received = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        with contextlib.suppress(ConnectionError):  # the server may answer and close before it has read all
            self.socket.sendall(data)

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def read_until(self, marker):
        while marker not in self.received:
            data = self.socket.recv(65536)
            if not data:
                raise AssertionError(f"closed before {marker!r}: {self.received!r}")
            self.received += data
        end = self.received.index(marker) + len(marker)
        head, self.received = self.received[:end], self.received[end:]
        return head

    def read_to_end(self):
        with contextlib.suppress(ConnectionResetError):
            while data := self.socket.recv(65536):
                self.received += data
        return self.received

    def answer(self):
        """(status, headers, body) of the next answer that has a length."""
        head = self.read_until(b"\r\n\r\n").decode("latin1")
        status = int(head.split(" ")[1])
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        length = int(headers.get("Content-Length", 0))
        while len(self.received) < length:
            data = self.socket.recv(65536)
            assert data, "closed inside a body"
            self.received += data
        body, self.received = self.received[:length], self.received[length:]
        return status, headers, body


def chat_bytes(request, path="/v1/chat/completions", extra=""):
    """The bytes of a whole POST."""
    body = json.dumps(request).encode()
    return f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


def chat(content="hi", thinking=None, **fields):
    """A request with one user message."""
    request = {"messages": [{"role": "user", "content": content}], **fields}
    if thinking is not None:
        request["chat_template_kwargs"] = {"enable_thinking": thinking}
    return request


def text_of(answer, field="content"):
    return answer["choices"][0]["message"].get(field)


def joined(events, field="content"):
    return "".join(event["choices"][0]["delta"].get(field, "") for event in events if event["choices"])


def finish_of(events):
    reasons = [event["choices"][0]["finish_reason"] for event in events if event["choices"]]
    assert all(reason is None for reason in reasons[:-1]), reasons
    return reasons[-1]


class ServerCase(unittest.TestCase):
    """Test cases with one server for all of them: setUpClass of a subclass calls start()."""

    @classmethod
    def start(cls, model, *flags):
        cls.server = Server(model, *flags)
        cls.addClassCleanup(cls.server.stop)

    @classmethod
    def folder(cls):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lily-api-"))
        cls.addClassCleanup(shutil.rmtree, folder)
        return folder

    def both(self, request):
        """The answer of a request, whole; its stream is checked to say the same."""
        status, answer = self.server.post(request)
        self.assertEqual(status, 200, answer)
        events = self.server.stream({**request, "stream_options": {"include_usage": True}})
        choice = answer["choices"][0]
        for field in ("content", "reasoning_content", "reasoning"):
            self.assertEqual(joined(events, field), choice["message"].get(field) or "", field)
        self.assertEqual(finish_of(events), choice["finish_reason"])
        cached = events[-1]["usage"].pop("prompt_tokens_details"), answer["usage"].pop("prompt_tokens_details")
        self.assertEqual(events[-1]["usage"], answer["usage"])
        self.assertLess(max(c["cached_tokens"] for c in cached), answer["usage"]["prompt_tokens"])
        return answer

    def refused(self, request, param=None, status=400):
        """The message of a request that has to be refused, naming `param`."""
        found, answer = self.server.post(request)
        self.assertEqual(found, status, answer)
        error = answer["error"]
        self.assertEqual(error["param"], param, error)
        self.assertIsInstance(error["message"], str)
        self.assertIsInstance(error["type"], str)
        return error["message"]


def main():
    if not shutil.which(LILY):
        print(f"{LILY}: no such program (set LILY)", file=sys.stderr)
        sys.exit(1)
    unittest.main(verbosity=1)
