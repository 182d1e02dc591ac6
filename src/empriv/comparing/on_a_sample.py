"""What ways to publish would do, along a slider, on a sample: quick enough to be looked at while choosing.

Only the most exposed people are measured, by the cautious figures that decide: upper bounds, and for noise half of the
bandwidth, as in its design. Nobody else's figure is known, so that a way that meets a target here may still miss it;
one that misses it here misses it for everybody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.audit import Audit
from empriv.collecting.pipeline import run_query
from empriv.collecting.queries import queries_in
from empriv.collecting.run_options import Run
from empriv.comparing.advising import audited_alike, round_step
from empriv.comparing.goals import Goal, figures_of
from empriv.comparing.ways_on_rows import two_digits
from empriv.errors import InputError
from empriv.measuring.contract import largest_influence
from empriv.measuring.given.presence import presence_of
from empriv.noise.certify.certificate import certify
from empriv.noise.certify.composed import ComposedCertificate
from empriv.noise.certify.there import PresentCertificate
from empriv.noise.design.least import HALF, MARGIN
from empriv.noise.design.task import offered_granularity
from empriv.noise.law import Law
from empriv.noise.measured import one_number
from empriv.protocols.places import capped_text, summed_columns, value_quantiles
from empriv.protocols.ready import rounded
from empriv.results import FloatArray, IntArray, Outcome, Results
from empriv.validate.verdict import UNRESOLVED

if TYPE_CHECKING:
    from empriv.collecting import Databases

_THERE, _ELSEWHERE = (
    2,
    1,
)  # people: most exposed where they are; in a random database, and by how much they move answers
_NOISES, _ROUNDINGS = 12, 8
_LEVELS = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999)  # of a column's values, where it is capped


@dataclass(frozen=True)
class Tried:
    """What a way does on the sample: mean absolute error, its share of a typical answer, and the cautious delta."""

    error: float
    share: float
    delta: float


@dataclass(frozen=True, eq=False)
class Sample:
    """The most exposed people of an audit of one number, and the target that ways are held against."""

    asked: Audit
    goal: Goal

    @staticmethod
    def of(audit: Audit, goal: Goal) -> Sample:
        """A sample; refused where the audit is of several numbers, or of none."""
        asked = audit.alone
        if asked.results.components is not None:
            raise InputError("`audit` must be of one number to be tried along a slider, got several together.")
        if not np.any(asked.results.outcomes == Outcome.NUMBER):
            raise InputError("`audit` must have an answer that is a number on at least one database, got none.")
        return Sample(asked, goal)

    @cached_property
    def present(self) -> bool:
        """Whether figures for a database that people are in count."""
        try:
            return self.goal.presence == "both" and self.asked.when_present is not None
        except InputError:
            return False

    @cached_property
    def people(self) -> IntArray:
        """Those who are looked at, by position."""
        chosen = [
            first_of(self.asked.delta_i(self.goal.epsilon), _ELSEWHERE),
            first_of(self._influence(self.asked.results), _ELSEWHERE),
        ]
        if self.present:
            chosen.append(first_of(self.asked.when_present.delta_i(self.goal.epsilon), _THERE))
        return np.unique(np.concatenate(chosen))

    @cached_property
    def looked_at(self) -> Audit:
        """The audit of these people alone."""
        return audited_alike(self.asked, self.asked.results.of_individuals(self.people))

    @cached_property
    def granularity(self) -> float:
        """What noisy answers are multiples of: an offer."""
        return offered_granularity(self.asked)

    def as_it_is(self) -> Tried:
        """The answer without anything done to it."""
        return self._tried(self.looked_at, 0.0)

    # Noise

    def noises(self) -> tuple[float, ...]:
        """Scales of noise to choose from: up to the classical one, or to the spread of the answers."""
        largest = float(np.nanmax(self._influence(self.asked.results), initial=0.0))
        most = max(largest / max(self.goal.epsilon, 1e-3), self.granularity)
        most = min(most, max(float(self._numbers.std()), largest))
        ladder = np.geomspace(max(most / 500, self.granularity / 4), most, _NOISES)
        return tuple(dict.fromkeys(map(two_digits, ladder.tolist())))

    def with_noise(self, scale: float) -> Tried:
        """Laplace noise of one scale, measured as a design measures it."""
        law = Law.of(self.granularity, [("laplace", 1.0, scale)])
        risk, delta = one_number(self.looked_at), self.goal.delta or 0.0
        error = law.expected_error
        if self.asked.times > 1:
            all_of_them = ComposedCertificate(risk, law, self.goal.epsilon, delta, self.asked.times)
            return Tried(error, self._share(error), all_of_them.achieved_delta())
        at = MARGIN * self.goal.epsilon
        deltas = [certify(risk, law, epsilon=at, delta=delta).achieved_delta(at)]
        if self.present:
            there = PresentCertificate(presence_of(risk), law, at, delta, None, HALF)
            deltas.append(there.achieved_delta(at))
        return Tried(error, self._share(error), max(deltas))

    # Rounding

    def roundings(self) -> tuple[float, ...]:
        """Steps to round to: 1, 2 and 5 times powers of ten, up to twice the spread of the answers."""
        spread = float(self._numbers.std())
        if not (math.isfinite(spread) and spread > 0):
            return ()
        steps = [round_step(2 * spread)]
        while len(steps) < _ROUNDINGS:
            steps.append(round_step(steps[-1] / 2.2))
        return tuple(reversed(dict.fromkeys(steps)))

    def with_rounding(self, to: float) -> Tried:
        """Answers rounded to multiples."""
        results = self.asked.results.of_individuals(self.people)
        published = rounded("sum(1)", to=to).on_answers(results, rng=0)
        return self._published(published)

    # Clipping

    def clippings(self, data: Databases, run: Run) -> ClippedAnswers:
        """What is published if a column is capped at several places, collected at once."""
        texts = [] if self.asked.text is None else queries_in(self.asked.text)
        if len(texts) != 1 or self.asked.component is not None:
            raise InputError("`query` must be one query in SQL to be clipped.")
        (query,) = texts
        values = value_quantiles(data, summed_columns(query)[:1], _LEVELS, run)
        if not values:
            raise InputError("`query` must add up a column of numbers of the rows to be clipped.")
        column, places = next(iter(values.items()))
        caps = tuple(dict.fromkeys(map(two_digits, places)))
        queries = [capped_text(query, column, at) for at in caps]
        collected = run_query(data, queries if len(queries) > 1 else queries[0], run)
        names = collected.components
        each = (collected,) if names is None else tuple(collected.component(name) for name in names)
        return ClippedAnswers(self, column, caps, each)

    # How a way is measured

    def _published(self, published: Results) -> Tried:
        """Results of the people looked at, published in another way."""
        return self._tried(audited_alike(self.asked, published), self._error(published))

    def _tried(self, audited: Audit, error: float) -> Tried:
        upper = figures_of(audited, _delta_of(self.goal), self.present, UNRESOLVED).upper
        return Tried(error, self._share(error), upper)

    def _error(self, published: Results) -> float:
        truth = self.asked.results
        both = (truth.outcomes == Outcome.NUMBER) & (published.outcomes == Outcome.NUMBER)
        away = np.abs(published.q[both] - truth.q[both])
        return float(away.mean()) if len(away) else math.nan

    @property
    def _numbers(self) -> Any:
        return self.asked.results.q[self.asked.results.outcomes == Outcome.NUMBER]

    def _share(self, error: float) -> float:
        typical = float(np.abs(self._numbers).mean())
        return error / typical if typical > 0 else math.nan

    @staticmethod
    def _influence(results: Results) -> Any:
        return np.nan_to_num(largest_influence(results), nan=0.0, posinf=0.0)


@dataclass(frozen=True, eq=False)
class ClippedAnswers:
    """What is published if ``column`` is capped at each of ``caps``."""

    sample: Sample
    column: str
    caps: tuple[float, ...]
    published: Sequence[Results]

    def tried(self, place: int) -> Tried:
        """One of them, on those who move this answer most and those who are looked at anyway."""
        sample, published = self.sample, self.published[place]
        asked = sample.asked.results
        if not np.array_equal(published.databases, asked.databases):
            raise InputError("The rows must be those that were audited, got others. Hint: run the audit again.")
        names = {name: row for row, name in enumerate(published.individuals.tolist())}
        known = [names[name] for name in asked.individuals[sample.people].tolist() if name in names]
        movers = first_of(sample._influence(published), _ELSEWHERE)
        rows = np.unique(np.concatenate((np.array(known, np.int64), movers)))
        return sample._published(published.of_individuals(rows))


def first_of(figures: FloatArray, count: int) -> IntArray:
    """Positions of the largest."""
    return np.argsort(-figures, kind="stable")[:count]


def _delta_of(goal: Goal) -> Goal:
    """The goal with a limit on delta, which `figures_of` divides by; the figure itself does not depend on it."""
    return goal if goal.delta else Goal(goal.epsilon, 1.0, None, goal.presence, goal.level)
