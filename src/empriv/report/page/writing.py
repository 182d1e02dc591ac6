"""Writing a report and what goes beside it: the key to the pseudonyms, figures as JSON, individuals as Parquet.

Files that hold people's influence have mode 0600; a page for publication has 0644 less the umask.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from empriv.auditing.audit import Audit
from empriv.auditing.deciding import verdicts_on
from empriv.auditing.ranking import names_of
from empriv.base.storage import write_atomically
from empriv.base.text import visible
from empriv.comparing.ways import Advice
from empriv.errors import InputError, MissingExtraError
from empriv.judge.noise_kernels import kernel_of
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.report.gather import Material, gather
from empriv.report.page.actions import actions_of, quick_advice, worst_first
from empriv.report.page.audit_page import page_of
from empriv.report.page.people_table import individuals_rows
from empriv.report.page.public import public_page
from empriv.report.page.rendering import page_path
from empriv.validate.covering import covered, has_moves
from empriv.words.decision import Covered, Decision

if TYPE_CHECKING:
    from empriv.judge.noise_kernels import NoiseKernel
    from empriv.validate.verdict import Verdict

KEY_VERSION = 1


@dataclass(frozen=True)
class Written:
    """Where each file is, None if it was not written; and the decision that the page says, unless it is public."""

    page: Path
    key: Path | None = None
    json: Path | None = None
    individuals: Path | None = None
    config: Path | None = None
    decision: Decision | None = None


def write_report(
    audit: Audit,
    path: str | PathLike[str],
    *,
    show_ids: bool = False,
    public: bool = False,
    epsilons: Iterable[float] | None = None,
    verdicts: Sequence[tuple[str, Verdict]] = (),
    noise: Noise | TableNoise | None = None,
    answers: bool = False,
    config: str | None = None,
    beside: bool = False,
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
    public : a version that may be published: no individuals, no results, coarse figures
    epsilons : where curves are measured; default: about 40, the epsilons asked for among them
    verdicts : each target in words, with its verdict, besides those of the audit itself
    noise : from `design_noise`, for this audit: the page is that of the answer with it
    answers : show the answers themselves, which a page leaves out unless it is asked for them
    config : the text of an audit.toml that repeats the run
    beside : write ``<name>.json``, ``<name>.individuals.parquet`` (needs pyarrow) and, with ``config``,
        ``<name>.toml`` beside the page
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
    if public:
        if show_ids or beside or answers or noise is not None:
            raise InputError(
                "`public` must not go with `show_ids`, `beside`, `noise` or `answers`, which show more than may be "
                "published."
            )
        text = public_page(
            audit, epsilons=epsilons, verdicts=verdicts, targets=targets_of(verdicts), title=title
        )  # fmt: skip
        write_atomically(target, text.encode("utf-8", "backslashreplace"), mode=0o644)
        return Written(target)
    salt = secrets.token_bytes(32) if salt is None else salt
    every_name = names_of(audit.results, None if show_ids else salt)
    if noise is not None and not verdicts:
        target_said = f"delta <= {noise.delta:g} at {noise.epsilon:g}"
        verdicts = [(target_said, audit.verdict(epsilon=noise.epsilon, delta=noise.delta))]
    day, kernel = hidden_by(audit, verdicts, noise)
    material = gather(
        audit, epsilons, names=every_name, targets=targets_of(verdicts), day=day, kernel=kernel, pseudonyms=not show_ids
    )
    labels, names = material.labels, material.names_listed or []
    key = None
    names_said = "By their identifiers."
    if not show_ids:
        key = target.with_suffix(".key.json")
        names_said = f"Names are pseudonyms of this report; {visible(key.name)} tells the controller who is who."
    judged = [verdict for _, verdict in verdicts]
    advice = quick_advice(audit, judged, noise=noise) if advice is None else advice
    decision = audit.decision(judged, noise=noise)
    actions = None if advice is None else actions_of(advice, audit.unit)
    text = page_of(
        material, names=names, names_said=names_said, decision=decision, verdicts=verdicts, advice=advice,
        actions=actions, noise=noise, answers=answers, config=config, title=title,
    )  # fmt: skip
    if key is not None:
        # first: a page whose key is lost cannot be read back
        facts = {"format": "empriv report key", "version": KEY_VERSION, "report": target.name, "salt": salt.hex()}
        write_atomically(key, _json({**facts, "individuals": dict(zip(names, labels, strict=True))}))
    write_atomically(target, text.encode("utf-8", "backslashreplace"))
    if not beside:
        return Written(target, key, decision=decision)
    figures, people = target.with_suffix(".json"), target.with_suffix(".individuals.parquet")
    shown = {**figures_of(material, verdicts), "decision": decision.to_json()}
    if advice is not None:
        shown["advice"] = advice.to_json()
    write_atomically(figures, _json(shown))
    _write_parquet(people, material, names)
    settings = None
    if config is not None:
        settings = target.with_suffix(".toml")
        write_atomically(settings, config.encode("utf-8", "backslashreplace"), mode=0o644)
    return Written(target, key, figures, people, settings, decision)


def hidden_by(
    audit: Audit, verdicts: Sequence[tuple[str, Verdict]], noise: Noise | TableNoise | None = None
) -> tuple[Covered | None, NoiseKernel | None]:
    """What the release hides of what people did: by the first verdict that says so, or with the noise."""
    if isinstance(noise, Noise) and noise.expected_error > 0 and audit.times == 1 and has_moves(audit.once):
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


def figures_of(material: Material, verdicts: Sequence[tuple[str, Verdict]] = ()) -> dict[str, Any]:
    """What ``<name>.json`` holds: `Audit.to_json`, the curves of the page, and the verdicts (schema.json)."""
    curves = material.curves
    out = material.audit.to_json()
    out["curves"] = [
        {
            "epsilon": float(material.epsilons[k]),
            "delta": float(curves.delta[k]),
            "total_risk": float(curves.total_risk[k]),
            "n_exposed": int(curves.n_exposed[k]),
            "lower": float(material.band["lower"][k]),
            "upper": float(material.band["upper"][k]),
            "total_risk_lower": float(material.band["total_risk_lower"][k]),
            "total_risk_upper": float(material.band["total_risk_upper"][k]),
        }
        for k in range(len(material.epsilons))
        if material.finite[k]
    ]
    if verdicts:
        out["verdicts"] = [{"target": text, **verdict.to_json()} for text, verdict in verdicts]
    return out


def _write_parquet(path: Path, material: Material, names: Sequence[str]) -> None:
    """The table of the page: a column of delta_i for each epsilon asked for."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    rows = individuals_rows(material, names)
    order = {name: k for k, name in enumerate(map(visible, map(str, names)))}
    position = [order[name] for name in rows["names"]]
    columns: dict[str, Any] = {"individual": rows["names"]}
    for k, epsilon in enumerate(material.epsilons):
        if epsilon in material.audit.epsilons:
            columns[f"delta_i at {epsilon:g}"] = rows["values"][:, k]
    columns["largest_influence"] = material.influence[material.rows][position]
    columns["databases"] = rows["databases"]
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(columns), sink)
    write_atomically(path, sink.getvalue().to_pybytes())


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + os.linesep).encode("utf-8", "backslashreplace")
