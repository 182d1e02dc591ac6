"""`Tally`: what is kept about many individuals: largest values, sums, counts, and the riskiest themselves.

Tallies of different individuals merge, in any order and grouping, into the tally of all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.storage import WRONG_FACTS, arrays_from_bytes, arrays_to_bytes
from empriv.errors import FileFormatError
from empriv.results import FloatArray, IntArray, Outcome, Results
from empriv.validate.checks.robustness import subset
from empriv.words.outcomes import outcome_code, outcome_name

# Upper edges of the histogram of delta_i: the first counts those that are 0, the others rise by half a decade.
EDGES = np.concatenate(([0.0], 10.0 ** np.arange(-8.0, 0.25, 0.5)))
_SUMS = ("kept", "exposed", "histogram", "not_numbers")
_MOSTS = ("worst", "upper", "capped", "epsilon_at", "moved")
_SOURCE = "made_from_"  # arrays of what the riskiest's results were made from
_RESULTS = ("individuals", "starts", "entry_database", "entry_q", "entry_outcomes")


@dataclass(frozen=True, eq=False)
class Tally:
    """Figures over many individuals.

    Attributes
    ----------
    n_individuals, n_entries : how many people, and how many pairs of a person and a database they are in
    worst : (epsilons,) largest delta_i
    kept : (epsilons,) sum of log(1 - delta_i), from which total risk follows
    exposed : (epsilons,) individuals whose delta_i is not 0
    histogram : (epsilons, len(EDGES)) individuals by delta_i
    upper : (epsilons,) largest upper bound on a delta_i
    capped : (epsilons,) the same, nobody's bound above that of the answers that these were made from
    epsilon_at : (deltas,) largest epsilon_i
    moved : (1,) the most that anybody moved the answer on a day, in units of the law that hides it
    not_numbers : (outcomes,) how many results without an individual have each outcome, except numbers
    leaks : for each code of an exact leak, how many individuals it concerns and its largest share of results
    riskiest : results without each of the riskiest individuals: those in the ``top`` at any of the epsilons
    riskiest_delta_i : (riskiest, epsilons)
    riskiest_influence : (riskiest,) largest change of a result, NaN if either result is not a number
    source : the tally of the answers that these were made from; None if these are the first, and in files, which keep
        its bounds alone
    """

    n_individuals: int
    n_entries: int
    worst: FloatArray
    kept: FloatArray
    exposed: IntArray
    histogram: IntArray
    upper: FloatArray
    capped: FloatArray
    epsilon_at: FloatArray
    moved: FloatArray
    not_numbers: IntArray
    leaks: Mapping[str, tuple[int, float]]
    riskiest: Results
    riskiest_delta_i: FloatArray
    riskiest_influence: FloatArray
    source: Tally | None = None

    @property
    def total_risk(self) -> FloatArray:
        """``1 - prod(1 - delta_i)``, never below the largest delta_i."""
        return np.maximum(0.0 - np.expm1(self.kept), self.worst)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Facts fit for JSON, and arrays fit for ``.npy``."""
        arrays = {name: getattr(self, name) for name in (*_SUMS, *_MOSTS, "riskiest_delta_i", "riskiest_influence")}
        about, of_results = self.riskiest.to_parts()
        arrays |= {name: array for name, array in of_results.items() if name in _RESULTS or name.startswith(_SOURCE)}
        leaks = {outcome_name(code): [count, share] for code, (count, share) in self.leaks.items()}
        facts = {"n_individuals": self.n_individuals, "n_entries": self.n_entries, "leaks": leaks}
        return facts | {name: about[name] for name in ("made_from",) if name in about}, arrays

    @staticmethod
    def from_parts(meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], riskiest: Results) -> Tally:
        """The inverse of `to_parts`, with the results of the riskiest."""
        try:
            _check_shapes(arrays, riskiest)
            named = (*_SUMS, *_MOSTS, "riskiest_delta_i", "riskiest_influence")
            return Tally(
                n_individuals=int(meta["n_individuals"]),
                n_entries=int(meta["n_entries"]),
                leaks={
                    outcome_code(name): (int(count), float(share)) for name, (count, share) in meta["leaks"].items()
                },
                riskiest=riskiest,
                source=None,
                **{name: arrays[name] for name in named},
            )
        except WRONG_FACTS as error:
            raise FileFormatError("The file is damaged: its arrays do not fit together.") from error


def _check_shapes(arrays: Mapping[str, npt.NDArray[Any]], riskiest: Results) -> None:
    k, n = len(arrays["worst"]), riskiest.n_individuals
    shapes = {
        **dict.fromkeys(("worst", "kept", "exposed", "upper", "capped"), (k,)),
        "histogram": (k, len(EDGES)),
        "epsilon_at": arrays["epsilon_at"].shape[:1],
        "moved": (1,),
        "not_numbers": (len(Outcome),),
        "riskiest_delta_i": (n, k),
        "riskiest_influence": (n,),
    }
    if any(arrays[name].shape != shape for name, shape in shapes.items()):
        raise ValueError("shapes")


def with_entries(everyone: Results, entries: Mapping[str, Any]) -> Results:
    """Results with everyone, and these individuals and entries."""
    return replace(everyone, **entries)


def merge(first: Tally, second: Tally, *, top: int) -> Tally:
    """The tally of the individuals of both."""
    leaks = dict(first.leaks)
    for name, (count, share) in second.leaks.items():
        before = leaks.get(name, (0, 0.0))
        leaks[name] = (before[0] + count, max(before[1], share))
    riskiest = _joined(first.riskiest, second.riskiest)
    delta_i = np.concatenate((first.riskiest_delta_i, second.riskiest_delta_i))
    influence = np.concatenate((first.riskiest_influence, second.riskiest_influence))
    rows = riskiest_rows(delta_i, influence, riskiest.individuals, top)
    return Tally(
        n_individuals=first.n_individuals + second.n_individuals,
        n_entries=first.n_entries + second.n_entries,
        leaks=leaks,
        riskiest=subset(riskiest, rows),
        riskiest_delta_i=delta_i[rows],
        riskiest_influence=influence[rows],
        source=None if first.source is None or second.source is None else merge(first.source, second.source, top=top),
        **{name: getattr(first, name) + getattr(second, name) for name in _SUMS},
        **{name: np.maximum(getattr(first, name), getattr(second, name)) for name in _MOSTS},
    )


def merge_all(tallies: Iterable[Tally], *, top: int) -> Tally:
    """The tally of all; there must be at least one."""
    return reduce(lambda first, second: merge(first, second, top=top), tallies)


def with_absent(tally: Tally, count: int) -> Tally:
    """The tally with this many more individuals who are in no database: nothing changes without them."""
    histogram = tally.histogram.copy()
    histogram[:, 0] += count
    return replace(tally, n_individuals=tally.n_individuals + count, histogram=histogram)


def riskiest_rows(delta_i: FloatArray, influence: FloatArray, labels: npt.NDArray[Any], top: int) -> IntArray:
    """Rows in the ``top`` at any epsilon, riskiest at the smallest first; ties go by influence, then by label.

    The order is total, so that merging in another order keeps the same individuals.
    """
    size = -np.where(np.isnan(influence), np.inf, influence)
    if len(labels) > 4 * top:
        # Sorting labels is expensive, so sort only those whom risk and influence do not rule out.
        candidate = np.zeros(len(labels), bool)
        for delta in delta_i.T:
            above = delta[delta > 0]  # for nearly all it is 0
            least = np.partition(above, -top)[-top] if len(above) >= top else 0.0  # nobody below is among them
            level = np.flatnonzero(delta == least)
            wanted = top - np.count_nonzero(delta > least)
            candidate[level[size[level] <= np.partition(size[level], wanted - 1)[wanted - 1]]] = True
            candidate |= delta > least
        rows = np.flatnonzero(candidate)
    else:
        rows = np.arange(len(labels))
    rank = np.argsort(np.argsort(labels[rows], kind="stable"), kind="stable")
    chosen = np.zeros(len(rows), bool)
    orders = [np.lexsort((rank, size[rows], -delta_i[rows, column])) for column in range(delta_i.shape[1])]
    for order in orders:
        chosen[order[:top]] = True
    first = orders[0]
    return np.asarray(rows[first[chosen[first]]])


def histogram_of(delta_i: FloatArray) -> IntArray:
    """(epsilons, len(EDGES)): individuals by delta_i; a bin holds those above the edge before it, up to its own."""
    place = np.searchsorted(EDGES, delta_i, side="left")
    counts = [np.bincount(column, minlength=len(EDGES))[: len(EDGES)] for column in np.minimum(place, len(EDGES) - 1).T]
    return np.array(counts, np.int64)


def outcome_histogram(results: Results) -> IntArray:
    """How many results without an individual have each outcome, except numbers."""
    codes = results.entry_outcomes[results.entry_outcomes != Outcome.NUMBER]
    return np.bincount(codes, minlength=len(Outcome)).astype(np.int64)


def to_bytes(tally: Tally) -> bytes:
    """A tally as bytes, without pickle; `from_bytes` reads them."""
    meta, arrays = tally.to_parts()
    return arrays_to_bytes({"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8), **arrays})


def from_bytes(content: bytes, everyone: Results) -> Tally:
    """The inverse of `to_bytes`."""
    arrays = arrays_from_bytes(content)
    meta = json.loads(arrays.pop("meta").tobytes())
    try:
        riskiest = with_entries(everyone, {name: arrays[name] for name in _RESULTS})
        riskiest.check_values()
    except WRONG_FACTS as error:
        raise FileFormatError("The file is damaged: its arrays do not fit together.") from error
    return Tally.from_parts(meta, arrays, riskiest)


def _joined(first: Results, second: Results) -> Results:
    joined: dict[str, Any] = {
        name: np.concatenate((getattr(first, name), getattr(second, name))) for name in _RESULTS if name != "starts"
    }
    joined["starts"] = np.concatenate((first.starts, first.starts[-1] + second.starts[1:]))
    if first.made_from is not None and second.made_from is not None:
        joined["made_from"] = _joined(first.made_from, second.made_from)
    return with_entries(first, joined)
