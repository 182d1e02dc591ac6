"""The judge's promises: U covers the truth and not half of it by chance alone, falls in noise and epsilon, rises in the
move; covers and least noise follow from it; ties, constants and few databases are answered, never wrongly covered."""

import numpy as np
import pytest
from scipy import stats

from empriv import Results
from empriv.judge import cover, gate, lower, noisy_laws, upper
from empriv.judge.cover import dither
from empriv.judge.noise_kernels import KINDS, NoiseKernel, alone
from empriv.measuring.line.atoms import take_atoms_out

SHIFTS = [(0.1, 0.4), (1.0, 1.2)]


def people_of(q, without):
    return take_atoms_out(Results.from_arrays(q, without), look=False)


def truth_of_normal(move, epsilon, scale=0.0):
    """Hockey stick of N(0, 1) and N(move, 1), both with Laplace noise, by sums."""
    x = np.linspace(-15, 15, 30_001)

    def p(at):
        if scale == 0:
            return stats.norm.pdf(x - at)
        u, a = x - at, 1 / scale  # normal and Laplace: closed form by completing squares
        return (
            a
            / 4
            * (
                np.exp(a * a / 2 - a * u + stats.norm.logcdf(u - a) + np.log(2))
                + np.exp(a * a / 2 + a * u + stats.norm.logcdf(-u - a) + np.log(2))
            )
        )

    return np.maximum(p(move) - np.exp(epsilon) * p(0.0), 0).sum() * (x[1] - x[0])


@pytest.mark.parametrize(("epsilon", "move"), SHIFTS)
@pytest.mark.parametrize("scale", [0.0, 0.15, 0.5])
def test_bound_covers_the_truth_and_half_of_it_does_not(epsilon, move, scale):
    rng, n, runs = np.random.default_rng(5), 200, 60
    kernel = NoiseKernel("laplace", scale) if scale else None
    truth = truth_of_normal(move, epsilon, scale)
    found = np.array([cover.of_moves(rng.normal(size=n), move, epsilon, kernel).values[0, 0] for _ in range(runs)])
    # 95% of 60 is 57; fewer than 51 happens once in 600 where coverage is 95%
    assert (found >= truth).sum() >= 51
    assert (found / 2 >= truth).sum() < 51


@pytest.mark.parametrize(("epsilon", "move"), SHIFTS)
def test_lower_limit_is_below_the_truth_and_has_power(epsilon, move):
    rng, n, runs = np.random.default_rng(6), 300, 40
    truth = truth_of_normal(2 * move, epsilon)
    found = np.array([lower.of_moves(rng.normal(size=n), 2 * move, epsilon)[0, 0] for _ in range(runs)])
    assert (found > truth).sum() <= 6
    assert np.median(found) > truth / 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [0.0, 0.125])
def test_bound_falls_in_noise_and_in_epsilon_and_rises_in_the_move(kind, step):
    x = np.random.default_rng(7).gamma(2, size=365)
    scales = np.geomspace(0.1, 30, 12)
    by_scale = np.array([cover.of_moves(x, 1.0, [0.1, 0.5, 1.0], NoiseKernel(kind, s, step)).values[0] for s in scales])
    assert np.all(np.diff(by_scale, axis=0) <= 0.01)
    assert np.all(np.diff(by_scale, axis=1) <= 1e-9)
    assert by_scale[0, 0] > 0.2
    assert by_scale[-1, 0] < 0.01
    by_move = cover.of_moves(x, np.linspace(0.05, 3, 30), 0.3, NoiseKernel(kind, 0.3, step)).values[:, 0]
    assert np.all(np.diff(by_move) >= -0.01)


@pytest.mark.parametrize("kernel", [None, NoiseKernel("laplace", 0.25), NoiseKernel("gaussian", 0.25)], ids=str)
def test_bound_is_the_same_for_other_orders_places_units_and_signs(kernel):
    rng = np.random.default_rng(8)
    q = rng.normal(size=100)
    b = q - rng.exponential(0.4, 100)
    want = upper.of_pairs(q, b, [0.1, 1.0], kernel).values
    order = rng.permutation(100)
    np.testing.assert_allclose(upper.of_pairs(q[order], b[order], [0.1, 1.0], kernel).values, want, atol=1e-9)
    np.testing.assert_allclose(upper.of_pairs(q + 7, b + 7, [0.1, 1.0], kernel).values, want, atol=1e-4)
    np.testing.assert_allclose(upper.of_pairs(-q, -b, [0.1, 1.0], kernel).values, want, atol=1e-4)
    wider = None if kernel is None else kernel.of_scale(1000 * kernel.scale)
    np.testing.assert_allclose(upper.of_pairs(1000 * q, 1000 * b, [0.1, 1.0], wider).values, want, atol=1e-4)


def test_who_moves_less_than_noise_hides_is_never_looked_at_and_bounded_by_what_was_not_seen():
    rng = np.random.default_rng(9)
    q = rng.normal(size=365)
    without = q - rng.uniform(0, 0.01, (5, 365))
    kernel = NoiseKernel("laplace", 0.2)
    found = upper.of_people(people_of(q, without), [0.1], kernel)
    np.testing.assert_allclose(found.values, 0.0, atol=1e-12)  # twice 0.01 is at most epsilon s = 0.02
    declared = upper.of_people(people_of(q, without), [0.1], kernel, reach=1.0)
    np.testing.assert_allclose(declared.values, (1 - 0.05 ** (1 / 365)) * alone(kernel, 0.1, 1.0))
    assert found.assumes == upper.NOTHING


@pytest.mark.parametrize("kernel", [None, NoiseKernel("laplace", 0.25), NoiseKernel("gaussian", 0.25, 0.125)], ids=str)
def test_people_are_bounded_as_their_pairs_and_by_the_share_of_databases_they_move(kernel):
    rng = np.random.default_rng(10)
    q = rng.normal(size=120)
    without = q - rng.exponential(0.5, (6, 120)) * (
        rng.random((6, 120)) < np.array([[1], [0.5], [0.2], [0.05], [0.01], [0]])
    )
    pairs = people_of(q, without)
    found = upper.of_people(pairs, [0.1, 1.0], kernel).values
    one_by_one = upper.of_pairs(q, without, [0.1, 1.0], kernel).values
    assert np.all(found <= one_by_one + 1e-9)
    if kernel is not None:
        np.testing.assert_allclose(found[:3], one_by_one[:3])
    moved = (without != q).sum(axis=1)
    seldom = stats.beta.ppf(0.95, moved + 1, 120 - moved)
    assert np.all(found[1:, 0] <= seldom[1:] + 1e-9)


def test_who_changes_whether_there_is_an_answer_is_not_bounded_below_the_share_of_such_databases():
    rng = np.random.default_rng(11)
    q = rng.normal(size=100)
    without = np.repeat(q[None], 2, axis=0)
    without[0, :20] = np.nan
    found = upper.of_pairs(q, without, 0.1, NoiseKernel("laplace", 1.0)).values[:, 0]
    assert found[0] >= 0.2
    assert found[1] == 0


@pytest.mark.parametrize("n", [1, 2, 3, 29])
def test_few_databases_count_for_nothing(n):
    x = np.random.default_rng(n).normal(size=n)
    assert cover.of_moves(x, 0.1, 0.1).values[0, 0] == 1
    kernel = NoiseKernel("laplace", 1.0)
    assert cover.of_moves(x, 0.3, 0.1, kernel).values[0, 0] == pytest.approx(float(alone(kernel, 0.1, 0.3)))
    assert cover.cover(x, 0.1, 0.05)[0, 0] == 0
    assert lower.of_moves(x, 5.0, 0.1)[0, 0] == 0


@pytest.mark.parametrize("x", [np.zeros(100), np.repeat([1.0, 2.0], 50), np.full(100, 1e9)], ids=["0", "two", "1e9"])
def test_constants_and_ties_are_not_covered_without_noise_and_by_noise_alone_with_it(x):
    assert cover.cover(x, [0.1], 0.05)[0, 0] in (0.0, 1.0 if x[0] != x[-1] else 0.0)
    kernel = NoiseKernel("laplace", 0.01)
    hides = 0.01 * (0.1 - 2 * np.log1p(-0.05))
    assert cover.cover(x, [0.1], 0.05, kernel)[0, 0] == pytest.approx(hides, rel=0.02)


def test_cover_is_the_largest_move_within_delta():
    rng = np.random.default_rng(12)
    laws = np.stack((rng.normal(size=200), rng.gamma(2, size=200)))
    for kernel in (None, NoiseKernel("laplace", 0.2), NoiseKernel("gaussian", 0.2)):
        found = cover.cover(laws, [0.1, 1.0], 0.05, kernel)
        assert np.all(found > 0)
        for column, epsilon in enumerate((0.1, 1.0)):
            assert np.all(cover.of_moves(laws, found[:, column], epsilon, kernel).values <= 0.05 + 1e-12)
            assert np.all(cover.of_moves(laws, 1.3 * found[:, column], epsilon, kernel).values > 0.05)
        assert np.all(found[:, 1] > found[:, 0])


def test_counts_are_covered_in_whole_numbers():
    counts = np.random.default_rng(13).poisson(300, 365).astype(float)
    found = cover.cover(counts, [0.1, 1.0], 0.05)
    assert np.all(found == np.round(found))
    assert found[0, 1] >= 2
    euros = cover.cover(100 * counts, [1.0], 0.05)
    assert euros[0, 0] == 100 * found[0, 1]


def test_gate_refuses_combs_and_lets_smooth_laws_and_counts_pass():
    rng = np.random.default_rng(14)
    smooth = [law(size=300) for law in (rng.normal, rng.exponential, rng.uniform, rng.laplace)]
    smooth += [rng.poisson(300, 300).astype(float)]
    for x in smooth:
        assert not gate.comb(x, upper.bandwidth(x))
    whole = np.round(30 * rng.normal(size=300))
    even = np.where(rng.random(300) < 0.85, 2 * np.round(whole / 2), whole)
    ten = np.round(rng.normal(size=300), 1) + 0.001 * rng.normal(size=300)
    for x, h in ((even, 8.0), (ten, 0.3), (13 * np.round(100 * rng.normal(size=300)) + rng.integers(0, 2, 300), 300.0)):
        assert gate.comb(x, h)
        assert cover.of_moves(x, 1.0, 0.1, h=np.array([h])).refuted[0]


def test_dither_is_a_share_of_the_bandwidth():
    x = np.random.default_rng(17).normal(size=300)
    found = dither(x)
    assert found is not None
    assert found.scale == pytest.approx(0.7 * upper.bandwidth(x))
    assert dither(np.ones(50)) is None


def test_limit_over_people_is_that_of_who_the_other_folds_chose():
    rng = np.random.default_rng(18)
    q = rng.normal(size=300)
    without = np.stack([q - 0.001 * k for k in range(20)] + [q - 2.0])
    pairs = people_of(q, without)
    everyone = lower.of_people(pairs, upper.moves(pairs)[0], [0.1])
    assert everyone[0] == pytest.approx(lower.of_pairs(q, without[-1:], [0.1])[0, 0])
    assert everyone[0] > 0.4


@pytest.mark.parametrize("kernel", [NoiseKernel("laplace", 0.5), NoiseKernel("gaussian", 0.4, 0.125)], ids=str)
def test_what_noise_leaves_of_each_day_is_never_less_than_what_it_leaves_of_the_law(kernel):
    """It decides who need not be looked at: the estimate lies below it, and it lies far below the largest move's."""
    rng = np.random.default_rng(3)
    q = rng.normal(size=120)
    without = q - rng.exponential(0.2, (30, 120)) * (rng.random((30, 120)) < rng.random((30, 1)))
    pairs = people_of(q, without)
    found = upper.each_day_alone(pairs, 0.1, kernel)
    estimate = noisy_laws.values(pairs.points, pairs.dense(np.arange(30)), kernel, np.array([0.1])).mean(axis=-1)
    assert (found >= estimate[:, 0].max(axis=-1)).all()
    largest = alone(kernel, 0.1, upper.moves(pairs)[0])
    assert (found < 0.7 * largest).sum() > 10
