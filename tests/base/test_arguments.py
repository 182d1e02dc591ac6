"""Checks of arguments: what is right comes back as a plain number, what is wrong is named in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from empriv.base import arguments
from empriv.errors import InputError

NAN, INF = float("nan"), float("inf")
CASES: list[tuple[str, Callable[[Any], Any], dict[Any, Any], list[Any]]] = [
    ("epsilon", arguments.rising_epsilons, {0.1: (0.1,), (2, 1, 1.0): (1.0, 2.0)}, [-1, NAN, INF, "1", b"1", (), None]),
    ("deltas", arguments.rising_deltas, {0: (0.0,), (1, 0.5): (0.5, 1.0)}, [-0.1, 1.1, NAN, "x", ()]),
    ("epsilon", arguments.one_epsilon, {0: 0.0, INF: INF}, [-1, NAN, "x", None]),
    ("epsilon", arguments.finite_epsilon, {0: 0.0, 3: 3.0}, [-1, NAN, INF]),
    ("delta", lambda value: arguments.probability("delta", value), {0: 0.0, 1: 1.0}, [-1e-9, 1.1, NAN, "x", None]),
    ("test", lambda value: arguments.fraction("test", value), {0.5: 0.5}, [0, 1, NAN, "x", None]),
    ("level", arguments.confidence_level, {0.95: 0.95}, [0.5, 1, NAN, 95, None]),
    ("to", lambda value: arguments.finite_number("to", value), {-1: -1.0}, [NAN, INF, "1", True, None]),
    ("to", lambda value: arguments.positive_number("to", value), {2: 2.0}, [0, -1, NAN, INF, "1", True]),
    ("top", lambda value: arguments.whole_number("top", value, least=1), {1: 1, np.int64(3): 3}, [0, 1.0, True, "1"]),
    ("draws", arguments.draws_or_none, {None: None, np.int32(2): 2}, [0, -1, 1.5, True, "1"]),
    ("jobs", arguments.jobs_or_none, {None: None, -1: -1, 2: 2}, [0, 1.5, True, "1"]),
    ("progress", arguments.progress_or_none, {None: None, True: True, False: False}, [2, "yes"]),
    ("figure", lambda value: arguments.one_of("figure", value, ("delta",)), {"delta": "delta"}, ["", "d", None, 1]),
]


@pytest.mark.parametrize(("name", "check", "right", "wrong"), CASES)
def test_right_values_come_back_and_wrong_ones_are_named(
    name: str, check: Callable[[Any], Any], right: dict[Any, Any], wrong: list[Any]
) -> None:
    for value, checked in right.items():
        assert check(value) == checked
        assert type(check(value)) is type(checked)
    for value in wrong:
        with pytest.raises(InputError, match=f"^`{name}` must [^\n]*\\.$"):
            check(value)


def test_a_grid_keeps_its_order_and_may_hold_infinity() -> None:
    np.testing.assert_array_equal(arguments.epsilon_grid([2, INF, 1]), [2.0, INF, 1.0])
    for wrong in (-1, [NAN], [], [[1.0]], "x"):
        with pytest.raises(InputError, match=r"^`epsilon` must "):
            arguments.epsilon_grid(wrong)
