"""`Noise`: the promise, what is refused, files, and measuring anew."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.base.storage import read_archive, write_archive
from empriv.errors import CertificateError, FileFormatError, InputError
from empriv.noise.law import Law
from empriv.noise.noise import Noise, certified

G = 0.25


@pytest.fixture(scope="module")
def risk() -> empriv.Risk:
    rng = np.random.default_rng(3)
    q = rng.normal(50, 8, 30)
    return empriv.measure(q, q - rng.exponential(1.0, (4, 30)))


def _noise(risk: empriv.Risk, scale: float = 40.0, **options: Any) -> Noise:
    given = {"method": "robust", "epsilon": 0.5, "delta": 0.1, "declared_granularity": True} | options
    return certified(risk, Law.of(G, [("laplace", 1.0, scale)]), **given)


def test_a_law_that_misses_its_target_is_refused(risk: empriv.Risk) -> None:
    with pytest.raises(CertificateError, match="promise"):
        _noise(risk, 0.5, delta=0.0, epsilon=0.01)
    study = _noise(risk, 0.5, delta=0.0, epsilon=0.01, study=True)
    assert study.achieved_epsilon > 0.01
    with pytest.raises(CertificateError, match="study"):
        study.release(1.0)


def test_release_needs_a_declared_granularity(risk: empriv.Risk) -> None:
    with pytest.raises(CertificateError, match=r"Hint: design it with a granularity of 0\.2"):
        _noise(risk, declared_granularity=False).release(1.0)
    assert _noise(risk).release(1.0) % G == 0


def test_figures_are_those_of_law_and_certificate(risk: empriv.Risk) -> None:
    noise = _noise(risk)
    assert noise.expected_error == noise.law.expected_error
    assert noise.achieved_delta() == noise.achieved_delta_i().max() <= 0.1
    assert noise.achieved_epsilon == noise.achieved_epsilon_i.max() <= 0.5
    assert 0 <= noise.achieved_total_risk <= 1
    assert noise.cdf([0.0, 0.24, -0.01]) == pytest.approx(noise.law.cdf([0, 0, -1]))
    assert noise.pdf(0.1) * G == pytest.approx(float(noise.law.pmf(0)))
    assert noise.quantile(0.9) > 0
    assert noise.sample(5, rng=1).tolist() == noise.sample(5, rng=1).tolist()
    with pytest.raises(InputError):
        noise.cdf(math.nan)


def test_the_promise_says_what_it_rests_on(risk: empriv.Risk) -> None:
    assert any("no unseen influence" in note for note in _noise(risk, delta=0.09).notes)
    assert not any("no unseen influence" in note for note in _noise(risk, delta=0.2).notes)
    assert any("not unconditional" in note for note in _noise(risk, delta=0.0).notes)
    assert any("tuned to the estimate" in note for note in _noise(risk, method="optimal").notes)
    bounded = _noise(risk, delta=0.0, declared_bound=20.0)
    assert any("unconditionally" in note for note in bounded.notes)
    assert not any("unseen" in note for note in bounded.notes)


@pytest.mark.slow
def test_noisy_answers_measured_anew_keep_the_target(risk: empriv.Risk) -> None:
    noise = _noise(risk, 60.0)
    again = noise.remeasure(draws=40, rng=5)
    assert again.results.draws == 40
    # independent noise on both sides of a pair adds its own scatter, of about 1/sqrt(1,200 points)
    assert again.delta(0.5) <= 0.1
    # and without noise it is not kept: the test could fail
    bare = _noise(risk, epsilon=0.05, delta=0.0, study=True, scale=0.25).remeasure(draws=40, rng=5)
    assert bare.delta(0.05) > again.delta(0.05)
    for wrong in ({"draws": 0}, {"most": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            noise.remeasure(**wrong)


def test_the_riskiest_alone_measured_anew_and_absence_is_no_entry(risk: empriv.Risk) -> None:
    noise = _noise(risk, 60.0)
    again = noise.remeasure(draws=3, rng=5, most=1)
    chosen = noise.certificate.riskiest(1)
    np.testing.assert_array_equal(again.results.individuals, risk.results.individuals[chosen])
    np.testing.assert_array_equal(again.results.presence, risk.results.presence[chosen])
    absent = replace(
        risk.results, starts=np.zeros_like(risk.results.starts), entry_database=risk.results.entry_database[:0],
        entry_q=risk.results.entry_q[:0], entry_outcomes=risk.results.entry_outcomes[:0],
    )  # fmt: skip
    nobody = replace(noise, risk=empriv.measure(absent)).remeasure(draws=3, rng=5)
    assert nobody.delta(0.0) == 0.0  # one and the same draw on both sides


def test_saved_noise_is_certified_anew(risk: empriv.Risk, tmp_path: Path) -> None:
    noise, path = _noise(risk), tmp_path / "noise.empriv"
    noise.save(path)
    again = Noise.load(path)
    assert again.law.to_json() == noise.law.to_json()
    assert (again.method, again.epsilon, again.delta, again.notes) == ("robust", 0.5, 0.1, noise.notes)
    assert again.achieved_delta() == noise.achieved_delta()
    assert path.stat().st_mode & 0o777 == 0o600
    # a file with a narrower law is not believed
    meta, arrays = read_archive(path, kinds=("noise",))
    facts = {name: value for name, value in meta.items() if name not in ("format", "version", "kind")}
    forged = {**facts, "law": Law.of(G, [("point", 1.0, 0.0)]).to_json(), "epsilon": 0.0, "delta": 0.0}
    write_archive(path, kind="noise", meta=forged, arrays=arrays)
    with pytest.raises(CertificateError, match="altered"):
        Noise.load(path)
    for name, wrong in (("epsilon", "x"), ("law", None), ("notes", [1]), ("study", 1), ("density", {}), ("delta", 7)):
        write_archive(path, kind="noise", meta={**facts, name: wrong}, arrays=arrays)
        with pytest.raises(FileFormatError):
            Noise.load(path)


def test_a_density_that_is_not_the_risks_is_not_saved(risk: empriv.Risk, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="density"):
        _noise(risk).save(tmp_path / "noise.empriv", density=empriv.Kde("gaussian"))


def test_json_holds_no_results(risk: empriv.Risk) -> None:
    figures = _noise(risk).to_json()
    assert figures["holds"] is True
    assert figures["achieved_delta"] <= 0.1
    assert not any(str(value) in str(figures) for value in risk.results.q)
    assert replace(_noise(risk), notes=()).notes == ()


def test_noise_whose_certificate_is_sharper_than_the_measurement_may_be_released(tmp_path: Path) -> None:
    """Somebody without whom the results spread far less must be hidden by the noise alone: so it is certified."""
    q = np.random.default_rng(5).normal(100.0, 10.0, 60)
    risk = empriv.measure(q, (100.0 + 0.2 * (q - 100.0))[None])
    noise = empriv.design_noise(risk, epsilon=1.0, delta=0.5, method="classical", granularity=0.25)
    assert noise.certificate.risk is not noise.risk
    noise.check_release()
    noise.save(tmp_path / "noise.empriv")
    loaded = empriv.load(tmp_path / "noise.empriv")
    assert loaded.release(100.0) % 0.25 == 0.0
    other = empriv.design_noise(
        empriv.measure(q, q[None] - 1.0), epsilon=1.0, delta=0.5, method="classical", granularity=0.25
    )
    with pytest.raises(CertificateError, match="of its own"):
        replace(noise, certificate=replace(other.certificate, law=noise.law)).check_release()
