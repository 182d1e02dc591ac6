"""How soon commands answer Ctrl-C: each is interrupted at random moments, again and again.

    python benchmarks/interrupting.py [--runs 10] [--command audit]

A trial starts a command in a folder of its own, sends SIGINT after a random time within its length, and looks at what
happens: how long it goes on, its exit code (130), what it says (one sentence), and what it leaves (no file that it was
to write, unless whole; no temporary one). Prints a line for each command, and the slowest trials with the stage that
was under way. Exits with 1 if one went on for more than ``--most`` seconds, or ended in any other way.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

import empriv

SINCE = "1998-05-01"  # two months of purchases: seconds, of which any may be the one that does not answer
SHOP = ["shop.parquet", "--database", "date", "--individual", "customer_id", "--query", "sum(amount)"]
TARGET = ["--target", "delta <= 0.05 at 0.1"]
COMMANDS = {
    "audit": ["audit", *SHOP, *TARGET, "--save", "out.empriv", "--json", "out.json", "--report", "out.html"],
    "audit of two numbers": [
        "audit", *SHOP, "--query", "count(*)", "--save", "out.empriv", "--json", "out.json",
    ],
    "audit once per individual": ["audit", *SHOP[:-1], "mode(amount)", "--save", "out.empriv"],
    "audit in chunks": ["audit", "--in-chunks", *SHOP, *TARGET, "--save", "out.empriv"],
    "noise": ["noise", "in.empriv", "--epsilon", "0.1", "--total-risk", "0.1", "--save", "out.empriv"],
    "compare": ["compare", "in.empriv", "other.empriv", "--report", "out.html"],
    "advise": ["advise", "in.empriv", *TARGET, "--json", "out.json"],
    "show": ["show", "in.empriv", *TARGET, "--report", "out.html"],
}  # fmt: skip
WHOLE = {".empriv": b"PK", ".json": b"}\n", ".html": b"</html>"}  # how files begin, or end, that are whole


@dataclass(frozen=True)
class Trial:
    """What one interrupted run did; ``wrong`` is empty if it did as it should."""

    after: float
    seconds: float
    stage: str
    wrong: str


def trial(arguments: list[str], folder: Path, after: float) -> Trial:
    before = {path.name for path in folder.iterdir()}
    own = folder / "tmp"
    own.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "empriv", *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(own)},
    )  # fmt: skip
    try:
        _, error = process.communicate(timeout=after)
        return Trial(after, 0.0, "over", "" if process.returncode in (0, 3, 4) else f"exit code {process.returncode}")
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    sent = time.perf_counter()
    try:
        _, error = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Trial(after, 120.0, "?", "it did not end")
    seconds = time.perf_counter() - sent
    lines = [line for line in error.decode().splitlines() if line.strip()]
    stage = next((line.split(":")[0] for line in reversed(lines) if "Ctrl-C stops it" in line), "beginning")
    said = [line for line in lines if "Ctrl-C stops it" not in line and not line.startswith("The query runs once")]
    return Trial(after, seconds, stage, wrongs(process.returncode, said, folder, before))


def wrongs(code: int, said: list[str], folder: Path, before: set[str]) -> str:
    """What is not as it should be."""
    wrong = []
    # Before its first line runs, Python itself answers; after its last, there is nothing to interrupt.
    if code not in (130, -signal.SIGINT, 0, 3, 4):
        wrong.append(f"exit code {code}")
    if code == 130 and len(said) != 1:
        wrong.append(f"said {len(said)} lines: {said[:2]}")
    for path in folder.rglob("*"):
        if path.is_dir() or path.name in before:
            continue
        content = path.read_bytes()
        mark = WHOLE.get(path.suffix)
        if mark is None or not (content.startswith(mark) or content.rstrip(b"\n").endswith(mark.rstrip(b"\n"))):
            wrong.append(f"left {path.relative_to(folder)}")
    return "; ".join(wrong)


def length(arguments: list[str], folder: Path) -> float:
    """How long a command takes when nobody interrupts it."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "empriv", *arguments], cwd=folder, capture_output=True, check=False)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", action="append", choices=list(COMMANDS))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--most", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draw, failed = random.Random(asked.seed), False
    with tempfile.TemporaryDirectory() as root:
        inputs = Path(root) / "inputs"
        inputs.mkdir()
        rows = f"SELECT * FROM read_parquet('{empriv.datasets.cdnow()}') WHERE date >= '{SINCE}'"
        duckdb.sql(f"COPY ({rows}) TO '{inputs / 'shop.parquet'}' (FORMAT PARQUET)")
        for query, name in (("sum(amount)", "in.empriv"), ("sum(least(amount, 60))", "other.empriv")):
            saving = [sys.executable, "-m", "empriv", "audit", *SHOP[:-1], query, "--save", name, "--quiet"]
            subprocess.run(saving, cwd=inputs, check=True)
        for name in asked.command or COMMANDS:
            trials = []
            span = None
            for run in range(asked.runs + 1):
                folder = Path(root) / f"{name} {run}"
                shutil.copytree(inputs, folder)
                if span is None:
                    span = length(COMMANDS[name], folder)
                    continue
                trials.append(trial(COMMANDS[name], folder, draw.uniform(0.2, 0.95) * span))
            slowest = max(trials, key=lambda tried: tried.seconds)
            print(
                f"{name:<28} {len(trials)} trials within {span:.1f} s: at most {slowest.seconds:.2f} s more, "
                f"in {slowest.stage!r}",
                flush=True,
            )
            for tried in trials:
                if tried.wrong or tried.seconds > asked.most:
                    failed = True
                    print(f"    after {tried.after:.2f} s, in {tried.stage!r}: {tried.seconds:.2f} s. {tried.wrong}")
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
