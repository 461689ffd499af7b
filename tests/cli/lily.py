"""Runs the lily binary (environment variable LILY) and reads the files it exchanges. Standard library only."""

import array
import ast
import json
import os
import pathlib
import struct
import subprocess
import sys
import unittest

LILY = os.environ.get("LILY", "build/release/lily")
SOURCE = pathlib.Path(__file__).resolve().parents[2]
REFERENCE = pathlib.Path(os.environ.get("LILY_REFERENCE", SOURCE.parent / "shared" / "reference"))
SKIPPED = 77  # what ctest counts as skipped


def run(*args, stdin="", timeout=300):
    """Runs `lily args...`; stdout and stderr come back as text, bytes that are not UTF-8 escaped."""
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    done = subprocess.run([LILY, *(os.fsencode(str(a)) for a in args)], input=data, capture_output=True, timeout=timeout, check=False)
    done.stdout = done.stdout.decode("utf-8", "backslashreplace")
    done.stderr = done.stderr.decode("utf-8", "backslashreplace")
    return done


class Case(unittest.TestCase):
    def lily(self, *args, stdin=""):
        """stdout of a run that has to succeed silently."""
        done = run(*args, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def fails(self, *args, code, says, stdin=""):
        """A run that has to fail with one line on stderr and nothing on stdout."""
        done = run(*args, stdin=stdin)
        self.assertEqual(done.returncode, code, f"{args}: {done.stderr}")
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("lily: "), lines[0])
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, lines[0])
        self.assertEqual(done.stdout, "")


def read_npy(path):
    """(shape, values) of a little-endian int32 or float32 .npy file."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (length,) = struct.unpack("<H", data[8:10])
    header = ast.literal_eval(data[10 : 10 + length].decode("latin1"))
    assert not header["fortran_order"]
    values = array.array({"<f4": "f", "<i4": "i"}[header["descr"]])
    values.frombytes(data[10 + length :])
    return header["shape"], values


def write_npy_ids(path, ids):
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(ids)},), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    body = array.array("i", ids).tobytes()
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body)


class SafeTensors:
    """The tensors of one file, by name: (shape, values) of F32 and I32 ones."""

    def __init__(self, path):
        self.data = pathlib.Path(path).read_bytes()
        (length,) = struct.unpack("<Q", self.data[:8])
        self.header = json.loads(self.data[8 : 8 + length])
        self.start = 8 + length

    def __getitem__(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        values = array.array({"F32": "f", "I32": "i"}[entry["dtype"]])
        values.frombytes(self.data[self.start + begin : self.start + end])
        return entry["shape"], values


def main():
    """unittest.main, with an exit code of its own when nothing could run."""
    result = unittest.main(module="__main__", exit=False, verbosity=2).result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun and len(result.skipped) >= result.testsRun:
        print("every test was SKIPPED", file=sys.stderr)
        sys.exit(SKIPPED)
