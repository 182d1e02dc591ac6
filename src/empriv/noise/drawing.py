"""`release`: one answer, rounded to the lattice and made noisy with the operating system's entropy.

Drawn exactly: the part by 64 random bits against the law's whole weights, Laplace and Gaussian noise by OpenDP's
integer samplers, tables by a random whole number. There is no seed. Whether a law may be released at all is for
`Noise.release`; what is defended and what not is in docs/limits.md.
"""

from __future__ import annotations

import math
import secrets
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError, MissingExtraError
from empriv.noise.law import Law, exact_step, multiples
from empriv.results import FloatArray, Outcome, Results

LIMIT = 2**53
"""Answers and noisy answers keep within this many granularities: all such multiples of a power of two are exact
doubles, and of a decimal the doubles nearest to it."""


def release(law: Law, value: float) -> float:
    """The noisy answer: ``value`` rounded to a multiple of the granularity (ties to even), plus noise.

    A noisy answer beyond 2^53 granularities is released as 2^53 granularities, with its sign: a bound that
    does not depend on the data, so that neither an error nor a lost digit tells what was drawn.
    """
    cell = cell_of(law, value)
    noisy = max(-LIMIT, min(LIMIT, cell + draw(law)))
    return float(noisy * exact_step(law.granularity))


def cell_of(law: Law, value: Any) -> int:
    """The cell that an answer is rounded to, refusing what is not a number or lies beyond the lattice's range."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"`value` must be a number, got {type(value).__name__}.")
    # Whole numbers and fractions of any size are finite, and may be too large for a float.
    if not isinstance(value, int | Fraction) and not math.isfinite(value):
        raise InputError("`value` must be finite, got NaN or an infinity: noise cannot hide that.")
    step = exact_step(law.granularity)
    exact = Fraction(value) if isinstance(value, int | float | Fraction) else Fraction(float(value))
    if step == Fraction(law.granularity):
        cell = round(exact / step)  # exact: a double is a fraction, and Python rounds fractions half to even
    elif abs(exact / step) > LIMIT:
        cell = 2 * LIMIT  # refused below
    else:
        # as the certificate does it: half a cell is where doubles say it is, also for a decimal that is none of them
        cell = round(float(exact) / law.granularity)
    if abs(cell) > LIMIT:
        raise InputError(
            "`value` must lie within 2^53 granularities of 0, got one beyond. Hint: a coarser granularity, declared "
            "from what is known of the query and not from its answer."
        )
    return cell


def draw(law: Law) -> int:
    """Noise in granularities, from the operating system's entropy."""
    return draws(law, 1)[0]


def draws(law: Law, count: int) -> list[int]:
    """``count`` independent draws of the noise."""
    samplers = [_sampler(part.kind, part.scale / law.granularity) for part in law.parts]  # refuse before drawing
    ends = list(accumulate(part.weight for part in law.parts))
    chosen = [bisect_right(ends, secrets.randbits(64)) for _ in range(count)]
    pools = []
    for index, (part, sampler) in enumerate(zip(law.parts, samplers, strict=True)):
        from_part = chosen.count(index)
        if part.table is not None:
            pools.append([_from_table(part.table) for _ in range(from_part)])
        else:
            pools.append([0] * from_part if sampler is None or not from_part else sampler([0] * from_part))
    return [int(pools[index].pop()) for index in chosen]


def _from_table(table: tuple[int, ...]) -> int:
    ends = list(accumulate(table))
    return bisect_right(ends, secrets.randbelow(ends[-1])) - len(table) // 2


@lru_cache(maxsize=128)
def _sampler(kind: str, scale: float) -> Any:
    """OpenDP's sampler of integer noise on lists; None for a kind that needs none.

    T="i64": with ``int``, which is of 32 bits, wide noise would saturate.
    """
    if kind not in ("laplace", "gaussian"):
        return None
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise MissingExtraError("opendp", "release") from error
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)


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
        results,
        q=q,
        outcomes=outcomes,
        entry_q=entry_q,
        entry_outcomes=entry_outcomes,
        draws=many,
        postprocessed_from=results,
    )
