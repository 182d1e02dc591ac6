"""`Message`: something worth saying about an audit, made where it is found.

What bounds assume, why a verdict is as it is, what readers know, what was checked. Terminal, JSON and page show the
sentence; nothing reads it back, since code and numbers stand beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from empriv.words.sentences import listed

SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class Message:
    """Something worth saying. Made by the checks, bounds and verdicts of an audit.

    Attributes
    ----------
    code : a short name that does not change
    sentence : what was found, in plain words; it names no individual
    severity : "error" rules out a verdict "pass", "warning" asks to be read, "info" says what was done
    numbers : the figures behind it
    title : what was checked, of a check

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> results = empriv.Results.from_arrays(q, q - rng.exponential(2.0, (3, 60)))
    >>> check = empriv.audit(results, epsilon=0.1).checks[0]
    >>> check.code, check.severity
    ('databases', 'warning')
    """

    code: str
    sentence: str
    severity: str = "info"
    numbers: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""

    def of(self, component: str) -> Message:
        """The same of one of several numbers."""
        return replace(self, sentence=f"{component}: {self.sentence}")

    def to_json(self) -> dict[str, Any]:
        numbers = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in self.numbers.items()
        }
        return {
            "code": self.code,
            "title": self.title,
            "severity": self.severity,
            "sentence": self.sentence,
            "numbers": numbers,
        }


def gravest_first(message: Message) -> int:
    """Sorts messages."""
    return SEVERITIES.index(message.severity)


_CALENDAR = {name: f"the {name}" for name in ("trend", "weekday", "month", "season", "previous answer")}
_ENOUGH_AT = {
    "nothing": "with nothing counted as known",
    "logarithm": "at the logarithm",
    "calendar": "at the calendar",
    "previous": "at the previous answer",
    "lags": "at the answers 1, 2 and 7 before",
    "spread": "at a spread that changes",
}
_WHY_NOTHING = {
    "several": "that is measured of one number, and these are several",
    "ledger": "that is not measured together with earlier releases",
    "draws": "the query is randomised",
    "density": "that is measured with the usual density, and another was chosen",
    "constant": "the results hardly vary",
    "no-order": "the databases have no order",
}
KNOWN_TITLE = "What readers know"


def counted_as_known(
    names: Sequence[str],
    parameters: int,
    n: int,
    *,
    chosen: tuple[str, float] | None,
    dropped: int,
    logarithm: bool = False,
    spread: bool = False,
    determined: bool = False,
) -> tuple[Message, ...]:
    """What was counted as known by regression: by so many parameters fitted to n databases.

    ``chosen`` : the step at which it was enough, and the p of the i.i.d. tests there
    ``dropped`` : databases left out, whose previous answers are not known
    ``determined`` : whether what is known determines the result
    """
    if not names:
        said = f"Nothing was counted as known of {n:,} databases"
    else:
        named = [_CALENDAR.get(name, f"the {name}" if name.startswith("answer ") else name) for name in names]
        said = f"Counted as known: {listed(named)} ({parameters} parameters, fitted to {n:,} databases)"
    said += ", after taking logarithms" if logarithm else ""
    if spread:
        said += "; the spread depends on it, and what people did is measured beside that of its database"
    messages = [Message("given", f"{said}. Only residuals count as protection.")]
    if chosen is not None:
        where, p = _ENOUGH_AT[chosen[0]], f"(p = {chosen[1]:.3f})"
        enough = (
            f"That is enough {where}: residuals look independent and identically distributed {p}."
            if chosen[1] > 0.05
            else f"That ended {where}, and residuals still depart from chance {p}."
        )
        messages.append(Message("given-chosen", enough))
    if dropped:
        which = "1 database was" if dropped == 1 else f"{dropped:,} databases were"
        messages.append(
            Message(
                "given-dropped",
                f"{which} not measured, since previous answers are not known; what people did there is held against "
                "the law of the others.",
            )
        )
    if determined:
        leak = "EXACT LEAK: what is known determines the result, so that any change shows."
        messages.append(Message("known", leak, "error", {"what": "determined"}, KNOWN_TITLE))
    return tuple(messages)


def nothing_known(why: str, n: int, least: int, p: float) -> Message:
    """Why nothing was counted as known, where nobody said what is; of another ``why``, KeyError."""
    numbers = {"why": why, "n": n, "least": least, "p": p}
    if why == "silent":
        said = (
            "Nothing had to be counted as known: nothing suggests that the calendar or previous answers tell about "
            f"the results (p = {p:.2f})."
        )
        return Message("nothing-known", said, numbers=numbers)
    reason = f"that takes at least {least} databases, got {n}" if why == "few" else _WHY_NOTHING[why]
    hint = ' Hint: say what is known of each, such as its size, known="count(*)".' if why == "no-order" else ""
    return Message("nothing-known", f"Nothing was counted as known: {reason}.{hint}", numbers=numbers)
