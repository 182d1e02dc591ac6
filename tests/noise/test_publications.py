"""Noise for many publications: what noise alone leaves composed exactly, the least that holds, refused where it does
not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import empriv
from empriv.errors import CertificateError
from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring.series.composition import composed_delta, gaussian_delta
from empriv.noise.law import Law
from empriv.noise.publications import effects_with_noise, pair_of_noise, squares_alone

G = 2.0**-7
COARSE = 2.0**-4


def normal_risk(n=365, shifts=(0.1, 0.3), seed=0):
    q = np.random.default_rng(seed).normal(size=n)
    return empriv.measure(q, np.stack([q - shift for shift in shifts]))


def true_delta(shift, kind, scale, times, epsilon=1.0):
    """A normal law of variance 1 with noise, on a fine grid, composed."""
    x = np.arange(-30.0, 30.0, 0.02)
    if kind == "gaussian":
        return float(gaussian_delta(shift / np.hypot(1.0, scale) * np.sqrt(times), epsilon))
    noise = np.exp(-np.abs(x) / scale) / (2 * scale)
    density = np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
    answer = np.maximum(np.convolve(density, noise, "same") * 0.02, 0.0)
    move = round(shift / 0.02)
    p, q = answer[move:] * 0.02, answer[:-move] * 0.02
    kept = (p > 1e-13) & (q > 1e-13)
    return float(composed_delta(p[kept] / p[kept].sum(), q[kept] / q[kept].sum(), times, np.array([epsilon]))[0])


# Noise alone, exactly


def delta_after(kernel, move, times, epsilon):
    return float(composed_delta(*pair_of_noise(kernel, move), times, np.array([epsilon]))[0])


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 365])
def test_noise_alone_composes_as_dp_accounting_says(times):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="pip install dp-accounting")
    fine = {"value_discretization_interval": 1e-4, "use_connect_dots": True}
    witnesses = {
        ("laplace", 0.0): pld.from_laplace_mechanism(10.0, **fine),
        ("laplace", 1.0): pld.from_discrete_laplace_mechanism(0.1, value_discretization_interval=1e-4),
        ("gaussian", 0.0): pld.from_gaussian_mechanism(10.0, **fine),
        ("gaussian", 1.0): pld.from_discrete_gaussian_mechanism(10.0, **fine),
    }
    for (kind, step), witness in witnesses.items():
        composed = witness.self_compose(times)
        for epsilon in (0.1, 1.0):
            exact = composed.get_delta_for_epsilon(epsilon)
            found = delta_after(NoiseKernel(kind, 10.0, step), 1.0, times, epsilon)
            assert found == pytest.approx(exact, abs=2e-4), (kind, step, epsilon)
            assert delta_after(NoiseKernel(kind, 5.0, step), 1.0, times, epsilon) >= found


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_price_of_laplace_noise_is_never_below_the_exact_composition(epsilon):
    kernel = NoiseKernel("laplace", 4.0, 0.25)
    squares = squares_alone(kernel, epsilon, 8.0)
    for move in (0.3, 1.0, 5.0):
        square = float(squares(np.array([move]))[0])
        assert square <= 1.25 * (np.ceil(move / 0.25) * 0.25 / 4.0) ** 2
        ratios = []
        for times in (2, 3, 5, 12, 52, 200):
            exact = delta_after(kernel, move, times, epsilon)
            priced = float(gaussian_delta(np.sqrt(times * square), epsilon))
            assert priced >= 0.98 * exact - 1e-6, (move, times)
            ratios.append(exact / priced if priced > 1e-4 else 0.0)
        assert max(ratios) > 0.75  # and near it


def test_the_price_of_gaussian_noise_is_its_effect_size():
    squares = squares_alone(NoiseKernel("gaussian", 4.0, 0.25), 1.0, 8.0)
    np.testing.assert_allclose(squares(np.array([0.0, 0.25, 0.3, 4.0])), [0.0, 0.0625**2, 0.125**2, 1.0])
    p, q = pair_of_noise(NoiseKernel("gaussian", 0.6, 1.0), 2.0)  # narrow on its lattice: asked of the lattice
    assert p.sum() == pytest.approx(1.0)
    assert np.abs(p - q).sum() > 1.5


def test_constants_are_hidden_by_noise_alone():
    q = np.full(60, 7.0)
    risk = empriv.measure(q, [q - 0.5])
    told = effects_with_noise(risk, Law.of(G, [("gaussian", 1.0, 4.0)]), 1.0)
    np.testing.assert_allclose(told.upper().squares, (0.5 / 4.0) ** 2)
    assert told.upper().delta(100, 1.0) == pytest.approx(float(gaussian_delta(1.25, 1.0)))


# Noise and the answers' law


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "scale"), [("laplace", 0.5), ("gaussian", 4.0)])
def test_the_upper_figure_is_at_least_the_truth_and_near_it(kind, scale):
    law = Law.of(2.0**-10, [(kind, 1.0, scale)])
    truth = np.array([true_delta(shift, kind, scale, 365) for shift in (0.1, 0.3)])
    told = [effects_with_noise(normal_risk(seed=seed), law, 1.0).upper() for seed in range(6)]
    ratios = np.array([one.delta_i(365, np.array([1.0]))[:, 0] / truth for one in told])
    assert np.mean(ratios >= 0.99) >= 0.8
    assert 0.95 < np.median(ratios) < 1.5


@pytest.mark.slow
def test_a_designed_law_holds_and_less_noise_does_not():
    risk = normal_risk(n=150)
    noise = empriv.design_noise(risk, epsilon=1.0, delta=0.05, granularity=COARSE, times=52)
    assert noise.times == 52
    assert noise.holds
    assert 0.045 < noise.achieved_delta() <= 0.05
    less = Law.of(COARSE, [("gaussian", 1.0, 0.97 * noise.scale)])
    assert not replace(noise, law=less).holds
    assert noise.how_often().by_bound >= 52
    assert noise.publications().upper_delta(2000) > 0.05
    more = empriv.design_noise(risk, epsilon=1.0, delta=0.05, granularity=COARSE, times=365)
    assert more.expected_error > noise.expected_error
    assert any("52 publications" in note for note in noise.notes)


def test_next_to_no_noise_is_designed_where_none_is_needed():
    noise = empriv.design_noise(normal_risk(shifts=(0.001,)), epsilon=1.0, delta=0.05, granularity=G, times=12)
    assert noise.expected_error <= G
    assert noise.achieved_delta() <= 0.05


@pytest.mark.slow
def test_it_is_saved_with_its_publications_and_certified_again(tmp_path):
    risk = normal_risk(n=120)
    noise = empriv.design_noise(risk, epsilon=1.0, delta=0.05, granularity=COARSE, times=30)
    noise.save(tmp_path / "noise.empriv")
    loaded = empriv.load(tmp_path / "noise.empriv")
    assert loaded.times == 30
    assert loaded.achieved_delta() == noise.achieved_delta()
    assert loaded.to_json()["times"] == 30
    loaded.check_release()
    narrow = Law.of(COARSE, [("gaussian", 1.0, 0.3 * noise.scale)])
    for altered in (replace(noise, times=300), replace(noise, law=narrow)):
        with pytest.raises(CertificateError):
            altered.check_release()
    with pytest.raises(CertificateError):
        noise.certified_for(normal_risk(n=120, shifts=(0.1, 2.0)))


def test_outcomes_that_are_not_numbers_cannot_be_hidden():
    q = np.random.default_rng(0).normal(size=80)
    results = empriv.Results.from_arrays(q, [q])
    outcomes = np.zeros(80, np.int8)
    outcomes[:8] = empriv.Outcome.NULL
    risk = empriv.measure(replace(results, entry_q=np.where(outcomes == 0, q, np.nan), entry_outcomes=outcomes))
    with pytest.raises(empriv.InputError, match="not numbers"):
        empriv.design_noise(risk, epsilon=1.0, delta=0.05, granularity=G, times=12)


@pytest.mark.slow
def test_how_often_is_the_last_number_within_the_target():
    risk = normal_risk(shifts=(0.05,))
    often = risk.how_often(epsilon=1.0, delta=0.05)
    assert 1 < often.by_bound < often.by_estimate
    assert risk.repeated(often.by_estimate).delta(1.0) <= 0.05 < risk.repeated(often.by_estimate + 1).delta(1.0)
    assert risk.repeated(often.by_bound).bounds(1.0).upper <= 0.05 < risk.repeated(often.by_bound + 1).bounds(1.0).upper
    assert f"{often.by_bound:,} publications are within delta 0.05 at epsilon 1" in often.sentence
    assert often.to_json()["by_bound"] == often.by_bound
    audit = empriv.audit(risk.results, epsilon=1.0)
    assert audit.repeated(12).how_often(epsilon=1.0, delta=0.05) == often


def test_how_often_at_its_ends():
    q = np.random.default_rng(0).normal(size=200)
    nobody = empriv.measure(q, [q]).how_often(epsilon=1.0, delta=0.05)
    assert nobody.by_bound == nobody.by_estimate == 1_000_000
    assert "or more" in nobody.sentence
    leak = empriv.measure(q, [np.full(200, 3.0)]).how_often(epsilon=1.0, delta=0.05)
    assert leak.by_bound == leak.by_estimate == 0
    assert "Not even one" in leak.sentence
    for wrong in (
        {"epsilon": -1.0, "delta": 0.1},
        {"epsilon": 1.0, "delta": 2.0},
        {"epsilon": float("nan"), "delta": 0.1},
    ):
        with pytest.raises(empriv.InputError):
            empriv.measure(q, [q]).how_often(**wrong)


@pytest.mark.slow
@pytest.mark.parametrize("often", [1.0, 0.95])
def test_a_pattern_is_not_smoothed_away(often, monkeypatch):
    """Somebody without whom answers would be odd, always or mostly: narrow noise tells it, and more so each time."""
    rng = np.random.default_rng(4)
    q = 2.0 * np.round(rng.normal(500.0, 40.0, 200)) + (rng.random(200) > often)
    risk = empriv.measure(q, (q + 1.0)[None])
    law, times, epsilon = Law.of(2.0**-6, [("laplace", 1.0, 1.0)]), 10, 1.0
    x = np.arange(0.0, 2.0, 2.0**-6)  # only the place between even and odd numbers tells anything
    around = 2.0 * np.arange(-30.0, 31.0)
    even, odd = (np.exp(-np.abs(x[:, None] - around - start)).sum(axis=1) for start in (0.0, 1.0))
    p, q = (share * even + (1 - share) * odd for share in (often, 1 - often))
    truth = composed_delta(p / p.sum(), q / q.sum(), times, np.array([epsilon]))[0]
    assert truth > 0.01
    assert effects_with_noise(risk, law, epsilon).upper().delta(times, epsilon) >= truth
    monkeypatch.setattr("empriv.noise.publications.patterned", lambda *_: False)
    assert effects_with_noise(risk, law, epsilon).upper().delta(times, epsilon) < truth
