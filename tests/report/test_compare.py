"""The page and the charts of a comparison: what they say, that they read well, that names stay inert."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.errors import InputError
from empriv.words.sentences import number
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
    assert text.index(recommended.sentence) < text.index("is the failure probability")
    assert text.count('class="pill') == len(recommended.verdicts)
    assert "against the answers of <b>raw</b>" in text
    assert "10%" in text  # gave no answer
    one = compared["raw"].results
    assert f"All were measured on {one.n_databases} databases with {one.n_individuals} individuals." in text
    assert "against epsilon" in text


@pytest.mark.slow
def test_figures_are_shown_and_names_stay_inert(compared: empriv.Comparison, page: Path, read: Any) -> None:
    reader = read(page)
    for k, epsilon in enumerate(compared.epsilons):
        row = reader.page.locator("main > table").nth(k).locator("tbody tr").nth(1)
        cells = row.locator("td").all_inner_texts()
        assert cells[0] == number(compared.delta(epsilon)[NASTY[0]], 3)
        assert cells[2] == number(compared.total_risk(epsilon)[NASTY[0]], 3)
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
def test_charts(compared: empriv.Comparison, tmp_path: Path) -> None:
    for name in ("delta", "total_risk", "utility"):
        made = compared.chart(name, 0.5)
        made.save(tmp_path / "c.png")
        assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert compared.chart("utility", 0.5).data["front"].count("yes") == len(compared.front(0.5))
    along = compared.chart("delta", 0.5)
    k = along.data["epsilon"].index(0.5)
    assert along.data["raw"][k] == pytest.approx(compared.delta(0.5)["raw"], rel=1e-5)
    styles = [(one["color"], str(one["dash"])) for one in _styles(twelve())]
    assert len(set(styles)) == 12  # a thirteenth would repeat one
    with pytest.raises(InputError, match="`name` must be one of"):
        compared.chart("risk")
    with pytest.raises(InputError, match="without a truth"):
        replace(compared, truth=None).chart("utility")


def twelve() -> empriv.Comparison:
    return empriv.compare({f"protocol {k}": results(m=2, seed=k) for k in range(12)}, epsilon=0.1)


def _styles(comparison: empriv.Comparison) -> list[dict[str, Any]]:
    overlay = comparison.chart("delta").spec["layer"]
    encoding = next(one for one in overlay if one["name"] == "lines")["encoding"]
    ranges = zip(encoding["color"]["scale"]["range"], encoding["strokeDash"]["scale"]["range"], strict=True)
    return [{"color": colour, "dash": dash} for colour, dash in ranges]


@pytest.mark.slow
def test_audits_of_different_databases_are_said_to_be(tmp_path: Path) -> None:
    found = empriv.compare({"one": results(), "other": results(n=50, m=10)}, epsilon=0.1)
    text = found.report(tmp_path / "c.html", title="<i>mine</i>").read_text(encoding="utf-8")
    assert "measured on different databases" in text
    assert "All were measured on" not in text
    assert '<th scope="col">individuals</th>' in text
    assert "<i>" not in text


def test_wrong_use_is_said(compared: empriv.Comparison, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"`path` must end in \.html"):
        compared.report(tmp_path / "c.pdf")
    long = "a" * 60
    with pytest.raises(InputError, match="first 37 characters"):
        empriv.compare({long + "b": results(), long + "c": results()}).report(tmp_path / "c.html")
