"""HTTPS: what lily serve answers over TLS, whom it waits for, and which files it refuses."""

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import time
import warnings

from lily_server import LILY, ServerCase, chat, chat_bytes, main, text_of


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def self_signed(folder, name="server"):
    """(certificate, key): files for localhost."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2,
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout", key, "-out", certificate)
    return certificate, key


class Tls(ServerCase):
    @classmethod
    def setUpClass(cls):
        certificate, key = self_signed(cls.folder())
        cls.start("tiny", "--tls-cert", certificate, "--tls-key", key)
        cls.server.tls = ssl.create_default_context(cafile=certificate)

    @contextlib.contextmanager
    def plain_socket(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as plain:
            yield plain

    @contextlib.contextmanager
    def encrypted_socket(self):
        with self.plain_socket() as plain, self.server.tls.wrap_socket(plain, server_hostname="localhost") as encrypted:
            yield encrypted

    def test_answers_whole_and_streamed(self):
        self.assertTrue(text_of(self.both(chat("What is 2+3?", thinking=False, temperature=0))))

    def test_versions(self):
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore", DeprecationWarning)  # of the old versions' names
        with self.encrypted_socket() as newest:
            self.assertEqual(newest.version(), "TLSv1.3")
        older = ssl.create_default_context()
        older.check_hostname, older.verify_mode = False, ssl.CERT_NONE
        older.set_ciphers("DEFAULT@SECLEVEL=0")
        older.minimum_version = ssl.TLSVersion.TLSv1
        for version, served in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_1, False)):
            older.maximum_version = version
            with self.plain_socket() as plain:
                if served:
                    older.wrap_socket(plain).close()
                else:
                    self.assertRaises((ssl.SSLError, ConnectionError), older.wrap_socket, plain)

    def test_many_requests_on_one_connection(self):
        connection = http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=60, context=self.server.tls)
        with contextlib.closing(connection):
            text = "漢字 and words. " * 40_000  # more than a TLS record and a socket's buffer
            for _ in range(3):
                connection.request("POST", "/tokenize", json.dumps({"content": text}))
                answer = json.loads(connection.getresponse().read())
                self.assertGreater(answer["count"], 40_000)
                connection.request("POST", "/detokenize", json.dumps({"tokens": answer["tokens"]}))
                self.assertEqual(json.loads(connection.getresponse().read())["content"], text)

    def test_its_own_page_may_call_it(self):
        here = f"127.0.0.1:{self.server.port}"
        status, headers, _ = self.server.request("GET", "/health", headers={"Host": here, "Origin": f"https://{here}"})
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, f"https://{here}"))

    def test_plain_http_is_told(self):
        with self.plain_socket() as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n")
            answer = b"".join(iter(lambda: plain.recv(65536), b""))
        self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
        self.assertIn(b"https://", answer)

    def test_noise_ends_its_own_connection_alone(self):
        for noise in (b"\x00" * 100, b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01\xff\xff" + b"x" * 70_000):
            with self.plain_socket() as plain, contextlib.suppress(OSError):  # reset at any point
                plain.sendall(noise)
                plain.shutdown(socket.SHUT_WR)
                while plain.recv(65536):
                    pass
        self.assertEqual(self.server.get("/health")[0], 200)

    def test_slow_handshakes_end_and_hold_nobody_up(self):
        with contextlib.ExitStack() as stack:
            silent = stack.enter_context(self.plain_socket())
            begun = stack.enter_context(self.plain_socket())
            begun.sendall(b"\x16\x03\x01\x02\x00\x01")  # the head of a ClientHello of 512 bytes
            start = time.monotonic()
            self.assertEqual(self.server.get("/health")[0], 200)
            self.assertLess(time.monotonic() - start, 5)
            for slow in (silent, begun):
                self.assertEqual(slow.recv(1), b"")
            self.assertLess(8, time.monotonic() - start)
            self.assertLess(time.monotonic() - start, 30)

    def test_a_client_that_goes_away_ends_its_generation(self):
        request = chat("Count.", stream=True, max_tokens=3000, logit_bias={str(i): -100 for i in range(3)})
        with self.encrypted_socket() as client:
            client.sendall(chat_bytes(request))
            self.assertIn(b"200 OK", client.recv(65536))
        self.assertTrue(self.server.wait_idle())

    def test_two_requests_sent_as_one(self):
        with self.encrypted_socket() as client:
            get = b"GET /health HTTP/1.1\r\nHost: test\r\n"
            client.sendall(get + b"\r\n" + get + b"Connection: close\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        self.assertEqual(answer.count(b"HTTP/1.1 200 OK"), 2)


class Files(ServerCase):
    def test_what_is_wrong_with_them_is_said(self):
        folder = self.folder()
        certificate, key = self_signed(folder)
        _, foreign = self_signed(folder, "foreign")
        locked, rsa, noise = folder / "locked.key", folder / "rsa.key", folder / "noise"
        openssl("ec", "-in", key, "-aes128", "-passout", "pass:secret", "-out", locked)
        openssl("genrsa", "-out", rsa, "2048")
        noise.write_text("no PEM at all\n")
        for crt, given, said in (
            (certificate, foreign, f"{foreign}: is not the key of the certificate in {certificate}"),
            (certificate, rsa, f"{rsa}: is not the key of the certificate in {certificate}"),
            (certificate, locked, f"{locked}: expected a private key in PEM, without passphrase"),
            (certificate, noise, f"{noise}: expected a private key in PEM"),
            (noise, key, f"{noise}: expected a certificate in PEM"),
            (key, certificate, f"{key}: expected a certificate in PEM"),
            (folder / "none", key, f"{folder / 'none'}: No such file"),
            (certificate, folder / "none", f"{folder / 'none'}: No such file"),
            (certificate, None, "expected --tls-cert and --tls-key together, found only --tls-cert"),
            (None, key, "expected --tls-cert and --tls-key together, found only --tls-key"),
        ):
            flags = [*(["--tls-cert", crt] if crt else []), *(["--tls-key", given] if given else [])]
            run = subprocess.run([LILY, "serve", "tiny", "--port", "0", *map(str, flags)], capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, timeout=60)
            self.assertNotEqual(run.returncode, 0, said)
            self.assertEqual(run.stdout, "", said)
            self.assertTrue(run.stderr.startswith(f"lily: {said}"), run.stderr)
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)


if __name__ == "__main__":
    main()
