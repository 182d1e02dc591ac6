"""`AnyRisk`: what every kind of risk can be asked, written once.

A kind of risk gives `curves`: delta_i of every individual at some epsilons. All other figures follow from it here. A
kind overrides one of them only where it knows the exact or a quicker answer. Bounds, checks and facts are dispatched by
kind in the rooms that know them; a kind that none of them knows gets what holds for any.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import epsilon_grid, probability
from empriv.base.text import table_html
from empriv.measuring.densities.selection import Score, spread
from empriv.results import FloatArray, IntArray, Results
from empriv.words.sentences import number

if TYPE_CHECKING:
    from empriv.measuring.series.repeated import HowOften, PublicationEffects
    from empriv.validate.bounds import Bounds

Several: TypeAlias = Sequence[float] | npt.NDArray[Any]
"""Several epsilons."""

_LARGEST_EPSILON = 64.0  # beyond it e^-epsilon is less than rounding: people who are not private there never are
_KEPT = 40_000  # figures of the last questions, if they are more than those of one
_HALVINGS = 60


class Sums(NamedTuple):
    """(epsilons,) largest delta_i, total risk, and how many individuals have a delta_i that is not 0."""

    delta: FloatArray
    total_risk: FloatArray
    exposed: IntArray


class AnyRisk(ABC):
    """How private results are for every individual, by any kind of measurement.

    A kind is a frozen dataclass with a field ``results`` and the method `curves`; ``eq=False``, since arrays cannot be
    compared by it.

    Attributes
    ----------
    results : what was measured
    postprocessed_from : the risk of the answers that these were computed from, which tell at least as much; None if
        there are none. Figures are never above its figures.
    """

    results: Results
    postprocessed_from: AnyRisk | None = None

    @abstractmethod
    def curves(self, epsilons: FloatArray) -> FloatArray:
        """(individuals, epsilons) delta_i at epsilons that are checked, rising and different; never understated."""

    # In a notebook

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # else a dataclass writes one, which holds whatever its fields hold
            cls.__repr__ = AnyRisk.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.results.n_databases:,} databases, {self.n_individuals:,} individuals)"

    def _repr_html_(self) -> str:
        grid = np.array(self.usual_epsilons)
        columns = (grid, self.delta(grid), self.total_risk(grid), self.exposed(grid))
        rows = [
            [f"{epsilon:g}", number(float(delta), 3), number(float(total), 3), f"{count:,} of {self.n_individuals:,}"]
            for epsilon, delta, total, count in zip(*columns, strict=True)
        ]
        return table_html(repr(self), ("epsilon", "delta", "total risk", "individuals exposed"), rows)

    @property
    def usual_epsilons(self) -> tuple[float, ...]:
        """Where figures are shown if nobody says where."""
        return (0.05, 0.1, 0.2)

    # Figures

    def delta_i(self, epsilon: float | Several) -> FloatArray:
        """Failure probability of each individual: (individuals,), or (individuals, epsilons) for an array."""
        grid = epsilon_grid(epsilon)
        key = tuple(grid.ravel().tolist())
        kept = self._last_curves
        # who is screened out depends on the least epsilon: with the same one, figures are the same
        known = next(
            (curves for asked, curves in kept.items() if asked == key or key == asked[:1] == (min(asked),)), None
        )
        if known is None:
            rising, back = np.unique(grid.ravel(), return_inverse=True)
            known = self.curves(rising)
            if self.postprocessed_from is not None:  # whatever the estimates say: no function adds to what is told
                known = np.minimum(known, self.postprocessed_from.delta_i(rising))
            known = known if np.array_equal(rising, grid.ravel()) else known[:, back]
            while kept and sum(map(np.size, kept.values())) + known.size > _KEPT:
                del kept[next(iter(kept))]
            kept[key] = known
        return known[:, 0].copy() if grid.ndim == 0 else known[:, : len(key)].copy()

    @overload
    def delta(self, epsilon: float) -> float: ...

    @overload
    def delta(self, epsilon: Several) -> FloatArray: ...

    def delta(self, epsilon: float | Several) -> float | FloatArray:
        """Largest delta_i: a float, or an array for an array."""
        largest = self.sums(np.atleast_1d(epsilon_grid(epsilon))).delta
        return float(largest[0]) if np.ndim(epsilon) == 0 else largest

    @overload
    def total_risk(self, epsilon: float) -> float: ...

    @overload
    def total_risk(self, epsilon: Several) -> FloatArray: ...

    def total_risk(self, epsilon: float | Several) -> float | FloatArray:
        """``1 - prod(1 - delta_i)``: chance that a person's privacy fails, if failures are independent."""
        total = self.sums(np.atleast_1d(epsilon_grid(epsilon))).total_risk
        return float(total[0]) if np.ndim(epsilon) == 0 else total

    @overload
    def exposed(self, epsilon: float) -> int: ...

    @overload
    def exposed(self, epsilon: Several) -> IntArray: ...

    def exposed(self, epsilon: float | Several) -> int | IntArray:
        """How many individuals have a delta_i that is not 0."""
        counts = self.sums(np.atleast_1d(epsilon_grid(epsilon))).exposed
        return int(counts[0]) if np.ndim(epsilon) == 0 else counts

    def sums(self, epsilons: FloatArray) -> Sums:
        """What is said of all individuals together, at each of these epsilons."""
        delta_i = self.delta_i(epsilons)
        largest = np.asarray(delta_i.max(axis=0, initial=0.0))
        return Sums(largest, total_risk_of(delta_i), np.asarray(np.count_nonzero(delta_i > 0, axis=0)))

    def epsilon_i(self, delta: float = 0.0) -> FloatArray:
        """Smallest epsilon at which each individual's delta_i is at most ``delta``; inf where none is."""
        smallest = self.own_epsilon_i(delta)
        return (
            smallest
            if self.postprocessed_from is None
            else np.minimum(smallest, self.postprocessed_from.epsilon_i(delta))
        )

    def epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``; inf where none is."""
        return (
            self.own_epsilon(delta)
            if self.postprocessed_from is None
            else float(self.epsilon_i(delta).max(initial=0.0))
        )

    def own_epsilon_i(self, delta: float) -> FloatArray:
        """`epsilon_i`, whatever the answers were made from.

        From `curves` by halving, rounded up: the time grows with the square of the individuals.
        """
        probability("delta", delta)

        def broken(epsilons: FloatArray) -> npt.NDArray[np.bool_]:
            rising, back = np.unique(epsilons, return_inverse=True)
            return np.asarray(self.curves(rising)[np.arange(len(epsilons)), back] > delta)

        return smallest_epsilons(broken, self.results.n_individuals)

    def own_epsilon(self, delta: float) -> float:
        """`epsilon`, whatever the answers were made from."""
        probability("delta", delta)
        return float(smallest_epsilons(lambda epsilons: self.curves(epsilons).max(axis=0, initial=0.0) > delta, 1)[0])

    # Individuals

    @property
    def n_individuals(self) -> int:
        """How many individuals the figures are of."""
        return self.results.n_individuals

    def individuals(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table of the individuals, riskiest first; ``pandas.DataFrame`` takes it as it is.

        individual, delta_i, largest_influence (see `influence`), databases (in how many the individual is).
        """
        return ranking(self.results, self.delta_i(float(epsilon)), self.influence(), top)[1]

    def influence(self) -> FloatArray:
        """Largest change that each individual makes to a result; NaN where a result is not a number on one side only.

        For several numbers, the largest over them in units of each number's spread: min(sd, IQR/1.349) of its results
        with everyone, or 1 where that is zero.
        """
        names = self.results.components
        if names is None:
            return largest_influence(self.results)
        out = np.zeros(self.results.n_individuals)
        for cell in range(len(names)):
            numbers = self.results.q[..., cell][self.results.outcomes[..., cell] == 0]
            out = np.maximum(out, largest_influence(self.results, cell) / (spread(numbers.ravel()) or 1.0))
        return out  # NaN if one is

    # What else is known of a kind

    @property
    def each_number(self) -> Mapping[str, AnyRisk]:
        """The risk of each number alone, by name; empty where only one was measured."""
        return {}

    @property
    def model(self) -> tuple[str, tuple[Score, ...]] | None:
        """The fitted density in words, and the score of every candidate; None if none was fitted."""
        return None

    @property
    def usual_level(self) -> float:
        """The confidence of bounds unless another is asked for."""
        return 0.95

    def repeated(self, times: int) -> AnyRisk:
        """The risk of so many publications, each from a database of its own; that of one is the risk itself.

        For people who are in the databases of all of them, or of none. See docs/again.md.
        """
        from empriv.measuring.series import repeated_of  # which is made of risks

        return repeated_of(self, times)

    @cached_property
    def per_publication(self) -> PublicationEffects:
        """What one publication tells of each individual, from which the figures of several follow."""
        from empriv.measuring.series import effects_of_risk  # as above

        return effects_of_risk(self)

    def how_often(self, *, epsilon: float, delta: float, level: float | None = None) -> HowOften:
        """The largest number of publications within a target."""
        from empriv.validate.bounds import how_often  # a shortcut upwards, as for `bounds`

        return how_often(self, epsilon=epsilon, delta=delta, level=level)

    def tells_epsilon(self, delta: float) -> bool:  # noqa: ARG002 — a kind that was asked beforehand uses it
        """Whether `epsilon` can be asked at this delta."""
        return True

    def bounds(self, epsilon: float | Several, level: float | None = None, *, noise: Any = 0.0) -> Bounds:
        """Lower bound, estimate and upper bound of delta, and the upper bound of each delta_i, with ``noise`` added."""
        # A shortcut upwards, for users: measuring itself imports nothing of validating.
        from empriv.validate.bounds import bounds

        return bounds(self, epsilon, level, noise=noise)

    def cover(
        self, epsilon: float, delta: float, noise: Any = 0.0, *, level: float | None = None, database: Any = None
    ) -> float:
        """The largest move of the answer that is hidden at (epsilon, delta)."""
        from empriv.validate.covers import cover  # as above

        return cover(self, epsilon, delta, noise=noise, level=level, database=database)

    @cached_property
    def _last_curves(self) -> dict[tuple[float, ...], FloatArray]:
        """delta_i at the epsilons asked for last, oldest first."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        # What can be computed again is not sent along.
        return {name: value for name, value in self.__dict__.items() if name not in ("_last_curves", "per_publication")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def ranking(
    results: Results, delta_i: FloatArray, influence: FloatArray, top: int | None
) -> tuple[IntArray, dict[str, npt.NDArray[Any]]]:
    """Individuals by risk, then by influence, as positions and as columns of a table; all, or the first ``top``."""
    size = np.where(np.isnan(influence), np.inf, influence)
    order = np.lexsort((-size, -delta_i))[:top]
    return order, table_of(results, order, delta_i, influence)


def table_of(
    results: Results, order: IntArray, delta_i: FloatArray, influence: FloatArray
) -> dict[str, npt.NDArray[Any]]:
    """Columns of a table of individuals, by position."""
    return {
        "individual": results.individuals[order],
        "delta_i": delta_i[order],
        "largest_influence": influence[order],
        "databases": results.presence[order],
    }


def largest_influence(results: Results, cell: int | None = None) -> FloatArray:
    """Largest change that each individual makes to one number, or to a cell: see `AnyRisk.influence`."""
    at = ... if cell is None else (..., cell)
    entries, outcomes, before = results.entry_q[at], results.entry_outcomes[at], results.outcomes[at]
    with np.errstate(invalid="ignore"):
        change = np.abs(entries - results.q[at][results.entry_database])
    if outcomes.any():
        same = outcomes == before[results.entry_database]
        change = np.where(same & (outcomes != 0), 0.0, change)
    return largest_of(change.reshape(len(change), math.prod(change.shape[1:])), results.starts)  # of nobody, too


def largest_of(change: FloatArray, starts: IntArray) -> FloatArray:
    """Largest of each individual's entries, 0 where there are none; NaN wins."""
    out = np.zeros(len(starts) - 1)
    listed = np.diff(starts) > 0
    if listed.any():
        flat = change.reshape(-1) if change.shape[1] == 1 else change.max(axis=1)
        out[listed] = np.maximum.reduceat(flat, starts[:-1][listed])
    return out


def total_risk_of(delta_i: FloatArray) -> FloatArray:
    """``1 - prod(1 - delta_i)`` over the individuals, down the first axis."""
    with np.errstate(divide="ignore"):
        total = 0.0 - np.expm1(np.log1p(-delta_i).sum(axis=0))  # where nobody is at risk 0, not -0
    return np.asarray(np.maximum(total, delta_i.max(axis=0, initial=0.0)))  # never below delta, by rounding


def smallest_epsilons(broken: Callable[[FloatArray], npt.NDArray[np.bool_]], count: int) -> FloatArray:
    """(count,) smallest epsilon at which each of ``count`` limits holds, from above; inf beyond `_LARGEST_EPSILON`.

    ``broken`` says for each limit whether it is broken at its own epsilon. A limit that holds at one epsilon holds at
    every greater one.
    """
    low, high = np.zeros(count), np.ones(count)
    never = np.zeros(count, bool)
    while True:
        beyond = broken(high) & ~never
        if not beyond.any():
            break
        never |= beyond & (high >= _LARGEST_EPSILON)
        low, high = np.where(beyond, high, low), np.where(beyond, 2 * high, high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        over = broken(middle)
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    at_zero = ~broken(np.zeros(count))
    return np.where(never, np.inf, np.where(at_zero, 0.0, high))
