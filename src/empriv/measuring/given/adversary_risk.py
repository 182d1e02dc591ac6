"""`measure_against`: the privacy of query results when an adversary knows part of the data.

For each value z of what the adversary knows, the results with everyone and without each individual are compared given
g(X) = z, and delta_i is the largest over z (the paper's "Adversarial Setting"). `known` holds what adversaries can be,
`views` and `conditional` the search under kernel weights, `buckets` the comparison within buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import epsilon_grid
from empriv.errors import InputError
from empriv.measuring.densities.density import Density, Kde
from empriv.measuring.given.adversaries import (
    FEW_EFFECTIVE,
    LEAST_EFFECTIVE,
    Adversary,
    Buckets,
    OwnContribution,
    as_adversary,
    known_columns,
    numbers,
)
from empriv.measuring.given.buckets import bucket_search
from empriv.measuring.given.conditional import ViewSearch
from empriv.measuring.given.own_contribution import Cost, cost, names_of, own_views
from empriv.measuring.given.views import View, views_of
from empriv.measuring.line.atoms import split
from empriv.measuring.line.risk import Risk, check_delta, measure, ranking, total_risk_of
from empriv.results import FloatArray, IntArray, Results


class Search(Protocol):
    """What finds each individual's worst condition."""

    @property
    def n_conditions(self) -> int: ...

    def curves(self, epsilon: FloatArray) -> tuple[FloatArray, IntArray]: ...

    def epsilons(self, delta: float, *, only_worst: bool = False) -> FloatArray: ...

    def by_condition(self, individual: int, epsilon: float) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class Conditions:
    """What was looked at: each value z of what is known, of each adversary.

    Attributes
    ----------
    values : (conditions,) or (conditions, k) what is known: numbers z, or names of buckets
    effective : (conditions,) effective number of databases, 1 / sum of squared weights
    left_out : (others,) effective numbers of the values that too few databases have
    n_adversaries, refused : how many adversaries were looked at, and how many have no value with enough databases
    judged, opposed : individuals whose influence was judged, and how many of them move against the result, if they
        are more than in a sum (0 otherwise)
    """

    values: npt.NDArray[Any]
    effective: FloatArray
    left_out: FloatArray
    n_adversaries: int = 1
    refused: int = 0
    judged: int = 0
    opposed: int = 0


@dataclass(frozen=True, eq=False)
class AdversaryRisk:
    """How private the results are for every individual, against an adversary; asked like a `Risk`.

    Made by `empriv.audit` with `adversary=`, and by `empriv.measure_against`.

    Attributes
    ----------
    results : what was measured
    unconditional : the `Risk` against somebody who knows nothing
    adversary : who it is
    conditions : the values of what is known that were looked at, and how many were left out
    known : what is known of each database, one array for each quantity

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> audit = empriv.audit(data, "avg(delay)", adversary="count(*)", epsilon=0.1)
    >>> print(f"{audit.risk.delta(0.1):.4f}, to somebody who knows the count {audit.against.delta(0.1):.4f}")
    0.0032, to somebody who knows the count 0.0249
    """

    results: Results = field(repr=False)
    unconditional: Risk = field(repr=False)
    adversary: Adversary = field(repr=False)
    conditions: Conditions = field(repr=False)
    search: Search = field(repr=False)
    notice: Callable[[str], None] | None = field(default=None, repr=False)
    known: tuple[npt.NDArray[Any], ...] = field(default=(), repr=False)
    _known: dict[tuple[float, ...], tuple[FloatArray, IntArray]] = field(default_factory=dict, repr=False)

    def delta_i(self, epsilon: npt.ArrayLike) -> FloatArray:
        """Failure probability of each individual: (individuals,), or (individuals, epsilons) for an array."""
        found = self._worst(epsilon)[0]
        return found[:, 0].copy() if np.ndim(epsilon) == 0 else found.copy()

    def worst_condition(self, epsilon: npt.ArrayLike) -> IntArray:
        """Which of the conditions is each individual's worst, shaped like `delta_i`; -1 where delta_i is 0."""
        found = self._worst(epsilon)[1]
        return found[:, 0].copy() if np.ndim(epsilon) == 0 else found.copy()

    def delta(self, epsilon: npt.ArrayLike) -> Any:
        """Largest delta_i: a float, or an array for an array."""
        worst = self._worst(epsilon)[0].max(axis=0, initial=0.0)
        return float(worst[0]) if np.ndim(epsilon) == 0 else worst

    def total_risk(self, epsilon: npt.ArrayLike) -> Any:
        """``1 - prod(1 - delta_i)``, each at their own worst condition."""
        total = total_risk_of(self._worst(epsilon)[0])
        return float(total[0]) if np.ndim(epsilon) == 0 else total

    def epsilon_i(self, delta: float = 0.0) -> FloatArray:
        """Smallest epsilon at which each individual's delta_i is at most ``delta``; inf where none is."""
        check_delta(delta)
        return self.search.epsilons(delta)

    def epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``; inf where none is."""
        check_delta(delta)
        return float(self.search.epsilons(delta, only_worst=True).max(initial=0.0))

    def individuals(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """The table of `Risk.individuals`, with the columns ``worst_z``, what the adversary knows where delta_i is
        largest (NaN or empty where it is 0), ``effective``, the effective number of databases there, and, where
        individuals are the adversaries, ``adversary``, whose knowledge it is."""
        grid = float(epsilon)
        order, table = ranking(self.results, self.delta_i(grid), self.unconditional.influence(), top)
        chosen = self.worst_condition(grid)[order]
        some = chosen >= 0
        table["worst_z"] = _taken(self.conditions.values, chosen)
        table["effective"] = np.where(some, self.conditions.effective[chosen], np.nan)
        if isinstance(self.adversary, OwnContribution):
            assert isinstance(self.search, ViewSearch)
            who = names_of(self.search.views, self.search.view[chosen], order)
            labels = np.full(len(order), None, object)
            labels[some] = self.results.individuals[who[some]]
            table["adversary"] = labels
        return table

    def by_condition(self, epsilon: float, individual: Any = None) -> dict[str, npt.NDArray[Any]]:
        """delta_i of one individual (the worst, unless given by label) under every condition, as columns
        ``z``, ``effective`` and ``delta_i``; under an adversary's own knowledge of themselves it is NaN."""
        row = int(np.argmax(self.delta_i(float(epsilon)))) if individual is None else self.results.position(individual)
        found = self.search.by_condition(row, float(epsilon))
        return {"z": self.conditions.values, "effective": self.conditions.effective, "delta_i": found}

    def cost(self, epsilon: float) -> Cost:
        """What `delta_i` costs at an epsilon, estimated from a few of the comparisons; for adversaries by weights."""
        if not isinstance(self.search, ViewSearch):
            raise InputError("`cost` must be asked of an adversary by weights, got buckets, which cost a measure each.")
        return cost(self.search, float(epsilon_grid(epsilon)))

    @property
    def effective(self) -> FloatArray:
        """Effective number of databases of each condition."""
        return self.conditions.effective

    @property
    def left_out(self) -> int:
        """Values of what is known that were left out, because too few databases have them."""
        return len(self.conditions.left_out)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What to say beside the figures; warnings are in `warnings`."""
        seen = self.conditions
        if isinstance(self.adversary, OwnContribution):
            who = (
                f"Each of {seen.n_adversaries:,} individuals is taken for an adversary who knows their own contribution"
            )
        elif isinstance(self.adversary, Buckets):
            who = "The adversary knows in which bucket a known quantity lies"
        else:
            who = "The adversary knows a quantity of each database"
        what = "buckets" if isinstance(self.adversary, Buckets) else "values of it"
        count = len(seen.effective)
        said = [
            f"{who}; delta is the largest over {count:,} {what}, each seen through {seen.effective.min():.0f} to "
            f"{seen.effective.max():.0f} effective databases of {self.results.n_databases:,}."
        ]
        if isinstance(self.adversary, OwnContribution) and seen.n_adversaries < self.results.n_individuals:
            said.append(
                f"Only {seen.n_adversaries:,} of {self.results.n_individuals:,} adversaries were looked at, "
                "drawn at random: another may know more."
            )
        if isinstance(self.adversary, OwnContribution) and not self.known:
            said.append(
                "Contributions were not given: each individual is taken to know the change that their rows make to "
                "the result, which is their contribution if the query adds up over individuals (a sum, a count) and "
                "is not for averages, ratios and quantiles."
            )
        return tuple(said)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What asks to be read: values left out, few databases, knowledge that determines the results."""
        seen, said = self.conditions, []
        few = int(np.count_nonzero(seen.effective < FEW_EFFECTIVE))
        if few:
            said.append(
                f"{few:,} of {len(seen.effective):,} conditions have fewer than {FEW_EFFECTIVE:.0f} effective "
                "databases: their delta is mostly noise, and too large rather than too small."
            )
        if self.left_out:
            said.append(
                f"{self.left_out:,} values of what is known were left out, because fewer than {LEAST_EFFECTIVE:.0f} "
                "effective databases have them: nothing is said about an adversary who sees one of these."
            )
        if seen.refused:
            said.append(f"{seen.refused:,} adversaries were left out altogether: too few databases for any value.")
        if seen.opposed:
            said.append(
                f"NOT A SUM: what they change falls as the result without them rises for {seen.opposed:,} of "
                f"{seen.judged:,} individuals, as in an average and not in a sum, so that knowing it is knowing more "
                "than one's own contribution: do not rely on these figures. Hint: OwnContribution(contributions=...)."
            )
        determined = getattr(self.search, "n_determined", 0)
        if determined:
            said.append(
                f"EXACT LEAK: what is known determines the result in {determined:,} views of the databases, so that "
                "any change shows. Hint: for an average, give OwnContribution(contributions=...)."
                if isinstance(self.adversary, OwnContribution)
                else "EXACT LEAK: what is known determines the result, so that any change shows."
            )
        return tuple(said)

    def _worst(self, epsilon: npt.ArrayLike) -> tuple[FloatArray, IntArray]:
        grid = np.atleast_1d(epsilon_grid(epsilon))
        key = tuple(grid.tolist())
        if key not in self._known:
            self._known.clear()  # one curve is kept, as in `Risk`
            ordered, back = np.unique(grid, return_inverse=True)
            if self.notice is not None and isinstance(self.adversary, OwnContribution):
                self.notice(self.cost(float(ordered[0])).sentence)
            curves, worst = self.search.curves(ordered)
            self._known[key] = curves[:, back], worst[:, back]
        return self._known[key]


def measure_against(
    results: Results,
    adversary: Any,
    known: Any = None,
    *,
    density: Density | None = None,
    progress: bool | None = None,
    notice: Callable[[str], None] | None = None,
) -> AdversaryRisk:
    """Privacy of query results against an adversary who knows part of the data.

    Parameters
    ----------
    results : of one number
    adversary : `Weighted`, `Buckets` or `OwnContribution`; anything else is taken for `Weighted` of it
    known : what is known of each database, (n,) or (n, k), or a list of k arrays; by default the adversary's own
        ``g``, if that is an array. For `OwnContribution`, its contributions.
    density : how densities are estimated; for `Weighted` and `OwnContribution` a Laplace kernel with one bandwidth
    progress : False never shows progress, True always, None if the work lasts
    notice : called with a sentence that says what the work costs, before it starts (`OwnContribution`)

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> results = empriv.collect(data, ["avg(delay)", "count(*)"])
    >>> delay, flights = (results.component(name) for name in results.components)
    >>> print(f"{empriv.measure_against(delay, flights.q).delta(0.1):.3f}")
    0.025
    """
    adversary = as_adversary(adversary)
    density = Kde() if density is None else density
    if results.components is not None:
        raise InputError(
            f"`results` must be of one number, got a vector of {len(results.components)} components. "
            "Hint: results.component(name) is one of them."
        )
    unconditional: Risk = measure(results, density=density)
    n = results.n_databases
    if isinstance(adversary, OwnContribution):
        contributions = adversary.contributions if known is None else known
        pairs = unconditional.pairs
        own = own_views(
            results, pairs, contributions, density, sample=adversary.sample, rng=adversary.rng, show=progress
        )
        found = _by_views(unconditional, adversary, own.views, own.asked, progress, notice)
        if contributions is not None:
            return replace(found, known=(np.asarray(contributions, float),))
        opposed = 0 if own.adds_up else own.opposed
        return replace(found, conditions=replace(found.conditions, judged=own.judged, opposed=opposed))
    known = adversary.g if known is None else known
    if known is None or isinstance(known, str) or callable(known):
        raise InputError("`known` must hold what is known of each database: SQL and functions are collected first.")
    if isinstance(adversary, Buckets):
        search = bucket_search(results, known, density, count=adversary.count)
        conditions = Conditions(search.values, search.sizes, search.left_out)
        columns = known_columns(known, n)
        return AdversaryRisk(results, unconditional, adversary, conditions, search, known=tuple(columns))
    columns = known_columns(known, n)
    if any(column.dtype.kind not in "biuf" for column in columns):
        raise InputError("`known` must hold numbers, got labels. Hint: Buckets(g) makes a bucket of each label.")
    pairs = split(results, look=not getattr(density, "literal", False))
    known = numbers(np.column_stack(columns), n)
    views = [make() for _, make in views_of(pairs, known, density)]
    return replace(_by_views(unconditional, adversary, views, 1, progress, notice), known=tuple(columns))


def _by_views(
    unconditional: Risk,
    adversary: Adversary,
    views: list[View],
    n_adversaries: int,
    progress: bool | None,
    notice: Callable[[str], None] | None,
) -> AdversaryRisk:
    left_out = np.concatenate([view.left_out_effective for view in views])
    usable = tuple(view for view in views if len(view.places))
    if not usable:
        raise InputError(
            f"There must be at least {LEAST_EFFECTIVE:.0f} effective databases for some value of what is known, got "
            f"{left_out.max(initial=0.0):.0f} at most. Hint: more databases, fewer known quantities, or Buckets."
        )
    search = ViewSearch(unconditional.results, unconditional.pairs, usable, progress)
    refused = len({view.owner for view in views} - {view.owner for view in usable})
    places = np.concatenate([view.places for view in usable])
    conditions = Conditions(
        places[:, 0] if places.shape[1] == 1 else places,
        np.concatenate([view.effective for view in usable]),
        left_out,
        n_adversaries,
        refused,
    )
    return AdversaryRisk(unconditional.results, unconditional, adversary, conditions, search, notice)


def _taken(values: npt.NDArray[Any], chosen: IntArray) -> npt.NDArray[Any]:
    """Values of the chosen conditions, nothing for -1."""
    taken = values[chosen]
    if taken.dtype.kind == "f":
        taken = np.where((chosen >= 0).reshape(-1, *(1,) * (taken.ndim - 1)), taken, np.nan)
    else:
        taken = np.where(chosen >= 0, taken, "")
    return np.asarray(taken)
