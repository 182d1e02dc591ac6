"""Adversaries who know part of the data, against quadrature by brute force and against what is true."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy.stats import norm

from empriv import InputError, Kde, measure
from empriv.measuring.given import compiled_blocks
from empriv.measuring.given.adversaries import (
    Buckets,
    OwnContribution,
    Weighted,
    as_adversary,
    bucket_labels,
    spreads_along,
    weights_near,
    whitened,
)
from empriv.measuring.given.adversary_risk import AdversaryRisk, measure_against
from empriv.measuring.given.conditional import ViewSearch
from empriv.measuring.given.weighted import WeightedBlock, ceiling
from empriv.measuring.given.written_out import rows_of
from empriv.results import FloatArray, Outcome, Results


def results(q: FloatArray, changes: FloatArray) -> Results:
    return Results.from_arrays(q, q - changes)


@pytest.mark.skipif(
    compiled_blocks.compiled is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)
def test_compiled_columns_agree_with_numpy() -> None:
    """With ties, weights of 0 far away, and weights that leave mass to atoms."""
    rng = np.random.default_rng(6)
    points = np.round(rng.normal(0, 4, (12, 70)), 1)
    without = points - rng.exponential(1.0, (12, 70)) * (rng.random((12, 70)) < 0.4)
    weights = rng.dirichlet(np.full(70, 0.3), 12) * rng.uniform(0.5, 1.0, (12, 1))
    weights[:, :5], points[:, :3], without[:, 2:4] = 0.0, np.inf, -1e6
    block, e = WeightedBlock(points, without, 1.0, weights), np.exp(np.array([0.0, 0.1, 1.0]))
    fast = block.sticks(e)
    slow = np.maximum(block.knots.curve(0, e), block.knots.curve(1, e)), *block.knots.range()
    assert fast[0].max() > 0.05
    for mine, numpys in zip(fast, slow, strict=True):
        np.testing.assert_allclose(mine, numpys, rtol=1e-11, atol=1e-12)
    far = WeightedBlock(1000 * points, 1000 * without, 1.0, weights)  # too far for exponentials: numpy does it
    assert np.array_equal(far.sticks(e)[0], np.maximum(far.knots.curve(0, e), far.knots.curve(1, e)))


def family(n: int, seed: int) -> tuple[FloatArray, FloatArray, Results]:
    """(what is known, results, and those of three individuals); given g, the results are normal with sd 1."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=n)
    q = 3 * g + rng.normal(size=n)
    return g, q, results(q, np.array([[0.5], [0.2], [0.0]]) * np.ones(n))


def by_quadrature(points: FloatArray, without: FloatArray, weights: FloatArray, epsilon: float) -> float:
    """Larger hockey stick of two weighted Laplace mixtures of bandwidth 1, by quadrature between all knots."""
    e = np.exp(epsilon)

    def density(centres: FloatArray, x: float) -> float:
        return float((weights * 0.5 * np.exp(-np.abs(x - centres))).sum())

    knots = np.unique(np.concatenate((points, without)))
    edges = np.concatenate(([knots[0] - 45], knots, [knots[-1] + 45]))
    totals = []
    for one, other in ((points, without), (without, points)):
        parts = [
            integrate.quad(lambda x, a=one, b=other: max(density(a, x) - e * density(b, x), 0.0), low, high, limit=200)[
                0
            ]
            for low, high in itertools.pairwise(edges)
        ]
        totals.append(sum(parts))
    return max(totals)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7])
def test_weighted_hockey_stick_against_quadrature(epsilon: float) -> None:
    rng = np.random.default_rng(3)
    points = rng.normal(size=(4, 7)) * 2
    without = points - rng.exponential(0.6, size=(4, 7)) * (rng.random((4, 7)) < 0.7)
    weights = rng.dirichlet(np.ones(7), size=4)
    found = WeightedBlock(points, without, 1.0, weights).sticks(np.exp([epsilon]))[0][:, 0]
    truth = [by_quadrature(*each, epsilon) for each in zip(points, without, weights, strict=True)]
    np.testing.assert_allclose(found, truth, atol=2e-7)
    equal = [by_quadrature(a, b, np.full(7, 1 / 7), epsilon) for a, b in zip(points, without, strict=True)]
    assert np.abs(found - equal).max() > 1e-3  # the weights are not ignored


def test_whole_condition_against_quadrature() -> None:
    rng = np.random.default_rng(5)
    g = rng.uniform(size=100)
    q = 3 * g + (0.3 + g) * rng.normal(size=100)
    made = results(q, np.full((1, 100), 0.5))
    risk = measure_against(made, Weighted(g))
    search = risk.search
    assert isinstance(search, ViewSearch)
    assert np.ptp(search.scaling) > 0.5
    block = rows_of(made, search.pairs, np.array([0]))
    for condition in (0, search.n_conditions // 2):
        h = search.bandwidths[condition]
        one = (block.points[0] - search.trends[0]) * search.scaling[condition] / h
        other = one + (block.without[0] - block.points[0]) / h
        truth = by_quadrature(one, other, search.weights[condition], 0.1)
        assert search.by_condition(0, 0.1)[condition] == pytest.approx(truth, abs=1e-6)


def test_knowing_a_constant_is_knowing_nothing() -> None:
    _, _, made = family(80, 1)
    risk = measure_against(made, np.zeros(80))
    epsilons = np.array([0.0, 0.1, 0.5, 2.0])
    np.testing.assert_allclose(risk.delta_i(epsilons), risk.unconditional.delta_i(epsilons), atol=1e-11)
    np.testing.assert_allclose(risk.epsilon_i(0.05), risk.unconditional.epsilon_i(0.05), atol=1e-9)
    np.testing.assert_allclose(risk.epsilon_i(), risk.unconditional.epsilon_i(), atol=1e-9)
    one = measure_against(made, Buckets(np.zeros(80)))
    np.testing.assert_array_equal(one.delta_i(epsilons), one.unconditional.delta_i(epsilons))


def normal_shift(shift: float, epsilon: float) -> float:
    return float(norm.cdf(shift / 2 - epsilon / shift) - np.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Weighted, Buckets])
def test_knowledge_that_explains_the_results_counts(kind: type) -> None:
    truth = normal_shift(0.5, 0.1)
    errors, ignored = [], []
    for seed in range(6):
        g, _, made = family(365, seed)
        risk = measure_against(made, kind(g))
        errors.append(risk.delta(0.1) - truth)
        ignored.append(risk.unconditional.delta(0.1) - truth)
    assert 0.0 < np.mean(errors) < 0.07  # errs on the private side
    assert np.mean(ignored) < -0.1  # which ignoring it does not


@pytest.mark.slow
def test_knowledge_that_explains_nothing_changes_little() -> None:
    differences = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        q = rng.normal(size=365)
        risk = measure_against(results(q, np.full((1, 365), 0.5)), rng.normal(size=365))
        differences.append(risk.delta(0.1) - risk.unconditional.delta(0.1))
    assert 0.0 <= np.mean(differences) < 0.07
    assert np.max(differences) < 0.12


def test_where_results_spread_less_an_individual_shows_more() -> None:
    """The worst value is at the edge; weights that reach inwards take in results that spread more."""
    errors, slopes = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        u = rng.uniform(size=200)
        q = 6 * u + (0.6 + 0.8 * u) * rng.normal(size=200)
        risk = measure_against(results(q, np.full((1, 200), 0.5)), u)
        errors.append(risk.delta(0.1) - normal_shift(0.5 / 0.6, 0.1))
        slopes.append(spreads_along(np.abs(q - 6 * u), u[:, None], np.ones(200)))
        slopes[-1] = np.polyfit(u, slopes[-1], 1)[0]
    assert abs(np.mean(errors)) < 0.035
    assert np.mean(slopes) == pytest.approx(np.log(1.4 / 0.6), abs=0.25)


def test_spreads_that_do_not_change_are_left_alone() -> None:
    rng = np.random.default_rng(1)
    slopes = []
    for _ in range(40):
        y = rng.normal(size=200)
        slopes.append(np.polyfit(y, spreads_along(np.abs(rng.normal(size=200)), y[:, None], np.ones(200)), 1)[0])
    assert np.count_nonzero(np.abs(slopes) < 1e-12) > 20  # shrunk to nothing in most cases
    assert np.abs(slopes).max() < 0.2
    known = np.linspace(0, 1, 200)[:, None]
    assert spreads_along(known[:, 0], known, np.ones(200)).any()
    assert not spreads_along(known[:99, 0], known[:99], np.ones(99)).any()  # too few to tell
    assert not spreads_along(known[:, 0], np.zeros((200, 1)), np.ones(200)).any()
    assert not spreads_along(np.zeros(200), known, np.ones(200)).any()


@pytest.mark.slow
def test_several_quantities_at_once() -> None:
    rng = np.random.default_rng(2)
    g = rng.normal(size=(600, 2))
    q = 2 * g[:, 0] - 3 * g[:, 1] + rng.normal(size=600)
    made = results(q, np.full((1, 600), 0.5))
    both, one = measure_against(made, g), measure_against(made, g[:, 0])
    assert both.delta(0.1) > 2 * one.delta(0.1)
    assert both.delta(0.1) == pytest.approx(normal_shift(0.5, 0.1), abs=0.09)
    assert both.individuals(0.1)["worst_z"].shape == (1, 2)
    listed = measure_against(made, [g[:, 0], g[:, 1]])
    assert listed.delta(0.1) == both.delta(0.1)


@pytest.mark.parametrize("kind", [Weighted, Buckets])
def test_who_knows_the_result_sees_every_change(kind: type) -> None:
    _, q, made = family(100, 4)
    risk = measure_against(made, kind(2 * q + 7))
    np.testing.assert_allclose(risk.delta_i(0.1), [1.0, 1.0, 0.0], atol=1e-12)
    assert risk.epsilon(0.5) == np.inf
    assert any("EXACT LEAK" in said for said in risk.warnings)


@pytest.mark.parametrize("kind", [Weighted, Buckets])
def test_who_knows_the_sum_of_all_others(kind: type) -> None:
    """Results without the individual are then what is known, however smooth a density is fitted to them."""
    rng = np.random.default_rng(6)
    others = rng.normal(100, 10, size=200)
    own = rng.lognormal(size=200) * (rng.random(200) < 0.5)
    q = others + own
    risk = measure_against(results(q, np.array([own, np.full(200, 1e-3)])), kind(others))
    there = np.mean(own > 0)
    assert risk.delta_i(0.1)[0] >= there - 0.1
    assert risk.delta_i(0.1)[1] < 0.5 * there


def test_atoms_are_kept_under_weights() -> None:
    """NULL without an individual in a tenth of the databases: all of them where g is high."""
    rng = np.random.default_rng(8)
    n = 400
    g = rng.normal(size=n)
    q = g + rng.normal(size=n)
    plain = results(q, np.full((1, n), 1e-9))
    gone = g > np.quantile(g, 0.8)
    made = Results(
        q=plain.q,
        outcomes=plain.outcomes,
        databases=plain.databases,
        individuals=plain.individuals,
        starts=plain.starts,
        entry_database=plain.entry_database,
        entry_q=np.where(gone, np.nan, plain.entry_q),
        entry_outcomes=np.where(gone, Outcome.NULL, plain.entry_outcomes).astype(np.int8),
    )
    risk = measure_against(made, g)
    assert risk.unconditional.delta(0.1) == pytest.approx(0.2, abs=0.01)
    assert risk.delta(0.1) > 0.6
    assert float(risk.individuals(0.1)["worst_z"][0]) > 0.8
    low = risk.by_condition(0.1)
    assert low["delta_i"][0] < 0.02  # where g is low nothing is given away


def test_labels_make_buckets() -> None:
    rng = np.random.default_rng(9)
    label = np.array(["quiet", "busy", None], object)[rng.choice(3, size=300, p=[0.5, 0.47, 0.03])]
    spread = np.where(label == "quiet", 0.2, 2.0)
    q = spread * rng.normal(size=300)
    risk = measure_against(results(q, np.full((1, 300), 0.2)), Buckets(label))
    assert risk.delta(0.1) > 1.5 * risk.unconditional.delta(0.1)
    assert (len(risk.effective), risk.left_out) == (2, 1)
    said = " ".join((*risk.sentences, *risk.warnings))
    assert "quiet" not in said
    with pytest.raises(InputError, match="Buckets"):
        measure_against(results(q, np.full((1, 300), 0.2)), Weighted(label))


def test_buckets() -> None:
    codes, names = bucket_labels(np.array([1.0, 2.0, 3.0, 4.0, np.nan, 5.0]), 6, 2)
    assert [names[code] for code in codes] == [
        "bucket 1 of 2", "bucket 1 of 2", "bucket 2 of 2", "bucket 2 of 2", "NULL", "bucket 2 of 2",
    ]  # fmt: skip
    assert len(bucket_labels(np.arange(365.0), 365, None)[1]) == 5
    assert len(bucket_labels(np.arange(120.0), 120, None)[1]) == 2
    assert len(bucket_labels(np.arange(41.0), 41, None)[1]) == 1
    codes, names = bucket_labels([np.array(["a", "b"] * 50), np.arange(100.0)], 100, 4)
    assert len(names) == 4
    assert set(np.bincount(codes)) == {25}
    assert len(bucket_labels(np.array([0.0] * 90 + [1.0] * 10), 100, 5)[1]) == 2  # ties stay together


def test_another_density_in_buckets() -> None:
    g, _, made = family(200, 1)
    gaussian = measure_against(made, Buckets(g), density=Kde("gaussian"))
    assert gaussian.delta(0.1) > 0.05
    with pytest.raises(InputError, match="Laplace"):
        measure_against(made, g, density=Kde("gaussian"))


def test_few_databases_are_warned_of_left_out_and_refused() -> None:
    g, _, made = family(60, 2)
    risk = measure_against(made, g)
    assert risk.effective.min() >= 20
    assert risk.left_out > 0
    assert any("fewer than 40" in said for said in risk.warnings)
    assert any("left out" in said for said in risk.warnings)
    g, _, made = family(19, 2)
    with pytest.raises(InputError, match="20 effective databases"):
        measure_against(made, g)
    with pytest.raises(InputError, match="20 databases in some bucket"):
        measure_against(made, Buckets(g))


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (np.array([np.nan] + [1.0] * 59), "Buckets"),
        (np.array([np.inf] + [1.0] * 59), "finite"),
        (np.zeros(59), "60 databases"),
        ([], "nothing"),
        (None, "nothing"),
        ("sum(x)", "collected first"),
    ],
)
def test_bad_knowledge(known: object, message: str) -> None:
    _, _, made = family(60, 2)
    with pytest.raises(InputError, match=message):
        measure_against(made, known)


def test_bad_values() -> None:
    for make in (lambda: Buckets([1], 0), lambda: OwnContribution(sample=0), lambda: Buckets([1], True)):
        with pytest.raises(InputError, match="at least 1"):
            make()
    assert isinstance(as_adversary("sum(x)"), Weighted)
    assert isinstance(as_adversary(Buckets("x")), Buckets)


def test_a_value_that_most_databases_share_is_a_condition_of_its_own() -> None:
    rng = np.random.default_rng(3)
    n = 120
    g = np.where(rng.random(n) < 0.7, 0.0, rng.exponential(size=n) + 1)
    risk = measure_against(results(rng.normal(size=n) + g, np.full((1, n), 0.4)), g)
    zero = np.flatnonzero(risk.conditions.values == 0.0)
    assert len(zero) == 1
    assert risk.effective[zero[0]] == pytest.approx(np.count_nonzero(g == 0))


def test_draws_count_as_one_database() -> None:
    rng = np.random.default_rng(3)
    g = rng.normal(size=100)
    q = g[:, None] + rng.normal(size=(100, 3))
    risk = measure_against(Results.from_arrays(q, (q - 0.4)[None]), g)
    assert risk.effective.max() < 100
    assert 0.05 < risk.delta(0.1) < 0.4


def table_of(risk: AdversaryRisk) -> dict[str, object]:
    return {name: column.tolist() for name, column in risk.individuals(0.1).items()}


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 100.0), shift=st.floats(-100.0, 100.0))
def test_invariants(seed: int, scale: float, shift: float) -> None:
    rng = np.random.default_rng(seed)
    g, q = rng.normal(size=50), rng.normal(size=50)
    made = results(q + g, rng.normal(size=(3, 50)) * 0.3)
    risk = measure_against(made, g)
    curve = risk.delta_i(np.array([0.0, 0.1, 0.5, 3.0]))
    assert np.all((curve >= 0) & (curve <= 1))
    assert np.all(np.diff(curve, axis=1) <= 1e-9)
    assert np.all(risk.total_risk([0.0, 0.1]) >= risk.delta([0.0, 0.1]))
    # what is known may be in any unit
    other = measure_against(made, g * scale + shift)
    np.testing.assert_allclose(other.delta_i(0.1), risk.delta_i(0.1), atol=1e-6)
    needed = risk.epsilon_i(0.02)
    for row, epsilon in enumerate(needed):
        assert risk.delta_i(float(epsilon))[row] <= 0.02 + 1e-12
    assert risk.epsilon(0.02) == pytest.approx(needed.max(), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.0, 1.0))
def test_the_bound_is_one(seed: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(5, 8)), rng.dirichlet(np.ones(8), size=5)
    without = points + rng.normal(size=(5, 8))
    found = WeightedBlock(points, without, 1.0, weights).sticks(np.exp([epsilon]))[0][:, 0]
    assert np.all(found <= (weights * ceiling(np.abs(points - without), epsilon)).sum(axis=1) + 1e-12)


def test_whitening_drops_what_does_not_vary() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    axes = whitened(np.column_stack((x, 1e6 + 2 * x, np.full(200, 3.0), rng.normal(size=200))))
    assert axes.shape[1] == 2
    np.testing.assert_allclose(axes.T @ axes / 200, np.eye(2), atol=1e-8)
    assert weights_near(np.ones((30, 2))).weights.shape == (1, 30)


def test_vectors_are_refused() -> None:
    _, q, made = family(60, 2)
    vector = Results(
        q=np.stack((q, q), axis=1), outcomes=np.zeros((60, 2), np.int8), databases=made.databases,
        individuals=made.individuals, starts=made.starts, entry_database=made.entry_database,
        entry_q=np.stack((made.entry_q, made.entry_q), axis=1),
        entry_outcomes=np.zeros((len(made.entry_q), 2), np.int8), components=("a", "b"),
    )  # fmt: skip
    with pytest.raises(InputError, match="one number"):
        measure_against(vector, q)
    assert measure(made).delta(0.1) > 0
