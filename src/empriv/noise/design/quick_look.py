"""A quick look at many individuals: what each seems to reach under noise, seen on a few merged cells.

Merging cells can only hide a risk, so a quick look never shows more than there is, up to interpolation of its tables.
It ranks individuals and resamples (`search`), and decides nothing: `constraints` makes the rows that matter exact, and
the law is certified anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from empriv.base.threads import workers
from empriv.noise.design.constrained_rows import Parts, both_ways
from empriv.noise.design.constraints import Cases
from empriv.results import FloatArray, IntArray

FINE, COARSE = 48, 16  # merged cells: for individuals who may decide, and for finding them among all
_STEPS = 4  # steps of a cell in the tables
_BLOCK = 400_000  # masses held at once by a thread
_LEVELS = 12  # bandwidths that have a table of their own
_MOST_WORKERS = 4


def scores(
    cases: Cases,
    individuals: IntArray,
    *,
    parts: Parts,
    epsilon: float,
    delta: float,
    weights: FloatArray | None = None,
    merged: int = FINE,
) -> FloatArray:
    """(individuals, weightings): what each row seems to reach under this noise; ``weights`` are those of the cases.

    delta > 0: the larger hockey stick. delta = 0: the largest log ratio.
    """
    weights = cases.weights if weights is None else weights
    out = np.zeros((len(individuals), len(weights)))
    if not len(individuals):
        return out
    results, n, m = cases.risk.results, cases.risk.results.n_databases, cases.draws
    look = _Look.of(cases, parts, merged)
    with_all = look.masses(cases.points.reshape(n, m), cases.widths.reshape(n, m), cases.codes.reshape(n, m))
    p = weights @ with_all
    presence = results.presence[individuals]

    def see(block: IntArray) -> None:
        most = int(presence[block].max())
        if most == 0:
            return
        present = np.arange(most) < presence[block][:, None]
        slots = np.where(present, results.starts[individuals[block]][:, None] + np.arange(most), 0)
        where = results.entry_database[slots]
        widths = cases.entry_widths[slots]
        for k, i in enumerate(individuals[block]) if cases.own else ():
            if int(i) in cases.own:
                widths[k, : presence[block][k]] = cases.own[int(i)][1]
        moved = look.masses(
            cases.entries[slots].reshape(-1, m), widths.reshape(-1, m), cases.entry_codes[slots].reshape(-1, m)
        ).reshape(len(block), most, -1)
        moved -= with_all[where]
        moved[~present] = 0.0
        q = np.moveaxis(weights[:, where], 0, 1) @ moved  # (block, weightings, merged)
        q += p
        out[block] = _worst(p, np.maximum(q, 0.0, out=q), epsilon, delta)

    blocks = list(_blocks(presence, max(1, m) * with_all.shape[1], len(weights)))
    if len(blocks) < 4 or workers(_MOST_WORKERS) == 1:
        for block in blocks:
            see(block)
    else:
        with ThreadPoolExecutor(workers(_MOST_WORKERS)) as pool:
            list(pool.map(see, blocks))
    return out


def _blocks(presence: IntArray, cells: int, weightings: int) -> Iterator[IntArray]:
    """Places of individuals who are in about as many databases."""
    order = np.argsort(presence, kind="stable")
    held = np.maximum(np.maximum(presence[order], weightings), 1) * cells  # masses of each, and rising
    begin = 0
    while begin < len(order):
        ahead = held[begin : begin + 4096]
        fits = int(np.searchsorted(ahead * np.arange(1, len(ahead) + 1), _BLOCK, side="right"))
        yield order[begin : begin + max(1, fits)]
        begin += max(1, fits)


@dataclass(frozen=True, eq=False)
class _Look:
    """Masses of noisy kernels on merged cells, by tables of their distribution functions."""

    cases: Cases
    bounds: IntArray  # edges of the merged cells, in steps
    levels: FloatArray  # bandwidths that have a table; a point uses the widest one not wider than its own
    table: FloatArray  # (levels, steps)
    rise: FloatArray  # from each step to the next
    middle: int

    @staticmethod
    def of(cases: Cases, parts: Parts, merged: int) -> _Look:
        fine = cases.cell / _STEPS
        levels = np.unique(np.concatenate((cases.widths, cases.entry_widths.ravel())))
        if len(levels) > _LEVELS:
            positive = levels[levels > 0]
            quantiles = np.quantile(positive, np.linspace(0.0, 1.0, _LEVELS - 1), method="lower")
            levels = np.unique(np.concatenate(([0.0], quantiles)))
        half = _STEPS * (cases.cells + 2)
        grid = fine * np.arange(-half, half + 1)
        table = np.empty((len(levels), len(grid)))
        for k, width in enumerate(levels):
            if width > 0:
                masses = np.diff(cases.kernel.cdf(np.append(grid - 0.5 * fine, grid[-1] + 0.5 * fine) / width))
            else:
                masses = (np.arange(len(grid)) == half).astype(float)
            noisy = np.zeros(len(grid))
            below = 0.0
            for weight, scale in parts:
                if scale == 0.0:
                    noisy += weight * masses
                    continue
                a = np.exp(-fine / scale)
                forward, backward = both_ways(masses[None, :], a)
                noisy += weight * (1 - a) / (1 + a) * (forward + backward)[0]
                below += weight * (1 - a) / (1 + a) * (a / (1 - a)) * (backward[0, 0] + masses[0])
            table[k] = np.clip(below + np.cumsum(noisy) - 0.5 * noisy, 0.0, 1.0)
        rise = np.diff(table, axis=1, append=table[:, -1:])
        return _Look(cases, _merged_bounds(cases, merged), levels, table, rise, half)

    def masses(self, values: FloatArray, widths: FloatArray, codes: IntArray) -> FloatArray:
        """(points, merged cells + categories), averaged over the draws in the second axis."""
        steps = self.table.shape[1]
        merged = len(self.bounds) + 1
        out = np.zeros((len(values), merged + len(self.cases.categories)))
        for draw in range(values.shape[1]):
            number = codes[:, draw] == 0
            place = np.where(number, values[:, draw], 0.0) * (_STEPS / self.cases.cell)
            ceiling = np.ceil(place)
            share = (ceiling - place)[:, None]  # the same for all bounds, which are whole steps
            index = self.bounds - ceiling.astype(np.int64)[:, None]
            index += self.middle
            np.clip(index, 0, steps - 1, out=index)
            if len(self.levels) > 1:
                level = np.maximum(np.searchsorted(self.levels, widths[:, draw], side="right") - 1, 0)
                index += (level * steps)[:, None]
            under = self.rise.ravel().take(index)
            under *= share
            under += self.table.ravel().take(index)
            on_cells = np.empty((len(values), merged))
            on_cells[:, 0] = under[:, 0]
            np.subtract(under[:, 1:], under[:, :-1], out=on_cells[:, 1:-1])
            np.subtract(1.0, under[:, -1], out=on_cells[:, -1])
            if not number.all():
                on_cells[~number] = 0.0
            out[:, :merged] += on_cells
            for column, code in enumerate(self.cases.categories):
                out[:, merged + column] += codes[:, draw] == code
        if values.shape[1] > 1:
            out /= values.shape[1]
        return out


def _merged_bounds(cases: Cases, merged: int) -> IntArray:
    """Edges in steps: about equal numbers of results between half of them, the others evenly apart."""
    low, high = _STEPS * cases.lowest, _STEPS * (cases.lowest + cases.cells)
    values = cases.points[np.isfinite(cases.points)]
    edges = np.linspace(low, high, max(2, merged // 2))
    if len(values):
        quantiles = np.quantile(values, np.linspace(0, 1, merged // 2)) * (_STEPS / cases.cell)
        edges = np.concatenate((edges, np.clip(np.rint(quantiles), low, high)))
    cells = np.rint(edges / _STEPS + 0.5).astype(np.int64)
    return np.asarray(np.unique(cells * _STEPS - _STEPS // 2))  # cell k begins half a cell below k


def _worst(p: FloatArray, q: FloatArray, epsilon: float, delta: float) -> FloatArray:
    """Of the last axis, in the worse direction: the hockey stick, or at delta = 0 the largest log ratio."""
    if delta > 0:
        e = np.exp(epsilon)
        stick = np.maximum(p - e * q, 0.0).sum(-1)
        return np.asarray(np.maximum(stick, np.maximum(q - e * p, 0.0).sum(-1)))
    tiny = 1e-13  # masses below are rounding
    ratio = np.log(np.maximum(q, tiny))
    ratio -= np.log(np.maximum(p, tiny))
    return np.asarray(np.abs(ratio, out=ratio).max(axis=-1))
