"""`Totals`: what is kept of many people: largest values, sums, counts, and the results of the most exposed.

Totals of different people merge, in any order and grouping, into the totals of all of them.
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
from empriv.measuring.line.moves import COUNTED, HEAVIEST, CountedMoves, MoveTotals
from empriv.results import FloatArray, IntArray, Outcome, Results
from empriv.words.sentences import outcome_code, outcome_name

# Upper edges of the histogram of delta_i: the first counts those that are 0, the others rise by half a decade.
EDGES = np.concatenate(([0.0], 10.0 ** np.arange(-8.0, 0.25, 0.5)))
_SUMS = ("log_safe", "exposed", "histogram", "members", "not_numbers")
_MOSTS = ("delta", "upper", "epsilon_at")
_KEPT = ("kept_delta_i", "kept_influence", "kept_moves")
_ENTRIES = ("individuals", "starts", "entry_database", "entry_q", "entry_outcomes")


@dataclass(frozen=True, eq=False)
class Totals:
    """Figures over many people.

    Attributes
    ----------
    n_individuals : how many people
    members : (databases,) in how many of their entries each database is
    delta : (epsilons,) largest delta_i
    log_safe : (epsilons,) sum of log(1 - delta_i), from which total risk follows
    exposed : (epsilons,) people whose delta_i is not 0
    histogram : (epsilons, len(EDGES)) people by delta_i
    upper : (epsilons,) largest upper bound on a delta_i
    epsilon_at : (deltas,) largest epsilon_i
    moves : what is asked of everybody's moves of the answer together
    not_numbers : (outcomes,) how many results without a person have each outcome, except numbers
    leaks : for each code of an exact leak, how many people it concerns and its largest share of results
    kept : results without each of the people who are kept, in the order of their labels: the most exposed at any of the
        epsilons or by their largest move, and the heaviest, without whom the results are a law of their own
    kept_delta_i : (kept, epsilons)
    kept_influence : (kept,) largest change of a result, NaN if either result is not a number
    kept_moves : (kept, 3) largest move in units of the law, the same in the answer's, and weight
    """

    n_individuals: int
    members: IntArray
    delta: FloatArray
    log_safe: FloatArray
    exposed: IntArray
    histogram: IntArray
    upper: FloatArray
    epsilon_at: FloatArray
    moves: MoveTotals
    not_numbers: IntArray
    leaks: Mapping[str, tuple[int, float]]
    kept: Results
    kept_delta_i: FloatArray
    kept_influence: FloatArray
    kept_moves: FloatArray

    @property
    def n_entries(self) -> int:
        """Pairs of a person and a database that they are in."""
        return int(self.members.sum())

    @property
    def total_risk(self) -> FloatArray:
        """``1 - prod(1 - delta_i)``, never below the largest delta_i."""
        return np.maximum(0.0 - np.expm1(self.log_safe), self.delta)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Facts fit for JSON, and arrays fit for ``.npy``, without the results of who is kept."""
        arrays = {f"totals_{name}": getattr(self, name) for name in (*_SUMS, *_MOSTS, *_KEPT)}
        arrays["totals_most_moved"] = np.array([self.moves.most])
        for name in COUNTED:
            counted: CountedMoves = getattr(self.moves, name)
            arrays |= {f"totals_{name}_values": counted.values, f"totals_{name}_counts": counted.counts}
        leaks = {outcome_name(code): [count, share] for code, (count, share) in self.leaks.items()}
        return {"n_individuals": self.n_individuals, "leaks": leaks}, arrays

    @staticmethod
    def from_parts(facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], kept: Results) -> Totals:
        """The inverse of `to_parts`, with the results of who is kept; invalid facts raise `WRONG_FACTS`."""
        own = {name.removeprefix("totals_"): array for name, array in arrays.items() if name.startswith("totals_")}
        _check_shapes(own, kept)
        parts = [CountedMoves(own[f"{name}_values"], own[f"{name}_counts"]) for name in COUNTED]
        return Totals(
            n_individuals=int(facts["n_individuals"]),
            leaks={outcome_code(name): (int(count), float(share)) for name, (count, share) in facts["leaks"].items()},
            kept=kept,
            moves=MoveTotals(float(own["most_moved"][0]), *parts),
            **{name: own[name] for name in (*_SUMS, *_MOSTS, *_KEPT)},
        )

    def to_bytes(self) -> bytes:
        """All of it as bytes, without pickle and without the results with everyone; `from_bytes` reads them."""
        facts, arrays = self.to_parts()
        entries = self.kept.to_parts()[1]
        arrays |= {name: entries[name] for name in _ENTRIES}
        return arrays_to_bytes({"facts": np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays})

    @staticmethod
    def from_bytes(content: bytes, everyone: Results) -> Totals:
        """The inverse of `to_bytes`."""
        arrays = arrays_from_bytes(content)
        try:
            facts = json.loads(arrays.pop("facts").tobytes())
            entries: dict[str, Any] = {name: arrays[name] for name in _ENTRIES}
            kept = replace(everyone, **entries)
            kept.check_values()
            return Totals.from_parts(facts, arrays, kept)
        except WRONG_FACTS as error:
            raise FileFormatError("The file is damaged: its arrays do not fit together.") from error


def _check_shapes(arrays: Mapping[str, npt.NDArray[Any]], kept: Results) -> None:
    k, n = len(arrays["delta"]), kept.n_individuals
    shapes = {
        **dict.fromkeys(("delta", "log_safe", "exposed", "upper"), (k,)),
        "histogram": (k, len(EDGES)),
        "members": (kept.n_databases,),
        "epsilon_at": arrays["epsilon_at"].shape[:1],
        "most_moved": (1,),
        "not_numbers": (len(Outcome),),
        "kept_delta_i": (n, k),
        "kept_influence": (n,),
        "kept_moves": (n, 3),
    }
    if any(arrays[name].shape != shape for name, shape in shapes.items()):
        raise ValueError("shapes")
    for name in COUNTED:
        values, counts = arrays[f"{name}_values"], arrays[f"{name}_counts"]
        if values.ndim != 1 or values.shape != counts.shape or np.any(~(values >= 0)) or np.any(counts < 0):
            raise ValueError("moves")


def merge(first: Totals, second: Totals, *, keep: int) -> Totals:
    """The totals of the people of both."""
    leaks = dict(first.leaks)
    for name, (count, share) in second.leaks.items():
        before = leaks.get(name, (0, 0.0))
        leaks[name] = (before[0] + count, max(before[1], share))
    one, other = first.kept, second.kept
    entries: dict[str, Any] = {
        name: np.concatenate((getattr(one, name), getattr(other, name))) for name in _ENTRIES if name != "starts"
    }
    kept = replace(one, **entries, starts=np.concatenate((one.starts, one.starts[-1] + other.starts[1:])))
    joined = {name: np.concatenate((getattr(first, name), getattr(second, name))) for name in _KEPT}
    rows = most_exposed_rows(*(joined[name] for name in _KEPT), labels=kept.individuals, keep=keep)
    return Totals(
        n_individuals=first.n_individuals + second.n_individuals,
        leaks=leaks,
        kept=kept.of_individuals(rows),
        moves=first.moves.with_those_of(second.moves),
        **{name: getattr(first, name) + getattr(second, name) for name in _SUMS},
        **{name: np.maximum(getattr(first, name), getattr(second, name)) for name in _MOSTS},
        **{name: array[rows] for name, array in joined.items()},
    )


def merge_all(parts: Iterable[Totals], *, keep: int) -> Totals:
    """The totals of all; there must be at least one."""
    return reduce(lambda first, second: merge(first, second, keep=keep), parts)


def with_absent(totals: Totals, count: int) -> Totals:
    """The totals with this many more people who are in no database: nothing changes without them."""
    histogram = totals.histogram.copy()
    histogram[:, 0] += count
    still = CountedMoves(np.zeros(1), np.array([count]))
    moves = replace(totals.moves, largest=totals.moves.largest.with_those_of(still))
    return replace(totals, n_individuals=totals.n_individuals + count, histogram=histogram, moves=moves)


def most_exposed_rows(
    delta_i: FloatArray, influence: FloatArray, moves: FloatArray, *, labels: npt.NDArray[Any], keep: int
) -> IntArray:
    """Rows of the ``keep`` most exposed at any epsilon or by their largest move, and of the heaviest, by their labels.

    Ties go by influence (of moves: by their size), then by label, so that merging in another order keeps the same
    people.
    """
    size = np.where(np.isnan(influence), np.inf, influence)
    by = [*((delta, size, keep) for delta in delta_i.T), (moves[:, 0], moves[:, 1], keep)]
    by.append((moves[:, 2], np.zeros(len(labels)), min(keep, HEAVIEST)))
    rows = np.unique(np.concatenate([_largest(*keys, labels) for keys in by]))
    return np.asarray(rows[np.argsort(labels[rows], kind="stable")])


def _largest(first: FloatArray, second: FloatArray, keep: int, labels: npt.NDArray[Any]) -> IntArray:
    """The ``keep`` rows by a figure, then by another, then by label."""
    rows = np.arange(len(labels))
    if len(rows) > keep:
        # sorting labels is expensive: only those whom the figures do not rule out
        for figure in (first, second):
            least = np.partition(figure[rows], -keep)[-keep] if len(rows) > keep else -np.inf
            above = rows[figure[rows] > least]
            if figure is first:
                surely, rows, keep = above, rows[first[rows] == least], keep - len(above)
            else:
                rows = rows[second[rows] >= least]
        order = np.lexsort((np.argsort(np.argsort(labels[rows], kind="stable")), -second[rows]))[:keep]
        rows = np.concatenate((surely, rows[order]))
    return rows


def histogram_of(delta_i: FloatArray) -> IntArray:
    """(epsilons, len(EDGES)): people by delta_i; a bin holds those above the edge before it, up to its own."""
    place = np.searchsorted(EDGES, delta_i, side="left")
    counts = [np.bincount(column, minlength=len(EDGES))[: len(EDGES)] for column in np.minimum(place, len(EDGES) - 1).T]
    return np.array(counts, np.int64)
