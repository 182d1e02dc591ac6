"""What can be done, as the page shows it: rows of tried actions, and the decision that the best of them allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from empriv.base.harmless import visible
from empriv.words.sentences import amount, number, percent

MOST_ROWS = 5


class Tried(Protocol):
    """An action that was tried."""

    @property
    def title(self) -> str: ...
    @property
    def delta(self) -> float: ...
    @property
    def upper(self) -> float | None: ...
    @property
    def error(self) -> float: ...
    @property
    def share(self) -> float: ...
    @property
    def unanswered(self) -> float: ...
    @property
    def verdict(self) -> str: ...
    @property
    def command(self) -> str: ...


@dataclass(frozen=True)
class ActionRow:
    """One row of the page's table."""

    action: str
    delta: str
    error: str
    verdict: str
    command: str
    best: bool = False


@dataclass(frozen=True)
class Actions:
    """Rows, best first, and what is said below them."""

    rows: tuple[ActionRow, ...]
    said: tuple[str, ...] = ()


def action_rows(tried: Sequence[Tried], *, best: Tried | None, unit: str) -> tuple[ActionRow, ...]:
    """What each action gives and costs, in words; of many, the first few, and always the best."""
    return tuple(
        ActionRow(visible(action.title), _delta(action), _error(action, unit), action.verdict, visible(action.command),
                  action is best)
        for action in tried[:MOST_ROWS]
    )  # fmt: skip


def _delta(action: Tried) -> str:
    estimate = "not measured" if math.isnan(action.delta) else number(action.delta)
    if action.upper is None:
        return estimate
    return f"{estimate}, no upper bound" if action.upper >= 1 else f"{estimate}, at most {number(action.upper)}"


def _error(action: Tried, unit: str) -> str:
    missing = f"no answer for {percent(action.unanswered)} of databases" if action.unanswered > 0 else ""
    if math.isnan(action.error):
        return missing or "not known"
    said = "none" if action.error == 0 else f"±{amount(action.error, unit)}"
    if action.error and math.isfinite(action.share):
        said += f" ({percent(action.share)})"
    return f"{said}, {missing}" if missing else said
