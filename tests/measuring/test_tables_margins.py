"""Margins of cells that come and go, cells that are hidden, and differences around somebody who is alone in a cell."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.measuring.tables import TableRisk, measure_table
from empriv.results import Outcome, Results
from table_results import of_entries

EPSILONS = [0.1, 1.0]
WARDS, AGES = 3, 3


def counts(n: int = 120, people: int = 150, seed: int = 0) -> np.ndarray:
    """(people, n, wards * ages) whether somebody is counted: most always in one cell, others in a different one."""
    rng = np.random.default_rng(seed)
    home = rng.choice(WARDS * AGES, people, p=np.array([15, 12, 0.2, 25, 8, 3.3, 12, 20, 4.5]) / 100)
    at = np.where(rng.random((people, n)) < 0.03, rng.integers(WARDS * AGES, size=(people, n)), home[:, None])
    there = rng.random((people, n)) < rng.gamma(1.0, 0.15, people)[:, None] * rng.gamma(20, 0.05, n)
    return np.eye(WARDS * AGES)[at] * there[..., None]


def published(
    moves: np.ndarray, hide_below: int = 1, hidden: tuple[int, ...] = (), also: np.ndarray | float = 0.0
) -> Results:
    """Results of what people (people, n, cells) add to cells; NULL without rows, and in some below a threshold."""
    least = np.ones(moves.shape[2])
    least[list(hidden)] = hide_below
    everyone = moves.sum(axis=0) + also
    person, database = np.nonzero(moves.any(axis=2))
    without = everyone[database] - moves[person, database]
    starts = np.concatenate(([0], np.cumsum(np.bincount(person, minlength=len(moves)))))
    return of_entries(
        np.where(everyone >= least, everyone, np.nan), database, np.where(without >= least, without, np.nan), starts,
        outcomes=np.where(everyone >= least, Outcome.NUMBER, Outcome.NULL).astype(np.int8),
        entry_outcomes=np.where(without >= least, Outcome.NUMBER, Outcome.NULL).astype(np.int8),
        components=tuple(f"cell {cell}" for cell in range(moves.shape[2])),
    )  # fmt: skip


def with_margins(*which: str) -> np.ndarray:
    """(wards * ages, cells) the cells, and the totals that are asked for."""
    wards, ages = np.kron(np.eye(WARDS), np.ones((AGES, 1))), np.kron(np.ones((WARDS, 1)), np.eye(AGES))
    every = {"wards": wards, "ages": ages, "all": np.ones((WARDS * AGES, 1))}
    return np.hstack((np.eye(WARDS * AGES), *(every[name] for name in which)))


@pytest.mark.slow
@pytest.mark.parametrize("which", [("wards",), ("ages",), ("all",), ("wards", "ages", "all")])
def test_margins_of_cells_that_come_and_go_change_nobody(which: tuple[str, ...]) -> None:
    moves = counts()
    plain = measure_table(published(moves))
    beside = measure_table(published(moves @ with_margins(*which)))
    gone = (plain.results.outcomes != 0).sum(axis=0)
    assert np.any((gone > 0) & (gone < 5))  # seldom gone: no regressor says when
    assert np.any(gone > len(plain.results.q) - 30)  # seldom there: no regressor itself
    assert len(beside.fit.margins.cells) == len(beside.fit.cells) - WARDS * AGES
    assert beside.fit.rank == plain.fit.rank
    assert not beside.leaks
    np.testing.assert_array_equal(beside.fit.kept, plain.fit.kept)
    # exactly as without, but that nobody's figure is below that of a total alone
    alone = [np.zeros((len(moves), 2))]
    alone += [beside.each_number[beside.fit.cells[cell]].delta_i(EPSILONS) for cell in beside.fit.margins.cells]
    expected = np.maximum(plain.delta_i(EPSILONS), np.max(alone, axis=0))
    np.testing.assert_allclose(beside.delta_i(EPSILONS), expected, atol=1e-9)
    assert np.abs(beside.delta_i(EPSILONS) - plain.delta_i(EPSILONS)).max() < 0.02


def test_a_total_of_cells_that_are_hidden_is_no_margin() -> None:
    moves = counts()
    publish = with_margins("wards")
    shown = measure_table(published(moves @ publish))
    hidden = measure_table(published(moves @ publish, 4, hidden=(0,)))  # a cell of the first ward
    assert shown.fit.margins.cells.tolist() == [9, 10, 11]
    assert hidden.fit.margins.cells.tolist() == [10, 11]
    assert 9 in hidden.fit.kept
    gone = hidden.results.outcomes[:, 0] == Outcome.NULL
    assert 5 < gone.sum() < 100


def difference(alone: float, *, there: float = 1.0, n: int = 120) -> tuple[TableRisk, float]:
    """A ward, and the ward without somebody, who is alone in it in a share of the databases; other wards beside."""
    rng = np.random.default_rng(1)
    others = (rng.random((40, n, 1)) < 0.12) * np.eye(4)[rng.integers(4, size=40)][:, None, :]
    others[:, rng.random(n) < alone, 0] = 0.0
    target = np.zeros((1, n, 5))
    target[0, rng.random(n) < there, 0] = 1.0
    moves = np.concatenate((target, np.concatenate((others, others[..., :1]), axis=2)))
    return measure_table(published(moves)), float(target.any(axis=2).mean())


@pytest.mark.parametrize(("alone", "there"), [(0.0, 1.0), (0.3, 1.0), (0.7, 1.0), (0.7, 0.4)])
def test_a_difference_gives_somebody_away_who_is_alone_in_a_cell(alone: float, there: float) -> None:
    risk, share = difference(alone, there=there)
    assert risk.delta_i(1.0)[0] == pytest.approx(share)
    (leak,) = risk.leaks
    assert leak.direction == "cell 0 minus cell 4"
    assert leak.rows.tolist() == [0]


@pytest.mark.parametrize("alone", [0.0, 0.7])
def test_a_difference_of_two_numbers_gives_somebody_away_who_is_alone(alone: float) -> None:
    rng = np.random.default_rng(1)
    others = (rng.random((20, 120, 1)) < 0.12) * (rng.random(120) >= alone)[:, None] * np.ones(2)
    target = np.zeros((1, 120, 2))
    target[0, rng.random(120) < 0.4, 0] = 1.0
    risk = empriv.measure(published(np.concatenate((target, others))))
    assert risk.delta_i(1.0)[0] == pytest.approx(target.any(axis=2).mean())


def test_whoever_is_alone_in_a_cell_and_stays_in_its_total_breaks_the_sum() -> None:
    moves = counts() @ with_margins("wards")
    nobody = moves.sum(axis=0)[:, 1] == 0
    stays = np.zeros((1, *moves.shape[1:]))
    stays[0, nobody, 1] = 1.0
    in_total = np.zeros(moves.shape[1:])
    in_total[nobody, 9] = 1.0
    risk = measure_table(published(np.concatenate((moves, stays)), also=in_total))
    (leak,) = risk.leaks
    assert leak.direction == "cell 9 minus cell 0 minus cell 1 minus cell 2"
    assert leak.rows.tolist() == [len(moves)]
    assert leak.largest_share == pytest.approx(nobody.mean())
    assert nobody.sum() > 5
