"""Releases to ask for, and processes that ask for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from empriv.ledger import Figures, Identity, Joint, Release, identity_of

HERE = Path(__file__).parent
DAYS = tuple(f"2026-01-{day:02d}" for day in range(1, 31))


def days(count: int = 30, **more: Any) -> Identity:
    """The first days of a month."""
    return identity_of(DAYS[:count], **more)


def asked(query: str = "sum(amount)", **changed: Any) -> Release:
    """A release; whatever is named is changed."""
    facts: dict[str, Any] = {
        "identity": days(),
        "database": "2026-01-07",
        "query": query,
        "method": "robust",
        "law": {"kind": "laplace", "scale": 1.5},
        "asked": Figures(0.1, 0.01),
        "achieved": Figures(0.1, 0.005, 0.05),
        "n_individuals": 100,
    }
    return Release(**{**facts, **changed})


def together(delta: float, *entries: int, epsilon: float = 0.1, total_risk: float | None = None) -> Joint:
    return Joint(epsilon, delta, total_risk, entries=entries)


def start(script: str, *arguments: object, stdin: int | None = None) -> subprocess.Popen[str]:
    """A Python process of its own that runs a script of this folder."""
    command = [sys.executable, "-W", "error", str(HERE / script), *map(str, arguments)]
    path = os.pathsep.join(part for part in (str(HERE), os.environ.get("PYTHONPATH", "")) if part)
    # A process with threads is not forked.
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, text=True, env=environment)
