"""An audit in words: the terminal, the JSON file and reports all say these.

Made from `facts` alone, which hold nobody's identifier. Their layout is left to what shows them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from empriv.base.display import lines_html
from empriv.words import sentences as words
from empriv.words.facts import Figure, JointFacts, KnownFacts, NotNumbers, Question, RiskFacts
from empriv.words.sentences import number, people, percent
from empriv.words.table_words import cells_that_follow, many_outcomes, more_leaks, riskiest_cells
from empriv.words.what_is_known import what_it_changed, what_samples_hide

_LONGEST = 160
_MOST_LISTED = 8
_MOST_LEAKS = 4


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
        figures = [figure_line(figure) for figure in self.figures]
        return "\n".join((self.asked, *self.alarms, *figures, self.sentences[0], *self.warnings, *self.notes))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Summary({len(self.figures)} epsilons, {len(self.alarms)} alarms, {len(self.warnings)} warnings)"

    def _repr_html_(self) -> str:
        return lines_html(self.asked, self.text.splitlines()[1:])


def summarise(facts: RiskFacts, question: Question) -> Summary:
    """Put an audit in words."""
    first = facts.figures[0]
    leaks = [(leak.name, leak.n_individuals, leak.largest_share) for leak in facts.leaks]
    leaks += [(atom.name, atom.n_leaks, atom.largest_leak) for atom in facts.atoms if atom.n_leaks]
    leaks.sort(key=lambda leak: -leak[2])  # as they are found where they are equal
    alarms = [words.exact_leak(*leak) for leak in leaks[:_MOST_LEAKS]]
    if len(leaks) > _MOST_LEAKS:
        alarms.append(more_leaks([(people_given_away, share) for _, people_given_away, share in leaks[_MOST_LEAKS:]]))
    notes = [words.estimate(first.delta, first.epsilon, facts.n_databases)]
    if facts.times > 1:
        notes.append(words.publications(facts.times))
    if facts.joint is not None:
        notes += joint_sentences(facts.joint, first)
    if facts.known is not None:
        alarms += [caution.sentence for caution in facts.known.cautions if caution.code == "determined"]
        notes += _known_sentences(facts.known, first)
    if question.sampled:
        notes.append(what_samples_hide())
    if question.nothing_known is not None:
        notes.append(question.nothing_known.sentence)
    if question.earlier:
        notes.append(
            f"Measured together with {question.earlier:,} earlier "
            f"{'release' if question.earlier == 1 else 'releases'} from the same databases, each with its noise."
        )
    if question.verified is not None:
        notes.append(f"{question.verified[:1].upper()}{question.verified[1:]}.")
    below = any(figure.delta < facts.floor for figure in facts.figures)
    notes.append(words.floor(facts.n_databases, facts.floor, below=below))
    if facts.fits_density:
        notes.append(model_sentence(facts.model))
    return Summary(
        asked=asked_sentence(facts, question),
        figures=facts.figures,
        sentences=tuple(figure_sentence(figure, facts.times) for figure in facts.figures),
        alarms=tuple(alarms),
        warnings=tuple(_warnings(facts, question)),
        notes=tuple(notes),
    )


def _warnings(facts: RiskFacts, question: Question) -> list[str]:
    warnings = []
    if question.component is not None:
        others, reason = "", "others released beside it reveal more"
        if question.n_components is not None:
            count = question.n_components - 1
            others = f", not the {count:,} {'others' if count > 1 else 'other'} released beside it"
            reason = "together they reveal more"
        warnings.append(f"This covers one number only, {question.component!r}{others}: {reason}.")
    if facts.joint is not None:
        warnings += _table_warnings(facts.joint, facts.n_databases)
    warnings += outcome_sentences(facts.not_numbers)
    movable = sorted(
        (atom for atom in facts.atoms if not atom.n_leaks and atom.n_individuals), key=lambda atom: -atom.mass
    )
    if len(movable) > _MOST_LISTED // 2:  # the cells of a table, say, that come and go
        return [*warnings, many_outcomes([(atom.name, atom.mass, atom.n_individuals) for atom in movable])]
    warnings += [
        f"{percent(atom.mass)} of the results are one outcome of their own ({atom.name}), compared by counts: "
        f"{people(atom.n_individuals)} can move that share."
        for atom in movable
    ]
    return warnings


def _known_sentences(facts: KnownFacts, knowing: Figure) -> list[str]:
    changed = [what_it_changed(plain.delta, knowing.delta, knowing.epsilon) for plain in facts.knowing_nothing[:1]]
    first, *others = (finding.sentence for finding in facts.findings)
    return [first, *changed, *others]


def joint_sentences(joint: JointFacts, figure: Figure) -> list[str]:
    """Which figure is joint, and that of each component alone."""
    alone = [(joint.said.get(name, name), figures[0].delta) for name, figures in joint.components.items()]
    largest = "delta" if len(alone) <= _MOST_LISTED else "the largest delta"
    if len(alone) > _MOST_LISTED:
        alone.sort(key=lambda pair: -pair[1])
    listed = ", ".join(f"{shorten(name)}: {number(delta)}" for name, delta in alone[:_MOST_LISTED])
    if len(alone) > _MOST_LISTED:
        listed += f", and {len(alone) - _MOST_LISTED:,} more"
    count = len(alone)
    scope = f"of all {count:,} numbers together" if count > 1 else "of the one number"
    return [
        f"The figures above are {scope}: delta = {number(figure.delta)} at epsilon {figure.epsilon:g}.",
        f"Each number alone, {largest} at epsilon {figure.epsilon:g}: {listed}.",
        *([riskiest_cells(joint.riskiest)] if joint.riskiest else []),
        *([cells_that_follow(joint.follow, count)] if joint.follow else []),
    ]


def _table_warnings(joint: JointFacts, n_databases: int) -> list[str]:
    """Whose figures are from below, and what was not counted as known."""
    warnings = []
    if joint.from_below:
        warnings.append(words.table_from_below(n_databases, joint.parameters, joint.from_below))
    if joint.uncounted:
        warnings.append(
            f"Whether {joint.uncounted:,} of the numbers are there is not counted as known: "
            f"{words.databases(n_databases)} do not carry more."
        )
    return warnings


def asked_sentence(facts: RiskFacts, question: Question) -> str:
    """What was asked of what."""
    text = shorten(" ".join(question.query.split()))
    draws = "" if facts.draws is None else f", {facts.draws:,} draws each"
    n = facts.n_databases if question.n_databases is None else question.n_databases
    databases, individuals = words.databases(n), people(facts.n_individuals)
    if question.individual is None:
        return f"{text} was asked of {databases}{draws}, with everyone and without each of {individuals}."
    source = _source_words(question, n)
    return (
        f"{text} was asked of {databases} ({source}{draws}), with everyone and without each of {individuals} "
        f"(by {', '.join(question.individual)})."
    )


def _source_words(question: Question, n_databases: int) -> str:
    named = [shorten(" ".join(source.split())) for source in question.sources]
    if len(named) > 2:
        named = [f"{len(named):,} sources, from {named[0]} to {named[-1]}"]
    return _cut_words(question, " and ".join(named), n_databases)


def _cut_words(question: Question, named: str, n_databases: int) -> str:
    """How the rows of these sources were cut into databases."""
    if question.drawn is not None:
        return f"{question.drawn} from {named}"
    if question.database is not None:
        return f"by {shorten(question.database)} in {named}"
    return named if n_databases == 1 else f"one for each of {named}"


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


def model_sentence(model: str | None) -> str:
    """Which density was fitted."""
    if model is None:
        return "All results are single outcomes, compared by counts: no density was fitted."
    return f"Density: {model}."


def tail_sentence(epsilon: float) -> str:
    """epsilon at delta = 0, and what decides it."""
    if math.isinf(epsilon):
        return "No epsilon brings delta to 0."
    return f"delta is 0 from epsilon {number(epsilon)} on; far out this is set by the kernel's tails, not by the data."


def outcome_sentences(counted: NotNumbers) -> list[str]:
    """Results that are not numbers, by kind, of how many results, and of which."""
    parts: tuple[tuple[Mapping[str, int], int, str], ...] = (
        (counted.with_everyone, counted.of_everyone, "with everyone"),
        (counted.without_an_individual, counted.of_without, "without an individual"),
    )
    sentences = []
    for counts, total, where in parts:
        if counts:
            kinds = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items())
            odd = sum(counts.values())
            noun = "result" if total == 1 else "results"
            sentences.append(
                f"{odd:,} of {total:,} {noun} {where} {'is' if odd == 1 else 'are'} not a number ({kinds}): each "
                "kind counts as an outcome of its own."
            )
    return sentences


def shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
