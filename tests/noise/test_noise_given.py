"""Noise that was designed given what readers know is released if its audit says so, from a file too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.auditing.deciding import reasons_against
from empriv.noise.judging import JudgedAnswer
from empriv.noise.law import Law
from empriv.noise.table_noise import TableNoise


def weekly(people: int = 8, n: int = 210) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers with a strong week, and what each person added."""
    rng = np.random.default_rng(5)
    days = np.datetime64("2024-01-01") + np.arange(n)
    level = 100.0 * np.isin(np.arange(n) % 7, (5, 6))
    added = rng.exponential(1.0, (people, n))
    return days, level + rng.normal(300.0, 10.0, n) + added.sum(axis=0), added


def results_of(days: np.ndarray, q: np.ndarray, added: np.ndarray) -> empriv.Results:
    return empriv.Results.from_arrays(q, q - added, databases=days)


@pytest.mark.parametrize("several", [False, True])
def test_what_the_audit_lets_pass_is_released_from_a_file_too(several: bool, tmp_path: Path) -> None:
    days, q, added = weekly()
    results = results_of(days, q, added)
    if several:
        results = empriv.Results.stack({"a": results, "b": results_of(days, q[::-1].copy(), added[:, ::-1].copy())})
    audit = empriv.audit(results, epsilon=1.0)
    assert audit.against is not None  # the week is known
    noise: Any = empriv.design_noise(audit, epsilon=1.0, delta=0.05, granularity=0.5)
    assert noise.given
    assert reasons_against(noise, audit) == ()
    noise.save(tmp_path / "noise.empriv")
    again: Any = empriv.load(tmp_path / "noise.empriv")
    assert isinstance(again, TableNoise if several else empriv.Noise)
    again.certified_for(audit).check_release()
    # the same results with nothing known are refused: they are not alike from day to day
    plain: Any = empriv.design_noise(empriv.measure(results), epsilon=1.0, delta=0.05, granularity=0.5)
    with pytest.raises(empriv.errors.CertificateError, match="independent and identically"):
        plain.check_release()


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
    assert replace(narrow.judged, beside=None).meets_with(narrow.law, 1.0, 0.05)
    assert not narrow.holds
    noise.save(tmp_path / "noise.empriv")
    loaded: Any = empriv.load(tmp_path / "noise.empriv")
    loaded.certified_for(audit).check_release()


@pytest.mark.parametrize("times", [1, 52])
@pytest.mark.parametrize("known", ["auto", ("count", "previous")])
def test_a_file_is_judged_for_the_readers_that_the_noise_is_for(known: Any, times: int, tmp_path: Path) -> None:
    days, q, added = weekly()
    count = np.random.default_rng(6).normal(50.0, 5.0, len(q))
    asked = known if known == "auto" else (count, "previous")
    audit = empriv.audit(results_of(days, q, added), epsilon=1.0, known=asked).repeated(times)
    noise: Any = empriv.design_noise(audit, epsilon=1.0, delta=0.05, granularity=0.5)
    noise.save(tmp_path / "noise.empriv")
    again: Any = empriv.load(tmp_path / "noise.empriv")
    assert again.holds
    assert again.achieved_delta() == noise.achieved_delta()
    assert again.to_json() == noise.to_json()
    again.check_release()
