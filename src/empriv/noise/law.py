"""`Law`: the law of the noise, on the multiples of a power of two or of a decimal, exactly as it is drawn.

Noise is k granularities g, for whole numbers k. A law is a mixture, with integer weights of 2^64, of

- a point mass at 0;
- discrete Laplace laws of scale b: ``P(k) = (1 - a)/(1 + a) a^|k|``, ``a = e^(-g/b)`` (Ghosh, Roughgarden and
  Sundararajan, 2012);
- discrete Gaussian laws of scale s: P(k) in proportion to ``e^(-(k g/s)^2/2)`` (Canonne, Kamath and Steinke, 2020);
- tables.

`design` designs one, `judging` says what it achieves, `drawing` draws from it; here are its probabilities. The draws of
`Law.sample` are for study only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import one_of
from empriv.errors import FileFormatError, InputError
from empriv.results import FloatArray, IntArray

WHOLE = 2**64
"""The weights of a law sum to this."""

KINDS = ("point", "laplace", "gaussian", "table")
NARROWEST, WIDEST = 2.0**-9, 2.0**40
"""Scales, in granularities: below, no second cell is ever drawn; above, the noise would leave the lattice's range."""

_SUMMED = 4096.0  # Gaussian laws wider than this many granularities are summed by Euler and Maclaurin's formula
_DIGITS = 12  # of a granularity that is no power of two
_DAMAGED = "The file is damaged: its law of noise is not one that empriv writes."


def check_granularity(granularity: Any) -> float:
    """The granularity as a float, if it is a power of two or a decimal of few digits, such as 0.01."""
    if isinstance(granularity, bool) or not isinstance(granularity, int | float | Decimal | np.integer | np.floating):
        raise InputError(f"`granularity` must be a number such as 0.01 or 0.25, got {type(granularity).__name__}.")
    number = float(granularity)
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"`granularity` must be positive and finite, got {number:g}.")
    if not 2.0**-900 <= number <= 2.0**900:
        raise InputError(f"`granularity` must lie between 2^-900 and 2^900, got {number:g}.")
    if not _is_power_of_two(number) and float(f"{number:.{_DIGITS}g}") != number:
        raise InputError(
            f"`granularity` must be a power of two, or a decimal of at most {_DIGITS} digits, got {number!r}. "
            f"Hint: {decimal_at_most(number):g}."
        )
    return number


def exact_step(granularity: float) -> Fraction:
    """What released answers are multiples of: 0.01 is a hundredth, not the double next to it."""
    return Fraction(granularity) if _is_power_of_two(granularity) else Fraction(f"{granularity:.{_DIGITS}g}")


def multiples(cells: npt.ArrayLike, granularity: float) -> FloatArray:
    """Whole numbers of granularities as doubles, each the nearest to the exact multiple: 35 hundredths are 0.35."""
    step = exact_step(granularity)
    if abs(step.numerator) < 2**53 and step.denominator < 2**53:
        return np.asarray(cells, float) * float(step.numerator) / float(step.denominator)
    return np.asarray(cells, float) * granularity


def decimal_at_most(size: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is at most ``size``."""
    power = math.floor(math.log10(size))
    steps = [float(f"{first}e{exponent}") for exponent in (power - 1, power, power + 1) for first in (1, 2, 5)]
    return max(step for step in steps if step <= size)


def own_rounding(values: FloatArray) -> float | None:
    """The power of ten of which all values are multiples, from 1,000,000 to 0.000001; None if there is none."""
    finite = values[np.isfinite(values) & (values != 0)]
    for exponent in range(6, -7, -1):
        scaled = finite / 10.0**exponent if exponent >= 0 else finite * 10.0**-exponent
        if len(finite) and np.all(np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(1.0, np.abs(scaled))):
            return float(f"1e{exponent}")
    return None


def _is_power_of_two(number: float) -> bool:
    return math.frexp(number)[0] == 0.5


def suggested_granularity(width: float) -> float:
    """The largest power of two that is at most ``width``/16, ``width`` being the bandwidth or the largest influence.

    At a sixteenth of the bandwidth rounding costs next to nothing. It is a suggestion: what is released must
    depend on the data through the query alone, so the granularity is declared by the person who releases.
    """
    if not (math.isfinite(width) and width > 0):
        raise InputError(f"`width` must be positive and finite, got {width:g}.")
    return check_granularity(2.0 ** (math.frexp(width / 16)[1] - 1))


@dataclass(frozen=True, eq=False)
class Part:
    """One component of a law.

    Attributes
    ----------
    kind : "point", "laplace", "gaussian" or "table"
    weight : of 2^64
    scale : in units of the result; 0 for a point mass or a table
    table : symmetric integer weights of the noise -m..m, for a table
    """

    kind: str
    weight: int
    scale: float = 0.0
    table: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        if not isinstance(self.weight, int) or isinstance(self.weight, bool) or not 0 < self.weight <= WHOLE:
            raise InputError("`weight` must be a whole number from 1 to 2^64.")
        if self.kind in ("laplace", "gaussian"):
            if not (math.isfinite(self.scale) and self.scale > 0):
                raise InputError(f"`scale` must be positive and finite, got {self.scale:g}.")
        elif self.scale != 0.0:
            raise InputError(f"`scale` must be 0 for a {self.kind}, got {self.scale:g}.")
        if (self.table is not None) != (self.kind == "table"):
            raise InputError("`table` must be given for a table, and only there.")
        if self.table is not None:
            # int() also of NumPy's integers: exact, of any size
            table = tuple(int(weight) for weight in self.table)
            if any(weight < 0 for weight in table) or len(table) % 2 == 0 or table != table[::-1] or not sum(table):
                raise InputError(
                    "`table` must hold whole weights of at least 0, symmetric about the middle, not all 0."
                )
            object.__setattr__(self, "table", table)


@dataclass(frozen=True, eq=False)
class Law:
    """The law of noise on the multiples of ``granularity``, symmetric about 0.

    Attributes
    ----------
    granularity : a power of two, or a decimal such as 0.01
    parts : components, narrowest first; their weights sum to 2^64
    """

    granularity: float
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "granularity", check_granularity(self.granularity))
        parts = tuple(sorted(self.parts, key=lambda part: (part.scale, KINDS.index(part.kind))))
        object.__setattr__(self, "parts", parts)
        if sum(part.weight for part in parts) != WHOLE:
            raise InputError("`parts` must have weights that sum to 2^64.")
        for part in parts:
            cells = part.scale / self.granularity
            if part.scale and not NARROWEST <= cells <= WIDEST:
                raise InputError(
                    f"`scale` must lie between 2^-9 and 2^40 granularities, got {cells:g}. Hint: another granularity."
                )

    @staticmethod
    def of(granularity: float, parts: Iterable[Sequence[Any]]) -> Law:
        """A law of parts ``(kind, weight, scale)`` or ``("table", weight, 0.0, table)`` with weights that sum to 1.

        Weights become whole numbers of 2^64, rounded down; what remains goes to the widest scale: the side of privacy.
        """
        entries = [(str(kind), float(weight), float(scale), *rest) for kind, weight, scale, *rest in parts]
        if not entries or not all(math.isfinite(entry[1]) and entry[1] >= 0 for entry in entries):
            raise InputError("`parts` must have weights that are finite and at least 0.")
        total = sum((Fraction(entry[1]) for entry in entries), Fraction(0))
        if abs(total - 1) > Fraction(1, 10**6):
            raise InputError(f"`parts` must have weights that sum to 1, got {float(total):.9g}.")
        weights = [int(Fraction(entry[1]) / total * WHOLE) for entry in entries]
        widest = max(range(len(entries)), key=lambda k: (weights[k] > 0, entries[k][2], weights[k]))
        weights[widest] += WHOLE - sum(weights)
        law_parts = [
            Part(kind=entry[0], weight=weight, scale=entry[2], table=entry[3] if len(entry) > 3 else None)
            for entry, weight in zip(entries, weights, strict=True)
            if weight > 0
        ]
        return Law(granularity, tuple(law_parts))

    # Probabilities; k counts granularities

    def pmf(self, k: npt.ArrayLike) -> FloatArray:
        """Probability of noise k·granularity, for each whole k."""
        cells = np.abs(_whole(k))
        out = np.zeros(cells.shape)
        for share, part in self.shares():
            out += share * self.part_pmf(part, cells)
        return out

    def tail(self, k: npt.ArrayLike) -> FloatArray:
        """Probability of noise of at least k·granularity; accurate relative to itself far out (k > 0)."""
        cells = _whole(k)
        out = np.zeros(cells.shape)
        for share, part in self.shares():
            upper = self._upper(part, np.where(cells > 0, cells, 1 - cells))
            out += share * np.where(cells > 0, upper, 1.0 - upper)
        return out

    def cdf(self, k: npt.ArrayLike) -> FloatArray:
        """Probability of noise of at most k·granularity."""
        return self.tail(-_whole(k))

    def shares(self) -> tuple[tuple[float, Part], ...]:
        """Each part with its weight as a float."""
        return tuple((part.weight / WHOLE, part) for part in self.parts)

    @cached_property
    def expected_error(self) -> float:
        """Expected absolute noise, in units of the result."""
        return self.granularity * math.fsum(share * self._error(part) for share, part in self.shares())

    @property
    def only_point(self) -> bool:
        """Whether no noise is ever drawn."""
        return all(part.kind == "point" or (part.table is not None and len(part.table) == 1) for part in self.parts)

    def quantile(self, p: float) -> float:
        """The least noise that is not exceeded with probability ``p``, in units of the result."""
        if not 0.0 < p < 1.0:
            raise InputError(f"`p` must lie between 0 and 1, got {p}.")

        def reached(k: int) -> bool:  # each side where it is accurate
            return float(self.cdf(k)) >= p if p < 0.5 else float(self.tail(k + 1)) <= 1.0 - p

        low, high = -1, 1
        while reached(low):
            low *= 2
        while not reached(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(middle) else (middle, high)
        return float(multiples(high, self.granularity))

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator | int | None = None) -> FloatArray:
        """Draws of a pseudo-random generator: for study, never for a release."""
        generator = np.random.default_rng(rng)
        shape = (size,) if isinstance(size, int | np.integer) else tuple(size)
        count = math.prod(shape)
        shares = np.array([share for share, _ in self.shares()])
        part_of_draw = generator.choice(len(shares), size=count, p=shares / shares.sum())
        out = np.zeros(count)
        for index, part in enumerate(self.parts):
            places = np.flatnonzero(part_of_draw == index)
            out[places] = self._draw(part, len(places), generator)
        return multiples(out, self.granularity).reshape(shape)

    # In words and in files

    @property
    def words(self) -> str:
        """The law in one sentence."""
        named = {"laplace": "discrete Laplace noise of scale", "gaussian": "discrete Gaussian noise of scale"}
        phrases = []
        for share, part in self.shares():
            if part.kind == "point":
                phrase = "none"
            elif part.kind == "table":
                phrase = f"noise from a table of {len(part.table or ()):,} values"
            else:
                phrase = f"{named[part.kind]} {part.scale:.6g}"
            phrases.append(phrase if len(self.parts) == 1 else f"{phrase} with probability {share:.4g}")
        if phrases == ["none"]:
            return f"No noise: answers are rounded to multiples of {self.granularity:g}."
        sentence = f"{'; '.join(phrases)}; in multiples of {self.granularity:.12g}."
        return sentence[0].upper() + sentence[1:]

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON; numbers as texts, so that nothing is lost."""
        return {
            "granularity": self.granularity.hex(),
            "parts": [
                {
                    "kind": part.kind,
                    "weight": str(part.weight),
                    "scale": part.scale.hex(),
                    "table": None if part.table is None else [str(weight) for weight in part.table],
                }
                for part in self.parts
            ],
        }

    @staticmethod
    def from_json(spec: Any) -> Law:
        """The inverse of `to_json`; refuses what it would not have written."""
        try:
            if not isinstance(spec, Mapping) or not isinstance(spec["parts"], list):
                raise TypeError("parts")
            parts = []
            for fields in spec["parts"]:
                table = fields["table"]
                parts.append(
                    Part(
                        kind=fields["kind"],
                        weight=int(fields["weight"]),
                        scale=float.fromhex(fields["scale"]),
                        table=None if table is None else tuple(int(weight) for weight in table),
                    )
                )
            return Law(float.fromhex(spec["granularity"]), tuple(parts))
        except (KeyError, TypeError, ValueError, OverflowError) as error:  # InputError is a ValueError
            raise FileFormatError(_DAMAGED) from error

    # One part; cells are not negative

    def part_pmf(self, part: Part, cells: IntArray) -> FloatArray:
        if part.kind == "laplace":
            rate = self.granularity / part.scale
            return np.asarray(math.tanh(0.5 * rate) * np.exp(-rate * cells))  # (1-a)/(1+a) = tanh(rate/2)
        if part.kind == "gaussian":
            sigma = part.scale / self.granularity
            return np.asarray(np.exp(-0.5 * (cells / sigma) ** 2) / _gaussian_total(sigma))
        masses = self.table_masses(part)
        middle = len(masses) // 2
        return np.where(cells <= middle, masses[np.minimum(cells, middle) + middle], 0.0)

    def _upper(self, part: Part, cells: IntArray) -> FloatArray:
        """P(noise >= cells), cells at least 1."""
        if part.kind == "laplace":
            rate = self.granularity / part.scale
            return np.asarray(np.exp(-rate * cells) / (1.0 + math.exp(-rate)))  # (1-a)/(1+a) a^k/(1-a)
        if part.kind == "gaussian":
            return _gaussian_upper(part.scale / self.granularity, cells)
        masses = self.table_masses(part)
        middle = len(masses) // 2
        tails = np.append(np.cumsum(masses[: middle + 1])[::-1], 0.0)  # symmetric: summed from the far end
        return np.asarray(tails[np.minimum(cells, middle + 1)])

    def _error(self, part: Part) -> float:
        if part.kind == "laplace":
            return 1.0 / math.sinh(self.granularity / part.scale)  # 2a/(1 - a²)
        if part.kind == "gaussian":
            sigma = part.scale / self.granularity
            if sigma > _SUMMED:  # 2 sum_{k>=1} k f(k): the integral less f(0)/12·..., far below rounding
                return 2.0 * (sigma * sigma - 1.0 / 12.0) / _gaussian_total(sigma)
            k = np.arange(1.0, math.ceil(39.0 * sigma) + 2)
            return 2.0 * float((k * np.exp(-0.5 * (k / sigma) ** 2)).sum()) / _gaussian_total(sigma)
        masses = self.table_masses(part)
        middle = len(masses) // 2
        return float(np.abs(np.arange(-middle, middle + 1)) @ masses)

    def table_masses(self, part: Part) -> FloatArray:
        """Probabilities of a table's noise -m..m; a point mass is a table of one value."""
        table = part.table or (1,)
        total = sum(table)
        return np.array([float(Fraction(weight, total)) for weight in table])

    def _draw(self, part: Part, count: int, rng: np.random.Generator) -> FloatArray:
        if part.kind == "point" or not count:
            return np.zeros(count)
        if part.kind == "laplace":
            return _draw_laplace(self.granularity / part.scale, count, rng)
        if part.kind == "gaussian":
            return _draw_gaussian(part.scale / self.granularity, count, rng)
        masses = self.table_masses(part)
        middle = len(masses) // 2
        return rng.choice(np.arange(-middle, middle + 1.0), size=count, p=masses / masses.sum())


def _whole(k: npt.ArrayLike) -> IntArray:
    cells = np.asarray(k)
    if cells.dtype.kind not in "iu":
        raise InputError("`k` must be whole numbers: it counts granularities.")
    return cells.astype(np.int64)


def _gaussian_total(sigma: float) -> float:
    """Sum over all k of exp(-k²/(2 sigma²))."""
    if sigma > 4.0:  # by Poisson's formula sigma sqrt(2 pi) (1 + 2 exp(-2 pi² sigma²) + ...)
        return sigma * math.sqrt(2.0 * math.pi)
    k = np.arange(1.0, 200.0)
    return 1.0 + 2.0 * float(np.exp(-0.5 * (k / sigma) ** 2)[::-1].sum())


def _gaussian_upper(sigma: float, cells: IntArray) -> FloatArray:
    """P(noise >= cells) of a discrete Gaussian law, cells at least 1."""
    if sigma <= _SUMMED:
        last = math.ceil(39.0 * sigma) + 2  # beyond, less than the least double
        k = np.arange(last + 1.0)
        tails = np.cumsum(np.exp(-0.5 * (k / sigma) ** 2)[::-1])[::-1]
        return np.asarray(np.where(cells <= last, tails[np.minimum(cells, last)], 0.0) / _gaussian_total(sigma))
    from scipy.special import ndtr

    # Euler and Maclaurin: integral from k, half the first term, and f'(k)/12
    first = np.exp(-0.5 * (cells / sigma) ** 2) / _gaussian_total(sigma)
    return np.asarray(ndtr(-cells / sigma) + first * (0.5 + cells / (12.0 * sigma * sigma)))


def _draw_laplace(rate: float, count: int, rng: np.random.Generator) -> FloatArray:
    # The difference of two geometric laws, each the whole part of an exponential one.
    return np.asarray(np.floor(rng.exponential(1.0 / rate, count)) - np.floor(rng.exponential(1.0 / rate, count)))


def _draw_gaussian(sigma: float, count: int, rng: np.random.Generator) -> FloatArray:
    # By rejection from a discrete Laplace law of whole scale t: exp(-(|k| - sigma²/t)²/(2 sigma²)).
    t = math.floor(sigma) + 1
    out = np.empty(0)
    while len(out) < count:
        k = _draw_laplace(1.0 / t, 2 * (count - len(out)) + 16, rng)
        kept = rng.random(len(k)) < np.exp(-0.5 * ((np.abs(k) - sigma * sigma / t) / sigma) ** 2)
        out = np.concatenate((out, k[kept]))
    return out[:count]
