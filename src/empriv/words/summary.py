"""What an audit found, in words: the terminal, the JSON file and reports all say these.

Works on measured `Risk` and holds nobody's identifier. How words are laid out is for whoever shows them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from empriv.collecting.origins import Origin
from empriv.measuring.given.adversary_risk import AdversaryRisk
from empriv.measuring.joint.joint_risk import MOST_PAIRS, JointRisk
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.risk import Risk
from empriv.results import Outcome, Results
from empriv.validate.bounds.analytic import floor
from empriv.words import sentences as words
from empriv.words.sentences import number, people, percent

_LONGEST = 160
_MOST_LISTED = 8


@dataclass(frozen=True)
class Figure:
    """The privacy at one epsilon."""

    epsilon: float
    delta: float
    total_risk: float
    n_exposed: int


@dataclass(frozen=True)
class Atom:
    """An outcome with a mass of its own.

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


def summarise(
    risk: Risk | JointRisk,
    epsilons: Sequence[float],
    *,
    query: str,
    origin: Origin | None = None,
    component: str | None = None,
    n_components: int | None = None,
    against: AdversaryRisk | None = None,
    earlier: int = 0,
) -> Summary:
    """Put an audit in words; ``against`` an adversary, and beside ``earlier`` releases, if there are any."""
    found = figures(risk if against is None else against, epsilons)
    atoms = atoms_of(risk)
    n = risk.results.n_databases
    least = smallest_supported_delta(n)
    warnings = outcome_sentences(risk.results)
    alarms = [words.exact_leak(atom.name, atom.n_leaks, atom.largest_leak) for atom in atoms if atom.n_leaks]
    joint: tuple[str, ...] = ()
    if isinstance(risk, JointRisk):
        joint = joint_sentences(risk, found[0])
        alarms = [words.exact_leak(leak.name, leak.n_individuals, leak.largest_share) for leak in risk.leaks] + alarms
        if not risk.complete:
            warnings.insert(0, dimension_sentence(risk))
    extra = [] if against is None else list(against.sentences)
    if against is not None:
        leaks = [warning for warning in against.warnings if warning.startswith("EXACT LEAK")]
        alarms += leaks
        alone = risk.delta(found[0].epsilon)
        extra.append(f"Against somebody who knows nothing, delta is {number(alone)} at epsilon {found[0].epsilon:g}.")
    if earlier:
        extra.append(
            f"Measured together with {earlier:,} earlier {'release' if earlier == 1 else 'releases'} from the same "
            "databases, each with its noise."
        )
    if component is not None:
        others = "" if n_components is None else f", not the {n_components - 1:,} other released beside it"
        if n_components is not None and n_components > 2:
            others = f", not the {n_components - 1:,} others released beside it"
        warnings.insert(0, f"This covers one number only, {component!r}{others}: together they reveal more.")
    warnings += [
        f"{percent(atom.mass)} of the results are one outcome of their own ({atom.name}), compared by counts: "
        f"{people(atom.n_individuals)} can move that share."
        for atom in atoms
        if not atom.n_leaks and atom.n_individuals
    ]
    return Summary(
        asked=asked_sentence(risk.results, query, origin),
        figures=found,
        sentences=tuple(map(figure_sentence, found)),
        alarms=tuple(alarms),
        warnings=tuple(warnings),
        notes=(
            words.estimate(found[0].delta, found[0].epsilon, n),
            *joint,
            *extra,
            words.floor(n, least, below=any(figure.delta < least for figure in found)),
            model_sentence(risk.density),
        ),
    )


def figures(risk: Risk | JointRisk | AdversaryRisk, epsilons: Sequence[float]) -> tuple[Figure, ...]:
    """delta, total risk and the number of exposed individuals at each epsilon."""
    grid = np.asarray(epsilons, float)
    deltas, totals = risk.delta(grid), risk.total_risk(grid)
    exposed = np.count_nonzero(risk.delta_i(grid) > 0, axis=0)
    return tuple(
        Figure(float(epsilon), float(delta), float(total), int(count))
        for epsilon, delta, total, count in zip(grid, deltas, totals, exposed, strict=True)
    )


def joint_sentences(risk: JointRisk, figure: Figure) -> tuple[str, ...]:
    """Which figure is joint, and that of each component alone."""
    alone = [(name, float(one.delta(figure.epsilon))) for name, one in risk.components.items()]
    listed = ", ".join(f"{shorten(name)}: {number(delta)}" for name, delta in alone[:_MOST_LISTED])
    if len(alone) > _MOST_LISTED:
        listed += f", and {len(alone) - _MOST_LISTED:,} more"
    count = len(alone)
    whole = f"of all {count:,} numbers together" if risk.complete else f"the largest over two of {count:,} numbers"
    if count == 1:
        whole = "of the one number"
    error = risk.error(figure.epsilon)
    bar = f" (integration error ±{number(error)})" if error > 0 else ""
    return (
        f"The figures above are {whole}: delta = {number(figure.delta)} at epsilon {figure.epsilon:g}{bar}.",
        f"Each number alone, delta at epsilon {figure.epsilon:g}: {listed}.",
    )


def dimension_sentence(risk: JointRisk) -> str:
    """That the databases are too few for so many numbers."""
    count = len(risk.components)
    pairs = count * (count - 1) // 2
    measured = (
        "two by two" if pairs <= MOST_PAIRS else f"for the {MOST_PAIRS} of {pairs:,} pairs that are most correlated"
    )
    return (
        f"The results vary in {risk.dimension:,} dimensions, and {words.databases(risk.results.n_databases)} can carry "
        f"a joint density in {risk.vouched} only: the figures are those of the numbers {measured}, and all "
        "together may reveal more."
    )


def joint_facts(risk: Risk | JointRisk, epsilons: Sequence[float]) -> dict[str, Any] | None:
    """What JSON says of a joint audit; None for one number."""
    if not isinstance(risk, JointRisk):
        return None
    grid = np.asarray(epsilons, float)
    return {
        "dimension": risk.dimension,
        "vouched": risk.vouched,
        "complete": risk.complete,
        "integration_error": [float(one) for one in risk.error(grid)],
        "components": {
            name: [
                {"epsilon": float(e), "delta": float(delta), "total_risk": float(total)}
                for e, delta, total in zip(grid, one.delta(grid), one.total_risk(grid), strict=True)
            ]
            for name, one in risk.components.items()
        },
        "leaks": [
            {"direction": leak.direction, "what": leak.what, "n_individuals": leak.n_individuals,
             "largest_share": leak.largest_share}
            for leak in risk.leaks
        ],
    }  # fmt: skip


def asked_sentence(results: Results, query: str, origin: Origin | None, *, n_individuals: int | None = None) -> str:
    """What was asked of what; ``n_individuals`` where the results do not list everyone."""
    text = shorten(" ".join(query.split()))
    draws = "" if results.draws is None else f", {results.draws:,} draws each"
    databases = words.databases(results.n_databases)
    who = people(results.n_individuals if n_individuals is None else n_individuals)
    if origin is None:
        return f"{text} was asked of {databases}{draws}, with everyone and without each of {who}."
    source = _source_words(origin, results.n_databases)
    return (
        f"{text} was asked of {databases} ({source}{draws}), with everyone and without each of {who} "
        f"(by {', '.join(origin.individual)})."
    )


def _source_words(origin: Origin, n_databases: int) -> str:
    named = (
        shorten(" ".join(origin.sources[0].split()))
        if len(origin.sources) == 1
        else f"{len(origin.sources):,} sources, the first {shorten(origin.sources[0])}"
    )
    if origin.drawn is not None:
        return f"{origin.drawn} from {named}"
    if origin.database is not None:
        return f"by {shorten(origin.database)} in {named}"
    return named if n_databases == 1 else f"one for each of {named}"


def figure_sentence(figure: Figure) -> str:
    """One figure in plain words."""
    if figure.delta == 0:
        return f"At epsilon {figure.epsilon:g} nobody's privacy is seen to fail: the estimated delta is 0."
    return (
        f"At epsilon {figure.epsilon:g} the most exposed individual's failure probability is "
        f"{percent(figure.delta)}, and the chance that anybody's privacy fails is {percent(figure.total_risk)} "
        "(if failures are independent)."
    )


def smallest_supported_delta(n_databases: int) -> float:
    """Below this, n databases say nothing at the 95% level."""
    return floor(n_databases, 0.95)


def model_sentence(model: Any) -> str:
    """Which density was fitted."""
    if model is None:
        return "All results are single outcomes, compared by counts: no density was fitted."
    return f"Density: {model.name}."


def tail_sentence(epsilon: float) -> str:
    """epsilon at delta = 0, and what decides it."""
    if math.isinf(epsilon):
        return "No epsilon brings delta to 0."
    return f"delta is 0 from epsilon {number(epsilon)} on; far out this is set by the kernel's tails, not by the data."


def outcome_counts(results: Results) -> tuple[dict[str, int], dict[str, int]]:
    """How many results are not numbers, by kind: with everyone, and without an individual."""

    def count(codes: np.ndarray[tuple[int, ...], np.dtype[np.int8]]) -> dict[str, int]:
        return {
            code.name.lower(): n for code in Outcome if code and (n := int(np.count_nonzero(codes == code.value))) > 0
        }

    return count(results.outcomes), count(results.entry_outcomes)


def outcome_sentences(results: Results) -> list[str]:
    """Results that are not numbers, counted in words."""
    with_all, without = outcome_counts(results)
    return outcomes_in_words(
        (with_all, results.outcomes.size, "with everyone"),
        (without, results.entry_outcomes.size, "without an individual"),
    )


def outcomes_in_words(*parts: tuple[dict[str, int], int, str]) -> list[str]:
    """Counts of results that are not numbers, by kind, of how many results, and of which, in words."""
    sentences = []
    for counts, total, where in parts:
        if counts:
            kinds = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items())
            some = sum(counts.values())
            verb = "result" if total == 1 else "results"
            sentences.append(
                f"{some:,} of {total:,} {verb} {where} {'is' if some == 1 else 'are'} not a number ({kinds}): each "
                "kind counts as an outcome of its own."
            )
    return sentences


def atoms_of(risk: Risk | JointRisk) -> tuple[Atom, ...]:
    """Outcomes with a mass of their own, those of single individuals by kind; of each component by its name."""
    if isinstance(risk, JointRisk):
        return tuple(
            replace(atom, name=f"{name}: {atom.name}")
            for name, one in risk.components.items()
            for atom in atoms_of(one)
        )
    pairs = risk.pairs
    atoms = [_atom(name, pairs.mass[column], pairs.mass_without[:, column]) for column, name in enumerate(pairs.names)]
    own: dict[str, list[Pairs]] = {}
    for _, alone in pairs.own:
        own.setdefault(alone.names[-1], []).append(alone)
    for name, group in own.items():
        # Each has another value, hence its own share with everyone.
        parts = [_atom(name, alone.mass[-1], alone.mass_without[:, -1]) for alone in group]
        atoms.append(
            Atom(
                name,
                max(part.mass for part in parts),
                sum(part.n_individuals for part in parts),
                sum(part.n_leaks for part in parts),
                max(part.largest_leak for part in parts),
            )
        )
    return tuple(atoms)


def _atom(name: str, mass: float, without: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Atom:
    # What is seen in one of the two worlds only tells them apart for certain: the atom itself, or all that is not it.
    leak = np.where(without == 0, mass, 0.0)
    leak = np.maximum(leak, without if mass == 0 else 0.0)
    leak = np.maximum(leak, np.where(without == 1, 1.0 - mass, 0.0))
    leak = np.maximum(leak, 1.0 - without if mass == 1 else 0.0)
    leak = np.where(without == mass, 0.0, leak)
    return Atom(
        name=name,
        mass=float(mass),
        n_individuals=int(np.count_nonzero(without != mass)),
        n_leaks=int(np.count_nonzero(leak > 0)),
        largest_leak=float(leak.max(initial=0.0)),
    )


def shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
