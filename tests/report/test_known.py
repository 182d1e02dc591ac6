"""Charts given what is known: the level that can be predicted, with its band, and the densities of residuals."""

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


def test_level_and_band_are_those_of_the_model(audit: empriv.Audit) -> None:
    answers = chart(audit, "results")
    residuals = audit.against.residuals  # type: ignore[union-attr]
    assert answers.data["predicted"][0] is None  # the first day has no previous answer
    answer, predicted, low, high = (np.array(answers.data[name][1:]) for name in ("answer", "predicted", "from", "to"))
    assert predicted == pytest.approx(residuals.fit.level, rel=1e-5)
    assert np.mean((low <= answer) & (answer <= high)) == pytest.approx(0.95, abs=0.02)
    ElementTree.fromstring(answers.svg)
    assert not any(name in json.dumps(answers.spec) for name in (NASTY[0], "client"))


def test_densities_are_of_residuals(audit: empriv.Audit) -> None:
    made = chart(audit, "density")
    places = made.data["residual of a query result"]
    assert max(places) - min(places) < 40
    assert "without what is known" in made.caption


@pytest.mark.slow
def test_the_page_says_what_readers_know_and_people_in_chunks_have_the_same_band(
    audit: empriv.Audit, tmp_path: Path
) -> None:
    page = audit.report(tmp_path / "page.html").page.read_text()
    assert "readers who may know the calendar and the previous answer" in page
    chunked = empriv.audit(results(), epsilon=0.1, known=empriv.Given("calendar", "previous"), in_chunks=True)
    assert chunked.chart("results").data == audit.chart("results").data


def test_logarithms_are_drawn_in_units_of_the_results() -> None:
    rng = np.random.default_rng(0)
    q = np.exp(5 + 0.004 * np.arange(200) + rng.normal(0, 0.1, 200))
    own = empriv.Results.from_arrays(q, q[None] - 1.0)
    audit = empriv.audit(own, epsilon=0.1)
    assert audit.against.residuals.logarithm
    made = chart(audit, "results")
    assert np.corrcoef(made.data["predicted"], made.data["answer"])[0, 1] > 0.5
    assert min(made.data["from"]) > 50
