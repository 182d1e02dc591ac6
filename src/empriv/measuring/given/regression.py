"""Regression of the results on what is known: their level m(x) by least squares, their spread s(x) where it changes.

The model is ``y_k = m(x_k) + s(x_k) r_k`` with r independent of x. The residual r is the randomness that protects
people from a reader who knows x.

Least squares blurs a law with sharp or several peaks: residuals hold the level's error, of variance p/n, beside r. So
the level takes one step further, towards the largest likelihood under the law that residuals were seen to have
(Bickel, 1975). Its error is then as small as the law's own peaks are sharp, and p parameters make residuals narrower,
for any law. That errs on the private side, and is not undone.

A hockey stick does not change when both sides are moved, stretched or mapped by one rising function. So a reader who
knows x sees each pair as (r, r - influence/s(x)), and these `Residuals` are measured as any other results. Whoever is
in no row of a database has the result with everyone there, before and after.

`Term` is a quantity that is known of each database: an array, labels, a mapping from database to value, or a frame
with the databases' labels for index. Arrays here are (n,) for databases, in their order in time where they have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.densities.selection import spread as spread_of
from empriv.measuring.given.iid_tests import IidTests, iid_tests, same_within
from empriv.measuring.line.atoms import tie_tolerance
from empriv.results import FloatArray, IntArray, Results


@dataclass(frozen=True, eq=False, repr=False)
class Term:
    """One known quantity.

    Attributes
    ----------
    name : in words
    columns : (n, parameters) about zero, of size one
    values : (n,) the quantity itself: numbers, or labels of categories; None for a wave of the year
    lag : how many answers before it was, for a previous answer; 0 for anything else
    """

    name: str
    columns: FloatArray
    values: npt.NDArray[Any] | None
    lag: int = 0

    @property
    def size(self) -> int:
        return int(self.columns.shape[1])

    @property
    def is_category(self) -> bool:
        return self.values is not None and self.values.dtype.kind not in "f"

    def on(self, databases: npt.NDArray[Any]) -> Term:
        """The term on some of the databases."""
        values = None if self.values is None else self.values[databases]
        return Term(self.name, self.columns[databases], values, self.lag)


def number_term(name: str, values: FloatArray, *, lag: int = 0) -> Term:
    """A number, as it is: one column, none if it does not vary."""
    values = np.asarray(values, float)
    centred = values - values.mean()
    size = float(centred.std())
    varies = size > 1e-12 * float(np.abs(values).max(initial=0.0))
    columns = (centred / size)[:, None] if varies else np.empty((len(values), 0))
    return Term(name, columns, values, lag)


def bent(term: Term) -> Term:
    """A number with its square and cube: growth that slows down, or speeds up."""
    assert term.values is not None
    values = np.asarray(term.values, float)
    scaled = 2 * (values - values.min()) / (np.ptp(values) or 1.0) - 1
    powers = np.column_stack([scaled, 1.5 * scaled**2 - 0.5, 2.5 * scaled**3 - 1.5 * scaled])  # Legendre's
    return replace(term, columns=powers - powers.mean(axis=0))


def curvature(residuals: FloatArray, term: Term, terms: Sequence[Term]) -> float:
    """p of the test whether residuals depend on the square of a number, as far as all ``terms`` do not explain it."""
    values = np.asarray(term.values, float)
    square = ((values - values.mean()) / (values.std() or 1.0)) ** 2
    design = np.column_stack([np.ones(len(square)), *(known.columns for known in terms)])
    rest = square - design @ np.linalg.lstsq(design, square, rcond=1e-10)[0]
    if float(np.abs(rest).max()) <= 1e-9 * float(np.abs(square).max()):  # taken out already
        return 1.0
    return explained_by(residuals, [number_term(term.name, rest)])


def category_term(name: str, labels: npt.NDArray[Any], *, least: int = 1) -> Term:
    """A category: a column for each label but one. Labels of fewer than ``least`` databases share a column."""
    labels = np.asarray(labels).astype(np.str_)
    kinds, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if np.any(counts < least):
        labels = np.where(counts[place] < least, "others", labels)
        kinds = np.unique(labels)
    indicators = (labels[:, None] == kinds[None, :]).astype(float)
    columns = indicators[:, 1:] - indicators[:, 1:].mean(axis=0)
    return Term(name, np.asarray(columns), labels)


def quantity_terms(quantity: Any, databases: npt.NDArray[Any], name: str) -> list[Term]:
    """The terms of what was given for one quantity, one for each column of it; checked."""
    n = len(databases)
    columns = _columns(quantity, databases, name)
    terms = []
    for title, column in columns.items():
        if column.shape != (n,):
            raise InputError(f"{_said(title)} must hold one value for each of {n} databases, got shape {column.shape}.")
        if column.dtype.kind in "iuf":
            terms.append(_checked_number(title, column.astype(float)))
        else:
            terms.append(_checked_category(title, column, n))
    return terms


def _checked_number(name: str, values: FloatArray) -> Term:
    missing = int(np.count_nonzero(~np.isfinite(values)))
    if missing:
        raise InputError(
            f"{_said(name)} must be known on every database, got {missing} that are NULL, NaN or infinite. "
            "Hint: coalesce(..., 0), or leave those databases out."
        )
    term = number_term(name, values)
    if not term.size:
        raise InputError(f"{_said(name)} must vary from database to database, got the same number on all of them.")
    return term


def _checked_category(name: str, column: npt.NDArray[Any], n: int) -> Term:
    missing = sum(value is None or value != value for value in column.tolist())
    if missing:
        raise InputError(
            f"{_said(name)} must be known on every database, got {missing} that are NULL. "
            "Hint: coalesce(..., 'unknown'), or leave those databases out."
        )
    term = category_term(name, np.array([str(value) for value in column.tolist()]))
    if not term.size:
        raise InputError(f"{_said(name)} must vary from database to database, got one category on all of them.")
    if 2 * (term.size + 1) > n:
        raise InputError(
            f"{_said(name)} must have few categories, each on several databases, got {term.size + 1} categories on "
            f"{n} databases. Hint: coarser categories, or a number."
        )
    return term


def _columns(quantity: Any, databases: npt.NDArray[Any], name: str) -> dict[str, npt.NDArray[Any]]:
    if isinstance(quantity, Mapping):
        return {name: _by_label(list(quantity.keys()), list(quantity.values()), databases, name)}
    if hasattr(quantity, "index") and hasattr(quantity, "to_numpy"):  # a frame, or a column of one
        labels = list(quantity.index)
        if not hasattr(quantity, "columns"):
            return {name: _by_label(labels, quantity.to_numpy().tolist(), databases, name)}
        return {
            str(column): _by_label(labels, quantity[column].to_numpy().tolist(), databases, str(column))
            for column in quantity.columns
        }
    array = np.asarray(quantity)
    if array.ndim == 2:
        return {f"{name} ({column + 1})": array[:, column] for column in range(array.shape[1])}
    return {name: array}


def _by_label(labels: list[Any], values: list[Any], databases: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Values in the order of the databases; labels agree if they are written alike."""
    known = dict(zip(map(_written, labels), values, strict=True))
    asked = [_written(label) for label in databases.tolist()]
    missing = sum(label not in known for label in asked)
    if missing:
        raise InputError(f"{_said(name)} must be known on every database, got no value for {missing} of {len(asked)}.")
    found = [known[label] for label in asked]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in found)
    return np.array(found, float) if numbers else np.array(found, object)


def _written(label: Any) -> str:
    text = str(label)
    return text[:10] if text.endswith(" 00:00:00") else text


def _said(name: str) -> str:
    return f"What is known (`{name}`)"


LEAST_RESIDUALS = 20  # databases more than parameters, at least
SPREAD_LEVEL = 0.05  # of the test whether the spread changes with one quantity
_CAREFUL_LEVEL, _FEW = 0.2, 200  # with fewer databases the test sees little, and takes less for a sign
_EACH_SPREAD = 8  # databases for each parameter of the spread
_ROUNDS = 8
_Z = 1.6448536269514722
_PERMUTATIONS = 499
_WIDTH = 0.85  # of the kernel that scores are taken from, in spreads n^(-1/5)
_NORMAL = 1.1  # of the information, where a normal law has 1: below it least squares are as good as any
_CENTRES = 500  # residuals that scores are taken from, at most
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
        """(n,) what one unit of the residuals is on each database, in units of the results: s(x)/least, by the lower
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
    def scaled_residuals(self) -> FloatArray:
        """(n,) the residuals, in the units of the calmest context."""
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
    check_enough(n, rank)
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


def check_enough(n: int, parameters: int) -> None:
    """Refuse so many parameters of what is known with so few databases."""
    if n < parameters + LEAST_RESIDUALS:
        raise InputError(
            f"There must be at least {parameters + LEAST_RESIDUALS} databases to take out what is known, "
            f"{LEAST_RESIDUALS} more than the {parameters} parameters that it needs, got {n}. "
            "Hint: fewer quantities, or coarser categories."
        )


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
    typical = float(np.median(size)) or float(size.mean())  # most are 0: answers rounded coarsely
    return np.asarray(np.log(size + 1e-3 * typical + 1e-300))


def _spread(residuals: FloatArray, terms: Sequence[Term], here: BoolArray) -> Spread:
    """log|residual| by least squares: its slopes are those of log s, whatever the law of the residuals."""
    columns = np.column_stack([term.columns for term in terms])
    centred = columns - columns[here].mean(axis=0)
    size = _log_sizes(residuals[here])
    inverse = np.linalg.pinv(centred[here].T @ centred[here], rcond=1e-12, hermitian=True)  # (X'X)^-1
    log_scale = centred @ (inverse @ (centred[here].T @ (size - size.mean())))
    rest = size - size.mean() - log_scale[here]
    variance = float((rest**2).sum()) / max(1, len(rest) - 1 - columns.shape[1])
    error = np.sqrt(np.maximum(((centred @ inverse) * centred).sum(axis=1) * variance, 0.0))
    log_scale -= log_scale[here].mean()
    least = float(np.exp((log_scale - _Z * error)[here].min()))
    return Spread(np.exp(log_scale), error, least, tuple(term.name for term in terms))


_NOT_POSITIVE = "Logarithms must be taken of results that are all positive numbers, got others."


@dataclass(frozen=True, eq=False, repr=False)
class Residuals:
    """Residuals of results, to a reader who knows part of them.

    Attributes
    ----------
    results : residuals with everyone and without each individual, in units of the residuals of each database: those of
        the results (of their logarithm, if that was taken) in the calmest context
    units : (n,) what one such unit is on each database; 1 where all spread alike
    original : the results themselves, on the same databases in the same order
    fit : what was taken out
    logarithm : whether logarithms were taken
    previous : how many previous answers are known
    dropped : databases left out because their previous answers are not known
    places : positions of these databases among those that were given
    """

    results: Results
    units: FloatArray
    original: Results
    fit: Fit
    logarithm: bool
    previous: int
    dropped: int
    places: IntArray

    @cached_property
    def numbers(self) -> FloatArray:
        """Residuals, averaged over draws, without rounding; databases without a number are left out."""
        residuals = self.fit.scaled_residuals
        return same_within(residuals[np.isfinite(residuals)], tie_tolerance(self.original.q))

    @cached_property
    def in_order(self) -> IidTests:
        """What the i.i.d. tests find in them, in the order of time."""
        return iid_tests(self.numbers)

    def of_people(self, results: Results) -> Residuals:
        """The residuals of the results without other individuals, with everyone as they were."""
        if self.logarithm and not all_positive(results):
            raise InputError(_NOT_POSITIVE)
        original = _on(results, self.places)
        return replace(
            self, original=original, results=_residual_results(original, self.fit, self.units, self.logarithm)
        )

    @property
    def day_units(self) -> FloatArray:
        """(n,) what one unit of `relative_to_level` is on each database, in units of the results."""
        return np.exp(self.fit.level) if self.logarithm else self.units

    def relative_to_level(self, residuals: FloatArray) -> FloatArray:
        """The law that a day's move is held against. Where logarithms were taken it is that of the results over their
        level: a move adds to a result, whatever that is, and its logarithm would tell on which result it was seen."""
        return np.exp(residuals) if self.logarithm else residuals


def regress_out(
    results: Results,
    terms: Sequence[Term],
    *,
    order: IntArray | None = None,
    previous: int = 0,
    lags: Sequence[int] | None = None,
    logarithm: bool = False,
    spread: bool = False,
    calmest: bool = False,
) -> Residuals:
    """Fit what is known, and regress it out.

    Parameters
    ----------
    results : of one number
    terms : what is known of each database, in the order of the results
    order : positions of the databases in time, if they have an order: the residual results come in it
    previous : how many of the previous answers are known
    lags : which of them enter; by default all
    logarithm, spread : as for `fitted`
    calmest : take influences to be as large beside the residuals of every database as where these are least, for noise
        that is added to the results: one unit is then one of the results everywhere
    """
    lags = range(1, previous + 1) if lags is None else lags
    order = np.arange(results.n_databases) if order is None else order
    y = _by_database(results, logarithm)[order]
    if max(lags, default=0) >= len(y):
        raise InputError(
            f"`known` must name fewer previous answers than there are databases, {len(y)}, got {max(lags)}."
        )
    past = [np.concatenate((np.full(lag, np.nan), y[:-lag])) for lag in lags]
    kept = np.flatnonzero(np.all(np.isfinite(past), axis=0)) if past else np.arange(len(y))
    places = order[kept]
    known = [term.on(places) for term in terms]
    known += [
        number_term(f"answer {lag} before" if lag > 1 else "previous answer", values[kept], lag=lag)
        for lag, values in zip(lags, past, strict=True)
    ]
    original = _on(results, places)
    fit = fitted(y[kept], known, spread=spread).among(np.unique(original.entry_database))
    units = np.ones(len(kept)) if calmest else fit.units
    residual = _residual_results(original, fit, units, logarithm)
    return Residuals(residual, units, original, fit, logarithm, max(lags, default=0), len(order) - len(kept), places)


def all_positive(results: Results) -> bool:
    """Whether every result is a number above 0, with everyone and without each individual."""
    numbers = not results.outcomes.any() and not results.entry_outcomes.any()
    return bool(numbers and (results.q > 0).all() and (results.entry_q > 0).all())


def _on(results: Results, places: IntArray) -> Results:
    return results if np.array_equal(places, np.arange(results.n_databases)) else results.on_databases(places)


def _residual_results(original: Results, fit: Fit, units: FloatArray, logarithm: bool) -> Results:
    shape = (len(original.entry_database), original.draws or 1)
    q, entry_q = original.q.reshape(original.n_databases, -1), original.entry_q.reshape(shape)
    y, entry_y = _scaled(q, logarithm), _scaled(entry_q, logarithm)
    calm = fit.calm[:, None]
    # of one draw without the rounding that a difference from the level would bring back
    residuals = fit.scaled_residuals[:, None] if y.shape[1] == 1 else (y - fit.level[:, None]) * calm
    at = original.entry_database
    # In units of the randomness of that database, by the lower confidence limit of its spread.
    influence = (y[at] - entry_y) / units[at, None]
    alone = (entry_y - fit.level[at, None]) * calm[at]  # where there is no number with everyone
    entries = np.where(np.isfinite(y[at]), residuals[at] - influence, alone)
    return replace(original, q=residuals.reshape(original.q.shape), entry_q=entries.reshape(original.entry_q.shape))


def _scaled(values: FloatArray, logarithm: bool) -> FloatArray:
    return np.log(values) if logarithm else values


def _by_database(results: Results, logarithm: bool) -> FloatArray:
    """(n,) results averaged over draws, NaN where none is a number. An average of draws tells more than one answer
    did, so that taking it for the previous answer errs on the private side."""
    numbers = np.where(results.outcomes == 0, results.q, np.nan).reshape(results.n_databases, -1)
    y = _scaled(numbers, logarithm)
    count = np.count_nonzero(np.isfinite(y), axis=1)
    total = np.where(np.isfinite(y), y, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
