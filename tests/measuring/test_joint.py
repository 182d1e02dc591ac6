"""Joint measures against slow, obvious versions and closed forms."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import empriv
from empriv.errors import InputError
from empriv.measuring.joint.joint_risk import JointRisk, measure_joint
from empriv.results import Outcome, Results

Array = npt.NDArray[np.float64]
EPSILONS = np.array([0.0, 0.1, 0.5])


def stacked(q: Array, without: Array, names: str = "abcdefgh") -> Results:
    """Results from (n, d) and (individuals, n, d)."""
    return Results.stack({names[k]: Results.from_arrays(q[:, k], without[:, :, k]) for k in range(q.shape[1])})


def by_brute_force(points: Array, without: Array, epsilon: float, cells: int = 1200) -> float:
    """Both hockey sticks of two mixtures of product Laplace kernels of scale 1 on a dense grid, by midpoints."""
    low = np.minimum(points.min(axis=0), without.min(axis=0)) - 12
    high = np.maximum(points.max(axis=0), without.max(axis=0)) + 12
    edges = [np.linspace(a, b, cells + 1) for a, b in zip(low, high, strict=True)]
    x, y = (0.5 * (edge[1:] + edge[:-1]) for edge in edges)
    area = (edges[0][1] - edges[0][0]) * (edges[1][1] - edges[1][0])

    def density(z: Array) -> Array:
        return sum(  # type: ignore[return-value]
            0.25 * np.exp(-np.abs(x - a))[:, None] * np.exp(-np.abs(y - b))[None, :] for a, b in z
        ) / len(z)

    p, p_i = density(points), density(without)
    sides = ((p, p_i), (p_i, p))
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) * area for a, b in sides)


def correlated(n: int, people: int, *, seed: int, d: int = 2, r: float = 0.6) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(np.full((d, d), r) + (1 - r) * np.eye(d))
    q = rng.normal(size=(n, d)) @ root.T
    return q, q - 0.4 * rng.lognormal(-0.5, 0.8, size=(people, n, d))


@pytest.mark.slow
def test_two_dimensions_against_brute_force() -> None:
    q, without = correlated(25, 2, seed=1)
    results = stacked(q, without)
    risk = measure_joint(results)
    pairs = risk.pairs
    for i in range(2):
        entries = pairs.entry_coordinates[0][pairs.starts[i] : pairs.starts[i + 1], 0]
        for epsilon in (0.1, 0.5):
            truth = by_brute_force(pairs.coordinates[0], entries, epsilon)
            found = risk.law_delta_i(epsilon)[i]
            assert abs(found - truth) < 3e-4
            assert abs(found - truth) < 6 * risk.error(epsilon) + 1e-5
            assert abs(1.1 * found - truth) > 3e-4  # a tenth more would not pass


def test_one_dimension_agrees_with_the_exact_path() -> None:
    q, without = correlated(60, 4, seed=2, d=1)
    results = stacked(q, without)
    joint, exact = measure_joint(results), empriv.measure(results.component("a"))
    np.testing.assert_allclose(joint.law_delta_i(EPSILONS), exact.delta_i(EPSILONS), atol=2e-4)
    assert np.all(joint.delta_i(EPSILONS) >= exact.delta_i(EPSILONS))
    assert not np.allclose(joint.law_delta_i(0.1), exact.delta_i(0.15), atol=2e-4)


def test_a_shift_of_a_normal_law_has_the_closed_form_of_its_mahalanobis_distance() -> None:
    # n = 365: the root mean square error is about 0.02 (docs/composition.md); a shift of half the size lies 0.09 away
    rng = np.random.default_rng(5)
    root, shift = np.array([[1.0, 0.0], [0.8, 0.6]]), np.array([0.5, -0.2])
    distance = float(np.linalg.norm(np.linalg.solve(root, shift)))

    def truth(m: float) -> float:
        return float(ndtr(m / 2 - 0.1 / m) - math.exp(0.1) * ndtr(-m / 2 - 0.1 / m))

    q = rng.normal(size=(365, 2)) @ root.T
    found = float(measure_joint(stacked(q, (q - shift)[None])).delta(0.1))
    assert abs(found - truth(distance)) < 0.06
    assert abs(found - truth(distance / 2)) > 0.06


class TestDifferencing:
    """The paper's example: a sum, and the same sum without the target."""

    @staticmethod
    def measured(n: int, kind: str) -> tuple[JointRisk, float]:
        rng = np.random.default_rng(n)
        rest = rng.normal(100, 10, n)
        share = np.arange(n) % 10 == 0
        x = {
            "constant": np.full(n, 1.0),
            "normal": rng.normal(1, 0.3, n),
            "lognormal": rng.lognormal(0, 0.5, n),
            "rare": rng.lognormal(0, 0.5, n) * share,
        }[kind]
        other = rng.normal(0.5, 0.2, n)
        q = np.stack((rest + x, rest), axis=1)
        without = np.stack((np.stack((rest, rest), axis=1), q - other[:, None]))
        return measure_joint(stacked(q, without)), float(share.mean())

    @pytest.mark.slow
    @pytest.mark.parametrize("n", [41, 365])
    @pytest.mark.parametrize("kind", ["constant", "normal", "lognormal"])
    def test_the_target_is_revealed_for_certain(self, n: int, kind: str) -> None:
        risk, _ = self.measured(n, kind)
        assert risk.delta_i(0.1)[0] == 1.0
        assert risk.delta_i(3.0)[0] == 1.0
        assert risk.delta_i(0.1)[1] < 0.2
        assert [leak.direction for leak in risk.leaks] == ["a less b"]
        assert risk.leaks[0].rows.tolist() == [0]
        assert max(one.delta(0.1) for one in risk.components.values()) < 0.2  # each alone looks private
        assert risk.epsilon_i(0.5)[0] == math.inf

    @pytest.mark.parametrize("n", [41, 365])
    def test_a_contribution_that_is_mostly_zero_reveals_as_often_as_it_is_not(self, n: int) -> None:
        risk, share = self.measured(n, "rare")
        assert 0.09 < share < 0.13
        assert risk.leaks[0].largest_share == pytest.approx(share)
        assert share <= risk.delta_i(3.0)[0] < share + 0.1


def test_a_combination_of_three_is_found_and_named() -> None:
    rng = np.random.default_rng(8)
    rest, part, x = rng.normal(size=(3, 60))
    q = np.stack((rest + x, part, rest + 2 * part), axis=1)
    without = np.stack((rest, part, rest + 2 * part), axis=1)[None]
    risk = empriv.measure(stacked(q, without))
    assert isinstance(risk, empriv.TableRisk)
    assert risk.leaks[0].direction == "a plus 2 b less c"
    assert risk.delta_i(0.1)[0] == 1.0


def test_the_same_query_twice_gives_the_delta_of_one() -> None:
    q, without = correlated(80, 3, seed=4, d=1)
    twice = measure_joint(stacked(np.repeat(q, 2, axis=1), np.repeat(without, 2, axis=2)))
    once = empriv.measure(q[:, 0], without[:, :, 0])
    assert twice.dimension == 1
    np.testing.assert_allclose(twice.delta_i(EPSILONS), once.delta_i(EPSILONS), atol=3e-4)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    units=st.lists(st.sampled_from([-1000.0, -0.5, 0.001, 2.0]), min_size=2, max_size=2),
    shift=st.sampled_from([0.0, 5.0]),
)
def test_units_order_and_places_do_not_matter(seed: int, units: list[float], shift: float) -> None:
    q, without = correlated(20, 3, seed=seed)
    before = measure_joint(stacked(q, without)).delta_i(EPSILONS)
    moved = measure_joint(stacked(np.array(units) * q + shift, np.array(units) * without + shift))
    np.testing.assert_allclose(moved.delta_i(EPSILONS), before, atol=2e-3)
    turned = measure_joint(stacked(q[:, ::-1], without[::-1, :, ::-1]))
    np.testing.assert_allclose(turned.delta_i(EPSILONS), before[::-1], atol=2e-3)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(5, 30), d=st.integers(1, 2))
def test_figures_are_probabilities_that_fall_and_never_below_a_component(seed: int, n: int, d: int) -> None:
    q, without = correlated(n, 3, seed=seed, d=d)
    risk = measure_joint(stacked(q, without))
    found = risk.delta_i(EPSILONS)
    assert np.all((found >= 0) & (found <= 1))
    assert np.all(np.diff(found, axis=1) <= 1e-3)
    for one in risk.components.values():
        assert np.all(found >= one.delta_i(EPSILONS))
    assert np.all(risk.total_risk(EPSILONS) >= risk.delta(EPSILONS))
    need = risk.epsilon_i(0.05)
    at = np.array([risk.delta_i(float(e))[i] for i, e in enumerate(need)])
    assert np.all(at <= 0.05 + 2e-3)
    assert risk.epsilon(0.05) == pytest.approx(need.max(), abs=2e-3)


def test_screened_individuals_are_proved_zero() -> None:
    q, _ = correlated(40, 1, seed=3)
    risk = measure_joint(stacked(q, (q - 1e-3)[None]))
    assert risk.shifts[0] < 0.1
    assert risk.delta_i(0.1)[0] == 0.0
    assert risk.law_delta_i(0.0)[0] > 0.0


def test_absent_individuals_and_entries_change_nothing() -> None:
    q, without = correlated(30, 2, seed=6)
    without[0, 5:] = q[5:]
    dense = stacked(q, without)
    keep = np.array([*range(5), *range(30, 60)])
    sparse = Results(
        q=dense.q,
        outcomes=dense.outcomes,
        databases=dense.databases,
        individuals=np.array([0, 1, 2]),
        starts=np.array([0, 5, 35, 35]),
        entry_database=dense.entry_database[keep],
        entry_q=dense.entry_q[keep],
        entry_outcomes=dense.entry_outcomes[keep],
        components=dense.components,
    )
    a, b = measure_joint(dense).delta_i(EPSILONS), measure_joint(sparse).delta_i(EPSILONS)
    np.testing.assert_allclose(b[:2], a, atol=1e-9)
    assert np.all(b[2] == 0)


def test_a_null_in_one_component_is_an_outcome_of_the_vector() -> None:
    q, without = correlated(40, 2, seed=9)
    results = stacked(q, q - 1e-9 * (q - without))
    codes, values = results.entry_outcomes.copy(), results.entry_q.copy()
    codes[:4, 1], values[:4, 1] = Outcome.NULL, np.nan  # the first individual makes it NULL in 4 of 40 databases
    from dataclasses import replace

    risk = measure_joint(replace(results, entry_outcomes=codes, entry_q=values))
    assert risk.delta_i(0.1)[0] == pytest.approx(0.1, abs=0.02)
    assert risk.delta_i(0.1)[1] < 1e-6
    assert np.isnan(risk.influence()[0])


def test_more_than_two_dimensions_are_a_table() -> None:
    q, without = correlated(60, 2, seed=10, d=3)
    with pytest.raises(InputError, match="2 dimensions at most, got 3"):
        measure_joint(stacked(q, without))
    assert isinstance(empriv.measure(stacked(q, without)), empriv.TableRisk)
    with_sum = np.column_stack((q[:, :2], q[:, :2].sum(axis=1)))
    flat = np.concatenate((without[..., :2], without[..., :2].sum(axis=2, keepdims=True)), axis=2)
    assert isinstance(empriv.measure(stacked(with_sum, flat)), JointRisk)  # three numbers in a plane


def test_draws_of_a_randomised_query() -> None:
    rng = np.random.default_rng(13)
    q = rng.normal(size=(30, 4, 2))
    without = q[None] - 0.5
    results = Results.stack({"a": Results.from_arrays(q[..., 0], without[..., 0]),
                             "b": Results.from_arrays(q[..., 1], without[..., 1])})  # fmt: skip
    flat = stacked(q.reshape(120, 2), without.reshape(1, 120, 2))
    a, b = measure_joint(results), measure_joint(flat)
    assert a.pairs.size == b.pairs.size == 120
    assert a.delta(0.1) == pytest.approx(b.delta(0.1), abs=0.1)  # bandwidths are chosen by other partners


@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_few_databases_are_compared_by_counts_or_alone(n: int) -> None:
    q, without = correlated(max(n, 5), 1, seed=14)
    risk = measure_joint(stacked(q[:n], without[:, :n]))
    assert 0.0 <= risk.delta(0.1) <= 1.0


def test_a_scalar_is_not_measured_jointly() -> None:
    with pytest.raises(InputError, match="vector query"):
        measure_joint(Results.from_arrays(np.zeros(3), np.zeros((1, 3))))
