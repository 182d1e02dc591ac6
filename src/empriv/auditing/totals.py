"""People who were measured in chunks: `Totals` is what is kept of them, and `TotalledRisk` answers from it.

Totals hold largest values, sums, counts, and the results of the most exposed. Totals of different people merge, in any
order and grouping, into the totals of all of them. The risk is made for a few epsilons, and holds what a decision needs
in the memory of a small audit, however many people there are. It refuses questions that it was not made for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from empriv.base.storage import WRONG_FACTS, arrays_from_bytes, arrays_to_bytes
from empriv.errors import FileFormatError, InputError
from empriv.judge.noise_kernels import NoiseGiven, NoiseKernel
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring import AnyRisk, Risk
from empriv.measuring.any_risk import Several, Sums, table_of
from empriv.measuring.densities.selection import Score
from empriv.measuring.line.moves import COUNTED, HEAVIEST, CountedMoves, MoveTotals
from empriv.results import FloatArray, IntArray, Outcome, Results
from empriv.validate.bounds import Bounds, bounds_of, floor, no_noise, no_upper_bound
from empriv.validate.checks import checks_of, leak_check
from empriv.validate.covers import LineCover, line_cover_of
from empriv.validate.line_bounds import lower_of_people, upper_of_people
from empriv.words.message import Message
from empriv.words.sentences import outcome_code, outcome_name

LEVEL = 0.95
"""Confidence of the bounds, which are totalled when people are measured."""
# Checks that look at everyone: those who are kept would give a different answer.
_OF_EVERYONE = {"modes", "exact-leak"}
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


def refuse_totals(risk: AnyRisk, name: str) -> None:
    """Refuse what needs everybody's results, if only those of the most exposed are kept."""
    if isinstance(risk, TotalledRisk):
        raise InputError(
            f"`{name}` must be asked of an audit that holds everybody's results: people were measured in chunks, and "
            "only the most exposed are kept. Hint: audit again with in_chunks=False, where the memory suffices."
        )


@dataclass(frozen=True, eq=False)
class TotalledRisk(AnyRisk):
    """How private results are, with the most exposed people kept and the others totalled.

    Attributes
    ----------
    results : with everyone, and without each of the people who are kept
    kept : the risk of these people, for a closer look at any epsilon
    totals : largest values, sums and counts over all people
    epsilons, deltas : what people were measured at; nothing else can be answered
    """

    results: Results = field(repr=False)
    kept: Risk = field(repr=False)
    totals: Totals = field(repr=False)
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    @property
    def n_individuals(self) -> int:
        return self.totals.n_individuals

    @property
    def model(self) -> tuple[str, tuple[Score, ...]] | None:
        return self.kept.model

    @property
    def usual_epsilons(self) -> tuple[float, ...]:
        """Those that it was made for: it answers at no other."""
        return self.epsilons

    @property
    def is_as_totalled(self) -> bool:
        """Whether the people who are kept have the figures that they were totalled with."""
        here = self.kept.delta_i(np.array(self.epsilons))
        return bool(np.allclose(here, self.totals.kept_delta_i, rtol=1e-6, atol=1e-9))

    def tells_epsilon(self, delta: float) -> bool:
        return delta in self.deltas

    def curves(self, epsilons: FloatArray) -> FloatArray:
        self.places(epsilons)  # another epsilon is refused first
        refuse_totals(self, "delta_i")
        raise AssertionError

    def sums(self, epsilons: FloatArray) -> Sums:
        places, totals = self.places(epsilons), self.totals
        return Sums(totals.delta[places], totals.total_risk[places], totals.exposed[places])

    def epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``, which must be among ``deltas``."""
        return float(self.totals.epsilon_at[_place("delta", delta, self.deltas)])

    def histogram(self, epsilon: float) -> dict[str, npt.NDArray[Any]]:
        """People by delta_i: columns ``above``, ``up_to`` and ``individuals``; the first row are those at 0."""
        counts = self.totals.histogram[self.places(epsilon)[0]]
        return {"above": np.concatenate(([0.0], EDGES[:-1])), "up_to": EDGES.copy(), "individuals": counts.copy()}

    def individuals(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table of the people who are kept, as for any risk; ties are ordered by label."""
        delta_i, influence = self.totals.kept_delta_i[:, self.places(epsilon)[0]], self.influence()
        size = np.where(np.isnan(influence), np.inf, influence)
        by_label = np.argsort(np.argsort(self.results.individuals))
        return table_of(self.results, np.lexsort((by_label, -size, -delta_i))[:top], delta_i, influence)

    def influence(self) -> FloatArray:
        """Largest change that each of the people who are kept makes to a result."""
        return self.totals.kept_influence

    def repeated(self, times: int) -> AnyRisk:
        """Of one publication: what people do day by day is not totalled."""
        if times > 1:
            refuse_totals(self, "times")
        return self

    def noise_subject(self) -> NoReturn:
        refuse_totals(self, "noise")
        raise AssertionError

    def places(self, epsilon: float | Several | FloatArray) -> list[int]:
        """Positions of these epsilons among those that people were measured at; others are refused."""
        values = np.atleast_1d(np.asarray(epsilon, float)).tolist()
        return [_place("epsilon", value, self.epsilons) for value in values]


@bounds_of.register(TotalledRisk)
def bounds_of_totals(risk: TotalledRisk, epsilons: FloatArray, level: float, noise: NoiseGiven = 0.0) -> Bounds:
    """The upper bound is over all people. The lower one looks for its set among those who are kept only, which at worst
    is weaker. Nobody's own bound is kept."""
    no_noise(noise)
    places = risk.places(epsilons)
    if level != LEVEL:
        raise InputError(
            f"`level` must be {LEVEL:g} where people were measured in chunks, got {level:g}. "
            "Hint: audit again with in_chunks=False, where the memory suffices."
        )
    totals, grid = risk.totals, np.array(risk.epsilons)
    n = risk.results.n_databases
    assumes: list[Message] = []
    upper = np.ones(len(grid))
    if n < LEAST_DATABASES:
        assumes.append(no_upper_bound(n))
    else:
        assumes += upper_of_people(risk.kept, grid, LEVEL)[1]
        # delta falls in epsilon: if the bound at a larger epsilon is higher, the one before it was too low.
        upper = np.maximum.accumulate(totals.upper[::-1])[::-1]
    lower = lower_of_people(risk.kept, grid, LEVEL)
    upper = np.max((upper, np.full(len(grid), floor(n, LEVEL)), lower, totals.delta), axis=0)

    return Bounds(
        epsilon=grid[places],
        level=LEVEL,
        lower=np.minimum(lower, upper)[places],
        estimate=totals.delta[places],
        upper=upper[places],
        upper_i=np.full((0, len(places)), np.nan),
        assumes=tuple(assumes),
    )


@checks_of.register(TotalledRisk)
def checks_of_totals(risk: TotalledRisk, epsilon: float) -> list[Message]:
    """The check for exact leaks looks at everyone. The others look at the results and the people who are kept; the one
    that would need everybody's influence at once is left out ("modes")."""
    leaks = [leak_check(outcome_name(code), count, share) for code, (count, share) in risk.totals.leaks.items()]
    return leaks + [check for check in checks_of(risk.kept, epsilon) if check.code not in _OF_EVERYONE]


@line_cover_of.register(TotalledRisk)
def line_cover_of_totals(risk: TotalledRisk, kernel: NoiseKernel | None) -> LineCover:
    """Kept are those who moved the answer furthest, and the heaviest, whose absence makes a law of its own; the moves
    of all were counted."""
    if kernel is not None:
        refuse_totals(risk, "noise")
    return replace(line_cover_of(risk.kept, None), of_all=risk.totals.moves)


def _place(name: str, value: float, listed_values: tuple[float, ...]) -> int:
    if float(value) not in listed_values:
        listed = ", ".join(f"{each:g}" for each in listed_values)
        raise InputError(
            f"`{name}` must be one that people were measured at ({listed}), got {float(value):g}: they were measured "
            f"in chunks, and totalled. Hint: audit again with that {name}."
        )
    return listed_values.index(float(value))
