"""What noise achieves in a database that people are in, where `certificate` looks at a random one.

Each person has a pair of laws of their own: the others, and the others plus one of the influences that the person had
when they were there. Noise never makes a pair easier to tell apart, so that people who meet the target without noise
are not looked at, unless their sum counts; nor are those whom the noise alone protects enough (`noise_alone`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.measuring.contract import total_risk_of
from empriv.measuring.densities.density import Kde
from empriv.measuring.given.presence import PresenceRisk, WhenPresent
from empriv.measuring.line.risk import Risk
from empriv.noise.certify.certificate import Certificate
from empriv.noise.certify.screen import randomised_response
from empriv.noise.law import Law, cells_moved
from empriv.results import FloatArray, IntArray, Results

_SMALL = 0.1  # of the target: what grouping influences may change at most, or they are taken one by one


@dataclass(frozen=True, eq=False)
class PresentCertificate:
    """What a law of noise achieves in a database that people are in; computed when asked, and kept.

    Attributes
    ----------
    risk, law : what was certified
    epsilon, delta, total_risk : the target
    narrower : share of the bandwidth that is relied on
    """

    risk: PresenceRisk = field(repr=False)
    law: Law = field(repr=False)
    epsilon: float
    delta: float | None
    total_risk: float | None
    narrower: float = 1.0

    @cached_property
    def holds(self) -> bool:
        """Whether every individual's target is met, and that of total risk."""
        if next(self.missed(self.subject), None) is not None:
            return False
        if self.total_risk is None or _total(self._bounds(self.epsilon)) <= self.total_risk:
            return True
        return self.achieved_total_risk() <= self.total_risk

    @property
    def largest(self) -> float:
        """The largest delta_i that anybody may have: nobody's exceeds the total."""
        return min(limit for limit in (self.delta, self.total_risk) if limit is not None)

    @cached_property
    def subject(self) -> IntArray:
        """People who do not meet the target without noise, those who move the results most first."""
        shifts = self.risk.largest_shifts / self.narrower
        rows = np.flatnonzero((shifts > self.epsilon) & ~self._hidden(self.epsilon))  # others are proved to stay within
        if self.largest > 0 and self.narrower == 1.0 and len(rows):
            rows = rows[self.risk.delta_i(self.epsilon)[rows] > self.largest]
        return np.asarray(rows[np.argsort(-shifts[rows], kind="stable")])

    def missed(self, rows: IntArray) -> Iterator[int]:
        """Those of these people whose target is missed."""
        enough = self._hidden(self.epsilon)
        if self.largest > 0:
            enough = enough | (self.noise_alone(self.epsilon) <= self.largest)
        for row in rows[~enough[rows]].tolist():
            risk, thinned = self._alone(row)
            limit = self.largest - thinned
            # at delta = 0 the largest influence decides, which grouping keeps only where there is none of it
            if limit < 0 or not Certificate(risk, self.law, self.epsilon, limit, None).holds:
                yield row

    def _hidden(self, epsilon: float) -> npt.NDArray[np.bool_]:
        """People whom the noise alone keeps within e^epsilon, whatever the others do.

        A change of d moves the rounded answer by at most ceil(d/g) granularities g, and Laplace noise of scale s
        answers that with a ratio of at most exp(g ceil(d/g)/s).
        """
        left = self.risk.left
        if any(part.kind != "laplace" for part in self.law.parts) or (left is not None and left.logarithm):
            return np.zeros(self.risk.results.n_individuals, bool)
        influence = self.risk.largest_shifts * self.risk.bandwidth * (1 + 1e-12)
        scale = min(part.scale for part in self.law.parts) * (1 - 1e-12)
        moved = cells_moved(influence, self.law.granularity)
        return np.asarray(self.law.granularity * moved <= epsilon * scale)

    def noise_alone(self, epsilon: float) -> FloatArray:
        """Upper bound of each delta_i by the noise alone, whatever the others do; 1 where there is none.

        By joint convexity delta_i is at most the mean over a person's influences, and over the parts of the law, of
        what two answers so far apart reach under Laplace noise: see `screen`.
        """
        people, results = self.risk.results.n_individuals, self.risk.source
        left, laplace = self.risk.left, [part for part in self.law.shares() if part[1].kind == "laplace"]
        if not laplace or self.risk.context is not None or (left is not None and left.logarithm):
            return np.ones(people)
        with np.errstate(invalid="ignore"):
            change = np.abs(results.entry_q - results.q[results.entry_database]).reshape(-1)
        owner = np.repeat(np.arange(people), np.diff(results.starts) * (results.q.size // results.n_databases))
        owner, change = owner[change != 0], change[change != 0]  # away where they change nothing: `influences_of`
        moved = cells_moved(change * (1 + 1e-12), self.law.granularity) * self.law.granularity
        stick = np.full(len(change), 1.0 - sum(share for share, _ in laplace))
        for share, part in laplace:
            stick += share * randomised_response(moved / part.scale * (1 + 1e-12), epsilon)
        mean = np.bincount(owner, stick, people) / np.maximum(np.bincount(owner, minlength=people), 1)
        return np.where(np.isfinite(self.risk.largest_shifts), np.minimum(mean * (1 + 1e-12), 1.0), 1.0)

    def _bounds(self, epsilon: float) -> FloatArray:
        """Upper bounds of each delta_i: without noise, and by the noise alone."""
        hidden = self._hidden(epsilon)
        if hidden.all():
            return np.zeros(len(hidden))
        # what the data alone achieve is known at the whole bandwidth; where less is relied on, only who stays within
        narrow = np.where(self.risk.largest_shifts / self.narrower > epsilon, 1.0, 0.0)
        plain = self.risk.delta_i(epsilon) if self.narrower == 1.0 else narrow
        return np.where(hidden, 0.0, np.minimum(plain, self.noise_alone(epsilon)))

    def achieved_delta_i(self, epsilon: float | None = None) -> FloatArray:
        """Failure probability of each individual, of the noisy answer, by default at the target's epsilon."""
        epsilon = self.epsilon if epsilon is None else epsilon
        if epsilon not in self._known:
            out = self._bounds(epsilon)
            for row in np.flatnonzero(out > 0).tolist():
                out[row] = min(float(out[row]), self._delta_of(row, epsilon))
            self._known[epsilon] = out
        return self._known[epsilon].copy()

    @cached_property
    def _known(self) -> dict[float, FloatArray]:
        return {}

    def _delta_of(self, row: int, epsilon: float) -> float:
        risk, thinned = self._alone(row)
        return Certificate(risk, self.law, epsilon, 0.0, None).achieved_delta(epsilon) + thinned

    def achieved_total_risk(self, epsilon: float | None = None) -> float:
        """Chance that somebody's privacy fails, by default at the target's epsilon, if failures are independent."""
        return _total(self.achieved_delta_i(epsilon))

    def achieved_delta(self, epsilon: float | None = None) -> float:
        """Largest delta_i of the noisy answer, by default at the target's epsilon."""
        epsilon = self.epsilon if epsilon is None else epsilon
        bounds, best = self._bounds(epsilon), 0.0
        for row in np.argsort(-bounds, kind="stable").tolist():
            if bounds[row] <= best:
                break  # nobody else can be worse
            best = max(best, min(float(bounds[row]), self._delta_of(row, epsilon)))
        return best

    def _alone(self, row: int) -> tuple[Risk, float]:
        """One person's pair of laws as a risk, and what grouping their influences may change of delta."""
        person = self.risk.person(row)
        if isinstance(person, WhenPresent) and person.thinned > _SMALL * self.narrower**2 * self.largest:
            person = self.risk.person(row, exact=True)
        if not isinstance(person, WhenPresent):
            return person, 0.0
        return _written(person, self.risk.results.n_databases, self.narrower), person.thinned / self.narrower**2


def _total(delta_i: FloatArray) -> float:
    return float(total_risk_of(delta_i[:, None])[0])


def _written(person: WhenPresent, n: int, narrower: float) -> Risk:
    """The pair as a risk of one individual, the others' results taking the place of those with everyone."""
    pairs = person.pairs
    points, entries = pairs.points.reshape(n, -1), pairs.entries
    codes = np.zeros(points.shape, np.int8)
    results = Results(
        q=points, outcomes=codes, databases=np.arange(n), individuals=np.zeros(1, np.int64), starts=np.array([0, n]),
        entry_database=np.arange(n, dtype=np.int32), entry_q=entries, entry_outcomes=codes, draws=points.shape[1],
    )  # fmt: skip
    density = Kde("laplace", narrower * person.bandwidth).fit(pairs.points, np.repeat(np.arange(n), points.shape[1]))
    return Risk(results, density, pairs, np.array([person.shift / narrower]))
