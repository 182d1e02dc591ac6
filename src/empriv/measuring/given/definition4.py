"""The paper's Definition 4 on top of `measure`: delta is the largest over what may be known.

Buckets: the databases of each bucket are measured alone. Own contribution: the results are measured given the
contribution of each of the largest contributors, for everybody else. Both are lists of risks of one number, and the
worst of them counts: for figures, bounds and verdicts alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import probability
from empriv.errors import InputError
from empriv.measuring.any_risk import AnyRisk
from empriv.measuring.densities.density import Density, is_literal
from empriv.measuring.given.given_risk import measure_given
from empriv.measuring.given.reader_knowledge import Buckets, Given, OwnContribution
from empriv.measuring.line.risk import Risk, measure_line
from empriv.results import FloatArray, IntArray, Results
from empriv.words.message import KNOWN_TITLE, Message

LEAST_BUCKET = 20  # databases; a bucket with fewer is not measured, and that is said
_EACH_BUCKET, _MOST_BUCKETS = 50, 5


@dataclass(frozen=True, eq=False)
class WorstRisk(AnyRisk):
    """The worst of several risks of one number, one for each thing that readers may know; asked like a `Risk`.

    Attributes
    ----------
    results : what was measured
    unconditional : the risk to a reader who knows nothing
    given : what is known
    parts : the risks, of the same individuals
    names : of what is known in each
    left_out : databases in buckets that are too small to be measured
    known : what is known of each database, one array for each quantity
    """

    results: Results = field(repr=False)
    unconditional: Risk = field(repr=False)
    given: Buckets | OwnContribution = field(repr=False)
    parts: tuple[Risk, ...] = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    left_out: int = field(default=0, repr=False)
    known: tuple[npt.NDArray[Any], ...] = field(default=(), repr=False)

    def curves(self, epsilons: FloatArray) -> FloatArray:
        return np.asarray(np.maximum.reduce([part.delta_i(epsilons) for part in self.parts]))

    def own_epsilon_i(self, delta: float = 0.0) -> FloatArray:
        probability("delta", delta)
        return np.asarray(np.maximum.reduce([part.epsilon_i(delta) for part in self.parts]))

    def own_epsilon(self, delta: float = 0.0) -> float:
        probability("delta", delta)
        return max(part.epsilon(delta) for part in self.parts)

    def influence(self) -> FloatArray:
        return self.unconditional.influence()

    def by_part(self, epsilon: float) -> dict[str, npt.NDArray[Any]]:
        """delta in each part, as columns ``known``, ``databases`` and ``delta``."""
        return {
            "known": np.array(self.names),
            "databases": np.array([part.results.n_databases for part in self.parts]),
            "delta": np.array([part.delta(float(epsilon)) for part in self.parts]),
        }

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was counted as known, in words."""
        sizes, count = [part.results.n_databases for part in self.parts], len(self.parts)
        if isinstance(self.given, OwnContribution):
            who = "The largest contributor is" if count == 1 else f"Each of the {count:,} largest contributors is"
            said = f"{who} taken to know their own contribution; the worst for anybody else counts."
            return (Message("worst-of", said), *([] if self.known else [_NOT_GIVEN]))
        size = f"{sizes[0]:,} databases" if len(set(sizes)) == 1 else f"{min(sizes):,} to {max(sizes):,} databases"
        which = "one bucket, of " if count == 1 else f"{count:,} buckets, the worst of which counts, of "
        said = f"Readers know in which bucket a quantity lies: {which}{size}{'' if count == 1 else ' each'}."
        if not self.left_out:
            return (Message("worst-of", said),)
        small = (
            f"{self.left_out:,} databases are in buckets with fewer than {LEAST_BUCKET} databases, which were not "
            "measured: nothing is said of readers who see one of these buckets."
        )
        numbers = {"what": "left-out", "count": self.left_out, "least": LEAST_BUCKET}
        return Message("worst-of", said), Message("known", small, "warning", numbers, KNOWN_TITLE)


_NOT_GIVEN = Message(
    "contributions-not-given",
    "Contributions were not given: each individual is taken to know the change that their rows make to the result, "
    "which is their contribution if the query adds up over individuals (a sum, a count) but not for averages, ratios "
    "and quantiles.",
)


def measure_buckets(results: Results, given: Buckets, known: Any, density: Density) -> WorstRisk:
    """The risk to a reader who knows in which bucket each database is; ``known`` are the values of ``given.g``."""
    n = results.n_databases
    values = given.g if known is None else known[0]
    if isinstance(values, str) or callable(values):
        raise InputError("`known` must hold what is known of each database: SQL and functions are collected first.")
    column = np.asarray(values)
    if column.shape != (n,):
        raise InputError(f"`known` must hold one value for each of {n} databases, got shape {column.shape}.")
    labels, names = bucket_labels(column, given.count)
    sizes = np.bincount(labels, minlength=len(names))
    enough = np.flatnonzero(sizes >= LEAST_BUCKET)
    if not len(enough):
        raise InputError(
            f"There must be at least {LEAST_BUCKET} databases in some bucket, got {sizes.max()} at most. "
            "Hint: a smaller `count`, or more databases."
        )
    return WorstRisk(
        results=results,
        unconditional=_plain(results, density),
        given=given,
        parts=tuple(_plain(results.on_databases(np.flatnonzero(labels == bucket)), density) for bucket in enough),
        names=tuple(names[bucket] for bucket in enough),
        left_out=int(np.delete(sizes, enough).sum()),
        known=(column,),
    )


def measure_own_contribution(results: Results, given: OwnContribution, density: Density) -> WorstRisk:
    """The risk of everybody else to each of the largest contributors, who know what they contributed."""
    count = results.n_individuals
    if count < 2:
        raise InputError(f"There must be at least 2 individuals for one to know about another, got {count}.")
    values = given.contributions
    checked = None if values is None else _checked(values, count, results.n_databases)
    contributions: Callable[[int], FloatArray] = (
        (lambda row: _influence(results, row)) if checked is None else (lambda row: np.nan_to_num(checked[row]))
    )
    sizes = _variations(results) if checked is None else np.nan_to_num(checked).var(axis=1)
    rows = np.argsort(-sizes, kind="stable")[: given.top]
    return WorstRisk(
        results=results,
        unconditional=_plain(results, density),
        given=given,
        parts=tuple(_risk_to_contributor(results, int(row), contributions(int(row)), density) for row in rows),
        names=tuple(f"contributor {place + 1}" for place in range(len(rows))),
        known=() if checked is None else (checked,),
    )


def _risk_to_contributor(results: Results, row: int, contribution: FloatArray, density: Density) -> Risk:
    """The risk of the others to one contributor: that they can tell their own presence is to be expected."""
    others = _without_entries(results, row)
    if np.ptp(contribution) <= 1e-12 * float(np.abs(contribution).max(initial=0.0)):
        return _plain(others, density)  # the same in every database: it tells nothing
    return measure_given(others, Given(contribution), density=density)


def _plain(results: Results, density: Density) -> Risk:
    risk = measure_line(results, density)
    if results.postprocessed_from is None or is_literal(density):
        return risk
    return replace(risk, postprocessed_from=_plain(results.postprocessed_from, density))


def _without_entries(results: Results, row: int) -> Results:
    """Results in which one individual changes nothing."""
    kept = np.ones(len(results.entry_database), bool)
    kept[results.starts[row] : results.starts[row + 1]] = False
    starts = results.starts - np.where(np.arange(len(results.starts)) > row, np.count_nonzero(~kept), 0)
    return replace(
        results,
        starts=starts,
        entry_database=results.entry_database[kept],
        entry_q=results.entry_q[kept],
        entry_outcomes=results.entry_outcomes[kept],
        postprocessed_from=None
        if results.postprocessed_from is None
        else _without_entries(results.postprocessed_from, row),
    )


def _changes(results: Results) -> FloatArray:
    """(entries,) what each entry's rows change in the result, averaged over draws; 0 where it is no number."""
    change = results.q[results.entry_database] - results.entry_q
    change = change.reshape(len(change), -1).mean(axis=1) if len(change) else np.zeros(0)
    return np.where(np.isfinite(change), change, 0.0)


def _influence(results: Results, row: int) -> FloatArray:
    """(n,) the change that an individual's rows make to the result: 0 where they have none."""
    entries = slice(results.starts[row], results.starts[row + 1])
    out = np.zeros(results.n_databases)
    out[results.entry_database[entries]] = _changes(results)[entries]
    # a difference carries the rounding of what it is the difference of: equal contributions should be equal
    unit = 64 * np.spacing(float(np.nanmax(np.abs(results.q), initial=0.0)))
    return np.asarray(np.round(out / unit) * unit)


def _variations(results: Results) -> FloatArray:
    """(individuals,) variance of `_influence`."""
    change, n = _changes(results), results.n_databases
    owner = np.repeat(np.arange(results.n_individuals), np.diff(results.starts))
    total, squares = (np.bincount(owner, part, minlength=results.n_individuals) for part in (change, change**2))
    return np.asarray(squares / n - (total / n) ** 2)


def _checked(contributions: Any, count: int, n: int) -> FloatArray:
    try:
        array = np.asarray(contributions, np.float64)
    except (TypeError, ValueError):
        raise InputError("`contributions` must be an array of numbers.") from None
    if array.shape != (count, n):
        raise InputError(f"`contributions` must have shape {(count, n)}, got {array.shape}.")
    if np.isinf(array).any():
        raise InputError("`contributions` must hold finite numbers, or NaN for absence, got an infinity.")
    return array


def bucket_labels(column: npt.NDArray[Any], count: int | None) -> tuple[IntArray, tuple[str, ...]]:
    """Bucket of each database, and the name of each bucket.

    Labels (text, booleans, and whole numbers if no count is given) make a bucket each; other numbers are cut at
    quantiles, ties together; NULL and NaN are a bucket of their own.
    """
    kind, listed = column.dtype.kind, column.tolist()
    missing = np.array([one is None or one != one for one in listed], bool)
    if kind in "USOb" or (kind in "iu" and count is None):
        texts = np.array(["" if gone else str(one) for one, gone in zip(listed, missing, strict=True)])
        labels, place = np.unique(texts[~missing], return_inverse=True)
        total, name = len(labels), "label {}"
    elif kind in "iuf":
        total = max(1, min(_MOST_BUCKETS, len(column) // _EACH_BUCKET)) if count is None else count
        name = f"bucket {{}} of {total}"
        present = column[~missing].astype(np.float64)
        distinct = np.unique(present)
        if len(distinct) <= total:
            place = np.searchsorted(distinct, present)
        else:
            edges = np.sort(present)[[round(len(present) * part / total) for part in range(1, total)]]
            place = np.searchsorted(edges, present, side="right")
    else:
        raise InputError(f"`known` must hold numbers or labels, got an array of {column.dtype}.")
    codes = np.full(len(column), total, np.int64)
    codes[~missing] = place
    names = [*(name.format(rank + 1) for rank in range(total)), "NULL"]
    used, codes = np.unique(codes, return_inverse=True)
    return codes, tuple(names[code] for code in used)
