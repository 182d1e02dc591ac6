"""Bounds and checks of whole tables; coverage on many laws is measured by benchmarks/tables.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

import empriv
from empriv.measuring.series.composition import gaussian_delta
from empriv.measuring.tables import measure_table
from empriv.measuring.tables.innovations import EPSILONS, RatioGrid, on_random_day
from empriv.results import Outcome, Results
from empriv.validate.checks.whole_tables import bent_check, riskiest_places

N = 365


def gaussian(size, epsilon=0.1):
    return ndtr(size / 2 - epsilon / size) - math.exp(epsilon) * ndtr(-size / 2 - epsilon / size)


def table(q, people, outcomes=None, entry_outcomes=None):
    """Results from cells (n, d) and, for each person, the databases and what they change there (m, d)."""
    at = np.concatenate([databases for databases, _ in people]).astype(np.int32)
    codes = np.zeros(q.shape, np.int8) if outcomes is None else outcomes
    entry_codes = codes[at] if entry_outcomes is None else entry_outcomes
    entry_q = q[at] - np.concatenate([changes for _, changes in people])
    return Results(
        q=np.where(codes == 0, q, np.nan),
        outcomes=codes,
        databases=np.arange(len(q)),
        individuals=np.arange(len(people)),
        starts=np.concatenate(([0], np.cumsum([len(databases) for databases, _ in people]))).astype(np.int64),
        entry_database=at,
        entry_q=np.where(entry_codes == 0, entry_q, np.nan),
        entry_outcomes=entry_codes,
        components=tuple(f"cell {k}" for k in range(q.shape[1])),
    )


def always(change, n=N):
    return np.arange(n), np.tile(np.asarray(change, float), (n, 1))


def cell(d, *cells):
    return np.isin(np.arange(d), cells).astype(float)


def people_of(rng, d, n=N):
    """One constant cell, two constant cells, two cells on a tenth of the days, another cell each day."""
    days = np.sort(rng.choice(n, n // 10, replace=False))
    roaming = np.eye(d)[rng.integers(4, size=len(days))]
    return [always(0.3 * cell(d, 0), n), always(0.3 * cell(d, 0, 1), n), (days, np.tile(cell(d, 0, 1), (len(days), 1))),
            (days, roaming)]  # fmt: skip


@pytest.mark.slow
def test_upper_bounds_hold_on_a_normal_table_and_are_not_empty():
    truths = np.array([gaussian(0.3), gaussian(0.3 * math.sqrt(2))])
    there = np.array([gaussian(0.3), gaussian(0.3 * math.sqrt(2)), gaussian(math.sqrt(2)), gaussian(1.0)])
    held, held_there, uppers, lower_held = [], [], [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        risk = measure_table(table(100 + rng.normal(size=(N, 12)), people_of(rng, 12)))
        bounds, present = empriv.bounds(risk, 0.1), empriv.bounds(risk.given_presence(), 0.1)
        held.append(bounds.upper_i[:2] >= truths)
        held_there.append(present.upper_i >= there)
        uppers.append(np.concatenate((bounds.upper_i[:2], present.upper_i)))
        lower_held.append(bounds.lower <= truths.max())
        assert np.all(risk.delta_i(0.1) <= bounds.upper_i)
        assert bounds.lower <= bounds.estimate <= bounds.upper
    assert np.mean(held) >= 0.9
    assert np.mean(held_there) >= 0.9
    assert np.mean(lower_held) >= 0.8
    assert np.all(np.median(uppers, axis=0) < 2.2 * np.concatenate((truths, there)))  # 1 would hold as well
    assert np.median([u[0] for u in uppers]) < gaussian(0.6)


def test_curves_compose_as_normal_laws_do_from_above():
    grid = RatioGrid(EPSILONS)
    sizes = np.array([0.2, 0.7, 1.5])
    one = grid.both_signs(gaussian_delta(sizes[:, None], EPSILONS[None, :]))
    asked = np.array([0.05, 0.3, 1.0, 2.0])
    for times, curve in ((1, one), (2, grid.composed(one, one)), (3, grid.composed(grid.composed(one, one), one))):
        truth = gaussian_delta(math.sqrt(times) * sizes[:, None], asked[None, :])
        found = grid.at(curve, asked)
        assert np.all(found >= truth - 1e-12)
        assert np.all(found <= truth + 0.025)
    assert np.all(grid.at(grid.composed(one, one), asked) > grid.at(one, asked))


def test_a_day_when_they_may_be_away_tells_less():
    grid = RatioGrid(EPSILONS)
    there = grid.both_signs(gaussian_delta(np.array([[1.0]]), EPSILONS[None, :]))
    asked = np.array([0.0, 0.1, 0.5])
    share, x = 0.1, np.random.default_rng(0).normal(size=400_000)
    ratio = 1 - share + share * np.exp(x - 0.5)  # under the law without them
    e = np.exp(asked)[:, None]
    truth = np.maximum(np.maximum(ratio - e, 0).mean(axis=1), np.maximum(1 - e * ratio, 0).mean(axis=1))
    found = on_random_day(grid, there, np.array([share]), asked)[0]
    assert np.all(found >= truth - 1e-3)
    assert np.all(found <= truth + 2e-3)
    np.testing.assert_allclose(on_random_day(grid, there, np.array([1.0]), asked), grid.at(there, asked))


def test_margins_and_one_hidden_cell_change_no_bound():
    rng = np.random.default_rng(13)
    q = 100 + rng.normal(size=(N, 4))
    people = [always(0.5 * cell(4, k)) for k in range(4)]
    wide = np.column_stack((q, q.sum(axis=1)))
    moved = [(at, np.column_stack((change, change.sum(axis=1)))) for at, change in people]
    plain = empriv.bounds(measure_table(table(q, people)), 0.1)
    beside = empriv.bounds(measure_table(table(wide, moved)), 0.1)
    hidden = [0, 2, 3, 4]
    without = empriv.bounds(measure_table(table(wide[:, hidden], [(at, c[:, hidden]) for at, c in moved])), 0.1)
    np.testing.assert_allclose(beside.upper_i, plain.upper_i, atol=0.02)
    np.testing.assert_allclose(without.upper_i, plain.upper_i, atol=0.02)
    assert plain.upper < 0.4


def test_more_cells_than_databases_carry_have_no_upper_bound_and_say_so():
    rng = np.random.default_rng(4)
    q = 100 + rng.normal(size=(60, 70))
    nobody = (np.zeros(0, int), np.zeros((0, 70)))
    risk = measure_table(table(q, [always(0.3 * cell(70, 0), 60), nobody]))
    bounds = empriv.bounds(risk, 0.1)
    assert bounds.upper_i.tolist() == [1.0, pytest.approx(1 - 0.05 ** (1 / 60))]
    assert risk.from_below.tolist() == [True, False]
    assert any("one person" in note and "from below" in note for note in bounds.notes)
    codes = {check.code: check for check in empriv.checks(risk, 0.1)}
    assert codes["carried"].severity == "error"
    audit = empriv.audit(risk.results)
    assert any("from below" in warning for warning in audit.summary().warnings)
    assert audit.verdict(epsilon=0.1, delta=0.5, presence="random") != "pass"


def test_an_exact_leak_is_demonstrated():
    rng = np.random.default_rng(5)
    others, own = 100 + rng.normal(size=(100, 3)), rng.lognormal(size=100)
    q = np.column_stack((others[:, 0] + own, others))
    risk = measure_table(table(q, [(np.arange(100), own[:, None] * cell(4, 0))]))
    bounds = empriv.bounds(risk, 0.1)
    assert bounds.upper == 1.0
    assert bounds.lower > 0.9
    assert any(check.code == "exact-leak" for check in empriv.checks(risk, 0.1))


def test_changing_what_is_shown_counts_as_telling_for_certain():
    rng = np.random.default_rng(6)
    q = 100 + rng.normal(size=(N, 4))
    codes = np.zeros(q.shape, np.int8)
    codes[::3, 3] = Outcome.NULL
    days = np.arange(1, N, 12)  # the fourth cell is hidden without them, and shown with them
    entry_codes = codes[days].copy()
    entry_codes[:, 3] = Outcome.NULL
    changed = np.flatnonzero(codes[days, 3] == 0)
    results = table(q, [(days, np.tile(0.2 * cell(4, 0, 1), (len(days), 1)))], codes, entry_codes)
    risk = measure_table(results)
    bounds = empriv.bounds(risk, 0.1)
    assert risk.turned_elsewhere[0] == len(changed)
    assert bounds.upper > len(changed) / N
    assert bounds.upper < 3 * len(changed) / N


def test_a_few_databases_and_noise():
    rng = np.random.default_rng(7)
    risk = measure_table(table(rng.normal(size=(20, 3)), [always(cell(3, 0), 20)]))
    assert empriv.bounds(risk, 0.1).upper == 1.0
    with pytest.raises(empriv.InputError, match="`noise` must be 0"):
        empriv.bounds(risk, 0.1, noise=1.0)


def test_what_bends_is_seen_and_what_does_not_is_not():
    def severity(q):
        risk = measure_table(table(q, [always(0.05 * cell(q.shape[1], 0), len(q))]))
        return bent_check(risk, riskiest_places(risk, np.array([0])), 0).severity

    seen, false = 0, 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(N, 5))
        seen += severity(np.column_stack((x[:, 0] ** 2 + 0.3 * rng.normal(size=N), x))) == "error"
        false += severity(x @ rng.normal(size=(5, 6)) + rng.standard_t(3, size=(N, 6))) == "error"
    assert seen >= 5
    assert false <= 1
