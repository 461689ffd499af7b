"""lily pull against a local hub that redirects, drops connections, lies and fails."""

import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import hf_checkpoint
import lily

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MIB = 1 << 20


def git_id(body):
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


class Hub(http.server.ThreadingHTTPServer):
    """Serves org/model. `fault(handler, name, begin, end)` may answer a request for a file itself and return True."""

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.fault = lambda *_: False
        self.token = None
        self.api = {}
        self.requests = []  # (path, range, authorization)
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that hangs up is what some of the tests are about."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def listing(self):
        siblings = []
        for name, body in self.files.items():
            entry = {"rfilename": name, "size": len(body), "blobId": git_id(body)}
            if name.endswith(".safetensors"):
                entry["lfs"] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
            siblings.append(entry)
        return {"sha": COMMIT, "siblings": siblings} | self.api

    def ranges(self, name):
        return [r for path, r, _ in self.requests if path.endswith("/" + name) and r]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in ({"Content-Length": len(body)} | headers).items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub = self.server
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        with hub.lock:
            hub.requests.append((self.path, wanted and (int(wanted[1]), int(wanted[2]) + 1), self.headers.get("Authorization")))
        if hub.token and not self.path.startswith("/cdn/") and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self.reply(401, b"Invalid credentials")
        if self.path.startswith("/api/models/org/model/revision/"):
            if self.path.split("/")[-1].split("?")[0] not in ("main", "v1%2Fbeta", COMMIT):
                return self.reply(404, b"Revision Not Found")
            return self.reply(200, json.dumps(hub.listing()).encode())
        name = self.path.split("/")[-1]
        if self.path != f"/org/model/resolve/{COMMIT}/{name}" and self.path != f"/cdn/{name}" or name not in hub.files:
            return self.reply(404, b"Entry not found")
        if self.path.startswith("/org") and name.endswith(".safetensors"):
            # Large files lie elsewhere: another host, which must not see the token.
            return self.reply(302, Location=f"http://localhost:{hub.server_port}/cdn/{name}")
        body = hub.files[name]
        begin, end = (int(wanted[1]), int(wanted[2]) + 1) if wanted else (0, len(body))
        if not hub.fault(self, name, begin, end):
            self.part(body, begin, end)

    def part(self, body, begin, end):
        self.reply(206, body[begin:end], Content_Range=f"bytes {begin}-{end - 1}/{len(body)}")

    def drop(self, body, begin, end, count):
        """The beginning of the answer, and then nothing more."""
        self.send_response(206)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(body)}")
        self.end_headers()
        self.wfile.write(body[begin : begin + count])
        self.wfile.flush()
        self.close_connection = True


class Pull(lily.Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        hf_checkpoint.write(self.folder / "hf", dense=True, tied=True)
        lily.run("quantize", self.folder / "hf", self.folder / "mlx")
        files = {p.name: p.read_bytes() for p in (self.folder / "mlx").iterdir()}
        files["README.md"] = b"not wanted"
        files["tokenizer_config.json"] = b""
        self.weights = next(name for name in files if name.endswith(".safetensors"))
        self.hub = Hub(files)
        self.addCleanup(self.hub.server_close)
        self.addCleanup(self.hub.shutdown)
        self.cache = self.folder / "cache"
        self.repository = self.cache / "models--org--model"
        os.environ.update(HF_ENDPOINT=self.hub.url, HF_HUB_CACHE=str(self.cache), HF_HOME=str(self.folder / "home"),
                          HF_TOKEN="", no_proxy="*")

    def grow(self, size):
        """More weights than a chunk: a tensor that belongs to the vision tower."""
        self.hub.files["extra.safetensors"] = os.urandom(size)

    def pull(self, *args):
        path = pathlib.Path(self.lily("pull", "org/model", *args).strip())
        self.assertEqual(path, self.repository / "snapshots" / COMMIT)
        for name, body in self.hub.files.items():
            if name != "README.md":
                self.assertEqual((path / name).read_bytes(), body, name)
        return path

    def expect_no_model(self):
        self.assertEqual(list(self.cache.glob("*/snapshots/*")), [])
        self.assertEqual(list(self.cache.glob("*/refs/*")), [])
        self.assertEqual([p for p in self.cache.rglob("config.json")], [])

    def test_the_layout_of_the_cache(self):
        path = self.pull()
        self.assertEqual((self.repository / "refs" / "main").read_text(), COMMIT)
        digest = hashlib.sha256(self.hub.files[self.weights]).hexdigest()
        self.assertEqual(os.readlink(path / self.weights), f"../../blobs/{digest}")
        self.assertEqual(os.readlink(path / "config.json"), "../../blobs/" + git_id(self.hub.files["config.json"]))
        self.assertEqual(len(list((self.repository / "blobs").iterdir())), len(self.hub.files) - 1)
        self.assertFalse((path / "README.md").exists())
        self.assertEqual(sorted(p.name for p in self.repository.iterdir()), ["blobs", "refs", "snapshots"])
        self.assertIn("loads", self.lily("inspect", path))

    def test_what_was_pulled_can_be_verified(self):
        path = self.pull()
        report = json.loads(self.lily("inspect", path, "--verify", "--json"))["verified"]
        self.assertEqual((report["files"], report["problems"]), (len(self.hub.files) - 1, []))
        self.assertIn("hub cache", report["against"])
        blob = (path / "config.json").resolve()
        blob.write_bytes(blob.read_bytes() + b" ")
        done = lily.run("inspect", path, "--verify")
        self.assertEqual(done.returncode, 1)
        self.assertIn("config.json: expected git id " + blob.name, done.stdout)
        self.assertIn("1 file is not what", done.stderr)

    def test_a_second_pull_fetches_nothing(self):
        self.pull()
        self.hub.requests.clear()
        self.pull()
        self.assertEqual([path for path, _, _ in self.hub.requests], ["/api/models/org/model/revision/main?blobs=true"])

    def test_a_snapshot_that_another_tool_left_unfinished_is_completed(self):
        path = self.pull()
        (path / "config.json").unlink()
        (path / self.weights).unlink()
        (path / self.weights).symlink_to("../../blobs/nothing")
        self.pull()

    def test_revisions(self):
        self.pull("--revision", "v1/beta")
        self.assertEqual((self.repository / "refs" / "v1" / "beta").read_text(), COMMIT)
        self.pull("--revision", COMMIT)
        self.assertFalse((self.repository / "refs" / COMMIT).exists())
        self.fails("pull", "org/model", "--revision", "v9", code=1, says=["org/model at revision v9", "no such model"])
        self.fails("pull", "org/other", code=1, says="no such model")

    def test_large_files_come_in_ranges_over_several_connections(self):
        self.grow(40 * MIB + 17)
        self.pull("--connections", 3)
        self.assertEqual(sorted(self.hub.ranges("extra.safetensors"))[::2],
                         [(0, 16 * MIB), (16 * MIB, 32 * MIB), (32 * MIB, 40 * MIB + 17)])

    def test_dropped_connections_go_on_where_they_stopped(self):
        self.grow(3 * MIB)
        dropped = []

        def fault(handler, name, begin, end):
            if name != "extra.safetensors" or len(dropped) >= 8:
                return False
            dropped.append(begin)
            handler.drop(self.hub.files[name], begin, end, 200_000)
            return True

        self.hub.fault = fault
        self.pull()
        self.assertEqual(dropped, [i * 200_000 for i in range(8)])

    def test_temporary_errors_are_tried_again(self):
        answers = iter([500, 503, 429])

        def fault(handler, name, begin, end):
            status = next(answers, None) if name == "config.json" else None
            if status:
                handler.reply(status, b"later", Retry_After="0")
            return status is not None

        self.hub.fault = fault
        self.pull()

    def test_a_server_that_never_recovers(self):
        self.hub.fault = lambda handler, name, *_: name == self.weights and (handler.reply(503, b"overloaded") or True)
        self.fails("pull", "org/model", code=1, says=[self.weights, "HTTP 503", "overloaded"])
        self.expect_no_model()

    def test_lies_about_lengths_and_places(self):
        def total(handler, body, begin, end):
            handler.reply(206, body[begin:end], Content_Range=f"bytes {begin}-{end - 1}/{len(body) + 1}")

        def elsewhere(handler, body, begin, end):
            handler.reply(206, body[begin:end], Content_Range=f"bytes {begin + 1}-{end}/{len(body)}")

        def longer(handler, body, begin, end):
            handler.reply(206, body[begin:end] + b"more", Content_Range=f"bytes {begin}-{end - 1}/{len(body)}")

        def whole(handler, body, begin, end):
            handler.reply(200, body + b"more")

        def shorter(handler, body, begin, end):
            handler.reply(206, body[begin : end - 1][:0], Content_Range=f"bytes {begin}-{end - 1}/{len(body)}")

        for lie, says in ((total, "expected Content-Range"), (elsewhere, "expected Content-Range"),
                          (longer, "found more"), (whole, "found more"), (shorter, "the answer ended at 0")):
            with self.subTest(lie.__name__):
                self.hub.fault = lambda handler, name, begin, end, lie=lie: (
                    name == self.weights and (lie(handler, self.hub.files[name], begin, end) or True))
                self.fails("pull", "org/model", code=1, says=[self.weights, says])
                self.expect_no_model()
        self.hub.fault = lambda *_: False
        self.pull()

    def test_wrong_bytes_are_deleted(self):
        for name, says in ((self.weights, "expected SHA-256"), ("config.json", "expected git id")):
            with self.subTest(name):
                self.hub.fault = lambda handler, file, begin, end, name=name: file == name and (
                    handler.part(bytes(len(self.hub.files[file])), begin, end) or True)
                shutil.rmtree(self.cache, ignore_errors=True)
                self.fails("pull", "org/model", code=1, says=[name, says, "deleted"])
                self.expect_no_model()
                self.assertEqual(list(self.cache.rglob("*" + git_id(self.hub.files[name]) + "*")), [])
        self.hub.fault = lambda *_: False
        self.pull()

    def test_a_server_without_ranges_serves_small_files(self):
        self.hub.fault = lambda handler, name, *_: handler.reply(200, self.hub.files[name]) or True
        self.pull()

    def test_an_interrupted_pull_goes_on(self):
        self.grow(48 * MIB)
        reached, release = threading.Event(), threading.Event()

        def fault(handler, name, begin, end):
            if name == "extra.safetensors" and begin >= 32 * MIB:
                reached.set()
                handler.drop(self.hub.files[name], begin, end, 100_000)
                handler.close_connection = False
                release.wait(60)
                return True
            return False

        for kind, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
            with self.subTest(kind):
                self.hub.fault = fault
                reached.clear()
                process = subprocess.Popen([lily.LILY, "pull", "org/model"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertTrue(reached.wait(60))  # it holds the lock
                journal = self.repository / "blobs" / (hashlib.sha256(self.hub.files["extra.safetensors"]).hexdigest() + ".lily-chunks")
                deadline = time.time() + 60
                while time.time() < deadline and not (journal.exists() and journal.read_text().count("\n") >= 3):
                    time.sleep(0.01)
                other = lily.run("pull", "org/model")
                self.assertEqual(other.returncode, 2)
                self.assertIn("another lily pull", other.stderr)
                process.send_signal(kind)
                process.communicate(timeout=10)
                self.assertEqual(process.returncode, code)
                self.expect_no_model()
        release.set()
        self.hub.fault = lambda *_: False
        self.hub.requests.clear()
        self.pull()
        self.assertEqual({begin for begin, _ in self.hub.ranges("extra.safetensors")}, {32 * MIB})

    def test_the_token_goes_to_the_hub_alone(self):
        self.hub.token = "secret"
        self.fails("pull", "org/model", code=2, says=["HTTP 401", "HF_TOKEN"])
        (self.folder / "home").mkdir()
        (self.folder / "home" / "token").write_text("secret\n")
        self.pull()
        seen = {path.split("/")[1]: token for path, _, token in self.hub.requests}
        self.assertEqual(seen, {"api": "Bearer secret", "org": "Bearer secret", "cdn": None})
        os.environ["HF_TOKEN"] = "other"
        done = lily.run("pull", "org/model")
        self.assertEqual(done.returncode, 2)
        self.assertNotIn("other", done.stderr)

    def test_answers_that_are_no_listing(self):
        blob = git_id(b"")
        good = {"rfilename": "config.json", "size": 0, "blobId": blob}
        for api, says in (({"sha": "../../x"}, "sha: expected 40 hexadecimal digits"), ({"siblings": 1}, "siblings"),
                          ({"siblings": []}, "no config.json"), ({"siblings": [good]}, "no weights"),
                          ({"siblings": [good | {"blobId": "../x"}]}, "blobId"),
                          ({"siblings": [good | {"size": -1}]}, "size: expected"),
                          ({"siblings": [good | {"lfs": {"sha256": blob}}]}, "64 hexadecimal digits")):
            self.hub.api = api
            self.fails("pull", "org/model", code=1, says=says)
        self.hub.api = {}
        self.hub.api = {"siblings": self.hub.listing()["siblings"] + [
            {"rfilename": name, "size": 0, "blobId": blob} for name in ("../evil.json", "/evil.json", "a/evil.json", ".evil.json")]}
        self.lily("pull", "org/model")
        self.assertEqual(list(self.folder.rglob("*evil*")), [])

    def test_arguments(self):
        self.fails("pull", code=2, says="lily pull ORG/NAME")
        for name in ("model", "org/", "../x/y", "org/..", "org/a/b", "https://hub/org/model"):
            self.fails("pull", name, code=2, says="expected ORG/NAME")
        for revision in ("", "../x", "/x", "a/../b"):
            self.fails("pull", "org/model", "--revision", revision, code=2, says="revision")
        os.environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
        self.fails("pull", "org/model", code=1, says="127.0.0.1")


if __name__ == "__main__":
    lily.main()
