"""The page of one audit: may I publish, what do I do, what does it cost, who is at risk? Why we believe it is folded.

The decision and all sentences come from `words`, as in the terminal; charts from `charts`; figures from `gather`.
`public` decides what a published version may say.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from empriv.auditing.audit import Audit
from empriv.auditing.deciding import hidden_on_the_day
from empriv.auditing.knowledge import known_to_readers
from empriv.base.harmless import shortened, visible
from empriv.report.charts.all_charts import AGAIN, IN_VIEW, TABLE, chart, charts_of
from empriv.report.charts.chart import Chart
from empriv.report.gather import Material
from empriv.report.page.actions import Actions
from empriv.report.page.people_table import exposed_people
from empriv.report.page.rendering import (
    Picture,
    label,
    payload_of,
    picture_of,
    render,
    render_part,
    safe_svg,
    times,
)
from empriv.words.decision import KINDS, Decision, Hidden
from empriv.words.facts import Figure
from empriv.words.sentences import amount, databases, number, people, percent
from empriv.words.summary import figure_sentence, tail_sentence

if TYPE_CHECKING:
    from empriv.validate.verdict import Verdict

SEVERITIES = {"error": "problem", "warning": "be wary", "info": "fine"}
_SHOWN_COUNTS = (1, 7, 30, 365)
_UNCHECKED = (
    "Individuals who were never in these databases and behave like nobody in them.",
    "Future databases, if they are not of the same kind as these.",
    "Groups of individuals, such as families: each individual is protected alone.",
    "Ways around the result, such as errors, timing, or access to the data itself.",
)


@dataclass(frozen=True)
class Card:
    """A figure and what it is."""

    figure: str
    says: str


@dataclass(frozen=True)
class Again:
    """Publishing again: sentences, rows of a small table, and the chart."""

    said: tuple[str, ...]
    rows: tuple[tuple[str, str, str], ...]
    chart: Picture


def page_of(
    material: Material,
    *,
    names: Sequence[str],
    names_said: str,
    decision: Decision,
    verdicts: Sequence[tuple[str, Verdict]] = (),
    actions: Actions | None = None,
    extra: Iterable[Chart] = (),
    config: str | None = None,
    title: str | None = None,
) -> str:
    """The page of one audit; ``names`` are those of ``material.rows``."""
    audit = material.audit
    summary = audit.with_validity(audit.summary())
    drawn = {made.name: made for made in (*charts_of(material), *extra)}
    # of a table the map says more than the answers of its first cells
    in_view = [name for name in IN_VIEW if name in drawn and not (name == "results" and TABLE in drawn)]
    again = again_of(material, drawn.get(AGAIN))
    said = {decision.reason, *(check.sentence for check in audit.checks)}
    wary = sum(check.severity != "info" for check in audit.checks)
    tail = [tail_sentence(audit.epsilon(0.0))] if audit.measured.tells_epsilon(0.0) else []
    content = {
        "title": title_of(audit, title),
        "asked": visible(summary.asked),
        "public": False,
        "decision": decision,
        "decision_kind": KINDS.get(decision.word, "open"),
        "alarms": [alarm for alarm in summary.alarms if alarm != decision.reason],
        "verdicts": [
            (visible(text), {"word": str(verdict), "sentence": verdict.sentence,
                             "reasons": [reason for reason in verdict.reasons if reason not in said]})
            for text, verdict in verdicts
        ],
        "sections": sections_of(actions is not None, again is not None, table=TABLE in drawn),
        "cards": cards_of(material, verdicts),
        "actions": actions,
        "table": picture_of(drawn[TABLE]) if TABLE in drawn else None,
        "exposed": exposed_people(material, names, audit.unit, _day(verdicts, audit.unit), decision.reason),
        "names_said": names_said,
        "again": again,
        "at": figures_at(material),
        "in_view": [picture_of(drawn[name]) for name in in_view],
        "wary": "" if not wary else "1 check says: be wary" if wary == 1 else f"{wary} checks say: be wary",
        "n_individuals": f"{audit.n_individuals:,}",
        "asked_columns": asked_columns(exposed=True),
        "asked_rows": asked_rows(material),
        "notes": [note for note in (*summary.notes, *tail) if note not in said],
        "warnings": [visible(warning) for warning in summary.warnings if warning not in said],
        "unchecked": unchecked(audit),
        "checks": [
            {"title": c.title, "severity": c.severity, "mark": SEVERITIES[c.severity], "sentence": c.sentence}
            for c in audit.checks
        ],
        "charts": [picture_of(made) for name, made in drawn.items() if name not in (*in_view, AGAIN, TABLE)],
        "record": record_of(audit, verdicts),
        "config": config,
    }  # fmt: skip
    return render("page.html", content, payload_of(list(drawn.values())))


def title_of(audit: Audit, title: str | None, known: Sequence[str] | None = None) -> str:
    """The page's title: as given, or the query and what its readers are taken to know."""
    if title is not None:
        return visible(title)
    query = "the query" if audit.origin is None else shortened(" ".join(audit.query.split()), 80)
    known = known_to_readers(audit.measured_against) if known is None else known
    to_whom = f", to readers who know {listed(known)}" if known else ""
    often = "" if audit.times == 1 else f", published {audit.times:,} times"
    return visible(f"Privacy of {query}{often}{to_whom}")


def sections_of(actions: bool, again: bool, who: bool = True, table: bool = False) -> list[tuple[str, str]]:
    """The contents list."""
    return [
        *([("do", "What you can do")] if actions else []),
        *([("cells", "Cell by cell")] if table else []),
        *([("who", "Who is at risk")] if who else []),
        *([("again", "If you publish again")] if again else []),
        ("why", "Why we believe it"),
        ("record", "For the record"),
    ]


def cards_of(material: Material, verdicts: Sequence[tuple[str, Verdict]]) -> list[Card]:
    """The target, and the figures that are held against it, at the page's epsilon."""
    audit, epsilon = material.audit, material.epsilon
    cards = [
        Card(
            f"{number(target.limit)} at epsilon {label(verdict.epsilon)}",
            f"the target: {target.name.replace('_', ' ')} is at most that",
        )
        for _, verdict in verdicts[:1]
        for target in verdict.targets[:1]
    ]
    level = percent(material.bounded.level)
    of_verdict = next((verdict for _, verdict in verdicts if verdict.epsilon == epsilon), None)
    day = None if of_verdict is None else of_verdict.day
    if day is not None:
        where = ", on a typical database" if day.varies else ""
        what = shortened(day.cell, 40) or "the answer"
        most = (
            "somebody changes whether there is an answer"
            if np.isinf(day.largest)
            else (f"the most that anyone moved it is {amount(day.largest, audit.unit)}")
        )
        cards.append(Card(amount(day.typical, audit.unit), f"moves of {what} up to that are hidden{where}; {most}"))
    upper = float(material.band["upper"][material.start])
    often = "" if audit.times == 1 else f", of all {audit.times:,} publications together"
    delta = float(material.curves.delta[material.start])
    cards.append(Card(number(delta), f"delta in a random database{often}{_at_most([upper], level)}"))
    return cards


def _day(verdicts: Sequence[tuple[str, Verdict]], unit: str) -> Hidden | None:
    """What the first verdict that says so found of the day."""
    return next((hidden for _, verdict in verdicts if (hidden := hidden_on_the_day(verdict, unit)) is not None), None)


def _at_most(uppers: Sequence[float], level: str) -> str:
    """The upper bound, where it is known."""
    if not uppers:
        return ""
    return "; no upper bound" if uppers[0] >= 1 else f"; at most {number(uppers[0])} at {level} confidence"


def again_of(material: Material, made: Chart | None) -> Again | None:
    """What publishing again reveals; None for a kind of risk that has no such figures."""
    if made is None:
        return None
    audit = material.audit
    counts = list(made.data["publications"])
    places = [counts.index(count) for count in sorted({*_SHOWN_COUNTS, audit.times}) if count in counts]
    rows = tuple(
        (f"{counts[k]:,}", number(float(made.data["estimate"][k])), number(float(made.data["upper figure"][k])))
        for k in places
    )
    often = [audit.how_often(epsilon=at, delta=delta).sentence for at, delta in material.targets if np.isfinite(at)]
    said = [f"As it is: {sentence[0].lower()}{sentence[1:]}" for sentence in often]
    return Again(tuple(dict.fromkeys(said)), rows, picture_of(made))


def record_of(audit: Audit, verdicts: Sequence[tuple[str, Verdict]]) -> list[tuple[str, str]]:
    """What makes the page accountable: what was asked of which data, by what, and when it was judged."""
    results, origin = audit.results, audit.origin
    span = f"{databases(results.n_databases)}, {results.databases[0]} to {results.databases[-1]}"
    people_said = people(audit.n_individuals)
    rows = [("Query", " ".join(audit.query.split()))]
    if origin is not None:
        rows.append(("Data", "; ".join(origin.sources)))
        people_said += f", by {', '.join(origin.individual)}"
        span += "" if origin.database is None else f", by {origin.database}"
    rows += [
        ("Databases", span),
        ("Individuals", people_said),
        ("Targets", "; ".join(text for text, _ in verdicts) or "none"),
        ("People left out", "not verified" if results.verified is None else str(results.verified)),
        ("Fingerprint of the results", results.digest[:32]),
        ("Made by", f"empriv {version('empriv')}, numpy {np.__version__}, Python {platform.python_version()}"),
    ]
    return [(name, visible(value)) for name, value in rows]


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def unchecked(audit: Audit) -> tuple[str, ...]:
    """What the figures do not cover."""
    if audit.composition is not None:
        count = len(audit.composition.entries)
        covered = f"only this query and {count:,} earlier {'release' if count == 1 else 'releases'} are covered"
    elif audit.results.components is not None:
        covered = "only these numbers together are covered"
    else:
        covered = "only this one result is covered"
    beyond = "" if audit.against is None else ", to readers who know what is named above and nothing else"
    released = f"What else is known or released about the same individuals: {covered}{beyond}."
    return (f"{released} Several releases tell more together.", *_UNCHECKED)


def figures_at(material: Material) -> dict[str, str]:
    """Figures and their bounds at the page's epsilon, in words."""
    curves, band, k = material.curves, material.band, material.start
    epsilon, delta, total = material.epsilon, float(curves.delta[k]), float(curves.total_risk[k])
    exposed = int(curves.n_exposed[k])
    near = "" if band["own"][k] else "; from the nearest epsilons with bounds of their own"
    level = percent(material.bounded.level)
    return {
        "epsilon": label(epsilon),
        "likelier": times(epsilon),
        "delta": number(delta, 3),
        "total_risk": number(total, 3),
        "exposed": f"{exposed:,}",
        "delta_bounds": between(float(band["lower"][k]), float(band["upper"][k]), f"{level}, conditional{near}"),
        "total_bounds": between(
            float(band["total_risk_lower"][k]), float(band["total_risk_upper"][k]), f"{level}, indicative{near}"
        ),
        "sentence": figure_sentence(Figure(epsilon, delta, total, exposed), material.audit.times),
    }


def between(lower: float, upper: float, kind: str) -> str:
    """Two bounds in a sentence."""
    if upper >= 1:
        return f"At least {number(lower)}, no upper bound ({kind})."
    return f"Between {number(lower)} and {number(upper)} ({kind})."


def asked_columns(*, exposed: bool) -> list[str]:
    """Heads of `asked_rows`."""
    return [
        "epsilon", "delta, lower bound", "delta, estimate", "delta, upper bound", "total risk",
        *(["exposed"] if exposed else []),
    ]  # fmt: skip


def asked_rows(material: Material) -> list[tuple[str, ...]]:
    """A row for each epsilon asked for."""
    at = np.flatnonzero(np.isin(material.epsilons, material.audit.epsilons)).tolist()
    curves, lower, upper = material.curves, material.band["lower"], material.band["upper"]
    return [
        (
            label(float(material.epsilons[k])), number(float(lower[k]), 2), number(float(curves.delta[k]), 3),
            "none" if upper[k] >= 1 else number(float(upper[k]), 2),
            number(float(curves.total_risk[k]), 3), f"{int(curves.n_exposed[k]):,}",
        )
        for k in at
    ]  # fmt: skip


def notebook_html(audit: Audit) -> str:
    """What a notebook shows of an audit: the terminal's words, its table, and the chart of delta.

    Examples
    --------
    >>> from empriv.report import notebook_html
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> audit = empriv.audit(data, "avg(delay)", epsilon=0.1)
    >>> notebook_html(audit)[:5]
    '<div>'
    """
    summary = audit.with_validity(audit.summary())
    n = audit.n_individuals
    return render_part(
        "notebook.html",
        asked=visible(summary.asked),
        alarms=summary.alarms,
        rows=[
            (
                f"{f.epsilon:g}", number(f.delta, 3), number(f.total_risk, 3), f"{f.n_exposed:,} of {n:,}",
            )
            for f in summary.figures
        ],
        sentence=summary.sentences[0],
        warnings=[visible(warning) for warning in summary.warnings],
        notes=summary.notes,
        picture=safe_svg(chart(audit, "delta")),
    )  # fmt: skip
