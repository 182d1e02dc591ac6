"""The page that may be published: the decision of the page inside, nobody, no answer, and no exact figure."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.main import main
from empriv.report.writing import rounded_up

TARGET = "delta <= 0.2 at 0.1"


@pytest.fixture(scope="module")
def audit() -> empriv.Audit:
    draws = np.random.default_rng(0)
    q = draws.normal(1234.5, 10.0, 120)
    moved = [q - k / 7 for k in range(1, 18)]
    held = empriv.Results.from_arrays(q, moved, individuals=[f"client {k}" for k in range(17)])
    return empriv.audit(held, epsilon=[0.1], target=TARGET)


@pytest.fixture(scope="module")
def noise(audit: empriv.Audit) -> Any:
    return empriv.design_noise(audit, epsilon=0.1, delta=0.2, granularity=0.25)


def shown(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text[text.index("<body>") : text.index("<script")])).split())


@pytest.mark.slow
@pytest.mark.parametrize("with_noise", [False, True])
def test_it_says_what_the_page_inside_says(audit: empriv.Audit, noise: Any, with_noise: bool, tmp_path: Path) -> None:
    chosen = noise if with_noise else None
    inside = audit.report(tmp_path / "inside.html", noise=chosen)
    public = audit.report(tmp_path / "public.html", noise=chosen, public=True)
    assert public.decision == inside.decision
    assert public.key is None
    text = shown(public.page)
    assert inside.decision.word in text
    assert inside.decision.promise in text
    assert (TARGET + (" met, with the noise" if with_noise else "")) in text


@pytest.mark.parametrize("with_noise", [False, True])
def test_it_holds_nobody_no_answer_and_no_exact_figure(
    audit: empriv.Audit, noise: Any, with_noise: bool, tmp_path: Path
) -> None:
    made = audit.report(tmp_path / "p.html", noise=noise if with_noise else None, public=True)
    assert [path.name for path in tmp_path.iterdir()] == ["p.html"]
    text = shown(made.page)
    assert "client" not in text
    assert "up to 20 individuals" in text
    figures = {float(found) for found in re.findall(r"\d+(?:\.\d+)?", text.replace(",", ""))}
    known = {0.1, 0.2, 120.0, 20.0, 95.0, 50.0, 52.5, 0.0, *((rounded_up(noise.expected_error),) if with_noise else ())}
    version = {float(part) for part in re.findall(r"\d+(?:\.\d+)?", empriv.__version__)}
    assert figures <= known | version
    with pytest.raises(empriv.InputError, match="`public` must not go with"):
        audit.report(tmp_path / "q.html", public=True, show_ids=True)


@pytest.mark.parametrize(
    ("value", "digit"), [(193, 200.0), (200, 200.0), (17, 20.0), (0.061, 0.07), (1.0, 1.0), (9.5, 10.0), (0, 0)]
)
def test_figures_are_rounded_up(value: float, digit: float) -> None:
    assert rounded_up(value) == pytest.approx(digit)


def test_the_command_writes_it(audit: empriv.Audit, noise: Any, tmp_path: Path) -> None:
    audit.save(tmp_path / "a.empriv")
    noise.save(tmp_path / "n.empriv")
    for options, word in (((), audit.decision().word), (("--noise", str(tmp_path / "n.empriv")), "Publish with noise")):
        page = tmp_path / "page.html"
        done = CliRunner().invoke(main, ["export", str(tmp_path / "a.empriv"), "--public", str(page), *options])
        assert done.exit_code == 0, done.output
        assert word in shown(page)
    refused = CliRunner().invoke(main, ["export", str(tmp_path / "a.empriv"), "--public", str(tmp_path / "page.txt")])
    assert refused.exit_code == 1
    assert "must end in .html" in refused.output
