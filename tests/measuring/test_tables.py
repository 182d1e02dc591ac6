"""Whole tables: closed forms for normal ones, margins, differences, suppression, and inputs of every kind."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import empriv
from empriv.errors import InputError
from empriv.measuring.tables import TableRisk, measure_given_table, measure_table
from empriv.measuring.tables.directions import cell_results
from empriv.measuring.tables.fit import fit_table, shrinkage
from empriv.results import Outcome, Results
from empriv.validate.checks import checks
from table_results import always, gaussian_delta, of_entries, table, unit

N = 365


def factors(rng, d, n=N, noise=1.0):
    """Cells that follow two common factors, and vary by ``noise`` beside them."""
    return 100 + 3 * rng.normal(size=(n, 2)) @ rng.uniform(1, 2, size=(2, d)) + noise * rng.normal(size=(n, d))


@pytest.mark.parametrize("d", [6, 40])
def test_one_constant_cell_is_hidden_by_its_own_noise_alone(d):
    deltas, alone = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        risk = measure_table(table(factors(rng, d), [always(0.3 * unit(d, 0))]))
        deltas.append(risk.delta(0.1))
        alone.append(risk.each_number["cell 0"].delta(0.1))
    truth = gaussian_delta(0.3, 0.1)
    if d == 40:  # with few cells the factors are not known exactly
        assert abs(np.mean(deltas) - truth) < 0.02
    assert np.mean(alone) < 0.3 * truth
    assert np.mean(deltas) > 2 * np.mean(alone)


def test_a_constant_influence_vector_is_one_number_of_its_mahalanobis_size():
    rng = np.random.default_rng(5)
    root = np.linalg.cholesky(0.5 * np.eye(4) + 0.5)
    q = rng.normal(size=(2000, 4)) @ root.T
    change = np.array([0.3, -0.2, 0.4, 0.0])
    risk = measure_table(table(q, [always(change, 2000)]))
    size = math.sqrt(change @ np.linalg.solve(root @ root.T, change))
    assert math.sqrt(risk.influences.sizes[0]) == pytest.approx(size, rel=0.05)
    assert risk.delta(0.1) == pytest.approx(gaussian_delta(size, 0.1), abs=0.02)
    assert risk.delta(0.1) > gaussian_delta(0.8 * size, 0.1)


def people_of(rng, d, n=N):
    """Everybody of one cell, some rarely there, and somebody who roams."""
    people = [always(0.5 * unit(d, k), n) for k in range(d)]
    days = np.sort(rng.choice(n, n // 10, replace=False))
    people.append((days, rng.exponential(1.0, len(days))[:, None] * unit(d, 0)))
    people.append((days, unit(d, 0) * 1.0 + np.eye(d)[rng.integers(d, size=len(days))]))
    return people


def with_margin(q, people):
    """The same cells and their total."""
    wide = [(at, np.column_stack((change, change.sum(axis=1)))) for at, change in people]
    return np.column_stack((q, q.sum(axis=1))), wide


def test_hiding_one_cell_beside_the_total_changes_nothing_and_two_do():
    rng = np.random.default_rng(2)
    q = 100 + rng.normal(size=(N, 5))
    people = [always(0.7 * unit(5, k)) for k in range(5)]
    wide, moved = with_margin(q, people)
    whole = measure_table(table(wide, moved)).delta_i(0.1)

    def without(*cells):
        kept = [c for c in range(6) if c not in cells]
        return measure_table(table(wide[:, kept], [(at, change[:, kept]) for at, change in moved])).delta_i(0.1)

    np.testing.assert_allclose(without(1), whole, atol=1e-6)
    two = without(1, 2)
    assert np.all(two[1:3] < 0.75 * whole[1:3])
    assert two[0] == pytest.approx(whole[0], abs=0.01)
    # somebody who regressed a cell on a total that the person is in would say 1
    assert whole.max() < 0.35


def test_whoever_breaks_what_the_table_keeps_is_given_away_where_they_do():
    rng = np.random.default_rng(4)
    q = 100 + rng.normal(size=(N, 3))
    days = np.arange(0, N, 5)
    honest, cheat = always(0.3 * np.array([1, 0, 0, 1.0])), (days, np.tile([0.3, 0, 0, 0.0], (len(days), 1)))
    risk = measure_table(table(np.column_stack((q, q.sum(axis=1))), [honest, cheat], names=["a", "b", "c", "total"]))
    (leak,) = risk.leaks
    assert leak.rows.tolist() == [1]
    assert leak.largest_share == pytest.approx(len(days) / N)
    assert leak.direction == "total minus a minus b minus c"
    assert risk.delta_i(0.1)[1] >= len(days) / N
    assert risk.delta_i(0.1)[0] < 0.2


def test_nobody_is_below_a_cell_alone():
    rng = np.random.default_rng(6)
    q = rng.lognormal(1.0, 1.0, size=(100, 4))
    risk = measure_table(table(q, people_of(rng, 4, 100)))
    for alone in risk.each_number.values():
        assert np.all(risk.delta_i([0.1, 1.0]) >= alone.delta_i([0.1, 1.0]) - 1e-12)


def test_units_and_the_order_of_cells_do_not_matter():
    rng = np.random.default_rng(7)
    q = factors(rng, 4, 120)
    people = people_of(rng, 4, 120)
    order, factor = np.array([2, 0, 3, 1]), np.array([1e-3, 10.0, 1.0, -5.0])
    plain = measure_table(table(q, people))
    turned = measure_table(table((q * factor)[:, order], [(at, (c * factor)[:, order]) for at, c in people]))
    np.testing.assert_allclose(turned.delta_i(0.1), plain.delta_i(0.1), atol=2e-3)


def test_which_cells_expose_whom():
    rng = np.random.default_rng(8)
    q = factors(rng, 5)
    two = np.zeros((N, 5))
    two[:, 1], two[:, 2] = 1.0, rng.exponential(0.1, N)
    risk = measure_table(table(q, [always(0.5 * unit(5, 0)), (np.arange(N), two)]))
    rows = risk.exposures(0.1)
    found = {(int(i), str(c)): d for i, c, d in zip(rows["individual"], rows["cell"], rows["delta_i"], strict=True)}
    assert set(found) == {(0, "cell 0"), (1, "cell 1"), (1, "cell 2")}
    assert found[0, "cell 0"] == pytest.approx(risk.delta_i(0.1)[0])
    assert found[1, "cell 1"] > 5 * found[1, "cell 2"]
    assert np.all(np.diff(rows["delta_i"]) <= 0)
    assert len(risk.exposures(0.1, top=1)["cell"]) == 1


@pytest.mark.parametrize("draws", [None, 3])
def test_a_cell_alone_has_entries_where_somebody_changes_it(draws):
    rng = np.random.default_rng(5)
    n, people, d = 40, 6, 4
    size = (n, *(() if draws is None else (draws,)), d)
    q = rng.normal(size=size)
    change = rng.normal(size=(people, *size)) * (rng.random((people, n, *(1,) * (len(size) - 2), d)) < 0.3)
    entry_q = (q - change).reshape(people * n, *size[1:])
    starts, names = np.arange(people + 1) * n, ("a", "b", "c", "d")
    results = of_entries(q, np.tile(np.arange(n), people), entry_q, starts, components=names, draws=draws)
    influences = measure_table(results).influences
    for cell, name in enumerate(results.components):
        alone, whole = cell_results(influences, cell), results.component(name)
        moved = (change[..., cell].reshape(people, n, -1) != 0).any(axis=2)
        assert np.array_equal(alone.presence, moved.sum(axis=1))
        assert 0 < alone.presence.sum() < people * n
        for person in range(people):
            assert np.array_equal(alone.without(person), whole.without(person))


def test_cells_that_come_and_go_are_outcomes():
    rng = np.random.default_rng(9)
    q = 100 + rng.normal(size=(N, 3))
    hidden = rng.random(N) < 0.4
    codes = np.zeros(q.shape, np.int8)
    codes[hidden, 0] = Outcome.NULL
    q[hidden, 0] = np.nan
    results = table(q, [always(0.5 * unit(3, 0)), always(0.5 * unit(3, 1))], outcomes=codes)
    risk = measure_table(results)
    assert (risk.fit.presence_known, risk.fit.presence_dropped) == (1, 0)
    assert 0.02 < risk.delta_i(0.1)[0] < risk.delta_i(0.1)[1] + 0.05
    # somebody without whom the cell is hidden is seen by that
    shown = np.flatnonzero(~hidden)[:80]
    entry_codes, entry_q = results.entry_outcomes.copy(), results.entry_q.copy()
    entry_codes[shown, 0], entry_q[shown, 0] = Outcome.NULL, np.nan
    turning = replace(results, entry_q=entry_q, entry_outcomes=entry_codes)
    assert measure_table(turning).delta_i(0.1)[0] > 0.15


def test_cells_of_nobody_else_give_somebody_away_together():
    """Somebody who has a cell of their own, another one each day, is told by whichever it is."""
    import pandas as pd

    n = 40
    days, people = np.repeat(np.arange(n), 6), np.tile(np.arange(6), n)
    group = [f"own {day % 20}" if who == 3 else "all" for day, who in zip(days, people, strict=True)]
    frame = pd.DataFrame({"day": days, "who": people, "g": group})
    frame = frame[(people == 3) | (np.random.default_rng(0).random(len(frame)) < 0.5)]
    data = empriv.databases(frame, database="day", individual="who")
    risk = empriv.measure(empriv.collect(data, "SELECT g, count(*) FROM data GROUP BY g"))
    assert risk.delta_i(1.0)[3] == 1.0
    assert risk.leaked()[[0, 1, 2, 4, 5]].max() == 0.0


def test_more_cells_than_databases_give_a_figure_from_below():
    rng = np.random.default_rng(10)
    q = factors(rng, 60, 50)
    risk = measure_table(table(q, [always(0.5 * unit(60, 0), 50)]))
    assert risk.fit.ridge
    assert risk.fit.saturated
    assert not risk.leaks
    assert 0 <= risk.delta(0.1) < 0.6


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.1, 0.9245), (0.3, 0.8671), (0.5, 0.8944), (0.8, 1.0), (1.0, 1.0)]
)
def test_shrinkage(share, expected):
    assert shrinkage(share) == pytest.approx(expected, abs=1e-4)


def test_precision_is_that_of_the_regression_on_all_others():
    rng = np.random.default_rng(11)
    q = factors(rng, 4, 80)
    fit = fit_table(table(q, [always(unit(4, 0), 80)]))
    others = np.column_stack((np.ones(80), q[:, 1:]))
    residual = q[:, 0] - others @ np.linalg.lstsq(others, q[:, 0], rcond=None)[0]
    np.testing.assert_allclose(fit.given_rest[:, 0], residual, atol=1e-8)
    assert (fit.rank, fit.n) == (5, 80)


def test_odd_inputs():
    rng = np.random.default_rng(12)
    one_database = measure_table(table(rng.normal(size=(1, 3)), [always(unit(3, 0), 1)]))
    assert 0 <= one_database.delta(0.1) <= 1
    q = np.column_stack((np.full(50, 7.0), rng.normal(size=50), rng.integers(0, 2, 50).astype(float)))
    people = [always([1.0, 0, 0], 50), always([0, 0.1, 0.0], 50), (np.zeros(0, int), np.zeros((0, 3)))]
    risk = measure_table(table(q, people))
    assert risk.delta_i(0.1)[0] == 1.0  # a constant that is another one without them
    assert risk.delta_i(0.1)[2] == 0.0
    codes = np.zeros(q.shape, np.int8)
    codes[:, 1] = Outcome.NULL
    never = np.where(codes == 0, q, np.nan)
    assert measure_table(table(never, people[:1], outcomes=codes)).delta_i(0.1)[0] == 1.0
    with pytest.raises(InputError, match="vector query"):
        measure_table(Results.from_arrays([1.0, 2.0], [[1.0, 1.0]]))


def test_draws_of_a_randomised_query():
    rng = np.random.default_rng(13)
    base = 100 + rng.normal(size=(100, 3))
    q = base[:, None, :] + rng.laplace(size=(100, 4, 3))
    entry_q = np.concatenate((q - 0.5 * unit(3, 0), q - 0.5 * unit(3, 0, 1)))
    names = ("a", "b", "c")
    results = of_entries(q, np.tile(np.arange(100), 2), entry_q, [0, 100, 200], components=names, draws=4)
    risk = measure_table(results)
    assert isinstance(risk, TableRisk)
    first, both = risk.delta_i(0.1)
    assert 0 < first < both < 0.6


def test_the_epsilon_of_a_delta_is_where_the_curve_crosses_it() -> None:
    rng = np.random.default_rng(4)
    table = rng.normal(50.0, 3.0, (50, 3)) + rng.normal(0.0, 4.0, (50, 1))
    moves = np.zeros((3, 50, 3))  # one cell; always two cells alike; a different cell each time
    moves[0, :, 0], moves[1, :, 1:] = 1.0, 0.7
    moves[2, np.arange(50), rng.integers(0, 3, 50)] = 1.5
    parts = {str(c): Results.from_arrays(table[:, c], table[:, c] - moves[..., c]) for c in range(3)}
    risk = measure_table(Results.stack(parts))
    for delta in (0.05, 0.2):
        own = risk.epsilon_i(delta)
        assert risk.epsilon(delta) == pytest.approx(own.max(), abs=1e-6)
        for person, epsilon in enumerate(own):
            assert risk.delta_i(float(epsilon) + 1e-4)[person] <= delta + 1e-6
            assert epsilon < 1e-3 or risk.delta_i(float(epsilon) * 0.98)[person] > delta


def weekly(seed, n=200):
    """Cells that follow the weekday and a trend, by date; somebody in the first, somebody in two."""
    rng = np.random.default_rng(seed)
    dates = np.datetime64("2024-01-01") + np.arange(n)
    level = (
        np.outer(np.array([1, 1, 1, 1, 1, 3, 4.0])[np.arange(n) % 7], [20, 40, 20, 60]) + 0.1 * np.arange(n)[:, None]
    )
    q = 100 + level + 3 * rng.normal(size=(n, 4))
    people = [always([1.5, 0, 0, 0], n), always([1.0, 1.0, 0, 0], n)]
    return replace(table(q, people), databases=dates.astype(str))


@pytest.mark.slow
def test_what_everybody_knows_is_taken_out_of_every_cell():
    results = weekly(0)
    risk = measure_given_table(results, empriv.Given("auto"))
    assert [step.name for step in risk.steps] == ["nothing", "calendar"]
    assert [term.name for term in risk.known][:2] == ["trend", "weekday"]
    # as what is left by hand tells, but for a cell alone, which is measured with the calendar there
    design = np.column_stack((np.ones(200), *(term.columns for term in risk.known)))
    by_hand = results.q - design @ np.linalg.lstsq(design, results.q, rcond=None)[0]
    people = [always([1.5, 0, 0, 0], 200), always([1.0, 1.0, 0, 0], 200)]
    np.testing.assert_allclose(risk.delta_i(0.1), measure_table(table(by_hand, people)).delta_i(0.1), atol=0.01)
    assert risk.delta(0.1) > risk.unconditional.delta(0.1)


def test_the_previous_table_is_known_along_its_axes():
    results = weekly(1)
    risk = measure_given_table(results, empriv.Given("previous:2", "calendar"))
    assert risk.dropped == 2
    assert risk.results.n_databases == 198
    assert {term.lag for term in risk.known} == {0, 1, 2}
    assert 0 < risk.delta(0.1) < 1
    with pytest.raises(InputError, match="at least 221 databases"):
        measure_given_table(results, empriv.Given(np.random.default_rng(0).normal(size=(200, 200))))


@pytest.mark.slow
def test_an_audit_of_a_table_counts_the_calendar_as_known_by_itself(tmp_path):
    audit = empriv.audit(weekly(2))
    assert audit.against is not None
    assert "weekday" in " ".join(audit.summary().notes)
    audit.save(tmp_path / "table.empriv")
    again = empriv.load(tmp_path / "table.empriv")
    np.testing.assert_allclose(again.delta([0.05, 0.1]), audit.delta([0.05, 0.1]))
    assert audit.to_json()["known"]["terms"][:2] == ["trend", "weekday"]


def test_the_differencing_attack_is_certain_and_a_benign_pair_is_not():
    """The paper's example: a sum, and the same sum without one person. Two sums that move together are no leak."""
    rng = np.random.default_rng(12)
    rest, target, other = rng.normal(100, 10, 100), rng.lognormal(0, 0.5, 100), rng.normal(0.5, 0.2, 100)
    total = rest + target

    def pair(first, second):
        return empriv.measure(Results.stack({"total": first, "other": second}))

    attack = pair(
        Results.from_arrays(total, np.stack((rest, total - other))),
        Results.from_arrays(rest, np.stack((rest, rest - other))),
    )
    assert isinstance(attack, TableRisk)
    assert attack.delta_i(0.1)[0] == 1.0
    assert attack.delta_i(0.1)[1] < 0.1
    (leak,) = attack.leaks
    assert (leak.direction, leak.rows.tolist(), leak.largest_share) == ("total minus other", [0], 1.0)
    assert attack.bounds(0.1).lower > 0.9
    assert np.isinf(attack.epsilon(0.5))
    near = rest + rng.normal(0, 8, 100)
    benign = pair(Results.from_arrays(rest, [rest - other]), Results.from_arrays(near, [near - other]))
    assert not benign.leaks
    assert benign.delta(0.1) < 0.1
    assert not [check for check in checks(benign, 0.1) if check.severity == "error"]
