"""Compiled mixtures against numpy, numpy against sums over a grid, and what noise hides alone against its law."""

import numpy as np
import pytest
from scipy import integrate, stats

from empriv import Kde
from empriv.judge import gate, noisy_laws
from empriv.judge.noise_kernels import NoiseKernel, alone, classical
from empriv.measuring.densities.selection import GRID, laplace_bandwidths, spreads
from empriv.measuring.line import laplace

EPSILONS = np.array([0.0, 0.1, 1.0])
KERNELS = [
    NoiseKernel("laplace", 0.05),
    NoiseKernel("laplace", 0.6),
    NoiseKernel("laplace", 0.3, 0.25),
    NoiseKernel("laplace", 0.1, 0.5),
    NoiseKernel("gaussian", 0.4),
    NoiseKernel("gaussian", 0.4, 0.25),
]


def people(n, rows=4, seed=0, draws=1):
    """Results with everyone, and without somebody always there, seldom there, tied, and with gaps."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=n * draws)
    b = np.repeat(q[None], rows, axis=0)
    b[0] -= rng.exponential(0.3, n * draws)
    b[1, rng.random(n * draws) < 0.1] -= 0.7
    b[2] = np.round(b[2], 1)
    b[3, ::5] = np.nan
    b[3] -= 0.2
    return q, b[:rows]


def in_numpy(monkeypatch, work):
    with monkeypatch.context() as patch:
        patch.setattr(laplace, "COMPILED", None)
        return work()


needs_compiled = pytest.mark.skipif(laplace.COMPILED is None, reason="built without a compiler")


@needs_compiled
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(("n", "draws"), [(1, 1), (2, 1), (3, 1), (60, 1), (20, 3)])
def test_compiled_is_numpy(kernel, n, draws, monkeypatch):
    q, b = people(n, draws=draws)
    fold = (np.arange(n * draws) % 3 > 0).astype(float)

    def work():
        return (
            noisy_laws.bounds(q, b, kernel, EPSILONS, draws=draws),
            noisy_laws.bounds(b[::-1], b, kernel, EPSILONS, draws=draws),
            noisy_laws.values(q, b, kernel, EPSILONS, draws=draws, weights=fold),
            noisy_laws.extrapolated(q, b, np.array([0.1, 0.2, 0.3, 0.4]), EPSILONS, draws=draws),
            noisy_laws.ends(q, b, EPSILONS, draws=draws),
            gate.rayleigh(q, 1.0, 0.07, 100),
        )

    for one, other in zip(work(), in_numpy(monkeypatch, work), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_bandwidths_of_many_rows_are_those_of_the_rule():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 90))
    x[1], x[2], x[3, :50], x[4] = np.round(x[1], 1), 3.0, 1.0, rng.exponential(size=90) ** 3
    chosen, likeliest = laplace_bandwidths(x)
    assert chosen[2] == likeliest[2] == 0
    for k in [k for k in range(40) if k != 2]:
        rule = Kde("laplace").fit(x[k], np.arange(90))
        np.testing.assert_allclose([chosen[k], likeliest[k]], [rule.bandwidth, rule.likeliest], rtol=1e-12)


def test_likeliest_bandwidths_have_the_largest_likelihood_of_results_left_out():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(5, 90))
    x[1], x[3, :50], x[4] = np.round(x[1], 1), 1.0, rng.exponential(size=90) ** 3
    for row, h, spread in zip(x, laplace_bandwidths(x)[1], spreads(x), strict=True):
        apart = np.abs(row[:, None] - row)
        apart[apart == 0] = np.inf  # itself, and its equals

        def likelihood(width, apart=apart):
            return np.log(np.maximum(np.exp(-apart / width).sum(axis=1), 1e-300)).sum() - 90 * np.log(width)

        grid = 0.74 * 1.06 * spread * 90**-0.2 * np.geomspace(0.02, 1.0, GRID)
        assert h == pytest.approx(max(grid, key=likelihood), rel=1e-9)


def density(kernel, x, points):
    z = (x[:, None] - points[None, :]) / kernel.scale
    return (np.exp(-np.abs(z)) if kernel.kind == "laplace" else np.exp(-0.5 * z * z)).sum(axis=1)


@pytest.mark.parametrize("kernel", [NoiseKernel("laplace", 0.3), NoiseKernel("gaussian", 0.3)], ids=str)
def test_values_of_continuous_noise_are_integrals(kernel):
    q, b = people(40)
    x = np.linspace(-8, 8, 80_001)
    for row in b[:3]:
        found = noisy_laws.values(q, row[None], kernel, np.array([0.2]))[0, 0]
        pa, pb = density(kernel, x, q), density(kernel, x, row)
        for direction, (p, other) in enumerate(((pa, pb), (pb, pa))):
            stick = np.maximum(p - np.exp(0.2) * other, 0).sum() / pa.sum()
            assert found[direction].mean() == pytest.approx(stick, abs=2e-3 * stick + 1e-5)


@pytest.mark.parametrize(
    "kernel", [NoiseKernel("laplace", 0.8, 1.0), NoiseKernel("laplace", 0.2, 1.0), NoiseKernel("gaussian", 0.8, 1.0)]
)
def test_values_of_discrete_noise_are_sums_over_its_lattice(kernel):
    rng = np.random.default_rng(3)
    q = np.round(3 * rng.normal(size=50))
    b = q - rng.integers(0, 3, 50)
    cells = np.arange(-60.0, 61.0)
    pa, pb = density(kernel, cells, q), density(kernel, cells, b)
    whole = density(kernel, cells, np.zeros(1)).sum()
    inside = pa > np.exp(0.3) * pb
    psi_a, psi_b = ((density(kernel, cells[inside], np.array([v])).sum() / whole for v in side) for side in (q, b))
    want = np.array(list(psi_a)) - np.exp(0.3) * np.array(list(psi_b))
    np.testing.assert_allclose(noisy_laws.values(q, b[None], kernel, np.array([0.3]))[0, 0, 0], want, atol=1e-9)


def test_results_that_are_not_finite_lie_in_no_set():
    q, b = people(60)
    q[:10] = np.inf
    b[:, :10] = np.nan
    kept = noisy_laws.values(q[10:], b[:, 10:], KERNELS[1], EPSILONS)
    both = noisy_laws.values(q, b, KERNELS[1], EPSILONS)
    assert np.all(both[..., :10] == 0)
    np.testing.assert_allclose(both[..., 10:], kept, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("move", [0.3, 1.0, 4.0])
def test_what_noise_hides_alone_is_its_hockey_stick(epsilon, move):
    for kind, law in (("laplace", stats.laplace), ("gaussian", stats.norm)):
        own = law(scale=0.8)
        want = integrate.quad(
            lambda x, own=own: max(0.0, own.pdf(x) - np.exp(epsilon) * own.pdf(x - move)), -20, 20,
            points=[0.0, move], limit=400,
        )[0]  # fmt: skip
        assert float(alone(NoiseKernel(kind, 0.8), epsilon, move)) == pytest.approx(want, abs=1e-6)
    cells = np.arange(-400, 401)
    for kind in ("laplace", "gaussian"):
        z = np.abs(cells) * 0.25 / 0.8
        p = np.exp(-z) if kind == "laplace" else np.exp(-z * z / 2)
        p /= p.sum()
        m = int(np.ceil(move / 0.25 - 1e-9))
        want = np.maximum(p - np.exp(epsilon) * np.roll(p, m), 0).sum()
        assert float(alone(NoiseKernel(kind, 0.8, 0.25), epsilon, move)) == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("step", [0.0, 0.5])
def test_classical_noise_is_just_enough(kind, step):
    kernel = classical(0.5, 0.01, 2.0, kind, step)
    assert float(alone(kernel, 0.5, 2.0)) <= 0.01 * (1 + 1e-9)
    assert float(alone(kernel.of_scale(0.9 * kernel.scale), 0.5, 2.0)) > 0.01
