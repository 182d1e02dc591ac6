"""What an adversary knows, as values: `Given`, `Weighted`, `Buckets`, `OwnContribution`; and the databases that fit it.

Given that the adversary knows g(X) = z, only databases whose g lies near z tell what results may come. `weights_near`
says how much each database counts (kernel weights), `bucket_labels` which databases are alike (buckets). How private
the results are under such weights is for `conditional`; where g comes from, for `empriv.auditing.knowledge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.results import FloatArray, IntArray

LEAST_EFFECTIVE = 20.0  # below it a value of what is known is left out
FEW_EFFECTIVE = 40.0  # below it, a warning
LEAST_SCALED = 100  # databases: with fewer, the slope of the spread in what is known is noise
PLACES = 25  # values z looked at, at most
WIDTH = 1.5  # of the kernel in g: WIDTH n^(-1/(4 + k)) standard deviations (benchmarks/adversary.py --rules)


@dataclass(frozen=True, eq=False)
class Weighted:
    """An adversary who knows g(X): databases count by how near their g is to what the adversary sees.

    ``g`` is an SQL expression of aggregates, a function of the rows, an array of one number for each database, or a
    list of these, all of which the adversary knows at once.

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> adversary = empriv.Weighted("count(*)")
    >>> print(f'{empriv.audit(data, "avg(delay)", adversary=adversary).delta(0.1):.3f}')
    0.025
    """

    g: Any = field(repr=False)


@dataclass(frozen=True, eq=False)
class Buckets:
    """An adversary who knows in which of a few buckets g(X) lies, as in the paper.

    Parameters
    ----------
    g : as for `Weighted`; labels (text, booleans, whole numbers) make a bucket each
    count : number of quantile buckets; default floor(n / 50), at least 1 and at most 5

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> adversary = empriv.Buckets("count(*)", count=3)
    >>> print(f'{empriv.audit(data, "avg(delay)", adversary=adversary).delta(0.1):.3f}')
    0.006
    """

    g: Any = field(repr=False)
    count: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None and (isinstance(self.count, bool) or self.count < 1):
            raise InputError(f"`count` must be at least 1, got {self.count}.")


@dataclass(frozen=True, eq=False)
class OwnContribution:
    """Every individual as an adversary who knows their own contribution, against every other individual.

    Parameters
    ----------
    contributions : (individuals, n), NaN where an individual is in no row of the database
        What each knows. By default the change that their rows make to the result, q - q_i: their own contribution
        where the query adds up over individuals (sums, counts). For an average that difference also holds the
        others' average, which nobody knows: give the contributions.
    sample : look at this many adversaries only, drawn at random; delta is then a lower estimate
    rng : seed of the drawing

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> contributions = rng.exponential(2.0, (4, 60))
    >>> q = rng.normal(100.0, 10.0, 60) + contributions.sum(axis=0)
    >>> results = empriv.Results.from_arrays(q, q - contributions)
    >>> risk = empriv.measure_against(results, empriv.OwnContribution())
    >>> print(f"{risk.delta(0.1):.2f}")
    0.09
    """

    contributions: Any = field(default=None, repr=False)
    sample: int | None = None
    rng: int = 0

    def __post_init__(self) -> None:
        if self.sample is not None and (isinstance(self.sample, bool) or self.sample < 1):
            raise InputError(f"`sample` must be at least 1, got {self.sample}.")


@dataclass(frozen=True, eq=False, init=False)
class Given:
    """Somebody who knows part of what the results are made of: only what is left counts as protection.

    What is known is fitted to the results of all databases by regression and taken out of both sides of every pair;
    what is left is measured as any results are, with bounds, checks, verdict and noise.

    Parameters
    ----------
    quantities : SQL over a database, a function of the rows, an array, labels, a mapping from database to value, or a
        frame with the databases for index; numbers enter as they are, text as categories
    calendar : count trend, weekday and month or season as known, as far as the databases carry them, read off labels
        that are dates, years or ordered numbers
    previous : how many of the previous answers are known
    spread : whether the spread depends on what is known: "auto" asks a test, True and False say so
    logarithm : take logarithms of the results first; needs positive results
    climb : count as known as much as it takes until what is left looks independent and identically distributed: the
        logarithm, the calendar, previous answers, spread (``adversary="auto"``)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> customers = rng.normal(100.0, 10.0, 90)
    >>> q = 5.0 * customers + rng.normal(0.0, 10.0, 90)
    >>> results = empriv.Results.from_arrays(q, (q - 3.0)[None])
    >>> risk = empriv.measure_against(results, empriv.Given(customers, spread=False))
    >>> print(f"{risk.unconditional.delta(0.1):.3f}; knowing the customers {risk.delta(0.1):.3f}")
    0.004; knowing the customers 0.086
    """

    quantities: tuple[Any, ...] = field(repr=False)
    calendar: bool
    previous: int
    spread: bool | str
    logarithm: bool
    climb: bool

    def __init__(
        self,
        *quantities: Any,
        calendar: bool = False,
        previous: int = 0,
        spread: bool | str = "auto",
        logarithm: bool = False,
        climb: bool = False,
    ) -> None:
        if isinstance(previous, bool) or not isinstance(previous, int) or previous < 0:
            raise InputError(f"`previous` must be a whole number of at least 0, got {previous!r}.")
        if spread not in ("auto", True, False):
            raise InputError(f'`spread` must be "auto", True or False, got {spread!r}.')
        words = [given for given in quantities if isinstance(given, str) and given in WORDS]
        if not (quantities or calendar or previous or climb):
            raise InputError('`Given` must say what is known, got nothing. Hint: Given("count(*)", calendar=True).')
        put = object.__setattr__
        put(self, "quantities", tuple(g for g in quantities if not (isinstance(g, str) and g in WORDS)))
        put(self, "calendar", bool(calendar or "calendar" in words or "public" in words))
        put(self, "previous", max(previous, 1 if "previous" in words or "public" in words else 0))
        put(self, "spread", spread)
        put(self, "logarithm", bool(logarithm))
        put(self, "climb", bool(climb or "auto" in words))


WORDS = ("calendar", "previous", "public", "auto")
"""Words for what many know: the calendar, the previous answer, both, or as much as it takes."""

Adversary = Weighted | Buckets | OwnContribution | Given


def kind_of(adversary: Adversary) -> str:
    """The kind of adversary, as files and sentences know it."""
    match adversary:
        case Given():
            return "given"
        case OwnContribution():
            return "own contribution"
        case Buckets():
            return "buckets"
        case Weighted():
            return "weighted"


@dataclass(frozen=True, eq=False)
class NearbyDatabases:
    """Weights of databases around some values z.

    Attributes
    ----------
    databases : (z,) those whose values these are
    places : (z, k) values of what is known
    weights : (z, n), each row adding up to 1
    effective : (z,) effective number of databases, 1 / sum of squares
    left_out : (others, k) values with fewer than 20 effective databases, and their effective numbers
    left_out_effective : (others,)
    """

    databases: IntArray
    places: FloatArray
    weights: FloatArray
    effective: FloatArray
    left_out: FloatArray
    left_out_effective: FloatArray


def numbers(known: Any, n: int) -> FloatArray:
    """What is known as finite numbers, (n, k)."""
    array = np.asarray(known)
    if array.dtype.kind not in "biuf":
        raise InputError("`known` must hold numbers, got labels. Hint: Buckets(g) makes a bucket of each label.")
    array = array.astype(np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != n or array.shape[1] == 0:
        raise InputError(f"`known` must hold one number, or k, for each of {n} databases, got shape {array.shape}.")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise InputError(
            f"`known` must hold finite numbers, got {bad} that are NULL, NaN or infinite. "
            "Hint: Buckets(g) makes a bucket of them."
        )
    return array


def whitened(known: FloatArray) -> FloatArray:
    """Known quantities with covariance one; directions that do not vary, or only by rounding, are dropped."""
    centred = known - known.mean(axis=0)
    scale = np.abs(known).max(axis=0) * 1e-12
    spread = np.where(centred.std(axis=0) > scale, centred.std(axis=0), np.inf)
    standard = centred / spread
    values, vectors = np.linalg.eigh(standard.T @ standard / len(known))
    kept = values > 1e-10 * max(1.0, float(values.max(initial=0.0)))
    return np.asarray(standard @ (vectors[:, kept] / np.sqrt(values[kept])))


def trend(q: FloatArray, known: FloatArray, counts: FloatArray) -> FloatArray:
    """(n,) linear trend of the results in what is known, by least squares: only its changes matter.

    ``q`` is the mean of each database's results that are numbers, ``counts`` how many there are: databases without
    any have no say, and the trend all the same.
    """
    axes = whitened(known)
    here = counts > 0
    if not axes.shape[1] or np.count_nonzero(here) <= axes.shape[1] + 1:
        return np.zeros(len(q))
    root = np.sqrt(counts[here])[:, None]
    design = np.column_stack((np.ones(np.count_nonzero(here)), axes[here])) * root
    middle = q[here].mean()
    fitted = np.linalg.lstsq(design, (q[here] - middle) * root[:, 0], rcond=1e-10)[0]
    return np.asarray(axes @ fitted[1:])


def spreads_along(sizes: FloatArray, known: FloatArray, counts: FloatArray) -> FloatArray:
    """(n,) logarithm of how far results spread around their trend, linear in what is known: only changes matter.

    ``sizes`` is the mean absolute deviation of each database's results from the trend. ``exp(a + b·y)`` is fitted to
    them by quasi-likelihood with variance proportional to the square of the mean. The slopes b are multiplied by
    ``1 - chance`` (not below 0), the share of their square that chance alone would not give. All are 0 for fewer
    than 100 databases.
    """
    axes = whitened(known)
    here = counts > 0
    k, n = axes.shape[1], int(np.count_nonzero(here))
    size = sizes[here]
    if not k or n < LEAST_SCALED or not size.mean() > 0:
        return np.zeros(len(sizes))
    design = np.column_stack((np.ones(n), axes[here]))
    size = size / size.mean()
    fitted = np.zeros(1 + k)
    inverse = np.linalg.pinv(design)
    for _ in range(20):
        expected = np.exp(np.clip(design @ fitted, -3.0, 3.0))
        step = inverse @ (size / expected - 1.0)
        fitted = fitted + step * min(1.0, 1.0 / max(1e-300, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-6:
            break
    expected = np.exp(np.clip(design @ fitted, -3.0, 3.0))
    dispersion = float(((size / expected - 1.0) ** 2).mean())
    chance = dispersion * k / max(1e-300, n * float(fitted[1:] @ fitted[1:]))
    return np.asarray(axes @ fitted[1:] * max(0.0, 1.0 - chance))


def weights_near(known: FloatArray, *, places: int = PLACES) -> NearbyDatabases:
    """Kernel weights around observed values of what is known.

    Gaussian weights ``exp(-|y_j - z|² / 2b²)`` in whitened units (with several quantities the product of their
    kernels), ``b = 1.5 n^(-1/(4 + k))``. The values z are spread over the observed ones.
    """
    axes = whitened(known)
    n, k = axes.shape
    if k == 0:  # the same in every database: it tells nothing
        every = np.full((1, n), 1.0 / n)
        return NearbyDatabases(np.zeros(1, np.int64), known[:1], every, np.array([float(n)]), known[:0], np.zeros(0))
    chosen = _spread_out(axes, places)
    width = WIDTH * n ** (-1.0 / (4 + k))
    distance = ((axes[chosen, None, :] - axes[None, :, :]) ** 2).sum(axis=2)
    weights = np.exp(-0.5 * distance / width**2)
    weights /= weights.sum(axis=1, keepdims=True)
    effective = 1.0 / (weights**2).sum(axis=1)
    enough = effective >= LEAST_EFFECTIVE
    some, others = chosen[enough], chosen[~enough]
    return NearbyDatabases(some, known[some], weights[enough], effective[enough], known[others], effective[~enough])


def _spread_out(axes: FloatArray, places: int) -> IntArray:
    """Databases whose known values cover all that were observed: quantiles of one, the farthest next of several."""
    _, first = np.unique(axes, axis=0, return_index=True)
    if len(first) <= places:
        return np.sort(first)
    if axes.shape[1] == 1:
        order = np.argsort(axes[:, 0], kind="stable")
        taken = order[np.round(np.linspace(0, len(order) - 1, places)).astype(int)]
        return np.asarray(np.unique(taken))
    start = int(np.argmin((axes**2).sum(axis=1)))
    found = [start]
    distance = ((axes - axes[start]) ** 2).sum(axis=1)
    while len(found) < places:
        found.append(int(np.argmax(distance)))
        distance = np.minimum(distance, ((axes - axes[found[-1]]) ** 2).sum(axis=1))
    return np.array(found)


def bucket_labels(known: Any, n: int, count: int | None) -> tuple[IntArray, tuple[str, ...]]:
    """Bucket of each database, and the name of each bucket.

    Labels (text, booleans, and whole numbers if no count is given) make a bucket each; other numbers are cut at
    quantiles, ties together; NULL and NaN are a bucket of their own. Several quantities make a bucket of each
    combination.
    """
    columns = known_columns(known, n)
    total = min(5, max(1, n // 50)) if count is None else count
    each = total if len(columns) == 1 else max(2, int(total ** (1 / len(columns)) + 1e-9))
    codes = np.zeros(n, np.int64)
    names = [""]
    for column in columns:
        own, titles = _one_column(column, each, explicit=count is not None)
        codes = codes * len(titles) + own
        names = [f"{one} and {other}".removeprefix(" and ") for one in names for other in titles]
    used, codes = np.unique(codes, return_inverse=True)
    return codes, tuple(names[code] for code in used)


def known_columns(known: Any, n: int) -> list[npt.NDArray[Any]]:
    """Each known quantity as an array of n; a tuple or list of arrays keeps the type of each."""
    several = isinstance(known, list | tuple) and len(known) > 0 and all(np.ndim(one) == 1 for one in known)
    columns = [np.asarray(one) for one in known] if several else [np.asarray(known)]
    if len(columns) == 1 and columns[0].ndim == 2:
        columns = list(columns[0].T)
    if any(column.shape != (n,) for column in columns):
        shape = next(column.shape for column in columns if column.shape != (n,))
        raise InputError(f"`known` must hold one value for each of {n} databases, got shape {shape}.")
    return columns


def _one_column(column: npt.NDArray[Any], count: int, *, explicit: bool) -> tuple[IntArray, list[str]]:
    kind = column.dtype.kind
    if kind in "USOb" or (kind in "iu" and not explicit):
        missing = np.array([one is None or one != one for one in column.tolist()])
        texts = np.array(["" if gone else str(one) for one, gone in zip(column.tolist(), missing, strict=True)])
        labels, inverse = np.unique(texts[~missing], return_inverse=True)
        codes = np.full(len(column), len(labels), np.int64)
        codes[~missing] = inverse
        return codes, [*(f"label {rank + 1}" for rank in range(len(labels))), "NULL"]
    if kind not in "iuf":
        raise InputError(f"`known` must hold numbers or labels, got an array of {column.dtype}.")
    values = column.astype(np.float64)
    missing = np.isnan(values)
    present = values[~missing]
    codes = np.full(len(values), count, np.int64)
    if len(present):
        distinct = np.unique(present)
        if len(distinct) <= count:
            codes[~missing] = np.searchsorted(distinct, present)
        else:
            edges = np.sort(present)[[round(len(present) * part / count) for part in range(1, count)]]
            codes[~missing] = np.searchsorted(edges, present, side="right")
    return codes, [*(f"bucket {rank + 1} of {count}" for rank in range(count)), "NULL"]


def as_adversary(adversary: Any) -> Adversary:
    """One of `WORDS`, alone or in a list, is `Given`; any other bare expression, function or array is `Weighted`."""
    if isinstance(adversary, Weighted | Buckets | OwnContribution | Given):
        return adversary
    empty = isinstance(adversary, Sequence) and len(adversary) == 0
    if adversary is None or empty:
        raise InputError('`adversary` must say what is known, got nothing. Hint: adversary="sum(amount)".')
    listed = list(adversary) if isinstance(adversary, list | tuple) else [adversary]
    if any(isinstance(g, str) and g in WORDS for g in listed):
        return Given(*listed)
    return Weighted(adversary)
