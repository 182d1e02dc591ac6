"""What is known, regressed out of both sides: calendars, regression, how much is chosen, presence against oracles."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pytest

import empriv
from empriv.measuring.given.calendar import calendar_terms, times_of
from empriv.measuring.given.given_risk import GivenRisk, choose
from empriv.measuring.given.iid_tests import iid_tests, same_within
from empriv.measuring.given.reader_knowledge import parse_known
from empriv.measuring.given.regression import (
    category_term,
    changing,
    fitted,
    number_term,
    prefers_logarithm,
    quantity_terms,
    regress_out,
)
from empriv.validate.checks import checks
from table_results import gaussian_delta, of_entries

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


def one_person(others, days, influence):
    """Results of one person, who adds so much on the first days."""
    return of_entries(others + np.where(np.arange(len(others)) < days, influence, 0.0), range(days), others[:days])


def test_the_calmest_context_is_one_that_people_are_in():
    rng = np.random.default_rng(30)
    x = np.repeat([0.0, 1.0], 200)
    q = rng.normal(size=400) * np.where(x > 0, 0.1, 1.0)
    results, there = one_person(q, 200, 0.01), number_term("x", x)
    units = regress_out(results, [there]).units
    assert units[:200].min() == pytest.approx(1.0)
    assert units[200:].max() < 0.2  # calmer, and nobody was there
    both = regress_out(one_person(q, 400, 0.01), [there]).units
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
    sparse = of_entries(results.q, [3, 100], results.q[[3, 100]] - 0.5, databases=results.databases)
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
    assert known.delta(EPSILON) == pytest.approx(gaussian_delta(0.3), rel=0.3)
    assert known.unconditional.delta(EPSILON) < 0.5 * gaussian_delta(0.3)


def test_the_bound_covers_the_truth_and_not_twice_the_truth():
    uppers = []
    for seed in range(12):
        results, _ = shop(n=200, seed=seed)
        uppers.append(empriv.measure(results, known="calendar").bounds(EPSILON).upper)
    truth = gaussian_delta(0.3)
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
    assert empriv.measure(results, known=["calendar", np.arange(200.0) ** 2]).residuals.fit.parameters > 8


def test_an_exact_leak_is_not_lost_when_a_level_is_taken_out():
    rng = np.random.default_rng(9)
    q = np.round(rng.normal(100, 10, 120)) + np.arange(120)
    results = empriv.Results.from_arrays(q, np.stack((q - 0.5, q - 1)), databases=days(120))
    plain, known = empriv.measure(results), empriv.measure(results, known="calendar")
    assert plain.delta_i(EPSILON)[0] == pytest.approx(1.0)
    assert known.delta_i(EPSILON)[0] == pytest.approx(1.0)
    assert known.epsilon_i(0.1)[0] == np.inf
    assert known.bounds(EPSILON).upper_i[0] == 1.0
    assert known.delta_i(EPSILON)[1] < 0.5


def test_what_is_known_determines_the_result():
    q = 5.0 * np.arange(60)
    results = empriv.Results.from_arrays(q, np.stack((q - 1, q)), databases=days(60))
    risk = empriv.measure(results, known="calendar")
    assert risk.delta_i(EPSILON).tolist() == [1.0, 0.0]
    assert any(check.severity == "error" and check.code == "known" for check in checks(risk, EPSILON))


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
    assert np.allclose(risk.results.q - risk.results.q[0], q - q[0])


def test_rounding_is_no_trend():
    influence = 0.1 + np.where(np.arange(100) > 50, 7e-16, 0.0)
    assert iid_tests(influence).p <= 0.05
    assert iid_tests(same_within(influence, 1e-14)).p == 1.0
    assert np.ptp(same_within(np.array([0.0, 1.0, 1.0 + 1e-15]), 1e-12)) == 1.0


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


MIXED = [["nothing", "calendar"], ["own", "count(*)"], ["buckets:count(*)", "calendar"], ["buckets:a", "buckets:b"]]


@pytest.mark.parametrize("wrong", [None, [], *MIXED, "buckets: "])
def test_a_wrong_setting_is_refused(wrong):
    with pytest.raises(empriv.InputError, match="`known` must"):
        parse_known(wrong)


def test_what_settings_say():
    assert parse_known("nothing").known is None
    assert parse_known("auto").known.only_auto
    unordered = parse_known("unordered")
    assert unordered.known.only_auto
    assert not unordered.ordered
    assert parse_known(["buckets:max(x)"]).known.g == "max(x)"
    assert isinstance(parse_known("own").known, empriv.OwnContribution)
    assert parse_known([1.0, 2.0]).known.quantities == ([1.0, 2.0],)
    assert parse_known(["auto", "count(*)"]).known.quantities == ("count(*)",)
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
    assert known.residuals.logarithm
    assert known.delta(EPSILON) == pytest.approx(logs.delta(EPSILON), rel=0.1)
    assert known.influence()[0] == pytest.approx((q - np.exp(y - 0.05)).max())
    assert not known.without_logarithm().residuals.logarithm


def test_the_spread_of_residuals_that_are_mostly_zero_stays_on_their_scale() -> None:
    """Answers rounded so coarsely that they change on one day of the week alone."""
    day = np.arange(300)
    rng = np.random.default_rng(3)
    y = np.where(day % 5 == 0, 50.0 * rng.integers(0, 2, 300), 0.0)
    fit = fitted(y, [category_term("label", day % 5)], spread=True)
    assert fit.spread is not None
    assert 1e-6 < fit.spread.least < fit.spread.scale.max() < 1e6


def grown(shape, seed):
    """300 days whose answers grow in this shape, and a person in all of them."""
    x = np.linspace(0, 1, 300)
    level = {"straight": 40 * x, "slowing": 80 * np.sqrt(x), "turning": -200 * (x - 0.4) ** 2}[shape]
    q = 500 + level + np.random.default_rng(seed).normal(0, 6, 300)
    return empriv.Results.from_arrays(q, [q - 1.0], databases=days(300))


def trend_of(risk):
    return next((term for term in risk.residuals.fit.terms if term.name == "trend"), number_term("trend", np.zeros(2)))


@pytest.mark.parametrize("shape", ["slowing", "turning"])
def test_a_trend_bends_where_a_straight_one_leaves_a_curve(shape):
    for seed in range(3):
        risk = empriv.audit(grown(shape, seed), epsilon=0.5).against
        assert trend_of(risk).size == 3
        assert np.std(risk.residuals.fit.residuals) == pytest.approx(6.0, rel=0.15)  # nothing but the noise is left
        errors = {check.code for check in checks(risk, 0.5) if check.severity == "error"}
        assert not errors & {"curvature", "iid", "shape"}, (seed, errors)


def test_a_straight_trend_seldom_bends():
    bent = [trend_of(empriv.audit(grown("straight", 100 + seed), epsilon=0.5).against).size > 1 for seed in range(30)]
    assert sum(bent) <= 5  # one or two are expected
