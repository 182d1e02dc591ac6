"""Parts of the upper bound for structure that one bandwidth cannot see (docs/validity.md, "Upper bound").

- *Spread*: where results spread less without somebody, the smooth set is taken at that person's own bandwidth too.
- *Counts*: a smooth set that holds points of one sample only, or values W of two kinds, is bounded by exact counts.
- *Gaps*: where the influence jumps along the results, one sample has a hole, or two of its parts overlap.
- *Residues*: results whose last digits are clearly more usual in one sample become atoms (`measuring.line.residues`).
- *Fine structure*: the interval that tells the samples apart best (on a lattice: the hockey stick at a quarter of the
  smooth set's bandwidth), compared with what is left of it when both results of a pair get the same noise, as wide as
  the smooth set's kernel.

Sets chosen on the same data only raise an upper bound. With many people chance raises the largest of their bounds, so
that gaps, residues and fine structure must be the clearer the more people there are. A part depends on a person's own
results, those with everyone, and the number of people alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag
from importlib.util import find_spec
from math import ceil, log, log2
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from empriv.base.native import BYTES, DOUBLE, DOUBLES, INTS, LONG, LONGS
from empriv.measuring.line.atoms import lattice, share_at_most
from empriv.measuring.line.residues import Marks, marks
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.moments import quantile
from empriv.validate.ground import Ground

COPIES = 8  # noises that fine structure is compared with: half of them the negatives of the others
APART = 20.0  # bandwidths between an atom and what is next to it: no kernel reaches so far


class BoundPart(IntFlag):
    """What is looked for."""

    COUNTS = 1
    GAPS = 2
    RESIDUES = 4
    FINE = 8
    SPREAD = 16


PARTS = BoundPart.COUNTS | BoundPart.GAPS | BoundPart.RESIDUES | BoundPart.FINE | BoundPart.SPREAD


@dataclass(frozen=True, eq=False)
class Look:
    """What the look at every individual shares.

    Attributes
    ----------
    points : (N,) results with everyone; each atom has a place of its own, beyond ``far``
    draws : points of each database
    bandwidth : the one-SE bandwidth
    narrow : bandwidth of the smooth set, in bandwidths
    e : exp of each epsilon
    level : of the bound
    shares : (n + 1,) Clopper and Pearson's limit on the mass of what was seen so many times in n
    tolerance : numbers this close are the same number
    lattice : step of the lattice that results lie on, 0 if there is none
    noise : (COPIES, N) in units of the smooth set's bandwidth
    odds : logarithm of the odds against chance that a gap needs
    apart : null deviations that fine structure needs
    parts : what is looked for
    """

    points: FloatArray
    draws: int
    bandwidth: float
    narrow: float
    e: FloatArray
    level: float
    shares: FloatArray
    tolerance: float
    far: float
    lattice: float
    noise: FloatArray
    odds: float
    apart: float
    parts: BoundPart

    @property
    def n(self) -> int:
        return len(self.points) // self.draws

    @property
    def longest(self) -> int:
        """Points on either side of a jump that are looked at."""
        return ceil(3 * log2(self.n))

    def noisy(self, values: FloatArray, copy: int, width: FloatArray | float) -> FloatArray:
        """Values with noise of the smooth set's width; atoms stay where they are, and a lattice is kept to."""
        noise = self.noise[copy] * width
        if self.lattice > 0:
            noise = self.lattice * np.rint(noise / self.lattice)
        return np.where(values > self.far, values, values + noise)


@dataclass(frozen=True, eq=False)
class Reaches:
    """(individuals,) bounds on sup |log p/p_i| at the smooth set's bandwidth, and at another one, ``width`` bandwidths
    wide, for total risk. A set is empty from there on."""

    smooth: FloatArray
    total: FloatArray
    width: float


def raise_bounds(
    ground: Ground,
    epsilons: FloatArray,
    level: float,
    narrow: float,
    upper: FloatArray,
    parts: BoundPart | None = None,
    reaches: Reaches | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Raises everyone's bounds ``upper`` (individuals, epsilons) to the largest that a part gives.

    People who have an atom of their own are left out: their exact leak is compared by counts already. Gives the sums
    that `analytic.total_bound` is made of, of those who are not; 0 without ``reaches``, and where nothing is compiled.
    """
    losses, sums = np.zeros(len(epsilons)), np.zeros((len(epsilons), ground.n_databases))
    rows = np.flatnonzero((ground.shifts > 0) & ~ground.alone)
    if not len(rows):
        return losses, sums
    look, places = _look(ground, epsilons, level, narrow, PARTS if parts is None else parts)
    steps = dict(ground.marked.residues) if look.parts & BoundPart.RESIDUES else {}
    ratios = ground.marked.ratios if look.parts & BoundPart.SPREAD else None
    orders = _orders(look)

    def task(people: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        bandwidths = np.full(len(people), ground.bandwidth)
        if ratios is not None:
            bandwidths *= ratios[people]
        given = places(people), bandwidths, *_marks(ground, people, steps), upper[people]
        if compiled is None:
            return by_numpy(look, *given), np.zeros_like(losses), np.zeros_like(sums)
        within = np.full(len(people), np.inf)
        if reaches is None:
            return compiled(look, orders, *given, within, within, 0.0)
        with np.errstate(over="ignore"):
            # reaches are for the one bandwidth
            within = np.where(bandwidths == ground.bandwidth, np.exp(reaches.smooth[people]), np.inf)
            total = np.exp(reaches.total[people])
        return compiled(look, orders, *given, within, total, reaches.width * ground.bandwidth)

    for people, (raised, their_losses, their_sums) in ground.in_threads(task, rows, most=ground.together):
        upper[people] = raised
        losses += their_losses
        sums += their_sums
    return losses, sums


def _look(
    ground: Ground, epsilons: FloatArray, level: float, narrow: float, parts: BoundPart
) -> tuple[Look, Callable[[IntArray], FloatArray]]:
    """What everyone shares, and how people's points are placed."""
    n, people = ground.n_databases, max(ground.marked.people, 1)
    values, marked = ground.values, ground.marked
    numbers = np.isfinite(marked.points)
    entries = values.entries[np.isfinite(marked.entries)]
    top = float(np.concatenate((values.points[numbers], entries)).max(initial=0.0))
    apart = APART * ground.bandwidth + 1e-6 * abs(top)
    atoms = np.unique(values.points[~numbers])

    def placed(points: FloatArray, smooth: npt.NDArray[np.bool_]) -> FloatArray:
        """Atoms beyond all numbers. What results with everyone never are has one place: no set need tell it apart."""
        if smooth.all():
            return points
        place = np.searchsorted(atoms, points - ground.tolerance)
        known = (place < len(atoms)) & (
            np.abs(atoms[np.minimum(place, len(atoms) - 1)] - points) <= ground.tolerance if len(atoms) else False
        )
        return np.where(smooth, points, top + apart * (1 + np.where(known, place, len(atoms))))

    grid = lattice(values.points[numbers])
    noise = np.random.default_rng(n).laplace(size=(COPIES // 2, len(values.points)))
    look = Look(
        points=np.ascontiguousarray(placed(values.points, numbers)),
        draws=ground.draws,
        bandwidth=ground.bandwidth,
        narrow=narrow,
        e=np.exp(epsilons),
        level=level,
        shares=share_limits(n, level),
        tolerance=ground.tolerance,
        far=top + 0.5 * apart,
        lattice=0.0 if grid is None else grid[1],
        noise=np.concatenate((noise, -noise)),
        odds=log(40 * n * people),
        apart=quantile(1 - 0.5 / people),
        parts=parts,
    )
    return look, lambda rows: placed(values.dense(rows), np.isfinite(marked.dense(rows)))


def share_limits(n: int, level: float) -> FloatArray:
    """(n + 1,) Clopper and Pearson: the largest mass of what was seen so many times in n."""
    return share_at_most(np.arange(n + 1), n, level)


def _orders(look: Look) -> npt.NDArray[np.int32]:
    """(1 + COPIES, N) points with everyone sorted, as they are and with each noise."""
    width = look.narrow * look.bandwidth
    values = [look.points, *(look.noisy(look.points, copy, width) for copy in range(COPIES))]
    return np.stack([np.argsort(row, kind="stable") for row in values]).astype(np.int32)


def _marks(ground: Ground, rows: IntArray, steps: dict[int, FloatArray]) -> tuple[Marks, npt.NDArray[np.int32]]:
    """(rows, steps, 2, N) which points are atoms at each step at which residues differ, and how many steps are."""
    size = len(ground.values.points)
    counts = np.array([len(steps.get(int(row), ())) for row in rows], np.int32)
    out = np.zeros((len(rows), max(1, int(counts.max(initial=0))), 2, size), np.int8)
    clear = quantile(1 - 0.05 / max(ground.marked.people, 1))  # for each of many people chance makes residues differ
    wanted: dict[float, list[tuple[int, int]]] = {}
    for place in np.flatnonzero(counts).tolist():
        for number, step in enumerate(steps[int(rows[place])].tolist()):
            wanted.setdefault(step, []).append((place, number))
    for step, members in wanted.items():
        places, numbers = np.array(members).T
        without = ground.marked.dense(rows[places])
        out[places, numbers] = marks(ground.marked.points, without, step, ground.draws, clear)
    return out, counts


def by_numpy(
    look: Look,
    without: FloatArray,
    bandwidths: FloatArray,
    at: Marks,
    counts: npt.NDArray[np.int32],
    upper: FloatArray,
) -> FloatArray:
    """``upper`` raised to the parts, without compiled code."""
    from empriv.validate.bounds.structure_in_numpy import structure_in_numpy

    return np.maximum(upper, structure_in_numpy(look, without, bandwidths, at, counts))


class Promising(NamedTuple):
    """The best of some individuals for each kind of set, (epsilons, 6): half-lines from the left and from the right,
    in both directions, then smooth sets in both.

    ``place`` (epsilons, 4) is the knot after which a half-line ends.
    """

    scores: FloatArray
    who: IntArray
    place: IntArray


Compiled = Callable[..., tuple[FloatArray, FloatArray, FloatArray]]


def _load() -> tuple[Compiled, Callable[..., None], Callable[..., Promising]] | tuple[None, None, None]:
    spec = find_spec("empriv.validate.bounds._structure")
    if spec is None or spec.origin is None:
        return None, None, None
    library = ctypes.CDLL(spec.origin)
    parts, crossed, best = library.empriv_parts, library.empriv_cross_fit, library.empriv_promising
    parts.argtypes = [
        LONG, LONG, LONG, *[DOUBLES] * 4, LONG, BYTES, INTS, LONG, DOUBLES, DOUBLE, DOUBLE, DOUBLES, *[DOUBLE] * 7,
        DOUBLES, INTS, DOUBLES, LONG, LONG, DOUBLE, *[DOUBLES] * 4,
    ]  # fmt: skip
    crossed.argtypes = [
        LONG, LONG, LONG, DOUBLES, DOUBLES, INTS, DOUBLE, INTS, LONG, LONG, DOUBLES, DOUBLE, *[DOUBLES] * 3
    ]  # fmt: skip
    best.argtypes = [LONG, LONG, DOUBLES, DOUBLES, INTS, DOUBLE, LONG, DOUBLES, DOUBLE, DOUBLE, DOUBLES, LONGS, LONGS]
    parts.restype = crossed.restype = best.restype = ctypes.c_int

    def structure(
        look: Look,
        orders: npt.NDArray[np.int32],
        without: FloatArray,
        bandwidths: FloatArray,
        at: Marks,
        counts: npt.NDArray[np.int32],
        upper: FloatArray,
        within: FloatArray,
        within_total: FloatArray,
        total: float,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """``upper`` raised to the parts, and sums of total risk at the bandwidth ``total``, if that is not 0."""
        z, longest = quantile(look.level), look.longest
        out, losses, sums = np.array(upper, order="C"), np.zeros(len(look.e)), np.zeros((len(look.e), look.n))
        log_factorials = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1.0, 2 * longest + 1)))))
        failed = parts(
            len(without), look.n, look.draws, look.points, np.ascontiguousarray(without), bandwidths, within,
            at.shape[1], at, counts, len(look.e), look.e, z, (1 + 2 * z * z) / 6, look.shares, look.bandwidth,
            look.narrow, look.tolerance, look.odds, look.apart, look.lattice, look.far, look.noise, orders,
            log_factorials, longest, int(look.parts), total, within_total, out, losses, sums,
        )  # fmt: skip
        if failed:
            raise MemoryError
        return out, losses, sums

    def cross_fit(
        points: FloatArray,
        without: FloatArray,
        draws: int,
        width: float,
        fold: IntArray,
        e: FloatArray,
        z: float,
        out: tuple[FloatArray, FloatArray, FloatArray],
    ) -> None:
        """Adds these individuals to scores, values and sums of a `CrossFitted`."""
        failed = crossed(
            len(without), len(points) // draws, draws, points, np.ascontiguousarray(without),
            np.argsort(points, kind="stable").astype(np.int32), width, fold.astype(np.int32), out[0].shape[1], len(e),
            e, z, *out,
        )  # fmt: skip
        if failed:
            raise MemoryError

    def promising(
        points: FloatArray, without: FloatArray, width: float, e: FloatArray, z: float, n_test: int
    ) -> Promising:
        """`lower._promising` of these individuals, who have no atoms."""
        out = Promising(np.full((len(e), 6), -np.inf), np.zeros((len(e), 6), np.int64), np.zeros((len(e), 4), np.int64))
        order = np.argsort(points, kind="stable").astype(np.int32)
        if best(len(without), len(points), points, without, order, width, len(e), e, z, n_test, *out):
            raise MemoryError
        return out

    return structure, cross_fit, promising


compiled, compiled_cross_fit, compiled_promising = _load()
