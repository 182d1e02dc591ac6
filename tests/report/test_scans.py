"""The page of a scan: that of an audit, at the epsilons it was made for and without what needs everybody at once."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import empriv
from empriv.report import CHARTS
from empriv.report.gather import gather
from empriv.scale.tally import EDGES
from empriv.words.sentences import number
from report.cases import results

EPSILONS = (0.05, 0.1, 0.3)


@pytest.fixture(scope="module")
def audit() -> empriv.Audit:
    return empriv.audit(results(individuals=[f"client {k}" for k in range(30)]), epsilon=EPSILONS)


@pytest.fixture(scope="module")
def scan(audit: empriv.Audit) -> empriv.Scan:
    return empriv.scan(audit.results, epsilon=EPSILONS, top=6)


def test_figures_are_those_of_the_audit_and_of_everyone(audit: empriv.Audit, scan: empriv.Scan) -> None:
    material, of_audit = gather(scan), gather(audit, EPSILONS)
    np.testing.assert_array_equal(material.epsilons, EPSILONS)
    for name in ("delta", "total_risk", "n_exposed"):
        np.testing.assert_allclose(getattr(material.curves, name), getattr(of_audit.curves, name), rtol=1e-9)
    for name in ("lower", "upper"):
        np.testing.assert_allclose(material.band[name], of_audit.band[name], rtol=1e-9)
    assert material.band["own"].all(), "every epsilon of a scan has bounds of its own"
    delta_i = audit.delta_i(EPSILONS)
    assert material.curves.histogram.sum(axis=1).tolist() == [30, 30, 30]
    for column, counts in zip(delta_i.T, material.curves.histogram, strict=True):
        between = [np.count_nonzero((column > a) & (column <= b)) for a, b in pairwise(EDGES)]
        assert counts.tolist() == [np.count_nonzero(column == 0), *between]
    assert [scan.results.individuals[k] for k in material.curves.worst] == [
        audit.results.individuals[k] for k in delta_i.argmax(axis=0)
    ]


def test_of_more_epsilons_than_an_audit_would_bound_all_have_bounds() -> None:
    many = np.linspace(0.02, 0.4, 12)
    material = gather(empriv.scan(results(), epsilon=many, top=3))
    assert len(material.bounded_at) == 12
    assert gather(empriv.audit(results(), epsilon=many)).band["own"].sum() < 12


def test_charts_are_those_that_need_not_everybody(scan: empriv.Scan, tmp_path: Path) -> None:
    material = gather(scan)
    drawn = [name for name, make in CHARTS.items() if make(material) is not None]
    assert drawn == ["results", "delta", "total_risk", "density"]
    for name in drawn:
        scan.chart(name).save(tmp_path / f"{name}.svg")
    curve = scan.chart("delta", 0.1)
    assert curve.data["epsilon"] == list(EPSILONS)
    assert curve.data["estimate"] == [number(float(value), 3) for value in scan.delta(EPSILONS)]
    assert "Only these epsilons were measured" in curve.caption


def test_what_was_not_scanned_is_not_drawn(scan: empriv.Scan, tmp_path: Path) -> None:
    with pytest.raises(empriv.InputError, match="one that the scan was made for"):
        scan.chart("delta", 0.2)
    with pytest.raises(empriv.InputError, match="one that the scan was made for"):
        scan.report(tmp_path / "scan.html", epsilons=[0.2])
    assert list(tmp_path.iterdir()) == []


def test_one_epsilon_is_a_point(tmp_path: Path) -> None:
    made = empriv.scan(results(), epsilon=0.1, top=3, bounds=False)
    assert "Only this epsilon was measured." in made.chart("delta").caption
    assert made.report(tmp_path / "scan.html").page.read_text().count("<figure") == 2


def test_the_page_and_what_lies_beside_it(scan: empriv.Scan, tmp_path: Path) -> None:
    written = scan.report(tmp_path / "scan.html", beside=True)
    page = written.page.read_text()
    kept = scan.results.n_individuals
    assert 6 <= kept < 30
    assert "client " not in page, "pseudonyms, as of an audit"
    assert written.key is not None
    assert sorted(json.loads(written.key.read_text())["individuals"].values()) == sorted(scan.results.individuals)
    assert written.json is not None
    figures = json.loads(written.json.read_text())
    schema = json.loads((files("empriv.report") / "schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(figures)
    assert [row["delta"] for row in figures["curves"]] == scan.delta(EPSILONS).tolist()
    assert scan._repr_html_().startswith("<div>")  # type: ignore[union-attr]


def test_the_public_page_has_the_scans_epsilons_and_nobody(scan: empriv.Scan, tmp_path: Path) -> None:
    page = scan.report(tmp_path / "public.html", public=True).page.read_text()
    assert "up to 30 individuals" in page
    assert "delta_i" not in page.split("<script")[0].split("</style>")[1]


def test_the_page_shows_what_the_scan_gives(scan: empriv.Scan, tmp_path: Path, read: Any) -> None:
    reader = read(scan.report(tmp_path / "scan.html", show_ids=True).page)
    assert number(scan.delta(EPSILONS[0]), 3) in reader.texts("table.asked td")
    shown = reader.texts("#who ~ table tbody th")
    assert shown[0] == scan.individuals(EPSILONS[0], top=1)["individual"][0]
    assert reader.noises == []
    assert reader.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
