"""Verdicts: "fail" only where a lower confidence limit is above the target, "pass" only where both upper bounds meet it
and no check is an error, whatever the kind of risk."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import empriv
from empriv.errors import InputError
from empriv.results import FloatArray, Results
from empriv.validate.bounds import make_bounds
from empriv.validate.verdict import verdict
from table_results import people


@pytest.mark.slow
def test_verdicts() -> None:
    rng = np.random.default_rng(9)
    q, without = people(rng, 365, 10, 0.02)
    risk = empriv.measure(q, without)
    good = verdict(risk, epsilon=0.1, delta=0.05)
    assert good == "pass"
    assert good.by_estimate == "pass"
    assert good.databases_needed is None
    tight = verdict(risk, epsilon=0.1, delta=0.001)
    assert tight == "unresolved"
    assert tight.by_estimate == "pass"
    assert tight.databases_needed is None or 2995 <= tight.databases_needed <= 3650
    assert tight.sentence.startswith("By the paper's definition: pass; at 95% confidence: unresolved")
    assert verdict(risk, epsilon=0.1, delta=0.001, basis="estimate") == "pass"
    large = empriv.measure(q, q[None, :] - 1.0)
    bad = verdict(large, epsilon=0.1, delta=0.05)
    assert bad == "fail"
    assert any("lower bound" in reason for reason in bad.reasons)
    assert verdict(large, epsilon=0.1, total_risk=0.05) == "fail"
    assert json.loads(json.dumps(good.to_json()))["verdict"] == "pass"


@pytest.mark.slow
def test_an_error_stands_in_the_way_of_a_pass() -> None:
    rng = np.random.default_rng(10)
    q, without = people(rng, 365, 10, 0.02)
    drift = 2 * np.linspace(0, 1, 365)
    moved = verdict(empriv.measure(q + drift, without + drift), epsilon=0.1, delta=0.1)
    assert moved == "unresolved"
    assert moved.by_estimate == "unresolved"
    assert any("independent" in reason for reason in moved.reasons)
    few = verdict(empriv.measure(q[:20], without[:, :20]), epsilon=0.1, delta=0.5)
    assert few == "unresolved"
    assert few.databases_needed == 30


def test_a_known_leaky_query_never_passes() -> None:
    """q is constant without the individual: every target below 1 fails, whatever the seed."""
    for seed in range(5):
        q = np.random.default_rng(seed).normal(size=50)
        assert verdict(empriv.measure(q, np.zeros((1, 50))), epsilon=0.1, delta=0.9) == "fail"


def test_no_target_needs_fewer_databases_than_its_floor() -> None:
    rng = np.random.default_rng(11)
    q = rng.normal(size=41)
    risk = empriv.measure(q, q[None, :])
    for delta, least in ((0.05, 59), (0.01, 299)):
        assert verdict(risk, epsilon=0.1, delta=delta).databases_needed >= least
    assert verdict(risk, epsilon=0.1, delta=0.001).databases_needed is None  # 2,995 is more than anybody waits for
    assert "no number of databases" in verdict(risk, epsilon=0.1, delta=0.0).sentence


def test_what_cannot_be_judged() -> None:
    q = np.random.default_rng(12).normal(size=40)
    risk = empriv.measure(q, q[None, :])
    with pytest.raises(InputError, match="`delta` or `total_risk` must be given"):
        verdict(risk, epsilon=0.1)
    with pytest.raises(InputError, match="`basis` must be one of bound, estimate"):
        verdict(risk, epsilon=0.1, delta=0.1, basis="hope")
    with pytest.raises(InputError, match=r"`delta` must lie in \[0, 1\]"):
        verdict(risk, epsilon=0.1, delta=2.0)


def results(effect: float) -> empriv.Results:
    rng = np.random.default_rng(11)
    q = rng.normal(100.0, 10.0, 90)
    there = rng.random(90) < 0.3
    sometimes = np.where(there, q - rng.normal(1.5 * effect, 2.0, 90), q)
    return empriv.Results.from_arrays(q, np.stack([q - rng.normal(effect, 2.0, 90), sometimes]))


def two_numbers(made: empriv.Results) -> empriv.Results:
    noise = np.random.default_rng(3).normal(0.0, 5.0, 90)
    other = empriv.Results.from_arrays(noise, np.stack([noise - 1.0, noise]))
    return empriv.Results.stack({"a": made, "b": other})


KINDS: dict[str, Callable[[empriv.Results], empriv.Audit]] = {
    "one number": lambda made: empriv.audit(made, epsilon=0.1, known="nothing"),
    "several": lambda made: empriv.audit(two_numbers(made), epsilon=0.1),
    "buckets": lambda made: empriv.audit(made, epsilon=0.1, known=empriv.Buckets(np.arange(90) % 2, 2)),
    "given": lambda made: empriv.audit(made, epsilon=0.1, known=empriv.Given(np.arange(90) % 3.0)),
    "repeated": lambda made: empriv.audit(made, epsilon=0.1, known="nothing").repeated(5),
    "in chunks": lambda made: empriv.audit(made, epsilon=0.1, known="nothing", in_chunks=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fail_takes_a_lower_limit_and_an_estimate_alone_is_unresolved(kind: str) -> None:
    audit = KINDS[kind](results(6.0))
    bounds = audit.bounds(0.1)
    shown = float(bounds.lower)
    estimate = float(bounds.estimate)
    assert shown < estimate
    # between what is shown and what is estimated: the estimate fails, the bounds cannot tell
    between = 0.5 * (shown + estimate)
    judged = audit.verdict(epsilon=0.1, delta=between, presence="random")
    assert (judged.by_bound, judged.by_estimate) == ("unresolved", "fail")
    assert "fail" not in judged.sentence.split("confidence")[1]
    said = audit.decision(judged)
    assert said.line == "Do not publish as it is"
    assert "is estimated to fail" in said.reason
    # below what is shown: failed, by the limit that shows it
    if shown > 0:
        failed = audit.verdict(epsilon=0.1, delta=0.5 * shown, presence="random")
        assert failed == "fail"
        assert any(target.lower > target.limit for target in failed.targets)
        assert "of at least" in audit.decision(failed).reason


def test_on_the_day_the_same_rule_holds() -> None:
    audit = KINDS["one number"](results(6.0))
    day = next(target for target in audit.verdict(epsilon=0.1, delta=0.05).judged if target.where)
    assert day.lower < day.estimate < day.upper
    assert audit.verdict(epsilon=0.1, delta=0.5 * (day.lower + day.estimate)) != "fail"
    assert audit.verdict(epsilon=0.1, delta=0.5 * day.lower) == "fail"


@pytest.mark.parametrize("made", [lambda v: np.round(v / 5) * 5, lambda v: np.where(v > 100, 1.0, 0.0), np.square])
def test_what_is_made_from_answers_tells_no_more_than_they_do_on_any_day(
    made: Callable[[FloatArray], FloatArray],
) -> None:
    rng = np.random.default_rng(1)
    others = rng.normal(100.0, 10.0, 365)
    answers = Results.from_arrays(others + np.where(rng.random(365) < 0.3, 0.6, 0.0), others[None])
    answers = replace(answers, ordered=False)
    after = replace(answers, q=made(answers.q), entry_q=made(answers.entry_q), postprocessed_from=answers)
    for epsilon in (0.1, 1.0):
        first, second = (
            empriv.audit(results, known="nothing").verdict(epsilon=epsilon, delta=0.05) for results in (answers, after)
        )
        assert first == second == "pass"
        for of_answers, of_made in zip(first.judged, second.judged, strict=True):
            assert of_made.upper <= of_answers.upper
            assert of_made.estimate <= of_answers.estimate
            assert of_made.lower <= of_answers.lower
        assert second.day.beyond == 0
        assert second.day.cover >= second.day.largest


def test_a_lower_bound_is_never_above_everybodys_upper_bound() -> None:
    found = make_bounds(
        empriv.measure(np.arange(40.0), np.arange(40.0)[None]), np.array([0.1, 1.0]), 0.95, np.array([0.5, 0.2]),
        np.array([[0.1, 0.3]]), [],
    )  # fmt: skip
    assert np.all(found.lower <= found.upper_i.max(axis=0))
    assert found.upper_i.tolist() == [[0.5, 0.3]]
