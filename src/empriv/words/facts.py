"""What is known of an audit before it is put in words: figures, counts and codes, and no sentence.

`validate.facts_by_kind` gathers them from a risk, by its kind; `summary` makes sentences of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from empriv.words.findings import Finding


@dataclass(frozen=True)
class Figure:
    """The privacy at one epsilon, on a random database, as in the paper."""

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
class ExactLeak:
    """What gives some individuals away for certain: how many, and in which share of databases at most."""

    name: str
    n_individuals: int
    largest_share: float


@dataclass(frozen=True)
class NotNumbers:
    """Results that are not numbers, by kind: with everyone and without an individual, each of how many."""

    with_everyone: Mapping[str, int]
    of_everyone: int
    without_an_individual: Mapping[str, int]
    of_without: int


@dataclass(frozen=True)
class JointFacts:
    """Several numbers together.

    Attributes
    ----------
    dimension : numbers that the others do not determine
    parameters : fitted so that what people do not touch counts as known
    from_below : individuals whose figures are from below, without an upper bound
    uncounted : cells whose coming and going is not counted as known, since the databases do not carry more
    components : figures of each number alone
    leaks : direction, what is constant, individuals and largest share of each exact leak
    follow : numbers that the others determine, as cells do their margin
    riskiest : the cells that expose somebody most given all others, at the first epsilon: name, delta and how many
        individuals they expose
    said : how components are called in words, where they are cells of a table
    """

    dimension: int
    parameters: int
    from_below: int
    uncounted: int
    components: Mapping[str, tuple[Figure, ...]]
    leaks: tuple[tuple[str, str, int, float], ...]
    follow: int = 0
    riskiest: tuple[tuple[str, float, int], ...] = ()
    said: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KnownFacts:
    """What readers know: findings, cautions to be read, and the figures to somebody who knows nothing, if these were
    measured: a scan measures for one kind of reader only."""

    findings: tuple[Finding, ...]
    cautions: tuple[Finding, ...]
    knowing_nothing: tuple[Figure, ...]


@dataclass(frozen=True)
class RiskFacts:
    """All that the words need to know of a risk.

    Attributes
    ----------
    n_databases, n_individuals, draws : what was measured
    figures : one for each epsilon asked for
    floor : no delta below is supported by so many databases
    not_numbers : how many results are not numbers
    atoms : outcomes with a mass of their own
    leaks : exact leaks that are not among the atoms
    model : the fitted density in words; None if none was
    fits_density : whether risks of this kind fit one at all
    joint, known : what only some kinds have
    times : publications that the figures are of
    """

    n_databases: int
    n_individuals: int
    draws: int | None
    figures: tuple[Figure, ...]
    floor: float
    not_numbers: NotNumbers
    atoms: tuple[Atom, ...] = ()
    leaks: tuple[ExactLeak, ...] = ()
    model: str | None = None
    fits_density: bool = True
    joint: JointFacts | None = None
    known: KnownFacts | None = None
    times: int = 1


@dataclass(frozen=True)
class Question:
    """What was asked of which data.

    Attributes
    ----------
    query : SQL text, or the name of a function
    individual : columns that say whose a row is; None if results were given
    sources, database, drawn : where the rows came from, and how they were cut or drawn into databases
    sampled : whether databases are random samples of one table
    component, n_components : the component audited, if the query was a vector, and how many it has
    earlier : releases that it was measured together with
    nothing_known : why nothing was counted as known, if nobody said what is
    n_databases : of which it was asked; None where all of them were measured
    verified : how it was verified that who is left out is really out; None if it was not
    """

    query: str
    individual: Sequence[str] | None = None
    sources: Sequence[str] = ()
    database: str | None = None
    drawn: str | None = None
    sampled: bool = False
    component: str | None = None
    n_components: int | None = None
    earlier: int = 0
    nothing_known: Finding | None = None
    n_databases: int | None = None
    verified: str | None = None
