"""What clients, proxies and probes do to the HTTP side (the engine's part is chat_test.py)."""

import json
import time

from chain_checkpoint import Chain, write_chain
from lily_server import ServerCase, chat, chat_bytes, main

SHORT = chat(max_tokens=2)


class BodyFraming(ServerCase):
    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    def raw(self, data, half_close=False):
        """All that comes back until the server closes."""
        with self.server.connect() as client:
            client.send(data)
            if half_close:
                client.half_close()
            return client.read_to_end()

    def chunked(self, body, size=1, extension=b"", trailer=b""):
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
        pieces = [body[i : i + size] for i in range(0, len(body), size)]
        chunks = b"".join(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces)
        return head + chunks + b"0\r\n" + trailer + b"\r\n"

    def test_chunked_bodies(self):
        body = json.dumps(SHORT).encode()
        for request in (self.chunked(body), self.chunked(body, 7, b";name=\"v\""),
                        self.chunked(body, 1000, trailer=b"X-Sum: 1\r\nX-More: 2\r\n")):
            with self.server.connect() as client:
                client.send(request + chat_bytes(SHORT))
                self.assertEqual(client.answer()[0], 200)
                self.assertEqual(client.answer()[0], 200, "the connection stays in step")

    def test_no_body(self):
        with self.server.connect() as client:
            client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\n\r\n")
            status, _, body = client.answer()
        self.assertEqual(status, 400)
        self.assertIn("nothing", json.loads(body)["error"]["message"])

    def test_length_shorter_than_the_body(self):
        body = json.dumps(SHORT).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n" % (len(body) - 5)
        smuggled = b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n"
        answer = self.raw(head + body + smuggled)
        self.assertTrue(answer.startswith(b"HTTP/1.1 400"), answer)
        self.assertEqual(answer.count(b"HTTP/1.1"), 1, "nothing is read out of the leftovers")

    def test_length_longer_than_the_body(self):
        body = json.dumps(SHORT).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n" % (len(body) + 5)
        self.assertTrue(self.raw(head + body, half_close=True).startswith(b"HTTP/1.1 400"))

    def test_bad_lengths(self):
        for headers in (b"Content-Length: -5", b"Content-Length: five", b"Content-Length: 5\r\nContent-Length: 7",
                        b"Content-Length: 5\r\nContent-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked",
                        b"Content-Length: 99999999999999999999"):
            request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\n" + headers + b"\r\n\r\nhello"
            answer = self.raw(request + b"GET /health HTTP/1.1\r\n\r\n")
            self.assertTrue(answer.startswith(b"HTTP/1.1 400"), (headers, answer))
            self.assertEqual(answer.count(b"HTTP/1.1"), 1, headers)

    def test_expect_continue(self):
        body = json.dumps(SHORT).encode()
        with self.server.connect() as client:
            client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\n"
                        b"Content-Length: %d\r\n\r\n" % len(body))
            self.assertEqual(client.read_until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n")
            client.send(body)
            self.assertEqual(client.answer()[0], 200)

    def test_too_large(self):
        answer = self.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000000\r\n\r\n{")
        self.assertTrue(answer.startswith(b"HTTP/1.1 413"), answer)
        answer = self.raw(b"GET /health HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n")
        self.assertTrue(answer.startswith(b"HTTP/1.1 431"), answer)


class Json(ServerCase):
    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    def test_deep_nesting(self):
        deep = b"[" * 10_000 + b"]" * 10_000
        fine = b"[" * 60 + b"]" * 60
        message = b'"messages":[{"role":"user","content":"hi"}]'
        shapes = (b'{"zzz":%b,"max_tokens":1,' + message + b"}", b'{"tools":%b,' + message + b"}",
                  b'{"response_format":%b,' + message + b"}", b'{"messages":[{"role":"user","content":%b}]}',
                  b'{"chat_template_kwargs":{"a":%b},"max_tokens":1,' + message + b"}")
        for shape in shapes:
            status, answer = self.server.post(shape % deep)
            self.assertEqual(status, 400, shape)
            self.assertIn("nested", answer["error"]["message"])
            self.assertEqual(self.server.post(shape % fine)[0], 200 if b"max_tokens" in shape else 400)
        arguments = json.dumps("{\"a\":" + deep.decode() + "}").encode()
        call = b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"function":{"name":"f",' \
               b'"arguments":%b}}]}]}'
        self.assertEqual(self.server.post(call % arguments)[0], 400)
        self.assertEqual(self.server.get("/health")[0], 200)

    def test_text_that_is_not_unicode(self):
        shape = b'{"max_tokens":1,"messages":[{"role":"user","content":"%b"}]}'
        for good in (rb"a\ud83d\ude00b", rb"a\u0000b", "é漢😀".encode()):
            self.assertEqual(self.server.post(shape % good)[0], 200, good)
        for bad in (rb"\ud83d", rb"\ude00", rb"\ud83dx", b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf0\x9f"):
            self.assertEqual(self.server.post(shape % bad)[0], 400, bad)
            model = b'{"model":"%b","max_tokens":1,"messages":[{"role":"user","content":"x"}]}' % bad
            self.assertEqual(self.server.post(model)[0], 400, bad)
        for bad in (b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80"):
            with self.server.connect() as client:
                client.send(b"GET /v1/models/" + bad + b" HTTP/1.1\r\nX-Name: " + bad + b"\r\n\r\n")
                status, _, body = client.answer()
            self.assertIn(status, (400, 404))
            json.loads(body.decode("utf-8"))

    def test_the_error_is_openais(self):
        status, answer = self.server.post(b"{nonsense")
        self.assertEqual(status, 400)
        self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})


class Routes(ServerCase):
    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    def test_slashes_and_queries(self):
        for path in ("/v1/chat/completions/", "/v1//chat/completions", "//v1/chat/completions",
                     "/v1/chat/completions?x=1", "/v1/chat/completions/?x=/a/"):
            self.assertEqual(self.server.post(SHORT, path)[0], 200, path)
        for path in ("/v1/models/", "//v1//models", "/v1/models?limit=5"):
            self.assertEqual(self.server.get(path)[0], 200, path)
        status, answer = self.server.post(SHORT, "/V1/chat/completions")
        self.assertEqual(status, 404)
        self.assertIn("/V1/chat/completions", answer["error"]["message"])

    def test_methods(self):
        for path, allowed in (("/v1/chat/completions", "POST"), ("/health", "GET, HEAD"), ("/v1/models", "GET, HEAD")):
            for method in ("GET", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "POST", "BREW"):
                if method in allowed:
                    continue
                with self.server.connect() as client:
                    client.send(f"{method} {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode() + chat_bytes(SHORT))
                    status, headers, body = client.answer()
                    self.assertEqual(status, 405, (method, path))
                    self.assertEqual(headers["Allow"], allowed)
                    self.assertEqual(json.loads(body)["error"]["code"], "method_not_allowed")
                    self.assertEqual(client.answer()[0], 200, "the next request on the connection")

    def test_head(self):
        for path in ("/health", "/v1/models", "/"):
            status, headers, _ = self.server.request("GET", path)
            with self.server.connect() as client:
                client.send(f"HEAD {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
                head = client.read_until(b"\r\n\r\n").decode()
                client.send(chat_bytes(SHORT))
                self.assertEqual(client.answer()[0], 200)
            self.assertTrue(head.startswith(f"HTTP/1.1 {status}"), head)
            self.assertIn(f"Content-Length: {headers['Content-Length']}\r\n", head)
            self.assertIn(f"Content-Type: {headers['Content-Type']}\r\n", head)

    def test_unknown_paths(self):
        for path in ("/nothing", "/v1", "/v1/embeddings", "/%2e%2e/etc/passwd"):
            status, answer = self.server.get(path)
            self.assertEqual(status, 404, path)
            self.assertEqual(answer["error"]["code"], "not_found")
        with self.server.connect() as client:
            client.send(chat_bytes(SHORT, "/nothing") + chat_bytes(SHORT))
            self.assertEqual(client.answer()[0], 404)
            self.assertEqual(client.answer()[0], 200)

    def test_models(self):
        _, listed = self.server.get("/v1/models")
        self.assertEqual([model["id"] for model in listed["data"]], ["tiny"])
        self.assertEqual(self.server.get("/v1/models/tiny"), (200, listed["data"][0]))
        status, answer = self.server.get("/v1/models/gpt-4")
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))

    def test_any_model_name_means_the_one_there_is(self):
        for name in ("tiny", "gpt-4o", "", None):
            status, answer = self.server.post({**SHORT, "model": name})
            self.assertEqual((status, answer.get("model")), (200, "tiny"), name)
        self.refused({**SHORT, "model": 5}, "model")


class Load(ServerCase):
    @classmethod
    def setUpClass(cls):
        model = write_chain(cls.folder() / "forever", Chain.forever([b"la", b"le", b"lu"]), context=8192)
        cls.start(model, "--max-queue", 100)

    def test_health_answers_beside_streams_and_idle_connections(self):
        clients = [self.server.connect() for _ in range(100)]
        for client in clients[:50]:
            client.send(chat_bytes(chat(stream=True)))
        for client in clients[:50]:
            client.read_until(b'"role":"assistant"')
        for client in clients[50:]:
            client.send(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n")
            self.assertEqual(client.answer()[0], 200)
        stats = self.server.stats()
        self.assertGreaterEqual(stats["running"] + stats["queued"], 40, "the streams are under way")
        for client in clients:
            client.reset()
        self.assertTrue(self.server.wait_idle(), "their generations end with them")

    def test_a_full_queue_says_so(self):
        with self.server.connect() as blocker:
            blocker.send(chat_bytes(chat(stream=True)))
            blocker.read_until(b"reasoning")
            waiting = [self.server.connect() for _ in range(101)]
            for client in waiting:
                client.send(chat_bytes(SHORT))
            deadline = time.monotonic() + 30
            while self.server.stats()["queued"] < 100 and time.monotonic() < deadline:
                time.sleep(0.01)
            status, headers, body = self.server.request("POST", "/v1/chat/completions", json.dumps(SHORT))
            for client in waiting:
                client.reset()
        self.assertEqual(status, 503, body)
        self.assertEqual(headers["Retry-After"], "1")
        self.assertEqual(json.loads(body)["error"]["code"], "overloaded")
        self.assertTrue(self.server.wait_idle(30))


if __name__ == "__main__":
    main()
