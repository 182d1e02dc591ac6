"""Reports of audits given what is known, of several numbers, and beside earlier releases."""

from __future__ import annotations

import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.report import write_report
from empriv.report.charts.all_charts import charts_of
from empriv.report.gather import before, gather
from empriv.report.page.audit_page import unchecked
from empriv.words.sentences import number
from report.cases import NASTY, results

DAYS, PEOPLE = 60, 4
SUM = "SELECT sum(amount) FROM data"


@pytest.fixture(scope="module")
def data() -> Any:
    rng = np.random.default_rng(5)
    there = rng.random((DAYS, PEOPLE)) < 0.8
    there[:, :2] = True  # so that nobody is ever alone
    day, who = np.nonzero(there)
    amount = rng.lognormal(0.0, 0.5, len(day)).round(3)
    rows = pd.DataFrame({"day": day, "who": [f"p{k}" for k in who], "amount": amount})
    return empriv.databases(rows, database="day", individual="who")


@pytest.fixture(scope="module")
def against(data: Any) -> empriv.Audit:
    return empriv.audit(data, SUM, known="buckets:count(*)", epsilon=[0.1, 0.5])


def words_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return unescape(re.sub(r"<[^>]+>", " ", text[: text.index('<script type="application/json"')]))


@pytest.mark.slow
def test_what_readers_know(against: empriv.Audit, tmp_path: Path) -> None:
    assert against.against is not None
    page = words_of(write_report(against, tmp_path / "r.html", epsilons=[0.1, 0.5]).page)
    for finding in against.against.findings:
        assert finding.sentence in page
    material = gather(against, [0.1, 0.5])
    assert material.curves.delta.tolist() == against.delta(material.epsilons).tolist()
    public = words_of(write_report(against, tmp_path / "p.html", public=True).page)
    assert "for readers who know this about each database: the bucket of count(*)" in public


@pytest.mark.slow
def test_in_the_browser(against: empriv.Audit, five: empriv.Audit, tmp_path: Path, read: Any) -> None:
    for audit, name in ((against, "delta_i"), (five, "joint")):
        reader = read(write_report(audit, tmp_path / f"{name}.html", epsilons=[0.1, 0.5]).page)
        assert reader.texts("#statistician .card b")[0] == number(audit.delta(audit.epsilons[0]), 3)
        assert reader.page.locator(f"figure[data-chart={name}] svg").is_visible()
        assert reader.noises == []


def test_nobody_knows_anything(ordinary: empriv.Audit) -> None:
    assert "only this one result is covered." in unchecked(ordinary)[0]


@pytest.fixture(scope="module")
def five() -> empriv.Audit:
    rng = np.random.default_rng(0)
    q = rng.normal(size=40)
    numbers = {"a": q, "b": q + 0.05 * rng.normal(size=40), NASTY[0]: q**2, "d": rng.normal(size=40),
               "e": rng.normal(size=40)}  # fmt: skip
    parts = {
        name: empriv.Results.from_arrays(value, value - 0.05 * rng.exponential(size=(3, 40)))
        for name, value in numbers.items()
    }
    return empriv.audit(empriv.Results.stack(parts))


@pytest.mark.slow
def test_several_numbers(five: empriv.Audit) -> None:
    drawn = {one.name: one for one in charts_of(gather(five, [0.05, 0.2]))}
    assert "density" not in drawn
    joint, each = drawn["joint"], drawn["results"]
    assert len(joint.spec["vconcat"]) == 3
    first = joint.spec["vconcat"][0]["layer"][0]["encoding"]
    assert (first["x"]["axis"]["title"], first["y"]["axis"]["title"]) == ("a", "b")  # which hardly differ
    assert "Of 10 pairs, the chart shows those that are most correlated" in joint.caption
    assert len(each.spec["vconcat"]) == 4
    assert "1 more number is not drawn." in each.caption
    assert list(each.data) == ["database", *five.results.components[:4]]
    assert each.data["d"] == pytest.approx(five.results.component("d").q.tolist(), rel=1e-5)
    for made in (joint, each):
        assert "<script" not in made.svg
    assert "only these numbers together are covered" in unchecked(five)[0]


@pytest.mark.slow
def test_beside_earlier_releases(data: Any, tmp_path: Path) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    first = empriv.audit(data, SUM, ledger=ledger)
    noise = empriv.design_noise(first, epsilon=50.0, delta=0.0, method="classical", granularity=2.0**-6)
    first.release(5.0, noise=noise, ledger=ledger, database=3)
    second = empriv.audit(data, "SELECT sum(amount) FROM data WHERE who <> 'p0'", ledger=ledger, epsilon=0.5)
    assert second.composition is not None
    page = words_of(write_report(second, tmp_path / "r.html", epsilons=[0.5]).page)
    assert "only this query and 1 earlier release are covered" in page
    assert "Numbers released together" in page
    said = second.with_validity(second.summary())
    for sentence in (*said.alarms, *said.warnings, *said.notes):
        assert sentence in page


def test_an_upper_bound_carried_to_smaller_epsilons_holds() -> None:
    audit = empriv.audit(results(n=40, m=6))
    grid = np.linspace(0.0, 0.4, 9)
    gap = grid[-1] - grid
    delta, total = audit.delta(grid), audit.total_risk(grid)
    # of the estimates, which are deltas of known laws
    assert (before(np.full(9, delta[-1]), gap, 1) >= delta - 1e-12).all()
    assert (before(np.full(9, total[-1]), gap, 6) >= total - 1e-12).all()
    assert not (np.full(9, delta[-1]) >= delta).all()  # without carrying it would not
    assert before(np.array([0.25]), np.array([0.0]), 3).tolist() == [0.25]
    # tight for two laws that never meet, and for a coin that is shown or not
    assert before(np.array([1.0]), np.array([0.3]), 1)[0] == 1.0
    assert before(np.array([0.0]), np.array([math.log(2)]), 1)[0] == pytest.approx(0.5)


def test_the_band_holds_below_the_first_epsilon_asked_for() -> None:
    audit = empriv.audit(results(n=60, m=6), epsilon=[0.1, 0.3])
    band, epsilons = gather(audit).band, gather(audit).epsilons
    below = epsilons < 0.1
    assert (np.diff(band["upper"]) <= 1e-12).all()
    assert (band["upper"][below] < 1).all()
    own = float(audit.bounds(0.1).upper)
    assert band["upper"][0] == pytest.approx(1 - math.exp(-0.1) * (1 - own))
