"""Writing a page, and the key to its pseudonyms beside it; both of mode 0600, since they are about people.

The page that may be published has the same decision, the mode 0644 less the umask, and no key. It must not tell who the
individuals are, what each of them does, any answer, or a figure so exact that two pages differ by what one individual
does. So it has no figure of the data but three: how many databases there are, how many individuals at most, and how
large the noise is at most, the last two rounded up to one digit.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from empriv.auditing.audit import Audit
from empriv.auditing.deciding import verdicts_on
from empriv.auditing.knowledge import known_to_readers
from empriv.auditing.summary import names_of
from empriv.base.storage import write_atomically
from empriv.base.text import shortened, visible
from empriv.comparing.ways import Advice
from empriv.errors import InputError
from empriv.judge.noise_kernels import kernel_of
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.report.actions import quick_advice, worst_first
from empriv.report.audit_page import SEVERITIES, page_of, title_of, unchecked
from empriv.report.gather import gather
from empriv.report.rendering import page_path, render
from empriv.validate.covers import covered, has_line_cover
from empriv.words.decision import KINDS, NO_TARGET, PUBLISH, WITH_NOISE, Covered, Decision, rows_of_one
from empriv.words.sentences import amount, listed, people

if TYPE_CHECKING:
    from empriv.judge.noise_kernels import NoiseKernel
    from empriv.validate.verdict import Verdict

KEY_VERSION = 1
_WHY = {
    PUBLISH: "The answer goes out as it is: what other people do hides each of them.",
    WITH_NOISE: "Random noise was added to the answer: with it, what other people do hides each of them.",
    NO_TARGET: "No target was given.",
}


@dataclass(frozen=True)
class Written:
    """Where the page is, and the key to its pseudonyms, None if it has none; and the decision that it says."""

    page: Path
    key: Path | None
    decision: Decision


def write_report(
    audit: Audit,
    path: str | PathLike[str],
    *,
    show_ids: bool = False,
    public: bool = False,
    verdicts: Sequence[tuple[str, Verdict]] = (),
    noise: Noise | TableNoise | None = None,
    answers: bool = False,
    title: str | None = None,
    advice: Advice | None = None,
    salt: bytes | None = None,
) -> Written:
    """Write an audit as one self-contained HTML page.

    Parameters
    ----------
    audit : what is reported
    path : of the page; must end in .html
    show_ids : show identifiers; else pseudonyms, with a key to them in ``<name>.key.json`` (mode 0600)
    public : write the page that may be published: the decision and what it promises, no individual and no answer
    verdicts : each target in words, with its verdict, besides those of the audit itself
    noise : from `design_noise`, for this audit: the page is that of the answer with it
    answers : show the answers themselves, which a page leaves out unless it is asked for them
    title : of the page; default: the query
    advice : from `advise`, what can be done; default, where there are ``verdicts``: what can be tried on the results
    salt : of the pseudonyms; default: a new one

    Returns
    -------
    Written

    Examples
    --------
    >>> from empriv.report import write_report
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> audit = empriv.audit(data, "avg(delay)", epsilon=0.1)
    >>> write_report(audit, "audit.html").key.name
    'audit.key.json'
    """
    target = page_path(path)
    own = verdicts_on(audit)
    said = {text for text, _ in own}
    verdicts = worst_first([*own, *(pair for pair in verdicts if pair[0] not in said)])
    if noise is not None and not verdicts:
        target_said = f"delta <= {noise.delta:g} at {noise.epsilon:g}"
        verdicts = [(target_said, audit.verdict(epsilon=noise.epsilon, delta=noise.delta))]
    judged = [verdict for _, verdict in verdicts]
    decision = audit.decision(judged, noise=noise)
    if public:
        if show_ids or answers:
            raise InputError(
                "`public` must not go with `show_ids` or `answers`, which show more than may be published."
            )
        text = public_page(audit, decision, verdicts, noise=noise, title=title)
        write_atomically(target, text.encode("utf-8", "backslashreplace"), mode=0o644)
        return Written(target, None, decision)
    salt = secrets.token_bytes(32) if salt is None else salt
    every_name = names_of(audit.results, None if show_ids else salt)
    day, kernel = hidden_by(audit, verdicts, noise)
    material = gather(
        audit, names=every_name, targets=targets_of(verdicts), day=day, kernel=kernel, pseudonyms=not show_ids
    )
    key = None
    names_said = "By their identifiers."
    if not show_ids:
        key = target.with_suffix(".key.json")
        names_said = f"Names are pseudonyms of this report; {visible(key.name)} tells the controller who is who."
    advice = quick_advice(audit, judged, noise=noise) if advice is None else advice
    text = page_of(
        material, names_said=names_said, decision=decision, verdicts=verdicts, advice=advice, noise=noise,
        answers=answers, title=title,
    )  # fmt: skip
    if key is not None:
        # first: a page whose key is lost cannot be read back
        facts = {"format": "empriv report key", "version": KEY_VERSION, "report": target.name, "salt": salt.hex()}
        facts["individuals"] = dict(zip(material.names_listed or [], material.labels, strict=True))
        content = json.dumps(facts, indent=1, ensure_ascii=False) + os.linesep
        write_atomically(key, content.encode("utf-8", "backslashreplace"))
    write_atomically(target, text.encode("utf-8", "backslashreplace"))
    return Written(target, key, decision)


def hidden_by(
    audit: Audit, verdicts: Sequence[tuple[str, Verdict]], noise: Noise | TableNoise | None = None
) -> tuple[Covered | None, NoiseKernel | None]:
    """What the release hides of what people did: by the first verdict that says so, or with the noise."""
    if isinstance(noise, Noise) and noise.expected_error > 0 and audit.times == 1 and has_line_cover(audit.once):
        kernel = kernel_of(noise)[0]
        level = verdicts[0][1].level if verdicts else 0.95
        return covered(audit.once, noise.epsilon, noise.delta, noise=noise, level=level), kernel
    return next((verdict.day for _, verdict in verdicts if verdict.day is not None), None), None


def targets_of(verdicts: Sequence[tuple[str, Verdict]]) -> tuple[tuple[float, float], ...]:
    """Pairs of epsilon and the delta that is allowed there."""
    return tuple(
        (verdict.epsilon, target.limit)
        for _, verdict in verdicts
        for target in verdict.targets
        if target.name == "delta"
    )


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
