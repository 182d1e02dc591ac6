"""What a release spends under a policy with a window, and what is left: prices of plans, kept and added up.

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from empriv.errors import InputError, RefusalError
from empriv.ledger import store
from empriv.ledger.accounts import (
    ANYBODY,
    Plans,
    Prices,
    broken,
    every_window,
    fits_in_one,
    releases_left,
    windows_with,
)
from empriv.ledger.chain import Indexed, body_of, keyed
from empriv.ledger.values import Figures, Policy, Release, canonical, label_text
from empriv.ledger.windows import PolicyWindow, day_of, today, window_of
from empriv.results import IntArray

_ZONES = 1  # day that some place on earth is ahead
_TENTH = 0.1
_OFFSETS = 1_000_000  # days among which the day that others are counted from is chosen


@dataclass(frozen=True, eq=False)
class Spent:
    """Earlier releases: where each stands, a day or a number, when it was made, and the prices of each plan.

    ``undated`` are the plans of those that count in every window.
    """

    places: IntArray
    kinds: IntArray
    times: IntArray
    undated: IntArray
    prices: tuple[Prices, ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Spending:
    """One release under a policy with a window.

    Attributes
    ----------
    policy, window : what holds
    earlier : releases before it
    prices : its own
    alone : what its certificate says of it alone
    here : where it stands among them; None for a release that counts in every window
    entry : number that its entry will have
    held_by : number of the entry that holds its prices, or will
    written : the text of that entry, and what is kept with it, if it is new
    day : of its database as the entry has it
    seen : whether the rows of its database were looked at
    """

    policy: Policy
    window: PolicyWindow
    earlier: Spent = field(repr=False)
    prices: Prices = field(repr=False)
    alone: Figures
    here: int | None
    entry: int
    held_by: int
    written: tuple[str, bytes] | None = field(repr=False)
    day: int | None = field(repr=False)
    seen: bool = True

    @staticmethod
    def of(connection: sqlite3.Connection, policy: Policy, release: Release, asked: Indexed, key: bytes) -> Spending:
        """What the release that is asked for would spend."""
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
                "are no data of days to come. Hint: `database` must be the day that the rows are of."
            )
        day = day + _offset(key) if day is not None and release.dated and day <= today() + _ZONES else None
        plan = _plan_digest(release, key)
        held_by = store.prices_entry(connection, plan)
        written, entry = None, asked.entry
        if held_by is None:
            prices = _prices(release, key)
            content = prices.to_bytes()
            facts = {"plan": plan, "results": hashlib.sha256(content).hexdigest()}
            held_by, entry = asked.entry, asked.entry + 1
            written = (body_of(held_by, "prices", facts), content)
        else:
            prices = _kept(connection, held_by)
        earlier = _spent(connection, window, prices)
        here = day if window.days else 0  # earlier ones stand at -1, -2, ... from the latest back
        seen = release.content is None or release.content.people is not None
        return Spending(policy, window, earlier, prices, release.achieved, here, entry, held_by, written, day, seen)

    def refusal(self) -> str | None:
        """Why the window's limits do not allow it, None if they do."""
        if not self.seen:
            return (
                "Only databases whose rows were looked at are added up, and this one was not audited. "
                "Hint: empriv release --rows FILE looks at them."
            )
        spent, policy = self.earlier, self.policy
        assert policy.epsilon is not None
        plans = Plans.of([*spent.prices, self.prices])
        length, kinds = self.window.length, len(plans.squares)
        if self.here is None:
            lately = spent.times > today() - length
            windows = every_window(spent.places[lately], spent.kinds[lately], kinds, length)
        else:
            windows = windows_with(self.here, spent.places, spent.kinds, kinds, length)
        for counts in windows + np.bincount(spent.undated, minlength=kinds):
            number = int(counts.sum())
            limits = _limits(policy)
            if number == 1:  # its certificate is nearer than a price that a full window must hold
                limits = {name: limit for name, limit in limits.items() if getattr(self.alone, name) is None}
            over = broken(plans.after(counts), limits, policy.epsilon)
            if over is not None:
                name, figure, limit = over
                releases = "This release alone" if number == 1 else f"With this one, the {number:,} releases"
                span = f" from {self.window.words}" if self.window.days else " in a row" if number > 1 else ""
                return (
                    f"{releases}{span} would make {name} {figure:.4g} at epsilon "
                    f"{policy.epsilon:g}, above the limit {limit:.4g}. Hint: `empriv ledger left`, or noise that is "
                    "designed for more publications (times=)."
                )
        return None

    def write_prices(self, connection: sqlite3.Connection, previous: str) -> str:
        """Write the entry of the prices, if they are new; the hash that the next entry follows."""
        if self.written is None:
            return previous
        body, content = self.written
        previous = store.append(connection, body, previous=previous)
        store.add_results(connection, self.held_by, content)
        return previous

    @property
    def facts(self) -> dict[str, Any]:
        """What the entry of the release says of it."""
        return {"prices": self.held_by, "day": self.day}


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


def left_of(connection: sqlite3.Connection, policy: Policy) -> Remaining:
    """What is left of a policy with a window."""
    if policy.window is None or policy.epsilon is None:
        raise InputError("The policy must have a window. Hint: empriv ledger policy LEDGER --window 365d.")
    window = window_of(policy.window)
    last = _last_prices(connection)
    if last is None:
        return Remaining(window.words, 0, Figures(policy.epsilon, 0.0, 0.0), policy, None, None)
    spent = _spent(connection, window, last)
    # The prices of the last release come last: they are those that are asked for again.
    plans = Plans.of([*spent.prices, last])
    kinds = len(plans.squares)
    inside = spent.places > spent.places.max(initial=0) - window.length
    undated = np.bincount(spent.undated, minlength=kinds).astype(float)
    held = np.bincount(spent.kinds[inside], minlength=kinds) + undated
    account = plans.after(held)
    figures = Figures(policy.epsilon, account.delta(policy.epsilon), account.total_risk(policy.epsilon))
    more = releases_left(plans, spent.places, spent.kinds, window, _limits(policy), policy.epsilon, undated)
    in_one = fits_in_one(plans, _limits(policy), policy.epsilon, held)
    return Remaining(window.words, int(np.count_nonzero(inside)) + len(spent.undated), figures, policy, more, in_one)


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
    return Spent(places, own, times, np.array(undated, np.int64), tuple(prices))


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
    return _for_anybody(Figures(**json.loads(achieved))) if held_by is None else _kept(connection, held_by)


def _prices(release: Release, key: bytes) -> Prices:
    """Prices of the people by digests of their names, or one for all."""
    if release.joint is not None and release.joint.entries:
        return _for_anybody(release.joint)  # of the same database: what both tell together
    if release.prices is None:
        return _for_anybody(release.achieved)
    unit = canonical(release.identity.individual, name="individual")
    names: Sequence[str] = release.prices.people
    people = np.array([_person(key, release.identity.scope, unit, str(name)) for name in names], np.uint64)
    return Prices(people, np.asarray(release.prices.squares, float), np.asarray(release.prices.escapes, float))


def _person(key: bytes, scope: str, unit: str, name: str) -> int:
    return int(keyed(key, "person", scope, unit, name)[:16], 16) or ANYBODY + 1


def _for_anybody(figures: Figures) -> Prices:
    if figures.delta is None:
        raise InputError("`achieved` must state delta: the policy's window adds up what releases tell.")
    return Prices.for_anybody(figures.delta, figures.epsilon)


def _plan_digest(release: Release, key: bytes) -> str:
    if release.joint is not None and release.joint.entries:
        return keyed(key, "plan", "joint", repr((release.joint.epsilon, release.joint.delta)))
    if release.plan is None:
        return keyed(key, "plan", "achieved", repr((release.achieved.epsilon, release.achieved.delta)))
    return keyed(key, "plan", "by name", release.identity.scope, release.plan)


def _kept(connection: sqlite3.Connection, entry: int) -> Prices:
    content = store.read_results(connection, entry)
    return Prices.from_bytes(b"" if content is None else content)
