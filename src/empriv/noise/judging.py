"""How private an answer is with noise: the judge's upper bound of the noisy answer.

Two pairs of laws are judged, each with the noise drawn as its kernel, on its lattice: the paper's, results with
everyone and without a person; and that of the day on which people are present: the others' results, and the same moved
by the most that anybody did. The larger bound counts. Of a law of several parts, ``h = sum_k w_k h_k`` (`paper`),
``delta(P * h, Q * h) <= sum_k w_k delta(P * h_k, Q * h_k)`` by the joint convexity of hockey sticks; the bounds of all
parts hold together at the level (docs/judge.md).

A day on which a person decides whether there is an answer at all is hidden by no noise. The paper's pair counts the
share of such days.

Given what is known, residuals are judged. They do not show what the last digits of an answer tell, or that it stops
being whole, which noise blurs: where that gives somebody away, the answers themselves are judged beside them, and the
larger bound counts.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from empriv.base.machine import workers
from empriv.base.targets import Target
from empriv.errors import InputError
from empriv.judge.cover import of_moves
from empriv.judge.noise_kernels import NoiseKernel, alone
from empriv.judge.upper import LEAST_DATABASES, each_day_alone, moves, of_people, unseen
from empriv.measuring import GivenRisk, Risk, TableRisk
from empriv.measuring.line.atoms import Pairs, take_atoms_out
from empriv.noise.law import Law, Part
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds import bounds
from empriv.validate.covers import line_cover_of, unjudged_moves

Values = TypeVar("Values", FloatArray, IntArray)
LEVEL = 0.95
_MOVERS = 6  # people who move the answer most, whose absence makes a law of its own
_SEVERAL = 256  # people: for fewer, threads take longer to start than they save
_BLURRED = ("off_lattice", "round_without")  # atoms that are a pattern of digits
_FIRST = 64  # people who are judged first for the largest bound


@dataclass(frozen=True, eq=False)
class JudgedAnswer:
    """The answer that noise is for, as the judge sees it.

    Attributes
    ----------
    risk : what was measured
    presence : "both" asks of a random database and of the day that people are in, "random" of the first alone
    reach : the most that anybody may move the answer, if it was declared or is all that is promised; None allows for
        twice as much as each person was seen to
    answers : of the answers themselves, judged too where ``risk`` is of residuals that lost their digits
    """

    risk: Risk = field(repr=False)
    presence: str = "both"
    reach: float | None = None
    answers: Risk | None = field(default=None, repr=False)

    @staticmethod
    def of(subject: NoiseSubject, presence: str, reach: float | None = None) -> JudgedAnswer:
        """The answer of whatever noise may be designed for."""
        return JudgedAnswer(one_number(subject), presence, reach, subject.answers)

    @cached_property
    def _answers(self) -> JudgedAnswer | None:
        return None if self.answers is None else JudgedAnswer(self.answers, self.presence, self.reach)

    def _larger(self, own: Values, of: Callable[[JudgedAnswer], Values]) -> Values:
        """The larger figure of both, where two are judged."""
        return own if self._answers is None else np.maximum(own, of(self._answers))

    @cached_property
    def pairs(self) -> Pairs:
        """Results that are numbers; others are outcomes that no noise hides."""
        return take_atoms_out(self.risk.results, look=False)

    @cached_property
    def moved(self) -> FloatArray:
        """(people,) the most that each moved the answer."""
        own, unjudged = moves(self.pairs)[0], unjudged_moves(self.risk)
        if unjudged is not None:
            own = np.maximum(
                own, replace(unjudged, sizes=np.where(np.isinf(unjudged.sizes), 0.0, unjudged.sizes)).largest
            )
        return self._larger(own, lambda answers: answers.moved)

    @cached_property
    def changed(self) -> IntArray:
        """(people,) in how many databases each decided whether there is an answer at all."""
        own, unjudged = moves(self.pairs)[1], unjudged_moves(self.risk)
        if unjudged is not None:
            own = own + np.bincount(unjudged.owner, np.isinf(unjudged.sizes), len(own)).astype(np.int64)
        return self._larger(own, lambda answers: answers.changed)

    @property
    def largest(self) -> float:
        """The most that anybody moved the answer."""
        return float(self.moved.max(initial=0.0))

    @property
    def hidden(self) -> float:
        """The most that classical noise hides: what was declared, or the largest move."""
        return self.largest if self.reach is None else self.reach

    @cached_property
    def days(self) -> tuple[FloatArray, FloatArray]:
        """(laws, N) and (laws,): the others' laws, and the moves that each has to hide.

        The results, and those without each of the people whose absence changes them most, hide the largest move; the
        results without each of those who move them most on a day hide that person's.
        """
        laws = line_cover_of(self.risk, NoiseKernel("laplace", 1.0)).laws
        rows = np.argsort(-self.moved, kind="stable")[:_MOVERS]
        rows = rows[self.moved[rows] > 0]
        own = self.pairs.dense(rows) if len(rows) else laws[:0]
        return np.concatenate((laws, own)), np.append(np.full(len(laws), self.largest), self.moved[rows])

    # With one kind of noise

    def of_rows(self, kernel: NoiseKernel, epsilon: float, rows: IntArray, level: float = LEVEL) -> FloatArray:
        """(rows,) upper bound of delta_i of these people in a random database."""

        def bound(some: IntArray) -> FloatArray:
            pairs = of_some(self.pairs, some)
            own = of_people(pairs, epsilon, kernel, reach=self.reach, level=level).values[:, 0]
            return self._larger(own, lambda answers: answers.of_rows(kernel, epsilon, some, level))

        parts = np.array_split(rows, workers() if len(rows) >= _SEVERAL else 1)
        if len(parts) == 1:
            return bound(rows)
        with ThreadPoolExecutor(len(parts)) as pool:
            return np.concatenate(list(pool.map(bound, parts)))

    def of_everyone(
        self, kernel: NoiseKernel, epsilon: float, delta: float, level: float = LEVEL
    ) -> tuple[IntArray, FloatArray]:
        """Those who have to be judged, and their bounds."""
        rows = self.not_hidden(kernel, epsilon, delta, level)
        return rows, self.of_rows(kernel, epsilon, rows, level)

    def of_the_day(self, kernel: NoiseKernel | None, epsilon: float, level: float = LEVEL) -> float:
        """The same of the largest move, on the day that a person made it; 0 where that is not asked."""
        if self.presence == "random":
            return 0.0
        if kernel is None:
            as_it_is = line_cover_of(self.risk, None)
            return as_it_is.upper(as_it_is.most, epsilon, level)
        if self.changed.any():
            return 1.0
        if not self.largest > 0:
            return 0.0
        laws, moved = self.days
        own = float(of_moves(laws, moved, epsilon, kernel, draws=self.pairs.draws, level=level).values.max())
        return own if self._answers is None else max(own, self._answers.of_the_day(kernel, epsilon, level))

    def not_hidden(self, kernel: NoiseKernel, epsilon: float, delta: float, level: float = LEVEL) -> IntArray:
        """People whom the noise alone need not keep within delta: only they have to be judged."""
        n = len(self.pairs.points) // self.pairs.draws
        reach = 2.0 * self.moved if self.reach is None else np.maximum(self.moved, self.reach)
        most = np.maximum(self._by_noise_alone(kernel, epsilon, level), unseen(n, epsilon, kernel, reach, level))
        own = np.flatnonzero((most > delta) | (self.changed > 0))
        if self._answers is None:
            return own
        return np.union1d(own, self._answers.not_hidden(kernel, epsilon, delta, level))

    def _by_noise_alone(self, kernel: NoiseKernel, epsilon: float, level: float = LEVEL) -> FloatArray:
        """(people,) what the noise alone leaves, of the largest move or on average over the databases."""
        most = alone(kernel, epsilon, self.moved)
        n = len(self.pairs.points) // self.pairs.draws
        if n >= LEAST_DATABASES and np.count_nonzero(most):
            most = np.minimum(most, each_day_alone(self.pairs, epsilon, kernel, level))
        return self._larger(most, lambda answers: answers._by_noise_alone(kernel, epsilon, level))

    def meets(
        self, kernel: NoiseKernel, epsilon: float, delta: float, rows: IntArray | None = None, level: float = LEVEL
    ) -> bool:
        """Whether the noise keeps these people, or everybody, within delta, and the largest move."""
        if self.of_the_day(kernel, epsilon, level) > delta:
            return False
        if rows is None:
            return float(self.of_everyone(kernel, epsilon, delta, level)[1].max(initial=0.0)) <= delta
        return float(self.of_rows(kernel, epsilon, rows, level).max(initial=0.0)) <= delta

    # With a law

    def upper_i(self, law: Law, epsilon: float) -> FloatArray:
        """(people,) upper bound of each delta_i of the answer with this noise, in a random database."""
        everyone = np.arange(self.pairs.n_individuals)
        out = np.zeros(len(everyone))
        for share, kernel, level in _parts(law):
            if kernel is None:  # of residuals too it tells what atoms of the answers do
                out += share * np.asarray(bounds(self.risk, epsilon, level).upper_i)
            else:
                out += share * self.of_rows(kernel, epsilon, everyone, level)
        return np.minimum(out, 1.0)

    def upper(self, law: Law, epsilon: float) -> float:
        """The largest, and that of the largest move on the day that a person made it."""
        parts = _parts(law)
        on_the_day = min(1.0, sum(share * self.of_the_day(kernel, epsilon, level) for share, kernel, level in parts))
        if len(parts) > 1 or parts[0][1] is None:
            return max(on_the_day, float(self.upper_i(law, epsilon).max(initial=0.0)))
        kernel, best, start, size = parts[0][1], on_the_day, 0, _FIRST
        most = self._by_noise_alone(kernel, epsilon)
        order = np.argsort(-most, kind="stable")
        lost = self.changed[order] > 0
        order = np.concatenate((order[lost], order[~lost]))
        while start < len(order):
            some = order[start : start + size]
            some = some[(most[some] > best) | (self.changed[some] > 0)]  # nobody else can be worse
            if not len(some) and start:
                break
            best = max(best, float(self.of_rows(kernel, epsilon, some).max(initial=0.0)))
            start, size = start + size, 4 * size
        return best

    def meets_with(self, law: Law, epsilon: float, delta: float) -> bool:
        """Whether the answer with this noise keeps everybody within delta."""
        parts = _parts(law)
        if len(parts) > 1 or parts[0][1] is None:
            return self.upper(law, epsilon) <= delta
        return self.meets(parts[0][1], epsilon, delta)


def _parts(law: Law) -> list[tuple[float, NoiseKernel | None, float]]:
    """Share, kernel and level of each part; all bounds hold together at 95%."""
    shares = law.shares()
    return [(share, kernel_of(law, part), 1.0 - (1.0 - LEVEL) / len(shares)) for share, part in shares]


def of_some(pairs: Pairs, rows: IntArray) -> Pairs:
    """The pairs of these people alone."""
    if len(rows) == pairs.n_individuals:
        return pairs
    entry = pairs.entries_of(rows)[1]
    starts = np.concatenate(([0], np.cumsum(pairs.starts[rows + 1] - pairs.starts[rows])))
    return replace(
        pairs, starts=starts, entry_database=pairs.entry_database[entry], entries=pairs.entries[entry],
        mass_without=pairs.mass_without[rows],
    )  # fmt: skip


def kernel_of(law: Law, part: Part) -> NoiseKernel | None:
    """A part of the law as the judge takes it: the discrete law on the lattice; a point mass or a table is no noise."""
    return NoiseKernel(part.kind, part.scale, law.granularity) if part.kind in ("laplace", "gaussian") else None


def by_noise_alone(law: Law, move: npt.ArrayLike, epsilon: npt.ArrayLike) -> FloatArray:
    """delta that the noise leaves of a move of the answer, whatever the data are; broadcast."""
    moved, epsilons = np.broadcast_arrays(np.abs(np.asarray(move, float)), np.asarray(epsilon, float))
    out = np.zeros(moved.shape)
    for share, part in law.shares():
        kernel = kernel_of(law, part)
        out += share * (np.asarray(moved > 0, float) if kernel is None else alone(kernel, epsilons, moved))
    return out


@dataclass(frozen=True, eq=False)
class NoiseSubject:
    """The risk that noise is designed for.

    Attributes
    ----------
    risk : of one number, or of several
    presence : whether noise must serve on the day that people are in too, unless asked otherwise
    unit : of the answers, where one was named
    answers : of the answers themselves, where residuals do not show what their digits tell
    targets, times : what an audit was asked to keep, and of how many publications; its noise must not fall short of it
    """

    risk: Risk | TableRisk
    presence: bool = True
    unit: str = ""
    answers: Risk | None = None
    targets: tuple[Target, ...] = ()
    times: int = 1


def subject_of(risk: Any) -> NoiseSubject:
    """The subject of a risk, or of whatever says by a method ``noise_subject`` which one it holds, such as an audit."""
    if isinstance(risk, GivenRisk):
        if not takes_noise(risk):
            raise InputError(
                "`risk` must be of results without point masses, such as NULL or a value that most databases have, to "
                "design noise given what is known, got some. Hint: design_noise(audit.risk), for a reader who knows "
                "nothing."
            )
        answers = risk.unconditional if _digits_tell(risk.atoms) else None
        return NoiseSubject(risk.without_logarithm(), answers=answers)  # noise is added to no logarithms
    if isinstance(risk, Risk | TableRisk):
        return NoiseSubject(risk)
    if not hasattr(risk, "noise_subject"):
        raise InputError(f"`risk` must be a Risk or an Audit, got {type(risk).__name__}.")
    subject: NoiseSubject = risk.noise_subject()
    return subject


def takes_noise(risk: GivenRisk) -> bool:
    """Whether noise can be designed given what is known: its residuals show no point masses, which stand out where the
    rest is known, and noise blurs digits alone."""
    return set(risk.atoms.names) <= set(_BLURRED) and all(set(own.names) <= set(_BLURRED) for _, own in risk.atoms.own)


def _digits_tell(atoms: Pairs) -> bool:
    return bool(len(atoms.names) or atoms.own or atoms.digit_steps)


def one_number(subject: NoiseSubject) -> Risk:
    """The risk, if it is that of one number."""
    if not isinstance(subject.risk, Risk):
        raise InputError(f"`risk` must be that of one number, got {type(subject.risk).__name__}.")
    return subject.risk
