"""`Noise`: the promise, what is refused, files; given what readers know, it is released if its audit says so."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.auditing.deciding import reasons_against
from empriv.base.storage import read_archive, write_archive
from empriv.errors import CertificateError, FileFormatError, InputError
from empriv.noise.judging import JudgedAnswer
from empriv.noise.law import Law
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise

G = 0.25


@pytest.fixture(scope="module")
def risk() -> empriv.Risk:
    rng = np.random.default_rng(4)
    q = rng.normal(50, 8, 40)
    measured = empriv.measure(q, q - rng.exponential(1.0, (4, 40)))
    assert isinstance(measured, empriv.Risk)
    return measured


def _noise(risk: empriv.Risk, scale: float = 40.0, **options: Any) -> Noise:
    given = {"method": "least", "epsilon": 0.5, "delta": 0.1, "declared_granularity": True} | options
    return Noise(Law.of(G, [("laplace", 1.0, scale)]), JudgedAnswer(risk), **given)


def test_noise_that_misses_its_target_is_not_released(risk: empriv.Risk) -> None:
    narrow = _noise(risk, 0.5, delta=0.01, epsilon=0.01)
    assert not narrow.holds
    with pytest.raises(CertificateError, match="study"):
        narrow.release(1.0)
    assert _noise(risk).holds


def test_release_needs_a_declared_granularity(risk: empriv.Risk) -> None:
    with pytest.raises(CertificateError, match=r"Hint: design it with a granularity of 0\.2"):
        _noise(risk, declared_granularity=False).release(1.0)
    assert _noise(risk).release(1.0) % G == 0


def test_figures_are_those_of_the_law_and_the_judge(risk: empriv.Risk) -> None:
    noise = _noise(risk)
    assert noise.expected_error == noise.law.expected_error
    assert (noise.kernel, noise.scale, noise.step, noise.bound) == ("laplace", 40.0, G, None)
    assert noise.achieved_delta_i().max() <= noise.achieved_delta() <= 0.1
    # the same as whoever asks the judge with this noise
    assert noise.achieved_delta_i() == pytest.approx(risk.bounds(0.5, noise=noise).upper_i, abs=1e-9)
    assert noise.achieved_delta(0.1) >= noise.achieved_delta(0.5)


def test_the_verdict_with_noise_and_the_noise_say_the_same(risk: empriv.Risk) -> None:
    from empriv.validate.verdict import verdict

    for scale in (2.0, 10.0, 40.0):
        noise = _noise(risk, scale)
        assert (verdict(risk, epsilon=0.5, delta=0.1, noise=noise, checks_made=()) == "pass") == noise.holds


def test_the_promise_says_what_it_rests_on(risk: empriv.Risk) -> None:
    assert any("upper bound" in note for note in _noise(risk).notes)
    assert any(
        "the most that was seen" in note for note in replace(_noise(risk), judged=JudgedAnswer(risk, "both", 6.0)).notes
    )
    bounded = _noise(risk, delta=0.0, declared_bound=20.0)
    assert any("your bound alone" in note for note in bounded.notes)
    assert any("nothing can be released" in note for note in _noise(risk, 0.5, delta=0.01).notes)


def test_saved_noise_is_judged_anew(risk: empriv.Risk, tmp_path: Path) -> None:
    noise, path = _noise(risk), tmp_path / "noise.empriv"
    noise.save(path)
    again = Noise.load(path)
    assert again.law.to_json() == noise.law.to_json()
    assert (again.method, again.epsilon, again.delta, again.notes) == ("least", 0.5, 0.1, noise.notes)
    assert again.achieved_delta() == noise.achieved_delta()
    assert path.stat().st_mode & 0o777 == 0o600
    meta, arrays = read_archive(path, kinds=("noise",))
    facts = {name: value for name, value in meta.items() if name not in ("format", "version", "kind")}
    # files with a narrower law, or a stricter promise, are not believed
    for forged in ({"law": Law.of(G, [("laplace", 1.0, 0.5)]).to_json()}, {"epsilon": 0.0, "delta": 0.0}):
        write_archive(path, kind="noise", meta={**facts, **forged}, arrays=arrays)
        with pytest.raises(CertificateError, match="altered"):
            Noise.load(path)
    # one that calls itself the paper's is read, and not released
    write_archive(
        path, kind="noise", arrays=arrays,
        meta={**facts, "method": "paper", "law": Law.of(G, [("point", 1.0, 0.0)]).to_json(), "delta": 0.001},
    )  # fmt: skip
    with pytest.raises(CertificateError, match="study"):
        Noise.load(path).release(1.0)
    for name, wrong in (
        ("epsilon", "x"), ("law", None), ("reach", -1.0), ("declared_bound", "1"), ("density", {}), ("delta", 7),
        ("method", "robust"), ("presence", "never"), ("declared_granularity", 1),
    ):  # fmt: skip
        write_archive(path, kind="noise", meta={**facts, name: wrong}, arrays=arrays)
        with pytest.raises(FileFormatError):
            Noise.load(path)


def test_noise_is_judged_anew_for_other_answers(risk: empriv.Risk) -> None:
    noise = _noise(risk)
    assert noise.certified_for(risk).holds
    q = np.random.default_rng(1).normal(50, 8, 40)
    with pytest.raises(CertificateError, match="audit at hand"):
        noise.certified_for(empriv.measure(q, q[None] - 60.0))


def test_a_density_that_is_not_the_risks_is_not_saved(risk: empriv.Risk, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="density"):
        _noise(risk).save(tmp_path / "noise.empriv", density=empriv.Kde("gaussian"))


def test_json_holds_no_results(risk: empriv.Risk) -> None:
    figures = _noise(risk).to_json()
    assert figures["holds"] is True
    assert figures["achieved_delta"] <= 0.1
    assert not any(str(value) in str(figures) for value in risk.results.q)


@pytest.mark.slow
def test_noise_for_more_publications_than_it_hides_is_refused(risk: empriv.Risk) -> None:
    noise = _noise(risk)
    with pytest.raises(CertificateError, match="for study"):
        replace(noise, times=noise.how_often().by_bound + 1).check_release()


@pytest.mark.slow
def test_noise_in_cents_keeps_its_promise_and_is_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    q = np.round(rng.normal(100.0, 10.0, 60), 2)
    risk = empriv.measure(q, np.round(q - rng.exponential(2.0, (3, 60)), 2))
    noise = empriv.design_noise(risk, epsilon=0.1, delta=0.05, granularity=0.01)
    coarse = empriv.design_noise(risk, epsilon=0.1, delta=0.05, granularity=2.0**-6)
    assert noise.holds
    assert noise.expected_error == pytest.approx(coarse.expected_error, rel=0.02)
    noise.save(tmp_path / "noise.empriv")
    again = empriv.load(tmp_path / "noise.empriv")
    assert isinstance(again, empriv.Noise)
    assert again.law.to_json() == noise.law.to_json()
    assert Decimal(repr(again.release(99.999))) % Decimal("0.01") == 0
    bounded = empriv.design_noise(risk, epsilon=0.1, delta=0.0, bound=50.0, method="classical", granularity=0.01)
    assert bounded.law.parts[0].scale == pytest.approx(50.0 / 0.1, rel=1e-6)


@cache
def weekly(people: int = 8, n: int = 210) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers with a strong week, and what each person added."""
    rng = np.random.default_rng(5)
    days = np.datetime64("2024-01-01") + np.arange(n)
    level = 100.0 * np.isin(np.arange(n) % 7, (5, 6))
    added = rng.exponential(1.0, (people, n))
    return days, level + rng.normal(300.0, 10.0, n) + added.sum(axis=0), added


def results_of(days: np.ndarray, q: np.ndarray, added: np.ndarray) -> empriv.Results:
    return empriv.Results.from_arrays(q, q - added, databases=days)


@cache
def weekly_audit() -> Any:
    return empriv.audit(results_of(*weekly()), epsilon=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_what_the_audit_lets_pass_is_released_from_a_file_too(several: bool, tmp_path: Path) -> None:
    days, q, added = weekly()
    audit = weekly_audit()
    if several:
        other = results_of(days, q[::-1].copy(), added[:, ::-1].copy())
        audit = empriv.audit(empriv.Results.stack({"a": audit.results, "b": other}), epsilon=1.0)
    results = audit.results
    assert audit.against is not None  # the week is known
    noise: Any = empriv.design_noise(audit, epsilon=1.0, delta=0.05, granularity=0.5)
    assert noise.given
    assert reasons_against(noise, audit) == ()
    noise.save(tmp_path / "noise.empriv")
    again: Any = empriv.load(tmp_path / "noise.empriv")
    assert isinstance(again, TableNoise if several else empriv.Noise)
    again.certified_for(audit).check_release()
    assert again.achieved_delta() == pytest.approx(noise.achieved_delta(), rel=1e-9)
    if several:  # what is known was read too
        assert replace(again, risk=empriv.measure(results)).achieved_delta() > 2 * noise.achieved_delta()
    # the same results with nothing known are refused: they are not alike from day to day
    plain: Any = empriv.design_noise(empriv.measure(results), epsilon=1.0, delta=0.05, granularity=0.5)
    with pytest.raises(CertificateError, match="independent and identically"):
        plain.check_release()


@pytest.mark.slow
def test_digits_that_residuals_do_not_show_are_judged_beside_them(tmp_path: Path) -> None:
    """The others come in threes, one person alone or in twos: taking a weekly level out hides that from residuals."""
    rng, n = np.random.default_rng(9), 240
    days = np.datetime64("2024-01-01") + np.arange(n)
    others = 3.0 * rng.poisson(20 + 8 * np.isin(np.arange(n) % 7, (5, 6)))
    added = rng.integers(1, 3, (1, n)).astype(float)
    audit = empriv.audit(results_of(days, others + added[0], added), epsilon=1.0)
    risk: Any = audit.against
    assert risk is not None
    assert risk.atoms.digit_steps
    noise: Any = empriv.design_noise(audit, epsilon=1.0, delta=0.05, granularity=0.25)
    assert reasons_against(noise, audit) == ()
    # so is the answer itself hidden, by no less
    answer = JudgedAnswer(audit.risk)
    assert answer.upper(noise.law, 1.0) <= noise.achieved_delta() <= 0.05
    # noise that hides the person in what is left of the answers, and leaves the threes, is not accepted
    narrow = replace(noise, law=Law.of(0.25, [("laplace", 1.0, 0.8)]))
    assert replace(narrow.judged, answers=None).meets_with(narrow.law, 1.0, 0.05)
    assert not narrow.holds
    noise.save(tmp_path / "noise.empriv")
    loaded: Any = empriv.load(tmp_path / "noise.empriv")
    loaded.certified_for(audit).check_release()


@pytest.mark.slow
@pytest.mark.parametrize(("known", "times"), [("auto", 52), (("count", "previous"), 1)])
def test_a_file_is_judged_for_the_readers_that_the_noise_is_for(known: Any, times: int, tmp_path: Path) -> None:
    audit = weekly_audit()
    if known != "auto":
        count = np.random.default_rng(6).normal(50.0, 5.0, audit.results.n_databases)
        audit = empriv.audit(audit.results, epsilon=1.0, known=(count, "previous"))
    audit = audit.repeated(times)
    noise: Any = empriv.design_noise(audit, epsilon=1.0, delta=0.05, granularity=2.0)
    noise.save(tmp_path / "noise.empriv")
    again: Any = empriv.load(tmp_path / "noise.empriv")
    assert again.holds
    assert again.achieved_delta() == noise.achieved_delta()
    assert again.to_json() == noise.to_json()
    again.check_release()
