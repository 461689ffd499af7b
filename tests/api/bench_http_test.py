"""lily bench --http: our server through its own API, and servers that do not answer as they should."""

import http.server
import json
import pathlib
import subprocess
import tempfile
import threading
import unittest

from lily_server import LILY, Server, main


def bench(url, *flags):
    return subprocess.run([LILY, "bench", "--http", url, *map(str, flags)], capture_output=True, text=True, timeout=300, check=False)


class Stub(http.server.BaseHTTPRequestHandler):
    """Lists a model and streams `chunks` (objects) for any completion, or sends `completion` or `status`."""

    chunks = ()
    completion = None
    status = 200

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply(200, json.dumps({"data": [{"id": "stub"}]}))

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.status != 200:
            return self.reply(self.status, "no room here")
        if self.completion:
            return self.reply(200, json.dumps(self.completion))
        return self.reply(200, "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in self.chunks) + "data: [DONE]\n\n")

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


class StubCase(unittest.TestCase):
    def fails(self, done, *says):
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in says:
            self.assertIn(word, done.stderr)

    def stub(self, **fields):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Made", (Stub,), fields))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)


class BenchHttp(StubCase):
    def test_our_own_server(self):
        with Server("tiny", "--slots", "3") as server, tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "b.json"
            done = bench(f"http://127.0.0.1:{server.port}/", "--contexts", 100, "--warm", 20, "--warm-context", 400,
                         "--streams", 3, "--stream-context", 50, "--decode", 6, "--rounds", 2, "--json", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            cold, warm, streams = json.loads(out.read_text())["rows"]
        for row, tokens in ((cold, 100), (warm, 20), (streams, 150)):
            for run in row["runs"]:
                self.assertAlmostEqual(run["prompt_tokens"], tokens, delta=0.2 * tokens + 5)
                self.assertEqual(run["decoded_tokens"], 6 * row["streams"])
                self.assertGreater(run["prefill_seconds"], 0)
                self.assertGreater(run["decode_seconds"], 0)
        # What is behind a warm turn comes from the cache: else it would take as long as 400 tokens.
        self.assertLess(min(r["prefill_seconds"] for r in warm["runs"]), 2 * min(r["prefill_seconds"] for r in cold["runs"]))

    def test_our_completions_go_on_past_the_end_when_asked_to(self):
        request = {"prompt": "<|im_start|>user\nWrite: hello<|im_end|>\n<|im_start|>assistant\n", "max_tokens": 40, "temperature": 0}
        with Server("tiny") as server:
            for ignore, reason in ((False, "stop"), (True, "length")):
                status, answer = server.post({**request, "ignore_eos": ignore}, path="/v1/completions")
                self.assertEqual((status, answer["choices"][0]["finish_reason"]), (200, reason), answer)
            self.assertEqual(answer["usage"]["completion_tokens"], 40)
            self.assertEqual(server.post({**request, "ignore_eos": 1}, path="/v1/completions")[0], 400)

    def test_no_server(self):
        self.fails(bench("http://127.0.0.1:9"), "127.0.0.1:9/v1/models")
        done = bench("localhost:8080")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected a URL", done.stderr)

    def test_servers_that_do_not_answer_as_they_should(self):
        text = {"choices": [{"text": "a"}]}
        usage = {"choices": [], "usage": {"prompt_tokens": 200, "completion_tokens": 1}}
        self.fails(bench(self.stub(status=503)), "HTTP 503: no room here")
        self.fails(bench(self.stub(chunks=[text, text])), "expected a streamed answer with its usage", "0 prompt tokens")
        self.fails(bench(self.stub(chunks=[text, {"error": {"message": "broke"}}])), "broke")
        self.fails(bench(self.stub(chunks=[text, usage]), "--contexts", 64), "context 64", "no more than the first")


if __name__ == "__main__":
    main()
