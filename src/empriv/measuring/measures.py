"""`measure`: the risk of any results, those of one number and those of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.densities.density import Density, density_or_default, is_literal
from empriv.measuring.joint.directions import merged
from empriv.measuring.joint.joint_risk import MOST_DIMENSIONS, JointRisk, measure_joint
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.tables.fit import fit_table
from empriv.measuring.tables.influences import influences_on
from empriv.measuring.tables.leaks import table_leaks
from empriv.measuring.tables.table_risk import TableRisk, measure_table
from empriv.results import Results


@overload
def measure(
    q: Results,
    q_without: None = None,
    *,
    density: Density | None = None,
    individuals: None = None,
) -> Risk | JointRisk | TableRisk: ...


@overload
def measure(
    q: npt.ArrayLike,
    q_without: npt.ArrayLike | None = None,
    *,
    density: Density | None = None,
    individuals: Sequence[Any] | npt.NDArray[Any] | None = None,
) -> Risk: ...


def measure(
    q: npt.ArrayLike | Results,
    q_without: npt.ArrayLike | None = None,
    *,
    density: Density | None = None,
    individuals: Sequence[Any] | npt.NDArray[Any] | None = None,
) -> Risk | JointRisk | TableRisk:
    """Privacy of query results.

    Parameters
    ----------
    q : (n,) results with everyone, (n, m) with m draws for each database, or `Results`
    q_without : (individuals, n) or (individuals, n, m) results without each individual; not with `Results`
    density : how densities are estimated; default ``Kde("laplace", "one-se")``
    individuals : labels, one for each row of ``q_without``

    Returns
    -------
    Risk
        ``delta_i``, ``delta``, ``total_risk`` at any epsilon, and their inverses; for results of a vector query a
        `JointRisk` (of numbers that vary in a plane) or a `TableRisk`, which have the same and more.

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
    density = density_or_default(density)
    if results.components is not None:
        return _several_numbers(results, density)
    risk = measure_line(results, density)
    if results.made_from is None or is_literal(density):
        return risk
    return replace(risk, made_from=measure(results.made_from, density=density))


def _several_numbers(results: Results, density: Density) -> JointRisk | TableRisk:
    """Numbers that vary in a plane by their joint density, others as a table."""
    together = _table_or_plane(results, density)
    # A stated bandwidth is in the unit of the answers, which those that they were made from need not share.
    if results.made_from is None or is_literal(density):
        return together
    source = _several_numbers(results.made_from, density)
    return together.made_by(source)


def _table_or_plane(results: Results, density: Density) -> JointRisk | TableRisk:
    fit = fit_table(results)
    if len(results.components or ()) <= MOST_DIMENSIONS or (len(fit.kept) <= MOST_DIMENSIONS and fit.carried.all()):
        risk = measure_joint(results, density=density)
        if not results.outcomes.any() and not results.entry_outcomes.any():
            return risk
        # a plane is that of one pattern of outcomes; sums of cells hold across patterns
        return replace(risk, leaks=merged((*risk.leaks, *table_leaks(fit, influences_on(results, fit)))))
    return measure_table(results, density=density)
