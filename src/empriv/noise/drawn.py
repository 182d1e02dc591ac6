"""Results as they would be released: rounded to the lattice, with draws of the noise; for measuring anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from empriv.noise.law import Law, multiples
from empriv.results import FloatArray, Outcome, Results

Sides = tuple[FloatArray, npt.NDArray[np.int8]]


def with_noise(results: Results, laws: Mapping[str, Law] | Law, *, draws: int, rng: np.random.Generator) -> Results:
    """Results with several draws of noise for each.

    Both sides of a pair get the same draws. That leaves the law of either side as it is, which is all that delta
    depends on, and chance differences between the two are not attributed to an individual.

    Parameters
    ----------
    results : of one number, or of several
    laws : the noise, or for several numbers that of each by name; a number not named gets none
    draws : for each result
    rng : of pseudo-random draws
    """
    columns = 1 if results.components is None else len(results.components)
    many = (results.draws or 1) * draws
    by_column: list[Law | None] = (
        [laws] if isinstance(laws, Law) else [laws.get(name) for name in results.components or ()]
    )
    shape = (results.n_databases, many)
    noise = np.stack([np.zeros(shape) if law is None else law.sample(shape, rng) for law in by_column], axis=-1)

    def repeated(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.repeat(values.reshape(len(values), results.draws or 1, columns), draws, axis=1)

    def noisy(values: FloatArray, codes: npt.NDArray[np.int8], added: FloatArray) -> Sides:
        full = np.asarray(repeated(values), np.float64)
        for column, law in enumerate(by_column):
            if law is not None:
                cells = np.rint(full[..., column] / law.granularity) + np.rint(added[..., column] / law.granularity)
                full[..., column] = multiples(cells, law.granularity)
        outcomes = np.asarray(repeated(codes), np.int8)
        full = np.where(outcomes == Outcome.NUMBER, full, np.nan)
        return (full[..., 0], outcomes[..., 0]) if results.components is None else (full, outcomes)

    q, outcomes = noisy(results.q, results.outcomes, noise)
    entry_q, entry_outcomes = noisy(results.entry_q, results.entry_outcomes, noise[results.entry_database])
    return replace(
        results, q=q, outcomes=outcomes, entry_q=entry_q, entry_outcomes=entry_outcomes, draws=many, made_from=results
    )
