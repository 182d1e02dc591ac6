"""The page and the charts of a comparison: what they say, that they read well, that names stay inert."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.comparing.comparison import rows_of
from empriv.errors import InputError
from empriv.report.comparison_page import errors_chart
from report.cases import NASTY, results


@pytest.fixture(scope="module")
def compared() -> empriv.Comparison:
    raw = results()
    rng = np.random.default_rng(9)
    noise = rng.normal(scale=0.5, size=raw.n_databases)
    noisy = replace(raw, q=raw.q + noise, entry_q=raw.entry_q + noise[raw.entry_database])
    gone = replace(raw, outcomes=raw.outcomes.copy(), q=raw.q.copy())
    gone.outcomes[:4], gone.q[:4] = empriv.Outcome.NULL, np.nan
    protocols = {"raw": raw, NASTY[0]: noisy, "gone <b>": gone}
    return empriv.compare(protocols, epsilon=(0.1, 0.5), truth="raw", target={"epsilon": 0.1, "delta": 0.5})


@pytest.fixture(scope="module")
def page(compared: empriv.Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compared.report(tmp_path_factory.mktemp("compared") / "c.html")


@pytest.mark.slow
def test_the_page_says_what_the_comparison_holds(compared: empriv.Comparison, page: Path) -> None:
    text = unescape(page.read_text(encoding="utf-8"))
    assert page.stat().st_mode & 0o777 == 0o600
    recommended = compared.recommendation
    assert recommended is not None
    assert text.count(recommended.sentence) == 1
    assert text.count('class="pill') == len(recommended.verdicts)
    assert "Errors are against the answers of raw." in text
    assert "10%" in text  # gave no answer


@pytest.mark.slow
def test_figures_are_those_of_the_terminal_and_names_stay_inert(
    compared: empriv.Comparison, page: Path, read: Any
) -> None:
    reader = read(page)
    for k, epsilon in enumerate(compared.epsilons):
        row = reader.page.locator("main > table").nth(k).locator("tbody tr").nth(1)
        assert tuple(row.locator("td").all_inner_texts()) == rows_of(compared, epsilon)[1][1:]
    assert reader.noises == []
    assert reader.requests == [page.as_uri()]
    assert reader.page.locator("script").count() == 2
    assert reader.page.locator("main b b").count() == 0
    assert NASTY[0] in reader.page.inner_text("body")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 360)])
def test_accessible(page: Path, read: Any, axe: str, scheme: str, width: int) -> None:
    reader = read(page, color_scheme=scheme, viewport={"width": width, "height": 900})
    assert reader.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    reader.page.evaluate(f"() => {{ {axe} }}")
    found = reader.page.evaluate("async () => (await axe.run()).violations")
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []


@pytest.mark.slow
def test_the_chart_of_errors(compared: empriv.Comparison, tmp_path: Path) -> None:
    made = compared.chart(0.5)
    made.save(tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert made.data["front"].count("yes") == len(compared.front(0.5))
    assert made.data["protocol"][0] == "raw"
    assert made.data["delta (most exposed individual)"][0] == pytest.approx(compared.delta(0.5)["raw"], rel=1e-5)
    twelve = errors_chart({f"protocol {k}": (float(k), 0.1) for k in range(12)}, [], title="")
    marks = next(part for part in twelve.spec["layer"] if part["name"] == "marks")["encoding"]
    styles = set(zip(marks["color"]["scale"]["range"], marks["shape"]["scale"]["range"], strict=True))
    assert len(styles) == 12
    with pytest.raises(InputError, match="must have a truth"):
        replace(compared, truth=None).chart()


@pytest.mark.slow
def test_audits_of_different_databases_are_said_to_be(tmp_path: Path) -> None:
    found = empriv.compare({"one": results(), "other": results(n=50, m=10)}, epsilon=0.1)
    text = found.report(tmp_path / "c.html", title="<i>mine</i>").read_text(encoding="utf-8")
    assert "measured on different databases" in text
    assert "<i>" not in text


def test_wrong_use_is_said(compared: empriv.Comparison, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"`path` must end in \.html"):
        compared.report(tmp_path / "c.pdf")
    long = "a" * 60
    with pytest.raises(InputError, match="first 37 characters"):
        empriv.compare({long + "b": results(), long + "c": results()}).report(tmp_path / "c.html")
