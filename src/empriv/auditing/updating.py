"""An audit that grows: further databases are added to it, and bounds hold whenever one looks.

The query is run on the further databases alone. Whoever looks every day at bounds of 95% is wrong some day with more
than 5%: `anytime_bounds` looks at 30, 60, 120, ... databases only, with an error that is shared out among the looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.knowledge import infer_public_knowledge
from empriv.base.arguments import confidence_level
from empriv.errors import InputError
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring import AnyRisk, GivenRisk, measure
from empriv.measuring.measures import measure_known
from empriv.results import Cell, Results
from empriv.validate.bounds import bounds
from empriv.words.sentences import number

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.collecting import Databases
    from empriv.collecting.origins import Origin
    from empriv.collecting.run_query import Run


@dataclass(frozen=True)
class AnytimeBounds:
    """Bounds on delta that hold together at all looks, however often one looks.

    Attributes
    ----------
    epsilon, level : what was asked
    lower, upper : the largest lower and the least upper bound of all looks so far; 0 and 1 before the first
    looks : after how many databases each look was taken
    """

    epsilon: float
    level: float
    lower: float
    upper: float
    looks: tuple[int, ...]

    @property
    def sentence(self) -> str:
        """In words."""
        if not self.looks:
            return f"Whenever you look: no bound yet. The first look is at {self.next_look:,} databases."
        return (
            f"Whenever you look ({self.level:.0%} for all looks together): delta at epsilon {self.epsilon:g} is "
            f"between {number(self.lower)} and {number(self.upper)}, from the first {self.looks[-1]:,} databases. The "
            f"next look is at {self.next_look:,}. The bounds below are for today's look alone."
        )

    @property
    def next_look(self) -> int:
        """How many databases there must be for the next look."""
        return 2 * self.looks[-1] if self.looks else LEAST_DATABASES


def error_at_look(number: int, level: float) -> float:
    """The share of the error that look 1, 2, ... may use: over all looks they add up to 1 - level."""
    return (1.0 - level) * 6.0 / (math.pi * number) ** 2


def anytime_bounds(audit: Audit, epsilon: float, level: float | None = None) -> AnytimeBounds:
    """Bounds on delta that are valid at any time: those of the looks at 30, 60, 120, ... databases, in their order."""
    level = confidence_level(audit.measured.usual_level if level is None else level)
    lower, upper, looks = 0.0, 1.0, []
    count = LEAST_DATABASES
    while count <= audit.n_databases:
        risk = _measured_like(audit, audit.results.on_databases(np.arange(count)))
        looks.append(count)
        here = bounds(risk, float(epsilon), 1.0 - error_at_look(len(looks), level))
        lower, upper = max(lower, float(here.lower)), min(upper, float(here.upper))
        count *= 2
    return AnytimeBounds(float(epsilon), level, lower, upper, tuple(looks))


def with_further_databases(audit: Audit, data: Databases, run: Run) -> Audit:
    """The audit as it would be with these databases among the others; only they are read."""
    grown = remeasured(audit, audit.results.with_databases(further_results(audit, data, run)))
    if grown.origin is None:
        return grown
    from empriv.collecting.origins import describe

    # beside the sources, not among them: a ledger knows the data by these
    names = dict.fromkeys((*grown.origin.added, *describe(data).sources))
    return replace(grown, origin=replace(grown.origin, added=tuple(names)))


def further_results(audit: Audit, data: Databases, run: Run) -> Results:
    """Results of the audit's query on further databases."""
    if audit.text is None:
        raise InputError(
            "An audit of a Python function cannot be updated: its code is not in the audit. "
            "Hint: collect the new databases, and give `Results.with_databases` of both to `audit`."
        )
    if audit.composition is not None:
        raise InputError("An audit beside earlier releases cannot be updated. Hint: audit again with the ledger.")
    from empriv.collecting.queries import queries_in
    from empriv.collecting.run_query import run_query

    queries = queries_in(audit.text)
    further = run_query(data, queries if len(queries) > 1 else queries[0], replace(run, sketch=True))
    if further.cells is not None:
        further = _with_known_cells(audit, further)
    return further if audit.component is None else further.component(audit.component)


def _with_known_cells(audit: Audit, further: Results) -> Results:
    """A table of further databases with every cell of the audit's in its place, and those that are new after them."""
    known = (audit.component,) if audit.component is not None else audit.results.components or ()
    cells = dict(zip(further.components or (), further.cells or (), strict=True))
    names = (*known, *(name for name in cells if name not in known))
    places = dict(zip(audit.results.components or (), audit.results.cells or (), strict=False))
    return further.with_components(names, tuple(cells.get(name) or places.get(name) or Cell(name) for name in names))


def databases_like(origin: Origin | None, rows: Any) -> Databases:
    """Rows of further databases, cut and owned as those audited were."""
    from empriv.collecting.sources import Databases, databases

    if isinstance(rows, Databases):
        return rows
    if origin is None or origin.drawn is not None or origin.tables:
        raise InputError(
            "`rows` must be Databases: the audit does not say how rows are cut into databases, or its query joins "
            "other tables. Hint: empriv.databases(source, database=..., individual=...)."
        )
    unidentified: Any = origin.unidentified
    return databases(
        rows, database=origin.database, individual=list(origin.individual), unidentified=unidentified,
        timezone=origin.timezone,
    )  # fmt: skip


def unlike(results: Results, further: Results, *, moves: bool = True) -> str | None:
    """Why a further database is not like those that were audited, None if it is: then their figures hold for it too.

    Its answer must not lie beyond those seen by more than half of their range, and, with ``moves``, nobody may change
    it by more than anybody changed an answer before.
    """
    if further.components != results.components:
        return "It has cells that no audited database has."
    if further.outcomes.any() or further.entry_outcomes.any():
        return "Its answer, or the answer without somebody, is not a number."
    numbers = results.outcomes.reshape(results.n_databases, -1).any(axis=1) == 0
    seen, asked = (
        part.q.reshape(part.n_databases, -1) for part in (results.on_databases(numbers.nonzero()[0]), further)
    )
    room = 0.5 * np.ptp(seen, axis=0)
    if np.any(asked < seen.min(axis=0) - room) or np.any(asked > seen.max(axis=0) + room):
        return "Its answer lies far beyond those that were audited."
    changes = [np.abs(part.q[part.entry_database] - part.entry_q) for part in (results, further)]
    widest, here = (np.nanmax(change.reshape(len(change), -1), axis=0, initial=0.0) for change in changes)
    if moves and np.any(here > widest * (1 + 1e-9)):
        return "Somebody changes its answer by more than anybody changed an answer before."
    return None


def remeasured(audit: Audit, results: Results) -> Audit:
    """The same audit of other results of its query."""
    risk = measure(results, density=audit.density)
    if audit.nothing_known is not None:  # nobody said what is known: more databases may show it
        against, nothing_known = infer_public_knowledge(results, audit.density)
        return replace(audit, results=results, risk=risk, against=against, nothing_known=nothing_known)
    return replace(audit, results=results, risk=risk, against=_against(audit, results))


def _measured_like(audit: Audit, results: Results) -> AnyRisk:
    against = _against(audit, results)
    return measure(results, density=audit.density) if against is None else against


def _against(audit: Audit, results: Results) -> Any:
    """The risk of other results to the same readers: what they know is read off labels and answers, not rows."""
    if audit.against is None:
        return None
    if not isinstance(audit.against, GivenRisk) or audit.against.given.quantities:
        raise InputError(
            "`known` must be nothing, auto, calendar or previous for an audit that grows: what else is known must be "
            "collected again. Hint: audit again."
        )
    return measure_known(results, audit.against.given, density=audit.density)
