"""Files for the record: a section of a data protection impact assessment, and an entry of a public registry.

Both say what the page says, from the same decision and verdicts. The section is for the file of the controller; the
entry is public, so that it holds the target and the promise, and no figure of the data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from empriv.auditing.knowledge import known_to_readers
from empriv.base.text import visible
from empriv.errors import InputError
from empriv.report.audit_page import unchecked
from empriv.validate.verdict import FAIL, PASS, UNRESOLVED
from empriv.words.decision import DAY, NOT, PUBLISH, WITH_NOISE, Decision, JudgedTarget, rows_of_one
from empriv.words.sentences import listed, number, percent

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.noise.noise import Noise
    from empriv.noise.table_noise import TableNoise
    from empriv.validate.verdict import Verdict

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~])")
_TO_FILL = "to be filled in"
TO_FILL = "TO BE FILLED IN"
"""What stands in an entry of a registry where the curator has something to say."""
CURATORS = ("Government", "Industry", "Nonprofit")
"""Kinds of curators that the registry knows."""


@dataclass(frozen=True)
class Accepted:
    """Who answers for the release.

    Attributes
    ----------
    review : the date by which it is looked at again
    exception : why something that is not a pass is accepted
    checker : who checked it
    command : that repeats the judgement
    """

    review: str = ""
    exception: str = ""
    checker: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        if self.review:
            try:
                date.fromisoformat(self.review)
            except ValueError:
                raise InputError(f"`review` must be a date such as 2030-01-31, got {self.review!r:.40}.") from None


@dataclass(frozen=True)
class Section:
    """A heading, sentences, and a table if there is one."""

    title: str
    said: tuple[str, ...]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def impact_assessment(
    audit: Audit,
    verdicts: Sequence[tuple[str, Verdict]],
    *,
    noise: Noise | TableNoise | None = None,
    accepted: Accepted | None = None,
) -> tuple[Section, ...]:
    """The section of an impact assessment on this release.

    Parameters
    ----------
    audit : of the answer
    verdicts : each target in words, with its verdict
    noise : that is released with the answer
    accepted : who answers for it

    Examples
    --------
    >>> from empriv.report.export import impact_assessment, markdown_of
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 120)
    >>> audit = empriv.audit(empriv.Results.from_arrays(q, [q - 0.1]), epsilon=0.1)
    >>> sections = impact_assessment(audit, [("delta <= 0.2 at 0.1", audit.verdict(epsilon=0.1, delta=0.2))])
    >>> print(markdown_of(sections).splitlines()[0])
    ## Publication of an answer: decision
    """
    accepted = Accepted() if accepted is None else accepted
    made = audit.decision([verdict for _, verdict in verdicts], noise=noise)
    nouns = audit.nouns
    leaks = [check.sentence for check in audit.checks if check.code == "exact-leak" and check.severity == "error"]
    often = "one publication" if audit.times == 1 else f"{audit.times:,} publications"
    earlier = 0 if audit.composition is None else len(audit.composition.entries)
    before = f", together with {earlier:,} earlier releases" if earlier else ""
    return (
        Section("Publication of an answer: decision", (f"{made.line}.", made.reason, made.beyond, made.promise)),
        Section(
            "Readers, and what they can learn", (),
            ("Reader", "Knows", "Figure", "Verdict"), tuple(_readers(audit, verdicts, made, noise)),
        ),
        Section(
            "Singling out, linkability, inference",
            (
                "Singling out: " + (leaks[0] if leaks else "no outcome gives anybody away for certain."),
                f"Linkability: {often} of this answer{before}; answers of other queries are not counted.",
                f"Inference: {made.promise or 'nothing is promised, since it is not to be published so.'}",
            ),
        ),
        Section("What was not considered", unchecked(audit)),
        Section(
            "Validity and review",
            (made.condition, f"To be reviewed by: {accepted.review or _TO_FILL}.",
             "Sooner, if the kind of data, the query or what readers know changes."),
        ),
        Section(
            "Exception and checker",
            (
                f"Reason for accepting what is not a pass: {accepted.exception or _exception(made)}",
                f"Checked by: {accepted.checker or _TO_FILL}.",
            ),
        ),
        Section(
            "For the record",
            (
                f"Query: {' '.join(audit.query.split())}",
                f"Data: {nouns.databases(audit.n_databases)}, {audit.n_individuals:,} individuals.",
                f"Fingerprint of the results: {audit.results.digest[:32]}",
                f"Made by empriv {version('empriv')} on {date.today().isoformat()}.",
                *([f"Command: {accepted.command}"] if accepted.command else []),
            ),
        ),
    )  # fmt: skip


def _exception(made: Decision) -> str:
    return "none is needed." if made.word == PUBLISH else f"{_TO_FILL}."


def _readers(
    audit: Audit, verdicts: Sequence[tuple[str, Verdict]], made: Decision, noise: Noise | TableNoise | None
) -> Iterator[tuple[str, ...]]:
    """A row for each target and each reader; with noise, what the noise keeps."""
    nouns = audit.nouns
    known = listed(known_to_readers(audit.measured_against)) if known_to_readers(audit.measured_against) else "nothing"
    for text, verdict in verdicts:
        for target in verdict.judged:
            on_the_day = target.where == DAY
            who = f"One who knows that {nouns.one} was there" if on_the_day else "One who does not know who was there"
            knows = f"{known}; {rows_of_one(nouns)}" if on_the_day else known
            yield who, knows, f"{_figure(target, verdict.level)} ({text})", _outcome(target, verdict)
    if noise is not None:
        figure = f"delta at most {number(noise.achieved_delta())} (delta <= {noise.delta:g} at {noise.epsilon:g})"
        yield "The same, of the answer with noise", known, figure, UNRESOLVED if made.word == NOT else PASS


def _figure(target: JudgedTarget, level: float) -> str:
    name = target.name.replace("_", " ")
    if target.upper >= 1:
        return f"{name} at least {number(target.lower)}, no upper bound"
    return f"{name} at most {number(target.upper)}, {percent(level)} confidence"


def _outcome(target: JudgedTarget, verdict: Verdict) -> str:
    """Of one target and reader, by the verdict's own rule; a check that rules out a pass leaves it open."""
    if target.lower > target.limit:
        return FAIL
    open_ = target.upper > target.limit or any(check.severity == "error" for check in verdict.checks)
    return UNRESOLVED if open_ else PASS


def markdown_of(sections: Sequence[Section]) -> str:
    """Sections as Markdown in which text from data is no markup."""
    lines: list[str] = []
    for section in sections:
        lines += [f"## {_plain(section.title)}", ""]
        for sentence in filter(None, section.said):
            lines += [_plain(sentence), ""]
        if section.rows:
            lines += [_row(section.columns), _row(["---"] * len(section.columns), escaped=False)]
            lines += [*map(_row, section.rows), ""]
    return "\n".join(lines)


def _row(cells: Sequence[str], *, escaped: bool = True) -> str:
    return f"| {' | '.join(map(_plain, cells) if escaped else cells)} |"


def _plain(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", visible(" ".join(text.split())))


def html_of(sections: Sequence[Section]) -> str:
    """Sections as a piece of HTML without style or script, to be pasted into a document."""
    parts: list[str] = []
    for section in sections:
        parts.append(f"<h2>{_safe(section.title)}</h2>")
        parts += [f"<p>{_safe(sentence)}</p>" for sentence in filter(None, section.said)]
        if section.rows:
            head = "".join(f'<th scope="col">{_safe(name)}</th>' for name in section.columns)
            rows = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in section.rows)
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    return "<section>\n" + "\n".join(parts) + "\n</section>\n"


def _safe(text: str) -> str:
    return escape(visible(text))


def registry_entry(
    audit: Audit,
    verdicts: Sequence[tuple[str, Verdict]],
    *,
    curator_type: str,
    noise: Noise | TableNoise | None = None,
) -> dict[str, Any]:
    """An entry of OpenDP's registry of deployments, of the variant ``Custom`` with its relation stated.

    It is public: it holds the target and the promise, and no figure of the data. What only the curator knows is marked
    `TO_FILL`; `to_fill` lists where. A target that is not met by what is published is refused.

    Parameters
    ----------
    audit : of the answer
    verdicts : each target in words, with its verdict
    curator_type : of whoever publishes, one of `CURATORS`
    noise : that is released with the answer
    """
    if not verdicts:
        raise InputError("`verdicts` must hold a target on delta: an entry states what is promised.")
    if curator_type not in CURATORS:
        raise InputError(f"`curator_type` must be one of {', '.join(CURATORS)}, got {curator_type!r:.40}.")
    text, verdict = verdicts[0]
    made = audit.decision([judged for _, judged in verdicts], noise=noise)
    if made.word not in (PUBLISH, WITH_NOISE):
        raise InputError(
            f"The target {text!r} must be met for an entry, got: {made.line}. Hint: --noise, with noise that keeps it."
        )
    limit = next((target.limit for target in verdict.targets if target.name == "delta"), None)
    if limit is None:
        raise InputError("`verdicts` must hold a target on delta: an entry states epsilon and delta.")
    nouns = audit.nouns
    individual, database = nouns.individual or "person", nouns.database or "database"
    known = known_to_readers(audit.measured_against)
    query = visible(" ".join(audit.query.split()))
    many = audit.times > 1
    return {
        "url_slug": "-".join(re.findall("[a-z0-9]+", query.lower()))[:60].strip("-") or "answer",
        "deployment": {
            "basic": {
                "name": query[:80],
                "data_curators": [{"data_curator_name": TO_FILL, "data_curator_type": curator_type}],
                "description": f"{query}, of each {database}.",
                "intended_use": TO_FILL,
                "data_product_type": "Summary statistics",
                "data_product_region": TO_FILL,
                "publication_date": date.today().isoformat(),
            },
            "dp_variant": {
                "variant_name": "Custom",
                "data_domain": f"{database.capitalize()}s of rows of one {individual} each, of one kind.",
                "unprotected_quantities": "Bounds and noise were found on the data themselves, and are not private.",
            },
            "privacy_loss": {
                "privacy_unit": f"{individual}-{database}",
                "privacy_unit_details": f"Input metric: one {individual} present in the data of a {database}, or "
                f"absent from it, with all their rows there. Bound on the input distance: 1.",
                "privacy_parameters": {"epsilon": verdict.epsilon, "delta": limit},
                "privacy_parameters_details": (
                    "Output measure: hockey-stick divergence between the law of the published answer with and without "
                    f"the {individual}'s rows; the law is over {database}s like those audited"
                    + (" and the noise" if noise is not None else "")
                    + ", and not over worst-case data (empirical differential privacy, (epsilon, delta)_i). "
                    f"Bound on the output distance: delta {limit:g} at epsilon {verdict.epsilon:g}, certain to "
                    f"{percent(verdict.level)}. {made.promise}"
                ).strip(),
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": "A controller holds the rows, and publishes the answer.",
                "trust_assumptions": "The controller is trusted. Readers are not; they may know "
                + (listed(known) if known else "nothing else")
                + f", and {rows_of_one(audit.nouns)}.",
                "release_type": "Many releases" if many else "One release",
                "release_type_details": f"{audit.times:,} publications, each from a {database} of its own.",
                "data_source_type": "Dynamic" if many else "Static",
                "data_source_type_details": f"A further {database} has data of its own.",
                "access_type": "Non-interactive",
                "access_type_details": "The answer is published.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "The query was run with everyone and without each "
                f"{individual}, and the laws of its answers were compared. That is not accounted for.",
                "mechanisms": f"{_mechanism(noise)} Made by empriv {version('empriv')}.",
                "composition": f"{audit.times:,} publications of this answer are counted; other releases are not.",
                "post_processing": "None.",
                "justification": f"The target was chosen by the controller. {TO_FILL}",
            },
            "administrative": {"status": "Draft", "registry_authors": [TO_FILL], "tier": 3},
        },
    }


def to_fill(content: Any, path: str = "") -> list[str]:
    """Where an entry has something to be filled in, such as ``deployment.basic.intended_use``."""
    if isinstance(content, Mapping):
        return [found for key, value in content.items() for found in to_fill(value, f"{path}.{key}".lstrip("."))]
    if isinstance(content, list):
        return [found for member in content for found in to_fill(member, path)]
    return [path] if isinstance(content, str) and TO_FILL in content else []


def _mechanism(noise: Noise | TableNoise | None) -> str:
    if noise is None:
        return "None: the answer varies enough by itself."
    laws = getattr(noise, "laws", None)
    words = noise.law.words if laws is None else next(iter(laws.values())).words  # type: ignore[union-attr]
    return f"Noise added to the answer: {words.rstrip('.')}."


def yaml_of(content: Mapping[str, Any]) -> str:
    """YAML whose texts are quoted as JSON quotes them, which YAML reads."""
    return "\n".join(_yaml(content, 0)) + "\n"


def _yaml(content: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, value in content.items():
        indent = "  " * depth
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml(value, depth + 1)
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            for member in value:
                first, *rest = _yaml(member, depth + 2) if isinstance(member, Mapping) else [_quoted(member)]
                yield f"{indent}  - {first.strip()}"
                yield from rest
        else:
            yield f"{indent}{key}: {_quoted(value)}"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)
