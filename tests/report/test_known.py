"""Charts given what is known: level and band, what is left with and without the most exposed, delta by context."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import empriv
from empriv.report import chart
from report.cases import NASTY

N, PEOPLE = 120, 6


def results(rng: int = 4) -> empriv.Results:
    """Daily takings with a weekday pattern; somebody with a nasty name comes on Sundays."""
    generator = np.random.default_rng(rng)
    days = np.datetime64("2024-01-01") + np.arange(N)
    spent = generator.exponential(1.0, (PEOPLE, N))
    spent[0] = np.where(np.arange(N) % 7 == 6, 4.0, 0.0)
    q = 100 + 12.0 * (np.arange(N) % 7 == 4) + 2 * generator.normal(size=N) + spent.sum(axis=0)
    names = [NASTY[0], *(f"client {k}" for k in range(1, PEOPLE))]
    return empriv.Results.from_arrays(q, q - spent, databases=days, individuals=names)


@pytest.fixture(scope="module")
def audit() -> empriv.Audit:
    return empriv.audit(results(), epsilon=0.1, known=empriv.Given("calendar", "previous"))


def test_level_band_and_what_is_left_are_those_of_the_model(audit: empriv.Audit) -> None:
    answers, made = chart(audit, "results"), chart(audit, "known")
    residuals = audit.against.residuals  # type: ignore[union-attr]
    assert answers.data["predicted"][0] is None  # the first day has no previous answer
    answer, predicted, low, high = (np.array(answers.data[name][1:]) for name in ("answer", "predicted", "from", "to"))
    assert predicted == pytest.approx(residuals.fit.level, rel=1e-5)
    assert np.mean((low <= answer) & (answer <= high)) == pytest.approx(0.95, abs=0.02)
    assert len(made.data["database"]) == N - 1
    assert made.data["with everyone"] == pytest.approx((answer - predicted) * residuals.fit.calm, abs=1e-3)
    row = int(np.argmax(audit.delta_i(0.1)))
    moved = np.subtract(made.data["with everyone"], made.data["without the most exposed"])
    own = results()
    assert moved == pytest.approx((own.q - own.entry_q.reshape(PEOPLE, N)[row])[1:] / residuals.units, abs=1e-3)
    ElementTree.fromstring(made.svg)
    assert not any(name in json.dumps((made.spec, answers.spec)) for name in (NASTY[0], "client"))


def test_densities_are_of_what_is_left(audit: empriv.Audit) -> None:
    made = chart(audit, "density")
    places = made.data["residual of a query result"]
    assert max(places) - min(places) < 40
    assert "without what is known" in made.caption


def test_the_page_and_a_scan_have_them(audit: empriv.Audit, tmp_path: Path) -> None:
    shown, kept = (audit.report(tmp_path / f"{answers}.html", answers=answers).page for answers in (True, False))
    assert "Residuals, once what is known is regressed out" in shown.read_text()
    assert "Residuals, once what is known is regressed out" not in kept.read_text()
    assert "readers who may know the calendar and the previous answer" in kept.read_text()
    chunked = empriv.audit(results(), epsilon=0.1, known=empriv.Given("calendar", "previous"), in_chunks=True)
    assert chunked.chart("known").data == audit.chart("known").data
    plain = empriv.audit(results(), epsilon=0.1, known="nothing")
    with pytest.raises(empriv.InputError, match="nothing to draw"):
        plain.chart("known")


def test_logarithms_are_drawn_in_units_of_the_results() -> None:
    rng = np.random.default_rng(0)
    q = np.exp(5 + 0.004 * np.arange(200) + rng.normal(0, 0.1, 200))
    own = empriv.Results.from_arrays(q, q[None] - 1.0)
    audit = empriv.audit(own, epsilon=0.1)
    assert audit.against.residuals.logarithm
    made = chart(audit, "results")
    assert np.corrcoef(made.data["predicted"], made.data["answer"])[0, 1] > 0.5
    assert min(made.data["from"]) > 50
