"""Audits given what is known: from rows to verdict, files, report, noise and the command line."""

from __future__ import annotations

import json
import pickle
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.main import main

EPSILON = 0.1


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop's sales: busier on weekends, growing, 40 clients of whom each comes on a third of the days."""
    rng = np.random.default_rng(1)
    lines = ["day,client,amount"]
    for k in range(120):
        day = date(2024, 1, 1) + timedelta(days=k)
        busy = (1.8 if day.weekday() >= 5 else 1.0) * (1 + k / 200)
        lines += [f"{day},{c},{busy * rng.lognormal(3, 0.4):.2f}" for c in range(40) if rng.random() < 1 / 3]
    path = tmp_path_factory.mktemp("given") / "sales.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def data(sales: Path) -> empriv.Databases:
    return empriv.databases(str(sales), database="day", individual="client")


@pytest.fixture(scope="module")
def audit(data: empriv.Databases) -> empriv.Audit:
    return empriv.audit(data, "sum(amount)", known=["calendar", "count(*)"], epsilon=EPSILON)


def test_what_is_known_is_collected_and_taken_out(audit: empriv.Audit) -> None:
    names = [term.name for term in audit.against.residuals.fit.terms]
    assert names[:3] == ["count(*)", "trend", "weekday"]
    assert audit.delta(EPSILON) > 2 * audit.risk.delta(EPSILON)
    assert audit.bounds(EPSILON).upper < 1.0
    assert audit.verdict(epsilon=EPSILON, delta=0.9, presence="random") in ("pass", "unresolved")
    assert audit.verdict(epsilon=EPSILON, delta=0.001) == "fail"


def test_the_words_say_what_was_counted_as_known(audit: empriv.Audit) -> None:
    said = str(audit)
    assert "Counted as known: count(*), the trend, the weekday" in said
    assert "Ignoring what is known, delta would be " in said


def test_json_and_files_hold_it(audit: empriv.Audit, tmp_path: Path) -> None:
    facts = json.loads(json.dumps(audit.to_json()))["known"]
    assert facts["kind"] == "given"
    assert facts["terms"][0] == "count(*)"
    audit.save(tmp_path / "audit.empriv")
    loaded = empriv.load(tmp_path / "audit.empriv")
    assert np.array_equal(loaded.delta_i(EPSILON), audit.delta_i(EPSILON))
    assert loaded.bounds(EPSILON).upper == audit.bounds(EPSILON).upper
    sent = pickle.loads(pickle.dumps(audit.against))
    assert np.array_equal(sent.delta_i(EPSILON), audit.delta_i(EPSILON))


def test_categories_are_saved_as_well(data: empriv.Databases, tmp_path: Path) -> None:
    results = empriv.collect(data, "sum(amount)")
    kind = np.where(np.arange(results.n_databases) % 3 == 0, "a", "b")
    made = empriv.audit(results, known=empriv.Given(kind, "previous:2"), epsilon=EPSILON)
    made.save(tmp_path / "audit.empriv")
    loaded = empriv.load(tmp_path / "audit.empriv")
    assert np.array_equal(loaded.delta_i(EPSILON), made.delta_i(EPSILON))
    assert loaded.against.residuals.dropped == 2


def test_the_report_shows_it(audit: empriv.Audit, tmp_path: Path) -> None:
    audit.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Counted as known" in page
    assert "weekday" in page


def test_noise_is_designed_for_what_is_left(audit: empriv.Audit) -> None:
    noise = empriv.design_noise(audit, epsilon=0.5, delta=0.05)
    nothing_known = empriv.design_noise(audit.risk, epsilon=0.5, delta=0.05)
    assert noise.expected_error > nothing_known.expected_error  # less randomness is left to help


def test_the_cover_is_that_of_what_is_left(audit: empriv.Audit) -> None:
    assert 0 <= audit.cover(EPSILON, 0.05) < audit.risk.cover(EPSILON, 0.05)
    both = audit.verdict(epsilon=EPSILON, delta=0.05)
    assert both.day is not None
    assert both.day.days == len(audit.against.residuals.original.entry_database)  # type: ignore[union-attr]
    with pytest.raises(empriv.InputError, match="presence"):
        audit.verdict(epsilon=EPSILON, delta=0.1, presence="always")


def test_several_numbers_are_judged_on_the_day_too(data: empriv.Databases) -> None:
    for asked in ({}, {"known": "nothing"}):
        several = empriv.audit(data, ["sum(amount)", "count(*)"], epsilon=EPSILON, **asked)
        judged = several.verdict(epsilon=EPSILON, delta=0.05).judged
        assert [target.where for target in judged] == ["", "day"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--known", "calendar"], "the trend, the weekday"),
        (["--known", "auto"], "residuals look independent"),
        (["--known", "previous"], "previous answer"),
    ],
)
def test_the_command_line_takes_it(sales: Path, options: list[str], said: str) -> None:
    asked = ["audit", str(sales), "--database", "day", "--individual", "client", "--query", "sum(amount)"]
    done = CliRunner().invoke(main, [*asked, "--epsilon", "0.1", "-v", *options])
    assert done.exit_code == 0, done.output
    assert said in " ".join(done.output.split())


def test_chunks_take_it_on_the_command_line(sales: Path) -> None:
    asked = [str(sales), "--database", "day", "--individual", "client", "--query", "sum(amount)", "--epsilon", "0.1"]
    known = ["--known", "calendar, count(*)"]
    figures = {}
    for way in ("--in-memory", "--in-chunks"):
        done = CliRunner().invoke(main, ["audit", way, *asked, *known, "--json", "-"])
        assert done.exit_code == 0, done.output
        figures[way] = json.loads(done.output)["bounds"][0]["estimate"]
    assert figures["--in-chunks"] == pytest.approx(figures["--in-memory"])


def test_no_more_previous_answers_than_there_are(data: empriv.Databases) -> None:
    with pytest.raises(empriv.InputError, match="`known` must name fewer previous answers"):
        empriv.audit(data, "sum(amount)", known=empriv.Given("previous:1000"))


def test_a_quantity_that_is_null_on_some_database(data: empriv.Databases) -> None:
    with pytest.raises(empriv.InputError, match="known on every database"):
        empriv.audit(data, "sum(amount)", known=empriv.Given("sum(amount) FILTER (WHERE amount > 60)"))
