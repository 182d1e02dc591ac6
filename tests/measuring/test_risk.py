"""`measure` and `Risk` beyond the numbers: arguments, outcomes that are no numbers, own densities, the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.measuring.densities.selection import Score, spread, spreads
from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray, IntArray
from empriv.validate.checks import leaks
from table_results import of_entries

RNG = np.random.default_rng(3)
Q = RNG.normal(0, 1, 30)
Q_WITHOUT = Q - np.stack([np.full(30, 0.05), RNG.exponential(0.5, 30), np.zeros(30), 3.0 * np.eye(30)[7]])


def sparse(q: list[float], codes: list[int], entries: dict[int, dict[int, tuple[float, int]]]) -> empriv.Results:
    """Results from {individual: {database: (value, outcome)}}."""
    flat = [(i, j, *entry) for i in sorted(entries) for j, entry in sorted(entries[i].items())]
    _, at, values, entry_codes = zip(*flat, strict=True)
    return of_entries(
        np.array(q), at, np.array(values), np.cumsum([0, *(len(entries[i]) for i in sorted(entries))]),
        outcomes=np.array(codes, np.int8), entry_outcomes=np.array(entry_codes, np.int8),
        individuals=np.array(sorted(entries)),
    )  # fmt: skip


# Outcomes that are no numbers


def test_a_null_that_only_one_world_knows_counts_in_full() -> None:
    """Without individual 0, two of ten results are NULL; without individual 1 nothing changes; 2 turns NULL to NaN."""
    rng = np.random.default_rng(0)
    q = [*rng.normal(0, 1, 9).tolist(), np.nan]
    codes = [0] * 9 + [empriv.Outcome.NULL]
    null, nan = (np.nan, int(empriv.Outcome.NULL)), (np.nan, int(empriv.Outcome.NAN))
    results = sparse(q, codes, {0: {2: null, 5: null}, 1: {4: (q[4], 0)}, 2: {9: nan}, 3: {9: null}})
    risk = empriv.measure(results)
    d = risk.delta_i([0.0, 1.0, 5.0])
    # NULL: 3/10 without against 1/10 with. At epsilon 0 that alone is 2/10; a factor of 3 is within e^5.
    assert 0.2 - 1e-12 <= d[0, 0] <= 0.2 + 1e-9
    assert d[0, 2] == 0.0
    assert d[1].tolist() == [0, 0, 0]
    np.testing.assert_allclose(d[2], 0.1, atol=1e-11)  # NaN never occurs with everyone, NULL never without
    assert d[3].tolist() == [0, 0, 0]
    assert np.isinf(risk.epsilon_i(0.05)[2])
    assert np.isnan(risk.influence()[0])
    assert risk.influence()[3] == 0.0


def test_results_that_are_all_no_numbers_are_compared_by_counts() -> None:
    null, error = (np.nan, int(empriv.Outcome.NULL)), (np.nan, int(empriv.Outcome.ERROR))
    risk = empriv.measure(sparse([np.nan] * 4, [empriv.Outcome.NULL] * 4, {0: {0: error}, 1: {0: null}}))
    np.testing.assert_allclose(risk.delta_i(0.3), [0.25, 0.0], atol=1e-12)
    assert risk.density is None
    assert risk.pdf([0.0]).tolist() == [0.0]


def test_an_infinite_result_is_an_outcome_of_its_own() -> None:
    codes = [0] * 19 + [int(empriv.Outcome.PLUS_INFINITY)]
    q = [*np.random.default_rng(1).normal(0, 1, 19).tolist(), np.nan]
    risk = empriv.measure(sparse(q, codes, {0: {19: (0.0, 0)}}))
    assert risk.delta_i(8.0)[0] == pytest.approx(0.05, abs=1e-3)
    assert risk.epsilon_i(0.01)[0] == np.inf


# Arguments


@pytest.mark.parametrize("epsilon", [-0.1, np.nan, [0.1, -1.0], "a", [], [[0.1]]])
def test_bad_epsilons_are_refused(epsilon: Any) -> None:
    with pytest.raises(empriv.InputError, match="`epsilon` must"):
        empriv.measure(Q, Q_WITHOUT).delta_i(epsilon)


@pytest.mark.parametrize("delta", [-0.1, 1.1, np.nan])
def test_bad_deltas_are_refused(delta: float) -> None:
    risk = empriv.measure(Q, Q_WITHOUT)
    for inverse in (risk.epsilon, risk.epsilon_i):
        with pytest.raises(empriv.InputError, match="`delta` must lie in"):
            inverse(delta)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: empriv.Kde("box"), "`kernel` must be one of laplace, gaussian"),
        (lambda: empriv.Kde("laplace", "best"), "`bandwidth` must be a number or one of one-se"),
        (lambda: empriv.Kde("laplace", 0.0), "`bandwidth` must be positive"),
        (lambda: empriv.Kde("laplace", np.inf), "`bandwidth` must be positive"),
        (lambda: empriv.VariableKde(neighbours=0), "`neighbours` must be at least 1"),
        (lambda: empriv.VariableKde(scale=-1.0), "`scale` must be positive"),
        (lambda: empriv.Ecdf(0), "`span` must be at least 1"),
        (lambda: empriv.BestOf([]), "`candidates` must hold"),
        (lambda: empriv.measure(Q, Q_WITHOUT, density="laplace"), "`density` must have a method `fit`"),  # type: ignore[arg-type]
        (lambda: empriv.measure(Q), "`q_without` must be given"),
        (lambda: empriv.measure(empriv.Results.from_arrays(Q, Q_WITHOUT), Q_WITHOUT), "must not be given"),
        (lambda: empriv.measure(Q, Q_WITHOUT, density=empriv.VariableKde(neighbours=99)), "`neighbours` must be less"),
    ],
)
def test_bad_arguments_get_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(empriv.InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_number_gives_one_dimension_and_an_array_two() -> None:
    risk = empriv.measure(Q, Q_WITHOUT)
    assert risk.delta_i(0.1).shape == (4,)
    assert risk.delta_i([0.1, 0.2, 0.1]).shape == (4, 3)
    assert isinstance(risk.delta(0.1), float)
    assert isinstance(risk.total_risk(0.1), float)
    assert risk.delta([0.1, 0.2]).shape == risk.total_risk([0.1, 0.2]).shape == (2,)
    found = risk.delta_i(0.1)
    found[:] = 7.0  # a caller's array is the caller's own
    assert risk.delta_i(0.1).max() < 1


def test_one_database_and_one_individual() -> None:
    assert empriv.measure([1.0], [[1.0]]).delta(0.1) == 0.0
    assert empriv.measure([1.0], [[2.0]]).delta(0.1) == 1.0
    assert empriv.measure([1.0], [[2.0]]).epsilon(0.5) == np.inf


# The table, and densities for plots


def test_the_table_ranks_the_riskiest_first() -> None:
    risk = empriv.measure(Q, Q_WITHOUT, individuals=["small", "large", "never", "once"])
    table = risk.individuals(0.1)
    assert list(table) == ["individual", "delta_i", "largest_influence", "databases"]
    assert table["individual"][0] == "large"
    assert table["individual"][-1] == "never"
    assert np.all(np.diff(table["delta_i"]) <= 0)
    assert table["largest_influence"][table["individual"] == "once"] == pytest.approx(3.0)
    assert len(risk.individuals(0.1, top=2)["individual"]) == 2


@pytest.mark.slow
def test_densities_integrate_to_one() -> None:
    risk = empriv.measure(Q, Q_WITHOUT)
    x = np.linspace(-30, 30, 200_001)
    assert np.trapezoid(risk.pdf(x), x) == pytest.approx(1.0, abs=1e-5)
    assert np.trapezoid(risk.pdf_without(1, x), x) == pytest.approx(1.0, abs=1e-5)


# Densities of a user's own


@dataclass(frozen=True)
class Normal:
    """A user's own density: the normal law fitted by moments."""

    def fit(self, points: FloatArray, databases: IntArray) -> NormalModel:  # noqa: ARG002
        return NormalModel()


@dataclass(frozen=True)
class NormalModel:
    name: str = "normal"
    scores: tuple[Score, ...] = ()

    def pdf(self, x: FloatArray, points: FloatArray) -> FloatArray:
        here = points[np.isfinite(points)]
        z = (x - here.mean()) / here.std()
        return empriv.KERNELS["gaussian"].pdf(z) / here.std() * (len(here) / len(points))

    def cdf(self, x: FloatArray, points: FloatArray) -> FloatArray:
        here = points[np.isfinite(points)]
        return empriv.KERNELS["gaussian"].cdf((x - here.mean()) / here.std()) * (len(here) / len(points))

    def nodes(self, points: FloatArray) -> FloatArray:
        here = points[np.isfinite(points)]
        return here.mean() + here.std() * np.linspace(-9, 9, 61)


def test_a_density_of_ones_own_needs_two_small_classes() -> None:
    """Shifted by a constant, the fitted laws are two normal laws: the Gaussian mechanism's closed form."""
    from scipy.stats import norm

    shift = 0.4
    risk = empriv.measure(Q, [Q - shift], density=Normal())
    s = shift / Q.std()
    for epsilon in (0.0, 0.1, 0.7):
        exact = norm.cdf(s / 2 - epsilon / s) - np.exp(epsilon) * norm.cdf(-s / 2 - epsilon / s)
        assert risk.delta(epsilon) == pytest.approx(exact, abs=1e-9)
    assert risk.density is not None
    assert risk.density.name == "normal"
    best = empriv.measure(Q, [Q - shift], density=empriv.BestOf([empriv.Kde("laplace", 0.05), Normal()]))
    assert best.density is not None
    assert best.density.name == "normal, best of 2"
    assert best.delta(0.1) == risk.delta(0.1)


def test_spreads_leave_atoms_out() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(40, 21)).round(1)
    values[rng.random(values.shape) < 0.3] = np.inf
    values[0], values[1, 1:], values[2, 2:] = np.inf, np.inf, np.inf  # nothing is left, one value, two
    one_by_one = [spread(row[np.isfinite(row)]) for row in values]
    np.testing.assert_allclose(spreads(values), one_by_one, rtol=1e-14)


@pytest.mark.parametrize("kernel", empriv.KERNELS)
@pytest.mark.parametrize("shift", [0.1, 1e6])
def test_infinity_is_the_same_alone_and_in_a_curve(kernel: str, shift: float) -> None:
    q = np.random.default_rng(0).normal(size=40)
    risk = empriv.measure(q, (q + shift)[None, :], density=empriv.Kde(kernel))
    assert risk.delta(np.inf) == risk.delta([0.1, 1.0, np.inf])[-1]


def test_an_exact_leak_stays_at_infinity() -> None:
    q = np.random.default_rng(0).normal(size=40)
    risk = empriv.measure(q, np.full((1, 40), 0.3))
    assert risk.delta(np.inf) == 1.0 == risk.delta([0.1, np.inf])[-1]


@pytest.mark.parametrize("outermost", [0.0, 1.0])
def test_the_worst_epsilon_is_known_before_everybody_is_looked_at(
    outermost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody needs an infinite epsilon: nobody can need more. Where all are finite, the largest is found."""
    rng = np.random.default_rng(21)
    q = rng.normal(size=40)
    without = np.repeat(q[None], 200, axis=0)
    without[:, np.argsort(q)[5:-5]] -= rng.exponential(0.02, (200, 30))
    without[150, np.argmax(q)] += outermost
    risk = empriv.measure(q, without, density=empriv.Kde("gaussian", 0.3))
    each, own_map, looked_at = risk.epsilon_i(0.0), Risk._map, []

    def counted(self: Risk, rows: Any, task: Any) -> Any:
        looked_at.extend(rows)
        return own_map(self, rows, task)

    monkeypatch.setattr(Risk, "_map", counted)
    assert risk.epsilon(0.0) == each.max()
    assert np.isinf(each.max()) == (outermost > 0)
    assert (len(looked_at) < 200) == (outermost > 0)


@pytest.mark.parametrize("databases", [60, 365])
def test_a_count_that_did_not_come_up_is_no_leak(databases: int) -> None:
    """Shares of a dozen people are multiples of 1/lcm of the counts seen: a count that did not come up is not off that
    lattice for certain. Half a cent among cents is."""
    rng, people = np.random.default_rng(1), 30
    there = rng.random((databases, people)) < 0.4
    yes = there & (rng.random((databases, people)) < 0.3)
    count, total = there.sum(axis=1, keepdims=True), yes.sum(axis=1, keepdims=True)
    without = np.where(there, (total - yes) / (count - 1), total / count)
    shares = empriv.measure(np.ravel(total / count), without.T)
    assert not leaks(shares.pairs)
    even = 2.0 * rng.poisson(40, databases)
    assert leaks(empriv.measure(even, even[None] - 1.0).pairs)
    cents = np.round(rng.gamma(9.0, 100.0, databases), 2)
    assert leaks(empriv.measure(cents, cents[None] - 0.005).pairs)


# Screening


def risk_of(seed: int, kernel: str, draws: int) -> Risk:
    """30 databases, 40 individuals who each change a few results, some by little and some by much."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(30, draws))
    moved = np.repeat(rng.random((40, 30, 1)) < 0.2, draws, axis=2)
    shifts = rng.exponential(size=(40, 30, draws)) * rng.choice([-1.0, 1.0], (40, 30, draws))
    sizes = np.geomspace(0.0003, 0.5, 40)[:, None, None]
    return empriv.measure(q, np.where(moved, q + sizes * shifts, q), density=empriv.Kde(kernel, 0.4))


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("kernel", ["laplace", "logistic", "student", "gaussian"])
def test_nobody_is_cleared_wrongly(kernel: str, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = risk_of(1, kernel, draws), risk_of(1, kernel, draws)
    cleared = ~np.isin(np.arange(40), quick._subject_rows(0.1))
    assert 3 < cleared.sum() < 37
    monkeypatch.setattr(Risk, "_beyond", lambda self, shifts, epsilon: np.ones(len(shifts), bool))  # noqa: ARG005
    np.testing.assert_allclose(quick.delta_i(0.1), slow.delta_i(0.1), atol=1e-10)
    if kernel != "gaussian":  # whose ratio grows without bound far out, where next to nothing is
        assert np.all(slow.epsilon_i(0.0)[cleared] <= 0.1 + 1e-9)
        assert np.any(slow.epsilon_i(0.0)[~cleared] > 0.1)


# Any model by its own functions


class AsModel:
    """A kernel's mixture, handed over as a model of one's own."""

    def __init__(self, kernel: str) -> None:
        self.density = empriv.Kde(kernel, 0.4)

    def fit(self, points: FloatArray, databases: IntArray) -> Any:
        fitted = self.density.fit(points, databases)
        names = ("name", "scores", "pdf", "cdf", "nodes")
        return type("Model", (), {name: getattr(fitted, name) for name in names})()


@pytest.mark.parametrize("kernel", empriv.KERNELS)
def test_a_mixture_by_its_own_functions_has_the_figures_of_the_kernel(kernel: str) -> None:
    q, without = Q[:9], Q_WITHOUT[:2, :9]
    own, exact = (empriv.measure(q, without, density=d) for d in (AsModel(kernel), empriv.Kde(kernel, 0.4)))
    np.testing.assert_allclose(own.delta_i([0.0, 0.1, 1.0]), exact.delta_i([0.0, 0.1, 1.0]), atol=1e-11)
    np.testing.assert_allclose(own.epsilon_i(0.01), exact.epsilon_i(0.01), rtol=1e-8)
