"""Policies of --fail-if: the grammar, and the verdict on either side of a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from empriv.cli.policy import judge, parse_policy, parse_target
from empriv.errors import InputError


@dataclass(frozen=True)
class Bounds:
    """Stands for an audit's bounds."""

    upper: float
    total_risk_upper: float


class Figures:
    """Stands for an audit."""

    def delta(self, epsilon: float) -> float:
        return {0.05: 0.01, 0.1: math.nan}[epsilon]

    def total_risk(self, epsilon: float) -> float:
        return {0.1: 0.5}[epsilon]

    def epsilon(self, delta: float = 0.0) -> float:
        return {0.0: math.inf, 0.001: 0.3}[delta]

    def bounds(self, epsilon: float) -> Bounds:
        return Bounds(upper={0.1: 0.2}[epsilon], total_risk_upper=0.7)


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("delta > 0.01 at 0.05", False),
        ("delta >= 0.01 at 0.05", True),
        ("delta>0.009 at epsilon 0.05", True),
        ("  total_risk  >  5e-1  at  0.1 ", False),
        ("TOTAL_RISK >= .5 AT EPSILON .1", True),
        ("epsilon > 0.2 at delta 0", True),
        ("upper(delta) > 0.19 at 0.1", True),
        ("upper(delta) > 0.2 at 0.1", False),
        ("UPPER(total_risk) >= 0.7 at 0.1", True),
        ("epsilon > 0.3 at delta 1e-3", False),
        ("delta > 0.9 at 0.1", True),  # what cannot be compared must not pass
    ],
)
def test_verdicts(text: str, failed: bool) -> None:
    outcome = judge(parse_policy(text), Figures())
    assert outcome.failed is failed
    assert ("FAILED" in outcome.sentence) is failed


def test_infinity_is_said_and_is_null_in_json() -> None:
    outcome = judge(parse_policy("epsilon > 0.2 at delta 0"), Figures())
    assert outcome.sentence == "Policy FAILED: fail if epsilon > 0.2 at delta 0; epsilon is infinite."
    assert outcome.to_json() == {"policy": "epsilon > 0.2 at delta 0", "value": None, "failed": True}


@pytest.mark.parametrize(
    "text",
    ["", "delta", "delta > 0.1", "delta < 0.1 at 0.1", "delta > x at 0.1", "delta > 0.1 at -1", "risk > 0.1 at 0.1",
     "epsilon > 0.2 at 0", "epsilon > 0.2 at delta 2", "delta > 1..2 at 0.1", "delta > . at 0.1",
     "delta > 1e999 at 0.1", "delta > 0.1 at delta 0.1", "delta > 0.1 at 0.1 or more"],
)  # fmt: skip
def test_wrong_policies_say_what_is_allowed(text: str) -> None:
    with pytest.raises(InputError, match="`fail_if` must"):
        parse_policy(text)


def test_targets() -> None:
    target = parse_target(" Delta <=  1e-2 at epsilon 0.1 ")
    assert (target.figure, target.limit, target.epsilon) == ("delta", 0.01, 0.1)
    assert target.text == "Delta <= 1e-2 at epsilon 0.1"
    assert parse_target("total_risk <= 0.05 at .1").figure == "total_risk"


@pytest.mark.parametrize("text", ["", "delta < 0.1 at 0.1", "delta <= 2 at 0.1", "delta <= 0.1", "delta <= . at 0.1"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(InputError, match="`target` must"):
        parse_target(text)
