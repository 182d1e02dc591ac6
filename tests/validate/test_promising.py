"""Who and what the lower bound bets on: compiled code and people who are skipped change no choice."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.validate.bounds import lower, structure
from empriv.validate.bounds.lower import Choice, _choose
from empriv.validate.bounds.moments import quantile
from empriv.validate.ground import Ground, ground_of

GRID = np.array([0.0, 0.1, 0.5])


def ground(seed: int, share: float, *, integers: bool = False, twins: bool = False) -> Ground:
    """60 people who change a share of 80 results, by little or much."""
    rng = np.random.default_rng(seed)
    q = rng.poisson(400.0, 80).astype(float) if integers else rng.normal(size=80)
    size = 10.0 ** rng.uniform(-3, 0.5, (60, 1)) * q.std()
    change = size * rng.normal(1, 0.5, (60, 80)) * (rng.random((60, 80)) < share)
    if integers:
        change[::2] = np.rint(change[::2])
    if twins:  # equal scores: the first of them is chosen
        change[1::2] = change[::2]
    return ground_of(empriv.measure(q, q - change))


def choices(where: Ground, grid: np.ndarray = GRID) -> list[Choice | None]:
    return _choose(where, grid, np.arange(0, 80, 2), 40, 0.95)


def same(one: list[Choice | None], other: list[Choice | None]) -> bool:
    x = np.concatenate((np.linspace(-3, 3, 601), np.linspace(300, 500, 801)))
    smooth = np.ones(len(x), bool)
    for a, b in zip(one, other, strict=True):
        if a is not None and b is not None and a.score == b.score == 0:
            continue  # empty sets: W is 0 whoever is chosen
        if a is None or b is None or (a.row, a.direction) != (b.row, b.direction) or abs(a.score - b.score) > 1e-10:
            return False
        if not np.array_equal(a.member(x, smooth), b.member(x, smooth)):
            return False
    return True


@pytest.mark.skipif(
    structure.compiled_promising is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)
@pytest.mark.parametrize("share", [0.05, 1.0])
@pytest.mark.parametrize("kind", ["plain", "integers", "twins"])
def test_compiled_code_chooses_what_numpy_chooses(kind: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        where = ground(seed, share, integers=kind == "integers", twins=kind == "twins")
        quick = choices(where)
        with monkeypatch.context() as patch:
            patch.setattr(structure, "compiled_promising", None)
            assert same(quick, choices(where))
            assert kind != "plain" or share < 1 or not same(quick, choices(where, GRID + 0.03))


def test_people_who_are_skipped_could_not_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        where = ground(seed, 0.05 + 0.1 * seed)
        quick = choices(where)
        with monkeypatch.context() as patch:
            patch.setattr(lower, "_highest_scores", lambda ground, *_: np.full(ground.n_individuals, np.inf))
            assert same(quick, choices(where))


def test_no_score_is_above_what_is_said_to_be_the_highest() -> None:
    """The likeliest to be: one moves a few points out of reach, and a half-line holds them alone."""
    q = np.random.default_rng(1).normal(size=80)
    for moved in (3, 8, 20, 40):
        without = q.copy()
        without[: 2 * moved : 2] += 50.0
        where = ground_of(empriv.measure(q, without[None]))
        highest = lower._highest_scores(where, np.arange(0, 80, 2), quantile(0.95), 40)[0]
        best = choices(where)[0]
        assert best is not None
        assert best.score <= highest
        assert best.score > 0.99 * highest
