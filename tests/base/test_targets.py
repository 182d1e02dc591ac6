"""Targets of --target: the grammar."""

from __future__ import annotations

import pytest

from empriv.base.targets import parse_target
from empriv.errors import InputError


def test_targets() -> None:
    target = parse_target(" Delta <=  1e-2 at epsilon 0.1 ")
    assert (target.figure, target.limit, target.epsilon) == ("delta", 0.01, 0.1)
    assert target.text == "Delta <= 1e-2 at epsilon 0.1"
    assert parse_target("total_risk <= 0.05 at .1").figure == "total_risk"


@pytest.mark.parametrize("text", ["", "delta < 0.1 at 0.1", "delta <= 2 at 0.1", "delta <= 0.1", "delta <= . at 0.1"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(InputError, match="`target` must"):
        parse_target(text)
