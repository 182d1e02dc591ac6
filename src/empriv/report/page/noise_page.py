"""The page of an answer with noise: may it be published so, what does the noise cost, which law is it?

Its answers are those of the audit that the noise was designed for, with bars as far as the noise errs on average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch
from os import PathLike
from pathlib import Path

import numpy as np

from empriv.auditing.audit import Audit
from empriv.auditing.deciding import typical_answer
from empriv.base.harmless import shortened, visible
from empriv.base.storage import write_atomically
from empriv.noise.law import Law
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.report.charts.answers import answers_chart, answers_of, predictable
from empriv.report.charts.chart import Chart
from empriv.report.charts.released import released_chart
from empriv.report.page.audit_page import Card, record_of
from empriv.report.page.rendering import label, page_path, payload_of, picture_of, render
from empriv.words.decision import KINDS
from empriv.words.sentences import amount, number, percent

_MOST_DRAWN = 4  # numbers of several


@dataclass(frozen=True)
class NoiseFacts:
    """What the page says of noise, whatever its kind.

    Attributes
    ----------
    laws : the law of each number's noise; of a single number under ""
    achieved : upper bound on delta with the noise, by where
    often : how often answers with it may be published, in a sentence; or nothing
    method : how it was designed
    """

    laws: Mapping[str, Law]
    achieved: Mapping[str, float]
    often: str
    method: str


def noise_report(
    noise: Noise | TableNoise, path: str | PathLike[str], *, audit: Audit, title: str | None = None
) -> Path:
    """Write the page of an answer with noise, mode 0600.

    Parameters
    ----------
    noise : designed for the audit
    path : of the page; must end in .html
    audit : of the answer
    title : of the page; default: the query

    Examples
    --------
    >>> from empriv.report import noise_report
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> audit = empriv.audit(empriv.Results.from_arrays(q, q - rng.exponential(2.0, (3, 60))))
    >>> noise = empriv.design_noise(audit, epsilon=0.1, delta=0.05, granularity=0.25)
    >>> noise_report(noise, "noise.html", audit=audit).name
    'noise.html'
    """
    target = page_path(path)
    facts = facts_of_noise(noise)
    alone = audit.alone
    verdict = alone.verdict(epsilon=noise.epsilon, delta=noise.delta)
    decision = audit.decision(verdict, noise=noise)
    released = released_chart(alone, noise) if isinstance(noise, Noise) and not noise.given else None
    charts = [_answers(alone, facts), *([] if released is None else [released])]
    query = "the query" if audit.origin is None else shortened(" ".join(audit.query.split()), 80)
    asked = visible(audit.summary([noise.epsilon]).asked)
    content = {
        "title": visible(f"Privacy of {query} with noise" if title is None else title),
        "asked": asked,
        "decision": decision,
        "decision_kind": KINDS.get(decision.word, "open"),
        "sections": [("noise", "The noise"), ("answers", "The answers with it"), ("record", "For the record")],
        "cards": _cards(noise, facts, alone),
        "law": _law(facts),
        "often": facts.often,
        "columns": ["Number", "Errs by, on average", "90% within", "99% within", "Typical answer", "Share of it"],
        "rows": _rows(facts, alone),
        "charts": [picture_of(chart) for chart in charts],
        "notes": [*noise.notes, f"Designed by the method {facts.method!r}."],
        "record": record_of(audit, [(_target(noise), verdict)]),
    }
    write_atomically(target, render("noise.html", content, payload_of(charts)).encode("utf-8", "backslashreplace"))
    return target


@singledispatch
def facts_of_noise(noise: object) -> NoiseFacts:
    """What the page says of noise, by its kind."""
    raise TypeError(type(noise).__name__)


@facts_of_noise.register
def _(noise: Noise) -> NoiseFacts:
    where = "in a random database" + ("" if noise.presence == "random" else " and on the day that they are in")
    where = where if noise.times == 1 else f"after {noise.times:,} publications"
    often = noise.how_often().sentence if noise.delta > 0 else ""
    return NoiseFacts({"": noise.law}, {where: noise.achieved_delta()}, often, noise.method)


@facts_of_noise.register
def _(noise: TableNoise) -> NoiseFacts:
    return NoiseFacts(noise.laws, {"of all numbers together": noise.achieved_delta()}, "", noise.method)


def _cards(noise: Noise | TableNoise, facts: NoiseFacts, audit: Audit) -> list[Card]:
    cards = [Card(_limit(noise), f"the target at epsilon {label(noise.epsilon)}")]
    cards += [Card(number(delta), f"delta at most, with the noise, {where}") for where, delta in facts.achieved.items()]
    if len(facts.laws) == 1:
        (law,) = facts.laws.values()
        cards.append(Card(f"±{amount(law.expected_error, audit.unit)}", "what the noise errs by, on average"))
    return cards


def _limit(noise: Noise | TableNoise) -> str:
    return f"delta {number(noise.delta)}"


def _target(noise: Noise | TableNoise) -> str:
    return f"{_limit(noise)} at epsilon {label(noise.epsilon)}"


def _law(facts: NoiseFacts) -> str:
    """The law in one sentence."""
    words = list(dict.fromkeys(law.words for law in facts.laws.values()))
    if len(words) == 1:
        return words[0]
    return f"Each of {len(facts.laws):,} numbers gets noise of its own; that of the first: {words[0]}"


def _rows(facts: NoiseFacts, audit: Audit) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, law in facts.laws.items():
        results = audit.results if not name else audit.results.component(name)
        typical = typical_answer(results)
        share = law.expected_error / typical if typical > 0 else np.nan
        rows.append(
            (
                shortened(name, 60) or "the answer", f"±{amount(law.expected_error, audit.unit)}",
                f"±{amount(law.quantile(0.95), audit.unit)}", f"±{amount(law.quantile(0.995), audit.unit)}",
                amount(typical, audit.unit), percent(share) if np.isfinite(share) else "unknown",
            )
        )  # fmt: skip
    return rows


def _answers(audit: Audit, facts: NoiseFacts) -> Chart:
    """The answers with bars of the noise; the first few of several numbers."""
    results = audit.results
    names = list(facts.laws)[:_MOST_DRAWN]
    parts = {name: results if not name else results.component(name) for name in names}
    risk = audit.once if names == [""] else audit.risk
    series = {}
    for name, part in parts.items():
        answers = answers_of(part)
        series[name] = answers, predictable(risk, answers)
    more = len(facts.laws) - len(names)
    return answers_chart(
        results, series, error={name: facts.laws[name].expected_error for name in names}, unit=audit.unit,
        others=f" {more:,} more {'number is' if more == 1 else 'numbers are'} not drawn." if more else "",
    )  # fmt: skip
