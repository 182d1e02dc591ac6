"""`Material`: what the charts and the page of one audit are drawn from, computed once, when first asked for.

Every figure is a curve over one grid of epsilons. delta_i is measured for all individuals at once where that fits in
memory, and for a few epsilons at a time where it does not; only what is drawn is kept. Of people who were measured in
chunks, it is what was totalled and kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.auditing.audit import Audit
from empriv.auditing.summary import most_exposed
from empriv.auditing.totals import TotalledRisk
from empriv.base.arguments import one_epsilon
from empriv.errors import InputError
from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring import AnyRisk
from empriv.report.charts.chart import round_up
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds import Bounds, upper_total_risk
from empriv.words.decision import Covered

GRID = 40
MOST_ROWS = 12_000  # up to this many individuals, the key beside the page lists all
TOP_ROWS = 5_000  # of more, it lists this many
MOST_LISTED = 5  # on the page
_AT_ONCE = 20_000_000  # delta_i held in memory
_BOUNDS = 8  # asked-for epsilons with bounds of their own, which take longer than a whole curve of estimates


@dataclass(frozen=True, eq=False)
class Curves:
    """Figures along the grid of epsilons.

    Attributes
    ----------
    delta, total_risk, n_exposed : one for each epsilon
    worst : position of the most exposed individual at each epsilon
    apart : whether no epsilon between these could be asked, so that nothing is drawn there
    """

    delta: FloatArray
    total_risk: FloatArray
    n_exposed: IntArray
    worst: IntArray
    apart: bool = False


@dataclass(frozen=True, eq=False)
class Material:
    """What one audit's report is drawn from.

    Attributes
    ----------
    audit : what is reported
    epsilons : the grid, rising; its last may be infinite
    start : position of the page's epsilon: the first target's, or the first asked for
    names : of all individuals, as the page shows them; None where nobody is named
    pseudonyms : whether these are pseudonyms
    targets : pairs of epsilon and the delta that is allowed there
    day : what is hidden of what people did, by the verdict that decides; None where that was not judged
    kernel : of the noise that is published with the answer; None as it is
    """

    audit: Audit
    epsilons: FloatArray
    start: int
    names: Sequence[str] | None = None
    targets: tuple[tuple[float, float], ...] = ()
    day: Covered | None = None
    kernel: NoiseKernel | None = None
    pseudonyms: bool = False

    @property
    def epsilon(self) -> float:
        """The page's epsilon."""
        return float(self.epsilons[self.start])

    @property
    def finite(self) -> npt.NDArray[np.bool_]:
        return np.isfinite(self.epsilons)

    @property
    def stops(self) -> list[float]:
        """The epsilons asked for and those of the targets, rising."""
        return sorted({*self.audit.epsilons, *(epsilon for epsilon, _ in self.targets)})

    @cached_property
    def influence(self) -> FloatArray:
        return self.audit.risk.influence()

    @cached_property
    def delta_i(self) -> FloatArray:
        """delta_i of the individuals whom the results list, at the page's epsilon."""
        return _listed_delta_i(self.audit.measured, self.epsilons[self.start : self.start + 1])[:, 0]

    @cached_property
    def rows(self) -> IntArray:
        """Individuals that the key lists: all that the results list, or the riskiest at the page's epsilon."""
        n = self.audit.results.n_individuals
        if n <= MOST_ROWS:
            return np.arange(n)
        size = np.where(np.isnan(self.influence), np.inf, self.influence)
        riskiest = np.lexsort((-size, -self.delta_i))[:TOP_ROWS]
        if self.names is None:
            return riskiest
        # whom the page lists are among them
        listed = most_exposed(self.audit, self.epsilon, self.names, MOST_LISTED).rows
        return np.append(listed, riskiest[~np.isin(riskiest, listed)])

    @cached_property
    def labels(self) -> list[Any]:
        """Labels of these individuals, in a form that JSON can hold."""
        return [_plain(label) for label in self.audit.results.individuals[self.rows]]

    @property
    def names_listed(self) -> list[str] | None:
        """Names of these individuals, as they are shown."""
        return None if self.names is None else [self.names[row] for row in self.rows]

    @cached_property
    def curves(self) -> Curves:
        return _curves(self.audit.measured, self.epsilons)

    @cached_property
    def bounded(self) -> Bounds:
        """Bounds along the epsilons asked for (of many, at some of them) and the first shown, rising."""
        grid = self.epsilons[self.bounded_at]
        # All at once, since three take hardly longer than one; a single one as in the summary, which the audit keeps.
        return self.audit.bounds(grid if len(grid) > 1 else float(grid[0]))

    @cached_property
    def bounded_at(self) -> IntArray:
        """Positions of the epsilons that have bounds of their own."""
        asked = np.flatnonzero(np.isin(self.epsilons, self.stops) & self.finite)
        risk = self.audit.measured
        most = len(risk.epsilons) if isinstance(risk, TotalledRisk) else _BOUNDS  # of people in chunks all are known
        if len(asked) > most:
            asked = asked[np.linspace(0, len(asked) - 1, most).round().astype(int)]
        return np.unique([*([self.start] if self.finite[self.start] else []), *asked]).astype(np.int64)

    @cached_property
    def band(self) -> dict[str, FloatArray]:
        """Bounds at every epsilon of the grid.

        delta falls in epsilon: an upper bound holds for every greater epsilon, a lower one for every smaller. Between
        the epsilons with bounds of their own the next bound on the safe side is used, so the band is never too narrow.
        Below the first of them, `before` extends its upper bound.
        """
        at, bounds = self.bounded_at, self.bounded
        places = np.arange(len(self.epsilons))
        before_it = np.maximum(np.searchsorted(at, places, side="right") - 1, 0)
        after_it = np.searchsorted(at, places, side="left")
        first = float(self.epsilons[at[0]])
        gap = np.maximum(first - self.epsilons, 0.0)  # 0 from the first bound on

        def highest(upper: Any, individuals: int) -> FloatArray:
            return before(np.atleast_1d(upper)[before_it], gap, individuals)

        def lowest(lower: Any) -> FloatArray:
            return np.asarray(np.append(lower, 0.0)[after_it])

        upper = highest(bounds.upper, 1)
        total_upper = highest(upper_total_risk(bounds), self.audit.n_individuals)
        return {
            "lower": np.minimum(lowest(bounds.lower), self.curves.delta),
            "upper": np.maximum(upper, self.curves.delta),
            "total_risk_lower": np.minimum(lowest(bounds.lower), self.curves.total_risk),
            "total_risk_upper": np.maximum(total_upper, self.curves.total_risk),
            "own": np.isin(places, at).astype(float),
        }


def before(upper: FloatArray, gap: FloatArray, individuals: int) -> FloatArray:
    """Upper bounds at epsilons that lie ``gap`` below the one whose bound is ``upper``.

    delta_i is convex in t = e^epsilon and 1 at t = 0, so 1 - delta_i(t) >= (t / t') (1 - delta_i(t')) for t < t'; the
    total risk is 1 less the product of these over all individuals.
    """
    return np.where(gap > 0, 1.0 - np.exp(-individuals * gap) * (1.0 - upper), upper)


def gather(
    audit: Audit,
    epsilons: Iterable[float] | None = None,
    *,
    at: float | None = None,
    names: Sequence[str] | None = None,
    targets: Iterable[tuple[float, float]] = (),
    day: Covered | None = None,
    kernel: NoiseKernel | None = None,
    pseudonyms: bool = False,
) -> Material:
    """Material for the charts and the page.

    Parameters
    ----------
    audit : what is reported
    epsilons : where curves are measured; default: about 40 from 0 on, the epsilons asked for among them; of people
        measured in chunks, those that they were measured at
    at : the epsilon at which charts are first drawn; default: that of the first target, or the first asked for
    names : of all individuals, if charts may name them
    targets : pairs of epsilon and the delta that is allowed there
    day, kernel, pseudonyms : as of `Material`
    """
    targets = tuple(targets)
    if at is None and targets:
        at = targets[0][0]
    stops = [*audit.epsilons, *(epsilon for epsilon, _ in targets)]
    stops = stops if at is None else [*stops, one_epsilon(at, name="epsilons")]
    if epsilons is None:
        grid = np.unique(np.concatenate((_grid(audit.measured, stops), stops)))
    else:
        grid = np.unique([one_epsilon(epsilon, name="epsilons") for epsilon in epsilons])
        if not np.isfinite(grid).any():
            raise InputError("`epsilons` must hold at least one finite number, got none.")
        grid = np.unique(np.concatenate((grid, stops)))
    first = audit.epsilons[0] if at is None else float(at)
    return Material(audit, grid, int(np.searchsorted(grid, first)), names, targets, day, kernel, pseudonyms)


def _plain(label: Any) -> Any:
    value = label.item() if hasattr(label, "item") else label
    return value if isinstance(value, str | int | float | bool) else str(value)


def _grid(risk: AnyRisk, stops: list[float]) -> FloatArray:
    """From 0 to a little beyond the epsilon where delta becomes 0, or beyond the largest asked for."""
    if isinstance(risk, TotalledRisk):
        return np.array(risk.epsilons)  # nothing else was measured
    largest = max((epsilon for epsilon in stops if math.isfinite(epsilon)), default=0.0)
    vanishes = risk.epsilon(0.0)
    end = 1.25 * largest
    if math.isfinite(vanishes):
        end = max(end, min(1.25 * vanishes, 6 * largest) if largest > 0 else 1.25 * vanishes)
    return np.linspace(0.0, round_up(end) if end > 0 else 1.0, max(2, GRID - len(set(stops))))


def _listed_delta_i(risk: AnyRisk, epsilons: FloatArray) -> FloatArray:
    """(individuals, epsilons) delta_i of the individuals whom the results list."""
    if isinstance(risk, TotalledRisk):
        return risk.totals.kept_delta_i[:, risk.places(epsilons)]
    return risk.delta_i(epsilons)


def _curves(risk: AnyRisk, epsilons: FloatArray) -> Curves:
    if isinstance(risk, TotalledRisk):
        worst = _listed_delta_i(risk, epsilons).argmax(axis=0)
        return Curves(
            risk.delta(epsilons), risk.total_risk(epsilons), risk.exposed(epsilons), worst, apart=True,
        )  # fmt: skip
    total, exposed = np.empty(len(epsilons)), np.empty(len(epsilons), np.int64)
    delta, worst = np.empty(len(epsilons)), np.zeros(len(epsilons), np.int64)
    for part in _parts(epsilons, risk.n_individuals):
        delta_i = risk.delta_i(epsilons[part])
        total[part] = risk.total_risk(epsilons[part])  # the risk still holds this curve
        delta[part], worst[part] = delta_i.max(axis=0), delta_i.argmax(axis=0)
        exposed[part] = np.count_nonzero(delta_i > 0, axis=0)
    return Curves(delta, total, exposed, worst)


def _parts(epsilons: FloatArray, n_individuals: int) -> Iterator[slice]:
    """Epsilons that are measured at once; infinity by itself, since screening proves more there."""
    step = max(1, _AT_ONCE // max(1, n_individuals))
    last = int(np.count_nonzero(np.isfinite(epsilons)))
    for start in range(0, last, step):
        yield slice(start, min(start + step, last))
    if last < len(epsilons):
        yield slice(last, len(epsilons))
