"""Cover of a table: how large a move each cell hides, and whom the table does not hide.

Whatever a person did not touch on a day is known. A day in one cell is a line: the residuals of that cell given all
others, moved by what the person did; **cover by cell** is the largest such move that is hidden, beside the most that
anybody moved the cell. A day in several cells is judged by the likelihood-ratio score (`judge.score`), those first that
are furthest in units of the covers of their cells: days are put in the order of

    rho = root of d'K d (as far as normal laws are apart) times the largest sd/cover of the cells touched

and the score is asked of the first ones; if these are hidden so are all others, else a bisection finds from where on
they are. Days that are as far as one that is not hidden, and were not asked themselves, count as not hidden.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from empriv.judge import cover as judge_cover
from empriv.judge import gate, lower, score
from empriv.judge.noise_kernels import NoiseGiven, NoiseKernel, kernels_of
from empriv.judge.upper import LEAST_DATABASES, likeliest_of, row_bandwidths
from empriv.measuring.line.moves import spread_of_law
from empriv.measuring.tables import GivenTableRisk, TableRisk
from empriv.measuring.tables.influences import PersonDays, days_as_they_are, days_with_noise
from empriv.results import FloatArray, IntArray, Results
from empriv.validate.line_bounds import estimate_of_move, furthest_shown
from empriv.validate.table_checks import objected_places

BoolArray = npt.NDArray[np.bool_]
Kernels = tuple[NoiseKernel | None, ...]

_CHUNK = 32  # days of several cells that are asked at once
_ASKED = 16  # moves of one cell that are asked themselves, the furthest
_LATTICE = 8.0  # steps: noise of a larger scale is as good as continuous
_LADDER = 8  # sizes at which a curve of bounds is known


@dataclass(frozen=True, eq=False)
class TableCover:
    """A table, the laws of its cells given each other, and what people did.

    Attributes
    ----------
    risk : of the table
    kernels : the noise of each cell; None where there is none, and None as it is
    """

    risk: TableRisk
    kernels: Kernels | None = None

    @cached_property
    def days(self) -> PersonDays:
        """What people did on each day, in cells that carry something of their own; with noise in all of them."""
        if self.kernels is None:
            given_away = np.zeros(self.risk.results.n_individuals, bool)
            given_away[[row for leak in self.risk.leaks for row in leak.rows.tolist()]] = True
            return days_as_they_are(self.risk.influences, self.risk.fit, given_away)
        return self._on_lattice(days_of(self.risk))

    def _on_lattice(self, days: PersonDays) -> PersonDays:
        """Moves of rounded answers: rounding may add up to a whole step."""
        steps = np.array([0.0 if kernel is None else kernel.step for kernel in self.kernels or ()])[days.cells]
        if not steps.any():
            return days
        safe = np.where(steps > 0, steps, 1.0)
        up = np.sign(days.moves) * np.ceil(np.abs(days.moves) / safe - 1e-9) * safe
        return replace(days, moves=np.where(steps > 0, up, days.moves))

    @property
    def draws(self) -> int:
        return self.risk.results.draws or 1

    @cached_property
    def place(self) -> IntArray:
        """(cells,) place among the kept cells; -1 for a cell that the others determine."""
        out = np.full(len(self.risk.fit.cells), -1)
        out[self.risk.fit.kept] = np.arange(len(self.risk.fit.kept))
        return out

    @cached_property
    def trusted(self) -> BoolArray:
        """(kept,) whether the law of a cell counts. Without noise it must look smooth; with noise it must not object to
        being taken as one law whatever the rest of the table is."""
        fit, r = self.risk.fit, len(self.risk.fit.kept)
        if fit.ridge or fit.n < LEAST_DATABASES or not r:
            return np.zeros(r, bool)
        if self.kernels is not None:
            out = np.ones(r, bool)
            out[objected_places(self.risk)] = False
            return out
        both = np.concatenate((self._answers[:, :: self.draws], fit.given_rest[:: self.draws].T))
        widths = row_bandwidths(both, 1)
        refuted = gate.refuted(both, widths, 2 * r)
        return np.asarray((widths[r:] > 0) & ~refuted[:r] & ~refuted[r:])

    @cached_property
    def _answers(self) -> FloatArray:
        """(kept, N) the answers of each kept cell, NaN where there is none."""
        numbers = (self.risk.results.outcomes == 0).reshape(-1, len(self.place))[:, self.risk.fit.kept]
        return np.where(numbers, self.risk.kept_values, np.nan).T

    @cached_property
    def steps(self) -> FloatArray:
        """(cells,) of the lattice that a cell keeps to, and all moves of it: of counts 1. 0 where there is none."""
        out = np.zeros(len(self.place))
        out[self.risk.fit.kept] = [gate.lattice_step(row) for row in self._answers]
        days = self.days
        own = out[days.cells]
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.abs(days.moves / own - np.rint(days.moves / own)) > 1e-6
        out[days.cells[off & (own > 0)]] = 0.0
        return out

    @cached_property
    def laws(self) -> tuple[IntArray, FloatArray]:
        """(laws,) cells and (laws, N) the residuals of each given all others; without the person who moves a cell most
        too. A cell whose law does not count is a constant."""
        return self.risk.remembered(("laws", self.kernels is None), self._laws)  # whatever the noise is

    @cached_property
    def _fine(self) -> FloatArray:
        """(laws + 1,) likeliest bandwidths."""
        return np.append(likeliest_of(self.laws[1], self.draws), 0.0)

    def _laws(self) -> tuple[IntArray, FloatArray]:
        fit, given = self.risk.fit, self.risk.fit.given_rest
        everyone = np.where(self.trusted[:, None], fit.g * given.T, 0.0)
        cells, extra = [fit.kept], []
        for place, row in self._heaviest().items():
            databases, places, changes = self.risk.influences.of(row)
            along = changes @ fit.precision[places, place] / fit.precision[place, place]
            without = given[:, place].reshape(fit.n, -1).copy()
            without[databases] -= along
            if spread_of_law(without) > 0:
                cells.append(fit.kept[[place]])
                extra.append(fit.g * without.reshape(1, -1))
        return np.concatenate(cells), np.concatenate((everyone, *extra))

    def _heaviest(self) -> dict[int, int]:
        """Of each kept cell whose law counts, the person who moves it most over all days."""
        size, places = self.risk.influences.values**2, self.risk.influences.places
        owner = self.risk.influences.owner[self.risk.influences.rows // self.draws]
        n_people = self.risk.results.n_individuals
        total = np.bincount(places.astype(np.int64) * n_people + owner, size, len(self.trusted) * n_people)
        total = total.reshape(len(self.trusted), n_people)
        return {
            int(place): int(np.argmax(total[place])) for place in np.flatnonzero(self.trusted) if total[place].any()
        }

    # One cell

    def upper_of_moves(self, cells: IntArray, moves: FloatArray, epsilons: FloatArray, level: float) -> FloatArray:
        """(moves, epsilons) U of moving one cell each."""
        out = np.zeros((len(cells), len(epsilons)))
        own, laws = self.laws
        laws = np.concatenate((laws, np.zeros((1, len(self.risk.fit.residuals)))))  # a cell without a law is a constant
        for kernel, scale, chosen in self._by_kernel(cells):
            if kernel is None:  # as it is only smooth laws count; beside noise on other cells, none does
                counts = np.append(self.trusted & (self.kernels is None), False)[self.place[cells[chosen]]]
                out[chosen[~counts]] = 1.0
                chosen = chosen[counts]
            for order in (np.arange(len(own)), np.arange(len(own))[::-1]) if len(chosen) else ():
                which = np.full(len(self.place), -1)
                which[own[order]] = order  # a cell has one law, or two: the last of either order
                x, units = laws[which[cells[chosen]]], scale[cells[chosen]]
                found = judge_cover.of_moves(
                    x / units[:, None], moves[chosen] / units, epsilons, kernel, draws=self.draws, level=level,
                    h=self._fine[which[cells[chosen]]] if kernel is None else None, known_smooth=True,
                )  # fmt: skip
                out[chosen] = np.maximum(out[chosen], found.values)
        return out

    def _by_kernel(self, cells: IntArray) -> list[tuple[NoiseKernel | None, FloatArray, IntArray]]:
        """Noise in units of its scale, these scales (cells,), and which of ``cells`` have it."""
        scale = np.ones(len(self.place))
        if self.kernels is None:
            return [(None, scale, np.arange(len(cells)))]
        units: dict[NoiseKernel | None, list[int]] = {}
        for cell, kernel in enumerate(self.kernels):
            unit = None
            if kernel is not None:
                scale[cell] = kernel.scale
                fine = kernel.scale >= _LATTICE * kernel.step
                unit = NoiseKernel(kernel.kind, 1.0, 0.0 if fine else kernel.step / kernel.scale)
            units.setdefault(unit, []).append(cell)
        return [(unit, scale, np.flatnonzero(np.isin(cells, own))) for unit, own in units.items()]

    def cover(self, epsilon: float, delta: float, level: float = 0.95) -> FloatArray:
        """(cells,) the largest move that each cell hides."""
        key = (epsilon, delta, level)
        if key not in self._covers:
            self._covers[key] = self._cover(epsilon, delta, level)
        return self._covers[key]

    @cached_property
    def _covers(self) -> dict[tuple[float, float, float], FloatArray]:
        return {}

    def _cover(self, epsilon: float, delta: float, level: float) -> FloatArray:
        fit, (own, laws) = self.risk.fit, self.laws
        found = np.full(len(own), np.inf)
        for kernel, scale, chosen in self._by_kernel(own):
            if not len(chosen):
                continue
            if kernel is None and self.kernels is not None:  # a cell without noise beside others that have some
                found[chosen] = 0.0
                continue
            units = scale[own[chosen]]
            hidden = judge_cover.cover(
                laws[chosen] / units[:, None],
                epsilon,
                delta,
                kernel,
                step=self.steps[own[chosen]] / units,
                draws=self.draws,
                level=level,
                known_smooth=True,
            )
            found[chosen] = hidden[:, 0] * units
        if self.kernels is None:
            found[~self.trusted[self.place[own]]] = 0.0
        out = np.full(len(fit.cells), np.inf)
        np.minimum.at(out, own, found)
        out[~np.isfinite(out)] = 0.0
        most = self._most_alone
        asked = np.flatnonzero((most > out) & (self.place >= 0))  # a cover is found by steps, the largest is asked
        if len(asked):
            upper = self.upper_of_moves(asked, most[asked], np.array([epsilon]), level)[:, 0]
            out[asked] = np.where(upper <= delta, most[asked], out[asked])
        for cell in np.flatnonzero(self.place < 0).tolist():
            weights = np.abs(fit.relations[cell])
            parts = weights > 1e-6
            noise = self._kernel(cell)
            alone = 0.0 if noise is None else judge_cover.hidden_alone(noise, epsilon, delta)
            out[cell] = (out[fit.kept[parts]] / weights[parts]).min() if parts.any() else alone
        return out

    @cached_property
    def _most_alone(self) -> FloatArray:
        """(cells,) the most that anybody moved a cell on a day when they moved no other."""
        out = np.zeros(len(self.place))
        _, cells, moves = self.days.of_one_cell
        np.maximum.at(out, cells, moves)
        return out

    # Several cells

    def innovations_of(self, cells: IntArray, moves: FloatArray, *, left_out: bool = False) -> score.Innovations:
        """What a person moved, free of all that they did not touch.

        ``left_out`` : each database is freed by a regression on the others, for what databases demonstrate.
        """
        fit = self.risk.fit
        places = self.place[fit.kept[np.isin(fit.kept, cells)]]
        kernels = self._kernels_of(cells)
        trusted = np.ones(len(places), bool) if left_out or self.kernels is None else self.trusted[places]
        if not trusted.any():
            values = np.zeros((len(fit.residuals), len(cells)))
            covariance = np.zeros((len(cells), len(cells)))
            return score.innovations(values, covariance, moves, kernels, self.draws)
        inverse = np.linalg.pinv(fit.precision[np.ix_(places, places)], rcond=1e-12, hermitian=True)
        left = fit.residuals @ fit.precision[:, places] @ inverse
        if left_out:
            own = np.linalg.qr(left)[0]
            leverage = np.clip(self.risk.fit.leverage - (own**2).sum(axis=1), 0.0, 0.9)
            left = left / (1.0 - leverage)[:, None]
        else:
            left, inverse = fit.g * left, fit.g**2 * inverse
        weights = fit.relations[np.ix_(cells, places)] * trusted
        return score.innovations(left @ weights.T, weights @ inverse @ weights.T, moves, kernels, self.draws)

    def upper_of_day(
        self, cells: IntArray, moves: FloatArray, epsilons: FloatArray, level: float, *, enough: float = 0.0
    ) -> FloatArray:
        """(epsilons,) U of moving several cells at once; what noise alone leaves where that is ``enough``."""
        if self.kernels is None:
            if not self.trusted[self.place[cells]].all():
                return np.ones(len(epsilons))
            return score.upper(self.innovations_of(cells, moves), epsilons, level=level)
        kernels = self._kernels_of(cells)
        if len(kernels) < len(cells):
            return np.ones(len(epsilons))
        left = np.array([score.alone_of(kernels, moves, epsilon) for epsilon in epsilons.tolist()])
        if np.all(left <= enough):
            return left
        one = self.innovations_of(cells, moves)
        if not one.values.any():
            return left
        return score.upper(one, epsilons, level=level, noise_leaves=left)

    def distances(self, epsilon: float, delta: float, level: float) -> FloatArray:
        """(kinds,) rho: how far each kind of days moves the table, in units of what its cells hide."""
        covers, deviations = self.cover(epsilon, delta, level), self._deviations
        with np.errstate(divide="ignore", invalid="ignore"):
            narrow = np.where(covers > 0, deviations / covers, np.inf)
        worst = [narrow[cells].max(axis=1) for cells, _ in self.days.of_several_cells.groups]
        return np.asarray(self._sizes * np.concatenate((np.zeros(0), *worst)))

    @cached_property
    def _sizes(self) -> FloatArray:
        """(kinds,) root of d'K d, with noise."""
        out = [np.zeros(0)]
        for cells, moves in self.days.of_several_cells.groups:
            size = np.empty(len(cells))
            step = max(1, 2_000_000 // cells.shape[1] ** 2)
            for start in range(0, len(size), step):
                rows = slice(start, start + step)
                size[rows] = score.sizes_of(moves[rows], self._precisions(cells[rows]))
            out.append(size)
        return np.concatenate(out)

    @cached_property
    def _noise_variances(self) -> FloatArray:
        if self.kernels is None:
            return np.zeros(len(self.place))
        return np.array(
            [0.0 if k is None else (2.0 if k.kind == "laplace" else 1.0) * k.scale**2 for k in self.kernels]
        )

    @cached_property
    def _deviations(self) -> FloatArray:
        """(cells,) of the residuals of a cell given all others, with its noise."""
        own = np.zeros(len(self.place))
        own[self.risk.fit.kept] = np.where(self.trusted, 1.0 / np.maximum(np.diag(self.risk.fit.precision), 1e-300), 0)
        return np.sqrt(own + self._noise_variances)

    def _precisions(self, cells: IntArray) -> FloatArray:
        """(rows, m, m) of cells (rows, m) given all others, with noise; a law that does not count is left out."""
        places = self.place[cells]
        counts = np.zeros(len(self.place) + 1, bool)
        counts[self.risk.fit.kept[self.trusted]] = True
        known = counts[cells]
        precision = self.risk.fit.precision[places[:, :, None], places[:, None, :]]
        if self.kernels is None:
            return np.asarray(precision)
        m = cells.shape[1]
        units = self._deviations[cells]
        units = np.where(units > 0, units, 1.0)
        precision = precision * units[:, :, None] * units[:, None, :]
        precision = np.where(known[:, :, None] & known[:, None, :], precision, 1e9 * np.eye(m))
        covariance = np.linalg.inv(precision)
        noise = self._noise_variances[cells] / units**2
        whole = np.linalg.inv(covariance + np.maximum(noise, 1e-12)[:, :, None] * np.eye(m))
        return np.asarray(whole / units[:, :, None] / units[:, None, :])

    # Everybody

    def judge(self, epsilon: float, delta: float, level: float) -> JudgedDays:
        """Which days are hidden, and bounds of the worst."""
        days, covers = self.days, self.cover(epsilon, delta, level)
        certain = float(days.certain.any())
        day = int(np.argmax(days.certain)) if certain else -1
        found = JudgedDays(covers, days.certain.copy(), days.certain.copy(), day, certain, certain, certain)
        found = self._with_days_of_one_cell(found, epsilon, delta, level)
        if len(self.days.of_several_cells.cells):
            found = self._with_days_of_several(found, epsilon, delta, level)
        return replace(found, exposed=found.exposed & found.beyond)

    def _with_days_of_one_cell(self, found: JudgedDays, epsilon: float, delta: float, level: float) -> JudgedDays:
        days, cell, move = self.days.of_one_cell
        hidden = found.covers[cell]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(hidden > 0, move / hidden, np.inf)
        far = ratio > 1 + 1e-9
        found.beyond[days[far]] = True
        in_deviations = move / np.maximum(self._deviations[cell], 1e-300)
        first = _first_of_alike(cell, move, ratio, in_deviations)
        if not len(first):
            return found
        upper = self.upper_of_moves(cell[first], move[first], np.array([epsilon]), level)[:, 0]
        top = int(first[np.argmax(upper)])

        def shown(k: int) -> float:
            return self.lower_of(cell[k : k + 1], move[k : k + 1], epsilon, level)

        low = shown(top)
        if low > delta:
            order = np.flatnonzero(far)[np.argsort(-in_deviations[far], kind="stable")]
            count = furthest_shown(lambda k: shown(order[k]) > delta, len(order))
            found.exposed[days[order[:count]]] = True
        if upper.max() > found.upper or found.day < 0:
            estimate = self.estimate_of(cell[top : top + 1], move[top : top + 1], epsilon)
            found = replace(found, day=int(days[top]), upper=float(upper.max()), lower=low, estimate=estimate)
        return found

    def _with_days_of_several(self, found: JudgedDays, epsilon: float, delta: float, level: float) -> JudgedDays:
        several = self.days.of_several_cells
        rho = self.distances(epsilon, delta, level)
        hidden, upper = self._hidden_kinds(rho, epsilon, delta, level)
        found.beyond[several.day] |= ~hidden[several.kind]
        top = max(upper, key=lambda kind: upper[kind])

        def shown(kind: int) -> float:
            return self.lower_of(several.cells[kind], several.moves[kind], epsilon, level)

        low = shown(top) if upper[top] > delta else 0.0
        if low > delta:
            order = np.flatnonzero(~hidden)
            order = order[np.argsort(-rho[order], kind="stable")]
            count = furthest_shown(lambda k: shown(order[k]) > delta, len(order))
            exposed = np.isin(several.kind, np.append(order[:count], top))
            found.exposed[several.day] |= exposed
        lower_ = max(low, found.lower)
        if upper[top] > found.upper or found.day < 0:
            day = int(several.day[np.argmax(several.kind == top)])
            estimate = self.estimate_of(several.cells[top], several.moves[top], epsilon)
            return replace(found, day=day, upper=upper[top], lower=lower_, estimate=estimate)
        return replace(found, lower=lower_)

    def day_bounds(self, epsilons: FloatArray, delta: float, level: float) -> FloatArray:
        """(days, epsilons) U of every day, from above: on a ladder of moves of each cell, and of distances of days in
        several cells; ``delta`` is where these are put in order."""
        days = self.days
        out = np.zeros((days.count, len(epsilons)))
        out[days.certain] = 1.0
        single, cell, move = days.of_one_cell
        order = np.lexsort((move, cell))
        begins = np.searchsorted(cell[order], np.arange(len(self.place) + 1))
        rungs = [_rungs(move[order[a:b]]) for a, b in pairwise(begins.tolist())]
        cells = np.repeat(np.arange(len(self.place)), [len(own) for own in rungs])
        heights = np.concatenate(rungs)
        upper = self.upper_of_moves(cells, heights, epsilons, level)
        ends = np.concatenate(([0], np.cumsum([len(own) for own in rungs])))
        for k, own in enumerate(rungs):
            if len(own):
                part = order[begins[k] : begins[k + 1]]
                rising = np.maximum.accumulate(upper[ends[k] : ends[k + 1]], axis=0)
                out[single[part]] = rising[np.searchsorted(own, move[part] * (1 - 1e-12))]
        several = self.days.of_several_cells
        if len(several.cells):
            rho = self.distances(float(epsilons[0]), delta, level)
            order = np.argsort(rho, kind="stable")
            chosen = np.unique(np.linspace(0, len(order) - 1, 2 * _LADDER).astype(int))
            asked = order[chosen]
            upper = np.array(
                [self.upper_of_day(several.cells[k], several.moves[k], epsilons, level) for k in asked.tolist()]
            )
            rising = np.maximum.accumulate(upper, axis=0)
            by_kind = np.empty((len(rho), len(epsilons)))
            by_kind[order] = rising[np.searchsorted(chosen, np.arange(len(order)))]
            out[several.day] = by_kind[several.kind]
        return out

    def meets(self, epsilon: float, delta: float, level: float = 0.95, *, asked: int = _CHUNK) -> bool:
        """Whether every day is within delta, as far as the largest move of each cell and so many days of several cells
        tell, the furthest; for a search."""
        unjudged = unjudged_of(self.risk)
        if self.days.certain.any() or not (unjudged is None or self.hides(unjudged, epsilon, delta)):
            return False
        cells, at = np.flatnonzero(self._most_alone), np.array([epsilon])
        if len(cells) and self.upper_of_moves(cells, self._most_alone[cells], at, level).max() > delta:
            return False
        several = self.days.of_several_cells
        if not len(several.cells):
            return True
        order = np.argsort(-self._sizes, kind="stable")[:asked]
        return all(
            self.upper_of_day(several.cells[k], several.moves[k], at, level, enough=delta)[0] <= delta
            for k in order.tolist()
        )

    def hides(self, results: Results, epsilon: float, delta: float) -> bool:
        """Whether all that people did on databases with these results is hidden."""
        return bool(self.on_further(results).judge(epsilon, delta, 0.95).upper <= delta)

    def on_further(self, results: Results) -> TableCover:
        """The same laws, beside what people did on further databases."""
        further, days = replace(self), days_with_noise(results)
        further.__dict__["days"] = self._of_kept_cells(days) if self.kernels is None else self._on_lattice(days)
        return further

    def _of_kept_cells(self, days: PersonDays) -> PersonDays:
        """As it is: the cells that the others do not determine carry all; who breaks a relation is given away."""
        fit, n_days = self.risk.fit, len(days.certain)
        day = np.repeat(np.arange(n_days), np.diff(days.starts))
        moves = np.zeros((n_days, len(fit.cells)))
        moves[day, days.cells] = days.moves
        off = np.abs(moves - moves[:, fit.kept] @ fit.relations.T).max(axis=1, initial=0.0)
        broken = off > 1e-6 * np.abs(moves).max(axis=1, initial=0.0)
        own = self.place[days.cells] >= 0
        starts = np.concatenate(([0], np.cumsum(np.bincount(day[own], minlength=n_days)))).astype(np.int64)
        return replace(days, cells=days.cells[own], moves=days.moves[own], starts=starts, certain=days.certain | broken)

    def _hidden_kinds(
        self, rho: FloatArray, epsilon: float, delta: float, level: float
    ) -> tuple[BoolArray, dict[int, float]]:
        """(kinds,) which are hidden, and the bound of those that were asked."""
        several, at = self.days.of_several_cells, np.array([epsilon])
        order = np.argsort(-rho, kind="stable")
        known: dict[int, float] = {}

        def chunk_hidden(number: int) -> bool:
            for kind in order[number * _CHUNK : (number + 1) * _CHUNK].tolist():
                if kind not in known:
                    upper = self.upper_of_day(several.cells[kind], several.moves[kind], at, level)
                    known[kind] = float(upper[0])
            return all(known[kind] <= delta for kind in order[number * _CHUNK : (number + 1) * _CHUNK].tolist())

        low, high = -1, math.ceil(len(rho) / _CHUNK)  # chunks up to `low` have one that is not hidden
        if chunk_hidden(0):
            high = 0
        else:
            low = 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if chunk_hidden(middle) else (middle, high)
        hidden = np.zeros(len(rho), bool)
        hidden[order[high * _CHUNK :]] = True
        for kind, upper in known.items():
            hidden[kind] = upper <= delta
        return hidden, known

    def lower_of(self, cells: IntArray, moves: FloatArray, epsilon: float, level: float) -> float:
        """What the databases demonstrate of moving one cell, or several."""
        if len(cells) > 1:
            if self.risk.fit.ridge:
                return 0.0
            return score.lower(self.innovations_of(cells, moves, left_out=True), epsilon, level=level)
        law, kernel = self._law_of(int(cells[0])), self._kernel(int(cells[0]))
        if not law.any():
            return 0.0
        return float(lower.of_moves(law, moves, epsilon, kernel, draws=self.draws, level=level)[0, 0])

    def estimate_of(self, cells: IntArray, moves: FloatArray, epsilon: float) -> float:
        """The hockey stick of moving one cell, or several."""
        if len(cells) == 1:
            kernel = self._kernel(int(cells[0]))
            return estimate_of_move(self._law_of(int(cells[0])), float(moves[0]), epsilon, kernel, self.draws)
        if self.kernels is not None and len(self._kernels_of(cells)) < len(cells):
            return 1.0
        return score.estimate(self.innovations_of(cells, moves), epsilon)

    def _kernel(self, cell: int) -> NoiseKernel | None:
        return None if self.kernels is None else self.kernels[cell]

    def _kernels_of(self, cells: IntArray) -> tuple[NoiseKernel, ...]:
        """The noise of those of these cells that have some."""
        kernels = (self._kernel(cell) for cell in cells.tolist())
        return tuple(kernel for kernel in kernels if kernel is not None)

    def _law_of(self, cell: int) -> FloatArray:
        """(N,) the residuals of a cell given all others, each database freed by a regression on the others."""
        place = int(self.place[cell])
        if place < 0 or self.risk.fit.ridge:
            return np.zeros(len(self.risk.fit.residuals))
        given = self.risk.fit.given_rest[:, place]
        leverage = np.clip(self.risk.fit.leverage - given**2 / max(float(given @ given), 1e-300), 0.0, 0.9)
        return np.asarray(given / (1.0 - leverage))


@dataclass(frozen=True, eq=False)
class JudgedDays:
    """What a table hides of what people did.

    Attributes
    ----------
    covers : (cells,) the largest move that each hides
    beyond, exposed : (days,) which are not hidden, and which are shown not to be
    day, upper, lower, estimate : the worst day, and its bounds; -1 where nobody moved anything
    """

    covers: FloatArray
    beyond: BoolArray
    exposed: BoolArray
    day: int
    upper: float
    lower: float
    estimate: float


def _rungs(moves: FloatArray) -> FloatArray:
    """Some of these moves (sorted), the largest among them."""
    if not len(moves):
        return moves
    places = np.unique(np.linspace(0, len(moves) - 1, _LADDER).astype(int))
    return np.unique(moves[places])


def _first_of_alike(cell: IntArray, move: FloatArray, ratio: FloatArray, far_off: FloatArray) -> IntArray:
    """Positions of the furthest moves of one cell, one of those that are alike."""
    order = np.lexsort((-far_off, -ratio))[: 64 * _ASKED]
    _, first = np.unique(np.stack((cell[order].astype(float), move[order]), axis=1), axis=0, return_index=True)
    return np.asarray(order[np.sort(first)][:_ASKED])


def table_cover_of(risk: TableRisk, noise: NoiseGiven = 0.0) -> TableCover:
    """The table with this noise, kept with the risk: a verdict, its bounds and a chart ask the same."""
    kernels = kernels_of(noise, risk.fit.cells)
    return risk.remembered(("hiding", kernels), lambda: TableCover(risk, kernels))


def days_of(risk: TableRisk) -> PersonDays:
    """What people did in every cell, kept with the risk."""
    return risk.remembered("days", lambda: days_with_noise(risk.results))


def unjudged_of(risk: TableRisk) -> Results | None:
    """The results on databases left out since the table before them is not known; what people did there is held
    against the law of the others."""
    return risk.unjudged if isinstance(risk, GivenTableRisk) and risk.dropped else None


def all_days_of(risk: TableRisk) -> list[PersonDays]:
    """What people did in every cell, on the databases that have residuals and on those that have none."""
    unjudged = unjudged_of(risk)
    return [days_of(risk)] if unjudged is None else [days_of(risk), days_with_noise(unjudged)]


def most_moved(risk: TableRisk) -> FloatArray:
    """(cells,) the most that anybody moved each, on any database."""
    return np.asarray(np.max([days.most for days in all_days_of(risk)], axis=0))
