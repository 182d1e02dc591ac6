"""The page of an answer with noise, in headless Chromium: its decision, its error, its law, and what it hides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.errors import InputError
from empriv.report import write_report
from empriv.words.sentences import amount
from report.cases import NASTY

REFUSE = "Refuse to sign if databases to come will not be like these, or readers know more."


@pytest.fixture(scope="module")
def audit() -> empriv.Audit:
    rng = np.random.default_rng(1)
    q = rng.normal(50.0, 2.0, 60)
    return empriv.audit(empriv.Results.from_arrays(q, q - rng.exponential(1.0, (3, 60))), epsilon=0.5, unit="min")


def test_it_says_what_the_noise_holds(audit: empriv.Audit, tmp_path: Path, read: Any) -> None:
    noise = empriv.design_noise(audit, epsilon=0.5, delta=0.05, granularity=0.25)
    page = write_report(audit, tmp_path / "noise.html", noise=noise, title=NASTY[0]).page
    assert page.stat().st_mode & 0o777 == 0o600
    reader = read(page, viewport={"width": 390, "height": 900})
    made = audit.decision(audit.verdict(epsilon=0.5, delta=0.05), noise=noise)
    assert [text for text in reader.texts(".decision p") if "before signing" not in text] == [
        made.line, made.reason, f"{made.promise} {made.condition} {REFUSE}"
    ]  # fmt: skip
    assert noise.law.words in reader.page.inner_text("main")
    assert f"±{amount(noise.expected_error, 'min')}" in reader.texts("#noise ~ table")[0]
    # the picture is of the noisy answer: nobody is beyond what it hides
    assert f"hidden up to {amount(noise.cover, 'min')}" in reader.page.inner_text("figure[data-chart=moves]")
    assert "All are hidden." in reader.page.inner_text("figure[data-chart=moves]")
    assert reader.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert reader.noises == []
    assert reader.requests == [page.as_uri()]
    assert reader.page.locator("h1").inner_text() == NASTY[0]
    content = reader.page.pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type /Page\b", content)) == 2
    with pytest.raises(InputError, match="must end in"):
        write_report(audit, tmp_path / "noise.txt", noise=noise)


@pytest.mark.slow
def test_several_numbers_have_an_error_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(100.0, 10.0, (2, 60))
    vector = {name: empriv.Results.from_arrays(x, [x - 1.0]) for name, x in zip(("a", NASTY[1]), q, strict=True)}
    audit = empriv.audit(empriv.Results.stack(vector), epsilon=0.5)
    noise = empriv.design_noise(audit, epsilon=0.5, delta=0.05, granularity=0.25)
    text = write_report(audit, tmp_path / "noise.html", noise=noise).page.read_text()
    for error in noise.expected_error.values():
        assert f"±{amount(error)}" in text
    assert "<img" not in text
