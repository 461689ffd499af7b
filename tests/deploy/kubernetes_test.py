"""deploy/kubernetes against the program and the proxy's configuration: what the manifests say has to exist. Skipped (77) without
python3-yaml."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed", file=sys.stderr)
    sys.exit(77)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = SOURCE / "deploy" / "kubernetes"
LILY = os.environ.get("LILY", "build/release/lily")


def documents(name):
    return [d for d in yaml.safe_load_all((KUBERNETES / name).read_text()) if d]


def of_kind(kind, name="base/lily.yaml"):
    (found,) = [d for d in documents(name) if d["kind"] == kind]
    return found


class Kubernetes(unittest.TestCase):
    def test_every_manifest_is_complete(self):
        for path in KUBERNETES.rglob("*.yaml"):
            for document in documents(path.relative_to(KUBERNETES)):
                self.assertIn("apiVersion", document, path)
                self.assertIn("kind", document, path)
                if document["kind"] != "Kustomization":
                    self.assertIn("name", document["metadata"], path)

    def test_the_configuration_is_one_that_serve_takes(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(of_kind("ConfigMap")["data"]["lily.conf"])
            file.flush()
            done = subprocess.run([LILY, "serve", "--config", file.name, "--print-config"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("host = 0.0.0.0", done.stdout)

    def test_arguments_are_flags_of_serve(self):
        for name in ("base/lily.yaml", "gpu/card.yaml"):
            (container,) = of_kind("StatefulSet", name)["spec"]["template"]["spec"]["containers"]
            done = subprocess.run([LILY, "serve", *container["args"], "--print-config"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, (name, done.stderr))

    def test_probes_ask_what_the_server_answers(self):
        paths = set(yaml.safe_load((SOURCE / "docs" / "openapi.json").read_text())["paths"])
        (container,) = of_kind("StatefulSet")["spec"]["template"]["spec"]["containers"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.assertIn(container[probe]["httpGet"]["path"], paths)

    def test_a_replica_has_time_to_drain(self):
        spec = of_kind("StatefulSet")["spec"]["template"]["spec"]
        drain = int(re.search(r"drain-seconds = (\d+)", of_kind("ConfigMap")["data"]["lily.conf"])[1])
        (pause,) = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1:]
        self.assertGreater(spec["terminationGracePeriodSeconds"], drain + int(pause))

    def test_the_proxy_is_the_tested_one_and_knows_every_replica(self):
        shipped = (SOURCE / "deploy" / "haproxy" / "haproxy.cfg").read_text().splitlines()
        theirs = (KUBERNETES / "base" / "haproxy.cfg").read_text().splitlines()
        left_out = [line for line in shipped if line not in theirs]
        self.assertEqual(len(left_out), 3, left_out)
        self.assertTrue(all(re.match(r"    server lily\d 10\.", line) for line in left_out), left_out)
        servers = [line.split()[2] for line in theirs if line.startswith("    server ")]
        name, service = of_kind("StatefulSet")["metadata"]["name"], of_kind("StatefulSet")["spec"]["serviceName"]
        self.assertEqual(servers, [f"{name}-{i}.{service}:8080" for i in range(len(servers))])
        self.assertGreaterEqual(len(servers), of_kind("StatefulSet")["spec"]["replicas"])


if __name__ == "__main__":
    unittest.main(verbosity=1)
