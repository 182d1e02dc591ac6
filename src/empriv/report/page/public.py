"""The version of a report that may be published.

It must not reveal who the individuals are or what each does, nor any result, nor figures so exact that two reports, or
a report and a guess, give away the difference that one individual makes. So it has no rows, no results, no densities,
no histogram, no bandwidth and no count finer than a digit; every probability is rounded up to the next of 1, 2, 5 times
a power of ten (lower bounds down), and none is below what this many databases can support.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from empriv.auditing.audit import Audit
from empriv.auditing.knowledge import knows
from empriv.auditing.summary import Figure, figure_sentence
from empriv.base.text import shortened, visible
from empriv.measuring import AnyRisk
from empriv.report.charts.curves import banded_chart
from empriv.report.gather import gather
from empriv.report.page.audit_page import (
    SEVERITIES,
    asked_columns,
    between,
    small_print,
    title_of,
    unchecked,
)
from empriv.report.page.rendering import label, payload_of, picture_of, render, times
from empriv.results import FloatArray
from empriv.scale.totalled_risk import TotalledRisk
from empriv.validate.bounds.line_bounds import floor
from empriv.words import sentences as words
from empriv.words.decision import KINDS, Decision
from empriv.words.sentences import number, percent

if TYPE_CHECKING:
    from empriv.validate.verdict import Verdict

_STOPS = 11
_STEPS = (1.0, 2.0, 5.0, 10.0)
_TINY = 1e-12


def public_page(
    audit: Audit,
    *,
    epsilons: Iterable[float] | None = None,
    verdicts: Sequence[tuple[str, Verdict]] = (),
    targets: Sequence[tuple[float, float]] = (),
    title: str | None = None,
) -> str:
    """The page to publish."""
    stops = _stops(audit.measured, audit) if epsilons is None else epsilons
    material = gather(audit, stops, targets=targets)
    curves, band, at = material.curves, material.band, material.start
    n = audit.results.n_databases
    level = material.bounded.level
    least = coarse_up(floor(n, level))
    delta = np.maximum([coarse_up(float(v)) for v in curves.delta], least)
    total = np.maximum([coarse_up(float(v)) for v in curves.total_risk], delta)
    upper = np.maximum([coarse_up(float(v)) for v in band["upper"]], delta)
    total_upper = np.maximum([coarse_up(float(v)) for v in band["total_risk_upper"]], total)
    lower = np.array([coarse_down(float(v)) for v in band["lower"]])
    total_lower = np.array([coarse_down(float(v)) for v in band["total_risk_lower"]])
    texts = [label(float(e)) for e in material.epsilons]

    figures = {
        "epsilon": texts[at],
        "likelier": times(material.epsilon),
        "delta": number(float(delta[at]), 1),
        "total_risk": number(float(total[at]), 1),
        "delta_bounds": between(float(lower[at]), float(upper[at]), f"{percent(level)}, conditional"),
        "total_bounds": between(float(total_lower[at]), float(total_upper[at]), f"{percent(level)}, indicative"),
        "sentence": figure_sentence(Figure(material.epsilon, float(delta[at]), float(total[at]), 0)),
        "exposed": "",
    }
    finite = material.finite
    asked_for = audit.epsilons
    rounded = " Figures are rounded up, lower bounds down."
    charts = [
        banded_chart(
            material.epsilons[finite],
            delta[finite],
            lower[finite],
            upper[finite],
            start=at,
            asked=asked_for,
            apart=curves.apart,
            targets=targets,
            name="delta",
            title="delta against epsilon",
            axis="delta (most exposed individual)",
            caption="The failure probability of the most exposed individual; lower is better. "
            f"The {'bars lie' if curves.apart else 'band lies'} between the bounds at {percent(level)} confidence."
            f"{rounded}",
        ),
        banded_chart(
            material.epsilons[finite],
            total[finite],
            total_lower[finite],
            total_upper[finite],
            start=at,
            asked=asked_for,
            apart=curves.apart,
            name="total_risk",
            title="Total risk against epsilon",
            axis="total risk (anybody)",
            caption=f"The chance that anybody's privacy fails, if failures are independent.{rounded}",
        ),
    ]
    at_asked = np.flatnonzero(np.isin(material.epsilons, audit.epsilons))
    pictures = [picture_of(chart) for chart in charts]
    decision = _decision(audit, verdicts, figures["sentence"])
    content = {
        "title": title_of(audit, title),
        "asked": f"Version for publication. {asked_of(audit)}",
        "public": True,
        "decision": decision,
        "decision_kind": KINDS.get(decision.word, "open"),
        "alarms": _alarms(audit),
        "verdicts": [(visible(text), {"word": str(verdict), "reasons": ()}) for text, verdict in verdicts],
        "inside": "",
        "instead": "",
        "way": False,
        "beyond": decision.beyond,
        "small": small_print(decision, audit, costs=False),
        "warned": "",
        "noise": None,
        "picture": pictures[0],
        "actions": None,
        "people": None,
        "again": None,
        "at": figures,
        "asked_columns": asked_columns(exposed=False),
        "asked_rows": [
            (texts[k], number(float(lower[k]), 1), number(float(delta[k]), 1),
             "none" if upper[k] >= 1 else number(float(upper[k]), 1),
             number(float(total[k]), 1))
            for k in at_asked
        ],
        "notes": (
            "All figures are rounded up to one of 1, 2 and 5 times a power of ten, lower bounds down.",
            words.floor(n, least),
            *_beside(audit),
        ),
        "warnings": (),
        "unchecked": unchecked(audit),
        "checks": [
            {"title": c.title, "severity": c.severity, "mark": SEVERITIES[c.severity]} for c in audit.checks
        ],
        "charts": pictures[1:],
        "record": [("Made by", f"empriv {version('empriv')}")],
        "commands": (),
        "config": None,
    }  # fmt: skip
    return render("page.html", content, payload_of(charts))


def _decision(audit: Audit, verdicts: Sequence[tuple[str, Verdict]], figures: str) -> Decision:
    """The word of the decision; its reasons hold no figure that is not rounded."""
    made = audit.decision([verdict for _, verdict in verdicts])
    sentences = [verdict.said() for _, verdict in verdicts]
    condition = f"Holds for databases like these {audit.n_databases:,}."
    return Decision(made.word, made.line, " ".join(dict.fromkeys(sentences)) or figures, condition, made.promise)


def _stops(risk: AnyRisk, audit: Audit) -> FloatArray:
    """Where curves are drawn, beside the epsilons asked for; of people measured in chunks, nothing else can be."""
    if isinstance(risk, TotalledRisk):
        return np.array(risk.epsilons)
    return np.linspace(0.0, float(gather(audit).epsilons[-1]), _STOPS)


def coarse_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten, from 1e-12 to 1; 0 stays 0."""
    if value <= 0 or value >= 1:
        return min(max(value, 0.0), 1.0)
    value = max(value, _TINY)
    scale = 10.0 ** math.floor(math.log10(value))
    rounded = next(step * scale for step in _STEPS if step * scale >= value * (1 - 1e-12))
    return min(1.0, float(f"{rounded:.1g}"))


def coarse_down(value: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above the value; 0 below 1e-12."""
    if value < _TINY or value >= 1:
        return 1.0 if value >= 1 else 0.0
    scale = 10.0 ** math.floor(math.log10(value))
    rounded = next(step * scale for step in reversed(_STEPS) if step * scale <= value * (1 + 1e-12))
    return float(f"{rounded:.1g}")


def asked_of(audit: Audit) -> str:
    """Which query was asked of which databases, without names of files or exact counts of people."""
    n = audit.n_individuals
    scale = 10 ** math.floor(math.log10(n))
    most = math.ceil(n / scale) * scale
    query = shortened(" ".join(audit.query.split()), 160)
    unit = "" if audit.origin is None else f" (by {', '.join(map(visible, audit.origin.individual))})"
    return (
        f"{query} was asked of {words.databases(audit.results.n_databases)}, with everyone and without each of up to "
        f"{words.people(most)}{unit}."
    )


def _alarms(audit: Audit) -> tuple[str, ...]:
    if any(check.code == "exact-leak" for check in audit.checks):
        return ("EXACT LEAK: an outcome gives away for certain whether somebody is in the data.",)
    return ()


def _beside(audit: Audit) -> tuple[str, ...]:
    """What is known and the earlier releases that the figures take into account."""
    sentences = []
    if audit.against is not None:
        known = "; ".join(shortened(" ".join(text.split()), 120) for text in knows(audit.against.given))
        sentences.append(f"The figures are for readers who know this about each database: {known}.")
    if audit.composition is not None:
        sentences.append("The query was measured together with what was released before from the same databases.")
    return tuple(sentences)
