"""Policies with a window: releases from different databases add up, and never beyond the limits."""

from __future__ import annotations

import itertools
import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
from asking import asked, start, together
from daily import PEOPLE, SQUARES, of_day
from scipy.stats import norm

from empriv.errors import InputError, RefusalError
from empriv.ledger import Figures, Ledger, Policy, PriceEntry, Prices, ReleaseEntry, identity_of
from empriv.ledger.limits import Plans, windows_with
from empriv.ledger.values import day_of, window_of

EPSILON, DELTA = 1.0, 0.05


def exact(square: float, escape: float = 0.0, epsilon: float = EPSILON) -> float:
    """delta of two normal laws, by the formula and no other code, and of what escapes."""
    mu = np.sqrt(square)
    curve = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) if mu else 0.0
    return float(1 - (1 - curve) * np.exp(-escape))


def make(tmp_path: Path, window: str | int = "40d", **limits: float) -> Ledger:
    return Ledger(tmp_path / "shop.ledger", policy=Policy(epsilon=EPSILON, window=window, **limits or {"delta": DELTA}))


def days_released(ledger: Ledger) -> int:
    return sum(isinstance(entry, ReleaseEntry) for entry in ledger.entries())


def test_what_fits_is_released_and_nothing_more(tmp_path: Path) -> None:
    ledger = make(tmp_path)
    most = next(k for k in itertools.count(1) if exact(k * SQUARES[0]) > DELTA) - 1
    assert 20 < most < 40
    for number in range(most):
        ledger.release(of_day(number), lambda: 1.0)
        if number in (0, most - 2):
            assert ledger.left().more == most - 1 - number
    with pytest.raises(RefusalError, match=r"would make delta 0\.05\d* at epsilon 1, above the limit 0\.05"):
        ledger.release(of_day(most), lambda: 1.0)
    rest = ledger.left()
    assert (rest.releases, rest.more) == (most, 0)
    assert rest.spent.delta == pytest.approx(exact(most * SQUARES[0]), abs=1e-12)
    kept = [
        1 - exact(most * square, escape) for square, escape in zip(SQUARES, most * np.array([0, 1e-5, 0]), strict=True)
    ]
    assert rest.spent.total_risk == pytest.approx(1 - np.prod(kept), abs=1e-12)
    # later the first days leave the window
    ledger.release(of_day(40), lambda: 1.0)
    with pytest.raises(RefusalError):
        ledger.release(of_day(39), lambda: 1.0)  # an earlier window would hold one too many
    assert ledger.verify().intact


def test_a_release_that_alone_breaks_the_limit_is_refused_whatever_its_prices(tmp_path: Path) -> None:
    """Prices are composed by another way than the certificate of one release, which may know of more."""
    ledger = make(tmp_path)
    for achieved in (Figures(EPSILON, 2 * DELTA), Figures(EPSILON, 2 * DELTA, 0.5)):
        with pytest.raises(RefusalError, match=r"would make delta 0\.1 at epsilon 1, above the limit 0\.05"):
            ledger.release(of_day(0, achieved=achieved), lambda: 1.0)
    assert days_released(ledger) == 0
    ledger.release(of_day(0, achieved=Figures(EPSILON, DELTA)), lambda: 1.0)
    # what its certificate says of it alone is nearer than a price, which counts from the second on
    dear = Prices(PEOPLE, np.full(len(PEOPLE), 4.0), np.zeros(len(PEOPLE)))
    ample = Ledger(tmp_path / "ample.ledger", policy=Policy(epsilon=EPSILON, delta=DELTA, window="40d"))
    ample.release(of_day(0, achieved=Figures(EPSILON, DELTA), prices=dear), lambda: 1.0)
    with pytest.raises(RefusalError, match="With this one, the 2 releases"):
        ample.release(of_day(1, achieved=Figures(EPSILON, DELTA), prices=dear), lambda: 1.0)
    # a limit on what a release does not state is the window's to keep
    other = Ledger(tmp_path / "other.ledger", policy=Policy(epsilon=EPSILON, total_risk=0.9, window=9))
    other.release(of_day(0, achieved=Figures(EPSILON, 0.01)), lambda: 1.0)


@pytest.mark.slow
def test_a_window_of_releases(tmp_path: Path) -> None:
    ledger = make(tmp_path, 20, delta=exact(20 * SQUARES[0]) + 1e-9)
    for number in range(50):
        ledger.release(of_day(7 * number), lambda: 1.0)
    assert (ledger.left().more, ledger.left().in_one) == (None, 1)  # none is refused, since the first leaves it


def test_one_too_many_in_a_window_of_releases(tmp_path: Path) -> None:
    ledger = make(tmp_path, 20, delta=exact(20 * SQUARES[0]) - 1e-9)
    for number in range(19):
        ledger.release(of_day(number), lambda: 1.0)
    assert ledger.left().more == 0
    with pytest.raises(RefusalError, match="the 20 releases in a row would"):
        ledger.release(of_day(19), lambda: 1.0)


def test_people_of_different_plans_are_added_up_by_name(tmp_path: Path) -> None:
    """Who is in one plan only has no price in the other; the same person in both is found by name."""
    ledger = make(tmp_path, delta=exact(0.3) + 1e-9)
    shop = Prices(["Ada", "Bob"], np.array([0.2, 0.01]), np.zeros(2))
    clinic = Prices(["Bob", "Eve"], np.array([0.29, 0.25]), np.zeros(2))
    ledger.release(of_day(0, plan="shop", prices=shop), lambda: 1.0)
    ledger.release(of_day(1, plan="clinic", prices=clinic, query="avg(amount)"), lambda: 1.0)
    assert ledger.left().spent.delta == pytest.approx(exact(0.30), abs=1e-12)
    with pytest.raises(RefusalError):
        ledger.release(of_day(2, plan="clinic", prices=clinic, query="avg(amount)"), lambda: 1.0)


def test_prices_are_kept_once_and_need_not_be_told_again(tmp_path: Path) -> None:
    ledger = make(tmp_path)
    assert not ledger.knows_plan("one plan")
    ledger.release(of_day(0), lambda: 1.0)
    assert ledger.knows_plan("one plan")
    ledger.release(of_day(1, prices=None), lambda: 1.0)
    assert sum(isinstance(entry, PriceEntry) for entry in ledger.entries()) == 1
    assert ledger.left().spent.delta == pytest.approx(exact(2 * SQUARES[1], 2e-5), abs=1e-12)


def test_without_prices_everybody_is_the_one_who_is_told_most(tmp_path: Path) -> None:
    ledger = make(tmp_path)
    achieved = Figures(EPSILON, 0.01, 0.05)
    ledger.release(of_day(0, plan=None, prices=None, achieved=achieved), lambda: 1.0)
    assert ledger.left().spent.delta == pytest.approx(0.01, abs=1e-9)
    ledger.release(of_day(1), lambda: 1.0)
    square = Prices.for_anybody(Figures(EPSILON, 0.01)).squares[0] + SQUARES[0]
    assert ledger.left().spent.delta == pytest.approx(exact(square), abs=1e-9)


def test_releases_from_before_the_window_count(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "shop.ledger", policy=Policy(queries=5))
    ledger.release(asked(achieved=Figures(EPSILON, 0.04, 0.05)), lambda: 1.0)
    ledger.change_policy(Policy(epsilon=EPSILON, delta=DELTA, window=10))
    assert ledger.left().spent.delta == pytest.approx(0.04, abs=1e-9)


def test_two_queries_of_one_database_must_be_measured_together(tmp_path: Path) -> None:
    ledger = make(tmp_path)
    first = ledger.release(of_day(0), lambda: 1.0).entry.id
    with pytest.raises(RefusalError, match="no joint figures"):
        ledger.release(of_day(0, query="avg(amount)"), lambda: 1.0)
    joint = together(0.03, first, epsilon=EPSILON)
    ledger.release(of_day(0, query="avg(amount)", joint=joint), lambda: 1.0)
    square = Prices.for_anybody(Figures(EPSILON, 0.03)).squares[0] + SQUARES[0]
    assert ledger.left().spent.delta == pytest.approx(exact(square), abs=1e-9)
    ledger.release(of_day(1), lambda: 1.0)  # another day needs none


def test_the_same_release_again_costs_nothing(tmp_path: Path) -> None:
    ledger = make(tmp_path)
    ledger.release(of_day(0), lambda: 1.0)
    spent = ledger.left()
    assert ledger.release(of_day(0), lambda: 2.0).repeated
    assert ledger.left() == spent


@pytest.mark.slow
def test_two_hundred_days_and_a_process_that_is_killed(tmp_path: Path) -> None:
    """Never above the policy, none refused that fits, however often it is killed."""
    ledger = make(tmp_path, "30d", delta=exact(30 * SQUARES[0]) - 1e-9)  # so 29 in any 30 days
    chance = random.Random(0)
    answers: dict[int, float | None] = {}
    first = 0
    while first < 200:
        process = start("daily.py", ledger.path, first, 200)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        until = first + chance.randint(20, 120)
        for line in process.stdout:
            number, answer = json.loads(line)
            answers[number] = answer
            if number == until:
                time.sleep(chance.uniform(0.0, 0.05))
                process.kill()
        process.communicate(timeout=60)
        first = max(answers, default=-1) + 1
    assert ledger.verify().intact
    stored = {entry.database: entry.answer for entry in ledger.entries() if isinstance(entry, ReleaseEntry)}
    shown = [answer for answer in answers.values() if answer is not None]
    assert set(shown) <= set(stored.values())
    released = [answers[number] is not None for number in range(200)]
    for end in range(200):
        assert sum(released[max(0, end - 29) : end + 1]) <= 29
        if not released[end]:
            assert sum(released[max(0, end - 29) : end]) == 29


def test_windows_that_hold_a_place_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        places = rng.integers(0, 30, rng.integers(0, 12))
        kinds = rng.integers(0, 2, len(places))
        here, length = int(rng.integers(0, 30)), int(rng.integers(1, 12))
        seen = {tuple(row) for row in windows_with(here, places, kinds, 3, length).tolist()}
        for window in range(here - length + 1, here + 1):
            inside = kinds[(places >= window) & (places < window + length)]
            counts = np.append(np.bincount(inside, minlength=2), 1)
            assert any(np.all(counts <= np.array(row)) for row in seen)
        for row in seen:  # and none is made up
            assert row in {
                (*np.bincount(kinds[(places >= w) & (places < w + length)], minlength=2).tolist(), 1)
                for w in range(here - length + 1, here + 1)
            }


def test_accounts_of_people_nobody_tells_of_and_of_leaks() -> None:
    for square, escape, delta in ((0.0, 0.0, 0.0), (np.inf, 0.0, 1.0), (0.5, np.inf, 1.0)):
        told = Plans(np.array([[square], [1.0]]), np.array([[escape], [np.inf]])).figures(np.array([1.0, 0.0]), 0.1)
        assert (told.delta, told.total_risk) == (delta, delta)
    assert Prices.for_anybody(Figures(0.1, 0.0)).squares[0] == 0.0
    assert Prices.for_anybody(Figures(0.1, 1.0)).squares[0] == np.inf
    assert exact(Prices.for_anybody(Figures(0.4, 0.123)).squares[0], epsilon=0.4) == pytest.approx(0.123, abs=1e-12)


def test_windows_are_read() -> None:
    assert window_of("365d").words == "365 days"
    assert window_of(" 12 Days ").days
    assert window_of(1).words == "1 release"
    assert Policy(epsilon=1, delta=0.1, window="52").window == 52
    for wrong in ("", "0d", "-3", "1.5d", "a year", 0, -1, 2.5, True, None, [3], "9" * 9):
        with pytest.raises(InputError, match="`window` must be"):
            window_of(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`window` must go with"):
        Policy(queries=3, window="30d")


def test_days_of_labels() -> None:
    assert day_of("2026-01-02") == day_of("2026-01-02 07:30:00") == day_of("2026-01-01") + 1  # type: ignore[operator]
    assert day_of("2026-13-01") is None
    assert day_of("20260101") is None


def test_a_window_of_days_wants_dates(tmp_path: Path) -> None:
    ledger = make(tmp_path)
    with pytest.raises(InputError, match="`database` must be a date"):
        ledger.release(asked(identity=identity_of([7]), database=7), lambda: 1.0)


def test_nothing_to_say_of_a_ledger_without_a_window(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must have a window"):
        Ledger(tmp_path / "a.ledger").left()
    assert make(tmp_path).left().releases == 0


def test_an_export_tells_neither_days_nor_people(tmp_path: Path) -> None:
    ledger = make(tmp_path)
    ledger.release(of_day(0), lambda: 1.0)
    ledger.export(tmp_path / "out.jsonl")
    text = (tmp_path / "out.jsonl").read_text()
    assert not any(name in text for name in (*PEOPLE, "2026-01-01", str(day_of("2026-01-01"))))
    assert all(name.encode() not in ledger.path.read_bytes() for name in PEOPLE)
