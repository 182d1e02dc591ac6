"""Regression of the results on what is known: their level m(x) by least squares, their spread s(x) where it changes.

The model is ``y_k = m(x_k) + s(x_k) r_k`` with r independent of x. What is left, r, is the randomness that protects
people from somebody who knows x.

Least squares blurs a law with sharp or several peaks: residuals hold the level's error, of variance p/n, beside r. So
the level takes one step further, towards the largest likelihood under the law that residuals were seen to have. Its
error is then as small as the law's own peaks are sharp, and p parameters make what is left narrower, for any law. That
errs on the private side, and is not undone.

Arrays here are (n,) for databases, in their order in time where they have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.densities.selection import spread as spread_of
from empriv.measuring.given.terms import Term, category_term
from empriv.results import FloatArray, IntArray

LEAST_LEFT = 20  # databases that must be left over, more than parameters
SPREAD_LEVEL = 0.05  # of the test whether the spread changes with one quantity
_CAREFUL_LEVEL, _FEW = 0.2, 200  # with fewer databases the test sees little, and takes less for a sign
_EACH_SPREAD = 8  # databases for each parameter of the spread
_ROUNDS = 8
_Z = 1.6448536269514722
_PERMUTATIONS = 499
_WIDTH = 0.85  # of the kernel that scores are taken from, in spreads n^(-1/5)
_NORMAL = 1.1  # of the information, where a normal law has 1: below it least squares are as good as any
_CENTRES = 2000  # residuals that scores are taken from, at most
_DETERMINED = 1e-9  # residuals this small beside the results are rounding

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Spread:
    """How far results spread around their level, relative to the geometric mean of all databases.

    Attributes
    ----------
    scale : (n,) s(x)
    error : (n,) standard error of its logarithm
    least : the least of s(x) exp(-1.645 error) where anybody was: how little randomness may be left there
    names : what it was fitted on
    """

    scale: FloatArray
    error: FloatArray
    least: float
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """A fitted model.

    Attributes
    ----------
    terms : what is known
    level : (n,) m(x)
    residuals : (n,) y - m(x); NaN where y is no number
    parameters : of the level
    spread : the fitted spread, or None if it was taken to be the same everywhere
    p_spread : of the test that it is; NaN if it was not tested
    """

    terms: tuple[Term, ...]
    level: FloatArray
    residuals: FloatArray
    parameters: int
    spread: Spread | None
    p_spread: float

    @property
    def calm(self) -> FloatArray:
        """(n,) least/s(x), which brings all databases to the calmest context; 1 where all spread alike."""
        return np.ones(len(self.level)) if self.spread is None else self.spread.least / self.spread.scale

    @property
    def units(self) -> FloatArray:
        """(n,) what one unit of what is left is on each database, in units of the results: s(x)/least, by the lower
        confidence limit of s(x) there; at least 1 where anybody was, and 1 where all spread alike."""
        if self.spread is None:
            return np.ones(len(self.level))
        return np.asarray(self.spread.scale * np.exp(-_Z * self.spread.error) / self.spread.least)

    def among(self, databases: IntArray) -> Fit:
        """The same fit, its calmest context looked for among these databases alone: those that people are in."""
        if self.spread is None or not len(databases):
            return self
        least = self.spread.least * float(self.units[databases].min())
        return replace(self, spread=replace(self.spread, least=least))

    @property
    def left(self) -> FloatArray:
        """(n,) the randomness that is left, in the units of the calmest context."""
        return self.residuals * self.calm

    @property
    def determined(self) -> bool:
        """Whether what is known determines the results."""
        return _determined(self.residuals)


def fitted(y: FloatArray, terms: Sequence[Term], *, spread: bool = False) -> Fit:
    """Fit level and spread.

    Parameters
    ----------
    y : (n,) results; NaN where a result is no number
    terms : what is known of each database
    spread : fit the spread even where no test says that it changes
    """
    here = np.isfinite(y)
    n = int(np.count_nonzero(here))
    columns = np.column_stack([np.ones(len(y)), *(term.columns for term in terms)])
    rank = int(np.linalg.matrix_rank(columns[here])) if n else 0
    if n < rank + LEAST_LEFT:
        raise InputError(
            f"There must be at least {rank + LEAST_LEFT} databases to take out what is known, {LEAST_LEFT} more than "
            f"the {rank} parameters that it needs, got {n}. Hint: fewer quantities, or coarser categories."
        )
    roots = np.ones(len(y))
    level, residuals = _sharpened(y, columns, here, roots)
    candidates = [] if _determined(residuals) else _spread_terms(terms, n)
    tested = {term: changing(residuals[here], [term.on(here)]) for term in candidates}
    p = min(tested.values(), default=float("nan"))
    known = [term for term in candidates if tested[term] <= (_CAREFUL_LEVEL if n < _FEW else SPREAD_LEVEL)]
    if any(term.name == "weekday" for term in known):
        known = [term for term in known if term.name != "weekend"]
    if spread and not known:
        known = [term for term in candidates if term.name != "weekend"]
    modelled = None
    if known:
        for _ in range(_ROUNDS):
            roots = 1.0 / _spread(residuals, known, here).scale
            level = _level(y, columns, here, roots)
            residuals = _settled(y - level, y)
        level, residuals = _sharpened(y, columns, here, roots)
        modelled = _spread(residuals, known, here)
    return Fit(tuple(terms), level, residuals, rank, modelled, p)


def prefers_logarithm(y: FloatArray, terms: Sequence[Term]) -> bool:
    """Whether the Box–Cox likelihood of the logarithm exceeds that of the numbers themselves, beyond chance (1.92)."""
    if len(y) < 2 or not np.all(y > 0):
        return False
    columns = np.column_stack([np.ones(len(y)), *(term.columns for term in terms)])
    here, equal = np.ones(len(y), bool), np.ones(len(y))
    sums = [float(((z - _level(z, columns, here, equal)) ** 2).sum()) for z in (y, np.log(y))]
    if min(sums) <= 0:
        return False
    plain, logarithm = (-0.5 * len(y) * np.log(total) for total in sums)
    return bool(logarithm - np.log(y).sum() > plain + 1.92)


def changing(residuals: FloatArray, terms: Sequence[Term]) -> float:
    """p of the test whether the spread of residuals depends on what is known.

    Sizes are distances from the middle, the largest tenth cut to the same. The middle is the median of those that are
    not cut: from there an error of the level makes as many sizes smaller as larger, also of a skewed law.
    """
    middle = float(np.median(residuals))
    for _ in range(5):
        size = np.abs(residuals - middle)
        most = float(np.quantile(size, 0.9))
        middle = float(np.median(residuals[size <= most]))
    return explained_by(np.minimum(np.abs(residuals - middle), most), terms)


def explained_by(values: FloatArray, terms: Sequence[Term]) -> float:
    """p of the test whether values depend on what is known: the sum of squares that it explains, under permutation."""
    columns = np.column_stack([term.columns for term in terms])
    basis = np.linalg.qr(columns - columns.mean(axis=0))[0]
    centred = values - values.mean()
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(len(values)), (_PERMUTATIONS, 1)), axis=1)
    explained = ((centred[orders] @ basis) ** 2).sum(axis=1)
    seen = float(((centred @ basis) ** 2).sum())
    return float((1 + np.count_nonzero(explained >= seen * (1 - 1e-12))) / (_PERMUTATIONS + 1))


def _level(y: FloatArray, columns: FloatArray, here: BoolArray, root: FloatArray) -> FloatArray:
    """Weighted least squares, weights the square of ``root``; the middle is taken out first, for precision."""
    middle = float(np.median(y[here]))
    design = columns[here] * root[here, None]
    found = np.linalg.lstsq(design, (y[here] - middle) * root[here], rcond=1e-10)[0]
    return np.asarray(columns @ found + middle)


def _sharpened(y: FloatArray, columns: FloatArray, here: BoolArray, root: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The level of least squares and one step further, and residuals."""
    level = _level(y, columns, here, root)
    level = level + columns @ _further(_settled(y - level, y), columns, here, root)
    return level, _settled(y - level, y)


def _further(residuals: FloatArray, columns: FloatArray, here: BoolArray, root: FloatArray) -> FloatArray:
    """(columns,) a step from least squares towards the largest likelihood: ``(X'X)^-1 X' score / slope``.

    The score is -f'/f of a smoothed density of the residuals, the slope the mean of its derivative. With few databases
    it says little of how sharp a law is, and the step is always taken; with many, a law that looks normal keeps least
    squares, which are best for it.
    """
    rest = residuals[here] * root[here]
    size = float(spread_of(rest))
    if not size > 0 or columns.shape[1] == 1:
        return np.zeros(columns.shape[1])
    width = _WIDTH * size * len(rest) ** -0.2
    centres = np.sort(rest)[np.linspace(0, len(rest) - 1, min(len(rest), _CENTRES)).round().astype(np.int64)]
    distance = (rest[:, None] - centres) / width
    kernel = np.exp(-0.5 * distance * distance)
    total = kernel.sum(axis=1) + 1e-300
    score = (distance * kernel).sum(axis=1) / (width * total)
    information = float(np.mean(score * score))
    bend = ((1.0 - distance * distance) * kernel).sum(axis=1) / (width * width * total)
    slope = max(information, float(np.mean(bend)) + information)
    normal = information * (float(rest.var()) + width * width) < _NORMAL
    if slope == 0 or (normal and len(rest) >= _FEW):
        return np.zeros(columns.shape[1])
    return np.asarray(np.linalg.lstsq(columns[here] * root[here, None], score / slope, rcond=1e-10)[0])


def _determined(residuals: FloatArray) -> bool:
    return bool(np.nanmax(np.abs(residuals), initial=0.0) == 0.0)


def _settled(residuals: FloatArray, y: FloatArray) -> FloatArray:
    """Residuals without rounding: equal results under equal knowledge have equal ones, and none at all are zero."""
    numbers = y[np.isfinite(y)]
    if np.nanmax(np.abs(residuals)) <= _DETERMINED * max(float(np.ptp(numbers)), 4e-7 * float(np.abs(numbers).max())):
        return np.where(np.isfinite(residuals), 0.0, np.nan)
    step = 64 * float(np.spacing(np.abs(numbers).max()))
    return np.asarray(np.round(residuals / step) * step)


def _spread_terms(terms: Sequence[Term], n: int) -> list[Term]:
    """What the spread is fitted on: as much of what is known as n databases carry, the past left out."""
    known: list[Term] = []
    for term in terms:
        if not term.lag and sum(part.size for part in known) + term.size <= n // _EACH_SPREAD:
            known.append(term)
        if term.name == "weekday" and term.values is not None:
            known.append(category_term("weekend", np.isin(term.values, ("Saturday", "Sunday"))))
    return [term for term in known if term.size]


def _log_sizes(residuals: FloatArray) -> FloatArray:
    size = np.abs(residuals)
    return np.asarray(np.log(size + 1e-3 * float(np.median(size)) + 1e-300))


def _spread(residuals: FloatArray, terms: Sequence[Term], here: BoolArray) -> Spread:
    """log|residual| by least squares: its slopes are those of log s, whatever the law of what is left."""
    columns = np.column_stack([term.columns for term in terms])
    centred = columns - columns[here].mean(axis=0)
    size = _log_sizes(residuals[here])
    inverse = np.linalg.pinv(centred[here])
    slopes = inverse @ (size - size.mean())
    log_scale = centred @ slopes
    rest = size - size.mean() - log_scale[here]
    variance = float((rest**2).sum()) / max(1, len(rest) - 1 - columns.shape[1])
    covariance = inverse @ inverse.T * variance
    error = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", centred, covariance, centred), 0.0))
    log_scale -= log_scale[here].mean()
    least = float(np.exp((log_scale - _Z * error)[here].min()))
    return Spread(np.exp(log_scale), error, least, tuple(term.name for term in terms))
