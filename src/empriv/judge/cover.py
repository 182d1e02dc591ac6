"""Cover: the largest move of the answer that is hidden.

On a day that a person is in, their influence d is known. The question is how well the others' law hides a move by d:
U(d) of the shift pair (x + d, x), which rises in d. The cover is the largest d with U(d) <= delta where no smaller
one is above it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from empriv.judge import gate, upper
from empriv.judge.noise_kernels import NoiseKernel, alone
from empriv.judge.upper import LEAST_DATABASES, Upper, both_bandwidths, of_pairs
from empriv.results import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]

_RATIO = 1.2  # between the moves that are tried on the way up
_REFINED = 12  # halvings of the last interval


def of_moves(
    x: FloatArray,
    moves: npt.ArrayLike,
    epsilons: npt.ArrayLike,
    kernel: NoiseKernel | None = None,
    *,
    draws: int = 1,
    level: float = 0.95,
    h: FloatArray | None = None,
    known_smooth: bool = False,
    tests: int | None = None,
) -> Upper:
    """U of moving the results by ``moves`` (rows,): ``x`` is one law (N,), or one for each move (rows, N).

    ``h``, ``known_smooth`` as in `upper.of_pairs`, ``tests`` as in `gate.refuted`.
    """
    d = np.atleast_1d(np.asarray(moves, float))
    own = np.atleast_2d(np.asarray(x, float))
    refuted = np.zeros(len(own), bool)
    if kernel is None:  # both sides of a pair have one bandwidth, and one gate
        widths, likeliest = both_bandwidths(own, draws) if h is None or not known_smooth else (h, h)
        h = np.broadcast_to(likeliest if h is None else h, d.shape)
        if not known_smooth:
            refuted = gate.refuted(own[:, ::draws], widths, tests)
    laws = np.broadcast_to(own, (len(d), own.shape[1]))
    judged = of_pairs(
        laws + d[:, None], laws, epsilons, kernel, reach=np.abs(d), draws=draws, level=level, h=h, known_smooth=True
    )
    refuted = np.broadcast_to(refuted, d.shape) & (d != 0)
    return replace(judged, values=np.where(refuted[:, None], 1.0, judged.values), refuted=refuted)


def cover(
    x: FloatArray,
    epsilons: npt.ArrayLike,
    delta: float,
    kernel: NoiseKernel | None = None,
    *,
    step: npt.ArrayLike | None = None,
    draws: int = 1,
    level: float = 0.95,
    tests: int | None = None,
    known_smooth: bool = False,
) -> FloatArray:
    """(laws, epsilons) D*, the largest move that each law ``x`` (laws, N) or (N,) hides at (epsilon, delta).

    ``step`` makes it a multiple, for moves on a lattice (counts), one for all laws or one for each; without noise it is
    found where it is not given.
    ``known_smooth`` : the gate was passed before. 0 where smoothness is refuted, where all results are equal, and below
    30 databases; noise hides what it hides alone.
    """
    laws = np.atleast_2d(np.asarray(x, float))
    grid = np.atleast_1d(np.asarray(epsilons, float))
    out = np.zeros((len(laws), len(grid)))
    h = np.zeros(len(laws))
    if kernel is None:
        widths, h = both_bandwidths(laws, draws)
        few = laws.shape[1] // draws < LEAST_DATABASES
        refuted = np.zeros(len(laws), bool) if known_smooth else gate.refuted(laws[:, ::draws], widths, tests)
        rows = np.flatnonzero((widths > 0) & ~refuted & (not few))
        steps = np.array([gate.lattice_step(laws[row]) for row in rows]) if step is None else _steps(step, laws)[rows]
    else:
        rows = np.arange(len(laws))
        steps = _steps(0.0 if step is None else step, laws)
    spread = np.array([_spread(laws[row]) for row in rows])
    for column, epsilon in enumerate(grid.tolist()):

        def hidden(some: IntArray, d: FloatArray, epsilon: float = epsilon) -> BoolArray:
            at = rows[some]
            found = of_moves(laws[at], d, epsilon, kernel, draws=draws, level=level, h=h[at], known_smooth=True)
            return np.asarray(found.values[:, 0] <= delta)

        alone_hidden = 0.0 if kernel is None else hidden_alone(kernel, epsilon, delta)
        out[rows, column] = _largest(hidden, np.full(len(rows), alone_hidden), spread, steps)
    return out


def _largest(
    hidden: Callable[[IntArray, FloatArray], BoolArray], known: FloatArray, spread: FloatArray, steps: FloatArray
) -> FloatArray:
    """(laws,) the largest move that is hidden, up from those ``known`` to be: steps of a fifth, then halvings."""
    good, bad = known.copy(), np.full(len(known), np.inf)
    d, most = _multiple(np.maximum(known, 0.01 * spread), steps, up=True), 10 * (spread + known)
    active = np.arange(len(known))
    while len(active):
        here = hidden(active, d[active])
        good[active[here]], bad[active[~here]] = d[active[here]], d[active[~here]]
        active = active[here & (d[active] < most[active])]
        d = np.maximum(_multiple(_RATIO * d, steps, up=True), d + steps)
    bad = np.where(np.isfinite(bad), bad, good)
    for _ in range(_REFINED):
        middle = _multiple(0.5 * (good + bad), steps, up=False)
        active = np.flatnonzero((middle > good) & (middle < bad))
        if not len(active):
            break
        here = hidden(active, middle[active])
        good[active[here]], bad[active[~here]] = middle[active[here]], middle[active[~here]]
    return _multiple(good, steps, up=False)


def _steps(step: npt.ArrayLike, laws: FloatArray) -> FloatArray:
    return np.asarray(np.broadcast_to(np.asarray(step, float), len(laws)))


def _spread(x: FloatArray) -> float:
    """Between the 5% and 95% quantiles of what is finite."""
    finite = x[np.isfinite(x)]
    return float(np.subtract(*np.percentile(finite, [95, 5]))) if len(finite) else 0.0


def _multiple(d: FloatArray, step: FloatArray, *, up: bool) -> FloatArray:
    """The multiple of the step next to d."""
    safe = np.where(step > 0, step, 1.0)
    cells = np.ceil(d / safe - 1e-9) if up else np.floor(d / safe + 1e-9)
    return np.asarray(np.where(step > 0, cells * safe, d))


def hidden_alone(kernel: NoiseKernel, epsilon: float, delta: float) -> float:
    """The largest move that the noise hides at (epsilon, delta) whatever the law is."""
    low, high = 0.0, kernel.scale
    while float(alone(kernel, epsilon, high)) <= delta:
        low, high = high, 2 * high
        if high > 1e12 * kernel.scale:
            return high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(alone(kernel, epsilon, middle)) <= delta else (low, middle)
    return low


DITHER = 0.7  # bandwidths: covers are then .7 to .8 of the true ones, with .5 they are .55 to .7 (benchmarks/judge.py)


def dither(points: FloatArray, *, draws: int = 1, step: float = 0.0) -> NoiseKernel | None:
    """The smallest Laplace noise with which nothing is assumed of the law; None if all results are equal."""
    h = upper.bandwidth(points, draws)
    return NoiseKernel("laplace", DITHER * h, step) if h > 0 else None
