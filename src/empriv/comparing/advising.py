"""`advise`: tries ways to publish an answer on the databases of an audit, and ranks those that meet a target.

A way passes only by the whole verdict: everybody, in a random database and in one that people are in. Most ways miss,
and that is found out on the people who move the answers most: their figures are part of everybody's, so that a miss
among them is a miss.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.audit import Audit
from empriv.auditing.deciding import cover_with, reasons_against
from empriv.auditing.knowledge import infer_public_knowledge, known_from_parts, known_to_parts
from empriv.auditing.make_audit import audit as audit_results
from empriv.base.progress import Advance
from empriv.base.progress import progress as progress_bar
from empriv.collecting.queries import queries_in
from empriv.collecting.run_options import Run
from empriv.comparing.capping import can_be_capped, largest_cap
from empriv.comparing.goals import Goal, WayFigures, figures_of
from empriv.comparing.ways import Action, Advice, ranked
from empriv.comparing.ways_on_rows import RowWay, ways_on_rows
from empriv.errors import CertificateError, InputError, QueryError
from empriv.measuring import GivenRisk
from empriv.measuring.contract import largest_influence
from empriv.measuring.given.given_risk import measure_given
from empriv.noise.design.design import noise_for_one, offered_granularity
from empriv.noise.noise import Noise
from empriv.protocols.places import capped_people_text
from empriv.protocols.ready import rounded
from empriv.results import FloatArray, Outcome, Results
from empriv.validate.verdict import PASS, UNRESOLVED, Verdict
from empriv.words import what_to_do as words

if TYPE_CHECKING:
    from empriv.collecting import Databases, Engine

_LOOKED_AT = 24  # people whose figures decide first whether a way misses
_BASES = (0.1, 0.5, 2.0)  # of rounding, in standard deviations of the answers
_DRAWS = 64  # of noise for each database, from which an error is found
_LADDER = (1.0, 2.0, 5.0, 10.0)


def advise(
    audit: Audit,
    data: Databases | None = None,
    *,
    epsilon: float,
    delta: float | None = None,
    total_risk: float | None = None,
    presence: str = "both",
    level: float | None = None,
    granularity: float | None = None,
    noise: Noise | None = None,
    rounding: bool = True,
    saved: str = "audit.empriv",
    config: str = "advice.toml",
    rng: int = 0,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    timeout: float | None = None,
    progress: bool | None = None,
) -> Advice:
    """What to do about an answer: try ways to publish it, and rank those that meet a target by their error.

    Parameters
    ----------
    audit : of a query that gives one number
    data : the databases that were audited. Clipping, a minimum count and coarser databases need their rows; without
        them these are left out, and it is said
    epsilon, delta, total_risk, presence, level : the target, as for `Audit.verdict`
    granularity : what noisy answers are multiples of; default: one that the answers suggest
    noise : designed for this audit and this target before, to be taken instead of designing it again
    rounding : try rounding too, of which each of three steps takes as long as an audit
    saved, config : files that the commands of the rows name: the saved audit, and the audit.toml of a row
    rng : seed of resamples and draws
    engine, memory_limit, timeout : as for `collect`
    progress : show a progress bar; None shows it if the work takes long

    Returns
    -------
    Advice

    Examples
    --------
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 200)
    >>> audit = empriv.audit(empriv.Results.from_arrays(q, [q - 5.0]))
    >>> advice = empriv.advise(audit, epsilon=0.1, delta=0.05)
    >>> advice.best.code
    'noise'
    """
    goal = Goal.of(epsilon=epsilon, delta=delta, total_risk=total_risk, presence=presence, level=level)
    asked = audit.alone
    if asked.results.components is not None:
        raise InputError(
            "`audit` must be of one number, got several together. Hint: audit.components holds each; `empriv noise` is "
            "for all together."
        )
    numbers = asked.results.q[asked.results.outcomes == Outcome.NUMBER]
    if not len(numbers):
        raise InputError("`audit` must have an answer that is a number on at least one database, got none.")
    typical = float(np.abs(numbers).mean())
    bases = rounding_bases(numbers) if rounding else ()
    run = Run(rng=rng, engine=engine, memory_limit=memory_limit, timeout=timeout, progress=False)
    on_rows: list[RowWay] = []
    if data is not None:
        on_rows = ways_on_rows(asked, data, run)
    steps = 3 + len(bases) + len(on_rows)
    with progress_bar(steps, "Trying ways to publish", show=progress) as advance:
        before = asked.verdict(**goal.asked, presence=presence, level=level)
        as_it_is = _as_it_is(asked, goal, before, saved)
        advance()
        trial = _Trial(asked, goal, before, typical, saved, config, rng)
        capped = trial.capped()
        noisy, left_out = trial.noise(granularity, noise)
        advance()
        classical = trial.classical(granularity)
        advance()
        actions = [as_it_is, *capped, *noisy, *trial.waiting(as_it_is)]
        if not as_it_is.meets:
            actions += [_no_more_told(action, as_it_is) for action in _tried(bases, trial.rounding, advance)]
            left_out = left_out if data is not None else (*left_out, words.no_rows())
            for way in on_rows:
                try:
                    actions += trial.on_rows(way, run)
                except (InputError, QueryError) as error:
                    left_out = (*left_out, words.refused(words.title(way.code, way.parameters), str(error)))
                advance()
    influence = largest_influence(asked.results)
    return Advice(
        options=ranked(actions, typical),
        classical=classical,
        epsilon=goal.epsilon,
        delta=delta,
        total_risk=total_risk,
        presence=presence,
        level=before.level,
        typical=typical,
        largest=float(influence[np.isfinite(influence)].max(initial=0.0)),
        n_databases=asked.n_databases,
        unit=asked.unit,
        left_out=left_out,
        rng=rng,
    )


def rounding_bases(numbers: FloatArray) -> tuple[float, ...]:
    """Steps of 1, 2 or 5 times a power of ten near shares of the answers' standard deviation."""
    spread = float(numbers.std())
    if not (math.isfinite(spread) and spread > 0):
        return ()
    return tuple(dict.fromkeys(round_step(share * spread) for share in _BASES))


def round_step(size: float) -> float:
    """The number of the form 1, 2 or 5 times a power of ten that is nearest by ratio."""
    power = math.floor(math.log10(size))
    step = min(_LADDER, key=lambda first: abs(math.log(size / first) - power * math.log(10)))
    return float(f"{step:g}e{power}")


def _tried(bases: Iterable[float], attempt: Any, advance: Advance) -> Iterable[Action]:
    for base in bases:
        yield attempt(base)
        advance()


def _no_more_told(action: Action, source: Action) -> Action:
    """A function of the answer tells no more than the answer: its figures are at most those of what it is made from."""
    assert action.upper is not None
    assert source.upper is not None
    return replace(
        action, delta=min(action.delta, source.delta), total_risk=min(action.total_risk, source.total_risk),
        upper=min(action.upper, source.upper), over=min(action.over, source.over),
    )  # fmt: skip


def _as_it_is(asked: Audit, goal: Goal, verdict: Verdict, saved: str) -> Action:
    figures = figures_of(asked, goal, str(verdict))
    targets = " ".join(f"--target {shlex.quote(text)}" for text in goal.texts)
    return Action(
        code="as-is", parameters={}, delta=figures.delta, total_risk=figures.total_risk, upper=figures.upper,
        error=0.0, share=0.0, unanswered=0.0, over=figures.over, verdict=figures.verdict, note=verdict.sentence,
        command=f"empriv show {shlex.quote(saved)} --epsilon {goal.epsilon:g} {targets}",
        cover=math.nan if verdict.day is None else verdict.day.typical,
    )  # fmt: skip


def audited_alike(asked: Audit, published: Results) -> Audit:
    """An audit of what is published instead of an answer, to readers who know the same, and as often."""
    alone = audit_results(published, epsilon=asked.epsilons, density=asked.density, known="nothing")
    if isinstance(asked.against, GivenRisk) and not asked.against.quantities:
        alone = replace(alone, against=measure_given(published, asked.against.given, density=asked.density))
    elif asked.against is not None:
        facts, arrays = known_to_parts(asked.against)
        alone = replace(alone, against=known_from_parts(facts, arrays, published, asked.density))
    elif asked.nothing_known is not None:
        against, nothing_known = infer_public_knowledge(published, asked.density)
        alone = replace(alone, against=against, nothing_known=nothing_known)
    return alone.repeated(asked.times)


def _error(published: Results, truth: Results) -> tuple[float, float]:
    """Mean absolute error over what is answered, and the share of the true answers that are missing."""
    true = truth.outcomes == Outcome.NUMBER
    answered = true & (published.outcomes == Outcome.NUMBER)
    error = np.abs(published.q[answered] - truth.q[answered])
    return float(error.mean()) if len(error) else math.nan, 1.0 - len(error) / int(np.count_nonzero(true))


@dataclass(frozen=True, eq=False)
class _Trial:
    """The audit at hand, and what each attempt on it needs."""

    asked: Audit
    goal: Goal
    before: Verdict
    typical: float
    saved: str
    config: str
    rng: int

    def capped(self) -> list[Action]:
        """What each person adds, capped at what the answer hides, and dither; or nothing."""
        if self.goal.delta is None or self.asked.times > 1 or not can_be_capped(self.asked):
            return []
        found = largest_cap(
            self.asked.results, lambda published: audited_alike(self.asked, published), self.goal.epsilon,
            self.goal.delta,
        )  # fmt: skip
        if found is None:
            return []
        at, published = found
        try:
            capped = audited_alike(self.asked, published)
            designed = self._designed(None, capped, bound=at)
        except (CertificateError, InputError):
            return []
        individual = () if self.asked.origin is None else self.asked.origin.individual
        toml = ""
        if self.asked.text is not None and individual:
            text = capped_people_text(queries_in(self.asked.text)[0], individual, at)
            toml = f"query = {json.dumps(text, ensure_ascii=False)}\n"
        return [self._after(capped, designed, "cap", {"at": at}, toml, bound=at)]

    def noise(self, granularity: float | None, given: Noise | None) -> tuple[list[Action], tuple[str, ...]]:
        """Noise designed for the target, now or before; or nothing, and why."""
        if self.goal.delta is None or self.goal.total_risk is not None:
            return [], (words.no_noise("It is designed for a limit on delta, not on the total risk."),)
        if given is not None and self._is_for_the_goal(given):
            return [self._noise_row(given)], ()
        try:
            designed = self._designed(granularity, self.asked)
        except (CertificateError, InputError) as error:
            return [], (words.no_noise(str(error)),)
        return [self._noise_row(designed)], ()

    def _is_for_the_goal(self, noise: Noise) -> bool:
        there = noise.presence == "both" or self.goal.presence == "random"
        return there and (noise.epsilon, noise.delta, noise.times) == (
            self.goal.epsilon, self.goal.delta, self.asked.times,
        )  # fmt: skip

    def _noise_row(self, designed: Noise, changed: Audit | None = None) -> Action:
        against = reasons_against(designed, self.asked if changed is None else changed, [self.before])
        held = not against
        achieved = designed.achieved_delta()
        return Action(
            code="noise", parameters={"granularity": designed.granularity}, delta=math.nan, total_risk=math.nan,
            upper=achieved, error=designed.expected_error, share=self._share(designed.expected_error), unanswered=0.0,
            over=achieved / designed.delta if held and designed.delta else 0.0 if held else math.inf,
            verdict=PASS if held else UNRESOLVED, note=" ".join((*against, designed.law.words, *designed.notes)),
            command=self._noise_command(designed, self.saved), cover=cover_with(designed),
        )  # fmt: skip

    def classical(self, granularity: float | None) -> Action | None:
        """The better classical noise at the same epsilon and delta, for the largest move seen."""
        if self.goal.delta is None:
            return None
        try:
            designed = noise_for_one(
                self.asked, epsilon=self.goal.epsilon, delta=self.goal.delta, method="classical",
                granularity=offered_granularity(self.asked) if granularity is None else granularity,
                presence=self.goal.presence,
            )  # fmt: skip
        except (CertificateError, InputError):
            return None
        return replace(
            self._noise_row(designed), code="classical",
            command=f"{self._noise_command(designed, self.saved)} --method classical",
        )  # fmt: skip

    def waiting(self, as_it_is: Action) -> list[Action]:
        """More databases, where so many would do: what the bound adds to the estimate shrinks with the root of n."""
        need = self.before.databases_needed
        if need is None:
            return []
        more = need - self.asked.n_databases
        return [
            replace(
                as_it_is, code="waiting", parameters={"more": more, "databases": need}, upper=None, verdict=UNRESOLVED,
                note="By extrapolation: the estimate must stay, and what the bound adds to it shrink.",
                command=f"empriv audit --update {shlex.quote(self.saved)} FILES",
            )
        ]  # fmt: skip

    def rounding(self, to: float) -> Action:
        """Answers rounded to a multiple."""
        published = rounded("sum(1)", to=to).on_answers(self.asked.results, rng=self.rng)
        toml = f'[protocols.rounded]\nkind = "rounded"\nto = {to!r}\n'
        return self._published("rounding", {"to": to}, published, toml)

    def on_rows(self, way: RowWay, run: Run) -> list[Action]:
        """A way that needs the rows, collected and measured; and with noise after it, if it has that and misses."""
        published = way.collect(run)
        if way.code != "coarser":
            action = self._published(way.code, way.parameters, published, way.toml)
            return [action] if action.meets or not way.noise_toml else [action, *self._capped_noise(way, published)]
        if self.asked.against is not None and not isinstance(self.asked.against, GivenRisk):
            raise InputError(words.other_databases())
        if isinstance(self.asked.against, GivenRisk) and self.asked.against.quantities:
            raise InputError(words.other_databases())
        numbers = self.asked.results.outcomes == Outcome.NUMBER
        error = math.nan
        if way.answers is not None:
            error = float(np.abs(way.answers - self.asked.results.q)[numbers].mean())
        return [self._row(way.code, way.parameters, published, way.toml, error, 0.0)]

    def _capped_noise(self, way: RowWay, published: Results) -> list[Action]:
        """Noise on what is published of capped rows; its error is from the answer without either."""
        if self.goal.delta is None or self.goal.total_risk is not None:
            return []
        try:
            capped = audited_alike(self.asked, published)
            designed = self._designed(None, capped)
        except (CertificateError, InputError):
            return []
        return [self._after(capped, designed, "capped-noise", way.parameters, way.noise_toml)]

    def _after(
        self,
        capped: Audit,
        designed: Noise,
        code: str,
        parameters: Mapping[str, Any],
        toml: str,
        *,
        bound: float | None = None,
    ) -> Action:
        """Noise after the answer was changed; its error is from the answer without either."""
        published = capped.results
        numbers = (published.outcomes == Outcome.NUMBER) & (self.asked.results.outcomes == Outcome.NUMBER)
        off = (published.q - self.asked.results.q)[numbers]
        error = float(np.abs(off[:, None] + designed.sample((len(off), _DRAWS), self.rng)).mean())
        declared = "" if bound is None else f" --bound {bound:.12g}"
        command = (
            f"empriv audit --config {shlex.quote(self.config)} --save capped.empriv && "
            f"{self._noise_command(designed, 'capped.empriv')}{declared}"
        )
        return replace(
            self._noise_row(designed, capped), code=code,
            parameters={**parameters, "granularity": designed.granularity}, error=error, share=self._share(error),
            command=command, toml=toml,
        )  # fmt: skip

    def _published(self, code: str, parameters: dict[str, Any], published: Results, toml: str) -> Action:
        return self._row(code, parameters, published, toml, *_error(published, self.asked.results))

    def _row(
        self, code: str, parameters: dict[str, Any], published: Results, toml: str, error: float, unanswered: float
    ) -> Action:
        figures = self._judged(published)
        command = "audit" if code == "coarser" else "compare"
        return Action(
            code=code, parameters=parameters, delta=figures.delta, total_risk=figures.total_risk, upper=figures.upper,
            error=error, share=self._share(error), unanswered=unanswered, over=figures.over, verdict=figures.verdict,
            note="", command=f"empriv {command} --config {shlex.quote(self.config)}", toml=toml,
        )  # fmt: skip

    def _judged(self, published: Results) -> WayFigures:
        """Those who move the answers most, first; everybody if they meet the target."""
        influence = np.nan_to_num(largest_influence(published), nan=math.inf)
        rows = np.sort(np.argsort(-influence, kind="stable")[:_LOOKED_AT])
        everybody = len(rows) == len(influence)
        looked_at = audited_alike(self.asked, published if everybody else published.of_individuals(rows))
        # chosen by looking at everything, they show that a target is missed, not that it fails at a confidence
        first = figures_of(looked_at, self.goal)
        if first.over > 1:
            return first
        audited = looked_at if everybody else audited_alike(self.asked, published)
        verdict = audited.verdict(**self.goal.asked, presence=self.goal.presence, level=self.goal.level)
        return figures_of(audited, self.goal, str(verdict))

    def _designed(self, granularity: float | None, audited: Audit, *, bound: float | None = None) -> Noise:
        """The least noise for the target; dither, of one publication."""
        assert self.goal.delta is not None
        once = self.asked.times == 1
        return noise_for_one(
            audited, epsilon=self.goal.epsilon, delta=self.goal.delta, bound=bound, times=self.asked.times, dither=once,
            granularity=offered_granularity(audited) if granularity is None else granularity,
            presence=self.goal.presence if once else None,
        )  # fmt: skip

    def _noise_command(self, designed: Noise, saved: str) -> str:
        times = [f"--times {designed.times}"] if designed.times > 1 else []
        dither = ["--dither"] if designed.method == "least" and designed.times == 1 else []
        presence = [f"--presence {self.goal.presence}"] if self.goal.presence != "both" else []
        return " ".join(
            [f"empriv noise {shlex.quote(saved)} --epsilon {self.goal.epsilon:g} --delta {designed.delta:g}", *times,
             *dither, *presence, f"--granularity {designed.granularity:.12g} --save noise.empriv"]
        )  # fmt: skip

    def _share(self, error: float) -> float:
        return error / self.typical if self.typical > 0 else math.nan
