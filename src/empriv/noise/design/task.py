"""One design of noise: what is asked for, checked, and how a law found for it is certified.

Methods are in `design` and `least`; here is what they share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from empriv.base.arguments import one_of
from empriv.errors import InputError
from empriv.measuring import Risk
from empriv.noise import METHODS
from empriv.noise.certify.certificate import Certificate, certify
from empriv.noise.design.constraints import design_cell
from empriv.noise.law import Law, cells_moved, check_granularity, decimal_at_most, own_rounding
from empriv.noise.measured import holds_no_answers, one_number
from empriv.noise.noise import Noise, certified

WIDER = (1.0, 1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 2.0, 4.0)
"""Factors by which a scale that should hold by itself is widened until its certificate does, for rounding."""

_LEAST_SHARE = 1e-7  # of a part of a law

NONE = "No noise is needed: the law is the point mass at 0."


@dataclass(frozen=True, eq=False)
class Task:
    """What is asked, on which risk and which lattice.

    Attributes
    ----------
    risk : what was measured
    epsilon, delta, total_risk : the target; one of delta and total_risk may be None
    method : how the law is designed
    granularity, declared : of the lattice, and whether the user chose it
    bound : the user's bound on one individual's influence, or None
    study : whether a law that misses its target is returned all the same
    """

    risk: Risk
    epsilon: float
    delta: float | None
    total_risk: float | None
    method: str
    granularity: float
    declared: bool
    bound: float | None
    study: bool

    @staticmethod
    def of(
        risk: Any,
        *,
        epsilon: float,
        delta: float | None,
        total_risk: float | None,
        method: str,
        granularity: float | None,
        bound: float | None,
        study: bool,
    ) -> Task:
        """A task of a `Risk` or an `Audit`, checked."""
        risk = one_number(risk)
        if not (isinstance(epsilon, int | float | np.number) and math.isfinite(epsilon) and 0 < epsilon <= 50):
            raise InputError(f"`epsilon` must be positive and at most 50, got {epsilon}.")
        if delta is None and total_risk is None:
            delta = 0.0
        if delta is not None and not 0.0 <= delta < 1.0:
            raise InputError(f"`delta` must lie in [0, 1), got {delta}.")
        if total_risk is not None and not 0.0 < total_risk < 1.0:
            raise InputError(f"`total_risk` must lie between 0 and 1, got {total_risk}.")
        one_of("method", method, METHODS)
        if bound is not None:
            _check_bound(risk, bound)
        declared = granularity is not None
        chosen = check_granularity(granularity) if granularity is not None else design_cell(risk, None)
        largest_delta = None if delta is None else float(delta)
        return Task(risk, float(epsilon), largest_delta, total_risk, method, chosen, declared, bound, study)

    @property
    def largest(self) -> float:
        """The largest delta_i that anybody may have: nobody's exceeds the total."""
        return min(limit for limit in (self.delta, self.total_risk) if limit is not None)

    def certificate(self, law: Law) -> Certificate:
        """What the law achieves."""
        return certify(self.risk, law, epsilon=self.epsilon, delta=self.delta, total_risk=self.total_risk)

    def finish(self, law: Law, *notes: str) -> Noise:
        """The law as noise; its certificate must hold unless the design is for study."""
        return self._certified(law, notes, self.study)

    def tried(self, law: Law, *notes: str) -> Noise:
        """The same whether or not it holds: the certificate is computed once, and shows who misses."""
        noise = self._certified(law, notes, True)
        return replace(noise, study=self.study or not noise.certificate.holds)

    def _certified(self, law: Law, notes: Sequence[str], study: bool) -> Noise:
        return certified(
            self.risk,
            law,
            method=self.method,
            epsilon=self.epsilon,
            delta=self.delta,
            total_risk=self.total_risk,
            declared_bound=self.bound if self._unconditional(law) else None,
            declared_granularity=self.declared,
            notes=notes,
            study=study,
        )

    def law(self, parts: Sequence[tuple[float, float]]) -> Law:
        """A law of a point mass (scale 0) and Laplace laws on the granularity."""
        narrow = self.granularity * 2.0**-8  # narrower laws never leave 0, and join the point mass
        total: dict[float, float] = {}
        for weight, scale in parts:
            key = 0.0 if scale < narrow else scale
            total[key] = total.get(key, 0.0) + weight
        widest = max(total)
        # Mixing leaves shares so small that nobody would ever draw them: they go to the widest part.
        slight = [scale for scale, weight in total.items() if weight < _LEAST_SHARE and scale < widest]
        total[widest] += math.fsum(total.pop(scale) for scale in slight)
        return Law.of(
            self.granularity,
            [("laplace" if s > 0 else "point", w, s) for s, w in sorted(total.items()) if w > 0],
        )

    def bounded(self) -> Law:
        """Laplace noise of the declared bound over epsilon."""
        assert self.bound is not None
        return self.law([(1.0, self._bound_scale(self.bound))])

    def _bound_scale(self, bound: float) -> float:
        return self.granularity * float(cells_moved(bound, self.granularity)) / self.epsilon

    def _unconditional(self, law: Law) -> bool:
        """Whether any change of at most the bound keeps epsilon by this law alone: all scales are wide enough."""
        if self.bound is None:
            return False
        least = self._bound_scale(self.bound) * (1 - 1e-12)
        return all(part.kind == "laplace" and part.scale >= least for part in law.parts)


def _check_bound(risk: Risk, bound: float) -> None:
    if not (math.isfinite(bound) and bound > 0):
        raise InputError(f"`bound` must be positive and finite, got {bound}.")
    influence = risk.influence()
    if np.any(influence[np.isfinite(influence)] > bound):
        raise InputError(
            "`bound` must be at least every influence that was observed, got one that is smaller than somebody's. "
            "Hint: a bound comes from the query and the rows it may meet, such as a cap on amounts."
        )


def offered_granularity(risk: Any) -> float:
    """A granularity in people's own terms: far below the noise, and no finer than the answers are themselves.

    It is taken from the data, so it is an offer: whoever releases declares it.
    """
    one = one_number(risk)
    numbers = one.results.q[one.results.outcomes == 0]
    own = None if holds_no_answers(risk) else own_rounding(np.ravel(numbers))
    return max(decimal_at_most(design_cell(one, None)), own or 0.0)
