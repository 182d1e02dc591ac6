"""Figures for a database that people are in stand beside the paper's, and a verdict asks for both by default."""

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
    assert audit.when_present.delta(EPSILON) > 0.9
    assert audit.verdict(epsilon=EPSILON, delta=0.05) == "fail"
    assert audit.verdict(epsilon=EPSILON, delta=0.05, presence="random") != "fail"


def test_the_paper_s_judgement_stays_the_paper_s(audit: empriv.Audit) -> None:
    both = audit.verdict(epsilon=EPSILON, delta=0.05)
    assert (both.by_estimate, both.by_estimate_when_present) == ("pass", "fail")
    assert both.sentence.startswith("By the paper's definition: pass, in a database that they are in: fail; at 95%")
    assert both.to_json()["by_estimate_when_present"] == "fail"
    assert audit.verdict(epsilon=EPSILON, delta=0.05, basis="estimate") == "fail"  # the worse of both
    random = audit.verdict(epsilon=EPSILON, delta=0.05, presence="random")
    assert random.by_estimate_when_present is None
    assert "that they are in" not in random.sentence


def test_a_site_list_gets_figures_that_mean_something() -> None:
    rng = np.random.default_rng(1)
    import pyarrow as pa

    table = pa.table(
        {
            "site": np.array([f"site {k % 100}" for k in range(1_000)]),
            "person": np.arange(1_000),
            "salary": rng.normal(50_000.0, 10_000.0, 1_000),
        }
    )
    data = empriv.databases(table, database="site", individual="person")
    audit = empriv.audit(data, "avg(salary)", epsilon=EPSILON)
    there = audit.when_present.delta_i(EPSILON)
    assert audit.delta_i(EPSILON).max() <= 0.01
    assert np.median(there[there > 0]) > 0.01  # a salary moves an average of 10 by a third of its spread
    assert there.max() < 1


def test_both_are_shown_each_under_its_name(audit: empriv.Audit, tmp_path: Path) -> None:
    said = str(audit)
    assert "in a random database and 100% in a database that they are in" in said
    (figure,) = json.loads(json.dumps(audit.to_json()))["figures"]
    assert figure["delta_when_present"] == audit.when_present.delta(EPSILON)
    assert figure["total_risk_when_present"] == audit.when_present.total_risk(EPSILON)
    page = audit.report(tmp_path / "page.html").page.read_text()
    assert "in a database they are in" in page
    public = audit.report(tmp_path / "public.html", public=True).page.read_text()
    assert "in a database they are in" in public
    assert "in a database they are in" in str(audit._repr_html_())


def test_the_reasons_stand_under_the_name_of_each(audit: empriv.Audit) -> None:
    reasons = audit.verdict(epsilon=EPSILON, delta=0.05).reasons
    here, there = reasons.index("In a random database:"), reasons.index("In a database that they are in:")
    assert there < here  # those of where it is worse come first
    assert any("exceeds the target" in reason for reason in reasons[there:here])
    with pytest.raises(empriv.InputError, match="`presence` must be"):
        audit.verdict(epsilon=EPSILON, delta=0.05, presence="sometimes")


def test_a_calm_series_passes_in_both() -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(0.0, 1.0, 400)
    results = empriv.Results.from_arrays(q, (q - 0.001)[None])
    verdict = empriv.audit(results, epsilon=EPSILON).verdict(epsilon=EPSILON, delta=0.05)
    assert verdict == "pass"
    assert verdict.by_bound == "pass"


def test_kinds_without_such_figures_say_so() -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(0.0, 1.0, 60)
    results = empriv.Results.from_arrays(q, (q - 0.001)[None])
    weighted = empriv.audit(results, adversary=q * 0 + rng.normal(size=60), epsilon=EPSILON)
    assert weighted.summary().figures[0].delta_when_present is None
    reasons = weighted.verdict(epsilon=EPSILON, delta=0.5).reasons
    assert any("in a random database alone" in reason for reason in reasons)
    both = empriv.audit(empriv.Results.stack({"a": results, "b": results}), epsilon=EPSILON)
    assert both.summary().figures[0].delta_when_present is not None


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
    assert "In a database that they are in:" in failed.output
    assert "FAIL" in failed.output
    assert "they are in" in " ".join(failed.output.split())
    assert run("--presence", "random").exit_code != 3


def test_a_release_tells_what_its_noise_promises_where_people_are(tmp_path: Path) -> None:
    """Somebody who is seldom there is told of more on a day that they are there: the ledger counts that figure."""
    rng = np.random.default_rng(5)
    q = rng.normal(100.0, 3.0, 60)
    without = np.stack([q - np.where(np.arange(60) % 6 == 0, 2.0, 0.0), q - 0.3])
    audit = empriv.audit(empriv.Results.from_arrays(q, without), epsilon=EPSILON)
    both, random = (
        empriv.design_noise(audit, epsilon=EPSILON, delta=0.05, granularity=0.25, presence=presence)
        for presence in ("both", "random")
    )
    told = {}
    for name, noise in (("both", both), ("random", random)):
        ledger = empriv.Ledger(tmp_path / f"{name}.ledger")
        audit.release(float(q[0]), database=0, noise=noise, ledger=ledger)
        told[name] = ledger.entries()[-1].achieved.delta
    assert told["both"] == pytest.approx(both.present.achieved_delta(EPSILON))
    assert told["both"] > both.achieved_delta(EPSILON)
    assert told["random"] == pytest.approx(random.achieved_delta(EPSILON))
