"""A verdict asks by default what people did on the days they did it, beside the paper's random database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.main import main

EPSILON = 0.1


@pytest.fixture(scope="module")
def sites() -> empriv.Databases:
    """Average salaries at 100 sites: everybody works at one of them, and one earns 5,000,000."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    salary = rng.normal(50_000.0, 10_000.0, 1_000)
    salary[17] = 5_000_000.0
    site = np.array([f"site {k % 100}" for k in range(1_000)])
    table = pa.table({"site": site, "person": np.arange(1_000), "salary": salary})
    return empriv.databases(table, database="site", individual="person")


@pytest.fixture(scope="module")
def audit(sites: empriv.Databases) -> empriv.Audit:
    return empriv.audit(sites, "avg(salary)", epsilon=EPSILON)


def test_a_salary_of_five_million_fails(audit: empriv.Audit) -> None:
    assert audit.delta(EPSILON) <= 0.011  # in 1 of 100 databases
    failed = audit.verdict(epsilon=EPSILON, delta=0.05)
    assert failed == "fail"
    assert failed.day is not None
    assert failed.day.people_beyond >= 1
    assert failed.day.largest == pytest.approx(audit.moved().most)
    assert failed.day.largest > 300_000
    assert audit.verdict(epsilon=EPSILON, delta=0.05, presence="random") != "fail"


def test_the_paper_s_judgement_stays_the_paper_s(audit: empriv.Audit) -> None:
    both = audit.verdict(epsilon=EPSILON, delta=0.05)
    assert both.by_estimate == "pass"
    assert both.sentence.startswith("By the paper's definition: pass; at 95% confidence: fail")
    assert audit.verdict(epsilon=EPSILON, delta=0.05, basis="estimate") == "pass"
    random = audit.verdict(epsilon=EPSILON, delta=0.05, presence="random")
    assert random.day is None
    with pytest.raises(empriv.InputError, match="`presence` must be"):
        audit.verdict(epsilon=EPSILON, delta=0.05, presence="sometimes")


@pytest.mark.slow
def test_cover_and_moves_are_shown_in_words_json_and_on_the_page(audit: empriv.Audit, tmp_path: Path) -> None:
    judged = audit.verdict(epsilon=EPSILON, delta=0.05)
    day = json.loads(json.dumps(judged.to_json()))["day"]
    assert day["beyond"] == judged.day.beyond > 0  # type: ignore[union-attr]
    assert "On the day: at epsilon 0.1" in " ".join(judged.reasons)
    page = audit.report(tmp_path / "page.html", verdicts=[("delta <= 0.05 at 0.1", judged)]).page.read_text()
    assert "hides anyone who moves it by up to" in page
    assert "On database" in page


def test_a_calm_series_passes_in_both() -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(0.0, 1.0, 400)
    results = empriv.Results.from_arrays(q, (q - 0.001)[None])
    verdict = empriv.audit(results, epsilon=EPSILON).verdict(epsilon=EPSILON, delta=0.05)
    assert verdict == "pass"
    assert verdict.by_bound == "pass"


@pytest.mark.slow
def test_the_command_line_asks_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f"site {k % 60},{k},{9e9 if k == 7 else rng.normal(50, 10)}" for k in range(1_200)]
    Path("sites.csv").write_text("site,person,salary\n" + "\n".join(rows))
    asked = ["audit", "sites.csv", "--database", "site", "--individual", "person", "--query", "avg(salary)"]

    def run(*more: str) -> Any:
        return CliRunner().invoke(main, [*asked, "-v", "--target", "delta <= 0.2 at 0.1", *more])

    failed = run()
    assert failed.exit_code == 3
    assert "On the day:" in failed.output
    assert "FAIL" in failed.output
    assert "hides anyone who moves it by up to" in " ".join(failed.output.split())
    assert run("--presence", "random").exit_code != 3


def test_a_release_tells_what_its_noise_promises_where_people_are(tmp_path: Path) -> None:
    """Somebody who is seldom there is told of more on the day that they are there: the ledger counts that figure."""
    rng = np.random.default_rng(5)
    q = rng.normal(100.0, 3.0, 60)
    without = np.stack([q - np.where(np.arange(60) % 6 == 0, 2.0, 0.0), q - 0.3])
    audit = empriv.audit(empriv.Results.from_arrays(q, without), epsilon=EPSILON)
    told = {}
    for presence in ("both", "random"):
        noise = empriv.design_noise(audit, epsilon=EPSILON, delta=0.05, granularity=0.25, presence=presence)
        ledger = empriv.Ledger(tmp_path / f"{presence}.ledger")
        audit.release(float(q[0]), database=0, noise=noise, ledger=ledger)
        told[presence] = ledger.entries()[-1].achieved.delta
        assert told[presence] == pytest.approx(noise.achieved_delta(EPSILON))
        assert told[presence] <= 0.05
