"""Noise for many publications: certified by the exact composition, the least that holds, refused where it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import empriv
from empriv.measuring.series.composition import composed_delta, gaussian_delta
from empriv.noise.certify.composed import ComposedCertificate, between_ends, pair_of_curve
from empriv.noise.law import Law

pytestmark = pytest.mark.slow


def normal_risk(n=365, shifts=(0.1, 0.3), seed=0):
    q = np.random.default_rng(seed).normal(size=n)
    return empriv.measure(q, np.stack([q - shift for shift in shifts]))


def true_delta(shift, kind, scale, times, epsilon=1.0):
    """A normal law of variance 1 with noise, on a fine grid, composed."""
    x = np.arange(-40.0, 40.0, 0.01)
    if kind == "gaussian":
        return float(gaussian_delta(shift / np.hypot(1.0, scale) * np.sqrt(times), epsilon))
    noise = np.exp(-np.abs(x) / scale) / (2 * scale)
    density = np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
    answer = np.maximum(np.convolve(density, noise, "same") * 0.01, 0.0)
    move = round(shift / 0.01)
    p, q = answer[move:] * 0.01, answer[:-move] * 0.01
    kept = (p > 1e-13) & (q > 1e-13)
    return float(composed_delta(p[kept] / p[kept].sum(), q[kept] / q[kept].sum(), times, np.array([epsilon]))[0])


@pytest.mark.parametrize(("kind", "scale"), [("laplace", 0.5), ("laplace", 2.0), ("gaussian", 1.0), ("gaussian", 4.0)])
def test_the_certificate_is_at_least_the_truth_and_near_it(kind, scale):
    law = Law.of(2.0**-10, [(kind, 1.0, scale)])
    covered, ratios = [], []
    for seed in range(6):
        certificate = ComposedCertificate(normal_risk(seed=seed), law, 1.0, 0.05, 365)
        for row, shift in enumerate((0.1, 0.3)):
            truth = true_delta(shift, kind, scale, 365)
            covered.append(certificate.achieved_delta_i[row] >= truth * 0.99)
            ratios.append(certificate.achieved_delta_i[row] / truth)
    assert np.mean(covered) >= 0.8
    assert 0.95 < np.median(ratios) < 1.5
    assert not np.median(ratios) > 2.0


def test_splittingbetween_ends_keeps_masses_and_never_understates():
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(60)), rng.dirichlet(np.ones(60))
    ratio = p / q
    split_p, split_q = between_ends(p, q, ratio * 0.9, ratio * 1.2)
    assert np.isclose(split_p.sum(), 1.0)
    assert np.isclose(split_q.sum(), 1.0)
    for epsilon in (0.0, 0.3, 1.0):
        coarse = np.maximum(p - np.exp(epsilon) * q, 0.0).sum()
        assert np.maximum(split_p - np.exp(epsilon) * split_q, 0.0).sum() >= coarse - 1e-12


@pytest.mark.parametrize(("apart", "times", "epsilon"), [(0.24, 30, 0.1), (0.05, 365, 1.0), (1.0, 3, 2.0)])
def test_a_pair_with_a_curve_composes_to_what_the_laws_behind_it_do(apart, times, epsilon):
    epsilons = np.append(0.0, np.geomspace(apart / 50, 6 * apart, 48))
    p, q = pair_of_curve(epsilons, gaussian_delta(apart, epsilons))
    assert p.sum() == pytest.approx(1.0)
    assert q.sum() == pytest.approx(1.0)
    truth = gaussian_delta(apart * np.sqrt(times), epsilon)
    assert truth <= composed_delta(p, q, times, np.array([epsilon]))[0] < 1.01 * truth
    assert not composed_delta(p, q, 2 * times, np.array([epsilon]))[0] < 1.01 * truth
    # one publication: the curve itself, and never below it between its points
    between = np.linspace(0.0, 7 * apart, 200)
    assert (composed_delta(p, q, 1, between) >= gaussian_delta(apart, between) - 1e-12).all()


def test_a_designed_law_holds_and_less_noise_does_not():
    risk = normal_risk()
    noise = empriv.design_noise(risk, epsilon=1.0, delta=0.05, granularity=2.0**-7, times=52)
    assert noise.times == 52
    assert noise.composed is not None
    assert noise.composed.holds
    part = noise.law.parts[0]
    less = Law.of(noise.law.granularity, [(part.kind, 1.0, 0.97 * part.scale)])
    assert not replace(noise.composed, law=less).holds
    assert noise.how_often().by_bound >= 52
    assert noise.after(2000).achieved_delta() > 0.05
    more = empriv.design_noise(risk, epsilon=1.0, delta=0.05, granularity=2.0**-7, times=365)
    assert more.expected_error > noise.expected_error


def test_next_to_no_noise_is_designed_where_none_is_needed():
    risk = normal_risk(shifts=(0.001,))
    noise = empriv.design_noise(risk, epsilon=1.0, delta=0.05, granularity=2.0**-7, times=12)
    assert any("databases that people are known to be in, nothing was asked" in note for note in noise.notes)
    assert noise.expected_error <= 2.0**-7
    assert noise.after(12).achieved_delta() <= 0.05


def test_it_is_saved_with_its_publications_and_certified_again(tmp_path):
    risk = normal_risk(n=120)
    noise = empriv.design_noise(risk, epsilon=1.0, delta=0.05, granularity=2.0**-7, times=30)
    noise.save(tmp_path / "noise.empriv")
    loaded = empriv.load(tmp_path / "noise.empriv")
    assert loaded.times == 30
    assert loaded.composed is not None
    assert loaded.composed.achieved_delta() == pytest.approx(noise.composed.achieved_delta(), abs=1e-12)
    assert loaded.to_json()["times"] == 30
    loaded.check_release()
    narrow = Law.of(noise.law.granularity, [(part.kind, 1.0, 0.3 * part.scale) for part in noise.law.parts])
    for altered in (replace(noise, times=300), replace(noise, composed=None), replace(noise, law=narrow)):
        with pytest.raises(empriv.CertificateError):
            altered.check_release()
    worse = normal_risk(n=120, shifts=(0.1, 2.0))
    with pytest.raises(empriv.CertificateError):
        noise.certified_for(worse)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"times": 0}, "`times` must be a whole number"),
        ({"times": 12, "delta": 0.0}, "`times` must go with a delta above 0"),
        ({"times": 12, "method": "paper"}, "the method 'least' alone"),
        ({"times": 12, "bound": 5.0}, "the method 'least' alone"),
    ],
)
def test_what_composition_does_not_do_is_refused(options, said):
    with pytest.raises(empriv.InputError, match=said):
        empriv.design_noise(normal_risk(n=60), **{"epsilon": 1.0, "delta": 0.05, "granularity": 2.0**-7, **options})


def test_outcomes_that_are_not_numbers_cannot_be_hidden():
    q = np.random.default_rng(0).normal(size=80)
    results = empriv.Results.from_arrays(q, [q])
    outcomes = np.zeros(80, np.int8)
    outcomes[:8] = empriv.Outcome.NULL
    risk = empriv.measure(replace(results, entry_q=np.where(outcomes == 0, q, np.nan), entry_outcomes=outcomes))
    with pytest.raises(empriv.InputError, match="not numbers"):
        empriv.design_noise(risk, epsilon=1.0, delta=0.05, granularity=2.0**-7, times=12)


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


@pytest.mark.parametrize("often", [1.0, 0.95])
def test_whom_noise_alone_must_hide_is_not_smoothed_away(often, monkeypatch):
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
    assert ComposedCertificate(risk, law, epsilon, 0.05, times).achieved_delta() >= truth
    monkeypatch.setattr(ComposedCertificate, "_unsmoothed", np.zeros(0, dtype=int))
    assert ComposedCertificate(risk, law, epsilon, 0.05, times).achieved_delta() < truth
