"""`Noise`: a law of noise with what it was designed for, to study, to save and to release answers with.

A law comes from `design`; what it achieves is the judge's bound (`judging`), computed anew whenever it is asked for the
first time; drawing is in `drawing`. This module says what is promised, on what the promise rests, and what is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from typing import Any

from empriv.base.arguments import (
    finite_epsilon,
    finite_number,
    one_epsilon,
    one_of,
    positive_number,
    probability,
    unit_name,
    whole_number,
)
from empriv.base.storage import WRONG_FACTS, read_archive, write_archive
from empriv.base.targets import PRESENCES
from empriv.base.text import lines_html
from empriv.errors import CertificateError, FileFormatError, InputError
from empriv.measuring.densities.density import Density, Kde, density_from_json, density_to_json
from empriv.measuring.given.given_risk import GivenRisk, risk_from_parts, risk_to_parts
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.series import HowOften, Publications
from empriv.measuring.series.repeated import PublicationEffects, within
from empriv.noise import METHODS
from empriv.noise.drawing import release
from empriv.noise.judging import LEVEL, JudgedAnswer, by_noise_alone, subject_of
from empriv.noise.law import Law, decimal_at_most
from empriv.noise.publications import effects_with_noise
from empriv.results import FloatArray, Results
from empriv.validate.bounds import bounds
from empriv.validate.checks import outlasting_noise
from empriv.validate.covers import cover
from empriv.words.sentences import amount

_ANOTHER_AUDIT = (
    "Noise must keep its promise for the audit at hand, and this one does not: it was designed for other answers, or "
    "was altered. Nothing is released."
)
_DAMAGED = "The file is damaged: its facts about the noise are not what empriv writes."


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise that makes a query private enough, and what it achieves.

    Made by `empriv.design_noise`, and by `empriv.load` from a file.

    Attributes
    ----------
    law : what is drawn
    judged : the answer that the noise is for, as the judge sees it
    method : how the law was designed
    epsilon, delta : the target
    declared_bound : the user's bound on what one individual may do to an answer, or None
    declared_granularity : whether the user chose the granularity; only then may answers be released
    times : publications, each from a database of its own, that together keep the target
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
    judged: JudgedAnswer = field(repr=False)
    method: str
    epsilon: float
    delta: float
    declared_bound: float | None = None
    declared_granularity: bool = False
    times: int = 1
    unit: str = ""

    def __repr__(self) -> str:
        return f"Noise({self.method}, {self._target}, ±{amount(self.expected_error, self.unit)})"

    def _repr_html_(self) -> str:
        cost = f"Expected error: ±{amount(self.expected_error, self.unit)}."
        return lines_html(f"Noise for {self._target} ({self.method})", (self.law.words, cost, *self.notes))

    @property
    def _target(self) -> str:
        often = "" if self.times == 1 else f", {self.times:,} publications"
        return f"epsilon {self.epsilon:g}, delta {self.delta:g}{often}"

    # The noise as the judge takes it

    @property
    def kernel(self) -> str:
        """ "laplace" or "gaussian": the kind of the law's narrowest part, which counts for all of it."""
        kind = self.law.parts[0].kind
        return kind if kind == "gaussian" else "laplace"

    @property
    def scale(self) -> float:
        """Of the law's narrowest part; 0 for none."""
        return self.law.parts[0].scale

    @property
    def step(self) -> float:
        """What answers and noise are multiples of."""
        return self.law.granularity

    @property
    def bound(self) -> float | None:
        """The most that a person may move the answer for the promise to hold; None allows for twice as much as each
        person was seen to."""
        return self.judged.reach

    @property
    def risk(self) -> Risk:
        """What was measured, and what the noise is for."""
        return self.judged.risk

    @property
    def given(self) -> bool:
        """Whether the risk's results are the residuals of the answers given what is known, and hold no answers."""
        return isinstance(self.risk, GivenRisk)

    @property
    def presence(self) -> str:
        """Where the target is met: "both" in a random database and on the day that people are in, or "random"."""
        return self.judged.presence

    # What it achieves

    def achieved_delta(self, epsilon: float | None = None) -> float:
        """Upper bound of the largest delta_i of the noisy answer, by default at the target's epsilon; 95% confidence.

        In a random database, and on the day that the person is in if ``presence`` asks for it; of several publications,
        of all together. It is a bound and no estimate: the truth is mostly less.
        """
        at = self.epsilon if epsilon is None else one_epsilon(epsilon)
        return self._of_one(at) if self.times == 1 else self.publications(at).upper_delta(self.times)

    def _of_one(self, at: float) -> float:
        """The same of one publication."""
        if at not in self._known:
            self._known[at] = self.judged.upper(self.law, at)
        return self._known[at]

    def achieved_delta_i(self, epsilon: float | None = None) -> FloatArray:
        """The same for each individual in a random database, of one publication."""
        return self.judged.upper_i(self.law, self.epsilon if epsilon is None else one_epsilon(epsilon))

    @cached_property
    def _known(self) -> dict[float, float]:
        return {}

    @cached_property
    def holds(self) -> bool:
        """Whether the bound meets the target: of one publication, and of all if there are several."""
        if not self.judged.meets_with(self.law, self.epsilon, self.delta):
            return False
        return self.times == 1 or self.composes(self.times, self.epsilon, self.delta)

    def composes(self, times: int, epsilon: float, delta: float) -> bool:
        """Whether so many publications, two or more, add up to a delta within the target."""
        return within(self._effects(epsilon).upper(LEVEL).delta(times, epsilon), delta)

    @cached_property
    def cover(self) -> float:
        """The largest move of the answer that the noisy answer hides on the day that a person makes it."""
        return cover(self.risk, self.epsilon, self.delta, noise=self)

    @property
    def unconditional(self) -> bool:
        """Whether the noise alone keeps the promise for all that a person may do within the declared bound."""
        if self.declared_bound is None or self.times > 1:
            return False
        return float(by_noise_alone(self.law, self.declared_bound, self.epsilon)) <= self.delta

    def publications(self, epsilon: float | None = None) -> Publications:
        """delta of any number of publications with this noise, each from a database of its own (docs/again.md).

        ``upper_delta(times)`` of it is the upper figure at 95% confidence, ``estimated_delta(times)`` the estimate.
        """
        at = self.epsilon if epsilon is None else finite_epsilon(epsilon)
        effects, upper = self._effects(at), self._of_one(at)
        estimate = min(upper, effects.estimate.delta(1, at))
        return Publications(at, LEVEL, estimate, upper, effects.estimate, effects.upper(LEVEL))

    def _effects(self, epsilon: float) -> PublicationEffects:
        if epsilon not in self._effects_by_epsilon:
            self._effects_by_epsilon[epsilon] = effects_with_noise(self.risk, self.law, epsilon)
        return self._effects_by_epsilon[epsilon]

    @cached_property
    def _effects_by_epsilon(self) -> dict[float, PublicationEffects]:
        return {}

    def how_often(self, *, epsilon: float | None = None, delta: float | None = None) -> HowOften:
        """How often answers with this noise may be published, by default within the noise's own target."""
        return self.publications(epsilon).how_often(self.delta if delta is None else probability("delta", delta))

    # The law

    @property
    def expected_error(self) -> float:
        """Expected absolute noise."""
        return self.law.expected_error

    # Releasing

    def release(self, value: float) -> float:
        """A noisy answer, from the operating system's entropy; every call spends privacy anew.

        What is promised holds for the results that the noise was judged on. Of noise that was loaded these are the
        file's own, so that it promises nothing of other data: `Audit.release` judges it anew for the audit at hand.
        """
        self.check_release()
        return release(self.law, value)

    def certified_for(self, risk: Any) -> Noise:
        """The same noise, judged anew for this risk; nothing that it says of itself is taken on trust."""
        again = replace(self, judged=JudgedAnswer.of(subject_of(risk), self.presence, self.bound))
        if not again.holds:
            raise CertificateError(_ANOTHER_AUDIT)
        return again

    @property
    def claim(self) -> str:
        """What the noise claims, as one text: law, target and method."""
        return json.dumps(self._facts(), sort_keys=True)

    @cached_property
    def _lasting(self) -> tuple[str, ...]:
        """What no noise mends. Given what is known, the audit was asked when the noise was designed for it."""
        return () if self.given else outlasting_noise(self.risk, self.epsilon)

    def check_release(self) -> None:
        """Refuse to release where the promise is not kept, or the granularity was not declared."""
        if not self.holds:
            raise CertificateError(
                "Noise must keep its promise to be released, and this one is for study: its upper bound on delta is "
                f"{self.achieved_delta():.2g}, above the target of {self.delta:g}."
            )
        if not self.declared_granularity:
            raise CertificateError(
                "Noise must have a granularity that you declare, since one taken from the data would reveal something "
                f"about them. Hint: design it with a granularity of {decimal_at_most(self.law.granularity):.12g}."
            )
        if self._lasting:
            raise CertificateError(f"It cannot be told whether the noisy answer is private enough. {self._lasting[0]}")

    @property
    def notes(self) -> tuple[str, ...]:
        """What is promised, and on what it rests, in sentences."""
        said = []
        if not self.holds:
            said.append(
                f"The upper bound on delta is {self.achieved_delta():.2g}, above the target: nothing can be released. "
                "By the paper's definition the estimate keeps it."
            )
        if self.unconditional:
            return (
                *said,
                "The promise rests on your bound alone: no individual moves an answer by more than "
                f"{self.declared_bound:g}. Where that is true it holds whatever the data are.",
            )
        if self.law.only_point:
            assumed = tuple(bounds(self.risk, self.epsilon).notes) if self.judged.largest > 0 else ()
            return (*said, "The answer is published as it is, rounded.", *assumed)
        where = "in a random database" + (" and on the day that people are in" if self.presence == "both" else "")
        said.append(
            f"The promise is an upper bound at 95% confidence, {where}. Nothing is assumed of the law of the answers "
            "but that the next database is like those seen."
        )
        if self.times > 1:
            said.append(
                f"It is for {self.times:,} publications, each from a database of its own, for people who are in all of "
                "these databases or in none and do on them what they were seen to do."
            )
        reach = self.bound
        if reach is not None and self.declared_bound is None:
            said.append(
                f"It is for people who move the answer by up to {amount(reach, self.unit)}, the most that was seen. "
                "Hint: a declared bound, or a capped query, makes that certain."
            )
        return tuple(said)

    # Files

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers or results."""
        return {
            "format": "empriv noise",
            "version": 1,
            "empriv": version("empriv"),
            **self._facts(),
            "kernel": self.kernel,
            "scale": self.scale,
            "words": self.law.words,
            "expected_error": self.expected_error,
            "unit": self.unit,
            "achieved_delta": self.achieved_delta(),
            "holds": self.holds,
            "unconditional": self.unconditional,
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
        # given what is known, the noise is judged again by the answers and by what is known of them
        held = self.risk.whole if isinstance(self.risk, GivenRisk) else self.risk.results
        known, columns = risk_to_parts(self.risk) if isinstance(self.risk, GivenRisk) else (None, {})
        meta, arrays = held.to_parts()
        facts = {"empriv": version("empriv"), "density": spec, "unit": self.unit, "known": known, **self._facts()}
        write_archive(path, kind="noise", meta={**meta, **facts}, arrays={**arrays, **columns})

    @staticmethod
    def load(path: str | PathLike[str]) -> Noise:
        """Read what `save` wrote; what it achieves is computed anew, nothing is taken on trust."""
        meta, arrays = read_archive(path, kinds=("noise",))
        results = Results.from_parts(meta, arrays)
        try:
            density, law = density_from_json(meta["density"]), Law.from_json(meta["law"])
            epsilon = finite_epsilon(finite_number("epsilon", meta["epsilon"]))
            delta = probability("delta", finite_number("delta", meta["delta"]))
            method = one_of("method", meta["method"], METHODS)
            presence = one_of("presence", meta["presence"], PRESENCES)
            reach, bound = (
                None if meta[name] is None else positive_number(name, meta[name])
                for name in ("reach", "declared_bound")
            )
            times, unit = whole_number("times", meta["times"], least=1), unit_name(meta["unit"])
            declared, known = meta["declared_granularity"], meta["known"]
            risk = measure_line(results, density) if known is None else risk_from_parts(known, arrays, results, density)
            if not isinstance(declared, bool) or meta["given"] is not (known is not None):
                raise TypeError("facts")
        except WRONG_FACTS as error:
            raise FileFormatError(_DAMAGED) from error
        noise = Noise(
            law=law, judged=JudgedAnswer.of(subject_of(risk), presence, reach), method=method, epsilon=epsilon,
            delta=delta, declared_bound=bound, declared_granularity=declared, times=times, unit=unit,
        )  # fmt: skip
        if method != "paper" and not noise.holds:  # the paper's keeps its promise by the estimate, and is for study
            raise CertificateError("Noise must keep its promise, and that in the file does not: it was altered.")
        return noise

    def _facts(self) -> dict[str, Any]:
        return {
            "law": self.law.to_json(),
            "method": self.method,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "presence": self.presence,
            "reach": self.bound,
            "declared_bound": self.declared_bound,
            "declared_granularity": self.declared_granularity,
            "times": self.times,
            "given": self.given,
        }
