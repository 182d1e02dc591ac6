"""Noise hides patterns that no bandwidth shows: last digits, and somebody without whom the results spread less."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import empriv
from empriv.noise import measured
from empriv.noise.certify import certificate
from empriv.noise.certify.certificate import certify
from empriv.noise.design import constraints
from empriv.noise.law import Law
from empriv.results import FloatArray

Draw = Callable[[np.random.Generator, int], tuple[FloatArray, FloatArray]]
EPSILON, DELTA = 0.5, 0.05
REACH = 2**12


def comb(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    """Whole numbers ± .05, and somebody who adds .3."""
    others = np.round(rng.normal(0, 20, n)) + rng.uniform(-0.05, 0.05, n)
    return others + 0.3, others


def parity(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    """Even in 90%, and somebody who adds 1."""
    others = 2 * np.round(rng.normal(0, 10, n)) + (rng.random(n) < 0.1)
    return others + 1, others


def whale(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    """Somebody whose amounts are all that spreads."""
    others = rng.normal(size=n)
    return others + rng.normal(0, 20, n), others


LAWS: dict[str, tuple[Draw, float]] = {"comb": (comb, 0.125), "parity": (parity, 0.25), "whale": (whale, 0.25)}


def true_delta(law: Law, draw: Draw, step: float) -> float:
    """The hockey stick of the noisy laws, from a million results of each."""
    rng, size = np.random.default_rng(99), 1_000_000
    pmf = np.fft.rfft(np.roll(law.pmf(np.arange(-REACH, REACH)), REACH))
    sides = []
    for x in draw(rng, size):
        cells = np.clip(np.rint(x / step), -REACH, REACH - 1).astype(int) % (2 * REACH)
        masses = np.bincount(cells, minlength=2 * REACH) / size
        sides.append(np.maximum(np.fft.irfft(np.fft.rfft(masses) * pmf, 2 * REACH), 0.0))
    e = np.exp(EPSILON)
    return max(float(np.maximum(a - e * b, 0.0).sum()) for a, b in (sides, sides[::-1]))


@pytest.mark.parametrize("name", LAWS)
def test_noise_keeps_its_true_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, step = LAWS[name]
    with_all, without = draw(np.random.default_rng(1), 100)
    risk = empriv.measure(with_all, without[None, :])
    noise = empriv.design_noise(risk, epsilon=EPSILON, delta=DELTA, granularity=step)
    assert true_delta(noise.law, draw, step) <= DELTA
    assert noise.certificate.holds
    for module in (constraints, certificate):
        monkeypatch.setattr(module, "sharpened", lambda risk: risk)
    blurred = empriv.design_noise(risk, epsilon=EPSILON, delta=DELTA, granularity=step)
    assert true_delta(blurred.law, draw, step) > DELTA, "a kernel alone would not see it"


def test_a_certificate_does_not_blur_what_noise_must_hide() -> None:
    with_all, without = comb(np.random.default_rng(2), 100)
    risk = empriv.measure(with_all, without[None, :])
    none = Law.of(0.125, [("point", 1.0, 0.0)])
    assert certify(risk, none, epsilon=EPSILON, delta=DELTA).achieved_delta(EPSILON) > 0.9


def test_a_design_is_the_same_after_saving(tmp_path: pytest.TempPathFactory) -> None:
    with_all, without = comb(np.random.default_rng(3), 60)
    noise = empriv.design_noise(
        empriv.measure(with_all, without[None, :]), epsilon=EPSILON, delta=DELTA, granularity=0.125
    )
    path = f"{tmp_path}/noise.empriv"
    noise.save(path)
    assert empriv.Noise.load(path).achieved_delta() == noise.achieved_delta()


def test_people_who_only_move_the_results_are_smoothed_as_ever() -> None:
    rng = np.random.default_rng(4)
    q = rng.normal(size=100)
    risk = empriv.measure(q, q - rng.exponential(0.2, (5, 100)))
    assert measured.sharpened(risk) is risk


def test_too_few_databases_are_said_not_to_show_weak_patterns() -> None:
    rng = np.random.default_rng(5)
    for n, said in ((41, True), (365, False)):
        q = rng.normal(size=n)
        noise = empriv.design_noise(empriv.measure(q, [q - 0.2]), epsilon=EPSILON, delta=DELTA, granularity=0.125)
        assert any("last digits" in note for note in noise.notes) == said
