"""docs/openapi.json against the server: every path is there, every answer has the shape that it promises."""

import http.client
import json
import pathlib

from lily_server import ServerCase, main
from tools_test import tool

DOCUMENT = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs" / "openapi.json").read_text())
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list,
         "null": type(None)}


def check(value, schema, where="$"):
    """The keywords that the document uses."""
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema:
        return
    if "const" in schema:
        assert value == schema["const"], (where, value)
    if "enum" in schema:
        assert value in schema["enum"], (where, value)
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(isinstance(value, TYPES[name]) for name in names), (where, value)
        assert not isinstance(value, bool) or "boolean" in names, (where, value)
    if isinstance(value, dict):
        for name in schema.get("required", []):
            assert name in value, (where, name)
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                check(value[name], inner, f"{where}.{name}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            check(item, schema.get("items", {}), f"{where}[{index}]")


MESSAGES = [{"role": "user", "content": "What is the weather in Paris?"}]
ANTHROPIC_TOOL = {"name": "get_weather", "input_schema": tool()["function"]["parameters"]}
REQUESTS = {
    "/v1/chat/completions": [{"messages": MESSAGES, "tools": [tool()], "temperature": 0},
                             {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2, "max_tokens": 5}],
    "/v1/completions": [{"prompt": "Hello", "logprobs": 1}, {"prompt": [1, 2, 3], "max_tokens": 2}],
    "/v1/responses": [{"input": "Hello"}, {"input": MESSAGES, "tools": [tool()], "temperature": 0, "max_output_tokens": 9}],
    "/v1/messages": [{"messages": MESSAGES, "max_tokens": 200, "thinking": {"type": "enabled", "budget_tokens": 99}, "output_config": {"effort": "low"},
                      "tools": [ANTHROPIC_TOOL], "temperature": 0}],
    "/v1/messages/count_tokens": [{"messages": MESSAGES, "system": "Be brief."}],
    "/tokenize": [{"content": "Hello"}, {"messages": MESSAGES}],
    "/detokenize": [{"tokens": [1, 2]}],
}


class OpenApi(ServerCase):
    @classmethod
    def setUpClass(cls):
        cls.start("tiny")

    def check_answer(self, path, method, status, headers, body):
        answers = DOCUMENT["paths"][path][method]["responses"]
        self.assertIn(str(status), answers, f"{method} {path}: {body}")
        content = answers[str(status)]["content"]
        media = headers["Content-Type"].split(";")[0]
        self.assertIn(media, content)
        if media == "application/json":
            check(json.loads(body), content[media]["schema"])

    def test_the_server_serves_it(self):
        self.assertEqual(self.server.get("/openapi.json"), (200, DOCUMENT))

    def test_every_path(self):
        for path, methods in DOCUMENT["paths"].items():
            for method in methods:
                real = path.replace("{name}", "tiny")
                requests = REQUESTS[path] if method == "post" else [None]
                for request in requests:
                    if request is not None:
                        check(request, DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"])
                    body = None if request is None else json.dumps(request)
                    self.check_answer(path, method, *self.server.request(method.upper(), real, body))

    def test_errors(self):
        for path, methods in DOCUMENT["paths"].items():
            if "post" in methods:
                for body in ("{", "{}", "[]"):
                    status, headers, answer = self.server.request("POST", path, body)
                    self.assertEqual(status, 400, (path, body, answer))
                    self.check_answer(path, "post", status, headers, answer)
        self.check_answer("/v1/models/{name}", "get", *self.server.request("GET", "/v1/models/other"))

    def test_streams(self):
        for path, methods in DOCUMENT["paths"].items():
            if "post" not in methods or "text/event-stream" not in methods["post"]["responses"]["200"]["content"]:
                continue
            body = json.dumps({**REQUESTS[path][0], "stream": True})
            status, headers, answer = self.server.request("POST", path, body)
            self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"), path)
            self.assertTrue(answer.endswith(b"\n\n"))


class Keys(ServerCase):
    @classmethod
    def setUpClass(cls):
        file = cls.folder() / "keys"
        file.write_text("# ours\nfirst-key\n\n  second-key  \n")
        cls.start("tiny", "--api-key-file", file, "--alias", "house,tiny-two", "--allow-origin", "https://chat.example")

    def ask(self, path="/v1/models", method="GET", **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.server.request(method, path, None, headers)

    def test_a_key_is_asked_for(self):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "first-key"}, {"X_Api_Key": "first-ke"},
                        {"X_Api_Key": "first-keyfirst-key"}, {"Authorization": "Bearer "}):
            status, answer, body = self.ask(**headers)
            self.assertEqual(status, 401, headers)
            self.assertEqual(answer["WWW-Authenticate"], "Bearer")
            check(json.loads(body), DOCUMENT["components"]["schemas"]["Error"])
        for headers in ({"Authorization": "Bearer first-key"}, {"X_Api_Key": "second-key"}, {"authorization": "bearer second-key"}):
            self.assertEqual(self.ask(**headers)[0], 200, headers)
        status, _, body = self.ask("/v1/messages", "POST")
        self.assertEqual(status, 401)
        check(json.loads(body), DOCUMENT["components"]["schemas"]["AnthropicError"])

    def test_health_needs_none(self):
        for path in ("/", "/health", "/health/live", "/health/ready"):
            self.assertEqual(self.ask(path)[0], 200)
        self.assertEqual(self.ask("/healthy")[0], 401)

    def test_web_pages(self):
        key = {"X_Api_Key": "first-key"}
        status, headers, _ = self.ask(Origin="https://chat.example", **key)
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, "https://chat.example"))
        for origin in ("https://evil.example", "null", "https://chat.example.evil"):
            status, headers, _ = self.ask(Origin=origin, **key)
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (403, None), origin)
        own = f"http://127.0.0.1:{self.server.port}"
        self.assertEqual(self.ask(Origin=own, **key)[0], 200)
        # A page whose own name was made to lead here.
        self.assertEqual(self.ask(Origin="http://evil.example", Host="evil.example", **key)[0], 403)

    def test_preflight(self):
        status, headers, body = self.ask("/v1/chat/completions", "OPTIONS", Origin="https://chat.example",
                                         Access_Control_Request_Method="POST",
                                         Access_Control_Request_Headers="authorization, content-type")
        self.assertEqual((status, body), (204, b""))
        self.assertIn("POST", headers["Access-Control-Allow-Methods"])
        self.assertEqual(headers["Access-Control-Allow-Headers"], "authorization, content-type")

    def test_aliases(self):
        key = {"X_Api_Key": "first-key"}
        listed = json.loads(self.ask(**key)[2])["data"]
        self.assertEqual([model["id"] for model in listed], ["house", "tiny-two"])
        self.assertEqual(self.ask("/v1/models/tiny-two", **key)[0], 200)
        self.assertEqual(self.ask("/v1/models/tiny", **key)[0], 404)
        body = json.dumps({"messages": MESSAGES, "max_tokens": 1, "model": "anything"})
        status, _, answer = self.server.request("POST", "/v1/chat/completions", body, {"X-Api-Key": "first-key"})
        self.assertEqual((status, json.loads(answer)["model"]), (200, "house"))

    def test_connections_stay_in_step(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        for key, expected in (("no", 401), ("first-key", 200), ("no", 401)):
            connection.request("POST", "/tokenize", json.dumps({"content": "a"}), {"X-Api-Key": key})
            response = connection.getresponse()
            response.read()
            self.assertEqual(response.status, expected)
        connection.close()


if __name__ == "__main__":
    main()
