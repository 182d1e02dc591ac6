"""What releases from different databases tell together: accounts of people over a window of days or releases.

Databases of one kind are independent looks at the same people. A look has a price for each person: the square of its
effect size, and minus the log of the chance that nothing gives them away for certain. Prices add. After a window's
looks delta is that of the Gaussian curve of the summed squares, and of the summed chances. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.ledger.windows import PolicyWindow
from empriv.measuring.series.composition import gaussian_size, told
from empriv.measuring.series.how_often import MOST, largest, within
from empriv.results import FloatArray, IntArray

ANYBODY = 0  # stands for everyone, whoever they are


@dataclass(frozen=True, eq=False)
class Prices:
    """What one release tells of each person.

    Attributes
    ----------
    people : who; ANYBODY alone stands for everyone, named elsewhere or not
    squares : square of each person's effect size
    escapes : ``-log(1 - p)``, p the chance that the release gives the person away for certain
    """

    people: npt.NDArray[np.uint64] = field(repr=False)
    squares: FloatArray = field(repr=False)
    escapes: FloatArray = field(repr=False)

    def __post_init__(self) -> None:
        if not (len(self.people) == len(self.squares) == len(self.escapes)):
            raise InputError("`people`, `squares` and `escapes` must have the same length.")
        for name in ("squares", "escapes"):
            amounts = getattr(self, name)
            if np.isnan(amounts).any() or (len(amounts) and amounts.min() < 0):
                raise InputError(f"`{name}` must be numbers of at least 0.")

    @staticmethod
    def for_anybody(delta: float, epsilon: float) -> Prices:
        """One price for everyone: that of the person who is told most, of whom one release tells this delta."""
        return Prices(np.array([ANYBODY], np.uint64), gaussian_size(np.array([delta]), epsilon) ** 2, np.zeros(1))

    def to_bytes(self) -> bytes:
        parts = (self.people.astype("<u8"), self.squares.astype("<f8"), self.escapes.astype("<f8"))
        return b"".join(part.tobytes() for part in parts)

    @staticmethod
    def from_bytes(content: bytes) -> Prices:
        count = len(content) // 24
        people = np.frombuffer(content, "<u8", count)
        squares, escapes = np.frombuffer(content, "<f8", 2 * count, 8 * count).reshape(2, count)
        return Prices(people.astype(np.uint64), squares.astype(float), escapes.astype(float))


@dataclass(frozen=True, eq=False)
class Account:
    """What people have spent: sums over releases, everyone in one order."""

    squares: FloatArray
    escapes: FloatArray

    def delta_i(self, epsilon: float) -> FloatArray:
        """delta of each person after all of it."""
        return told(self.squares, self.escapes, epsilon)

    def delta(self, epsilon: float) -> float:
        return float(self.delta_i(epsilon).max(initial=0.0))

    def total_risk(self, epsilon: float) -> float:
        """Chance that somebody's privacy fails, if failures are independent."""
        with np.errstate(divide="ignore"):
            return float(-np.expm1(np.log1p(-self.delta_i(epsilon)).sum()))


@dataclass(frozen=True, eq=False)
class Plans:
    """Prices of several kinds of releases, for the same people in one order: (plans, people)."""

    squares: FloatArray
    escapes: FloatArray

    @staticmethod
    def of(prices: Sequence[Prices]) -> Plans:
        """Everyone who has a price in any of them; whoever is not in one has no price there."""
        everyone = np.unique(np.concatenate([plan.people for plan in prices]))
        out = np.zeros((2, len(prices), len(everyone)))
        for row, plan in enumerate(prices):
            place = np.searchsorted(everyone, plan.people)
            if plan.people.tolist() == [ANYBODY]:
                place = np.arange(len(everyone))
            out[0, row, place], out[1, row, place] = plan.squares, plan.escapes
        return Plans(out[0], out[1])

    def after(self, counts: FloatArray) -> Account:
        """Accounts after so many releases of each plan."""
        held = counts > 0  # nothing times an infinite price is nothing
        return Account(counts[held] @ self.squares[held], counts[held] @ self.escapes[held])


def windows_with(here: int, places: IntArray, kinds: IntArray, n_kinds: int, length: int) -> FloatArray:
    """(windows, kinds) how many releases of each kind each window holds that has ``here`` in it, with that at ``here``.

    A window moved on to the next release inside it loses none, so windows begin at a release, or here. One that reaches
    no release that the window before does not reach holds no more than that one, and is left out.

    Parameters
    ----------
    here : the place of the release that is asked for, a day or a number
    places, kinds : where each earlier release stands, and which plan it has
    n_kinds : how many plans there are; the last is that of the release asked for
    length : of a window
    """
    firsts = np.unique(np.append(places[(places > here - length) & (places <= here)], here))
    ends = np.searchsorted(np.sort(places), firsts + length)
    firsts = firsts[np.append(True, ends[1:] > ends[:-1])]
    counts = np.zeros((len(firsts), n_kinds))
    for row, first in enumerate(firsts):
        inside = kinds[(places >= first) & (places < first + length)]
        counts[row] = np.bincount(inside, minlength=n_kinds)
    counts[:, -1] += 1
    return counts


def every_window(places: IntArray, kinds: IntArray, n_kinds: int, length: int) -> FloatArray:
    """(windows, kinds) the same of all windows, each of which holds a release that counts in all of them."""
    firsts = np.unique(places) if len(places) else np.zeros(1, np.int64)
    counts = np.zeros((len(firsts), n_kinds))
    for row, first in enumerate(firsts):
        counts[row] = np.bincount(kinds[(places >= first) & (places < first + length)], minlength=n_kinds)
    counts[:, -1] += 1
    return counts


def releases_left(
    plans: Plans,
    places: IntArray,
    kinds: IntArray,
    window: PolicyWindow,
    limits: Mapping[str, float | None],
    epsilon: float,
    always: FloatArray | float = 0.0,
) -> int | None:
    """How many more releases of the last plan fit, one at each place after the last; None if there is no end.

    ``always`` are the releases of each plan that count in every window.
    """
    n_kinds = len(plans.squares)
    for more in range(window.length + 1):
        here = int(places.max()) + 1 if len(places) else 0
        counts = windows_with(here, places, kinds, n_kinds, window.length)
        if any(broken(plans.after(row), limits, epsilon) for row in counts + always):
            return more
        places, kinds = np.append(places, here), np.append(kinds, n_kinds - 1)
    return None


def broken(account: Account, limits: Mapping[str, float | None], epsilon: float) -> tuple[str, float, float] | None:
    """The first limit that the account breaks: its name, the figure, the limit."""
    for name, limit in limits.items():
        if limit is None:
            continue
        figure = account.delta(epsilon) if name == "delta" else account.total_risk(epsilon)
        if not within(figure, limit):
            return name, figure, limit
    return None


def fits_in_one(plans: Plans, limits: Mapping[str, float | None], epsilon: float, before: FloatArray) -> int | None:
    """How many more releases of the last plan one window takes that holds ``before`` of each plan, however long it is;
    None where they add nothing, so that there is no end to them."""
    if not (plans.squares[-1].any() or plans.escapes[-1].any()):
        return None
    last = np.zeros(len(plans.squares))
    last[-1] = 1.0
    found = largest(lambda more: broken(plans.after(before + more * last), limits, epsilon) is None)
    return None if found >= MOST else found
