"""`measure_against`: the privacy of query results when an adversary knows part of the data.

For each value z of what the adversary knows, the results with everyone and without each individual are compared given
g(X) = z, and delta_i is the largest over z (the paper's "Adversarial Setting"). `known` holds what adversaries can be,
`views` and `conditional` the search under kernel weights, `buckets` the comparison within buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import epsilon_grid, probability
from empriv.errors import InputError
from empriv.measuring.contract import RiskContract, Several, ranking
from empriv.measuring.densities.density import Density, density_or_default, is_literal
from empriv.measuring.densities.selection import Score
from empriv.measuring.given.adversaries import (
    FEW_EFFECTIVE,
    LEAST_EFFECTIVE,
    Adversary,
    Buckets,
    Given,
    OwnContribution,
    as_adversary,
    kind_of,
    known_columns,
    numbers,
)
from empriv.measuring.given.buckets import bucket_search
from empriv.measuring.given.conditional import ViewSearch
from empriv.measuring.given.given_risk import GivenRisk, measure_given
from empriv.measuring.given.own_contribution import Cost, cost, names_of, own_views
from empriv.measuring.given.views import View, views_of
from empriv.measuring.line.atoms import split
from empriv.measuring.line.risk import Risk, measure_line
from empriv.results import FloatArray, IntArray, Results
from empriv.words.findings import Finding

if TYPE_CHECKING:
    from empriv.measuring.tables.given_table import GivenTableRisk


class Search(Protocol):
    """What finds each individual's worst condition."""

    @property
    def n_conditions(self) -> int: ...

    @property
    def n_determined(self) -> int: ...

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
class AdversaryRisk(RiskContract):
    """How private the results are for every individual, against an adversary; asked like a `Risk`.

    Made by `empriv.audit` with ``adversary=``, and by `empriv.measure_against`.

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
    made_from: RiskContract | None = field(default=None, repr=False, kw_only=True)

    def curves(self, epsilons: FloatArray) -> FloatArray:
        return self._searched(epsilons)[0]

    def worst_condition(self, epsilon: float | Several) -> IntArray:
        """Which of the conditions is each individual's worst, shaped like `delta_i`; -1 where delta_i is 0."""
        grid = epsilon_grid(epsilon)
        rising, back = np.unique(grid.ravel(), return_inverse=True)
        worst = self._searched(rising)[1][:, back]
        return worst[:, 0] if grid.ndim == 0 else worst

    @property
    def model(self) -> tuple[str, tuple[Score, ...]] | None:
        return self.unconditional.model

    def own_epsilon_i(self, delta: float = 0.0) -> FloatArray:
        """Smallest epsilon at which each individual's delta_i is at most ``delta``; inf where none is."""
        probability("delta", delta)
        return self.search.epsilons(delta)

    def own_epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``; inf where none is."""
        probability("delta", delta)
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
    def findings(self) -> tuple[Finding, ...]:
        """What to say beside the figures; what asks to be read more closely is in `cautions`."""
        seen, n = self.conditions, self.results.n_individuals
        own = isinstance(self.adversary, OwnContribution)
        conditions: dict[str, Any] = {
            "kind": kind_of(self.adversary),
            "adversaries": seen.n_adversaries,
            "count": len(seen.effective),
            "least": float(seen.effective.min()),
            "most": float(seen.effective.max()),
            "n": self.results.n_databases,
        }
        findings = [Finding("conditions", conditions)]
        if own and seen.n_adversaries < n:
            findings.append(Finding("some-adversaries", {"looked_at": seen.n_adversaries, "of": n}))
        if own and not self.known:
            findings.append(Finding("contributions-not-given"))
        return tuple(findings)

    @property
    def cautions(self) -> tuple[Finding, ...]:
        """What asks to be read: values left out, few databases, knowledge that determines the results."""
        seen, findings = self.conditions, []
        few = int(np.count_nonzero(seen.effective < FEW_EFFECTIVE))
        if few:
            findings.append(Finding("few-effective", {"count": few, "of": len(seen.effective), "least": FEW_EFFECTIVE}))
        if self.left_out:
            findings.append(Finding("left-out", {"count": self.left_out, "least": LEAST_EFFECTIVE}))
        if seen.refused:
            findings.append(Finding("adversaries-left-out", {"count": seen.refused}))
        if seen.opposed:
            findings.append(Finding("not-a-sum", {"opposed": seen.opposed, "judged": seen.judged}))
        if self.search.n_determined:
            determined = {"views": self.search.n_determined, "kind": kind_of(self.adversary)}
            findings.append(Finding("determined", determined))
        return tuple(findings)

    @property
    def sentences(self) -> tuple[str, ...]:
        """`findings` in words."""
        return tuple(finding.sentence for finding in self.findings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """`cautions` in words."""
        return tuple(finding.sentence for finding in self.cautions)

    def _searched(self, epsilons: FloatArray) -> tuple[FloatArray, IntArray]:
        """delta_i and the worst condition at rising epsilons; those asked for last are kept, as in the contract."""
        asked = tuple(epsilons.tolist())
        if asked not in self._last_search:
            self._last_search.clear()
            if self.notice is not None and isinstance(self.adversary, OwnContribution):
                self.notice(self.cost(asked[0]).sentence)
            self._last_search[asked] = self.search.curves(epsilons)
        return self._last_search[asked]

    @cached_property
    def _last_search(self) -> dict[tuple[float, ...], tuple[FloatArray, IntArray]]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        # Whoever is to be told of the work is not there where it is read.
        return {**super().__getstate__(), "notice": None, "_last_search": {}}


def measure_against(
    results: Results,
    adversary: Any,
    known: Any = None,
    *,
    density: Density | None = None,
    progress: bool | None = None,
    notice: Callable[[str], None] | None = None,
) -> AdversaryRisk | GivenRisk | GivenTableRisk:
    """Privacy of query results against an adversary who knows part of the data.

    Parameters
    ----------
    results : of one number, or of several for `Given`
    adversary : `Given` (or one of the words calendar, previous, public, auto), `Weighted`, `Buckets` or
        `OwnContribution`; anything else is taken for `Weighted` of it
    known : what is known of each database, (n,) or (n, k), or a list of k arrays; by default the adversary's own
        ``g``, if that is an array. For `OwnContribution`, its contributions; for `Given`, one for each quantity.
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
    density = density_or_default(density)
    if isinstance(adversary, Given):
        if results.components is not None:
            from empriv.measuring.tables.given_table import measure_given_table  # which is made of what is known

            return measure_given_table(results, adversary, known, density=density)
        return measure_given(results, adversary, known, density=density)
    risk = _measure_against(results, adversary, known, density, progress, notice)
    if results.made_from is None or is_literal(density):
        return risk
    source = measure_against(results.made_from, adversary, known, density=density, progress=progress)
    return replace(risk, made_from=source)


def _measure_against(
    results: Results,
    adversary: Any,
    known: Any,
    density: Density,
    progress: bool | None,
    notice: Callable[[str], None] | None,
) -> AdversaryRisk:
    """The same, whatever the results were made from."""
    unconditional = measure_line(results, density)
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
    pairs = split(results, look=not is_literal(density))
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
