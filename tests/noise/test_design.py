"""`design_noise`: its promises are kept where the truth is known, and it is never more than classical noise."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.stats import norm

import empriv
from empriv.errors import CertificateError, InputError
from empriv.judge.cover import dither
from empriv.judge.noise_kernels import alone
from empriv.judge.noise_kernels import classical as classical_kernel
from empriv.noise.design import classical_noise, design_noise, least_noise
from empriv.noise.judging import JudgedAnswer, by_noise_alone, kernel_of
from empriv.noise.law import Law
from empriv.noise.noise import Noise

Floats = npt.NDArray[np.float64]

G = 1 / 16  # granularity, and cells of the exact truth


def normal(rng: np.random.Generator, n: int) -> Floats:
    return rng.normal(0.0, 10.0, n)


def skewed(rng: np.random.Generator, n: int) -> Floats:
    return rng.gamma(2.0, 7.0, n)


def comb(rng: np.random.Generator, n: int) -> Floats:
    return 13.0 * np.rint(rng.normal(0.0, 1.0, n))


LAWS = {"normal": normal, "skewed": skewed, "comb": comb}


def risk_of(law: Any, seed: int, *, n: int = 100, move: float = 2.0, there: float = 1.0) -> empriv.Risk:
    """One person who moves the answer by so much where they are there, and one who hardly does."""
    rng = np.random.default_rng(seed)
    others = law(rng, n)
    present = rng.random(n) < there
    present[0] = True
    with_them = others + move * present
    risk = empriv.measure(with_them, np.stack([others, with_them - 0.01]))
    assert isinstance(risk, empriv.Risk)
    return risk


@cache
def without_and_with(law: Any, granularity: float, move: float) -> list[Floats]:
    """The others' law, rounded, and the same moved."""
    points = law(np.random.default_rng(99), 400_000)
    sides = [np.rint((points + shift) / granularity).astype(int) for shift in (0.0, move)]
    low, high = min(side.min() for side in sides), max(side.max() for side in sides)
    return [np.bincount(side - low, minlength=high - low + 1) / len(side) for side in sides]


def true_delta(law: Any, noise: Law, move: float, epsilon: float) -> float:
    """delta of the day: the others' law, rounded, with the law that is drawn, against the same moved; cell by cell."""
    width = math.ceil(12 * max(part.scale for part in noise.parts) / noise.granularity) + 1
    pmf = noise.pmf(np.arange(-width, width + 1))
    a, b = (np.maximum(fftconvolve(side, pmf), 0) for side in without_and_with(law, noise.granularity, move))
    e = math.exp(epsilon)
    return float(max(np.maximum(a - e * b, 0).sum(), np.maximum(b - e * a, 0).sum()))


@pytest.mark.slow
@pytest.mark.parametrize(("law", "there"), [("normal", 1.0), ("skewed", 0.3), ("comb", 0.03)])
def test_the_promise_of_the_day_is_kept_by_the_law_that_is_drawn(law: str, there: float) -> None:
    """In 8 designs of each; noise of a third of the scale is not enough, so that the test could fail."""
    kept, narrow = [], []
    for seed in range(8):
        noise = design_noise(risk_of(LAWS[law], seed, there=there, move=5.0), epsilon=0.1, delta=0.05, granularity=G)
        third = Law.of(G, [(part.kind, 1.0, part.scale / 3) for part in noise.law.parts])
        kept.append(true_delta(LAWS[law], noise.law, 5.0, 0.1) <= 0.05)
        narrow.append(true_delta(LAWS[law], third, 5.0, 0.1) <= 0.05)
    assert sum(kept) >= 7
    assert sum(narrow) < 4


def test_the_bound_of_noise_is_not_the_promise_of_a_third_of_it() -> None:
    noise = design_noise(risk_of(skewed, 1), epsilon=0.1, delta=0.05, granularity=G)
    assert noise.holds
    assert noise.achieved_delta() <= 0.05
    third = Law.of(G, [(noise.kernel, 1.0, noise.scale / 3)])
    assert not Noise(third, noise.judged, "least", 0.1, 0.05).holds


@pytest.mark.parametrize("method", ["least", "classical"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.05), (1.0, 0.01), (0.1, 0.001), (0.5, 0.0)])
def test_noise_is_never_more_than_the_better_classical_noise(method: str, epsilon: float, delta: float) -> None:
    for n in (35, 120):
        risk = risk_of(normal, 5, n=n, there=0.5)
        noise = design_noise(risk, epsilon=epsilon, delta=delta, method=method, granularity=G)
        classical = classical_noise(noise)
        assert classical is not None
        assert noise.expected_error <= classical.error * (1 + 1e-3) + G
        assert noise.holds
        # at the same move, epsilon and delta, whichever of both kinds errs less
        assert float(alone(classical, epsilon, 2.0)) <= delta
        kinds = [kind for kind in ("laplace", "gaussian") if delta > 0 or kind == "laplace"]
        others = [design_kind(kind, epsilon, delta) for kind in kinds]
        assert classical.error <= min(others) * (1 + 1e-2) + G


def design_kind(kind: str, epsilon: float, delta: float) -> float:
    """Closed forms of both mechanisms for a move of 2: s = d/(epsilon - 2 log(1 - delta)), and Balle and Wang's."""
    if kind == "laplace":
        return 2.0 / (epsilon - 2 * math.log1p(-delta))

    def left(s: float) -> float:
        return float(norm.cdf(1 / s - epsilon * s / 2) - math.exp(epsilon) * norm.cdf(-1 / s - epsilon * s / 2)) - delta

    return math.sqrt(2 / math.pi) * float(brentq(left, 1e-3, 1e6))


def test_data_that_hide_somebody_need_less_than_classical_noise() -> None:
    risk = risk_of(normal, 3, n=365, move=1.0)
    noise = design_noise(risk, epsilon=1.0, delta=0.05, granularity=G)
    classical = classical_noise(noise)
    assert classical is not None
    assert noise.expected_error < 0.5 * classical.error


def test_the_least_noise_is_enough_at_the_level_of_both_kinds_and_hardly_more() -> None:
    judged = JudgedAnswer(risk_of(normal, 3, n=365, move=1.0))
    widest = [classical_kernel(1.0, 0.05, judged.largest, kind) for kind in ("laplace", "gaussian")]
    found = least_noise(judged, widest, 1.0, 0.05)
    assert found is not None
    assert judged.meets(found, 1.0, 0.05, level=0.975)
    assert not judged.meets(found.of_scale(0.95 * found.scale), 1.0, 0.05, level=0.975)


def test_a_random_database_alone_needs_less_for_people_who_are_seldom_there() -> None:
    risk = risk_of(normal, 3, there=0.1)
    both, random = (
        design_noise(risk, epsilon=0.1, delta=0.05, granularity=G, presence=presence) for presence in ("both", "random")
    )
    assert random.expected_error < both.expected_error
    assert JudgedAnswer(risk, "both").upper(random.law, 0.1) > 0.05


@pytest.mark.slow
def test_dither_is_at_least_what_needs_no_assumption_and_what_the_target_needs() -> None:
    risk = risk_of(normal, 3, n=365, move=0.1)
    least, dithered = (
        design_noise(risk, epsilon=1.0, delta=0.3, granularity=1 / 64, dither=flag) for flag in (False, True)
    )
    wanted = dither(risk.pairs.points)
    assert wanted is not None
    assert least.expected_error < dithered.expected_error
    assert dithered.holds
    # or classical noise, which hides whatever the data are
    classical = classical_noise(dithered)
    assert classical is not None
    assert dithered.expected_error == pytest.approx(min(wanted.error, classical.error), rel=0.02)
    with pytest.raises(InputError, match="dither"):
        design_noise(risk, epsilon=1.0, delta=0.3, method="classical", dither=True)


def test_a_declared_bound_is_what_is_promised() -> None:
    risk = risk_of(normal, 3)
    noise = design_noise(risk, epsilon=0.1, delta=0.05, method="classical", bound=6.0, granularity=G)
    assert noise.unconditional
    assert noise.cover == 6.0
    assert float(by_noise_alone(noise.law, 6.0, 0.1)) <= 0.05 < float(by_noise_alone(noise.law, 7.0, 0.1))
    assert any("your bound alone" in note for note in noise.notes)
    least = design_noise(risk, epsilon=0.1, delta=0.05, bound=6.0, granularity=G)
    assert least.expected_error <= noise.expected_error
    assert not least.unconditional
    with pytest.raises(InputError, match="bound"):
        design_noise(risk, epsilon=0.1, delta=0.05, bound=1.0)


def test_the_papers_noise_keeps_the_papers_promise_and_is_released_only_if_the_judge_agrees() -> None:
    risk = risk_of(normal, 3)
    noise = design_noise(risk, epsilon=0.5, delta=0.01, method="paper", granularity=G)
    # the scale is the bottleneck distance over epsilon, the kernel deconvolved
    assert noise.law.parts[-1].scale == pytest.approx(2.0 / 0.5)
    assert noise.law.parts[0].kind == "point"
    if not noise.holds:
        with pytest.raises(CertificateError, match="study"):
            noise.release(1.0)
    wide = empriv.measure(risk.results, density=empriv.Kde("gaussian"))
    assert isinstance(wide, empriv.Risk)
    law = design_noise(wide, epsilon=0.5, delta=0.01, method="paper", granularity=G).law
    assert {part.kind for part in law.parts} <= {"laplace", "table"}


def test_as_it_is_must_be_asked_for_and_says_what_it_assumes() -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(0.0, 10.0, 365)
    risk = empriv.measure(q, q[None] - 0.05)
    noise = design_noise(risk, epsilon=0.5, delta=0.05, method="as-it-is", granularity=G)
    assert noise.law.only_point
    assert noise.scale == 0.0
    assert any("smooth" in note for note in noise.notes)
    assert not design_noise(risk, epsilon=0.5, delta=0.05, granularity=G).law.only_point
    with pytest.raises(CertificateError, match="as it is"):
        design_noise(risk_of(comb, 1), epsilon=0.1, delta=0.05, method="as-it-is", granularity=G)


def test_whoever_decides_whether_there_is_an_answer_is_hidden_by_no_noise() -> None:
    q = np.random.default_rng(0).normal(0.0, 10.0, 100)
    results = empriv.Results.from_arrays(q, q[None] - 0.5)
    entry_q, codes = results.entry_q.copy(), results.entry_outcomes.copy()
    entry_q[7], codes[7] = np.nan, empriv.Outcome.NULL
    risk = empriv.measure(replace(results, entry_q=entry_q, entry_outcomes=codes))
    with pytest.raises(CertificateError, match="at all"):
        design_noise(risk, epsilon=0.5, delta=0.1, granularity=G)
    seldom = design_noise(risk, epsilon=0.5, delta=0.1, granularity=G, presence="random")
    assert 0.01 < seldom.achieved_delta() <= 0.1


def test_nobody_who_moves_anything_needs_no_noise() -> None:
    q = np.random.default_rng(0).normal(0.0, 10.0, 100)
    noise = design_noise(empriv.measure(q, q[None]), epsilon=0.5, delta=0.1, granularity=G)
    assert noise.law.only_point
    assert noise.achieved_delta() == 0.0


def test_the_lattice_is_judged_as_it_is_drawn() -> None:
    """Coarse steps tell more than fine ones, at the same scale; a move of a hair may be one of a whole step."""
    risk = risk_of(normal, 3, move=0.1)
    coarse, fine = (JudgedAnswer(risk).upper(Law.of(step, [("laplace", 1.0, 1.0)]), 0.1) for step in (4.0, 1 / 64))
    assert coarse > 2 * fine


def test_many_people_are_all_kept_and_each_is_looked_at_if_nothing_clears_them() -> None:
    rng = np.random.default_rng(4)
    q = rng.normal(0.0, 10.0, 120)
    moves = rng.exponential(0.5, (300, 120)) * (rng.random((300, 120)) < 0.3)
    risk = empriv.measure(q, q - moves)
    assert isinstance(risk, empriv.Risk)
    noise = design_noise(risk, epsilon=0.5, delta=0.05, granularity=G)
    assert noise.achieved_delta_i().max() <= 0.05
    # the largest is found without looking at everybody
    there = noise.judged.of_the_day(kernel_of(noise.law, noise.law.parts[0]), 0.5)
    assert noise.achieved_delta() == pytest.approx(max(there, noise.achieved_delta_i().max()))


def test_without_a_granularity_one_is_suggested_and_nothing_released() -> None:
    noise = design_noise(risk_of(normal, 3), epsilon=0.5, delta=0.05)
    assert noise.step <= noise.scale / 32
    with pytest.raises(CertificateError, match="granularity"):
        noise.release(1.0)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"method": "robust"}, "method"),
        ({"presence": "never"}, "presence"),
        ({"granularity": 0.3000000000001}, "granularity"),
        ({"bound": -1.0}, "bound"),
        ({"times": 0}, "`times` must be a whole number"),
        ({"times": 2, "bound": 5.0}, "the method 'least' alone"),
        ({"times": 12, "method": "paper"}, "the method 'least' alone"),
        ({"times": 12, "delta": 0.0}, "`times` must go with a delta above 0"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        design_noise(risk_of(normal, 3), **{"epsilon": 0.5, "delta": 0.05, **wrong})
