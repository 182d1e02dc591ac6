"""The page that may be published: what was asked, the decision of the page inside, and the promise.

It must not tell who the individuals are, what each of them does, any answer, or a figure so exact that two pages differ
by what one individual does. So it has no figure of the data but three: how many databases there are, how many
individuals at most, and how large the noise is at most, the last two rounded up to one digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from empriv.auditing.audit import Audit
from empriv.auditing.knowledge import known_to_readers
from empriv.base.text import shortened, visible
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.report.page.audit_page import SEVERITIES, title_of, unchecked
from empriv.report.page.rendering import render
from empriv.words.decision import KINDS, NO_TARGET, PUBLISH, WITH_NOISE, Decision, rows_of_one
from empriv.words.sentences import amount, listed, people

if TYPE_CHECKING:
    from empriv.validate.verdict import Verdict

_WHY = {
    PUBLISH: "The answer goes out as it is: what other people do hides each of them.",
    WITH_NOISE: "Random noise was added to the answer: with it, what other people do hides each of them.",
    NO_TARGET: "No target was given.",
}


def public_page(
    audit: Audit,
    decision: Decision,
    verdicts: Sequence[tuple[str, Verdict]] = (),
    *,
    noise: Noise | TableNoise | None = None,
    title: str | None = None,
) -> str:
    """The page to publish, of the release that ``decision`` is about."""
    why = _WHY.get(decision.word, "The answer does not hide everybody as it was audited.")
    if decision.word == WITH_NOISE and isinstance(noise, Noise):
        why = f"{why} It is ±{amount(rounded_up(noise.expected_error), audit.unit)} or less on average."
    known = listed([*map(visible, known_to_readers(audit.against)), rows_of_one(audit.nouns)])
    content = {
        "title": title_of(audit, title),
        "asked": asked_of(audit),
        "decision": decision.word,
        "decision_kind": KINDS.get(decision.word, "open"),
        "why": why,
        "promise": decision.promise,
        "targets": [(visible(text), _met(decision, str(verdict))) for text, verdict in verdicts],
        "holds": f"Holds for {audit.nouns.database or 'database'}s like these, and readers who may know {known}.",
        "checks": [(check.title, SEVERITIES[check.severity]) for check in audit.checks],
        "unchecked": unchecked(audit),
        "made_by": f"empriv {version('empriv')}",
    }
    return render("public.html", content, {"hover": {}, "width": 0})


def asked_of(audit: Audit) -> str:
    """Which query was asked of which databases, without names of files or exact counts of people."""
    query = shortened(" ".join(audit.query.split()), 160)
    by = "" if audit.origin is None else f" (by {', '.join(map(visible, audit.origin.individual))})"
    everyone = people(int(rounded_up(audit.n_individuals)))
    return (
        f"{visible(query)} was asked of {audit.nouns.databases(audit.n_databases)}, with everyone and without each of "
        f"up to {everyone}{by}."
    )


def rounded_up(value: float) -> float:
    """The next number of one digit: 193 becomes 200."""
    if not math.isfinite(value) or value <= 0:
        return value
    scale = 10.0 ** math.floor(math.log10(value))
    return math.ceil(value / scale * (1 - 1e-12)) * scale


def _met(decision: Decision, verdict: str) -> str:
    """What is said of a target, of the answer that goes out."""
    if decision.word == WITH_NOISE:
        return "met, with the noise"
    return {"pass": "met", "fail": "not met"}.get(verdict, "cannot be told")
