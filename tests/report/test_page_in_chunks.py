"""The page of people measured in chunks: at their epsilons, and without what needs everybody at once."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import empriv
from empriv.report import CHARTS
from empriv.report.gather import gather
from empriv.words.sentences import number
from report.cases import results

EPSILONS = (0.05, 0.1, 0.3)


@pytest.fixture(scope="module")
def audit() -> empriv.Audit:
    return empriv.audit(results(individuals=[f"client {k}" for k in range(30)]), epsilon=EPSILONS)


@pytest.fixture(scope="module")
def chunked(audit: empriv.Audit) -> empriv.Audit:
    return empriv.audit(audit.results, epsilon=EPSILONS, keep=6, in_chunks=True)


def test_figures_are_those_of_the_audit_and_of_everyone(audit: empriv.Audit, chunked: empriv.Audit) -> None:
    material, of_audit = gather(chunked), gather(audit, EPSILONS)
    np.testing.assert_array_equal(material.epsilons, EPSILONS)
    for name in ("delta", "total_risk", "n_exposed"):
        np.testing.assert_allclose(getattr(material.curves, name), getattr(of_audit.curves, name), rtol=1e-9)
    for name in ("lower", "upper"):
        np.testing.assert_allclose(material.band[name], of_audit.band[name], rtol=1e-9)
    assert material.band["own"].all(), "every epsilon has bounds of its own"
    delta_i = audit.delta_i(EPSILONS)
    assert [chunked.results.individuals[k] for k in material.curves.worst] == [
        audit.results.individuals[k] for k in delta_i.argmax(axis=0)
    ]


def test_of_more_epsilons_than_an_audit_would_bound_all_have_bounds() -> None:
    many = np.linspace(0.02, 0.4, 12)
    material = gather(empriv.audit(results(), epsilon=many, keep=3, in_chunks=True))
    assert len(material.bounded_at) == 12
    assert gather(empriv.audit(results(), epsilon=many)).band["own"].sum() < 12


def test_charts_are_those_that_need_not_everybody(chunked: empriv.Audit, tmp_path: Path) -> None:
    material = gather(chunked)
    drawn = [name for name, make in CHARTS.items() if make(material) is not None]
    assert sorted(drawn) == ["delta", "density", "moves", "results", "total_risk"]
    for name in drawn:
        chunked.chart(name).save(tmp_path / f"{name}.svg")
    curve = chunked.chart("delta", 0.1)
    assert curve.data["epsilon"] == list(EPSILONS)
    assert curve.data["estimate"] == [number(float(value), 3) for value in chunked.delta(EPSILONS)]
    assert "Only these epsilons were measured" in curve.caption


def test_what_was_not_measured_is_not_drawn(chunked: empriv.Audit) -> None:
    with pytest.raises(empriv.InputError, match="one that people were measured at"):
        chunked.chart("delta", 0.2)


def test_one_epsilon_is_a_point(tmp_path: Path) -> None:
    made = empriv.audit(results(), epsilon=0.1, keep=3, in_chunks=True)
    assert "Only this epsilon was measured." in made.chart("delta").caption
    assert made.report(tmp_path / "audit.html").page.read_text().count("<figure") == 3


def test_the_page_and_its_key(chunked: empriv.Audit, tmp_path: Path) -> None:
    written = chunked.report(tmp_path / "audit.html")
    page = written.page.read_text()
    kept = chunked.results.n_individuals
    assert 6 <= kept < 30
    assert "client " not in page, "pseudonyms, as of an audit"
    assert written.key is not None
    assert sorted(json.loads(written.key.read_text())["individuals"].values()) == sorted(chunked.results.individuals)
    schema = json.loads((files("empriv.report") / "schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(chunked.to_json())))
    assert chunked._repr_html_().startswith("<div>")  # type: ignore[union-attr]


def test_the_page_shows_what_it_gives(chunked: empriv.Audit, tmp_path: Path, read: Any) -> None:
    reader = read(chunked.report(tmp_path / "audit.html", show_ids=True).page)
    assert number(chunked.delta(EPSILONS[0]), 3) in reader.texts("table.asked td")
    shown = reader.texts("#who ~ table tbody th")
    assert shown[0] == chunked.moved(top=1, show_ids=True).individual[0]
    assert reader.noises == []
    assert reader.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
