"""lily chat: through pipes, and on a terminal of its own."""

import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import tempfile
import termios
import time
import unittest

import lily

GREEDY = ["--temperature", "0", "-n", "12"]


class Pipe(lily.Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "chat.json")

    def chat(self, *lines, flags=()):
        return self.lily("chat", *GREEDY, *flags, stdin="".join(line + "\n" for line in lines))

    def saved(self, *lines, flags=()):
        self.chat(*lines, f"/save {self.file}", flags=flags)
        return json.loads(self.file.read_text())

    def test_lines_are_messages_and_answers_are_those_of_run(self):
        self.assertEqual(self.chat("What is 2 + 3?"), self.lily("run", "-p", "What is 2 + 3?", *GREEDY))
        self.assertEqual(self.chat("", "   "), "")

    def test_the_conversation_is_kept(self):
        turns = self.saved("My name is Ada.", "What is my name?")
        self.assertEqual([t["role"] for t in turns], ["user", "assistant", "user", "assistant"])
        # The second answer is to the whole conversation, as the template renders it.
        prompt = (f"<|im_start|>user\nMy name is Ada.<|im_end|>\n<|im_start|>assistant\n{turns[1]['content'].strip()}"
                  "<|im_end|>\n<|im_start|>user\nWhat is my name?<|im_end|>\n<|im_start|>assistant\n"
                  "<think>\n\n</think>\n\n")
        raw = json.loads(self.lily("run", "-p", prompt, "--raw", "--json", *GREEDY))
        self.assertEqual(turns[3]["content"], raw["text"])

    def test_clear_system_and_retry(self):
        turns = self.saved("one", "/clear", "/system Be brief.", "two", "/retry")
        self.assertEqual([t["role"] for t in turns], ["system", "user", "assistant"])
        self.assertEqual((turns[0]["content"], turns[1]["content"]), ("Be brief.", "two"))
        self.assertEqual(self.saved("/system Be brief.", "/system", "one")[0]["role"], "user")

    def test_reasoning_is_kept_apart_and_out_of_the_next_prompt(self):
        flags = ["--think", "-n", "400"]
        turns = self.saved("What is 17 + 25?", flags=flags)
        if not turns[1]["content"]:
            self.skipTest("SKIPPED: the model did not finish its thought")
        self.assertIn("reasoning_content", turns[1])
        self.assertNotIn("<think>", turns[1]["content"])
        shown = self.chat("What is 17 + 25?", flags=flags)
        self.assertTrue(shown.startswith("<think>\n"), shown)
        self.assertNotIn("\x1b", shown)

    def test_settings(self):
        shown = self.chat("/set temperature 0.25", "/set top-k 7", "/set")
        self.assertRegex(shown, r"(?m)^temperature +0\.25$")
        self.assertRegex(shown, r"(?m)^top-k +7$")
        self.assertEqual(self.chat("/set max-tokens 1", "Hi").count("\n"), 1)
        self.assertIn("/retry", self.chat("/help"))

    def test_quotes_span_lines(self):
        turns = self.saved('"""', "first", "", "second", '"""')
        self.assertEqual(turns[0]["content"], "first\n\nsecond")

    def test_bytes_that_are_not_utf8_do_not_end_it(self):
        self.lily("chat", *GREEDY, stdin=b"a\xffb\n/save " + os.fsencode(self.file) + b"\n")
        self.assertEqual(json.loads(self.file.read_text())[0]["content"], "a\ufffdb")

    def test_quit_leaves(self):
        self.assertEqual(self.chat("/quit", "Hi"), "")

    def test_ctrl_c_ends_a_piped_conversation(self):
        process = subprocess.Popen([lily.LILY, "chat", "-n", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        process.stdin.write("Hi\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        self.assertEqual((process.returncode, stderr), (-signal.SIGINT, ""))

    def test_an_error_ends_a_piped_conversation(self):
        self.fails("chat", code=2, says="unknown command /frob", stdin="/frob\nHi\n")
        self.fails("chat", code=2, says="/retry", stdin="/retry\n")
        self.fails("chat", "--max-seq", "64", code=2, says="the context holds 64", stdin="word " * 100 + "\n")
        self.fails("chat", code=1, says="/no/such/folder/x", stdin="/save /no/such/folder/x\n")


class Terminal(lily.Case):
    """A pseudo-terminal: the child leads its session, so that Ctrl-C reaches it as from a keyboard."""

    def start(self, *flags, **environment):
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LANG", "LC_ALL")}
        env.update({"TERM": "xterm", **environment})
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.execve(lily.LILY, [lily.LILY, "chat", *flags], env)
        self.pid = pid
        self.seen = ""
        self.addCleanup(os.close, self.terminal)
        self.addCleanup(self.kill)

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def prompt(self):
        """Waits until lily reads a line. The prompt alone does not say so: what is typed between it and the read is
        echoed twice, and a Ctrl-C there interrupts no read."""
        self.expect("> ")
        for _ in range(6000):
            edits = not termios.tcgetattr(self.terminal)[3] & termios.ICANON
            if edits and pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].startswith("S"):
                return
            time.sleep(0.01)
        self.fail("lily does not read")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def expect(self, pattern, timeout=60):
        """Reads until `pattern` appears in what was not matched before; returns the text up to it."""
        end = time.monotonic() + timeout
        while not (found := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.monotonic()))
            try:
                data = os.read(self.terminal, 65536) if ready else b""
            except OSError:  # the child is gone
                data = b""
            if not data:
                self.fail(f"expected {pattern!r}, found {self.seen!r}")
            self.seen += data.decode("utf-8", "replace")
        text, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return text

    def ends(self, timeout=60):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            ready, _, _ = select.select([self.terminal], [], [], 0.05)
            try:
                if ready:
                    os.read(self.terminal, 65536)
            except OSError:
                pass
        self.fail("lily chat did not end")

    def test_a_conversation(self):
        self.start(*GREEDY)
        self.expect("/help lists the commands")
        self.prompt()
        self.type("Hi\n")
        self.expect(r"tok/s answer")
        self.prompt()
        self.type("/frob\n")
        self.expect("lily: unknown command /frob")
        self.prompt()
        self.type("\x04")
        self.assertEqual(self.ends(), 0)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        self.start("--backend", "reference", "--temperature", "100", "--top-k", "0", "--top-p", "1", "--seed", "1")
        self.prompt()
        self.type("Tell me a very long story.\n")
        self.expect("story.\r\n")
        self.expect(r"\S")
        self.type("\x03")
        self.expect(r"tok/s answer.*, stopped")
        self.prompt()
        self.type("/set\n")
        self.expect("temperature")
        self.prompt()
        self.type("\x03")
        self.expect("Ctrl-C again")
        self.prompt()
        self.type("\x03")
        self.assertEqual(self.ends(), 0)

    def test_thinking_is_dimmed_unless_no_color(self):
        self.start("--think", "-n", "4", "--temperature", "0")
        self.prompt()
        self.type("Hi\n")
        self.assertIn("\x1b[2m", self.expect("tok/s answer"))
        self.prompt()
        self.type("\x04")
        self.assertEqual(self.ends(), 0)
        self.start("--think", "-n", "4", "--temperature", "0", NO_COLOR="1")
        self.prompt()
        self.type("Hi\n")
        shown = self.expect("tok/s answer")
        self.assertIn("<think>", shown)
        self.assertNotIn("\x1b[2m", shown)
        self.prompt()
        self.type("\x04")
        self.assertEqual(self.ends(), 0)

    def test_lines_can_be_edited_and_recalled(self):
        self.start("-n", "1")
        self.prompt()
        self.type("/frok\x7fb\x01\x05\n")  # backspace, start of line, end of line
        self.expect("unknown command /frob")
        self.prompt()
        self.type("\x1b[A\n")  # the line before
        self.expect("unknown command /frob")
        self.prompt()
        self.type("/ü漢\x7fb\n")
        self.expect("unknown command /üb")
        self.prompt()
        self.type("\x04")
        self.assertEqual(self.ends(), 0)


if __name__ == "__main__":
    lily.main()
