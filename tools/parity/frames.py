"""Talks to tests/text/text_tool: byte-counted frames in, one line of JSON a frame out."""

import json
import subprocess


def run(tool, mode, file, frames):
    """The parsed answers of `tool mode file`, one for each of `frames` (bytes)."""
    data = b"".join(b"%d\n%s" % (len(frame), frame) for frame in frames)
    done = subprocess.run([tool, mode, file], input=data, stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(frames):
        raise SystemExit(f"{tool}: {len(frames)} frames, {len(answers)} answers")
    return answers
