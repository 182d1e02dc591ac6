"""`Comparison`: the result of `compare`, with all that can be asked of it; wiring only.

Figures come from the audits, errors from `utility`, pages and charts from `report`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from empriv.auditing.audit import Audit
from empriv.base.arguments import one_of
from empriv.base.progress import progress
from empriv.base.storage import write_atomically
from empriv.comparing.goals import Goal
from empriv.comparing.recommending import Recommendation, recommend
from empriv.comparing.telling import notes_of, text_of
from empriv.comparing.utility import Utility, utility_of, utility_overall
from empriv.errors import InputError
from empriv.measuring.contract import Several
from empriv.results import FloatArray, IntArray, Results
from empriv.validate.bounds import Bounds, bounds

if TYPE_CHECKING:
    import empriv

MOST = 12
FIGURES = ("delta", "total_risk")
JSON_VERSION = 1


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several protocols side by side, by their privacy and their error.

    Made by `empriv.compare`.

    Attributes
    ----------
    audits : the audit of each, by name
    epsilons : the epsilons asked for, rising
    truth : name of the protocol whose answers the others are compared with, or None
    goal : the target that a recommendation is for, or None

    Examples
    --------
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 60)
    >>> raw = empriv.Results.from_arrays(q, [q - 1.0])
    >>> rounded = empriv.Results.from_arrays(q.round(-1), [(q - 1.0).round(-1)])
    >>> comparison = empriv.compare({"raw": raw, "rounded": rounded}, truth="raw", epsilon=0.1)
    >>> {name: round(float(delta), 3) for name, delta in comparison.delta(0.1).items()}
    {'raw': 0.017, 'rounded': 0.009}
    """

    audits: Mapping[str, Audit] = field(repr=False)
    epsilons: tuple[float, ...]
    truth: str | None = None
    goal: Goal | None = None

    def __post_init__(self) -> None:
        if not 2 <= len(self.audits) <= MOST:
            raise InputError(f"`protocols` must hold 2 to {MOST} protocols, got {len(self.audits)}.")
        if self.truth is not None and self.truth not in self.audits:
            raise InputError(f"`truth` must name one of the protocols ({', '.join(self.audits)}), got {self.truth!r}.")
        if self.truth is not None and not self.paired:
            raise InputError("`truth` must be on the same databases as the other protocols, got different ones.")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.audits)

    def __getitem__(self, name: str) -> Audit:
        if name not in self.audits:
            raise InputError(f"`name` must be one of the protocols ({', '.join(self.audits)}), got {name!r}.")
        return self.audits[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.audits)

    def __len__(self) -> int:
        return len(self.audits)

    # Figures of each

    @overload
    def delta(self, epsilon: float) -> dict[str, float]: ...

    @overload
    def delta(self, epsilon: Several) -> dict[str, FloatArray]: ...

    def delta(self, epsilon: float | Several) -> dict[str, Any]:
        """Failure probability of the most exposed individual, of each protocol."""
        return {name: audit.delta(epsilon) for name, audit in self.audits.items()}

    @overload
    def total_risk(self, epsilon: float) -> dict[str, float]: ...

    @overload
    def total_risk(self, epsilon: Several) -> dict[str, FloatArray]: ...

    def total_risk(self, epsilon: float | Several) -> dict[str, Any]:
        """Chance that somebody's privacy fails, if failures are independent, of each protocol."""
        return {name: audit.total_risk(epsilon) for name, audit in self.audits.items()}

    def bounds(self, epsilon: float | Several, level: float = 0.95) -> dict[str, Bounds]:
        """Lower bound, estimate and upper bound of each protocol by itself; see `empriv.bounds`."""
        return {name: audit.bounds(epsilon, level) for name, audit in self.audits.items()}

    @cached_property
    def _bounds_asked(self) -> dict[str, Bounds]:
        """Bounds at 95% at the epsilons asked for: computed once for all that is shown."""
        grid = np.array(self.epsilons)
        nobody = np.empty((0, len(grid)))  # nothing about single individuals is kept
        out = {}
        with progress(len(self.audits), "Finding bounds") as advance:
            for name, audit in self.audits.items():
                out[name] = replace(bounds(audit.measured, grid), upper_i=nobody)
                advance()
        return out

    def upper(self, epsilon: float) -> dict[str, float]:
        """Upper bound on delta of each protocol; computed once at the epsilons asked for."""
        if epsilon in self.epsilons:
            place = self.epsilons.index(epsilon)
            return {name: float(bounds.upper[place]) for name, bounds in self._bounds_asked.items()}
        return {name: float(bounds.upper) for name, bounds in self.bounds(float(epsilon)).items()}

    @cached_property
    def utility(self) -> tuple[Utility, ...]:
        """Errors against the truth's answers: one row for each protocol, or for each cell of its table."""
        truth, right, orders = self._right_answers
        return tuple(
            row
            for name, audit in self.audits.items()
            for row in utility_of(name, audit.results, right, (orders[name], orders[truth]))
        )

    @cached_property
    def overall(self) -> tuple[Utility, ...]:
        """Errors against the truth's answers, one row for each protocol: all cells of a table together."""
        truth, right, orders = self._right_answers
        return tuple(
            utility_overall(name, audit.results, right, (orders[name], orders[truth]))
            for name, audit in self.audits.items()
        )

    @property
    def _right_answers(self) -> tuple[str, Results, dict[str, IntArray]]:
        if self.truth is None:
            raise InputError("`truth` must name the protocol whose answers are right, got None.")
        return self.truth, self.audits[self.truth].results, self._orders

    @property
    def scalar(self) -> bool:
        """Whether every protocol gives one number."""
        return all(audit.results.components is None for audit in self.audits.values())

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """Which protocol to take for the target, or that none meets it; None if no target was given."""
        return None if self.goal is None else recommend(self, self.goal)

    # One against another

    @cached_property
    def paired(self) -> bool:
        """Whether all are on the same databases: with the same labels, and the same sources where these are known."""
        labels = [sorted(map(str, audit.results.databases.tolist())) for audit in self.audits.values()]
        origins = [audit.origin for audit in self.audits.values() if audit.origin is not None]
        sources = {(tuple(origin.sources), origin.database, origin.drawn) for origin in origins}
        return all(other == labels[0] for other in labels[1:]) and len(sources) <= 1

    @property
    def _orders(self) -> dict[str, IntArray]:
        """Positions of the databases, in an order that all protocols share."""
        return _shared_order({name: audit.results for name, audit in self.audits.items()})

    def front(self, epsilon: float | None = None, figure: str = "delta") -> tuple[str, ...]:
        """The protocols that no other improves on in both privacy and error, most exact first; by the estimates.

        Parameters
        ----------
        epsilon : default: the first asked for
        figure : "delta" or "total_risk"
        """
        one_of("figure", figure, FIGURES)
        if not self.scalar:
            raise InputError("The front must be of protocols of one number each: several numbers have several errors.")
        at = self.epsilons[0] if epsilon is None else float(epsilon)
        risk = self.delta(at) if figure == "delta" else self.total_risk(at)
        return front_of({row.protocol: (row.mean_absolute, float(risk[row.protocol])) for row in self.utility})

    # How it is shown

    def table(self, epsilon: float | None = None) -> dict[str, list[Any]]:
        """Columns of a table, one row for each protocol, ready for ``pandas.DataFrame``.

        Errors are included if there is a truth: of a table, those of all cells together.
        """
        at = self.epsilons[0] if epsilon is None else float(epsilon)
        columns: dict[str, list[Any]] = {
            "protocol": list(self.names),
            "delta": list(self.delta(at).values()),
            "upper_bound": list(self.upper(at).values()),
            "total_risk": list(self.total_risk(at).values()),
        }
        if self.truth is not None:
            for name in ("mean_absolute", "ninety", "bias", "relative", "unanswered"):
                columns[name] = [getattr(row, name) for row in self.overall]
        if self.truth is not None and self.scalar:
            front = self.front(at)
            columns["front"] = [name in front for name in self.names]
        return columns

    def __str__(self) -> str:
        return text_of(self)

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers; its keys are in docs/formats.md."""
        errors = () if self.truth is None else self.utility
        overall = {} if self.truth is None else {row.protocol: _row(row) for row in self.overall}
        return {
            "format": "empriv comparison",
            "version": JSON_VERSION,
            "empriv": version("empriv"),
            "epsilons": list(self.epsilons),
            "truth": self.truth,
            "protocols": [
                {
                    "name": name,
                    "query": audit.query,
                    "n_databases": audit.results.n_databases,
                    "n_individuals": audit.results.n_individuals,
                    "draws": audit.results.draws,
                    "figures": self._bounds_asked[name].to_json(),
                    "utility": [_row(row) for row in errors if row.protocol == name],
                    "overall": overall.get(name),
                }
                for name, audit in self.audits.items()
            ],
            "fronts": [
                {"epsilon": epsilon, "figure": figure, "protocols": list(self.front(epsilon, figure))}
                for epsilon in self.epsilons
                for figure in FIGURES
            ]
            if self.truth is not None and self.scalar
            else [],
            "recommendation": None if self.recommendation is None else self.recommendation.to_json(),
            "notes": list(notes_of(self)),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the figures as JSON, mode 0600."""
        if Path(path).suffix.lower() != ".json":
            raise InputError(f"`path` must end in .json, got {Path(path).suffix!r}.")
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(path, text.encode("utf-8", "backslashreplace"))

    def report(self, path: str | PathLike[str], *, title: str | None = None) -> Path:
        """Write the comparison as one page of HTML."""
        # Shortcuts upwards, by public names: this module knows nothing about how a comparison is shown.
        import empriv

        return empriv.report.write_comparison(self, path, title=title)

    def chart(self, name: str, epsilon: float | None = None) -> empriv.report.Chart:
        """One chart: "delta", "total_risk", "utility", "utility_total_risk"; ``.save("delta.png")``."""
        import empriv

        return empriv.report.comparison_chart(self, name, epsilon)


def _shared_order(results: Mapping[str, Results]) -> dict[str, IntArray]:
    """Positions of the databases that all of them have, sorted by label."""
    places = {
        name: {str(label): place for place, label in enumerate(each.databases.tolist())}
        for name, each in results.items()
    }
    shared = sorted(set.intersection(*(set(own) for own in places.values())))
    return {name: np.array([own[label] for label in shared], np.int64) for name, own in places.items()}


def front_of(points: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Names that no other beats: at least as good in both error and risk, and better in one; NaN is never in front."""
    measured = {name: point for name, point in points.items() if not any(map(math.isnan, point))}

    def improved_on(point: tuple[float, float]) -> bool:
        return any(other[0] <= point[0] and other[1] <= point[1] and other != point for other in measured.values())

    return tuple(
        sorted((name for name, point in measured.items() if not improved_on(point)), key=lambda name: measured[name])
    )


def _row(row: Utility) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(row).items()
        if name != "protocol"
    }
