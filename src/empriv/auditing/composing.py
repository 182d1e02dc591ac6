"""Releases compose only jointly: what the ledger holds, measured together with what is asked now.

The earlier queries are asked again of the same databases, or read from the ledger where their text does not suffice,
and given the noise that they were released with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from empriv.errors import InputError
from empriv.ledger import Identity, Joint, Ledger, ReleaseEntry
from empriv.measuring.densities.density import Density
from empriv.measuring.tables import TableRisk, measure_table
from empriv.noise.drawing import with_noise
from empriv.noise.law import Law
from empriv.results import Results

NOW = "asked now"  # name of the new query beside the earlier ones
_POINTS = 400  # noisy results with everyone that are measured, at least: bandwidths take the square of their number
_SEED = 0


@dataclass(frozen=True, eq=False)
class Composition:
    """A query beside all that was released before from the same databases.

    Attributes
    ----------
    results : results of the earlier queries and of this one, as a vector, without noise
    laws : the noise of each earlier number, by its name
    own : names of the numbers that are asked now
    entries : ids of the ledger's entries that are covered
    """

    results: Results = field(repr=False)
    laws: Mapping[str, Law] = field(repr=False)
    own: tuple[str, ...]
    entries: tuple[int, ...]

    @property
    def own_results(self) -> Results:
        """Results of the query that is asked now."""
        if self.own == (NOW,):
            return self.results.component(NOW)
        return replace(self.results.select(self.own), components=tuple(map(_inner, self.own)))

    def noisy(self, own: Mapping[str, Law] | None = None) -> Results:
        """The vector as it is or would be released: noise on the earlier numbers, and on those asked now if given."""
        draws = max(4, -(-_POINTS // self.results.n_databases))
        laws = {**self.laws, **(own or {})}
        noisy = with_noise(self.results, laws, draws=draws, rng=np.random.default_rng(_SEED))
        # What all numbers would tell without any noise is seldom less, and takes as long to measure again.
        return replace(noisy, postprocessed_from=None)

    def measured(self, own: Mapping[str, Law] | None = None, *, density: Density | None = None) -> TableRisk:
        """The risk of all numbers together, as cells of one table: what was released before is known to its noise."""
        return measure_table(self.noisy(own), density=density)

    def joint(self, own: Mapping[str, Law], epsilon: float) -> Joint:
        """Figures of all numbers together, with their noise."""
        risk = self.measured(own)
        return Joint(epsilon, risk.delta(epsilon), risk.total_risk(epsilon), entries=self.entries)

    def to_json(self) -> dict[str, Any]:
        """All but the results."""
        laws = {name: law.to_json() for name, law in self.laws.items()}
        return {"laws": laws, "own": list(self.own), "entries": list(self.entries)}

    @staticmethod
    def from_json(facts: Mapping[str, Any] | None, results: Results) -> Composition | None:
        """The inverse of `to_json`; facts that are none raise KeyError, TypeError or ValueError."""
        if facts is None:
            return None
        laws = {str(name): Law.from_json(law) for name, law in facts["laws"].items()}
        own, entries = tuple(map(str, facts["own"])), tuple(map(int, facts["entries"]))
        if set(results.components or ()) != {*laws, *own}:
            raise ValueError("components")
        return Composition(results, laws, own, entries)


def composition(
    results: Results, ledger: Ledger, identity: Identity, again: Callable[[str], Results]
) -> Composition | None:
    """What was released before from these databases, beside the results of a new query; None if nothing was.

    Parameters
    ----------
    results : of the new query
    ledger : where the releases are remembered
    identity : the databases
    again : asks the text of an earlier query of the same databases
    """
    if results.draws is not None:
        raise InputError("`ledger` must go with a query that is not randomised: its noise is what is designed.")
    entries = ledger.released(identity, results.rows)
    if not entries:
        return None
    parts: dict[str, Results] = {}
    laws: dict[str, Law] = {}
    for entry in _different(entries):
        found = _asked_again(entry, ledger, again)
        inner = found.components or (None,)
        if len(inner) != len(laws_of(entry)):
            raise InputError(
                f"Entry {entry.id} of the ledger must hold as many laws as its query gives numbers, got "
                f"{len(laws_of(entry))} for {len(inner)}."
            )
        label = f"released in entry {entry.id}"
        parts[label] = found
        for component, law in zip(inner, laws_of(entry), strict=True):
            laws[label if component is None else f"{label}: {component}"] = law
    own = (NOW,) if results.components is None else tuple(f"{NOW}: {inner}" for inner in results.components)
    stacked = Results.stack({**parts, NOW: results})
    return Composition(stacked, laws, own, tuple(entry.id for entry in entries))


def _inner(name: str) -> str:
    return name.removeprefix(f"{NOW}: ")


def laws_of(entry: ReleaseEntry) -> list[Law]:
    """The laws of the noise of a release, of each of its numbers."""
    try:
        return [Law.from_json(law) for law in entry.law["laws"]]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"Entry {entry.id} of the ledger must hold a law of empriv's own, got another.") from None


def _different(entries: Sequence[ReleaseEntry]) -> list[ReleaseEntry]:
    """One entry of each query and noise, and those that may be of the same database once more.

    The same query and noise asked of another database is no further query.
    """
    different: dict[Any, ReleaseEntry] = {}
    for entry in entries:
        asked = (entry.query, entry.component, repr(sorted(dict(entry.law).items())))
        different.setdefault(entry.id if entry.further else asked, entry)
    return list(different.values())


def _asked_again(entry: ReleaseEntry, ledger: Ledger, again: Callable[[str], Results]) -> Results:
    kept = ledger.results_of(entry)
    if kept is not None:
        return kept
    found = again(entry.query)
    return found if entry.component is None else found.component(entry.component)
