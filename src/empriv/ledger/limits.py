"""What a release spends under a policy with a window, and what remains: prices of plans, kept and added up.

A price is a squared effect size mu^2 and an escape ``-log(1 - p)``, p the chance that the release gives a person away
for certain. Both add up over releases of different databases. After them ``delta_i = 1 - (1 - G(mu)) e^-escapes``,
``mu^2`` the sum of squares and ``G(mu) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)`` the curve of a
Gaussian law that is moved (Dong, Roth and Su, 2022; docs/again.md).

Releases of one plan (a query, its noise, an audit) have the same prices, which are kept once, as an entry of their own.
A release says which entry holds its prices, and its day. Earlier releases without prices, from before the policy had a
window, count for everybody with what they achieved.

Who writes the expression that cuts chooses the dates. A release whose date is not the data's own counts in every window
of days, for as long as the window is from when it was released. In a window of releases, those that cost next to
nothing take no place, so that they push none out.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError, RefusalError
from empriv.ledger import store
from empriv.ledger.chain import body_of, keyed
from empriv.ledger.values import (
    Figures,
    Joint,
    Policy,
    PolicyWindow,
    Release,
    ReleaseEntry,
    canonical,
    day_of,
    label_text,
    today,
    window_of,
)
from empriv.measuring.series.composition import delta_of_effects, gaussian_size
from empriv.measuring.series.repeated import MOST, largest, within
from empriv.results import FloatArray, IntArray

ANYBODY = 0  # stands for everyone, whoever they are


@dataclass(frozen=True, eq=False)
class Prices:
    """What one release tells of each person.

    Attributes
    ----------
    people : who, by name; in the ledger by digests, of which ANYBODY alone stands for everyone, named elsewhere or not
    squares : square of each person's effect size
    escapes : ``-log(1 - p)``, p the chance that the release gives the person away for certain
    """

    people: Sequence[str] | npt.NDArray[np.uint64] = field(repr=False)
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
    def for_anybody(figures: Figures) -> Prices:
        """One price for everyone: that of the most exposed person, whose delta is this after one release."""
        if figures.delta is None:
            raise InputError("`achieved` must state delta: the policy's window adds up what releases tell.")
        square = gaussian_size(np.array([figures.delta]), figures.epsilon) ** 2
        return Prices(np.array([ANYBODY], np.uint64), square, np.zeros(1))

    def to_bytes(self) -> bytes:
        parts = (np.asarray(self.people, "<u8"), self.squares.astype("<f8"), self.escapes.astype("<f8"))
        return b"".join(part.tobytes() for part in parts)

    @staticmethod
    def from_bytes(content: bytes) -> Prices:
        count = len(content) // 24
        people = np.frombuffer(content, "<u8", count)
        squares, escapes = np.frombuffer(content, "<f8", 2 * count, 8 * count).reshape(2, count)
        return Prices(people.astype(np.uint64), squares.astype(float), escapes.astype(float))


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
            place = np.searchsorted(everyone, np.asarray(plan.people))
            if list(plan.people) == [ANYBODY]:
                place = np.arange(len(everyone))
            out[0, row, place], out[1, row, place] = plan.squares, plan.escapes
        return Plans(out[0], out[1])

    def figures(self, counts: FloatArray, epsilon: float) -> Figures:
        """The largest delta after so many releases of each plan, and the chance that somebody's privacy fails.

        Sums of squares and of escapes tell delta_i; total risk is 1 - prod(1 - delta_i), if failures are independent.
        """
        held = counts > 0  # nothing times an infinite price is nothing
        delta_i = delta_of_effects(counts[held] @ self.squares[held], counts[held] @ self.escapes[held], epsilon)
        with np.errstate(divide="ignore"):
            total_risk = float(-np.expm1(np.log1p(-delta_i).sum()))
        return Figures(epsilon, float(delta_i.max(initial=0.0)), total_risk)


def windows_with(here: int | None, places: IntArray, kinds: IntArray, n_kinds: int, length: int) -> FloatArray:
    """(windows, kinds) how many releases of each kind each window holds that has ``here`` in it, with that at ``here``.

    A window moved on to the next release inside it loses none, so windows begin at a release, or here. One that reaches
    no release that the window before does not reach holds no more than that one, and is left out.

    Parameters
    ----------
    here : the place of the release that is asked for, a day or a number; None counts it in every window
    places, kinds : where each earlier release stands, and which plan it has
    n_kinds : how many plans there are; the last is that of the release asked for
    length : of a window
    """
    if here is None:
        firsts = np.unique(places) if len(places) else np.zeros(1, np.int64)
    else:
        firsts = np.unique(np.append(places[(places > here - length) & (places <= here)], here))
        ends = np.searchsorted(np.sort(places), firsts + length)
        firsts = firsts[np.append(True, ends[1:] > ends[:-1])]
    counts = np.zeros((len(firsts), n_kinds))
    for row, first in enumerate(firsts):
        counts[row] = np.bincount(kinds[(places >= first) & (places < first + length)], minlength=n_kinds)
    counts[:, -1] += 1
    return counts


def broken(figures: Figures, limits: Mapping[str, float | None]) -> tuple[str, float, float] | None:
    """The first limit that is broken: its name, the figure, the limit."""
    for name, limit in limits.items():
        figure = getattr(figures, name)
        if limit is not None and not within(figure, limit):
            return name, figure, limit
    return None


_ZONES = 1  # day that some place on earth is ahead
_TENTH = 0.1  # of the price asked for: what costs less takes no place in a window of releases, and pushes none out
_OFFSETS = 1_000_000  # days among which the day that others are counted from is chosen


@dataclass(frozen=True, eq=False)
class Spent:
    """Earlier releases that may be in a window with one that is asked for.

    Attributes
    ----------
    plans : prices of each kind; the last is that of the release asked for
    places, kinds, times : where each stands, a day or a number, which plan it has, and the day when it was made
    undated : (plans,) how many of each count in every window
    """

    plans: Plans
    places: IntArray
    kinds: IntArray
    times: IntArray
    undated: FloatArray

    def windows(self, here: int | None, length: int) -> FloatArray:
        """(windows, plans) how many releases each window holds with the one asked for; see `windows_with`."""
        lately = self.times > today() - length if here is None else np.full(len(self.places), True)
        n_kinds = len(self.plans.squares)
        return windows_with(here, self.places[lately], self.kinds[lately], n_kinds, length) + self.undated


@dataclass(frozen=True)
class Spending:
    """What a release under a policy with a window writes, or why it is refused.

    Attributes
    ----------
    refusal : why the window's limits do not allow it, None if they do
    held_by : number of the entry that holds its prices, or will
    day : of its database as the entry has it
    written : the text of the entry of its prices, and what is kept with it, if it is new
    """

    refusal: str | None
    held_by: int
    day: int | None = field(repr=False)
    written: tuple[str, bytes] | None = field(repr=False)


def spending_of(connection: sqlite3.Connection, policy: Policy, release: Release, entry: int, key: bytes) -> Spending:
    """What the release that is asked for would spend; ``entry`` is the number of the next entry."""
    assert policy.window is not None
    window = window_of(policy.window)
    day = day_of(label_text(release.database))
    if window.days and day is None:
        raise InputError(
            "`database` must be a date: the policy's window counts days. Hint: a window of so many releases."
        )
    if window.days and day is not None and day > today() + _ZONES:
        raise RefusalError(
            "The ledger refuses a database that is dated after today: the policy's window counts days, and there "
            "are no data of days to come. Hint: name the day that the rows are of."
        )
    day = day + _offset(key) if day is not None and release.dated and day <= today() + _ZONES else None
    plan, written = _plan_digest(release, key), None
    held_by = store.prices_entry(connection, plan)
    if held_by is None:
        held_by, prices = entry, _prices(release, key)
        content = prices.to_bytes()
        facts = {"plan": plan, "results": hashlib.sha256(content).hexdigest()}
        written = (body_of(held_by, "prices", facts), content)
    else:
        prices = _kept(connection, held_by)
    # Earlier ones in a window of releases stand at -1, -2, ... from the latest back.
    reason = _window_refusal(policy, window, release, _spent(connection, window, prices), day if window.days else 0)
    return Spending(reason, held_by, day, written)


def _window_refusal(
    policy: Policy, window: PolicyWindow, release: Release, spent: Spent, here: int | None
) -> str | None:
    """Why the window's limits do not allow a release that stands here; None if they do."""
    if not release.audited:
        return (
            "Only databases whose rows were looked at are added up, and this one was not audited. "
            "Hint: empriv release --rows FILE looks at them."
        )
    assert policy.epsilon is not None
    for counts in spent.windows(here, window.length):
        number = int(counts.sum())
        limits = _limits(policy)
        if number == 1:  # its certificate is nearer than a price that a full window must hold
            limits = {name: limit for name, limit in limits.items() if getattr(release.achieved, name) is None}
        over = broken(spent.plans.figures(counts, policy.epsilon), limits)
        if over is not None:
            name, figure, limit = over
            releases = "This release alone" if number == 1 else f"With this one, the {number:,} releases"
            span = f" from {window.words}" if window.days else " in a row" if number > 1 else ""
            return (
                f"{releases}{span} would make {name} {figure:.4g} at epsilon {policy.epsilon:g}, above the limit "
                f"{limit:.4g}. Hint: `empriv ledger left`, or noise that is designed for more publications (times=)."
            )
    return None


@dataclass(frozen=True)
class Remaining:
    """What is spent in the latest window, and how much more fits.

    Attributes
    ----------
    window : in words
    releases : how many are in it
    spent : delta and total_risk of all of them, at the policy's epsilon
    limits : of the policy
    more : how many more releases like the last fit, one each day or in a row; None if none is ever refused
    in_one : how many more one window would take, however long it were; None where releases like the last add nothing
    """

    window: str
    releases: int
    spent: Figures
    limits: Policy
    more: int | None
    in_one: int | None


def remaining_of(connection: sqlite3.Connection, policy: Policy) -> Remaining:
    """What a policy with a window still allows."""
    if policy.window is None or policy.epsilon is None:
        raise InputError("The policy must have a window. Hint: empriv ledger policy LEDGER --window 365d.")
    window = window_of(policy.window)
    last = _last_prices(connection)
    if last is None:
        return Remaining(window.words, 0, Figures(policy.epsilon, 0.0, 0.0), policy, None, None)
    spent = _spent(connection, window, last)  # those of the last release are asked for again
    plans, limits = spent.plans, _limits(policy)
    inside = spent.places > spent.places.max(initial=0) - window.length
    held = np.bincount(spent.kinds[inside], minlength=len(plans.squares)) + spent.undated
    return Remaining(
        window.words,
        int(np.count_nonzero(inside) + spent.undated.sum()),
        plans.figures(held, policy.epsilon),
        policy,
        more=_releases_left(spent, window.length, limits, policy.epsilon),
        in_one=_fits_in_one(plans, limits, policy.epsilon, held),
    )


def _releases_left(spent: Spent, length: int, limits: Mapping[str, float | None], epsilon: float) -> int | None:
    """How many more releases of the last plan fit, one at each place after the last; None if there is no end."""
    for more in range(length + 1):
        here = int(spent.places.max()) + 1 if len(spent.places) else 0
        if any(broken(spent.plans.figures(row, epsilon), limits) for row in spent.windows(here, length)):
            return more
        kinds = np.append(spent.kinds, len(spent.plans.squares) - 1)
        spent = replace(spent, places=np.append(spent.places, here), kinds=kinds)
    return None


def _fits_in_one(plans: Plans, limits: Mapping[str, float | None], epsilon: float, before: FloatArray) -> int | None:
    """How many more releases of the last plan one window takes that holds ``before`` of each plan, however long it is;
    None where they add nothing, so that there is no end to them."""
    if not (plans.squares[-1].any() or plans.escapes[-1].any()):
        return None
    last = np.zeros(len(plans.squares))
    last[-1] = 1.0
    found = largest(lambda more: broken(plans.figures(before + more * last, epsilon), limits) is None)
    return None if found >= MOST else found


def _limits(policy: Policy) -> dict[str, float | None]:
    return {"delta": policy.delta, "total_risk": policy.total_risk}


def _offset(key: bytes) -> int:
    """Days are counted from one that an export does not tell."""
    return int(keyed(key, "day")[:12], 16) % _OFFSETS


def _spent(connection: sqlite3.Connection, window: PolicyWindow, asked: Prices) -> Spent:
    """Earlier releases that may be in a window with one that costs what is asked; the latest first."""
    kinds: dict[Any, int] = {}
    prices: list[Prices] = []
    dated, undated, taken = [], [], 0
    for held_by, day, time, achieved in store.read_spent(connection):
        if not window.days and taken >= window.length:
            break
        name = achieved if held_by is None else held_by
        if name not in kinds:
            kinds[name] = len(prices)
            prices.append(_prices_of(connection, held_by, achieved))
        kind, released = kinds[name], datetime.fromisoformat(time).date().toordinal()
        if not window.days:
            takes = _takes_place(prices[kind], asked)
            dated.append((-taken - 1, kind, released))  # what takes no place stands with the one before it
            taken += takes
        elif day is not None:
            dated.append((day, kind, released))
        elif released > today() - window.length:
            undated.append(kind)
    places, own, times = np.array(dated, np.int64).reshape(-1, 3).T
    counts = np.bincount(np.array(undated, np.int64), minlength=len(prices) + 1).astype(float)
    return Spent(Plans.of([*prices, asked]), places, own, times, counts)


def _takes_place(prices: Prices, asked: Prices) -> bool:
    """Whether a release costs somebody at least a tenth of what the one asked for costs the one it costs most."""
    pairs = ((prices.squares, asked.squares), (prices.escapes, asked.escapes))
    return any(own.max(initial=0.0) > 0 and own.max() >= _TENTH * other.max(initial=0.0) for own, other in pairs)


def _last_prices(connection: sqlite3.Connection) -> Prices | None:
    """Prices of the last release that costs anything, or of the last; None if there is none."""
    last = None
    for held_by, _, _, achieved in store.read_spent(connection):
        prices = _prices_of(connection, held_by, achieved)
        last = prices if last is None else last
        if prices.squares.max(initial=0.0) > 0 or prices.escapes.max(initial=0.0) > 0:
            return prices
    return last


def _prices_of(connection: sqlite3.Connection, held_by: int | None, achieved: str) -> Prices:
    return Prices.for_anybody(Figures(**json.loads(achieved))) if held_by is None else _kept(connection, held_by)


def _prices(release: Release, key: bytes) -> Prices:
    """Prices of the people by digests of their names, or one for all."""
    if release.joint is not None and release.joint.entries:
        return Prices.for_anybody(release.joint)  # of the same database: what both tell together
    if release.prices is None:
        return Prices.for_anybody(release.achieved)
    scope, unit = release.identity.scope, canonical(release.identity.individual, name="individual")
    digests = [int(keyed(key, "person", scope, unit, str(name))[:16], 16) for name in release.prices.people]
    people = np.array([digest or ANYBODY + 1 for digest in digests], np.uint64)
    return Prices(people, np.asarray(release.prices.squares, float), np.asarray(release.prices.escapes, float))


def _plan_digest(release: Release, key: bytes) -> str:
    if release.joint is not None and release.joint.entries:
        return keyed(key, "plan", "joint", repr((release.joint.epsilon, release.joint.delta)))
    if release.plan is None:
        return keyed(key, "plan", "achieved", repr((release.achieved.epsilon, release.achieved.delta)))
    return keyed(key, "plan", "by name", release.identity.scope, release.plan)


def _kept(connection: sqlite3.Connection, entry: int) -> Prices:
    content = store.read_results(connection, entry)
    return Prices.from_bytes(b"" if content is None else content)


_LIMITED = ("delta", "total_risk")


def refusal(
    policy: Policy, release: Release, *, queries: int, entries: Collection[int], spent: Callable[[], str]
) -> str | None:
    """Why the release would break the policy, None if it would not.

    Parameters
    ----------
    policy : the policy that holds
    release : what is asked for
    queries : how many different queries there would be with this one; needed where the policy limits them
    entries : earlier releases from overlapping databases; needed where the policy limits what they reveal together
    spent : what is released already, in a sentence or two
    """
    if policy.queries is not None and queries > policy.queries:
        limit = "1 query" if policy.queries == 1 else f"{policy.queries:,} queries"
        return f"{spent()} This one would be query number {queries}, above the limit of {limit}.{_unaudited(release)}"
    if policy.epsilon is None:
        return None
    if entries and release.joint is None:
        return (
            f"{spent()} The policy limits what they reveal together, and this release has no joint figures. "
            "Hint: audit(..., ledger=...) measures them."
        )
    covered = set() if release.joint is None else set(release.joint.entries)
    if missing := sorted(set(entries) - covered):
        return (
            f"{spent()} The joint figures of this release leave out {_entries(missing)}. "
            "Hint: another release came first; audit again."
        )
    # A release alone is jointly what it is by itself.
    figures: Figures = release.achieved if release.joint is None else release.joint
    if figures.epsilon > policy.epsilon:
        return (
            f"{spent()} This release has figures at epsilon {figures.epsilon:.6g}, above the limit "
            f"{policy.epsilon:.6g}. Hint: measure at epsilon {policy.epsilon:.6g}."
        )
    for name in _LIMITED:
        limit, figure = getattr(policy, name), getattr(figures, name)
        if limit is None:
            continue
        if figure is None:
            return f"{spent()} The policy limits {name}, and this release does not state its {name}."
        if not figure <= limit:
            digits = _digits(figure, limit)
            at = f"at epsilon {figures.epsilon:.6g}"
            return f"{spent()} This one would make {name} {figure:.{digits}g} {at}, above the limit {limit:.{digits}g}."
    return None


def _unaudited(release: Release) -> str:
    if release.audited:
        return ""
    return (
        " A database that was not audited, or whose answer is another than was audited, cannot be told from those "
        "released before and counts as a further query. Hint: audit again with it among the databases."
    )


def spent_words(count: int, shared: int, last: ReleaseEntry | None, release: Release) -> str:
    """What is released already, in a sentence or two: so many releases, sharing at most so many databases."""
    if last is None:
        return "Nothing is released from these databases yet."
    number = "1 release is" if count == 1 else f"{count:,} releases are"
    total = len(release.identity.labels)
    of_them = f"{shared:,} of the {total:,} databases" if shared else "the same source, cut into other databases"
    figures = last.achieved if last.joint is None else last.joint
    parts = [f"{name} {value:.4g}" for name in _LIMITED if (value := getattr(figures, name)) is not None]
    last_figures = f", with {' and '.join(parts)} at epsilon {figures.epsilon:.4g}" if parts else ""
    covered = 1 + (len(last.joint.entries) if isinstance(last.joint, Joint) else 0)
    # Figures of the last release alone must not be taken for those of all.
    alone = " by the last alone" if last_figures and covered == 1 and count > 1 else ""
    return f"{number} recorded from {of_them}{last_figures}{alone}."


def _entries(ids: Sequence[int]) -> str:
    named = ", ".join(map(str, ids[:5]))
    more = f" and {len(ids) - 5:,} more" if len(ids) > 5 else ""
    return f"{'entry' if len(ids) == 1 else 'entries'} {named}{more}"


def _digits(figure: float, limit: float) -> int:
    """As many digits as tell the two apart."""
    return next((d for d in range(4, 18) if f"{figure:.{d}g}" != f"{limit:.{d}g}"), 17)
