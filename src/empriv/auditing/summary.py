"""An audit in words: terminal, JSON file and pages all say these, and lay them out themselves. No sentence names an
individual."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.auditing.totals import TotalledRisk
from empriv.base.text import lines_html, pseudonyms, visible
from empriv.measuring import AnyRisk, GivenRisk, Risk, TableRisk, WorstRisk
from empriv.measuring.line.atoms import Atom, Pairs
from empriv.measuring.line.moves import Moves
from empriv.measuring.tables import GivenTableRisk
from empriv.results import FloatArray, IntArray, Outcome, Results
from empriv.validate.bounds import floor
from empriv.validate.checks import leak_sentence
from empriv.validate.covers import has_line_cover, line_cover_of
from empriv.validate.table_checks import from_below
from empriv.words import sentences as words
from empriv.words.sentences import (
    cells_in_words,
    cells_that_follow,
    many_outcomes,
    more_leaks,
    number,
    outcome_name,
    people,
    percent,
    riskiest_cells,
    what_samples_hide,
)

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.collecting.origins import Origin

_LONGEST = 160
_MOST_LISTED = 8
_MOST_LEAKS = 4
_MOST_CELLS = 3  # that the words name


@dataclass(frozen=True)
class Figure:
    """The privacy at one epsilon, on a random database, as in the paper."""

    epsilon: float
    delta: float
    total_risk: float
    n_exposed: int


def figures(risk: AnyRisk, epsilons: Sequence[float]) -> tuple[Figure, ...]:
    """delta, total risk and the number of exposed individuals at each epsilon."""
    grid = np.asarray(epsilons, float)
    columns = zip(grid, risk.delta(grid), risk.total_risk(grid), risk.exposed(grid), strict=True)
    return tuple(
        Figure(float(epsilon), float(delta), float(total), int(count)) for epsilon, delta, total, count in columns
    )


@dataclass(frozen=True)
class Summary:
    """An audit in words.

    Attributes
    ----------
    asked : one sentence of what was asked of what
    figures : one for each epsilon
    sentences : the same in words, one for each epsilon
    alarms : exact leaks
    warnings : results that are not numbers, other atoms, what the audit does not cover
    notes : what the figures are, and are not
    """

    asked: str
    figures: tuple[Figure, ...]
    sentences: tuple[str, ...]
    alarms: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words as lines, for ``print``."""
        lines = [figure_line(figure) for figure in self.figures]
        return "\n".join((self.asked, *self.alarms, *lines, self.sentences[0], *self.warnings, *self.notes))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Summary({len(self.figures)} epsilons, {len(self.alarms)} alarms, {len(self.warnings)} warnings)"

    def _repr_html_(self) -> str:
        return lines_html(self.asked, self.text.splitlines()[1:])


def summarise(audit: Audit, epsilons: Sequence[float]) -> Summary:
    """Put an audit in words, at these epsilons."""
    found = figures(audit.measured, epsilons)
    first, once, n = found[0], audit.once, audit.measured.results.n_databases
    outcomes = audit.outcomes
    alarms = leak_sentences(outcomes)
    notes = [f"Estimate: delta = {number(first.delta)} at epsilon = {first.epsilon:g}, from {words.databases(n)}. "
             "Not a guarantee."]  # fmt: skip
    warnings = [] if audit.component is None else [_component_sentence(audit.component, audit.n_components)]
    if audit.times > 1:
        notes.append(
            f"The figures are of {audit.times:,} publications, each from a database of its own, for people who are in "
            "all of these databases or in none."
        )
    if isinstance(once, TableRisk):
        notes += _table_sentences(once, first)
        warnings += _table_warnings(once)
    if isinstance(once, TotalledRisk):
        notes.append(
            "People were measured in chunks, at these epsilons and those of targets alone, and all but the most "
            'exposed were totalled: the check that looks at everybody at once ("modes") was not made.'
        )
    known = once if isinstance(once, GivenRisk | GivenTableRisk | WorstRisk) else audit.measured_against
    if isinstance(known, GivenRisk | GivenTableRisk | WorstRisk):
        alarms += [message.sentence for message in known.messages if message.severity == "error"]
        said = [message.sentence for message in known.messages if message.severity == "info"]
        changed = []
        if known is once and audit.times == 1:  # figures of one publication do not stand beside those of several
            nothing = float(known.unconditional.delta(first.epsilon))
            changed.append(
                f"Ignoring what is known, delta would be {number(nothing)} at epsilon {first.epsilon:g}; knowing it, "
                f"it is {number(first.delta)}."
            )
        notes += [said[0], *changed, *said[1:]]
    if audit.origin is not None and audit.origin.sampled:
        notes.append(what_samples_hide())
    if audit.nothing_known is not None:
        notes.append(audit.nothing_known.sentence)
    if audit.composition is not None:
        count = len(audit.composition.entries)
        releases = "release" if count == 1 else "releases"
        notes.append(
            f"Measured together with {count:,} earlier {releases} from the same databases, each with its noise."
        )
    if audit.results.verified is not None:
        verified = str(audit.results.verified)
        notes.append(f"{verified[:1].upper()}{verified[1:]}.")
    least = floor(n, 0.95)
    notes.append(words.floor(n, least, below=any(figure.delta < least for figure in found)))
    if not isinstance(once, TableRisk) and (isinstance(once, Risk | WorstRisk) or once.model is not None):
        notes.append(_model_sentence(once))
    return Summary(
        asked=_asked_sentence(audit),
        figures=found,
        sentences=tuple(figure_sentence(figure, audit.times) for figure in found),
        alarms=tuple(alarms),
        warnings=(*warnings, *outcome_sentences(outcomes)),
        notes=tuple(notes),
    )


def with_validity(audit: Audit, said: Summary) -> Summary:
    """A summary with the bounds at its first epsilon, and the checks that a reader should see."""
    bounded = audit.bounds_at_first([figure.epsilon for figure in said.figures])
    # exact leaks are among the alarms already
    grave = [c.sentence for c in audit.checks if c.severity != "info" and c.code != "exact-leak"]
    calm = [check.sentence for check in audit.checks if check.code == "iid" and check.severity == "info"]
    notes = (said.notes[0], *bounded.said, *bounded.notes, *said.notes[1:], *calm)
    return replace(said, warnings=_once((*said.warnings, *grave)), notes=_once(notes))


def _once(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentences))


# What was asked


def _asked_sentence(audit: Audit) -> str:
    """What was asked of what."""
    text, m = _shortened(audit.query), audit.results.draws
    draws = "" if m is None else f", {m:,} draws each"
    databases, individuals = words.databases(audit.n_databases), people(audit.n_individuals)
    chunks = ""
    if isinstance(audit.risk, TotalledRisk):
        chunks = f", in chunks: the {audit.results.n_individuals:,} most exposed are kept, others totalled"
    if audit.origin is None:
        return f"{text} was asked of {databases}{draws}, with everyone and without each of {individuals}{chunks}."
    source = _source_words(audit.origin, audit.n_databases)
    return (
        f"{text} was asked of {databases} ({source}{draws}), with everyone and without each of {individuals} "
        f"(by {', '.join(audit.origin.individual)}){chunks}."
    )


def _source_words(origin: Origin, n_databases: int) -> str:
    """Where the rows came from, and how they were cut into databases."""
    named = [_shortened(source) for source in dict.fromkeys((*origin.sources, *origin.added))]
    if len(named) > 2:
        named = [f"{len(named):,} sources, from {named[0]} to {named[-1]}"]
    listed = " and ".join(named)
    if origin.drawn is not None:
        return f"{origin.drawn} from {listed}"
    if origin.database is not None:
        return f"by {_shortened(origin.database)} in {listed}"
    return listed if n_databases == 1 else f"one for each of {listed}"


def _component_sentence(component: str, n_components: int | None) -> str:
    others, reason = "", "others released beside it reveal more"
    if n_components is not None:
        count = n_components - 1
        others = f", not the {count:,} {'others' if count > 1 else 'other'} released beside it"
        reason = "together they reveal more"
    return f"This covers one number only, {component!r}{others}: {reason}."


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


# Figures


def figure_line(figure: Figure) -> str:
    """The figures at one epsilon, in a line."""
    return (
        f"epsilon {figure.epsilon:g}: delta {number(figure.delta, 3)}, total risk "
        f"{number(figure.total_risk, 3)}, exposed {people(figure.n_exposed)}"
    )


def figure_sentence(figure: Figure, times: int = 1) -> str:
    """One figure in plain words, of so many publications."""
    where = (
        f"At epsilon {figure.epsilon:g}"
        if times == 1
        else f"After {times:,} publications, at epsilon {figure.epsilon:g},"
    )
    if figure.delta == 0:
        return f"{where} nobody's privacy is seen to fail: the estimated delta is 0."
    return (
        f"{where} the most exposed individual's failure probability is "
        f"{percent(figure.delta)} on a random database, and the chance that anybody's privacy fails is "
        f"{percent(figure.total_risk)} (if failures are independent)."
    )


def tail_sentence(epsilon: float) -> str:
    """epsilon at delta = 0, and what decides it."""
    if math.isinf(epsilon):
        return "No epsilon brings delta to 0."
    return f"delta is 0 from epsilon {number(epsilon)} on; far out this is set by the kernel's tails, not by the data."


def _model_sentence(risk: AnyRisk) -> str:
    """Which density was fitted."""
    model = (risk.unconditional if isinstance(risk, WorstRisk) else risk).model
    if model is None:
        return "All results are single outcomes, compared by counts: no density was fitted."
    return f"Density: {model[0]}."


# Several numbers


def _table_sentences(risk: TableRisk, first: Figure) -> list[str]:
    """Which figure is of all numbers together, and that of each component alone."""
    said = cell_names(risk)
    alone = [(said.get(name, name), float(part.delta(first.epsilon))) for name, part in risk.each_number.items()]
    count, largest = len(alone), "delta"
    if count > _MOST_LISTED:
        alone, largest = sorted(alone, key=lambda pair: -pair[1]), "the largest delta"
    listed = ", ".join(f"{_shortened(name)}: {number(delta)}" for name, delta in alone[:_MOST_LISTED])
    if count > _MOST_LISTED:
        listed += f", and {count - _MOST_LISTED:,} more"
    scope = f"of all {count:,} numbers together" if count > 1 else "of the one number"
    follow, riskiest = numbers_that_follow(risk), riskiest_of(risk, first.epsilon)
    return [
        f"The figures above are {scope}: delta = {number(first.delta)} at epsilon {first.epsilon:g}.",
        f"Each number alone, {largest} at epsilon {first.epsilon:g}: {listed}.",
        *([riskiest_cells(riskiest)] if riskiest else []),
        *([cells_that_follow(follow, count)] if follow else []),
    ]


def cell_names(risk: TableRisk) -> dict[str, str]:
    """How components are called in words, where they are cells of a table."""
    cells = risk.results.cells
    return {} if cells is None else dict(zip(risk.fit.cells, cells_in_words(cells), strict=True))


def numbers_that_follow(risk: TableRisk) -> int:
    """Numbers that the others determine, as cells do their margin."""
    return int(np.count_nonzero(np.abs(risk.fit.relations).sum(axis=1) > 0)) - len(risk.fit.kept)


def riskiest_of(risk: TableRisk, epsilon: float) -> tuple[tuple[str, float, int], ...]:
    """The cells that expose a person most, given all that this person does not touch: name, delta and how many people
    they expose."""
    exposures, said = risk.exposures(epsilon), cell_names(risk)
    cells, first, counts = np.unique(
        exposures["cell"][exposures["delta_i"] > 0], return_index=True, return_counts=True
    )  # the largest delta_i come first
    largest = exposures["delta_i"][first]
    order = np.argsort(-largest, kind="stable")[:_MOST_CELLS]
    return tuple((said.get(str(cells[k]), str(cells[k])), float(largest[k]), int(counts[k])) for k in order)


def _table_warnings(risk: TableRisk) -> list[str]:
    """Whose figures are from below, and what was not counted as known."""
    warnings = [from_below(risk)] if risk.from_below.any() else []
    if risk.fit.presence_dropped:
        warnings.append(
            f"Whether {risk.fit.presence_dropped:,} of the numbers are present is not counted as known: "
            f"{words.databases(risk.results.n_databases)} do not carry more."
        )
    return warnings


# Outcomes that are not numbers, or are point masses


@dataclass(frozen=True)
class NamedAtom:
    """An outcome that is a point mass.

    Attributes
    ----------
    name : what it is, in words
    mass : share of the results with everyone
    n_individuals : whose absence changes that share
    n_leaks, largest_leak : individuals whose presence or absence it can give away for certain, and the largest
        share of the results that do
    """

    name: str
    mass: float
    n_individuals: int
    n_leaks: int
    largest_leak: float


@dataclass(frozen=True)
class Outcomes:
    """Results that are not plain numbers.

    Attributes
    ----------
    with_everyone, without_an_individual : how many are not numbers, by kind
    of_everyone, of_without : of how many results
    atoms : point masses
    leaks : what else gives people away for certain: what, how many of them, in which share of databases at most
    """

    with_everyone: Mapping[str, int]
    of_everyone: int
    without_an_individual: Mapping[str, int]
    of_without: int
    atoms: tuple[NamedAtom, ...] = ()
    leaks: tuple[tuple[str, int, float], ...] = ()


def outcome_summary(risk: AnyRisk) -> Outcomes:
    """The outcomes of a risk."""
    risk = risk.unconditional if isinstance(risk, WorstRisk) else risk
    atoms: tuple[NamedAtom, ...] = ()
    leaks: tuple[tuple[str, int, float], ...] = ()
    if isinstance(risk, TableRisk):
        said = cell_names(risk)
        atoms = tuple(
            replace(atom, name=f"{said.get(name, name)}: {atom.name}")
            for name, part in risk.each_number.items()
            for atom in _atoms_in(part.pairs)
        )
        leaks = tuple((leak.name, leak.n_individuals, leak.largest_share) for leak in risk.leaks)
    elif isinstance(risk, Risk):
        atoms = _atoms_in(risk.atoms if isinstance(risk, GivenRisk) else risk.pairs)
    elif isinstance(risk, TotalledRisk):  # as they were counted of everybody; point masses were not
        totals = risk.totals
        without = {code.name.lower(): int(totals.not_numbers[code]) for code in Outcome if code}
        leaks = tuple((outcome_name(code), count, share) for code, (count, share) in totals.leaks.items())
        return Outcomes(
            _counted(risk.results.outcomes), risk.results.outcomes.size,
            {kind: count for kind, count in without.items() if count}, totals.n_entries, leaks=leaks,
        )  # fmt: skip
    codes, entry_codes = risk.results.outcomes, risk.results.entry_outcomes
    return Outcomes(_counted(codes), codes.size, _counted(entry_codes), entry_codes.size, atoms, leaks)


def _counted(codes: npt.NDArray[np.int8]) -> dict[str, int]:
    return {code.name.lower(): n for code in Outcome if code and (n := int(np.count_nonzero(codes == code.value))) > 0}


def _atoms_in(pairs: Pairs) -> tuple[NamedAtom, ...]:
    """Point masses, those of single individuals by kind."""
    groups: dict[str, list[Atom]] = {}
    for atom in pairs.outcomes:  # each individual's own value differs, and so does its share with everyone
        groups.setdefault(atom.code, []).append(atom)
    return tuple(
        NamedAtom(
            name=outcome_name(code),
            mass=max(atom.mass for atom in group),
            n_individuals=sum(int(np.count_nonzero(atom.without != atom.mass)) for atom in group),
            n_leaks=sum(int(np.count_nonzero(atom.certain)) for atom in group),
            largest_leak=max(float(atom.certain.max(initial=0.0)) for atom in group),
        )
        for code, group in groups.items()
    )


def leak_sentences(outcomes: Outcomes) -> list[str]:
    """Exact leaks, the largest first; those beyond the first few are counted."""
    leaks = list(outcomes.leaks)
    leaks += [(atom.name, atom.n_leaks, atom.largest_leak) for atom in outcomes.atoms if atom.n_leaks]
    leaks.sort(key=lambda leak: -leak[2])  # as they are found where they are equal
    said = [leak_sentence(*leak) for leak in leaks[:_MOST_LEAKS]]
    more = [(given_away, share) for _, given_away, share in leaks[_MOST_LEAKS:]]
    return [*said, more_leaks(more)] if more else said


def outcome_sentences(outcomes: Outcomes) -> list[str]:
    """Results that are not numbers, and outcomes of their own that people can move."""
    sentences = []
    for counts, total, where in (
        (outcomes.with_everyone, outcomes.of_everyone, "with everyone"),
        (outcomes.without_an_individual, outcomes.of_without, "without an individual"),
    ):
        if counts:
            kinds = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items())
            odd = sum(counts.values())
            noun = "result" if total == 1 else "results"
            sentences.append(
                f"{odd:,} of {total:,} {noun} {where} {'is' if odd == 1 else 'are'} not a number ({kinds}): each "
                "kind counts as an outcome of its own."
            )
    movable = sorted(
        (atom for atom in outcomes.atoms if not atom.n_leaks and atom.n_individuals), key=lambda atom: -atom.mass
    )
    if len(movable) > _MOST_LISTED // 2:  # the cells of a table, say, that come and go
        return [*sentences, many_outcomes([(atom.name, atom.mass, atom.n_individuals) for atom in movable])]
    return sentences + [
        f"{percent(atom.mass)} of the results are one outcome of their own ({atom.name}), compared by counts: "
        f"{people(atom.n_individuals)} can move that share."
        for atom in movable
    ]


# Who is most exposed: in one order and under the same names for terminal, page and JSON, by what the verdict judges.
# That is the move of the answer relative to the residuals of its database, which the cover is held against; for kinds
# of risk that have no moves of one answer, delta_i on a random database.


@dataclass(frozen=True, eq=False)
class MostExposed:
    """The most exposed first.

    Attributes
    ----------
    rows : places among the individuals of the results
    names : as they are shown
    delta_i : in a random database
    moved : the most that each moved the answer, relative to the residuals of its database; NaN where they change
        whether there is a number
    database : where they did; None where moves are not judged
    databases : in how many each is
    """

    rows: IntArray
    names: list[str]
    delta_i: FloatArray
    moved: FloatArray
    database: list[Any] | None
    databases: IntArray

    def to_json(self) -> list[dict[str, Any]]:
        """A dict for each, without identifiers if the names are pseudonyms; which database is left out."""
        columns = (self.names, self.delta_i.tolist(), self.moved.tolist(), self.databases.tolist())
        return [
            {"individual": name, "delta_i": delta, "moved": moved if math.isfinite(moved) else None, "databases": count}
            for name, delta, moved, count in zip(*columns, strict=True)
        ]


def names_of(results: Results, salt: bytes | None) -> list[str]:
    """Names of all individuals: pseudonyms by a salt, or identifiers without one."""
    labels = [str(label) for label in results.individuals.tolist()]
    return [visible(label) for label in labels] if salt is None else pseudonyms(labels, salt)


def moves_judged(audit: Audit) -> Moves | None:
    """What everybody did on every database, as the verdict holds it against the cover; None where it does not."""
    return line_cover_of(audit.once, None).all_moves if has_line_cover(audit.once) else None


def most_exposed(audit: Audit, epsilon: float, names: Sequence[str], top: int | None = None) -> MostExposed:
    """The most exposed at an epsilon, under the ``names`` of all individuals; equals are ordered by these."""
    results = audit.results
    columns = audit.individuals(epsilon)
    place = {label: row for row, label in enumerate(results.individuals.tolist())}
    rows = np.array([place[label] for label in columns["individual"].tolist()], np.int64)
    delta_i, moved = np.asarray(columns["delta_i"], float), np.asarray(columns["largest_influence"], float)
    own = np.array([names[row] for row in rows], dtype=str)
    size, moves = np.where(np.isnan(moved), np.inf, moved), moves_judged(audit)
    if moves is None:
        order = np.lexsort((own, -size, -delta_i))[:top]
        database = None
    else:
        order = np.lexsort((own, -moves.largest[rows]))[:top]
        worst = moves.worst[rows[order]]
        labels = line_cover_of(audit.once, None).databases
        database = [labels[moves.database[place]] if place >= 0 else "" for place in worst]
        moved = moved.copy()
        size = moves.sizes[worst[worst >= 0]]  # inf for who is given away, by a number or by whether there is one
        moved[order[worst >= 0]] = np.where(np.isinf(size), moved[order[worst >= 0]], size)
        moved = np.where(np.isinf(moved), np.nan, moved)
    rows = rows[order]
    return MostExposed(
        rows, [names[row] for row in rows], delta_i[order], moved[order], database, results.presence[rows]
    )
