"""Steps on answers, after the query: rounding, noise, any function.

Random steps draw once for each database and draw, and use the same draw with everyone and without each individual. That
leaves the law of either side as it is, and delta depends on nothing else; and what chance does is not mistaken for what
an individual does. An answer that is not a number stays as it is: noise does not hide it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from empriv.errors import QueryError
from empriv.noise.drawing import with_noise
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.results import FloatArray, IntArray, Outcome, Results, outcome_codes

Codes = npt.NDArray[np.int8]
Again = Callable[[], tuple[Any, ...]]


class AnswerStep(Protocol):
    """A step that changes answers."""

    @property
    def kind(self) -> str:
        """Steps of one kind draw from the same stream of random numbers."""

    @property
    def randomised(self) -> bool: ...

    @property
    def words(self) -> str: ...

    def apply(self, results: Results, *, draws: int, rng: np.random.Generator) -> Results:
        """The results after this step; ``draws`` is how many to make if this step is random."""


@dataclass(frozen=True)
class Rounded:
    """Round answers to the nearest multiple, ties to the even one."""

    to: float
    kind: ClassVar[str] = "rounded"
    randomised: ClassVar[bool] = False

    def apply(self, results: Results, *, draws: int, rng: np.random.Generator) -> Results:
        del draws, rng
        return replace(results, q=self._multiples(results.q), entry_q=self._multiples(results.entry_q))

    def _multiples(self, answers: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            multiple = answers / self.to
        # Beyond 2^52 multiples, doubles are no closer together than the multiples.
        return np.where(np.abs(multiple) < 2.0**52, np.rint(multiple) * self.to, answers)

    @property
    def words(self) -> str:
        return f"rounded to {self.to:g}"


@dataclass(frozen=True)
class Added:
    """Continuous noise on each number of the answer.

    Attributes
    ----------
    law : Laplace or Gaussian
    scale : of Laplace noise, or standard deviation
    said : why this scale
    """

    law: Literal["laplace", "gaussian"]
    scale: float
    said: str
    randomised: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return f"{self.law} noise"

    def apply(self, results: Results, *, draws: int, rng: np.random.Generator) -> Results:
        results = with_axis(results, draws)
        shape = results.q.shape
        noise = self.scale * (rng.laplace(size=shape) if self.law == "laplace" else rng.normal(size=shape))
        return replace(results, q=results.q + noise, entry_q=results.entry_q + noise[results.entry_database])

    @property
    def words(self) -> str:
        named = {"laplace": "Laplace noise of scale", "gaussian": "Gaussian noise of standard deviation"}[self.law]
        return f"{named} {self.scale:.6g} ({self.said})"


@dataclass(frozen=True, eq=False)
class Designed:
    """Noise that empriv designed: answers are rounded to its lattice, and its draws are added."""

    noise: Noise | TableNoise
    kind: ClassVar[str] = "designed noise"
    randomised: ClassVar[bool] = True

    def apply(self, results: Results, *, draws: int, rng: np.random.Generator) -> Results:
        laws = self.noise.laws if isinstance(self.noise, TableNoise) else self.noise.law
        if isinstance(self.noise, TableNoise) != (results.components is not None):
            raise QueryError("Noise must be designed for as many numbers as the query gives.")
        if isinstance(self.noise, TableNoise) and set(self.noise.laws) != set(results.components or ()):
            raise QueryError("Noise must be designed for the numbers that the query gives, got different ones.")
        return with_noise(results, laws, draws=draws if results.draws is None else 1, rng=rng)

    @property
    def words(self) -> str:
        if isinstance(self.noise, TableNoise):
            return f"noise designed for {len(self.noise.laws)} numbers at epsilon {self.noise.epsilon:g}"
        law_words = self.noise.law.words.rstrip(".")
        return f"{law_words[0].lower()}{law_words[1:]}, designed at epsilon {self.noise.epsilon:g}"


@dataclass(frozen=True, eq=False)
class Passed:
    """Answers passed through a function.

    It gets a number, or an array of several with NaN for those that are not a number, and a generator if it is random.
    It returns as many. None means NULL, and an exception is an outcome of its own.
    """

    function: Callable[..., Any]
    randomised: bool
    kind: ClassVar[str] = "passed"

    def apply(self, results: Results, *, draws: int, rng: np.random.Generator) -> Results:
        if self.randomised:
            results = with_axis(results, draws)
        many, columns = results.draws or 1, 1 if results.components is None else len(results.components)
        shape = (-1, many, columns)
        q, codes = results.q.reshape(shape).copy(), results.outcomes.reshape(shape).copy()
        entry_q, entry_codes = results.entry_q.reshape(shape).copy(), results.entry_outcomes.reshape(shape).copy()
        order = np.argsort(results.entry_database, kind="stable")
        ends = np.searchsorted(results.entry_database[order], np.arange(results.n_databases + 1))
        seeds = rng.integers(2**63, size=(results.n_databases, many))
        failure: str | None = None
        if not self.randomised:
            self._refuse_chance(q[:, 0], codes[:, 0])
        for database in range(results.n_databases):
            entries = order[ends[database] : ends[database + 1]]
            for draw in range(many):
                again = _rewound(int(seeds[database, draw])) if self.randomised else tuple
                raised = self._call(q[:, draw], codes[:, draw], np.array([database]), again)
                failure = failure or raised
                self._call(entry_q[:, draw], entry_codes[:, draw], entries, again)
        answered = results.outcomes.reshape(codes.shape) == Outcome.NUMBER
        if failure is not None and (codes[answered] == Outcome.ERROR).all():
            raise QueryError(
                f"`function` must work on at least one answer with everyone, got an exception on each: {failure}. "
                "Hint: its message is withheld, since it may hold an answer; call the function yourself to see it."
            )
        return replace(
            results,
            q=q.reshape(results.q.shape),
            outcomes=codes.reshape(results.q.shape),
            entry_q=entry_q.reshape(results.entry_q.shape),
            entry_outcomes=entry_codes.reshape(results.entry_q.shape),
        )

    def _call(self, values: FloatArray, codes: Codes, places: IntArray, again: Again) -> str | None:
        """Replace answers by what the function returns; returns the kind of exception if it raised one.

        ``values`` and ``codes`` are (places, numbers of an answer); one number is given as such.
        """
        failure = None
        number = codes[places] == Outcome.NUMBER
        places, number = places[number.any(axis=1)], number[number.any(axis=1)]
        answers = values[places, 0].tolist() if values.shape[1] == 1 else values[places]
        new = np.full(number.shape, math.nan)
        silent, failed = np.zeros(len(places), bool), np.zeros(len(places), bool)
        for at, answer in enumerate(answers):
            try:
                returned = self.function(answer, *again())
                if returned is None:
                    silent[at] = True
                elif values.shape[1] == 1:
                    new[at] = float(returned)
                elif np.shape(returned) == new[at].shape:
                    new[at] = returned
                else:
                    raise ValueError("shape")
            except Exception as error:  # whatever a black box raises is an outcome
                failure = failure or type(error).__name__
                failed[at] = True
        kinds = outcome_codes(new)
        kinds[silent], kinds[failed] = Outcome.NULL, Outcome.ERROR
        codes[places] = np.where(number, kinds, codes[places])
        values[places] = np.where(codes[places] == Outcome.NUMBER, new, math.nan)
        return failure

    def _refuse_chance(self, values: FloatArray, codes: Codes) -> None:
        """Refuse a function that gives two answers for one input: chance would look like an individual's influence."""
        places = np.flatnonzero((codes == Outcome.NUMBER).any(axis=1))[:1]
        given = [(values[places], codes[places]) for _ in range(2)]
        for value, code in given:
            self._call(value, code, np.arange(len(places)), tuple)
        (value, code), (again, code_again) = given
        if not (np.array_equal(value, again, equal_nan=True) and np.array_equal(code, code_again)):
            raise QueryError(
                "`function` must give the same answer each time it is called on the same answer, got two different "
                "ones. Hint: a randomised function takes a generator as well, `function(answer, rng)`, uses no other "
                "source of chance, and may be run with `draws=`."
            )

    @property
    def words(self) -> str:
        return f"passed through {getattr(self.function, '__qualname__', type(self.function).__qualname__)}"


def with_axis(results: Results, draws: int) -> Results:
    """Results with draws: their own, or the same result repeated."""
    if results.draws is not None:
        return results

    arrays: dict[str, Any] = {name: getattr(results, name) for name in ("q", "outcomes", "entry_q", "entry_outcomes")}
    repeated: dict[str, Any] = {name: np.repeat(array[:, None], draws, axis=1) for name, array in arrays.items()}
    return replace(results, **repeated, draws=draws)


def _rewound(seed: int) -> Again:
    """Returns a generator that starts at the same place each time, so both sides of a pair see the same numbers."""
    rng = np.random.default_rng(seed)
    start = rng.bit_generator.state

    def again() -> tuple[Any, ...]:
        rng.bit_generator.state = start
        return (rng,)

    return again
