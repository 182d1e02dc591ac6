"""Every C function, called from eight threads at once, gives what it gives alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from empriv.judge import gate, noisy_laws
from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring.line import laplace

N, ROWS, THREADS, TIMES = 64, 6, 8, 40
RNG = np.random.default_rng(1)
X = np.sort(RNG.normal(0, 3, N))
WITHOUT = np.sort(X - RNG.gamma(1, 0.3, (ROWS, N)), axis=1)
ATOMS = np.where(np.arange(N) < N - 3, WITHOUT, np.inf)
E = np.exp([0.1, 1.0])
LAPLACE = NoiseKernel("laplace", 1.0)


CALLS: dict[str, Callable[[], object]] = {
    "empriv_sticks": lambda: laplace.LaplaceBlock(X, ATOMS, 1.0).sticks(E),
    "empriv_values": lambda: noisy_laws.values(X, WITHOUT, LAPLACE, np.array([0.1, 1.0])),
    "empriv_ends": lambda: noisy_laws.ends(X, WITHOUT, np.array([0.1, 1.0])),
    "empriv_rayleigh": lambda: gate.rayleigh(X, 0.1, 0.1, 50),
}


def test_every_function_is_among_them() -> None:
    sources = (Path(__file__).parents[2] / "src" / "empriv").rglob("*.c")
    exported = re.compile(r"^(?:EXPORT |WIDE )*(?:void|long|int|double) (empriv_\w+)\(", re.MULTILINE)
    assert {name for source in sources for name in exported.findall(source.read_text())} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_threads_do_not_disturb_each_other(name: str) -> None:
    alone = CALLS[name]()
    with ThreadPoolExecutor(THREADS) as pool:
        together = [task.result() for task in [pool.submit(CALLS[name]) for _ in range(THREADS * TIMES)]]
    for found in together:
        np.testing.assert_equal(found, alone)


def test_different_functions_do_not_disturb_each_other() -> None:
    alone = {name: call() for name, call in CALLS.items()}
    with ThreadPoolExecutor(THREADS) as pool:
        tasks = [(name, pool.submit(call)) for _ in range(TIMES) for name, call in CALLS.items()]
    for name, task in tasks:
        np.testing.assert_equal(task.result(), alone[name])
