"""A verdict is "fail" only where a lower confidence limit is above the target, whatever the kind of risk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import empriv


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
