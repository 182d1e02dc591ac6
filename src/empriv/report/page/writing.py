"""Writing a page, and the key to its pseudonyms beside it; both of mode 0600, since they are about people.

The page that may be published has the same decision, the mode 0644 less the umask, and no key.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from empriv.auditing.audit import Audit
from empriv.auditing.deciding import verdicts_on
from empriv.auditing.summary import names_of
from empriv.base.storage import write_atomically
from empriv.base.text import visible
from empriv.comparing.ways import Advice
from empriv.errors import InputError
from empriv.judge.noise_kernels import kernel_of
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.report.gather import gather
from empriv.report.page.actions import actions_of, quick_advice, worst_first
from empriv.report.page.audit_page import page_of
from empriv.report.page.public import public_page
from empriv.report.page.rendering import page_path
from empriv.validate.covers import covered, has_line_cover
from empriv.words.decision import Covered, Decision

if TYPE_CHECKING:
    from empriv.judge.noise_kernels import NoiseKernel
    from empriv.validate.verdict import Verdict

KEY_VERSION = 1


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
    labels, names = material.labels, material.names_listed or []
    key = None
    names_said = "By their identifiers."
    if not show_ids:
        key = target.with_suffix(".key.json")
        names_said = f"Names are pseudonyms of this report; {visible(key.name)} tells the controller who is who."
    advice = quick_advice(audit, judged, noise=noise) if advice is None else advice
    actions = None if advice is None else actions_of(advice, audit.unit)
    text = page_of(
        material, names=names, names_said=names_said, decision=decision, verdicts=verdicts, advice=advice,
        actions=actions, noise=noise, answers=answers, title=title,
    )  # fmt: skip
    if key is not None:
        # first: a page whose key is lost cannot be read back
        facts = {"format": "empriv report key", "version": KEY_VERSION, "report": target.name, "salt": salt.hex()}
        write_atomically(key, _json({**facts, "individuals": dict(zip(names, labels, strict=True))}))
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


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + os.linesep).encode("utf-8", "backslashreplace")
