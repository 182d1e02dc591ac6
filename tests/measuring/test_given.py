"""What is known, regressed out of both sides: calendars, regression, how much is chosen, presence against oracles."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from statistics import NormalDist

import numpy as np
import pytest

import empriv
from empriv.measuring.given import compiled_blocks
from empriv.measuring.given.calendar import calendar_terms, times_of
from empriv.measuring.given.choose_known import choose
from empriv.measuring.given.given_risk import GivenRisk, on_their_days
from empriv.measuring.given.iid_tests import iid_tests, same_within
from empriv.measuring.given.presence import influences_of, influences_of_each, thin, without, without_each
from empriv.measuring.given.presence_block import block_of, grouped, groups_of
from empriv.measuring.given.reader_knowledge import as_said
from empriv.measuring.given.regression import changing, fitted, prefers_logarithm
from empriv.measuring.given.residuals import regress_out
from empriv.measuring.given.terms import category_term, number_term, quantity_terms
from empriv.measuring.line.risk import measure_line

EPSILON = 0.1


def days(n, start=date(2024, 1, 1)):
    return np.array([str(start + timedelta(days=k)) for k in range(n)])


def shop(n=200, seed=0, shift=0.3, people=2, sd=1.0):
    """Daily figures with a trend and a weekday pattern, and people of constant influence."""
    rng = np.random.default_rng(seed)
    level = 0.02 * np.arange(n) + np.array([0.0, 1, 4, 2, 8, 7, -1])[np.arange(n) % 7]
    q = 100 + level + sd * rng.normal(size=n)
    without = np.stack([q - shift * (i + 1) / people for i in range(people)])
    return empriv.Results.from_arrays(q, without, databases=days(n)), level


def normal_delta(shift, epsilon=EPSILON):
    """Hockey stick of two normal laws of sd 1."""
    phi = NormalDist().cdf
    return phi(shift / 2 - epsilon / shift) - np.exp(epsilon) * phi(-shift / 2 - epsilon / shift)


# Calendars


@pytest.mark.parametrize(
    ("labels", "unit"),
    [
        (["2024-03-01", "2024-03-02", "2024-03-05"], "days"),
        ([date(2024, 3, 1), date(2024, 3, 2)], "days"),
        (np.array(["2024-03-01", "2024-03-02"], "datetime64[D]"), "days"),
        (["2024-03-01 10:00:00", "2024-03-01 12:00:00"], "days"),
        (["2024-03", "2024-04"], "months"),
        ([1990, 1991, 1995], "numbers"),
        (["1990", "1991"], "numbers"),
    ],
)
def test_labels_that_have_an_order(labels, unit):
    times = times_of(np.array(labels, object) if isinstance(labels, list) else labels)
    assert times is not None
    assert times.unit == unit
    assert np.all(np.diff(times.place) > 0)


@pytest.mark.parametrize("labels", [["Basel", "Bern"], ["2024-13", "2024-14"], [1, 1], ["2024-02-30", "2024-02-31"]])
def test_labels_that_have_none(labels):
    assert times_of(np.array(labels, object)) is None


def test_databases_come_in_the_order_of_time():
    labels = days(40)[::-1]
    assert np.array_equal(times_of(labels).order, np.arange(40)[::-1])


def test_weekdays_are_those_of_the_calendar():
    times = times_of(days(70))  # 1 January 2024 was a Monday
    weekday = next(term for term in calendar_terms(times) if term.name == "weekday")
    assert list(weekday.values[:7]) == ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def test_calendars_are_as_fine_as_the_databases_carry():
    names = {n: [term.name for term in calendar_terms(times_of(days(n)))] for n in (30, 60, 365)}
    assert names == {30: ["trend"], 60: ["trend", "weekday"], 365: ["trend", "weekday", "month"]}
    assert [term.name for term in calendar_terms(times_of(np.arange(1950, 2020)))] == ["trend"]


# Regression


def test_the_level_of_a_normal_law_is_that_of_least_squares():
    rng = np.random.default_rng(1)
    x, label = rng.normal(size=300), rng.choice(["a", "b", "c"], 300)
    y = 5 + 2 * x + (label == "b") + rng.normal(size=300)
    fit = fitted(y, [number_term("x", x), category_term("label", label)])
    design = np.column_stack((np.ones(300), x, label == "b", label == "c"))
    oracle = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    assert fit.parameters == 4
    assert np.allclose(fit.residuals, oracle, atol=1e-12)


def test_the_level_of_a_law_with_two_peaks_is_sharper_than_least_squares():
    rng = np.random.default_rng(2)
    errors = []
    for _ in range(20):
        x = rng.normal(size=(200, 5))
        rest = rng.choice([-0.9, 0.9], 200) + 0.3 * rng.normal(size=200)
        fit = fitted(rest, [number_term(f"x{k}", x[:, k]) for k in range(5)])
        design = np.column_stack((np.ones(200), x))
        plain = design @ np.linalg.lstsq(design, rest, rcond=None)[0]
        errors.append((np.var(fit.level), np.var(plain)))
    ours, least_squares = np.mean(errors, axis=0)
    assert 2 * ours < least_squares


def test_the_level_changes_with_the_results_as_least_squares_say():
    rng = np.random.default_rng(3)
    x = rng.normal(size=100)
    change = rng.normal(size=(2, 100))
    fit = fitted(rng.normal(size=100), [number_term("x", x)])
    design = np.column_stack((np.ones(100), x))
    assert np.allclose(fit.level_change(change), change @ np.linalg.pinv(design).T @ design.T)


def test_a_result_that_is_determined_is_told():
    x = np.arange(60.0)
    fit = fitted(1e6 + 3 * x, [number_term("x", x)])
    assert fit.determined
    assert not fit.residuals.any()


def test_the_spread_is_found_where_it_is_and_not_where_it_is_not():
    rng = np.random.default_rng(2)
    x = np.repeat([0.0, 1.0], 300)
    changing_y = rng.normal(size=600) * np.where(x > 0, 0.5, 1.0)
    fit = fitted(changing_y, [number_term("x", x)])
    assert fit.spread is not None
    ratio = fit.spread.scale[0] / fit.spread.scale[-1]
    assert ratio == pytest.approx(2.0, rel=0.25)
    assert fit.spread.least < fit.spread.scale.min()  # the uncertainty of the fit is on the private side
    kept = [fitted(rng.normal(size=600), [number_term("x", x)]).spread is None for _ in range(40)]
    assert np.mean(kept) > 0.8


def test_the_calmest_context_is_one_that_people_are_in():
    rng = np.random.default_rng(30)
    x = np.repeat([0.0, 1.0], 200)
    q = rng.normal(size=400) * np.where(x > 0, 0.1, 1.0)
    results, there = one_person(q, np.arange(200), np.full(200, 0.01)), number_term("x", x)
    units = regress_out(results, [there]).units
    assert units[:200].min() == pytest.approx(1.0)
    assert units[200:].max() < 0.2  # calmer, and nobody was there
    both = regress_out(one_person(q, np.arange(400), np.full(400, 0.01)), [there]).units
    assert both.min() == pytest.approx(1.0)
    assert both[0] > 5


def test_the_test_of_spread_keeps_its_size():
    rng = np.random.default_rng(3)
    x = number_term("x", rng.normal(size=100))
    alarms = np.mean([changing(rng.standard_t(3, 100), [x]) <= 0.05 for _ in range(200)])
    assert 0.01 <= alarms <= 0.1


def test_the_logarithm_is_preferred_for_lognormal_results_only():
    rng = np.random.default_rng(4)
    assert prefers_logarithm(rng.lognormal(3, 0.5, 200), [])
    assert not prefers_logarithm(rng.normal(100, 5, 200), [])
    assert not prefers_logarithm(rng.normal(0, 5, 200), [])


def test_influence_stays_and_absent_people_stay_absent():
    results, _ = shop()
    sparse = empriv.Results(
        q=results.q, outcomes=results.outcomes, databases=results.databases, individuals=np.array(["a"]),
        starts=np.array([0, 2]), entry_database=np.array([3, 100], np.int32), entry_q=results.q[[3, 100]] - 0.5,
        entry_outcomes=np.zeros(2, np.int8),
    )  # fmt: skip
    left = regress_out(sparse, calendar_terms(times_of(results.databases)))
    assert np.array_equal(left.results.entry_database, sparse.entry_database)
    assert np.allclose(left.results.q[[3, 100]] - left.results.entry_q, 0.5, atol=1e-12)


def test_previous_answers_drop_the_first_databases_and_lower_what_is_left():
    rng = np.random.default_rng(5)
    q = np.zeros(300)
    for k in range(1, 300):
        q[k] = 0.8 * q[k - 1] + rng.normal()
    results = empriv.Results.from_arrays(q, q[None] - 0.3, databases=np.arange(300)[::-1])
    order = times_of(results.databases).order
    left = regress_out(results, [], order=order, previous=2)
    assert left.dropped == 2
    assert left.results.n_databases == 298
    # labels run backwards: the databases come in their order, and each has those before it
    assert np.array_equal(left.original.databases, np.arange(2, 300))
    forwards = empriv.Results.from_arrays(q, q[None] - 0.3)
    left = regress_out(forwards, [], previous=1)
    assert left.results.q.std() == pytest.approx(1.0, rel=0.15)


def test_draws_are_moved_together():
    rng = np.random.default_rng(6)
    x = rng.normal(size=50)
    q = 10 * x[:, None] + rng.normal(size=(50, 3))
    results = empriv.Results.from_arrays(q, (q - 0.5)[None])
    left = regress_out(results, [number_term("x", x)])
    assert np.allclose(left.results.q - left.results.q[:, :1], q - q[:, :1])
    assert np.allclose(left.results.entry_q.reshape(50, 3), left.results.q - 0.5)
    assert left.results.q.std() < 2


# The risk


def test_somebody_with_a_calendar_sees_what_a_known_level_leaves():
    results, level = shop(n=365)
    known = empriv.measure(results, known="calendar")
    oracle = empriv.measure(results.q - level, results.without(0)[None] * 0 + (results.q - level - 0.3)[None])
    assert isinstance(known, GivenRisk)
    assert known.delta(EPSILON) == pytest.approx(oracle.delta(EPSILON), rel=0.25)
    assert known.delta(EPSILON) == pytest.approx(normal_delta(0.3), rel=0.3)
    assert known.unconditional.delta(EPSILON) < 0.5 * normal_delta(0.3)


def test_the_bound_covers_the_truth_and_not_twice_the_truth():
    uppers = []
    for seed in range(12):
        results, _ = shop(n=200, seed=seed)
        uppers.append(empriv.bounds(empriv.measure(results, known="calendar"), EPSILON).upper)
    truth = normal_delta(0.3)
    assert np.mean(np.array(uppers) >= truth) >= 0.9
    assert np.median(uppers) < 3 * truth


def test_quantities_may_be_arrays_labels_mappings_and_several():
    rng = np.random.default_rng(7)
    x, group = rng.normal(size=90), rng.choice(["a", "b"], 90)
    q = 4 * x + 3 * (group == "b") + rng.normal(size=90)
    results = empriv.Results.from_arrays(q, q[None] - 0.3, databases=[f"site {k}" for k in range(90)])
    by_array = empriv.measure(results, known=empriv.Given(x, group))
    by_label = empriv.measure(
        results, known=empriv.Given(dict(zip(results.databases.tolist(), x, strict=True)), list(group))
    )
    assert by_array.delta(EPSILON) == by_label.delta(EPSILON)
    assert by_array.results.q.std() == pytest.approx(1.0, rel=0.3)


def test_a_frame_by_label_gives_a_quantity_for_each_column():
    pandas = pytest.importorskip("pandas", reason="pandas makes the frame: pip install pandas")
    rng = np.random.default_rng(8)
    frame = pandas.DataFrame({"x": rng.normal(size=60), "kind": rng.choice(["a", "b"], 60)}, index=np.arange(60))
    terms = quantity_terms(frame.iloc[::-1], np.arange(60), "frame")
    assert [term.name for term in terms] == ["x", "kind"]
    assert np.array_equal(terms[0].values, frame["x"].to_numpy())


def test_words_and_lists_of_them():
    public = empriv.Given("calendar", "previous:3", "count(*)")
    assert public.calendar
    assert public.previous == 3
    assert public.quantities == ("count(*)",)
    assert public.words == ("calendar", "previous:3")
    results, _ = shop()
    assert empriv.measure(results, known=["calendar", np.arange(200.0) ** 2]).left.fit.parameters > 8


def test_an_exact_leak_is_not_lost_when_a_level_is_taken_out():
    rng = np.random.default_rng(9)
    q = np.round(rng.normal(100, 10, 120)) + np.arange(120)
    results = empriv.Results.from_arrays(q, np.stack((q - 0.5, q - 1)), databases=days(120))
    plain, known = empriv.measure(results), empriv.measure(results, known="calendar")
    assert plain.delta_i(EPSILON)[0] == pytest.approx(1.0)
    assert known.delta_i(EPSILON)[0] == pytest.approx(1.0)
    assert known.epsilon_i(0.1)[0] == np.inf
    assert empriv.bounds(known, EPSILON).upper_i[0] == 1.0
    assert known.delta_i(EPSILON)[1] < 0.5


def test_what_is_known_determines_the_result():
    q = 5.0 * np.arange(60)
    results = empriv.Results.from_arrays(q, np.stack((q - 1, q)), databases=days(60))
    risk = empriv.measure(results, known="calendar")
    assert risk.delta_i(EPSILON).tolist() == [1.0, 0.0]
    assert any(check.severity == "error" and check.code == "known" for check in empriv.checks(risk, EPSILON))


# How much counts as known


def test_as_much_is_chosen_as_it_takes():
    rng = np.random.default_rng(10)
    noise = rng.normal(size=300)
    still = empriv.Results.from_arrays(noise, noise[None] - 0.3, databases=days(300))
    assert [step.name for step in choose(still, [], times_of(still.databases))[1]] == ["nothing"]
    results, _ = shop(n=300)
    left, steps = choose(results, [], times_of(results.databases))
    assert steps[-1].name == "calendar"
    assert {term.name for term in left.fit.terms} >= {"trend", "weekday"}
    walk = np.zeros(300)
    for k in range(1, 300):
        walk[k] = 0.7 * walk[k - 1] + noise[k]
    dependent = empriv.Results.from_arrays(walk, walk[None] - 0.3, databases=days(300))
    left, steps = choose(dependent, [], times_of(dependent.databases))
    assert steps[-1].name == "previous"
    assert left.previous == 1


def test_weekdays_are_seen_which_no_test_of_order_sees():
    rng = np.random.default_rng(11)
    q = rng.normal(size=364) + np.array([0, 1.5, -1.5, 1.5, -1.5, 0, 0])[np.arange(364) % 7]
    results = empriv.Results.from_arrays(q, q[None] - 0.3, databases=days(364))
    assert choose(results, [], times_of(results.databases))[1][-1].name != "nothing"


def test_without_an_order_only_the_logarithm_is_tried():
    rng = np.random.default_rng(12)
    q = rng.lognormal(5, 1, 80)
    results = empriv.Results.from_arrays(q, q[None] * 0.99, databases=[f"store {k}" for k in range(80)])
    risk = empriv.measure(results, known="auto")
    assert [step.name for step in risk.steps] == ["nothing"]
    assert np.array_equal(risk.results.q - risk.results.q[0], q - q[0]) or np.allclose(
        risk.results.q - risk.results.q[0], q - q[0]
    )


def test_rounding_is_no_trend():
    influence = 0.1 + np.where(np.arange(100) > 50, 7e-16, 0.0)
    assert iid_tests(influence).p <= 0.05
    assert iid_tests(same_within(influence, 1e-14)).p == 1.0
    assert np.ptp(same_within(np.array([0.0, 1.0, 1.0 + 1e-15]), 1e-12)) == 1.0


# Presence


def one_person(others, there, influences, individual="a"):
    n = len(others)
    order = np.argsort(there)
    there, influences = np.asarray(there)[order], np.asarray(influences)[order]
    q = others.copy()
    q[there] += influences
    return empriv.Results(
        q=q, outcomes=np.zeros(n, np.int8), databases=np.arange(n), individuals=np.array([individual]),
        starts=np.array([0, len(there)]), entry_database=there.astype(np.int32), entry_q=others[there],
        entry_outcomes=np.zeros(len(there), np.int8),
    )  # fmt: skip


def slow_presence(others, influences, h, epsilon):
    """Hockey stick by brute force, on a fine grid."""
    x = np.linspace(others.min() - 30 * h - 3, others.max() + 30 * h + 3, 50_001)

    def pdf(points):
        out = np.zeros_like(x)
        for point in points:
            out += np.exp(-np.abs(x - point) / h) / (2 * h)
        return out / len(points)

    p, q = pdf(others), pdf((others[:, None] + influences).ravel())
    e, step = np.exp(epsilon), x[1] - x[0]
    return max(np.maximum(p - e * q, 0).sum(), np.maximum(q - e * p, 0).sum()) * step


@pytest.mark.parametrize("influences", [[0.5], [0.1, 0.4, 1.0], [-0.3, 0.6]])
def test_presence_is_the_law_of_the_others_plus_one_influence(influences):
    rng = np.random.default_rng(13)
    others = rng.normal(size=40)
    risk = empriv.measure(one_person(others, np.arange(len(influences)) * 5, influences))
    present = on_their_days(risk)
    for epsilon in (0.0, 0.1, 0.5):
        slow = slow_presence(others, np.array(influences), present.bandwidth, epsilon)
        assert present.delta(epsilon) == pytest.approx(slow, abs=2e-5)


def test_somebody_seen_once_is_as_exposed_as_their_influence_makes_them():
    rng = np.random.default_rng(14)
    risk = empriv.measure(one_person(rng.normal(size=365), [100], [0.5]))
    assert risk.delta(EPSILON) < 0.003
    present = on_their_days(risk)
    assert present.delta(EPSILON) == pytest.approx(normal_delta(0.5), rel=0.15)
    bounds = empriv.bounds(present, EPSILON)
    assert normal_delta(0.5) <= bounds.upper <= 1.6 * normal_delta(0.5)
    assert bounds.lower <= normal_delta(0.5)


def test_a_salary_of_five_million_fails():
    rng = np.random.default_rng(15)
    others = rng.normal(60_000, 3_000, 100)
    risk = empriv.measure(one_person(others, [17], [50_000.0]))
    assert risk.delta(EPSILON) <= 0.011
    assert on_their_days(risk).delta(EPSILON) > 0.99


def test_blocks_agree_with_people_one_by_one():
    rng = np.random.default_rng(16)
    n, people = 60, 40
    there = rng.random((people, n)) < 0.3
    amounts = np.where(there, rng.lognormal(-1, 1, (people, n)), 0.0)
    q = rng.normal(0, 3, n) + amounts.sum(axis=0)
    who, when = np.nonzero(there)
    results = empriv.Results(
        q=q, outcomes=np.zeros(n, np.int8), databases=np.arange(n), individuals=np.arange(people),
        starts=np.concatenate(([0], np.cumsum(there.sum(axis=1)))), entry_database=when.astype(np.int32),
        entry_q=q[when] - amounts[who, when], entry_outcomes=np.zeros(len(who), np.int8),
    )  # fmt: skip
    present = on_their_days(empriv.measure(results))
    together = present.delta_i(EPSILON)
    alone = np.array([present.curve_of(row, np.array([EPSILON]), exact=True)[0] for row in range(people)])
    assert np.allclose(together, alone, atol=2e-3)  # the bound on what grouping changes
    slow = slow_presence(q - amounts[3], amounts[3][there[3]], present.bandwidth, EPSILON)
    assert alone[3] == pytest.approx(slow, abs=2e-5)


def test_thinning_changes_no_more_than_it_says():
    rng = np.random.default_rng(17)
    others, influences = rng.normal(size=80), rng.lognormal(-1, 0.8, 150)
    h = 0.4
    exact = slow_presence(others, influences, h, EPSILON)
    for means, weights, changed in (
        (*_even(thin(influences, h)),),
        grouped(influences, h, 0.001, 24),
        grouped(influences, h, 0.05, 3),
    ):
        block = block_of(others[None], (others + means[:, None])[None], weights[None], np.array([h]))
        assert weights.sum() == pytest.approx(1.0)
        assert abs(block.sticks(np.array([np.exp(EPSILON)]))[0, 0] - exact) <= np.exp(EPSILON) * changed + 2e-5


def _even(thinned):
    means, changed = thinned
    return means, np.full(len(means), 1 / len(means)), changed


def test_paired_values_average_to_the_hockey_stick():
    rng = np.random.default_rng(18)
    others = rng.normal(size=(3, 50))
    moved = others[:, None, :] + np.array([0.3, 1.0])[None, :, None]
    weights = np.tile([0.75, 0.25], (3, 1))
    block = block_of(others, moved, weights, np.array([0.3, 0.4, 0.5]))
    e = np.exp(np.array([0.2, 0.5]))
    assert np.allclose(block.values(e).mean(axis=3).max(axis=1).T, block.sticks(e), atol=1e-12)


@pytest.mark.skipif(
    compiled_blocks.compiled is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)
@pytest.mark.parametrize("varying", [0.0, 0.3], ids=["one influence in all databases", "by database"])
def test_compiled_blocks_agree_with_numpy(varying: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups, sticks and values; people with fewer groups than others, and ties."""
    rng = np.random.default_rng(20)
    others = np.round(rng.normal(10, 1, (6, 90)), 2)
    influences = [rng.lognormal(-1, 1, size) for size in (1, 2, 7, 40, 90, 90)]
    h, e = rng.uniform(0.1, 0.5, 6), np.exp(np.array([0.0, 0.1, 2.0]))

    def looked_at() -> list[np.ndarray]:
        means, weights, changed = groups_of(influences, h, 0.002, 24)
        by_database = 1 + varying * np.random.default_rng(1).normal(size=(6, 1, 90))
        block = block_of(others, others[:, None, :] + means[:, :, None] * by_database, weights, h)
        narrow = block.narrowed(0.4)
        return [means, weights, changed, block.sticks(e), block.values(e), narrow.sticks(e), narrow.values(e)]

    fast = looked_at()
    assert fast[0].shape[1] == 24
    assert np.count_nonzero(fast[1][0]) == 1
    monkeypatch.setattr(compiled_blocks, "compiled", None)
    for mine, numpys in zip(fast, looked_at(), strict=True):
        assert np.allclose(mine, numpys, rtol=0, atol=1e-11)
    assert not np.allclose(fast[3], fast[5], rtol=0, atol=1e-3)


@pytest.mark.parametrize("draws", [None, 3])
def test_people_together_are_people_one_by_one(draws):
    rng = np.random.default_rng(21)
    n, shape = 40, (40,) if draws is None else (40, 3)
    q = rng.normal(size=shape)
    counts = np.array([0, 5, n, 12])
    at = np.concatenate([np.sort(rng.choice(n, count, replace=False)) for count in counts]).astype(np.int32)
    change = rng.exponential(size=(len(at), *shape[1:])) * (rng.random((len(at), *shape[1:])) < 0.7)
    results = empriv.Results(
        q=q, outcomes=np.zeros(shape, np.int8), databases=np.arange(n), individuals=np.arange(4),
        starts=np.concatenate(([0], np.cumsum(counts))), entry_database=at, entry_q=q[at] - change,
        entry_outcomes=np.zeros(change.shape, np.int8), draws=draws,
    )  # fmt: skip
    rows = np.array([3, 1, 2])
    for row, others, influences in zip(
        rows, without_each(results, rows), influences_of_each(results, rows), strict=True
    ):
        assert np.array_equal(others, without(results, row).reshape(-1))
        own = change[results.starts[row] : results.starts[row + 1]].reshape(-1)
        assert np.allclose(influences, own[own != 0] if row == 2 else own)  # listed everywhere: away where it is 0


def test_presence_of_draws_in_blocks_is_that_of_people_one_by_one():
    rng = np.random.default_rng(22)
    n, draws, people = 50, 4, 6
    rest = rng.normal(size=n)
    amounts = rng.lognormal(-1, 0.6, (people, n)) * (rng.random((people, n)) < 0.5)
    noise = rng.laplace(scale=0.3, size=(n, draws))
    q = (rest + amounts.sum(axis=0))[:, None] + noise
    made = empriv.Results.from_arrays(q, np.stack([q - own[:, None] for own in amounts]))
    present = replace(on_their_days(empriv.measure(made)), exact=0)
    alone = [present.curve_of(row, np.array([EPSILON]), exact=True)[0] for row in range(people)]
    assert np.allclose(present.delta_i(EPSILON), alone, atol=2e-3)
    assert np.ptp(alone) > 0.02


def test_presence_where_somebody_is_the_only_one():
    """An average that is NULL without them: on that day everything shows."""
    rng = np.random.default_rng(19)
    n = 50
    q = rng.normal(10, 1, n)
    results = empriv.Results(
        q=q, outcomes=np.zeros(n, np.int8), databases=np.arange(n), individuals=np.array(["a"]),
        starts=np.array([0, 2]), entry_database=np.array([4, 9], np.int32), entry_q=np.array([np.nan, q[9] - 0.01]),
        entry_outcomes=np.array([empriv.Outcome.NULL, 0], np.int8),
    )  # fmt: skip
    present = on_their_days(empriv.measure(results))
    assert present.delta(EPSILON) > 0.01
    assert empriv.bounds(present, EPSILON).upper >= present.delta(EPSILON)


def test_given_presence_and_what_is_known_together():
    results, level = shop(n=300, people=1)
    q = results.q
    there = np.arange(0, 300, 30)
    sparse = one_person(q, there, np.full(len(there), 0.5))
    labelled = empriv.Results(**{**sparse.__dict__, "databases": days(300)})
    present = on_their_days(empriv.measure(labelled, known="calendar"))
    assert present.delta(EPSILON) == pytest.approx(normal_delta(0.5), rel=0.3)
    assert on_their_days(empriv.measure(labelled)).delta(EPSILON) < 0.6 * normal_delta(0.5)
    assert level.std() > 2


def test_influences_of_arrays_leave_out_days_without_a_change():
    q = np.random.default_rng(20).normal(size=30)
    results = empriv.Results.from_arrays(q, np.where(np.arange(30) == 3, q - 1, q)[None])
    assert influences_of(results, 0) == pytest.approx([1.0])


# Contexts


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (lambda n: empriv.Given(np.where(np.arange(n) == 3, np.nan, 1.0 * np.arange(n))), "known on every database"),
        (lambda n: empriv.Given(np.array([None, *["a", "b"] * (n // 2 - 1), "a"], object)), "known on every database"),
        (lambda n: empriv.Given(np.ones(n)), "must vary"),
        (lambda n: empriv.Given(["one"] * n), "must vary"),
        (lambda n: empriv.Given([f"label {k}" for k in range(n)]), "few categories"),
        (lambda n: empriv.Given(np.arange(n - 1.0)), "one value for each"),
        (lambda n: empriv.Given({n: 1.0}), "no value for"),
        (lambda n: empriv.Given(np.random.default_rng(0).normal(size=(n, n - 10))), "at least"),
        (lambda n: empriv.Given(f"previous:{n - 5}"), "at least"),
        (lambda n: empriv.Given(f"sum(x) / {n}"), "collected first"),
    ],
)
def test_bad_quantities_are_refused_in_one_sentence(known, message):
    n = 50
    q = np.random.default_rng(23).normal(size=n)
    results = empriv.Results.from_arrays(q, q[None] - 0.3)
    with pytest.raises(empriv.InputError, match=message):
        empriv.measure(results, known=known(n))


@pytest.mark.parametrize("known", ["calendar", "previous", "previous:2"])
def test_databases_without_an_order_have_no_calendar(known):
    q = np.random.default_rng(24).normal(size=50)
    results = empriv.Results.from_arrays(q, q[None] - 0.3, databases=[f"site {k}" for k in range(50)])
    with pytest.raises(empriv.InputError, match="order"):
        empriv.measure(results, known=known)


@pytest.mark.parametrize("wrong", [(), ("previous:-1",), ("previous:1.5",), ("previous:",), ("previous:99999999999",)])
def test_a_wrong_given_is_refused(wrong):
    with pytest.raises(empriv.InputError):
        empriv.Given(*wrong)


@pytest.mark.parametrize(
    "wrong", [None, [], ["nothing", "calendar"], ["own", "count(*)"], ["buckets:count(*)", "calendar"], "buckets: "]
)
def test_a_wrong_setting_is_refused(wrong):
    with pytest.raises(empriv.InputError, match="`known` must"):
        as_said(wrong)


def test_what_settings_say():
    assert as_said("nothing").known is None
    assert as_said("auto").known.only_auto
    unordered = as_said("unordered")
    assert unordered.known.only_auto
    assert not unordered.ordered
    assert as_said(["buckets:max(x)", "buckets:min(x)"]).known.g == ["max(x)", "min(x)"]
    assert isinstance(as_said("own").known, empriv.OwnContribution)
    assert as_said([1.0, 2.0]).known.quantities == ([1.0, 2.0],)
    assert as_said(["auto", "count(*)"]).known.quantities == ("count(*)",)
    restored = empriv.Given.of_words(["previous:2"], ["calendar"])  # a column of that name is no word
    assert (restored.previous, restored.calendar, restored.quantities) == (2, False, ("calendar",))


def test_logarithms_leave_a_hockey_stick_as_it_is():
    rng = np.random.default_rng(26)
    rest = rng.normal(5, 0.2, 300)
    y = rest + np.linspace(0.0, 2.0, 300)
    q = np.exp(y)
    logs = empriv.measure(rest, (rest - 0.05)[None])
    results = empriv.Results.from_arrays(q, np.exp(y - 0.05)[None])
    known = empriv.measure(results, known="auto")
    assert known.left.logarithm
    assert known.delta(EPSILON) == pytest.approx(logs.delta(EPSILON), rel=0.1)
    assert known.influence()[0] == pytest.approx((q - np.exp(y - 0.05)).max())
    assert not known.without_logarithm().left.logarithm


def test_results_with_many_ties_take_the_bandwidth_of_all() -> None:
    """Of a person whose outcomes have a mass of their own, the bandwidth is not chosen again: close to choosing it."""
    rng = np.random.default_rng(1)
    x = rng.exponential(3.0, (20, 40))
    rounded = [np.round(values / 30.0) * 30.0 for values in (x.sum(axis=0), x.sum(axis=0) - x)]
    presence = on_their_days(empriv.measure(*rounded))
    irregular = np.flatnonzero(presence._irregular)
    assert len(irregular)
    for row in irregular[:4].tolist():
        chosen_again = measure_line(presence._written_out(row)).curves(np.array([0.1]))[0, 0]
        assert presence.curve_of(row, np.array([0.1]))[0] == pytest.approx(chosen_again, abs=0.02)
