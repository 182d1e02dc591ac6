"""Cover: what people did, on the day they did it.

On a published day everybody's influence is known. So ask, for each person and each day that they are in, how well the
others' law hides the same law moved by what this person did. That is one curve, U(d), for everybody: **cover** is the
largest move that is hidden, in the answer's own units, and stands beside the most that anybody moved it. The others'
law is that of the results; for people without whom it is narrower, theirs too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import confidence_level, finite_epsilon, probability, whole_number
from empriv.base.display import table_html
from empriv.base.harmless import pseudonyms
from empriv.errors import InputError
from empriv.judge import cover as judged
from empriv.judge import lower
from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring.contract import RiskContract
from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.line.atoms import Pairs, split
from empriv.measuring.line.moves import Moves, as_it_is, others_laws
from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.figures import level_of_each
from empriv.validate.bounds.line_bounds import added_to, patterned
from empriv.validate.bounds.noise_as_kernel import NoiseGiven, kernel_of
from empriv.validate.ground import ground_of
from empriv.words.sentences import quantity

_HALVINGS = 10


@dataclass(frozen=True, eq=False)
class Covered:
    """How far the answer hides what people did, at one epsilon and delta.

    Attributes
    ----------
    cover : the largest move that is hidden, in units of what is left of a database (of the answer, where the spread
        does not depend on what is known)
    shown : a move from which on the databases demonstrate that it is not hidden; inf where they never do
    most, upper, lower, estimate : the largest move, in the same units, with U, the lower bound and the estimate there
    days, beyond, exposed : person-days in all, those beyond the cover, and those from ``shown`` on
    people_beyond, people : individuals with a day beyond the cover, and all
    typical : the cover in the answer's units, on a typical database
    worst, worst_cover : the move that is furthest beyond (or nearest to) its cover, and the cover of that database,
        both in the answer's units
    largest : the most that anybody moved the answer, in its units
    varies : whether the cover differs from database to database
    cell, cells : of a table, the cell that the figures are of, and how far each cell hides what people did
    """

    cover: float
    shown: float
    most: float
    upper: float
    lower: float
    estimate: float
    days: int
    beyond: int
    exposed: int
    people_beyond: int
    people: int
    typical: float
    worst: float
    worst_cover: float
    largest: float
    varies: bool
    cell: str = ""
    cells: Mapping[str, Sequence[Any]] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True, eq=False)
class Hiding:
    """The others' laws, and what people did beside them.

    Attributes
    ----------
    pairs : results with everyone and without each; outcomes apart at +inf
    moves : in units of what is left of each database
    laws : (laws, N) that of the results first
    kernel : the noise; None as it is
    refuted : whether the answers keep to a pattern that what is left of them does not show; never with noise
    """

    pairs: Pairs
    moves: Moves
    laws: FloatArray
    kernel: NoiseKernel | None
    refuted: bool = False

    def cover(self, epsilon: float, delta: float, level: float) -> float:
        """The largest move that every law hides."""
        if self.refuted or not np.isfinite(self.laws[0]).any():
            return 0.0
        found = judged.cover(self.laws, epsilon, delta, self.kernel, draws=self.pairs.draws, level=level)
        return float(found.min())

    def upper(self, move: float, epsilon: float, level: float) -> float:
        """U of a move."""
        if math.isinf(move) or (self.refuted and move > 0):
            return 1.0
        moves = np.full(len(self.laws), move)
        return float(
            judged.of_moves(self.laws, moves, epsilon, self.kernel, draws=self.pairs.draws, level=level).values.max()
        )

    def lower(self, move: float, epsilon: float, level: float) -> float:
        """What the databases demonstrate of a move, by the law of the results."""
        if math.isinf(move):
            return 1.0
        found = lower.of_moves(self.laws[0], [move], epsilon, self.kernel, draws=self.pairs.draws, level=level)
        return float(found[0, 0])


@singledispatch
def hiding_of(risk: RiskContract, kernel: NoiseKernel | None) -> Hiding:  # noqa: ARG001 — dispatched on
    """What people did, beside the law that hides it."""
    raise InputError(
        "`cover` must be asked of one number, plain or `Given` what is known, got another kind of risk. "
        "Hint: cover_by_cell, of a table."
    )


@hiding_of.register
def _(risk: Risk, kernel: NoiseKernel | None) -> Hiding:
    if kernel is not None:
        noisy = added_to(risk)
        pairs, moves = split(noisy.results, look=False), noisy.moves()
    else:
        pairs = ground_of(risk).marked
        moves = moves_as_it_is(risk, pairs)
    return Hiding(pairs, moves, others_laws(pairs, moves), kernel, kernel is None and patterned(risk))


def parts_of(risk: RiskContract) -> tuple[RiskContract, ...]:
    """The risks of one number of which the worst counts: several for the paper's Definition 4, else the risk itself."""
    return risk.parts if isinstance(risk, WorstRisk) else (risk,)


def moves_as_it_is(risk: Risk, pairs: Pairs) -> Moves:
    """What people did without noise, where some outcomes give them away whatever the law is."""
    moves = as_it_is(risk.moves(), pairs)
    return as_it_is(moves, risk.atoms) if isinstance(risk, GivenRisk) else moves


def judged_move(hiding: Hiding, most: float, epsilon: float, delta: float, level: float) -> tuple[float, float, float]:
    """Lower bound, estimate and upper bound of the largest move."""
    upper = hiding.upper(most, epsilon, level)
    low = hiding.lower(most, epsilon, level) if upper > delta else 0.0
    return low, min(upper, max(low, _estimate(hiding, most, epsilon))), max(upper, low)


def covers(risk: RiskContract) -> bool:
    """Whether a kind of risk has a cover."""
    risk = parts_of(risk)[0]
    return any(of.dispatch(type(risk)) is not of.dispatch(object) for of in (hiding_of, covered))


def has_moves(risk: RiskContract) -> bool:
    """Whether everybody's moves stand beside one law: not where databases are told apart by what is known of them."""
    return hiding_of.dispatch(type(risk)) is not hiding_of.dispatch(object)


def cover(
    risk: RiskContract, epsilon: float, delta: float, *, noise: NoiseGiven = 0.0, level: float | None = None
) -> float:
    """The largest move of the answer that is hidden: D* with U(D*) <= delta at epsilon.

    Parameters
    ----------
    risk : of one number
    epsilon, delta : where it is hidden
    noise : as for `bounds`
    level : of confidence; default 0.95

    Returns
    -------
    float
        In the answer's units, a multiple of its step on a lattice. Where the spread depends on what is known, in units
        of what is left: `cover_on` is that of one database in the answer's units.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 365)
    >>> risk = empriv.measure(q, q - rng.exponential(0.1, (3, 365)))
    >>> bool(0.2 < risk.cover(0.1, 0.05) < 2)
    True
    """
    epsilon, delta = finite_epsilon(epsilon), probability("delta", delta)
    level = confidence_level(risk.usual_level if level is None else level)
    kernel = kernel_of(noise)[0]
    return min(hiding_of(part, kernel).cover(epsilon, delta, level) for part in parts_of(risk))


def cover_on(
    risk: RiskContract,
    database: Any,
    epsilon: float,
    delta: float,
    *,
    noise: NoiseGiven = 0.0,
    level: float | None = None,
) -> float:
    """The cover on one database, given by its label, in the answer's units."""
    hidden = cover(risk, epsilon, delta, noise=noise, level=level)
    return in_answers(risk, hidden, database) if kernel_of(noise)[0] is None else hidden


@singledispatch
def in_answers(risk: RiskContract, move: float, database: Any) -> float:  # noqa: ARG001 — dispatched on
    """A move in units of what is left, in the answer's units on a database."""
    return move


@in_answers.register
def _(risk: GivenRisk, move: float, database: Any) -> float:
    left = risk.left
    places = np.flatnonzero(left.original.databases == database)
    if not len(places):
        raise InputError("`database` must be the label of one that was audited, and whose previous answers are known.")
    place = int(places[0])
    own = move * float(left.units[place])
    return float(np.mean(left.original.q[place])) * -math.expm1(-own) if left.logarithm else own


@singledispatch
def covered(
    risk: RiskContract, epsilon: float, delta: float, *, noise: NoiseGiven = 0.0, level: float = 0.95
) -> Covered:
    """What the answer hides of what people did, and what it does not; of several parts, the worst."""
    parts, kernel = parts_of(risk), kernel_of(noise)[0]
    if len(parts) == 1:
        return _covered(parts[0], epsilon, delta, kernel, level)
    days = [_covered(part, epsilon, delta, kernel, level) for part in parts]
    each = level_of_each(level, len(parts))
    # one of so many lower bounds is above the truth by chance more often: those that decide are asked at their share
    days = [
        replace(day, lower=_covered(part, epsilon, delta, kernel, each).lower) if day.lower > delta else day
        for part, day in zip(parts, days, strict=True)
    ]
    return max(days, key=lambda day: (day.lower > delta, day.upper))


def _covered(risk: RiskContract, epsilon: float, delta: float, kernel: NoiseKernel | None, level: float) -> Covered:
    hiding = hiding_of(risk, kernel)
    moves, relative = hiding.moves, hiding.moves.relative
    most = float(relative.max(initial=0.0))
    hidden = hiding.cover(epsilon, delta, level)
    upper = hiding.upper(most, epsilon, level)
    if most > hidden and upper <= delta:
        hidden = most  # a cover is found by steps, the largest move is asked itself
    low = hiding.lower(most, epsilon, level) if most > hidden else 0.0
    beyond = moves.beyond(hidden)
    shown = _shown(hiding, relative[beyond], epsilon, delta, level) if low > delta else math.inf
    worst = int(np.argmax(relative)) if len(relative) else -1
    finite = moves.sizes[np.isfinite(moves.sizes)]
    unit = moves.typical_unit
    return Covered(
        cover=hidden,
        shown=shown,
        most=most,
        upper=max(upper, low),
        lower=low,
        estimate=min(upper, max(low, _estimate(hiding, most, epsilon))),
        days=len(relative),
        beyond=int(np.count_nonzero(beyond)),
        exposed=int(np.count_nonzero(relative >= shown)) if math.isfinite(shown) else int(np.isinf(relative).sum()),
        people_beyond=len(np.unique(moves.owner[beyond])),
        people=len(moves.starts) - 1,
        typical=hidden * unit,
        worst=float(moves.sizes[worst]) if worst >= 0 else 0.0,
        worst_cover=hidden * (float(moves.units[worst]) if worst >= 0 else 1.0),
        largest=float(finite.max(initial=0.0)) if not np.isinf(moves.sizes).any() else math.inf,
        varies=bool(np.ptp(moves.units) > 1e-9 * unit) if len(moves.units) else False,
    )


def _estimate(hiding: Hiding, move: float, epsilon: float) -> float:
    """The hockey stick of the shift pair, by kernel estimates at one bandwidth or with the noise itself."""
    if math.isinf(move) or move <= 0:
        return float(move > 0)
    from empriv.judge import noisy_laws, upper

    law, kernel = hiding.laws[0], hiding.kernel
    h = upper.bandwidth(law, hiding.pairs.draws)
    if kernel is None and h <= 0:
        return 1.0
    kernel = NoiseKernel("laplace", h) if kernel is None else kernel
    w = noisy_laws.values(law + move, law[None, :], kernel, np.array([epsilon]), draws=hiding.pairs.draws)
    return float(np.clip(w.mean(axis=-1).max(), 0.0, 1.0))


def _shown(hiding: Hiding, beyond: FloatArray, epsilon: float, delta: float, level: float) -> float:
    """The least move, of those beyond the cover, that is demonstrated not to be hidden; the largest one is."""
    finite = np.unique(beyond[np.isfinite(beyond)])
    if not len(finite) or hiding.lower(float(finite[-1]), epsilon, level) <= delta:
        return math.inf
    low, high = -1, len(finite) - 1
    for _ in range(_HALVINGS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        if hiding.lower(float(finite[middle]), epsilon, level) > delta:
            high = middle
        else:
            low = middle
    return float(finite[high])


@dataclass(frozen=True, eq=False)
class WhoMoved:
    """Who moved the answer by how much on which database: each person's largest move, furthest first.

    Attributes
    ----------
    individual : pseudonyms, or labels if these were asked for
    moved : by how much, in the answer's units; inf where they change whether there is an answer at all
    database : on which database
    relative : the same in units of what is left of that database, which the cover is in
    all_moves : of everybody, on every database
    """

    individual: Sequence[Any]
    moved: FloatArray
    database: npt.NDArray[Any]
    relative: FloatArray
    all_moves: Moves

    @property
    def most(self) -> float:
        """The most that anybody moved the answer."""
        return float(self.all_moves.sizes.max(initial=0.0))

    def share_beyond(self, cover: float) -> float:
        """Share of person-days on which somebody moved the answer by more than ``cover``, as `cover` gives it."""
        beyond = self.all_moves.beyond(cover)
        return float(beyond.mean()) if len(beyond) else 0.0

    def columns(self) -> dict[str, list[Any]]:
        """Columns of a table; ``pandas.DataFrame`` takes it as it is."""
        return {
            "individual": list(self.individual),
            "moved": self.moved.tolist(),
            "database": self.database.tolist(),
        }

    def __repr__(self) -> str:
        return f"WhoMoved({len(self.moved):,} individuals, the most by {quantity(self.most)})"

    def _repr_html_(self) -> str:
        rows = [
            [str(who), "an answer or none" if math.isinf(by) else quantity(by), str(where)]
            for who, by, where in zip(self.individual, self.moved.tolist(), self.database.tolist(), strict=True)
        ]
        return table_html("Who moved the answer most", ["individual", "moved", "database"], rows)


@singledispatch
def moved(risk: RiskContract, *, top: int | None = 10, key: bytes | None = None) -> WhoMoved:
    """Each person's largest move of the answer, and on which database.

    Parameters
    ----------
    risk : of one number
    top : so many individuals; None for all
    key : makes pseudonyms of labels; None names people by their labels
    """
    risk = risk.unconditional if isinstance(risk, WorstRisk) else risk
    hiding = hiding_of(risk, None)
    moves, results = hiding.moves, results_of(risk)
    if top is not None:
        whole_number("top", top, least=1)
    worst: IntArray = moves.worst
    rows = np.flatnonzero(worst >= 0)
    order = rows[np.lexsort((-moves.sizes[worst[rows]], -moves.relative[worst[rows]]))][:top]
    places = worst[order]
    labels = results.individuals[order].tolist()
    names = labels if key is None else [f"individual {name}" for name in pseudonyms(labels, key, shortest=4)]
    return WhoMoved(
        names, moves.sizes[places], results.databases[moves.database[places]], moves.relative[places], moves
    )


@singledispatch
def results_of(risk: Any) -> Any:
    """The answers themselves, also where what is left of them is judged."""
    return risk.results


@results_of.register
def _(risk: GivenRisk) -> Any:
    return risk.left.original
