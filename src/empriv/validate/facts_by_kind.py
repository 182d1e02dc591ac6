"""`facts_of`: what the words need to know of a risk, by its kind.

To say more about a new kind of risk than what any kind has, register a function for it here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import singledispatch

import numpy as np
import numpy.typing as npt

from empriv.measuring.contract import RiskContract
from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.risk import Risk
from empriv.measuring.series import RepeatedRisk
from empriv.measuring.tables import GivenTableRisk, TableRisk
from empriv.results import FloatArray, Outcome, Results
from empriv.validate.bounds.line_bounds import floor
from empriv.words.facts import Atom, ExactLeak, Figure, JointFacts, KnownFacts, NotNumbers, RiskFacts
from empriv.words.outcomes import outcome_name
from empriv.words.table_words import cells_in_words

_MOST_CELLS = 3  # that the words name


@singledispatch
def facts_of(risk: RiskContract, epsilons: Sequence[float]) -> RiskFacts:
    """RiskFacts at these epsilons. For a kind not known here, what any risk has."""
    return RiskFacts(
        n_databases=risk.results.n_databases,
        n_individuals=risk.n_individuals,
        draws=risk.results.draws,
        figures=figures(risk, epsilons),
        floor=smallest_supported_delta(risk.results.n_databases),
        not_numbers=not_numbers(risk.results),
        model=None if risk.model is None else risk.model[0],
        fits_density=risk.model is not None,
    )


_of_any = facts_of.dispatch(object)


@facts_of.register
def _(risk: Risk, epsilons: Sequence[float]) -> RiskFacts:
    return replace(_of_any(risk, epsilons), atoms=atoms_of(risk), fits_density=True)


@facts_of.register
def _(risk: GivenRisk, epsilons: Sequence[float]) -> RiskFacts:
    nothing = figures(risk.unconditional, epsilons)
    return replace(
        _of_any(risk, epsilons),
        atoms=atoms_in(risk.atoms),
        fits_density=True,
        known=KnownFacts(risk.findings, risk.cautions, nothing),
    )


@facts_of.register
def _(risk: WorstRisk, epsilons: Sequence[float]) -> RiskFacts:
    nothing = figures(risk.unconditional, epsilons)
    return replace(
        facts_of(risk.unconditional, epsilons),
        figures=figures(risk, epsilons),
        known=KnownFacts(risk.findings, risk.cautions, nothing),
    )


@facts_of.register
def _(risk: TableRisk, epsilons: Sequence[float]) -> RiskFacts:
    cells = risk.results.cells
    said = {} if cells is None else dict(zip(risk.fit.cells, cells_in_words(cells), strict=True))
    joint = JointFacts(
        dimension=len(risk.fit.kept),
        parameters=risk.fit.rank,
        from_below=int(risk.from_below.sum()),
        uncounted=risk.fit.left_out,
        components={name: figures(part, epsilons) for name, part in risk.components.items()},
        leaks=tuple((leak.direction, leak.what, leak.n_individuals, leak.largest_share) for leak in risk.leaks),
        follow=int(np.count_nonzero(np.abs(risk.fit.relations).sum(axis=1) > 0)) - len(risk.fit.kept),
        riskiest=_riskiest(risk, float(epsilons[0]), said),
        said=said,
    )
    return replace(_of_several(risk, epsilons, joint), fits_density=False)


def _of_several(risk: TableRisk, epsilons: Sequence[float], joint: JointFacts) -> RiskFacts:
    """What the words say of several numbers, whichever way they were measured."""
    return replace(
        _of_any(risk, epsilons),
        atoms=tuple(
            replace(atom, name=f"{joint.said.get(name, name)}: {atom.name}")
            for name, part in risk.components.items()
            for atom in atoms_of(part)
        ),
        leaks=tuple(ExactLeak(leak.name, leak.n_individuals, leak.largest_share) for leak in risk.leaks),
        joint=joint,
    )


def _riskiest(risk: TableRisk, epsilon: float, said: Mapping[str, str]) -> tuple[tuple[str, float, int], ...]:
    """The cells that expose somebody most, given all that this person does not touch."""
    exposures = risk.exposures(epsilon)
    cells, first, counts = np.unique(
        exposures["cell"][exposures["delta_i"] > 0], return_index=True, return_counts=True
    )  # the largest delta_i come first
    largest = exposures["delta_i"][first]
    order = np.argsort(-largest, kind="stable")[:_MOST_CELLS]
    return tuple((said.get(str(cells[k]), str(cells[k])), float(largest[k]), int(counts[k])) for k in order)


@facts_of.register
def _(risk: GivenTableRisk, epsilons: Sequence[float]) -> RiskFacts:
    known = KnownFacts(risk.findings, (), figures(risk.unconditional, epsilons))
    return replace(facts_of.dispatch(TableRisk)(risk, epsilons), known=known)


@facts_of.register
def _(risk: RepeatedRisk, epsilons: Sequence[float]) -> RiskFacts:
    facts = facts_of(risk.single, epsilons)
    known = facts.known
    if known is not None:  # figures of one publication do not stand beside those of several
        known = replace(known, knowing_nothing=())
    return replace(facts, figures=figures(risk, epsilons), times=risk.times, known=known)


def figures(risk: RiskContract, epsilons: Sequence[float]) -> tuple[Figure, ...]:
    """delta, total risk and the number of exposed individuals at each epsilon."""
    grid = np.asarray(epsilons, float)
    columns = zip(grid, risk.delta(grid), risk.total_risk(grid), risk.exposed(grid), strict=True)
    return tuple(
        Figure(float(epsilon), float(delta), float(total), int(count)) for epsilon, delta, total, count in columns
    )


def smallest_supported_delta(n_databases: int) -> float:
    """Below this, n databases say nothing at the 95% level."""
    return floor(n_databases, 0.95)


def not_numbers(results: Results) -> NotNumbers:
    """How many results are not numbers, by kind: with everyone, and without an individual."""
    return NotNumbers(
        _counted(results.outcomes), results.outcomes.size, _counted(results.entry_outcomes), results.entry_outcomes.size
    )


def _counted(codes: npt.NDArray[np.int8]) -> dict[str, int]:
    return {code.name.lower(): n for code in Outcome if code and (n := int(np.count_nonzero(codes == code.value))) > 0}


def atoms_of(risk: Risk) -> tuple[Atom, ...]:
    """Outcomes with a mass of their own, those of single individuals by kind."""
    return atoms_in(risk.pairs)


def atoms_in(pairs: Pairs) -> tuple[Atom, ...]:
    """The same, of pairs."""
    atoms = [_atom(code, pairs.mass[column], pairs.mass_without[:, column]) for column, code in enumerate(pairs.names)]
    by_code: dict[str, list[Pairs]] = {}
    for _, alone in pairs.own:
        by_code.setdefault(alone.names[-1], []).append(alone)
    for code, group in by_code.items():
        # Each individual's value differs, and so does its share with everyone.
        parts = [_atom(code, alone.mass[-1], alone.mass_without[:, -1]) for alone in group]
        atoms.append(
            Atom(
                outcome_name(code),
                max(part.mass for part in parts),
                sum(part.n_individuals for part in parts),
                sum(part.n_leaks for part in parts),
                max(part.largest_leak for part in parts),
            )
        )
    return tuple(atoms)


def _atom(code: str, mass: float, without: FloatArray) -> Atom:
    # What is seen in one of the two worlds only tells them apart for certain: the atom itself, or all that is not it.
    leak = np.where(without == 0, mass, 0.0)
    leak = np.maximum(leak, without if mass == 0 else 0.0)
    leak = np.maximum(leak, np.where(without == 1, 1.0 - mass, 0.0))
    leak = np.maximum(leak, 1.0 - without if mass == 1 else 0.0)
    leak = np.where(without == mass, 0.0, leak)
    return Atom(
        name=outcome_name(code),
        mass=float(mass),
        n_individuals=int(np.count_nonzero(without != mass)),
        n_leaks=int(np.count_nonzero(leak > 0)),
        largest_leak=float(leak.max(initial=0.0)),
    )
