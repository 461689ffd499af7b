"""Clients that go away, and the server's own end."""

import http.client
import json
import os
import pathlib
import signal
import time
import unittest

from chain_checkpoint import Chain, write_chain
from lily_server import Server, ServerCase, chat, chat_bytes, main

WORDS = [f" w{i}".encode() for i in range(40)]


class Departures(ServerCase):
    """A model that never stops by itself, and 30,000 tokens of room: what ends, ends because the client went."""

    @classmethod
    def setUpClass(cls):
        cls.model = write_chain(cls.folder() / "forever", Chain.forever(WORDS), context=30_000)
        cls.start(cls.model, "--max-seq", 30_000)

    def begin(self, **fields):
        client = self.server.connect()
        client.send(chat_bytes(chat(**fields)))
        return client

    def wait_running(self, running=1, queued=0):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            stats = self.server.stats()
            if (stats["running"], stats["queued"]) == (running, queued):
                return
            time.sleep(0.01)
        self.fail(f"expected {running} running and {queued} queued, found {stats}")

    def assert_stops(self):
        self.assertTrue(self.server.wait_idle(), "the generation goes on without its client")

    def test_close_during_a_stream(self):
        client = self.begin(stream=True)
        client.read_until(b" w5")
        client.socket.close()
        self.assert_stops()

    def test_close_while_a_whole_answer_is_made(self):
        client = self.begin()
        self.wait_running()
        client.socket.close()
        self.assert_stops()

    def test_close_during_a_long_prefill(self):
        for stream in (False, True):
            client = self.begin(content="x" * 20_000, stream=stream)
            self.wait_running()
            client.socket.close()
            self.assert_stops()

    def test_resets_at_every_point(self):
        descriptors = pathlib.Path(f"/proc/{self.server.process.pid}/fd")
        before = len(os.listdir(descriptors))
        for i in range(50):
            client = self.begin(stream=True, max_tokens=30)
            if i % 3 > 0:
                client.read_until(b"\r\n\r\n")
            if i % 3 > 1:
                client.read_until(b" w20")
            client.reset()
        self.assert_stops()
        self.assertEqual(self.server.post(chat(max_tokens=2))[0], 200)
        deadline = time.monotonic() + 10
        while len(os.listdir(descriptors)) > before and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertLessEqual(len(os.listdir(descriptors)), before, "descriptors leak")

    def test_abandoned_requests_never_start(self):
        running = self.begin(stream=True)
        running.read_until(b" w5")
        waiting = [self.begin(max_tokens=3), self.begin(stream=True), self.begin()]
        self.wait_running(1, 3)
        waiting[1].socket.close()
        waiting[2].socket.close()
        time.sleep(0.5)  # the two are noticed while they wait
        running.socket.close()
        with waiting[0] as patient:
            self.assertEqual(patient.answer()[0], 200)
        self.assert_stops()

    def test_closing_the_sending_side_is_not_leaving(self):
        for stream in (False, True):
            with self.begin(stream=stream, max_tokens=2000) as client:
                client.half_close()
                head, _, body = client.read_to_end().partition(b"\r\n\r\n")
            self.assertTrue(head.startswith(b"HTTP/1.1 200"), head)
            if stream:
                self.assertIn(b"data: [DONE]", body[-100:])
            else:
                self.assertEqual(json.loads(body)["usage"]["completion_tokens"], 2000)

    def test_half_closed_through_a_real_client(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(chat(max_tokens=2000)))
        connection.sock.shutdown(1)
        self.assertEqual(json.loads(connection.getresponse().read())["usage"]["completion_tokens"], 2000)
        connection.close()

    def test_one_that_closes_after_half_closing(self):
        client = self.begin()
        client.half_close()
        self.wait_running()
        client.socket.close()
        self.assert_stops()


class Shutdown(unittest.TestCase):
    def serve(self, *flags):
        folder = ServerCase.folder.__func__(type(self))
        server = Server(write_chain(folder / "forever", Chain.forever(WORDS), context=30_000), "--max-seq", 30_000, *flags)
        self.addCleanup(server.stop)
        return server

    def test_idle(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve()
            with server.connect() as idle:
                idle.send(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n")
                idle.answer()
                server.process.send_signal(number)
                self.assertEqual(server.process.wait(30), 0)
                self.assertEqual(idle.read_to_end(), b"")

    def test_running_answers_are_finished_and_new_ones_refused(self):
        server = self.serve("--drain-seconds", 300)
        with server.connect() as stream, server.connect() as whole, server.connect() as late:
            stream.send(chat_bytes(chat(stream=True, max_tokens=3000)))
            stream.read_until(b" w5")
            whole.send(chat_bytes(chat(max_tokens=20)))
            while server.stats()["queued"] != 1:
                time.sleep(0.01)
            server.process.terminate()
            status = 200
            while status == 200:
                status, _, body = server.request("GET", "/health")
            self.assertEqual((status, json.loads(body)["status"]), (503, "draining"))
            late.send(chat_bytes(chat(max_tokens=1)))
            status, headers, body = late.answer()
            self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "shutting_down"))
            self.assertEqual(headers["Connection"], "close")
            self.assertTrue(stream.read_to_end().endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), "the stream was broken off")
            self.assertEqual(whole.answer()[0], 200)
        self.assertEqual(server.process.wait(30), 0)

    def test_the_deadline_cuts_what_is_left(self):
        server = self.serve("--drain-seconds", 0)
        with server.connect() as stream, server.connect() as whole:
            stream.send(chat_bytes(chat(stream=True)))
            stream.read_until(b" w5")
            whole.send(chat_bytes(chat()))
            while server.stats()["queued"] != 1:
                time.sleep(0.01)
            server.process.terminate()
            rest = stream.read_to_end()
            self.assertIn(b'"code":"shutting_down"', rest[-200:])
            self.assertFalse(b"[DONE]" in rest, "a broken answer is not a finished one")
            self.assertTrue(rest.endswith(b"0\r\n\r\n"), "the stream itself is in order")
            self.assertEqual(whole.answer()[0], 503)
        self.assertEqual(server.process.wait(30), 0)

    def test_a_taken_port(self):
        server = self.serve()
        with self.assertRaisesRegex(RuntimeError, f"{server.port}.*cannot listen"):
            Server("tiny", "--port", server.port)


if __name__ == "__main__":
    main()
