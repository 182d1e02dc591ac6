"""`measure`: the risk of any results, of one number or of several, to readers who know part of the data or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.densities.density import Density, density_or_default, is_literal
from empriv.measuring.given.definition4 import WorstRisk, measure_buckets, measure_own_contribution
from empriv.measuring.given.given_risk import GivenRisk, measure_given
from empriv.measuring.given.reader_knowledge import NOTHING, Buckets, Given, Known, parse_known
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.tables.table_risk import GivenTableRisk, TableRisk, measure_given_table, measure_table
from empriv.results import Results


@overload
def measure(
    q: Results,
    q_without: None = None,
    *,
    density: Density | None = None,
    individuals: None = None,
    known: Any = NOTHING,
) -> Risk | TableRisk | WorstRisk: ...


@overload
def measure(
    q: npt.ArrayLike,
    q_without: npt.ArrayLike | None = None,
    *,
    density: Density | None = None,
    individuals: Sequence[Any] | npt.NDArray[Any] | None = None,
    known: str = NOTHING,
) -> Risk: ...


def measure(
    q: npt.ArrayLike | Results,
    q_without: npt.ArrayLike | None = None,
    *,
    density: Density | None = None,
    individuals: Sequence[Any] | npt.NDArray[Any] | None = None,
    known: Any = NOTHING,
) -> Risk | TableRisk | WorstRisk:
    """Privacy of query results.

    Parameters
    ----------
    q : (n,) results with everyone, (n, m) with m draws for each database, or `Results`
    q_without : (individuals, n) or (individuals, n, m) results without each individual; not with `Results`
    density : how densities are estimated; default ``Kde("laplace", "one-se")``
    individuals : labels, one for each row of ``q_without``
    known : what readers know, as for `audit`, arrays in place of SQL; "nothing", the default here, as in the paper

    Returns
    -------
    Risk
        ``delta_i``, ``delta``, ``total_risk`` at any epsilon, and their inverses; for results of a vector query a
        `TableRisk`, which has the same and more.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> print(f"{risk.delta(0.1):.3f}")
    0.077
    """
    if isinstance(q, Results):
        if q_without is not None or individuals is not None:
            raise InputError("`q_without` and `individuals` must not be given with `Results`, which hold both.")
        results = q
    elif q_without is None:
        raise InputError("`q_without` must be given: the results without each individual.")
    else:
        results = Results.from_arrays(q, q_without, individuals=individuals)
    density, said = density_or_default(density), parse_known(known)
    results = results if said.ordered else replace(results, ordered=False)
    if said.known is not None:
        return measure_known(results, said.known, density=density)
    if results.components is not None:
        return _several_numbers(results, density)
    risk = measure_line(results, density)
    if results.postprocessed_from is None or is_literal(density):
        return risk
    return replace(risk, postprocessed_from=measure(results.postprocessed_from, density=density))


def measure_known(
    results: Results, known: Known, values: Any = None, *, density: Density
) -> GivenRisk | GivenTableRisk | WorstRisk:
    """The risk to readers who know something; ``values`` are those of SQL and functions, which are collected first."""
    if isinstance(known, Given):
        measured = measure_given if results.components is None else measure_given_table
        return measured(results, known, values, density=density)
    if results.components is not None:
        raise InputError(
            "`known` must not be buckets or own for several numbers, which are measured given what is known. "
            'Hint: known="count(*)", or `component` for one of them.'
        )
    if isinstance(known, Buckets):
        return measure_buckets(results, known, values, density)
    return measure_own_contribution(results, known, density)


def _several_numbers(results: Results, density: Density) -> TableRisk:
    table = measure_table(results, density=density)
    # A stated bandwidth is in the unit of the answers, which those that they were made from need not share.
    if results.postprocessed_from is None or is_literal(density):
        return table
    return replace(table, postprocessed_from=_several_numbers(results.postprocessed_from, density))
