"""The curl commands of docs/api.md, carried out on the embedded model."""

import json
import pathlib
import re
import shlex

from lily_server import ServerCase, main

TEXT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()


def commands():
    """(path, body, headers) of every curl command in a code block."""
    for block in re.findall(r"^```\w*\n(.*?)^```", TEXT, re.M | re.S):
        for command in re.findall(r"^curl .*?(?=^\S|\Z)", block, re.M | re.S):
            words = shlex.split(command)
            url = next(word for word in words if word.startswith("http://127.0.0.1:8080"))
            body = words[words.index("-d") + 1] if "-d" in words else None
            headers = dict(words[i + 1].split(": ", 1) for i, word in enumerate(words) if word == "-H")
            yield url.removeprefix("http://127.0.0.1:8080"), body, headers


class Examples(ServerCase):
    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    def test_all_of_them(self):
        seen = set()
        for path, body, headers in commands():
            status, answer_headers, answer = self.server.request("POST" if body else "GET", path, body, headers)
            self.assertEqual(status, 200, (path, body, answer))
            if answer_headers["Content-Type"] == "application/json":
                json.loads(answer)
            else:
                self.assertTrue(answer.endswith(b"data: [DONE]\n\n"), answer)
            seen.add(path)
        self.assertLessEqual({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize"}, seen)


if __name__ == "__main__":
    main()
