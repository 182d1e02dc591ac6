"""The command `compare`: saved audits side by side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import empriv
from cli.conftest import Run

BOTH = ("raw.empriv", "rounded.empriv")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two saved audits."""
    folder = tmp_path_factory.mktemp("audits")
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "day": np.repeat(np.arange(60), 40),
            "client": [f"secret{k}" for k in range(40)] * 60,
            "amount": rng.lognormal(1, 0.6, 2400).round(2),
        }
    )
    data = empriv.databases(table, database="day", individual="client")
    for name, query in zip(BOTH, ("sum(amount)", "round(sum(amount), -1)"), strict=True):
        empriv.audit(data, query, epsilon=1.0, known="nothing").save(folder / name)
    return folder


@pytest.mark.slow
def test_saved_audits(run: Run) -> None:
    shown = run("compare", *BOTH, "--truth", "raw", "--json", "c.json", "--report", "c.html").output
    assert "Errors are against the answers of raw." in shown
    assert "Wrote c.html." in shown
    assert "secret" not in shown + Path("c.json").read_text() + Path("c.html").read_text()
    found = json.loads(Path("c.json").read_text())
    assert found["epsilons"] == [1.0]
    here = empriv.compare({name: empriv.load(f"{name}.empriv") for name in ("raw", "rounded")}, truth="raw", epsilon=1)
    assert found == json.loads(json.dumps(here.to_json()))
    assert "No truth was named" in run("compare", *BOTH, "--epsilon", "0.1").output
    assert run("compare", *BOTH, "--quiet").output == ""


@pytest.mark.slow
def test_a_target_recommends_or_exits_with_3(run: Run) -> None:
    assert "delta <= 0.9 at epsilon 1" in run("compare", *BOTH, "--target", "delta <= 0.9 at 1").output
    assert "None of the 2 ways" in run("compare", *BOTH, "--target", "delta <= 0 at 1", code=3).output


def test_wrong_use_is_said(run: Run) -> None:
    assert "at least two" in run("compare", "raw.empriv", code=2).output
    assert "different names" in run("compare", "raw.empriv", "raw.empriv", code=1).output
    assert "must name one of the protocols" in run("compare", *BOTH, "--truth", "x", code=1).output
    Path("c.html").mkdir()
    assert "must go to a file" in run("compare", *BOTH, "--report", "c.html", code=1).output
    assert "must not replace what is read" in run("compare", *BOTH, "--json", "raw.empriv", code=1).output
