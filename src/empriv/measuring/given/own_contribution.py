"""Every individual as an adversary who knows their own contribution: the views of all of them, and what they cost.

Nobody is asked about themselves: that an individual can tell their own presence is to be expected. Adversaries who
know the very same thing (nothing, in the databases that they are not in) share a view. The search itself is in
`conditional`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from empriv.base.progress import progress
from empriv.errors import InputError
from empriv.measuring.densities.density import Density
from empriv.measuring.given.adversaries import LEAST_EFFECTIVE
from empriv.measuring.given.conditional import ViewSearch
from empriv.measuring.given.views import View, views_of
from empriv.measuring.given.written_out import rows_of
from empriv.measuring.line.atoms import Pairs
from empriv.results import FloatArray, IntArray, Results

_LOOKED_AT = 24  # individuals from whom a cost is estimated
_SEARCHED = 6  # of them, for whom the search is made


@dataclass(frozen=True)
class Cost:
    """What a search for the worst adversary costs at an epsilon.

    Attributes
    ----------
    pairs : (adversary, individual) pairs in all
    subject : individuals whom no adversary's screening clears
    conditions : values of what is known, of all adversaries
    at_most : comparisons (an individual under a condition) that no bound at zero rules out; most need not be made
        once a bad condition is found
    seconds : time to expect; this and ``at_most`` are estimated from a few individuals
    """

    pairs: int
    subject: int
    conditions: int
    at_most: int
    seconds: float

    @property
    def sentence(self) -> str:
        return (
            f"{self.pairs:,} pairs of adversary and individual: {self.subject:,} individuals are left after screening, "
            f"with about {self.at_most:,} comparisons at most: about {max(self.seconds, 1.0):,.0f} s."
        )


class OwnViews(NamedTuple):
    """The views of some adversaries.

    Attributes
    ----------
    views, asked : the views, and of how many individuals
    judged, opposed : where contributions were not given, individuals whose influence varies in enough databases to
        be judged, and those of them whose influence falls as the result without them rises
    """

    views: list[View]
    asked: int
    judged: int
    opposed: int

    @property
    def adds_up(self) -> bool:
        """False if the query seems not to add up over individuals.

        What somebody adds to a sum need not fall as the others' sum rises, and by chance does so (beyond two
        standard errors) for one in forty; what they change in an average does, since the others' average is in it.
        """
        return 4 * self.opposed <= self.judged


def own_views(
    results: Results,
    pairs: Pairs,
    contributions: Any,
    density: Density,
    *,
    sample: int | None,
    rng: int,
    show: bool | None = None,
) -> OwnViews:
    """The views of all individuals, or of a sample of them."""
    count = results.n_individuals
    if count < 2:
        raise InputError(f"There must be at least 2 individuals for one to know about another, got {count}.")
    given = None if contributions is None else _checked(contributions, count, results.n_databases)
    chosen = np.arange(count)
    if sample is not None and sample < count:
        chosen = np.sort(np.random.default_rng(rng).choice(count, sample, replace=False))
    views: list[View] = []
    shared: dict[bytes, int] = {}
    mean = results.q if results.q.ndim == 1 else results.q.mean(axis=1)
    opposed: list[bool | None] = []
    with progress(len(chosen), "Adversaries", show=show) as advance:
        for row in chosen.tolist():
            known = (_influence(results, row) if given is None else given[row])[:, None]
            if given is None:
                opposed.append(_opposed(known[:, 0], mean))
            for key, make in views_of(pairs, known, density, owner=row):
                if key not in shared:
                    shared[key] = len(views)
                    views.append(make())
                elif views[shared[key]].second < 0:
                    views[shared[key]] = views[shared[key]].known_too(row)
            advance()
    judged = [one for one in opposed if one is not None]
    return OwnViews(views, len(chosen), len(judged), sum(judged))


def cost(search: ViewSearch, epsilon: float) -> Cost:
    """What `search` costs at ``epsilon``, estimated from a few individuals of all strengths of influence."""
    rows = search.subject(epsilon)
    owners = len({view.owner for view in search.views})
    pairs = owners * (len(search.shifts) - 1)
    if not len(rows):
        return Cost(pairs, 0, search.n_conditions, 0, 0.0)
    ordered = rows[np.argsort(search.shifts[rows], kind="stable")]
    count = min(len(rows), _LOOKED_AT)
    look = ordered[((np.arange(count) + 0.5) * len(rows) / count).astype(int)]
    bounds = search.bounds(rows_of(search.results, search.pairs, look), epsilon)
    start = time.perf_counter()
    search.curves(np.array([epsilon]), rows=look[:: max(1, count // _SEARCHED)])
    each = (time.perf_counter() - start) / len(look[:: max(1, count // _SEARCHED)])
    at_most = round(np.count_nonzero(bounds > 0) / count * len(rows))
    return Cost(pairs, len(rows), search.n_conditions, at_most, each * len(rows))


def _influence(results: Results, row: int) -> FloatArray:
    """(n,) the change that an individual's rows make to the result: 0 where they have none, NaN if it is no number."""
    entries = slice(results.starts[row], results.starts[row + 1])
    where = results.entry_database[entries]
    change = results.q[where] - results.entry_q[entries]
    change = change if change.ndim == 1 else change.mean(axis=1)
    # A difference carries the rounding of what it is the difference of: equal contributions should be equal.
    unit = 64 * np.spacing(float(np.nanmax(np.abs(results.q), initial=0.0)))
    out = np.zeros(results.n_databases)
    out[where] = np.round(change / unit) * unit
    return out


def _opposed(change: FloatArray, q: FloatArray) -> bool | None:
    """Whether somebody's influence falls as the result without them rises; None if it varies in too few databases."""
    here = np.isfinite(change) & np.isfinite(q) & (change != 0)
    n = int(np.count_nonzero(here))
    if n < LEAST_EFFECTIVE:
        return None
    x, without = change[here], (q - change)[here]
    x, without = x - x.mean(), without - without.mean()
    scale = float(np.sqrt((x @ x) * (without @ without)))
    if not np.ptp(x) > 1e-9 * np.abs(change[here]).max() or not scale > 0:
        return None  # the same in all databases: no average's, unless of results that do not vary
    return bool(x @ without < -2.0 / np.sqrt(n) * scale)


def _checked(contributions: Any, count: int, n: int) -> npt.NDArray[np.float64]:
    try:
        array = np.asarray(contributions, np.float64)
    except (TypeError, ValueError):
        raise InputError("`contributions` must be an array of numbers.") from None
    if array.shape != (count, n):
        raise InputError(f"`contributions` must have shape {(count, n)}, got {array.shape}.")
    if np.isinf(array).any():
        raise InputError("`contributions` must hold finite numbers, or NaN for absence, got an infinity.")
    return array


def names_of(views: tuple[View, ...], view: IntArray, individual: IntArray) -> IntArray:
    """Whose knowledge a view is, for each individual: not their own, where somebody else knows the same."""
    owner = np.array([one.owner for one in views])[view]
    second = np.array([one.second for one in views])[view]
    return np.where(owner == individual, second, owner)
