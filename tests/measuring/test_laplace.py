"""The primitive: every compiled function agrees with numpy, and is the same when eight threads call it at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import empriv
from empriv.judge import gate, noisy_laws
from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring.line import laplace
from empriv.measuring.line.risk import Block
from empriv.results import FloatArray

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
needs_compiler = pytest.mark.skipif(
    laplace.COMPILED is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)


def shifted(seed: int) -> tuple[FloatArray, FloatArray]:
    """Points with ties, and what they are without each of eight individuals, one of whom moves them far."""
    rng = np.random.default_rng(seed)
    points = rng.normal(0, 3, 25).round(1)
    without = points - rng.exponential(0.3, (8, 25)) * (rng.random((8, 25)) < 0.5)
    without[0] -= 5.0
    return points, without


@needs_compiler
@pytest.mark.parametrize("seed", range(4))
def test_the_compiled_path_agrees_with_numpy(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    points, without = shifted(seed)
    epsilons = [0.0, 0.02, 0.5, 1.5, 2.5, 30.0]  # the last ones lie beyond what is taken from crossings
    density = empriv.Kde("laplace", 0.4)
    fast = empriv.measure(points, without, density=density)
    found, inverse = fast.delta_i(epsilons), fast.epsilon_i(0.01)
    monkeypatch.setattr(laplace, "COMPILED", None)
    slow = empriv.measure(points, without, density=density)
    np.testing.assert_allclose(found, slow.delta_i(epsilons), atol=1e-13)
    np.testing.assert_allclose(inverse, slow.epsilon_i(0.01), rtol=1e-12)
    assert np.array_equal(found == 0, slow.delta_i(epsilons) == 0)


@needs_compiler
@pytest.mark.parametrize("seed", range(3))
def test_the_compiled_path_beside_atoms_agrees_with_numpy(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    points, without = shifted(seed)
    # at an atom with everyone, without each, without some; and somebody without whom there is nothing else
    points[:3] = without[:, :2] = without[4:, 9] = np.inf
    if seed:
        without[7] = np.inf
    epsilons = np.array([0.0, 0.02, 0.5, 1.5, 2.0])
    masses = np.array([np.isinf(points).mean()]), np.isinf(without).mean(axis=1)[:, None]

    def curves() -> FloatArray:
        return Block(laplace.LaplaceBlock(points, without, 0.4), *masses, slack=laplace.slack(points)).curves(epsilons)

    fast = curves()
    monkeypatch.setattr(laplace, "COMPILED", None)
    slow = curves()
    np.testing.assert_allclose(fast, slow, atol=1e-13)
    assert np.array_equal(fast == 0, slow == 0)
    assert slow.max() > 0.1


def test_beyond_the_last_knot_the_ratio_stays_what_it_was() -> None:
    atom = np.inf
    ratio = laplace.knots_of(np.array([0.0, atom]), np.array([[1.0, 9.0], [atom, atom]]), np.ones(2)).ratio
    assert ratio[2, 0] != ratio[1, 0]
    assert ratio[3, 0] == ratio[2, 0]
    assert np.isinf(ratio[:, 1]).all()
    assert (laplace.knots_of(np.array([atom]), np.array([[atom]]), np.ones(1)).ratio == 1.0).all()


def test_the_ratio_keeps_its_digits_where_many_are_tied() -> None:
    """One density is e^-24 of the other where three results with everyone are tied: none of it may cancel."""
    points, without = np.array([1.0, 1.0, 1.0, 3.0]), np.array([[3.4, 3.4, 3.4, 3.0]])
    low, high = laplace.LaplaceBlock(points, without, 0.1).log_range()
    weights = np.exp(-np.abs(points - 1.0) / 0.1), np.exp(-np.abs(without[0] - 1.0) / 0.1)
    assert high[0] == pytest.approx(np.log(weights[0].sum() / weights[1].sum()), rel=1e-14)
    assert low[0] < 0


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
