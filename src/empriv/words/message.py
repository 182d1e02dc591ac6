"""`Message`: something worth saying about an audit, made where it is found.

What bounds assume, why a verdict is as it is, what readers know, what was checked. Terminal, JSON and page show the
sentence; nothing reads it back, since code and numbers stand beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
