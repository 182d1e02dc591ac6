"""`Noise`: a law of noise with its certificate and its promise, to study, to save and to release answers with.

A law comes from `design`, its certificate from `certify`; drawing is in `drawing`. This module says what is promised,
on what the promise rests, and what is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import finite_epsilon, probability, unit_name, whole_number
from empriv.base.display import lines_html
from empriv.base.storage import WRONG_FACTS, read_archive, write_archive
from empriv.errors import CertificateError, FileFormatError, InputError
from empriv.measuring.densities.density import Density, Kde
from empriv.measuring.densities.specs import density_from_json, density_to_json
from empriv.measuring.given.presence import presence_of
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.measures import measure
from empriv.measuring.series import HowOften, largest
from empriv.noise.certify.certificate import Certificate, certify
from empriv.noise.certify.composed import ComposedCertificate
from empriv.noise.certify.there import PresentCertificate
from empriv.noise.drawing import release
from empriv.noise.drawn import with_noise
from empriv.noise.law import Law, decimal_at_most
from empriv.noise.measured import one_number
from empriv.results import FloatArray, Results
from empriv.validate.checks.robustness import subset
from empriv.words.sentences import amount

TUNED = ("optimal", "calibrated", "paper")
"""Methods whose laws are tuned to the estimate."""

_ANOTHER_AUDIT = (
    "Noise must keep its promise for the audit at hand, and this one does not: it was designed for another "
    "density, or was altered. Nothing is released."
)
_DAMAGED = "The file is damaged: its facts about the noise are not what empriv writes."


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise that makes a query private enough, and the proof.

    Made by `empriv.design_noise`, and by `empriv.load` from a file.

    Attributes
    ----------
    law : what is drawn
    certificate : what it achieves, computed from the law alone
    risk : what was measured, and what the noise is for
    method : how the law was designed
    epsilon, delta, total_risk : the target
    declared_bound : the user's bound on one individual's influence, on which the promise rests, or None
    declared_granularity : whether the user chose the granularity; only then may answers be released
    notes : what the promise rests on, in sentences
    study : whether the law may miss its target, and is for study only
    times : publications, each from a database of its own, that together keep the target
    composed : what the law achieves over all of them, if there are several
    present : what it achieves in a database that people are in; None if it was designed for a random one alone
    given : whether the risk's results are what is left of the answers given what is known, and hold no answers
    unit : of the answers

    Examples
    --------
    Releasing needs the extra ``release``.

    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> noise = empriv.design_noise(risk, epsilon=0.1, delta=0.05, granularity=0.25)
    >>> noise.release(100.0) % 0.25
    0.0
    """

    law: Law
    certificate: Certificate = field(repr=False)
    risk: Risk = field(repr=False)
    method: str
    epsilon: float
    delta: float | None
    total_risk: float | None = None
    declared_bound: float | None = None
    declared_granularity: bool = False
    notes: tuple[str, ...] = ()
    study: bool = False
    times: int = 1
    composed: ComposedCertificate | None = field(default=None, repr=False)

    def after(self, times: int, *, epsilon: float | None = None, delta: float | None = None) -> ComposedCertificate:
        """What the noise achieves over so many publications, each from a database of its own (docs/series.md).

        ``achieved_delta()`` of it is the upper figure at 95% confidence, ``estimated_delta()`` the estimate.
        """
        target = (self.delta or 0.0) if delta is None else probability("delta", delta)
        at = self.epsilon if epsilon is None else finite_epsilon(epsilon)
        return ComposedCertificate(self.risk, self.law, at, target, whole_number("times", times, least=1))

    def how_often(self, *, epsilon: float | None = None, delta: float | None = None) -> HowOften:
        """How often answers with this noise may be published, by default within the noise's own target."""
        once = self.after(1, epsilon=epsilon, delta=delta)
        return HowOften(
            once.epsilon,
            once.delta,
            0.95,
            largest(lambda times: once.of(times).achieved_delta() <= once.delta),
            largest(lambda times: once.of(times).estimated_delta() <= once.delta),
        )

    present: PresentCertificate | None = field(default=None, repr=False)
    given: bool = False
    unit: str = ""

    def __repr__(self) -> str:
        return f"Noise({self.method}, {self._target}, ±{amount(self.expected_error, self.unit)})"

    def _repr_html_(self) -> str:
        cost = f"Expected error: ±{amount(self.expected_error, self.unit)}."
        return lines_html(f"Noise for {self._target} ({self.method})", (self.law.words, cost, *self.notes))

    @property
    def _target(self) -> str:
        limits = (("delta", self.delta), ("total risk", self.total_risk))
        often = "" if self.times == 1 else f", {self.times:,} publications"
        return f"epsilon {self.epsilon:g}{''.join(f', {name} {x:g}' for name, x in limits if x is not None)}{often}"

    @property
    def achieved_epsilon(self) -> float:
        """Smallest epsilon at which every delta_i of the noisy answer is at most the target's delta."""
        return self.certificate.achieved_epsilon()

    @property
    def achieved_epsilon_i(self) -> FloatArray:
        """The same for each individual."""
        return self.certificate.achieved_epsilon_i()

    @property
    def achieved_total_risk(self) -> float:
        """Chance that somebody's privacy fails at the target's epsilon, if failures are independent."""
        return self.certificate.achieved_total_risk(self.epsilon)

    def achieved_delta(self, epsilon: float | None = None) -> float:
        """Largest delta_i of the noisy answer, by default at the target's epsilon."""
        return self.certificate.achieved_delta(self.epsilon if epsilon is None else epsilon)

    def achieved_delta_i(self, epsilon: float | None = None) -> FloatArray:
        """delta_i of the noisy answer, by default at the target's epsilon."""
        return self.certificate.achieved_delta_i(self.epsilon if epsilon is None else epsilon)

    @property
    def granularity(self) -> float:
        """What answers and noise are multiples of."""
        return self.law.granularity

    @property
    def expected_error(self) -> float:
        """Expected absolute noise."""
        return self.law.expected_error

    def quantile(self, p: float) -> float:
        """The least noise that is not exceeded with probability ``p``."""
        return self.law.quantile(p)

    def pdf(self, x: npt.ArrayLike) -> FloatArray:
        """Probability of the multiple nearest to x over the granularity: the law drawn as a step function."""
        return np.asarray(self.law.pmf(self._cells(np.rint, x)) / self.law.granularity)

    def cdf(self, x: npt.ArrayLike) -> FloatArray:
        """Probability of noise of at most x: a step function, which rises at multiples of the granularity."""
        return self.law.cdf(self._cells(np.floor, x))

    def _cells(self, rounding: Any, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        places = np.asarray(x, float) / self.law.granularity
        if np.isnan(places).any():
            raise InputError("`x` must be numbers, got NaN.")
        return np.asarray(rounding(np.clip(places, -(2.0**62), 2.0**62)), np.int64)

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator | int | None = None) -> FloatArray:
        """Pseudo-random draws of the noise: for study, never for a release."""
        return self.law.sample(size, rng)

    def release(self, value: float) -> float:
        """A noisy answer, from the operating system's entropy; every call spends privacy anew.

        What is promised holds for the results that the noise was certified for. Of noise that was loaded these are the
        file's own, so that it promises nothing of other data: `Audit.release` certifies it anew for the audit at hand.
        """
        self.check_release()
        return release(self.law, value)

    def certified_for(self, risk: Any) -> Noise:
        """The same noise, certified anew for this risk; nothing that it says of itself is taken on trust."""
        certificate = certify(
            one_number(risk), self.law, epsilon=self.epsilon, delta=self.delta, total_risk=self.total_risk
        )
        if not certificate.holds:
            raise CertificateError(_ANOTHER_AUDIT)
        composed = None if self.composed is None else replace(self.composed, risk=certificate.risk, rows=None)
        present = None if self.present is None else self._present_for(certificate.risk)
        if (composed is not None and not composed.holds) or (present is not None and not present.holds):
            raise CertificateError(_ANOTHER_AUDIT)
        return replace(self, risk=certificate.risk, certificate=certificate, composed=composed, present=present)

    def _present_for(self, risk: Risk) -> PresentCertificate:
        return PresentCertificate(presence_of(risk), self.law, self.epsilon, self.delta, self.total_risk)

    @property
    def claim(self) -> str:
        """What the noise claims, as one text: law, target and method."""
        return json.dumps(self._facts(), sort_keys=True)

    def check_release(self) -> None:
        """Refuse to release where the promise was not kept, or the granularity not declared."""
        proof = self.certificate
        target = (self.epsilon, self.delta, self.total_risk)
        # What was certified may be sharper than what was measured: the same results and density all the same.
        same = proof.risk.results is self.risk.results and proof.risk.density is self.risk.density
        if proof.law != self.law or not same:
            raise CertificateError("Noise must have a certificate of its own law and results, got that of others.")
        if (proof.epsilon, proof.delta, proof.total_risk) != target:
            raise CertificateError("Noise must have a certificate of its own target, got that of another.")
        composed, present = self.composed, self.present
        whole = self.times == 1 or (composed is not None and composed.times == self.times and composed.law == self.law)
        if not whole:
            raise CertificateError("Noise must have a certificate of its own publications, got that of others.")
        if present is not None and (present.law != self.law or not present.holds):
            raise CertificateError(
                "Noise must keep its promise in a database that people are in, and this one does not."
            )
        if self.study or not self.certificate.holds or (composed is not None and not composed.holds):
            raise CertificateError(
                "Noise must keep its promise to be released, and this one is for study: its certificate misses "
                "the target, or was allowed to."
            )
        if not self.declared_granularity:
            raise CertificateError(
                "Noise must have a granularity that you declare, since one taken from the data would reveal something "
                f"about them. Hint: design it with a granularity of {decimal_at_most(self.law.granularity):.12g}."
            )

    def remeasure(
        self,
        *,
        draws: int = 64,
        rng: np.random.Generator | int | None = None,
        density: Density | None = None,
        most: int | None = None,
    ) -> Risk:
        """The risk of noisy answers, measured anew from draws of rounded results with noise.

        ``most`` keeps so many individuals, the riskiest under noise.
        """
        for name, number in (("draws", draws), ("most", most)):
            if number is not None:
                whole_number(name, number, least=1)
        results = self.risk.results
        if most is not None and most < results.n_individuals:
            results = subset(results, self.certificate.riskiest(most))
        drawn = with_noise(results, self.law, draws=draws, rng=np.random.default_rng(rng))
        risk = measure(drawn, density=density)
        assert isinstance(risk, Risk)
        return risk

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers or results."""
        achieved = self.achieved_epsilon
        return {
            "format": "empriv noise",
            "version": 1,
            "empriv": version("empriv"),
            **self._facts(),
            "words": self.law.words,
            "expected_error": self.expected_error,
            "unit": self.unit,
            "achieved_epsilon": achieved if math.isfinite(achieved) else None,
            "achieved_delta": self.achieved_delta(),
            "achieved_delta_when_present": None if self.present is None else self.present.achieved_delta(),
            "holds": self.certificate.holds and (self.composed is None or self.composed.holds),
            "achieved_delta_of_all": None if self.composed is None else self.composed.achieved_delta(),
            "notes": list(self.notes),
        }

    def save(self, path: str | PathLike[str], *, density: Density | None = None) -> None:
        """Write to one file of mode 0600, which `load` reads. It holds the results: it is as secret as they are.

        ``density`` is the recipe that the risk was measured with, by default that of `measure`.
        """
        recipe = Kde() if density is None else density
        model = measure_line(self.risk.results, recipe).density
        if (None if model is None else model.name) != (None if self.risk.density is None else self.risk.density.name):
            raise InputError(
                "`density` must be the recipe that the risk was measured with. Hint: save(path, density=...)."
            )
        spec = density_to_json(recipe)
        if spec is None:
            raise InputError("`density` must be one of empriv's own to be saved: a file does not hold code.")
        meta, arrays = self.risk.results.to_parts()
        facts = {
            "empriv": version("empriv"),
            "density": spec,
            "notes": list(self.notes),
            "unit": self.unit,
            **self._facts(),
        }
        write_archive(path, kind="noise", meta={**meta, **facts}, arrays=arrays)

    @staticmethod
    def load(path: str | PathLike[str]) -> Noise:
        """Read what `save` wrote; the certificate is computed anew, nothing is taken on trust."""
        meta, arrays = read_archive(path, kinds=("noise",))
        results = Results.from_parts(meta, arrays)
        try:
            density = density_from_json(meta["density"])
            law = Law.from_json(meta["law"])
            target = {name: _number_or_none(meta[name]) for name in ("epsilon", "delta", "total_risk")}
            notes, method = tuple(map(_text, meta["notes"])), _text(meta["method"])
            flags = [meta["declared_granularity"], meta["study"], meta.get("given", False)]
            both = meta.get("presence", "random") == "both"
            bound = _number_or_none(meta["declared_bound"])
            times = whole_number("times", meta.get("times", 1), least=1)
            unit = unit_name(meta.get("unit", ""))
            if target["epsilon"] is None or not all(isinstance(flag, bool) for flag in flags):
                raise TypeError("facts")
            risk = measure_line(results, density)
            certificate = certify(
                risk, law, epsilon=target["epsilon"], delta=target["delta"], total_risk=target["total_risk"]
            )
        except WRONG_FACTS as error:
            raise FileFormatError(_DAMAGED) from error
        noise = Noise(
            law=law,
            certificate=certificate,
            risk=risk,
            method=method,
            epsilon=target["epsilon"],
            delta=target["delta"],
            total_risk=target["total_risk"],
            declared_bound=bound,
            declared_granularity=flags[0],
            notes=notes,
            study=flags[1],
            given=flags[2],
            times=times,
            unit=unit,
            composed=None
            if times == 1
            else ComposedCertificate(risk, law, target["epsilon"], target["delta"] or 0.0, times),
        )
        if both:  # asked when it is released: it takes longer than the rest
            noise = replace(noise, present=noise._present_for(risk))
        kept = certificate.holds and (noise.composed is None or noise.composed.holds)
        if not noise.study and not kept:
            raise CertificateError("Noise must keep its promise, and that in the file does not: it was altered.")
        return noise

    def _facts(self) -> dict[str, Any]:
        return {
            "law": self.law.to_json(),
            "method": self.method,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "total_risk": self.total_risk,
            "declared_bound": self.declared_bound,
            "declared_granularity": self.declared_granularity,
            "study": self.study,
            "times": self.times,
            "presence": "random" if self.present is None else "both",
            "given": self.given,
        }


def certified(
    risk: Risk,
    law: Law,
    *,
    method: str,
    epsilon: float,
    delta: float | None,
    total_risk: float | None = None,
    declared_bound: float | None = None,
    declared_granularity: bool = False,
    notes: Sequence[str] = (),
    study: bool = False,
) -> Noise:
    """A law with its certificate; one that misses its target is refused, unless it is for ``study``."""
    certificate = certify(risk, law, epsilon=epsilon, delta=delta, total_risk=total_risk)
    if not study and not certificate.holds:
        raise CertificateError(
            f"Noise must keep its promise, and that of method {method!r} does not at epsilon {epsilon:g}. "
            "Hint: study=True gives it all the same, for study: it cannot be released."
        )
    promise = _promise(risk, method, delta, declared_bound)
    if study and not certificate.holds:
        promise = ("The certificate misses the target: nothing can be released.", *promise)
    return Noise(
        law=law,
        certificate=certificate,
        risk=risk,
        method=method,
        epsilon=float(epsilon),
        delta=delta,
        total_risk=total_risk,
        declared_bound=declared_bound,
        declared_granularity=declared_granularity,
        notes=(*notes, *promise),
        study=study,
    )


def _promise(risk: Risk, method: str, delta: float | None, declared_bound: float | None) -> tuple[str, ...]:
    """On what the promise rests."""
    if declared_bound is not None:
        return (
            f"The promise rests on your bound alone: no individual moves an answer by more than {declared_bound:g}. "
            "Where that is true it holds unconditionally.",
        )
    sentences = []
    n = risk.results.n_databases
    unseen = -math.expm1(math.log(0.05) / n)  # 1 - .05^(1/n)
    if delta is not None and delta < unseen:
        sentences.append(
            f"The promise assumes no unseen influence: {n:,} databases cannot show what happens with a probability "
            f"below {unseen:.2g}."
        )
    if delta == 0.0:
        sentences.append(
            "At delta = 0 the promise is not unconditional: it holds for the influences seen and the density "
            "estimated. Hint: a declared bound on one individual's influence makes it so."
        )
    if method in TUNED:
        sentences.append("For study: tuned to the estimate, it misses the true target more often than a robust design.")
    return tuple(sentences)


def _number_or_none(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text")
    return value
