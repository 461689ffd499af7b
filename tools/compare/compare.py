#!/usr/bin/env python3
"""lily beside its peers on this machine, as one Markdown table.

    tools/compare/compare.py MODEL_DIR --lily build/release/lily --mlx VENV/bin/python
    tools/compare/compare.py MODEL_DIR --lily build/release/lily --llama-server BIN --gguf FILE
    tools/compare/compare.py MODEL_DIR --lily build/release/lily --hf VENV/bin/python --hf-model DIR

MLX-LM reads the identical checkpoint and gets the identical ids (mlx_bench.py), transformers the model of --hf-model and the same
ids (hf_bench.py); both are timed as `lily bench` times itself. llama-server is measured over HTTP, by `lily bench --http`, and lily
then once more over HTTP too. A peer that is not given is listed as not run. Peers run one after the other, lily first and last;
when the two differ by more than 3 % the table says so.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
LARGEST_SPREAD = 0.03


def measured(name, rows):
    """Medians by context: {"name", "rows": {context: (prefill tok/s, decode tok/s, tokens)}}."""
    table = {}
    for row in rows:
        prompt = statistics.median(run.get("prompt_tokens", row["prompt"]) for run in row["runs"])
        decoded = statistics.median(run["decoded_tokens"] for run in row["runs"])
        table[row["prompt"]] = (prompt / statistics.median(run["prefill_seconds"] for run in row["runs"]),
                                decoded / statistics.median(run["decode_seconds"] for run in row["runs"]), row.get("tokens") or [])
    return {"name": name, "rows": table}


def run_json(command, **fields):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **fields)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
    return done.stdout


def bench_flags(options):
    return ["--contexts", options.contexts, "--decode", options.decode, "--rounds", options.rounds]


def bench_lily(options, *flags):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "bench.json"
        run_json([options.lily, "bench", *flags, *bench_flags(options), "--json", out])
        report = json.loads(out.read_text())
    over = " over HTTP" if "--http" in flags else ""
    return measured(f"lily {report['version']} ({report['commit']}){over}, {report['backend']}", report["rows"])


def bench_python(options, script, python, model):
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    report = json.loads(run_json([python, HERE / script, model, *bench_flags(options)], env=environment).splitlines()[-1])
    return measured(report["engine"], report["rows"])


@contextlib.contextmanager
def served(command, port):
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]}: ended with {process.returncode} before it was ready")
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                break
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def bench_llama(options):
    port = free_port()
    command = [options.llama_server, "-m", options.gguf, "--port", port, "-t", options.threads, "-c", options.max_seq]
    version = subprocess.run([options.llama_server, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version: (\S+ \S+)", version.stdout + version.stderr)
    with served(command, port) as url:
        peer = bench_lily(options, "--http", url)
    return {**peer, "name": f"llama-server {found[1] if found else 'of unknown version'} over HTTP, {pathlib.Path(options.gguf).name}"}


def bench_lily_over_http(options):
    port = free_port()
    command = [options.lily, "serve", options.model, "--port", port, "--threads", options.threads, "--max-seq", options.max_seq]
    with served(command, port) as url:
        return bench_lily(options, "--http", url)


def equal_tokens(ours, theirs):
    """How many tokens are the same before the first that differs."""
    if not ours or not theirs:
        return "-"
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return f"{same} of {min(len(ours), len(theirs))}"


def print_rows(peer, base, contexts):
    for context in contexts:
        prefill, decode, tokens = peer["rows"][context]
        ours = base["rows"][context]
        print(f"| {peer['name']} | {context} | {prefill:.1f} | {ours[0] / prefill:.2f} | {decode:.2f} | {ours[1] / decode:.2f} | "
              f"{equal_tokens(ours[2], tokens)} |", flush=True)


def digest(model):
    """Of the shards' sizes and headers, which name every tensor: what checkpoint this was."""
    found = hashlib.sha256()
    for shard in sorted(pathlib.Path(model).glob("*.safetensors")):
        with shard.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            found.update(f"{shard.name} {shard.stat().st_size}".encode() + file.read(length))
    return found.hexdigest()[:16]


def processor():
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(": ", 1)[1]
    return platform.processor() or platform.machine()


def peers(options):
    """(name, what runs it or None, why it did not run)."""
    yield "MLX-LM", options.mlx and (lambda: bench_python(options, "mlx_bench.py", options.mlx, options.model)), "--mlx PYTHON"
    yield ("transformers", options.hf and options.hf_model and (lambda: bench_python(options, "hf_bench.py", options.hf, options.hf_model)),
           "--hf PYTHON --hf-model DIR")
    yield "llama.cpp", options.llama_server and options.gguf and (lambda: bench_llama(options)), "--llama-server BIN --gguf FILE"


def main(options):
    contexts = [int(c) for c in options.contexts.split(",")]
    options.max_seq = 2 * max(contexts) + options.decode + 64
    lily = lambda: bench_lily(options, options.model, "--threads", options.threads)  # noqa: E731
    print(f"{platform.node()}: {processor()}, {options.threads} threads; {pathlib.Path(options.model).name} ({digest(options.model)}); "
          f"{options.decode} steps, {options.rounds} rounds, medians\n")
    print("| engine | context | prefill, tok/s | lily is faster by | decoding, tok/s | lily is faster by | equal tokens |")
    print("|---|---|---|---|---|---|---|")
    base = lily()
    print_rows(base, base, contexts)
    for name, run, needs in peers(options):
        if not run:
            print(f"| {name} | not run: needs {needs} | | | | | |")
            continue
        try:
            peer = run()
        except RuntimeError as error:
            print(f"| {name} | failed: {error} | | | | | |")
            continue
        over_http = base
        if "over HTTP" in peer["name"]:
            over_http = bench_lily_over_http(options)
            print_rows(over_http, over_http, contexts)
        print_rows(peer, over_http, contexts)
    last = lily()
    drift = max(abs(last["rows"][c][i] / base["rows"][c][i] - 1) for c in contexts for i in (0, 1))
    print(f"\nlily once more at the end: {100 * drift:.1f} % away" + ("; ratios of that size say nothing" if drift > LARGEST_SPREAD else ""))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a checkpoint directory in MLX's format")
    parser.add_argument("--lily", default="build/release/lily")
    parser.add_argument("--mlx", help="a Python that has mlx-lm")
    parser.add_argument("--hf", help="a Python that has torch and transformers")
    parser.add_argument("--hf-model", help="the model as transformers reads it")
    parser.add_argument("--llama-server")
    parser.add_argument("--gguf")
    parser.add_argument("--contexts", default="256,512")
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    sys.exit(main(parser.parse_args()))
