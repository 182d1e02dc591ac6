"""`advise`: what is tried, how it is ranked, and whether what is claimed is so."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow
import pytest

import empriv
from empriv.errors import InputError


@cache
def an_audit(n: int = 60, shift: float = 5.0, people: int = 3, **options: Any) -> empriv.Audit:
    """Answers of standard deviation 10 that each of some people moves by about ``shift``."""
    rng = np.random.default_rng(1)
    q = rng.normal(100.0, 10.0, n)
    without = q - shift * rng.uniform(0.5, 1.0, (people, n))
    return empriv.audit(empriv.Results.from_arrays(q, without), known="nothing", **options)


@pytest.fixture(scope="module")
def advice() -> empriv.Advice:
    return empriv.advise(an_audit(), epsilon=0.1, delta=0.08)


def test_what_needs_nothing_is_published_as_it_is() -> None:
    advice = empriv.advise(an_audit(shift=0.05), epsilon=0.1, delta=0.2)
    assert advice.best is not None
    assert (advice.best.code, advice.best.error) == ("as-is", 0.0)
    assert advice.nearest is None
    assert advice.sentence == "Publish as it is: no error. It meets delta <= 0.2 at epsilon 0.1."


def test_noise_meets_what_the_answer_does_not_and_classical_noise_costs_more(advice: empriv.Advice) -> None:
    best, classical = advice.best, advice.classical
    assert best is not None
    assert classical is not None
    assert best.code == "noise"
    assert best.error < classical.error
    # the analytic Gaussian mechanism or Laplace noise at the same epsilon and delta, whichever has the smaller error
    assert classical.error <= advice.largest / (0.1 - 2 * np.log(1 - 0.08)) * 1.01
    assert advice.rows[-1] is classical
    raw = next(action for action in advice.options if action.code == "as-is")
    assert not raw.meets
    assert raw.delta > 0.08
    assert best.share == pytest.approx(best.error / advice.typical)
    assert [action.meets for action in advice.options] == sorted((a.meets for a in advice.options), reverse=True)


def test_a_row_that_meets_the_target_is_confirmed_by_an_audit_of_its_own(advice: empriv.Advice) -> None:
    """Noise drawn by the protocol, and audited as any answer is; without it the same audit finds more."""
    best, audit = advice.best, an_audit()
    assert best is not None
    noise = empriv.design_noise(audit, epsilon=0.1, delta=0.08, granularity=best.parameters["granularity"])
    assert noise.expected_error == pytest.approx(best.error, rel=0.05)
    published = empriv.protocols.noised("avg(x)", noise).on_answers(audit.results, draws=16, rng=7)
    assert empriv.measure(published).delta(0.1) <= 0.08
    assert empriv.measure(audit.results).delta(0.1) > 0.08


def test_none_meets_it_is_said_where_it_is_so() -> None:
    """One outcome comes and goes with somebody: no noise hides that, and no rounding."""
    rng = np.random.default_rng(2)
    results = empriv.Results.from_arrays(q := rng.normal(100.0, 10.0, 60), q[None, :])
    gone = np.arange(60) % 2 == 0
    results = replace(
        results,
        starts=np.array([0, 60]),
        entry_database=np.arange(60, dtype=np.int32),
        entry_q=np.where(gone, np.nan, q),
        entry_outcomes=np.where(gone, np.int8(empriv.Outcome.NULL), np.int8(0)),
    )
    audit = empriv.audit(results, known="nothing")
    advice = empriv.advise(audit, epsilon=0.1, delta=0.01)
    assert advice.best is None
    assert advice.nearest is not None
    assert advice.sentence.startswith("The one way that was tried does not meet delta <= 0.01 at epsilon 0.1.")
    assert any("Noise" in sentence for sentence in advice.left_out)
    assert advice.classical is None
    assert advice.saved == ()


@pytest.mark.slow
def test_waiting_is_offered_only_where_more_databases_would_do() -> None:
    small = empriv.advise(an_audit(n=60, shift=0.5), epsilon=0.1, delta=0.03)
    wait = next(action for action in small.options if action.code == "waiting")
    assert wait.parameters["databases"] == 60 + wait.parameters["more"]
    assert not wait.meets
    large = empriv.advise(an_audit(n=60, shift=8.0), epsilon=0.1, delta=0.03)
    assert all(action.code != "waiting" for action in large.options)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_advice_and_json_holds_no_identifiers(advice: empriv.Advice) -> None:
    audit = an_audit()
    first = advice.to_json()
    assert first == empriv.advise(audit, epsilon=0.1, delta=0.08).to_json()
    text = json.dumps(first, allow_nan=False)
    assert [option["code"] for option in first["options"]].count("noise") == 1
    assert str(audit.results.q[0]) not in text


def test_it_is_short_and_escaped(advice: empriv.Advice) -> None:
    assert len(repr(advice)) < 200
    assert "&lt;= 0.08" in advice._repr_html_()
    assert "\n" in str(advice)
    assert {action.code for action in advice.of_each_kind()} == {"as-is", "noise"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.1}, "needs a target"),
        ({"epsilon": 0.1, "delta": 2.0}, "`delta` must"),
        ({"epsilon": math.inf, "delta": 0.1}, "`epsilon` must"),
        ({"epsilon": 0.1, "delta": 0.1, "presence": "always"}, "`presence` must"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        empriv.advise(an_audit(n=40), **options)


def test_several_numbers_are_refused_with_a_hint() -> None:
    rng = np.random.default_rng(0)
    rows = pyarrow.table(
        {"day": np.repeat(np.arange(30), 4), "who": np.tile(np.arange(4), 30), "x": rng.normal(size=120)}
    )
    data = empriv.databases(rows, database="day", individual="who")
    audit = empriv.audit(data, "SELECT sum(x), max(x) FROM data", known="nothing")
    with pytest.raises(InputError, match=re.escape("audit.components")):
        empriv.advise(audit, epsilon=0.1, delta=0.1)


def test_noise_does_not_make_up_for_too_few_databases() -> None:
    advice = empriv.advise(an_audit(n=12), epsilon=0.1, delta=0.3)
    noise = next(action for action in advice.options if action.code == "noise")
    assert noise.verdict == "unresolved"
    assert "12 databases" in noise.note
    assert advice.best is None
    # noise comes nearest, and it is said that the bound is not what stands in its way
    assert advice.nearest is not None
    assert advice.nearest.code == "noise"
    assert "within the target; but a check objects to it" in advice.sentence


@pytest.fixture(scope="module")
def outlying() -> empriv.Databases:
    """Amounts of which few are far beyond the others."""
    rng = np.random.default_rng(5)
    day, who = (part.ravel() for part in np.meshgrid(np.arange(120), np.arange(30)))
    x = rng.exponential(10.0, len(day)) + np.where(rng.random(len(day)) < 0.003, 600.0, 0.0)
    return empriv.databases(pyarrow.table({"day": day, "who": who, "x": x.round(1)}), database="day", individual="who")


@pytest.mark.slow
@pytest.mark.parametrize("query", ["sum(x)", "avg(x)"])
def test_a_cap_costs_less_than_noise_alone_and_its_error_is_what_it_says(
    outlying: empriv.Databases, query: str
) -> None:
    audit = empriv.audit(outlying, query, known="nothing", epsilon=1.0)
    advice = empriv.advise(audit, outlying, epsilon=1.0, delta=0.05, granularity=0.0625)
    rows = {action.code: action for action in advice.options}
    cap, noise = rows["cap"], rows["noise"]
    assert cap.meets
    assert cap is advice.best
    assert cap.error < 0.7 * noise.error
    protocol = empriv.protocols.cap_people(query, at=cap.parameters["at"])
    capped = protocol.collect(outlying)
    alone = float(np.abs(capped.q - audit.results.q).mean())
    assert alone <= cap.error <= alone + cap.parameters["noise"] * 1.05
    assert "people.added_0" in cap.toml
    declared = f"--bound {cap.parameters['at']:.12g}" in cap.command
    assert declared == (query == "sum(x)")  # nobody moves a capped sum by more than the cap
    without_rows = empriv.advise(audit, epsilon=1.0, delta=0.05, granularity=0.0625)
    assert ("cap" in {action.code for action in without_rows.options}) == (query == "sum(x)")


@pytest.mark.slow
def test_a_cap_for_many_publications_needs_less_noise_for_all_of_them(outlying: empriv.Databases) -> None:
    audit = empriv.audit(outlying, "sum(x)", known="nothing", epsilon=1.0).repeated(12)
    rows = {action.code: action for action in empriv.advise(audit, outlying, epsilon=1.0, delta=0.05).options}
    cap, noise = rows["cap"], rows["noise"]
    assert cap.meets
    assert cap.error < 0.7 * noise.error
    assert "--times 12" in cap.command
    assert "--bound" not in cap.command  # publications add up the influences that were seen
    capped = empriv.protocols.cap_people("sum(x)", at=cap.parameters["at"]).collect(outlying)
    again = empriv.audit(capped, known="nothing", epsilon=1.0).repeated(12)
    assert empriv.design_noise(again, epsilon=1.0, delta=0.05).holds
