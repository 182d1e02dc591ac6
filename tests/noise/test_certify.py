"""The certificate against brute force: all kernels, laws, atoms, outcomes, draws and ties."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import empriv
from empriv.errors import InputError
from empriv.measuring.densities.density import Density
from empriv.measuring.given.presence import WhenPresent
from empriv.noise.certify.certificate import Certificate, certify
from empriv.noise.certify.screen import _beside, _steepest
from empriv.noise.certify.shares import deltas_by_share, largest_by_share
from empriv.noise.certify.there import PresentCertificate, _written
from empriv.noise.certify.window import Window
from empriv.noise.law import Law
from empriv.results import Outcome, Results
from empriv.validate.checks.robustness import risk_of_rows

G = 0.5
Q = np.array([0.3, 2.1, 2.9, 5.2])
WITHOUT = np.array([[0.3, 1.2, 2.9, 4.6], [0.1, 2.1, 2.6, 5.2], Q])
LAWS = {
    "laplace": Law.of(G, [("laplace", 1.0, 2.5)]),
    "narrow": Law.of(G, [("laplace", 1.0, 0.6)]),
    "with point": Law.of(G, [("point", 0.4, 0.0), ("laplace", 0.35, 1.0), ("laplace", 0.25, 3.0)]),
    "gaussian": Law.of(G, [("gaussian", 1.0, 2.0)]),
    "mixed": Law.of(G, [("gaussian", 0.5, 1.0), ("laplace", 0.5, 1.5)]),
    "none": Law.of(G, [("point", 1.0, 0.0)]),
    "table": Law.of(G, [("table", 0.6, 0.0, (1, 0, 3, 4, 3, 0, 1)), ("laplace", 0.4, 2.0)]),
}
DENSITIES: dict[str, Density] = {
    kernel: empriv.Kde(kernel, 1.5) for kernel in ("laplace", "gaussian", "logistic", "epanechnikov", "student")
} | {
    "variable": empriv.VariableKde("laplace", "breiman", 2, 0.7),
    "variable gaussian": empriv.VariableKde("gaussian", "breiman", 2, 0.7),
}


def _masses(risk: empriv.Risk, law: Law, points: np.ndarray, first: int, count: int) -> oracle.Array:
    model: Any = risk.density
    each = [
        oracle.cells_of(model.kernel.name, float(q), float(h), law.granularity, first, count)
        for q, h in zip(points, model.bandwidths, strict=True)
    ]
    return np.mean(each, axis=0)


def _noise(law: Law, reach: int) -> oracle.Array:
    table = [part for part in law.parts if part.table is not None]
    parts = tuple((part.kind, part.weight, part.scale) for part in law.parts if part.table is None)
    out = oracle.noise_pmf(parts, law.granularity, reach).copy()
    for part in table:
        assert part.table is not None
        middle = len(part.table) // 2
        for k, weight in enumerate(part.table):
            out[reach + k - middle] += part.weight / 2**64 * weight / sum(part.table)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("density", DENSITIES)
def test_delta_is_that_of_brute_force_and_never_below(density: str, law: str) -> None:
    risk = empriv.measure(Q, WITHOUT, density=DENSITIES[density])
    noise = LAWS[law]
    found = certify(risk, noise, epsilon=0.1, delta=0.01)
    reach = 300 if DENSITIES[density] is DENSITIES["student"] else 150
    first, count = -reach, 2 * reach + 12
    masses = _noise(noise, reach)
    everyone = oracle.convolved(_masses(risk, noise, Q, first, count), masses)
    for i in (0, 1):
        without = oracle.convolved(_masses(risk, noise, WITHOUT[i], first, count), masses)
        for epsilon in (0.0, 0.1, 0.4):
            truth = oracle.delta(everyone, without, epsilon)
            got = found.achieved_delta_i(epsilon)[i]
            # power tails are counted in full beyond a hundred bandwidths
            assert truth - 1e-7 * (density == "student") <= got + 1e-14  # rounding of the truth
            assert got <= truth + (2e-7 if density == "student" else 2e-12)
    assert found.achieved_delta_i(0.1)[2] == 0.0  # who changes nothing


def _tail_truth(risk: empriv.Risk, noise: Law, i: int, reach: int) -> float:
    masses = _noise(noise, reach)
    both = [
        oracle.convolved(_masses(risk, noise, points, -reach, 2 * reach + 12), masses) for points in (Q, WITHOUT[i])
    ]
    inner = slice(reach // 2, 3 * reach // 2 + 12)  # the ends of the window lack what lies beyond
    return oracle.largest_log_ratio(both[0][inner], both[1][inner])


@pytest.mark.slow
@pytest.mark.parametrize("law", ["laplace", "narrow", "with point", "mixed", "table"])
@pytest.mark.parametrize("density", DENSITIES)
def test_epsilon_at_delta_0_covers_all_cells(density: str, law: str) -> None:
    risk = empriv.measure(Q, WITHOUT, density=DENSITIES[density])
    found = certify(risk, LAWS[law], epsilon=0.1).achieved_epsilon_i()
    for i in (0, 1):
        truth = _tail_truth(risk, LAWS[law], i, 200)
        assert found[i] >= truth - 1e-9
        if density not in ("student", "variable", "epanechnikov"):  # rounded up there
            # where scale and bandwidth are equal, the limit is approached as slowly as 1/t, beyond the witness's window
            assert found[i] <= truth * (1.05 if law == "mixed" else 1.001) + 1e-9
    assert found[2] == 0.0


def test_epsilon_at_delta_0_without_a_bound_is_infinite() -> None:
    risk = empriv.measure(Q, WITHOUT, density=empriv.Kde("gaussian", 1.5))
    assert certify(risk, LAWS["gaussian"], epsilon=0.1).achieved_epsilon() == math.inf
    assert not certify(risk, LAWS["gaussian"], epsilon=5.0).holds


@pytest.mark.parametrize("law", ["laplace", "with point", "gaussian"])
def test_epsilon_and_delta_are_inverse(law: str) -> None:
    risk = empriv.measure(Q, WITHOUT, density=empriv.Kde("laplace", 1.5))
    found = certify(risk, LAWS[law], epsilon=0.1, delta=0.01)
    for delta in (0.001, 0.01, 0.05):
        for i, epsilon in enumerate(found.achieved_epsilon_i(delta)[:2]):
            assert found.achieved_delta_i(float(epsilon))[i] <= delta
            if epsilon > 0:
                assert found.achieved_delta_i(float(epsilon) * (1 - 1e-6))[i] > delta
        assert found.achieved_epsilon(delta) == found.achieved_epsilon_i(delta).max()
    assert found.achieved_delta(0.1) == found.achieved_delta_i(0.1).max()


def test_ecdf_by_brute_force() -> None:
    risk = empriv.measure(Q, WITHOUT, density=empriv.Ecdf(2))
    law = LAWS["with point"]
    edges = (np.arange(-200, 221) - 0.5) * G
    model: Any = risk.density
    noise = law.pmf(np.arange(-400, 401))
    noisy = [oracle.convolved(np.diff(model.cdf(edges, points)), noise) for points in (Q, WITHOUT[0])]
    truth = max(np.maximum(a - math.exp(0.1) * b, 0).sum() for a, b in (noisy, noisy[::-1]))
    got = certify(risk, law, epsilon=0.1, delta=0.1).achieved_delta_i(0.1)[0]
    assert truth - 1e-14 <= got <= truth + 1e-11


def _results(q: list[float], q_i: list[list[float]], draws: int | None = None) -> Results:
    """Results with NaN for NULL."""
    with_all, without = np.array(q, float), np.array(q_i, float)
    made = Results.from_arrays(np.nan_to_num(with_all), np.nan_to_num(without))
    codes = np.where(np.isnan(with_all), Outcome.NULL, 0).astype(np.int8)
    entry = np.where(np.isnan(without), Outcome.NULL, 0).astype(np.int8).reshape(made.entry_outcomes.shape)
    return Results(
        q=with_all, outcomes=codes, databases=made.databases, individuals=made.individuals, starts=made.starts,
        entry_database=made.entry_database, entry_q=without.reshape(made.entry_q.shape), entry_outcomes=entry,
        draws=draws,
    )  # fmt: skip


def test_atoms_are_rounded_to_their_cell_and_nulls_stay_apart() -> None:
    # Most results are 0.25, which ties between the cells 0 and 1: to even. Without the individual, 0.75 ties to 2.
    nan = math.nan
    results = _results([0.25, 0.25, 0.25, 0.25, 0.25, nan], [[0.75, 0.75, 0.25, 0.25, nan, nan]])
    risk = empriv.measure(results)
    law = LAWS["with point"]
    found = certify(risk, law, epsilon=0.1, delta=0.5)
    k = np.arange(-300, 301)
    everyone = 5 / 6 * law.pmf(k)
    without = 2 / 6 * law.pmf(k) + 2 / 6 * law.pmf(k - 2)
    for epsilon in (0.0, 0.3, 1.0):
        e = math.exp(epsilon)
        one = np.maximum(everyone - e * without, 0).sum() + max(1 / 6 - e * 2 / 6, 0)
        other = np.maximum(without - e * everyone, 0).sum() + max(2 / 6 - e * 1 / 6, 0)
        assert found.achieved_delta_i(epsilon)[0] == pytest.approx(max(one, other), abs=1e-11)
        assert found.achieved_delta_i(epsilon)[0] >= max(one, other)


def test_an_outcome_that_only_one_side_has_cannot_be_hidden() -> None:
    risk = empriv.measure(_results([1.0, 2.0, 3.0, 4.5], [[1.0, 2.0, 3.0, math.nan]]))
    found = certify(risk, Law.of(G, [("laplace", 1.0, 1e3)]), epsilon=5.0, delta=0.25)
    assert found.achieved_epsilon_i(0.0)[0] == math.inf
    assert 0.25 <= found.achieved_delta_i(5.0)[0] < 0.26


def test_constant_results_with_and_without() -> None:
    # An atom of one's own: constants three cells apart under discrete Laplace noise, in closed form.
    risk = empriv.measure(np.full(5, 2.0), np.full((1, 5), 3.5))
    law = LAWS["laplace"]
    found = certify(risk, law, epsilon=0.2, delta=0.5)
    assert found.achieved_epsilon_i(0.0)[0] == pytest.approx(3 * G / 2.5, rel=1e-10)
    k = np.arange(-400, 401)
    truth = np.maximum(law.pmf(k) - math.exp(0.2) * law.pmf(k - 3), 0).sum()
    assert found.achieved_delta_i(0.2)[0] == pytest.approx(truth, abs=1e-11)


def test_discrete_laplace_agrees_with_dp_accounting() -> None:
    from dp_accounting.pld.privacy_loss_mechanism import DiscreteLaplacePrivacyLoss

    witness = DiscreteLaplacePrivacyLoss(G / 2.5, sensitivity=3)
    risk = empriv.measure(np.full(5, 2.0), np.full((1, 5), 3.5))
    found = certify(risk, LAWS["laplace"], epsilon=0.2, delta=0.5)
    for epsilon in (0.0, 0.1, 0.3, 0.5):
        assert found.achieved_delta_i(epsilon)[0] == pytest.approx(witness.get_delta_for_epsilon(epsilon), abs=1e-11)


def test_draws_are_points() -> None:
    q, without = Q.reshape(2, 2), WITHOUT.reshape(3, 2, 2)
    law = LAWS["with point"]
    drawn = certify(empriv.measure(q, without, density=empriv.Kde("laplace", 1.5)), law, epsilon=0.1, delta=0.1)
    plain = certify(empriv.measure(Q, WITHOUT, density=empriv.Kde("laplace", 1.5)), law, epsilon=0.1, delta=0.1)
    assert drawn.achieved_delta_i(0.1) == pytest.approx(plain.achieved_delta_i(0.1), abs=1e-14)


class Triangle:
    """A density of the user's own."""

    def fit(self, points: Any, databases: Any) -> Any:
        del points, databases
        return TriangleModel()


class TriangleModel:
    name, scores = "triangle", ()

    def pdf(self, x: Any, points: Any) -> Any:
        z = np.asarray(x)[..., None] - points
        return np.maximum(1 - np.abs(z), 0).mean(axis=-1)

    def cdf(self, x: Any, points: Any) -> Any:
        z = np.clip(np.asarray(x)[..., None] - points, -1, 1)
        return (0.5 + z - 0.5 * z * np.abs(z)).mean(axis=-1)

    def nodes(self, points: Any) -> Any:
        return np.unique(np.concatenate((points - 1, points, points + 1)))


def test_a_density_of_the_users_own() -> None:
    risk = empriv.measure(Q, WITHOUT, density=Triangle())
    law = LAWS["laplace"]
    edges = (np.arange(-200, 221) - 0.5) * G
    noise = law.pmf(np.arange(-400, 401))
    noisy = [oracle.convolved(np.diff(TriangleModel().cdf(edges, points)), noise) for points in (Q, WITHOUT[0])]
    truth = max(np.maximum(a - math.exp(0.1) * b, 0).sum() for a, b in (noisy, noisy[::-1]))
    got = certify(risk, law, epsilon=0.1, delta=0.1).achieved_delta_i(0.1)[0]
    assert truth - 1e-14 <= got <= truth + 1e-11


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(0.0, 1.0),
    st.floats(0.0, 0.2),
    st.sampled_from(["laplace", "gaussian", "logistic"]),
)
def test_screening_never_changes_the_answer(seed: int, epsilon: float, delta: float, kernel: str) -> None:
    rng = np.random.default_rng(seed)
    q = rng.normal(0, 3, 6)
    influence = rng.exponential(rng.choice([0.01, 0.3, 2.0]), (5, 6)) * (rng.random((5, 6)) < 0.6)
    risk = empriv.measure(q, q - influence, density=empriv.Kde(kernel, 1.0))
    law = Law.of(0.125, [("point", 0.5, 0.0), ("laplace", 0.5, 2.0)])
    found = certify(risk, law, epsilon=epsilon, delta=delta)
    exact = found._exact_deltas(np.arange(5), epsilon)
    bound = found._screen.deltas(law, epsilon)
    assert np.all(exact <= bound + 1e-11)
    assert np.all(found._exact_epsilons(np.arange(5), 0.0) <= found._largest)
    assert found.holds == bool(exact.max() <= delta)
    # noise is post-processing: it cannot make anybody worse off
    assert np.all(exact <= risk.delta_i(epsilon) + 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "bandwidth"),
    [
        ([("laplace", 1.0, 30.0)], 10.0),
        ([("point", 0.1, 0.0), ("laplace", 0.9, 30.0)], 10.0),
        ([("point", 0.3, 0.0), ("laplace", 0.7, 200.0)], 10.0),
        ([("laplace", 0.5, 12.0), ("laplace", 0.5, 60.0)], 10.0),
        ([("point", 0.02, 0.0), ("laplace", 0.5, 12.0), ("laplace", 0.48, 13.0)], 2.0),
    ],
)
def test_slope_of_all_parts_together(parts: list[tuple[str, float, float]], bandwidth: float) -> None:
    law = Law.of(1.0, parts)
    noise, x = np.arange(-2000, 2001), np.arange(-9000, 9001) * 0.01 + 1e-7
    kernels = np.exp(-np.abs(x[:, None] - noise[None, 1800:2201]) / bandwidth)
    log_density = np.log(kernels @ law.pmf(noise[1800:2201]))[1000:-1000]
    found = np.abs(np.diff(log_density)).max() / 0.01, np.abs(log_density[100:] - log_density[:-100]).max()
    slope, step = _steepest(law, bandwidth)
    assert found[0] <= slope * (1 + 1e-6)
    assert found[1] <= step * (1 + 1e-6)
    # and no wider than needed, by more than what a grid of a hundredth misses
    assert slope < 1.01 * found[0]
    assert step < 1.01 * found[1]
    if len(parts) > 1:  # the narrowest part by itself would say more
        assert step < 0.99 * max(1 / (scale or bandwidth) for _, _, scale in parts)


def test_the_riskiest_are_found() -> None:
    rng = np.random.default_rng(5)
    q = rng.normal(0, 5, 40)
    risk = empriv.measure(q, q - rng.exponential(0.3, (60, 1)) * rng.random((60, 40)))
    certificate = certify(risk, Law.of(0.25, [("point", 0.3, 0.0), ("laplace", 0.7, 4.0)]), epsilon=0.02, delta=0.01)
    delta_i = certificate.achieved_delta_i(0.02)
    found = certificate.riskiest(8)
    assert len(set(found.tolist())) == 8
    np.testing.assert_allclose(delta_i[found], np.sort(delta_i)[::-1][:8])


def test_total_risk() -> None:
    risk = empriv.measure(Q, WITHOUT, density=empriv.Kde("laplace", 1.5))
    found = certify(risk, LAWS["laplace"], epsilon=0.1, delta=None, total_risk=0.5)
    delta_i = found.achieved_delta_i(0.1)
    assert found.achieved_total_risk(0.1) == pytest.approx(1 - np.prod(1 - delta_i))
    assert found.holds
    assert not certify(risk, LAWS["none"], epsilon=0.1, delta=None, total_risk=0.01).holds


def test_bad_targets_are_refused() -> None:
    risk = empriv.measure(Q, WITHOUT, density=empriv.Kde("laplace", 1.5))
    for wrong in (
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": 0.1, "delta": 2.0},
        {"epsilon": 0.1, "delta": None},
    ):
        with pytest.raises(InputError):
            certify(risk, LAWS["laplace"], **wrong)  # type: ignore[arg-type]


def test_too_many_cells_name_a_coarser_granularity() -> None:
    risk = empriv.measure(Q, WITHOUT, density=empriv.Kde("laplace", 1.5))
    with pytest.raises(InputError, match=r"coarser.*Hint: granularity="):
        certify(risk, Law.of(2.0**-22, [("laplace", 1.0, 1.0)]), epsilon=0.01, delta=0.001).achieved_delta(0.01)
    fine = Law.of(2.0**-60, [("laplace", 1.0, 2.0**-50)])
    with pytest.raises(InputError, match="granularity"):
        certify(risk, fine, epsilon=0.01, delta=0.001).achieved_delta(0.01)


def test_certificate_is_shown_without_data() -> None:
    risk = empriv.measure(Q, WITHOUT, density=empriv.Kde("laplace", 1.5))
    assert "0.3" not in repr(Certificate(risk, LAWS["laplace"], 0.1, 0.0, None))


@pytest.mark.parametrize("factor", [1.02, 1.05, 1.2])
def test_noise_hardly_wider_than_the_kernel_is_screened_soundly(factor: float) -> None:
    rng = np.random.default_rng(2)
    q = rng.normal(0.0, 1.0, 41)
    risk = empriv.measure(q, q - rng.exponential(0.1, (3, 41)), density=empriv.Kde("laplace", 0.3))
    law = Law.of(2.0**-6, [("laplace", 1.0, 0.3 * factor)])
    found = certify(risk, law, epsilon=0.2, delta=0.0)
    assert found.achieved_epsilon(0.0) <= float(np.abs(risk.influence()).max()) / (0.3 * factor) + 2.0**-5
    assert found.achieved_delta(0.2) <= risk.delta(0.2)


# Shares of pairs


def _crowd(density: Density, *, draws: int | None = None, nulls: bool = False) -> empriv.Risk:
    """24 people who each change a few of 9 results; with NULLs, some results come and go, and others are tied."""
    rng = np.random.default_rng(11)
    q = rng.normal(0, 3, (9, draws) if draws else 9)
    size = rng.exponential(rng.choice([0.02, 0.3, 3.0], 24))[:, *[None] * q.ndim]
    without = q - size * rng.exponential(1.0, (24, *q.shape)) * (rng.random((24, 9) + (1,) * (q.ndim - 1)) < 0.25)
    if not nulls:
        return empriv.measure(q, without, density=density)
    q[:3] = 1.0
    without[:, :3] = np.where(rng.random((24, 3)) < 0.1, 2.0, 1.0)
    without[:4, 5] = np.nan
    return empriv.measure(_results(q.tolist(), without.tolist()), density=density)


CROWDS: dict[str, tuple[Density, dict[str, Any]]] = {
    name: (DENSITIES[name], {}) for name in ("laplace", "gaussian", "epanechnikov", "student", "variable")
} | {
    "draws": (empriv.Kde("laplace", 1.5), {"draws": 2}),
    "nulls": (empriv.Kde("laplace", 1.5), {"nulls": True}),
    "gaussian nulls": (empriv.Kde("gaussian", 1.5), {"nulls": True}),
}


@pytest.mark.parametrize("law", ["with point", "table"])
@pytest.mark.parametrize("crowd", CROWDS)
def test_shares_never_clear_anybody_who_is_not_clear_alone(crowd: str, law: str) -> None:
    risk = _crowd(CROWDS[crowd][0], **CROWDS[crowd][1])
    alone = [certify(risk_of_rows(risk, np.array([i])), LAWS[law], epsilon=0.01, delta=0.001) for i in range(24)]
    delta_i = np.array([one.achieved_delta_i(0.3)[0] for one in alone])
    epsilon_i = np.array([one._exact_epsilons(np.array([0]), 0.0)[0] for one in alone])
    together = certify(risk, LAWS[law], epsilon=0.01, delta=0.001)
    together.__dict__["_many"] = lambda _: True  # however few they are
    assert np.all(epsilon_i <= together._largest * (1 + 1e-9))
    assert np.all(delta_i <= together._bounds(0.3) + 1e-11)
    np.testing.assert_allclose(together.achieved_delta_i(0.3), delta_i, atol=1e-11)
    assert together.achieved_delta(0.3) == pytest.approx(delta_i.max(), abs=1e-11)
    for delta in (0.0, 0.3 * delta_i.max(), 1.01 * delta_i.max()):
        target = certify(risk, LAWS[law], epsilon=0.3, delta=delta)
        assert target.holds == (epsilon_i.max() <= 0.3 if delta == 0 else delta_i.max() <= delta)


def test_shares_clear_those_among_many_and_a_quarter_of_them_would_clear_too_many() -> None:
    # the first moves a result that is far from all others, the second by as much one that is among them
    q = np.array([30.0, *np.linspace(0.0, 1.0, 8)])
    risk = empriv.measure(q, [q - 0.5 * (np.arange(9) == k) for k in (0, 4)], density=empriv.Kde("laplace", 1.5))
    found = certify(risk, LAWS["with point"], epsilon=0.01, delta=0.001)
    screen, ratios = found._screen, found._screen.log_ratios(found.law)
    exact = found._exact_deltas(np.arange(2), 0.05)
    by_share = deltas_by_share(screen, ratios, found._sticks, 0.05)
    assert by_share[1] < 0.2 * screen.deltas(found.law, 0.05)[1]
    assert np.all(exact <= by_share + 1e-11)
    assert exact[0] > deltas_by_share(screen, ratios, 0.25 * found._sticks, 0.05)[0]
    share = np.concatenate([np.exp(above) / 9 for _, above in found._each_pair(Window.above, exact_tails=True)])
    epsilons, by_share = found._exact_epsilons(np.arange(2), 0.0), largest_by_share(screen, ratios, share)
    assert by_share[1] < 0.5 * screen.largest(found.law)[1]
    assert np.all(epsilons <= by_share * (1 + 1e-9))
    assert epsilons[0] > largest_by_share(screen, ratios, 0.25 * share)[0]


@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
@pytest.mark.parametrize("law", ["with point", "table"])
def test_parts_beside_laplace_noise_are_bounded_wherever_a_kernel_lies(kernel: str, law: str) -> None:
    bandwidth, k = 8.0, np.arange(-500, 501)
    compact = np.zeros(len(k))
    for share, part in LAWS[law].shares():
        if part.kind != "laplace":
            compact += share * LAWS[law].part_pmf(part, np.abs(k))
    largest = 0.0
    for offset in np.linspace(-0.5, 0.5, 41):
        masses = np.diff(empriv.KERNELS[kernel].cdf((np.arange(-100, 102) - 0.5 - offset) / bandwidth))
        sides = [np.convolve(masses, noise) for noise in (compact, LAWS[law].pmf(k) - compact)]
        inside = slice(500, -500)
        largest = max(largest, float((sides[0][inside] / sides[1][inside]).max()))
    bound = _beside(LAWS[law], empriv.KERNELS[kernel], bandwidth)
    assert largest <= bound < 1.1 * largest


# In a database that people are in


@pytest.mark.parametrize("law", ["laplace", "narrow", "with point"])
def test_noise_alone_bounds_delta_where_people_are_and_the_worst_is_found(law: str) -> None:
    rng = np.random.default_rng(4)
    q = rng.normal(0, 3, 30)
    influence = rng.exponential(rng.choice([0.3, 3.0], (12, 1)), (12, 30)) * (rng.random((12, 30)) < 0.5)
    influence[0] = 0.0
    asked = PresentCertificate(empriv.measure(q, q - influence).given_presence(), LAWS[law], 0.1, 0.01, None)
    delta_i = np.zeros(12)
    for row in range(12):
        person = asked.risk.person(row, exact=True)
        assert isinstance(person, WhenPresent)
        delta_i[row] = certify(_written(person, 30, 1.0), LAWS[law], epsilon=0.1, delta=0.01).achieved_delta(0.1)
    bound = asked.noise_alone(0.1)
    assert np.all(delta_i <= bound + 1e-11)
    assert np.any(delta_i > 0.1 * bound)  # a tenth of it would be none
    assert asked.achieved_delta() == pytest.approx(asked.achieved_delta_i().max(), abs=1e-12)
    assert np.all(asked.achieved_delta_i() >= np.minimum(delta_i, bound) - 1e-11)
    missed = set(asked.missed(np.arange(12)))
    assert set(np.flatnonzero(delta_i > 0.01).tolist()) <= missed
    assert missed <= set(np.flatnonzero(delta_i > 0.005).tolist())
