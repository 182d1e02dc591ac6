"""`advise`: tries ways to publish an answer on the databases of an audit, and ranks those that meet a target.

A way passes only by the whole verdict: everybody, in a random database and in one that people are in.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.audit import Audit
from empriv.auditing.deciding import cover_with, reasons_against
from empriv.auditing.files import known_from_parts, known_to_parts
from empriv.auditing.knowledge import infer_public_knowledge
from empriv.auditing.make_audit import audit as audit_results
from empriv.auditing.totals import refuse_totals
from empriv.base.progress import progress as progress_bar
from empriv.collecting.queries import queries_in
from empriv.collecting.run_query import Run, run_query
from empriv.comparing.ways import Action, Advice, AgainstGoal, Goal, judge, ranked
from empriv.errors import CertificateError, InputError, QueryError
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring import GivenRisk
from empriv.measuring.any_risk import largest_influence
from empriv.measuring.given.calendar import order_of
from empriv.measuring.given.given_risk import measure_given
from empriv.noise.design import design_noise, offered_granularity
from empriv.noise.noise import Noise
from empriv.protocols.changed_queries import (
    adds_people_up,
    capped_people_text,
    least_rows_text,
    sum_and_rows,
    zero_text,
)
from empriv.results import FloatArray, Outcome, Results
from empriv.validate.verdict import PASS, UNRESOLVED
from empriv.words import what_to_do as words

if TYPE_CHECKING:
    from empriv.collecting import Databases, Engine

_DRAWS = 64  # of noise for each database, from which an error is found
_CAPS = 4  # caps for which noise is designed
_LADDER = 24  # caps among which the next is chosen
_FEW = (0.1, 0.3, 0.5)  # shares of the databases with fewer rows than an average is taken over
_WEEK = 7.0  # days


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
    saved: str = "audit.empriv",
    config: str = "advice.toml",
    rng: int = 0,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    timeout: float | None = None,
    progress: bool | None = None,
) -> Advice:
    """What to do about an answer: try ways to publish it, and rank those that meet a target by their error.

    It tries the answer as it is, noise, more databases, a cap on what each person adds (with noise), 0 in place of no
    answer, an average over at least so many rows, and coarser databases.

    Parameters
    ----------
    audit : of a query that gives one number
    data : the databases that were audited. A cap on an average, a minimum of rows and coarser databases need their
        rows; without them these are left out, and it is said
    epsilon, delta, total_risk, presence, level : the target, as for `Audit.verdict`
    granularity : what noisy answers are multiples of; default: one that the answers suggest
    noise : designed for this audit and this target before, to be taken instead of designing it again
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
    goal = Goal(epsilon, delta, total_risk, presence, level)
    refuse_totals(audit.risk, "audit")
    asked = audit.alone
    if asked.results.components is not None:
        raise InputError(
            "`audit` must be of one number, got several together. Hint: `empriv noise` finds the noise for all "
            "together; in Python, audit.components holds each."
        )
    numbers = asked.results.q[asked.results.outcomes == Outcome.NUMBER]
    if not len(numbers):
        raise InputError("`audit` must have an answer that is a number on at least one database, got none.")
    run = Run(rng=rng, engine=engine, memory_limit=memory_limit, timeout=timeout, progress=False)
    before = judge(asked, goal)
    goal = replace(goal, level=before.verdict.level)
    trial = _Trial(asked, data, run, goal, before, float(np.abs(numbers).mean()), saved, config, rng)
    actions, left_out = [trial.as_it_is()], [] if data is not None or before.meets else [words.no_rows()]
    attempts = trial.attempts(granularity, noise)
    with progress_bar(len(attempts), "Trying ways to publish", show=progress) as advance:
        for title, attempt in attempts:
            try:
                actions += attempt()
            except (CertificateError, InputError, QueryError) as error:
                left_out.append(words.refused(title, str(error)))
            advance()
    actions = [replace(a, title=words.title(a.code, a.parameters, asked.nouns.each, asked.unit)) for a in actions]
    influence = largest_influence(asked.results)
    return Advice(
        options=ranked([action for action in actions if action.code != "classical"]),
        classical=next((action for action in actions if action.code == "classical"), None),
        goal=goal,
        typical=trial.typical,
        largest=float(influence[np.isfinite(influence)].max(initial=0.0)),
        n_databases=asked.n_databases,
        unit=asked.unit,
        left_out=tuple(left_out),
        rng=rng,
    )


def audited_alike(asked: Audit, published: Results) -> Audit:
    """An audit of what is published instead of an answer, to readers who know the same, and as often."""
    alone = audit_results(published, epsilon=asked.epsilons, density=asked.density, known="nothing")
    if isinstance(asked.against, GivenRisk) and not asked.against.quantities:
        alone = replace(alone, against=measure_given(published, asked.against.given, density=asked.density))
    elif asked.against is not None:
        facts, arrays = known_to_parts(asked.against)
        anew = None if facts is None else {**facts, "steps": ()}  # chosen for what is published
        alone = replace(alone, against=known_from_parts(anew, arrays, published, asked.density))
    elif asked.nothing_known is not None:
        against, nothing_known = infer_public_knowledge(published, asked.density)
        alone = replace(alone, against=against, nothing_known=nothing_known)
    return alone.repeated(asked.times)


@dataclass(frozen=True, eq=False)
class Contributions:
    """What each person adds to the sum or count that an answer is, or that it divides by a number of rows.

    Attributes
    ----------
    results : of the answer: numbers throughout
    own : (entries,) what the person adds to the sum
    rows, own_rows : (n,) and (entries,) the number of rows, of an average; else 1 and 0
    """

    results: Results
    own: FloatArray
    rows: FloatArray
    own_rows: FloatArray

    @staticmethod
    def of(results: Results, summed: Results | None = None) -> Contributions:
        """``summed`` are the sums and numbers of rows behind averages, in numbers."""
        at = results.entry_database
        if summed is None:
            one, none = np.ones(results.n_databases), np.zeros(len(at))
            return Contributions(results, results.q[at] - results.entry_q, one, none)
        own, own_rows = (summed.q[at] - summed.entry_q).T
        return Contributions(results, own, summed.q[:, 1], own_rows)

    def capped(self, at: float) -> Results:
        """The results with what each person adds kept between -at and at."""
        where, off = self.results.entry_database, np.clip(self.own, -at, at) - self.own
        less = np.bincount(where, off, self.results.n_databases)
        q = self.results.q + less / self.rows
        return replace(
            self.results, q=q, entry_q=self.results.entry_q + (less[where] - off) / (self.rows[where] - self.own_rows)
        )

    def over(self, rows: int) -> Results:
        """Averages over at least so many rows: a sum is divided by no fewer."""
        at = self.results.entry_database
        total = self.results.q
        q, entry_q = total / np.maximum(self.rows, rows), total[at] - self.own
        return replace(self.results, q=q, entry_q=entry_q / np.maximum(self.rows[at] - self.own_rows, rows))

    def ladder(self) -> FloatArray:
        """Caps that people would declare, from half of what people mostly add up to the most; whole if that is."""
        sizes = np.abs(self.own[self.own != 0])
        caps = [two_digits(at) for at in np.geomspace(0.5 * np.median(sizes), sizes.max(), _LADDER)]
        return np.unique(np.ceil(caps) if np.all(sizes == np.round(sizes)) else caps)


def with_zeros(results: Results) -> Results | None:
    """The results with 0 in place of NULL; None if something else is no number, or there are draws."""
    codes = (results.outcomes, results.entry_outcomes)
    if results.draws is not None or not all(np.isin(code, (Outcome.NUMBER, Outcome.NULL)).all() for code in codes):
        return None
    if not any(code.any() for code in codes):
        return results
    q, entry_q = (np.where(code, 0.0, values) for code, values in zip(codes, (results.q, results.entry_q), strict=True))
    return replace(
        results, q=q, entry_q=entry_q, outcomes=np.zeros_like(codes[0]), entry_outcomes=np.zeros_like(codes[1])
    )


def two_digits(value: float) -> float:
    """Rounded to two significant digits: a place that people would choose."""
    return float(f"{value:.2g}")


def least_error(people: Contributions, tried: Callable[[float, Results], Action]) -> Action:
    """The action with the least error over caps, of those that meet the target if any does.

    The noise that a cap takes grows with the cap, so that one design tells what others would take: with Laplace noise
    of scale b an answer that the cap moves by x errs by E|x + L| = |x| + b exp(-|x|/b).
    """
    ladder = people.ladder()
    moved = np.stack([np.abs(people.capped(at).q - people.results.q) for at in ladder])
    actions: dict[float, Action] = {}
    at = float(ladder[len(ladder) // 2])
    while len(actions) < _CAPS and at not in actions:
        action = actions[at] = tried(at, people.capped(at))
        b = action.parameters["noise"] * ladder[:, None] / at
        at = float(ladder[int(np.argmin((moved + b * np.exp(-moved / np.maximum(b, 1e-300))).mean(axis=1)))])
    return min(actions.values(), key=lambda action: (not action.meets, action.error))


@dataclass(frozen=True, eq=False)
class _Trial:
    """The audit at hand, and what each attempt on it needs."""

    asked: Audit
    data: Databases | None
    run: Run
    goal: Goal
    before: AgainstGoal
    typical: float
    saved: str
    config: str
    rng: int

    @property
    def individual(self) -> tuple[str, ...]:
        """The columns that tell people, where they are known."""
        return () if self.asked.origin is None else self.asked.origin.individual

    def attempts(self, granularity: float | None, noise: Noise | None) -> list[tuple[str, Callable[[], list[Action]]]]:
        """What is tried, each by its title; only noise where the answer as it is meets the target."""
        attempts: list[tuple[str, Callable[[], list[Action]]]] = [
            ("Noise", partial(self.noise, granularity, noise)),
            ("More databases", self.waiting),
        ]
        if self.goal.delta is not None:
            attempts.append(("Classical noise", partial(self.classical, granularity)))
        if self.before.meets:
            return attempts
        texts = [] if self.asked.text is None else queries_in(self.asked.text)
        if len(texts) != 1 or self.asked.component is not None:
            return attempts
        (query,) = texts
        if self.goal.delta is not None and self.goal.total_risk is None:
            attempts.append(("A cap", partial(self.cap, query)))
            if self.asked.results.entry_outcomes.any():
                attempts.append(("0 in place of no answer", partial(self.zero, query)))
            if self.data is not None:
                attempts.append(("A minimum of rows", partial(self.minimum, query, self.data)))
        if self.data is not None:
            attempts += [
                (words.title("coarser", {"by": by}), partial(self.coarser, query, self.data, by, which))
                for by, which in self._spans()
            ]
        return attempts

    def as_it_is(self) -> Action:
        targets = " ".join(f"--target {shlex.quote(text)}" for text in self.goal.texts)
        return self._row(
            "as-is", {}, self.before, 0.0, note=self.before.verdict.sentence,
            command=f"empriv show {shlex.quote(self.saved)} --epsilon {self.goal.epsilon:g} {targets}",
        )  # fmt: skip

    def noise(self, granularity: float | None, given: Noise | None) -> list[Action]:
        """Noise designed for the target, now or before."""
        if self.goal.delta is None or self.goal.total_risk is not None:
            raise InputError("It is designed for a limit on delta, not on the total risk.")
        designed = given if given is not None and self._is_for_the_goal(given) else None
        return [self._noise_row(self._designed(granularity, self.asked) if designed is None else designed)]

    def waiting(self) -> list[Action]:
        """More databases, where so many would do: what the bound adds to the estimate shrinks with the root of n."""
        need = self.before.verdict.databases_needed
        if need is None:
            return []
        more = {"more": need - self.asked.n_databases, "databases": need}
        note = "By extrapolation: the estimate must stay, and what the bound adds to it shrink."
        command = f"empriv audit --update {shlex.quote(self.saved)} FILES"
        row = self._row("waiting", more, self.before, 0.0, note=note, command=command)
        return [replace(row, upper=None, verdict=UNRESOLVED)]

    def classical(self, granularity: float | None) -> list[Action]:
        """The better classical noise at the same epsilon and delta, for the largest move seen."""
        assert self.goal.delta is not None
        try:
            designed = design_noise(
                self.asked, epsilon=self.goal.epsilon, delta=self.goal.delta, method="classical",
                granularity=offered_granularity(self.asked) if granularity is None else granularity,
                presence=self.goal.presence,
            )  # fmt: skip
        except (CertificateError, InputError):  # for the reason that is said of noise
            return []
        assert isinstance(designed, Noise)
        command = f"{self._noise_command(designed, self.saved)} --method classical"
        return [replace(self._noise_row(designed), code="classical", command=command)]

    def cap(self, query: str) -> list[Action]:
        """What each person adds, capped, with noise: the cap with which both cost least; of an average, with rows."""
        results, average = with_zeros(self.asked.results), sum_and_rows(query)
        if results is None or (average is None and not adds_people_up(query)):
            return []
        summed = None
        if average is not None:
            if self.data is None or results is not self.asked.results:  # without anybody an average is no number
                return []
            summed = self._collected(average, self.data)
        people = Contributions.of(results, summed)
        if not people.own.any():
            return []

        def tried(at: float, published: Results) -> Action:
            bound = at if summed is None and self.asked.times == 1 else None  # publications add up what was seen
            text = capped_people_text(query, self.individual, at) if self.individual else ""
            if text and results is not self.asked.results:
                text = zero_text(text)
            return self._with_noise("cap", {"at": at}, published, text, bound=bound)

        return [least_error(people, tried)]

    def zero(self, query: str) -> list[Action]:
        """0 where there is no answer, so that nobody decides whether there is one, with noise."""
        published = with_zeros(self.asked.results)
        return [] if published is None else [self._with_noise("zero", {}, published, zero_text(query))]

    def minimum(self, query: str, data: Databases) -> list[Action]:
        """An average over at least so many rows, with noise: the number of rows with which both cost least.

        Few rows are filled up with rows of amount 0, so that nobody moves the answer much, or decides whether there is
        one. To give no answer where there are few people would tell whoever is the last that is needed.
        """
        average = sum_and_rows(query)
        if average is None:
            return []
        summed = self._collected(average, data)
        one = replace(self.asked.results, q=summed.q[:, 0], entry_q=summed.entry_q[:, 0])
        none = np.zeros_like
        totals = replace(one, outcomes=none(one.outcomes), entry_outcomes=none(one.entry_outcomes))
        people = Contributions.of(totals, summed)
        least = {max(2, math.ceil(two_digits(float(np.quantile(people.rows, few))))) for few in _FEW}
        actions = [
            self._with_noise("minimum", {"rows": rows}, people.over(rows), least_rows_text(query, rows))
            for rows in sorted(least)
        ]
        return [min(actions, key=lambda action: (not action.meets, action.error))]

    def _collected(self, query: str, data: Databases) -> Results:
        """The sums and numbers of rows behind the answers; a sum of no rows is 0."""
        summed = with_zeros(run_query(data, query, self.run))
        asked = self.asked.results
        same = summed is not None and np.array_equal(summed.entry_database, asked.entry_database)
        if summed is None or not same or not np.array_equal(summed.starts, asked.starts):
            raise InputError("The rows must be those that were audited.")
        return summed

    def coarser(self, query: str, data: Databases, by: str, which: Any) -> list[Action]:
        """One answer for each week or month; what it says of a day is the mean over the days of its week."""
        against = self.asked.against
        if against is not None and (not isinstance(against, GivenRisk) or against.quantities):
            raise InputError(words.other_databases())
        cut = f"date_trunc('{by}', CAST(({data.database}) AS TIMESTAMP))"
        published = run_query(replace(data, database=cut), query, self.run)
        answers, error = self.asked.results.q, math.nan
        if answers.ndim == 1:
            numbers = self.asked.results.outcomes == Outcome.NUMBER
            means = np.bincount(which, answers) / np.bincount(which)
            error = float(np.abs(means[which] - answers)[numbers].mean())
        return [
            self._row(
                "coarser", {"by": by}, judge(audited_alike(self.asked, published), self.goal), error,
                toml=f"database = {json.dumps(cut, ensure_ascii=False)}\n",
                command=f"empriv audit --config {shlex.quote(self.config)}",
            )
        ]  # fmt: skip

    def _spans(self) -> Iterator[tuple[str, Any]]:
        """Longer spans of which there are enough, with the span of each database; none unless these are days."""
        times = order_of(self.asked.results)
        if self.data is None or self.data.database is None or times is None or times.unit != "days":
            return
        gaps = np.diff(np.sort(times.place))
        if not len(gaps) or float(np.median(gaps)) >= _WEEK:
            return
        days = np.floor(times.place).astype(np.int64)
        months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        for by, places in (("week", (days + 3) // 7), ("month", months)):  # weeks begin on Mondays; 1970 on a Thursday
            _, which = np.unique(places, return_inverse=True)
            if which.max() + 1 >= LEAST_DATABASES:
                yield by, which

    def _row(
        self, code: str, parameters: Mapping[str, Any], judged: AgainstGoal, error: float, *, command: str,
        note: str = "", toml: str = "",
    ) -> Action:  # fmt: skip
        day = judged.verdict.day
        return Action(
            code=code, parameters=parameters, delta=judged.delta, upper=judged.upper, error=error,
            share=self._share(error), over=judged.over, verdict=str(judged.verdict), note=note, command=command,
            toml=toml, cover=math.nan if day is None else day.cover,
        )  # fmt: skip

    def _noise_row(self, designed: Noise, changed: Audit | None = None) -> Action:
        asked = self.asked if changed is None else changed
        against = reasons_against(designed, asked, [self.before.verdict])
        held = not against
        achieved = designed.achieved_delta()
        return Action(
            code="noise", parameters={"granularity": designed.step}, delta=math.nan, upper=achieved,
            error=designed.expected_error, share=self._share(designed.expected_error),
            over=achieved / designed.delta if designed.delta else 0.0 if achieved <= 0 else math.inf,
            verdict=PASS if held else UNRESOLVED, note=" ".join((*against, designed.law.words, *designed.notes)),
            command=self._noise_command(designed, self.saved), cover=cover_with(designed),
        )  # fmt: skip

    def _with_noise(
        self, code: str, parameters: Mapping[str, Any], published: Results, text: str, *, bound: float | None = None
    ) -> Action:
        """Noise on what a changed query publishes; its error is from the answer without either, where there was one.

        ``bound`` is the most that anybody moves it, where the query sees to that.
        """
        changed = audited_alike(self.asked, published)
        designed = self._designed(None, changed, bound=bound)
        off = (published.q - self.asked.results.q)[self.asked.results.outcomes == Outcome.NUMBER]
        error = float(np.abs(off[:, None] + designed.law.sample((len(off), _DRAWS), self.rng)).mean())
        declared = "" if bound is None else f" --bound {bound:.12g}"
        command = (
            f"empriv audit --config {shlex.quote(self.config)} --save capped.empriv && "
            f"{self._noise_command(designed, 'capped.empriv')}{declared}"
        )
        toml = f"query = {json.dumps(text, ensure_ascii=False)}\n" if self.individual else ""
        return replace(
            self._noise_row(designed, changed), code=code, error=error, share=self._share(error), command=command,
            toml=toml, parameters={"noise": designed.expected_error, "granularity": designed.step, **parameters},
        )  # fmt: skip

    def _is_for_the_goal(self, noise: Noise) -> bool:
        both = noise.presence == "both" or self.goal.presence == "random"
        return both and (noise.epsilon, noise.delta, noise.times) == (
            self.goal.epsilon, self.goal.delta, self.asked.times,
        )  # fmt: skip

    def _designed(self, granularity: float | None, audited: Audit, *, bound: float | None = None) -> Noise:
        """The least noise for the target; dither, of one publication."""
        assert self.goal.delta is not None
        once = self.asked.times == 1
        made = design_noise(
            audited, epsilon=self.goal.epsilon, delta=self.goal.delta, bound=bound, times=self.asked.times, dither=once,
            granularity=offered_granularity(audited) if granularity is None else granularity,
            presence=self.goal.presence if once else None,
        )  # fmt: skip
        assert isinstance(made, Noise)
        return made

    def _noise_command(self, designed: Noise, saved: str) -> str:
        times = [f"--times {designed.times}"] if designed.times > 1 else []
        dither = ["--dither"] if designed.method == "least" and designed.times == 1 else []
        presence = [f"--presence {self.goal.presence}"] if self.goal.presence != "both" else []
        return " ".join(
            [f"empriv noise {shlex.quote(saved)} --epsilon {self.goal.epsilon:g} --delta {designed.delta:g}", *times,
             *dither, *presence, f"--granularity {designed.step:.12g} --save noise.empriv"]
        )  # fmt: skip

    def _share(self, error: float) -> float:
        return error / self.typical if self.typical > 0 else math.nan
