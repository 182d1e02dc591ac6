"""Chance is the same on both sides of a pair: it depends on database and draw, not on who is left out."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from calling import called

import empriv
import empriv.collecting.function_runs as calls
from empriv.collecting.function_calls import Chance, chance_of
from empriv.errors import InputError

PEOPLE, DATABASES = 12, 60


def collected(function: Any, seed: int = 0, *, draws: int | None = 2, **options: Any) -> empriv.Results:
    """Results on databases of twelve people, three rows each, in memory."""
    rng = np.random.default_rng(100 + seed)
    who = np.repeat(np.arange(PEOPLE), 3)
    tables = [{"who": who, "x": rng.exponential(size=len(who))} for _ in range(DATABASES)]
    return called(
        function,
        fetch=lambda database: (tables[database], who),
        databases=np.arange(DATABASES),
        individuals=np.arange(PEOPLE),
        starts=np.arange(0, PEOPLE * DATABASES + 1, DATABASES),
        entry_database=np.tile(np.arange(DATABASES, dtype=np.int32), PEOPLE),
        draws=draws, seed=seed, **{"jobs": 1, **options},
    )  # fmt: skip


def plain(rows: Any) -> float:
    return float(rows["x"].sum())


def noisy(rows: Any, rng: Any) -> float:
    return plain(rows) + float(rng.laplace(scale=12.0))


OWN = np.random.default_rng(7)


def box(rows: Any, rng: Any) -> float:  # noqa: ARG001 — it draws from elsewhere
    """The same law as `noisy`, with numbers that nobody can hand over."""
    return plain(rows) + float(OWN.laplace(scale=12.0))


def by_row(rows: Any, rng: Any) -> float:
    """Whether a row counts is drawn for each; without somebody, the rows behind theirs get other numbers."""
    return float(rows["x"] @ (rng.random(len(rows["x"])) < 0.5))


def by_individual(rows: Any, rng: Any) -> float:
    counts = np.array([rng.for_individual(who).random() < 0.5 for who in rows["who"]])
    return float(rows["x"] @ counts)


def test_the_influence_of_an_individual_holds_no_chance() -> None:
    with_noise, without = collected(noisy), collected(plain, draws=None)
    change = with_noise.q[with_noise.entry_database] - with_noise.entry_q
    truth = without.q[without.entry_database] - without.entry_q
    np.testing.assert_allclose(change, np.repeat(truth[:, None], 2, axis=1), atol=1e-9)
    own = collected(box)
    assert np.std(own.q[own.entry_database] - own.entry_q) > 12.0


@pytest.mark.slow
def test_an_individual_keeps_their_numbers_when_another_leaves() -> None:
    results = collected(by_individual)
    change = results.q[results.entry_database] - results.entry_q
    # whoever leaves takes at most their own three rows along, and what is left is counted as before
    plainly = collected(plain, draws=None)
    own = (plainly.q[plainly.entry_database] - plainly.entry_q)[:, None]
    assert (change > -1e-9).all()
    assert (change < own + 1e-9).all()
    mixed = collected(by_row)
    assert (mixed.q[mixed.entry_database] - mixed.entry_q < -1e-9).mean() > 0.2


def test_streams_of_individuals_differ_and_go_on() -> None:
    rng = chance_of(0, 3, 1)
    three = [rng.for_individual("Ada").random() for _ in range(3)]
    assert len(set(three)) == 3
    again = chance_of(0, 3, 1)
    again.random(5)  # what was drawn otherwise does not matter
    again.for_individual("Ben").random()
    assert [again.for_individual("Ada").random() for _ in range(3)] == three
    others = [
        chance_of(0, 3, 1).for_individual(*label).random()
        for label in (("Ben",), ("Ada", "B"), ("AdaB",), ("Ad", "aB"), (), ("",), (None,))
    ]
    elsewhere = [chance_of(*key).for_individual("Ada").random() for key in ((1, 3, 1), (0, 2, 1), (0, 3, 0))]
    numbers = [three[0], rng.random(), *others, *elsewhere]
    assert len(set(numbers)) == len(numbers)
    assert chance_of(0, 0, 0).for_individual(np.int64(5)).random() == chance_of(0, 0, 0).for_individual(5).random()
    assert chance_of(0, 0, 0).for_individual(np.str_("é")).random() == chance_of(0, 0, 0).for_individual("é").random()


def test_it_is_a_generator_of_numpy_that_can_be_sent_and_copied() -> None:
    rng = chance_of(5, 1, 2)
    assert isinstance(rng, np.random.Generator)
    assert np.random.default_rng(rng) is rng
    rng.random()
    rng.for_individual("Ada").random()
    for other in (pickle.loads(pickle.dumps(rng)), copy.deepcopy(rng)):
        twin = pickle.loads(pickle.dumps(rng))
        assert isinstance(other, Chance)
        assert other.random() == twin.random()
        assert other.for_individual("Ada").random() == twin.for_individual("Ada").random()
        assert other.for_individual("Ada").random() != chance_of(5, 1, 2).for_individual("Ada").random()
    children = rng.spawn(2)
    numbers = {child.for_individual("Ada").random() for child in (*children, rng)}
    assert len(numbers) == 3


def test_a_checkpoint_with_other_numbers_is_not_continued(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SEEDING", "by database, individual and draw")
    for function, draws in ((noisy, 2), (plain, None)):
        collected(function, draws=draws, checkpoint=tmp_path / str(draws))
    monkeypatch.undo()
    with pytest.raises(InputError, match="way of drawing"):
        collected(noisy, checkpoint=tmp_path / "2")
    collected(plain, draws=None, checkpoint=tmp_path / "None")  # nothing was drawn: it goes on


@pytest.mark.slow
def test_queries_together_do_not_share_their_noise() -> None:
    frame = pd.DataFrame({"day": np.repeat(np.arange(8), 3), "who": np.tile(np.arange(3), 8), "x": 1.0})
    data = empriv.databases(frame, database="day", individual="who")

    def other(rows: Any, rng: Any) -> float:
        return plain(rows) + float(rng.laplace(scale=12.0))

    results = empriv.collect(data, [noisy, other], draws=50, jobs=1, progress=False)
    first, second = results.q[..., 0].ravel(), results.q[..., 1].ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2
    assert np.corrcoef(first, first)[0, 1] > 0.99  # as if they drew the same
    alone = empriv.collect(data, noisy, draws=50, jobs=1, progress=False)
    np.testing.assert_array_equal(results.component(results.components[0]).q, alone.q)  # type: ignore[index]


@pytest.mark.slow
def test_noise_does_not_make_a_sum_look_less_private() -> None:
    """Noise hides: with common numbers the estimate says so, and with a box's own it says the opposite."""
    deltas: dict[str, list[float]] = {"plain": [], "noisy": [], "box": []}
    uppers: dict[str, list[float]] = {"plain": [], "noisy": [], "box": []}
    for seed in range(8):
        for name, function, draws in (("plain", plain, None), ("noisy", noisy, 4), ("box", box, 4)):
            risk = empriv.measure(collected(function, seed, draws=draws))
            deltas[name].append(risk.delta(0.1))
            uppers[name].append(risk.bounds(0.1).upper)
    assert np.mean(np.greater(deltas["noisy"], deltas["plain"])) <= 0.1
    assert np.mean(np.greater(uppers["noisy"], uppers["plain"])) <= 0.1
    # eight times, and less by a quarter on average: with a box's own numbers neither is so
    assert np.mean(deltas["noisy"]) < 0.75 * np.mean(deltas["box"])
    assert np.mean(uppers["noisy"]) < 0.85 * np.mean(uppers["box"])


@pytest.mark.slow
@pytest.mark.parametrize("draws", [1, 4])
def test_an_audit_says_what_a_box_with_chance_of_its_own_costs(draws: int) -> None:
    def said(function: Any) -> list[Any]:
        rows = {"who": np.arange(PEOPLE), "x": np.linspace(0.5, 1.5, PEOPLE)}
        data = empriv.repeats(pd.DataFrame(rows), individual="who", count=60)
        audit = empriv.audit(data, function, draws=draws, epsilon=0.1, jobs=1, progress=False)
        found = [check for check in audit.checks if check.code == "chance"]
        assert all(check.sentence in str(audit) for check in found)
        return found

    (check,) = said(box)
    assert check.severity == "warning"
    assert "a person who changes nothing would be given a delta of about" in check.sentence
    assert 0.01 < check.numbers["alone"] < 0.5
    assert not said(noisy)
