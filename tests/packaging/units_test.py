"""The service units of packaging/: well formed, closed, and calling a lily that knows their flags."""

import os
import pathlib
import plistlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

LILY = pathlib.Path(os.environ.get("LILY", "build/release/lily")).resolve()
PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"
DOCS = (PACKAGING.parent / "docs" / "deployment.md").read_text()
MOST_EXPOSED = 15  # of 100, as systemd-analyze counts: an unhardened service has 96


class Units(unittest.TestCase):
    def known(self, arguments):
        """Checks that `lily serve` has every flag among the arguments."""
        text = subprocess.run([LILY, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        flags = [argument for argument in arguments if argument.startswith("--")]
        self.assertTrue(flags)
        for flag in flags:
            self.assertRegex(text, rf"{flag}\b")

    def test_systemd_arguments(self):
        unit = (PACKAGING / "systemd" / "lily.service").read_text()
        [command] = re.findall(r"^ExecStart=(.*)$", unit, re.M)
        self.assertEqual(command, "/usr/bin/lily serve $LILY_SERVE")
        [given] = re.findall(r'^Environment="LILY_SERVE=(.*)"$', unit, re.M)
        self.known(shlex.split(given))

    def test_launchd(self):
        unit = plistlib.loads((PACKAGING / "launchd" / "cpp.lily.server.plist").read_bytes())
        self.assertEqual(unit["ProgramArguments"][1], "serve")
        self.known(unit["ProgramArguments"])
        self.assertEqual(unit["Umask"], 0o077)
        self.assertEqual(unit["ProgramArguments"][unit["ProgramArguments"].index("--host") + 1], "127.0.0.1")

    def test_flags_of_the_documentation(self):
        for given in re.findall(r"LILY_SERVE=([^'\n]*)|^ExecStart=(.+)$", DOCS, re.M):
            self.known(shlex.split("".join(given)))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_systemd_takes_it(self):
        text = (PACKAGING / "systemd" / "lily.service").read_text()
        drop_ins = re.findall(r"^```ini\n(\[Service\]\n.*?)^```", DOCS, re.M | re.S)
        self.assertGreaterEqual(len(drop_ins), 3)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "lily.service"
            for drop_in in ("", *drop_ins):
                file.write_text((text + drop_in).replace("/usr/bin/lily", str(LILY)))
                run = subprocess.run(["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True, timeout=60)
                self.assertEqual((run.returncode, run.stdout + run.stderr), (0, ""), drop_in)
            file.write_text(text.replace("/usr/bin/lily", str(LILY)))
            run = subprocess.run(["systemd-analyze", "security", "--no-pager", "--offline=true", f"--threshold={MOST_EXPOSED}", file],
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 0, run.stdout[-200:])


if __name__ == "__main__":
    unittest.main()
