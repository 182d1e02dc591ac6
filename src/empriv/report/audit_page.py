"""The page of one release: may I publish, what do I do, what does it cost, who is beyond? The proof is folded.

The first screen has the decision in words and one picture. The decision and all sentences come from `words`, as in the
terminal; charts from `charts`; figures from `gather`. With noise the page is that of the noisy answer.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.audit import Audit
from empriv.auditing.deciding import typical_answer
from empriv.auditing.summary import Figure, figure_sentence, tail_sentence, with_validity
from empriv.base.text import shortened, visible
from empriv.comparing.ways import Advice
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.report.actions import actions_of, instead_of
from empriv.report.charts.all_charts import AGAIN, CHARTS, FIRST, TABLE, chart, charts_of
from empriv.report.charts.chart import Chart
from empriv.report.gather import MOST_LISTED, Material, gather
from empriv.report.rendering import (
    label,
    payload_of,
    picture_of,
    render,
    render_part,
    safe_svg,
)
from empriv.results import Results
from empriv.validate.covers import has_line_cover, line_cover_of
from empriv.words.decision import KINDS, PUBLISH, Decision
from empriv.words.sentences import amount, cells_in_words, databases, number, people, percent

if TYPE_CHECKING:
    from empriv.validate.verdict import Verdict

_ASKED = ("epsilon", "delta, lower bound", "delta, estimate", "delta, upper bound", "total risk", "exposed")
SEVERITIES = {"error": "problem", "warning": "be wary", "info": "fine"}
INSIDE = "Keep this page inside your organisation."
_SHOWN_COUNTS = (1, 7, 30, 365)
_MOST_NUMBERS = 6  # of several, whose noise is listed
_UNCHECKED = (
    "Individuals who were never in these databases and behave like nobody in them.",
    "Future databases, if they are not of the same kind as these.",
    "Groups of individuals, such as families: each individual is protected alone.",
    "Ways around the result, such as errors, timing, or access to the data itself.",
)


def page_of(
    material: Material,
    *,
    names_said: str,
    decision: Decision,
    verdicts: Sequence[tuple[str, Verdict]] = (),
    advice: Advice | None = None,
    noise: Noise | TableNoise | None = None,
    answers: bool = False,
    title: str | None = None,
) -> str:
    """The page of one release; ``advice`` is what can be done, and ``names_said`` what its names are."""
    audit = material.audit
    summary = with_validity(audit, audit.summary())
    drawn = {made.name: made for made in charts_of(material, answers=answers)}
    picture = next(drawn[name] for name in (TABLE, FIRST, AGAIN, "delta") if name in drawn and _is_first(name, audit))
    # what may not be published once has no place in a series
    once = audit.times == 1 and KINDS.get(decision.word) == "stop"
    again = None if once else again_with(noise) if noise is not None else again_of(material, drawn.get(AGAIN), picture)
    alarms = [alarm for alarm in summary.alarms if alarm != decision.reason]
    warnings = [visible(warning) for warning in summary.warnings if warning != decision.reason]
    said = {decision.reason, *warnings}
    said_elsewhere = said | {check.sentence for check in audit.checks}
    tail = [tail_sentence(audit.epsilon(0.0))] if audit.measured.tells_epsilon(0.0) else []
    actions = [] if advice is None else actions_of(advice, audit.unit)
    notes = (*summary.notes, *tail, *(() if noise is None else noise.notes))
    instead, costs = instead_of(decision, advice, audit)
    content = {
        "title": title_of(audit, title),
        "asked": visible(header_of(audit)),
        "inside": INSIDE,
        "decision": decision,
        "decision_kind": KINDS.get(decision.word, "open"),
        "instead": f"{instead} Sign the page of that answer, not this one." if costs else instead,
        "way": costs,
        "beyond": "" if costs else decision.beyond,
        "small": small_print(decision, audit, costs=costs),
        "warned": "Read the warnings before signing." if warnings and not instead else "",
        "alarms": alarms,
        "verdicts": [
            (visible(text), {"word": str(verdict), "sentence": verdict.sentence,
                             "reasons": [reason for reason in verdict.reasons if reason not in said]})
            for text, verdict in verdicts
        ],
        "picture": picture_of(picture),
        "noise": None if noise is None else noise_said(noise, audit.alone),
        "actions": actions,
        "people": people_beyond(material, material.names_listed or []),
        "names_said": names_said,
        "again": again,
        "warnings": warnings,
        "at": figures_at(material),
        "asked_columns": _ASKED,
        "asked_rows": asked_rows(material),
        "notes": [note for note in notes if note not in said_elsewhere],
        "unchecked": unchecked(audit),
        "checks": [
            {"title": c.title, "severity": c.severity, "mark": SEVERITIES[c.severity],
             "sentence": "Among the warnings." if c.sentence in said else c.sentence}
            for c in audit.checks
        ],
        "charts": [picture_of(made) for name, made in drawn.items() if made is not picture and name != AGAIN],
        "record": record_of(audit, verdicts),
        "commands": [(row["action"], row["command"]) for row in actions if row["command"]],
    }  # fmt: skip
    return render("page.html", content, payload_of(list(drawn.values())))


def _is_first(name: str, audit: Audit) -> bool:
    """Whether a chart is what the first screen shows: publishing again, for a series alone."""
    return name != AGAIN or audit.times > 1


def title_of(audit: Audit, title: str | None) -> str:
    """The page's title: as given, or the query and how often its answer is published."""
    if title is not None:
        return visible(title)
    query = "this answer" if audit.results.components is None else "this table"
    if _is_expression(audit):
        query = shortened(" ".join(audit.query.split()), 80)
    often = "" if audit.times == 1 else f" {audit.times:,} times"
    return visible(f"May {query} be published{often}?")


def header_of(audit: Audit) -> str:
    """Of how many databases and individuals it is."""
    nouns = audit.nouns
    called = f" ({nouns.individual})" if nouns.individual else ""
    query = (
        "" if audit.origin is None or _is_expression(audit) else f"{shortened(' '.join(audit.query.split()), 160)}; "
    )
    return f"{query}{nouns.databases(audit.n_databases)}, {audit.n_individuals:,} individuals{called}."


def _is_expression(audit: Audit) -> bool:
    """Whether the query is short enough for a title: an expression such as avg(delay)."""
    return audit.origin is not None and not audit.query.lstrip(" (").lower().startswith(("select", "with"))


def small_print(decision: Decision, audit: Audit, *, costs: bool) -> str:
    """What a decision rests on, and when to refuse, for small letters."""
    said = [decision.beyond] if costs else []
    days = f"{audit.nouns.database or 'database'}s"
    if decision.word == PUBLISH:
        said.append(f"The exact answer may go out: {days} differ anyway, which hides small moves.")
    said += [decision.promise, decision.condition]
    if KINDS.get(decision.word) in ("publish", "change"):
        said.append(f"Refuse to sign if {days} to come will not be like these, or readers know more.")
    return " ".join(filter(None, said))


def noise_said(noise: Noise | TableNoise, audit: Audit) -> dict[str, Any]:
    """What the noise does to each number: its law in words, and a row for each."""
    laws = {"": noise.law} if isinstance(noise, Noise) else dict(noise.laws)
    said = list(dict.fromkeys(law.words for law in laws.values()))
    law_said = said[0] if len(said) == 1 else (
        f"Each of {len(laws):,} numbers gets noise of its own; that of the first: {said[0]}"
    )  # fmt: skip
    rows = []
    for name, law in list(laws.items())[:_MOST_NUMBERS]:
        typical = typical_answer(audit.results if not name else audit.results.component(name))
        share = law.expected_error / typical if typical > 0 else np.nan
        errors = (law.expected_error, law.quantile(0.95), law.quantile(0.995))
        rows.append(
            (
                shortened(name, 60) or "the answer", *(f"±{amount(error, audit.unit)}" for error in errors),
                amount(typical, audit.unit), percent(share) if np.isfinite(share) else "unknown",
            )
        )  # fmt: skip
    columns = ("Number", "Errs by, on average", "90% within", "99% within", "Typical answer", "Share of it")
    return {"law": law_said, "columns": columns, "rows": rows}


def again_of(material: Material, made: Chart | None, first: Chart | None = None) -> dict[str, Any] | None:
    """What publishing again reveals: sentences, rows of a small table, and the chart unless it is shown elsewhere;
    None for a kind of risk that has no such figures."""
    if made is None:
        return None
    audit = material.audit
    counts = list(made.data["publications"])
    places = [counts.index(count) for count in sorted({*_SHOWN_COUNTS, audit.times}) if count in counts]
    rows = [
        (f"{counts[k]:,}", number(float(made.data["estimate"][k])), number(float(made.data["upper figure"][k])))
        for k in places
    ]
    often = [audit.how_often(epsilon=at, delta=delta).sentence for at, delta in material.targets if np.isfinite(at)]
    said = [f"As it is: {sentence[0].lower()}{sentence[1:]}" for sentence in dict.fromkeys(often)]
    return {"said": said, "rows": rows, "chart": None if made is first else picture_of(made)}


def again_with(noise: Noise | TableNoise) -> dict[str, Any] | None:
    """How often the answer with this noise may be published; nothing is known of several numbers."""
    often = noise.how_often().sentence if isinstance(noise, Noise) and noise.delta > 0 else ""
    return {"said": [often], "rows": [], "chart": None} if often else None


def record_of(audit: Audit, verdicts: Sequence[tuple[str, Verdict]]) -> list[tuple[str, str]]:
    """What makes the page accountable: what was asked of which data, by what, and when it was judged."""
    results, origin = audit.results, audit.origin
    span = f"{databases(results.n_databases)}, {results.databases[0]} to {results.databases[-1]}"
    people_said = people(audit.n_individuals)
    rows = [("Asked", audit.summary([audit.epsilons[0]]).asked), ("Query", " ".join(audit.query.split()))]
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
    """Figures at the page's epsilon, in words."""
    curves, k, epsilon = material.curves, material.start, material.epsilon
    figure = Figure(epsilon, float(curves.delta[k]), float(curves.total_risk[k]), int(curves.n_exposed[k]))
    return {
        "epsilon": label(epsilon),
        "likelier": "any number of times" if epsilon > 20 else f"{math.exp(epsilon):.3g} times",
        "sentence": figure_sentence(figure, material.audit.times),
    }


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
    """What a notebook shows of an audit: the terminal's words, its table, and how far each individual moved the answer.

    Examples
    --------
    >>> from empriv.report import notebook_html
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> audit = empriv.audit(data, "avg(delay)", epsilon=0.1)
    >>> notebook_html(audit)[:5]
    '<div>'
    """
    summary = with_validity(audit, audit.summary())
    made = audit.decision()
    n = audit.n_individuals
    picture = "moves" if CHARTS["moves"](gather(audit)) is not None else "delta"
    return render_part(
        "notebook.html",
        line=made.line,
        sentences=made.sentences,
        asked=visible(summary.asked),
        alarms=summary.alarms,
        rows=[
            (
                f"{f.epsilon:g}", number(f.delta, 3), number(f.total_risk, 3), f"{f.n_exposed:,} of {n:,}",
            )
            for f in summary.figures
        ],
        warnings=[visible(warning) for warning in summary.warnings],
        notes=summary.notes,
        picture=safe_svg(chart(audit, picture)),
    )  # fmt: skip


def people_beyond(material: Material, names: Sequence[str]) -> dict[str, Any]:
    """Who moved the answer furthest, by their moves where these are known, else by delta_i at the page's epsilon.

    The title, what is said above the small table, its heads, and a row for each. Names are those given, which are
    pseudonyms unless somebody asked for identifiers.
    """
    return _by_moves(material, names) if has_line_cover(material.audit.once) else _by_delta(material, names)


def _by_moves(material: Material, names: Sequence[str]) -> dict[str, Any]:
    audit, nouns = material.audit, material.audit.nouns
    line = line_cover_of(audit.once, material.kernel)
    moves, labels = line.all_moves, line.databases
    worst = moves.worst[material.rows]
    size = np.where(worst >= 0, moves.relative[worst], 0.0) if len(moves.sizes) else np.zeros(len(worst))
    order = np.lexsort((np.asarray(names, dtype=str), -size))
    shown = [int(k) for k in order[:MOST_LISTED] if size[k] > 0]
    presence = audit.results.presence[material.rows]
    cover = None if material.day is None else material.day.in_residuals
    rows = []
    for k in shown:
        place = int(worst[k])
        by = "an answer or none" if math.isinf(moves.sizes[place]) else amount(float(moves.sizes[place]), audit.unit)
        hidden = [] if cover is None else [amount(cover * float(moves.units[place]), audit.unit)]
        day = shortened(visible(str(labels[moves.database[place]])), 40)
        rows.append((visible(str(names[k])), by, *hidden, day, f"{int(presence[k]):,} of {audit.n_databases:,}"))
    beyond = 0 if material.day is None else material.day.people_beyond
    heads = (
        (nouns.individual or "Individual").capitalize(), "Moved the answer by",
        *([] if cover is None else ["Hidden there up to"]), f"On {nouns.database or 'database'}",
        f"Is in {nouns.database or 'database'}s",
    )  # fmt: skip
    if material.day is None or not beyond:
        said = "Nobody is beyond what the answer hides; these come nearest." if material.day is not None else ""
        said = said if rows else "Nobody moved the answer."
        return {"title": "Who moved it furthest", "said": said, "heads": heads, "rows": rows}
    listed = f" The {len(rows)} whom it hides least:" if beyond > len(rows) else ""
    where = nouns.database or "database"
    said = f"{beyond:,} of {audit.n_individuals:,} moved the answer by more than it hides, on some {where}.{listed}"
    return {"title": "Who is beyond", "said": said, "heads": heads, "rows": rows}


def _by_delta(material: Material, names: Sequence[str]) -> dict[str, Any]:
    """Of several numbers, of a series and of people measured in chunks."""
    audit, nouns = material.audit, material.audit.nouns
    delta = material.delta_i[material.rows]
    size = np.where(np.isnan(material.influence), np.inf, material.influence)[material.rows]
    order = np.lexsort((np.asarray(names, dtype=str), -size, -delta))
    presence = audit.results.presence[material.rows]
    rows = tuple(
        (
            visible(str(names[k])), number(float(delta[k]), 2),
            _influence(audit.results, int(material.rows[k]), float(material.influence[material.rows[k]]), audit.unit),
            f"{int(presence[k]):,} of {audit.n_databases:,}",
        )
        for k in order[:MOST_LISTED]
        if delta[k] > 0
    )  # fmt: skip
    where = nouns.database or "database"
    heads = (
        (nouns.individual or "Individual").capitalize(), f"delta in a random {where}", "Moves the answer by up to",
        f"Is in {where}s",
    )  # fmt: skip
    said = "" if rows else f"On a random {where}, nobody's privacy is seen to fail at epsilon {material.epsilon:.4g}."
    return {"title": "Who is most exposed", "said": said, "heads": heads, "rows": rows}


def _influence(results: Results, row: int, influence: float, unit: str) -> str:
    """By how much leaving somebody out changes the answer; of several numbers, the one that they move most."""
    if results.components is None:
        return "a number or not" if math.isnan(influence) else amount(influence, unit)
    here = slice(int(results.starts[row]), int(results.starts[row + 1]))
    databases, count = results.entry_database[here], len(results.components)
    names = results.components if results.cells is None else cells_in_words(results.cells)
    flips = results.entry_outcomes[here] != results.outcomes[databases]
    if flips.any():
        where = int(np.argmax(flips.reshape(-1, count).any(axis=0)))
        return f"a number or not in {shortened(str(names[where]), 40)}"
    change = np.abs(results.entry_q[here] - results.q[databases]).reshape(-1, count)
    change = np.where(np.isfinite(change), change, 0.0).max(axis=0, initial=0.0)
    answers = results.q.reshape(-1, count)
    spread = np.array(
        [np.ptp(column[np.isfinite(column)]) if np.isfinite(column).any() else 0.0 for column in answers.T]
    )
    most = int(np.argmax(np.divide(change, spread, out=np.zeros(count), where=spread > 0)))
    return f"{amount(float(change[most]), unit)} in {shortened(str(names[most]), 40)}"
