"""Steps on answers, after the query: rounding, noise, any function.

Random steps draw once for each database and draw, and use the same draw with everyone and without each individual. That
leaves the law of either side as it is, and delta depends on nothing else; and what chance does is not mistaken for what
an individual does. An answer that is not a number stays as it is: noise does not hide it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from empriv.errors import QueryError
from empriv.noise.drawing import with_noise
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.results import FloatArray, IntArray, Outcome, Results, outcomes_of

NoiseLaw = Literal["laplace", "gaussian"]
Codes = npt.NDArray[np.int8]
Again = Callable[[], tuple[Any, ...]]
Call = Callable[[FloatArray, Codes, IntArray, Again], str | None]


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
    """Round answers to a multiple: the nearest, ties to the even one, or at random so that the mean stays.

    At random, an answer goes up with the probability that is the rest over the multiple.
    """

    to: float
    at_random: bool = False
    kind: ClassVar[str] = "rounded"

    @property
    def randomised(self) -> bool:
        return self.at_random

    def apply(self, results: Results, *, draws: int, rng: np.random.Generator) -> Results:
        if not self.at_random:
            return replace(results, q=self._multiples(results.q), entry_q=self._multiples(results.entry_q))
        results = with_axis(results, draws)
        height = rng.random(results.q.shape)
        return replace(
            results,
            q=self._multiples(results.q, height),
            entry_q=self._multiples(results.entry_q, height[results.entry_database]),
        )

    def _multiples(self, answers: FloatArray, height: FloatArray | None = None) -> FloatArray:
        with np.errstate(over="ignore"):
            multiple = answers / self.to
        whole = np.rint(multiple) if height is None else np.floor(multiple + height)
        # Beyond 2^52 multiples, doubles are no closer together than the multiples.
        return np.where(np.abs(multiple) < 2.0**52, whole * self.to, answers)

    @property
    def words(self) -> str:
        return f"rounded to {self.to:g}{' at random' if self.at_random else ''}"


@dataclass(frozen=True)
class Added:
    """Continuous noise on each number of the answer.

    Attributes
    ----------
    law : Laplace or Gaussian
    scale : of Laplace noise, or standard deviation; for all numbers, or of each by name
    said : why this scale
    """

    law: NoiseLaw
    scale: float | Mapping[str, float]
    said: str = ""
    randomised: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return f"{self.law} noise"

    def apply(self, results: Results, *, draws: int, rng: np.random.Generator) -> Results:
        results = with_axis(results, draws)
        shape = results.q.shape
        scale = self._scales(results.components) if isinstance(self.scale, Mapping) else self.scale
        noise = scale * (rng.laplace(size=shape) if self.law == "laplace" else rng.normal(size=shape))
        return replace(results, q=results.q + noise, entry_q=results.entry_q + noise[results.entry_database])

    def _scales(self, components: tuple[str, ...] | None) -> FloatArray:
        assert isinstance(self.scale, Mapping)
        if components is None or set(self.scale) != set(components):
            raise QueryError(
                f"`scale` must hold each of the {len(components or ()):,} cells that the query gives by name, and no "
                "other. Hint: names are in `results.components`."
            )
        return np.array([self.scale[name] for name in components])

    @property
    def words(self) -> str:
        named = {"laplace": "Laplace noise of scale", "gaussian": "Gaussian noise of standard deviation"}[self.law]
        if isinstance(self.scale, Mapping):
            least, most = min(self.scale.values()), max(self.scale.values())
            return f"{named} {least:.6g} to {most:.6g} by cell"
        return f"{named} {self.scale:.6g} ({self.said})" if self.said else f"{named} {self.scale:.6g} on each cell"


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
        call = self._call_one if results.components is None else self._call_several
        if not self.randomised:
            _refuse_chance(call, q[:, 0], codes[:, 0])
        for database in range(results.n_databases):
            entries = order[ends[database] : ends[database + 1]]
            for draw in range(many):
                again = _rewound(int(seeds[database, draw])) if self.randomised else tuple
                raised = call(q[:, draw], codes[:, draw], np.array([database]), again)
                failure = failure or raised
                call(entry_q[:, draw], entry_codes[:, draw], entries, again)
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

    def _call_one(self, values: FloatArray, codes: Codes, places: IntArray, again: Again) -> str | None:
        """Replace answers by what the function returns; returns the kind of exception if it raised one."""
        failure = None
        numeric = places[codes[places, 0] == Outcome.NUMBER]
        answers: list[float] = []
        failed: list[int] = []
        silent: list[int] = []
        for at, answer in enumerate(values[numeric, 0].tolist()):
            try:
                returned = self.function(answer, *again())
                if returned is None:
                    silent.append(at)
                answers.append(math.nan if returned is None else float(returned))
            except Exception as error:  # whatever a black box raises is an outcome
                failure = failure or type(error).__name__
                failed.append(at)
                answers.append(math.nan)
        new = np.array(answers, np.float64)
        kinds = outcomes_of(new)
        kinds[silent], kinds[failed] = Outcome.NULL, Outcome.ERROR
        values[numeric, 0], codes[numeric, 0] = np.where(kinds == Outcome.NUMBER, new, np.nan), kinds
        return failure

    def _call_several(self, values: FloatArray, codes: Codes, places: IntArray, again: Again) -> str | None:
        """The same for answers of several numbers."""
        failure = None
        for at in places:
            number = codes[at] == Outcome.NUMBER
            if not number.any():
                continue
            try:
                returned = self.function(values[at].copy(), *again())
                new = np.full(number.shape, np.nan) if returned is None else np.asarray(returned, np.float64)
                kinds = np.full(number.shape, Outcome.NULL, np.int8) if returned is None else outcomes_of(new)
                if new.shape != number.shape:
                    raise ValueError("shape")
            except Exception as error:
                failure = failure or type(error).__name__
                new, kinds = np.full(number.shape, np.nan), np.full(number.shape, Outcome.ERROR, np.int8)
            codes[at] = np.where(number, kinds, codes[at])
            values[at] = np.where(codes[at] == Outcome.NUMBER, new, np.nan)
        return failure

    @property
    def words(self) -> str:
        return f"passed through {getattr(self.function, '__qualname__', type(self.function).__qualname__)}"


def with_axis(results: Results, draws: int) -> Results:
    """Results with draws: their own, or the same result repeated."""
    if results.draws is not None:
        return results

    def repeated(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.repeat(array[:, None], draws, axis=1)

    return replace(
        results,
        q=repeated(results.q),
        outcomes=repeated(results.outcomes),
        entry_q=repeated(results.entry_q),
        entry_outcomes=repeated(results.entry_outcomes),
        draws=draws,
    )


def _refuse_chance(call: Call, values: FloatArray, codes: Codes) -> None:
    """Refuse a function that gives two answers for one input: chance would look like an individual's influence."""
    places = np.flatnonzero((codes == Outcome.NUMBER).any(axis=1))[:1]
    (value, code), (value_again, code_again) = ((values[places], codes[places]) for _ in range(2))
    call(value, code, np.arange(len(places)), tuple)
    call(value_again, code_again, np.arange(len(places)), tuple)
    if not (np.array_equal(value, value_again, equal_nan=True) and np.array_equal(code, code_again)):
        raise QueryError(
            "`function` must give the same answer each time it is called on the same answer, got two different ones. "
            "Hint: a randomised function takes a generator as well, `function(answer, rng)`, uses no other source of "
            "chance, and may be run with `draws=`."
        )


def _rewound(seed: int) -> Again:
    """Returns a generator that starts at the same place each time, so both sides of a pair see the same numbers."""
    rng = np.random.default_rng(seed)
    start = rng.bit_generator.state

    def again() -> tuple[Any, ...]:
        rng.bit_generator.state = start
        return (rng,)

    return again
