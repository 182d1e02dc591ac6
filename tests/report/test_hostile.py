"""The page in headless Chromium, of names that would do harm and of audits at the edge of what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import empriv
from empriv.base.text import visible
from empriv.collecting.origins import Origin
from empriv.report import write_report
from empriv.words.sentences import number
from report.cases import EXTREMES, NASTY, extreme, results

pytestmark = pytest.mark.slow


def test_nasty_names_stay_inert(tmp_path: Path, read: Any) -> None:
    names = [*NASTY, *(f"{text} {k}" for k in range(7) for text in NASTY)]
    held = results(n=40, m=40, individuals=names, databases=[f"{NASTY[k % 5]}{k}" for k in range(40)])
    audit = empriv.audit(held)
    object.__setattr__(audit, "query", " ".join(NASTY))
    object.__setattr__(audit, "origin", Origin(sources=NASTY, database=NASTY[0], individual=NASTY[:3], tables=NASTY))
    verdict = audit.verdict(epsilon=0.05, delta=0.5)
    made = write_report(audit, tmp_path / "r.html", show_ids=True, verdicts=[(NASTY[0], verdict)], title=NASTY[2])
    compared = empriv.compare({NASTY[0]: audit, NASTY[2]: audit}).report(tmp_path / "c.html")
    public = write_report(audit, tmp_path / "p.html", public=True, verdicts=[(NASTY[0], verdict)], title=NASTY[2]).page
    for path in (made.page, compared, public):
        reader = read(path)
        assert reader.noises == []
        assert reader.requests == [path.as_uri()]
        assert reader.page.locator("img, main script").count() == 0
        assert reader.page.locator("script").count() == 2
        assert NASTY[0] in reader.page.inner_text("body")
    shown = set(read(made.page).texts("#who ~ table tbody th"))
    assert shown <= {visible(name) for name in names}
    assert len(shown) == 5
    assert not any("\u2028" in text or "\x1b" in text for text in shown)


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes(name: str, tmp_path: Path, read: Any) -> None:
    audit = extreme(name)
    reader = read(write_report(audit, tmp_path / "r.html").page)
    shown = " ".join(reader.texts("svg"))
    html = reader.page.inner_html("main")
    assert "NaN" not in shown
    assert "NaN" not in html
    assert "undefined" not in html
    assert number(audit.delta(audit.epsilons[0]), 3) in reader.texts("table.asked td")
    assert reader.noises == []
