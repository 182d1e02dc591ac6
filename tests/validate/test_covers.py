"""The cover: what people did, on the day they did it; and the verdict that asks for it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.main import main
from empriv.errors import InputError
from empriv.measuring import GivenRisk
from empriv.results import FloatArray, Outcome, Results
from empriv.words.sentences import amount
from table_results import gaussian_delta, of_entries


def now_and_then(n: int, sizes: FloatArray, seed: int = 0) -> Results:
    """People who are in three databases each, with one influence each; the results are normal, sd 10."""
    rng = np.random.default_rng(seed)
    q = rng.normal(100.0, 10.0, n)
    where = np.sort(np.stack([rng.choice(n, 3, replace=False) for _ in sizes]), axis=1).reshape(-1)
    names = np.array([f"name {k}" for k in range(len(sizes))])
    return of_entries(
        q, where, q[where] - np.repeat(sizes, 3), np.arange(0, 3 * len(sizes) + 1, 3), individuals=names,
        databases=np.array([f"day {k}" for k in range(n)]), ordered=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_cover_is_honest_and_a_stated_falsehood_is_not() -> None:
    """Of 30 runs the true delta at the cover is within the target in at least 26; at four times it in one at most.

    A cover that were honest in 70% of runs would be accepted in fewer than 3% of cases.
    """
    delta, epsilon = 0.05, 0.1
    honest = false = 0
    for seed in range(30):
        risk = empriv.measure(now_and_then(200, np.array([1.0]), seed))
        hidden = risk.cover(epsilon, delta)
        honest += gaussian_delta(max(hidden, 1e-9) / 10, epsilon) <= delta
        false += gaussian_delta(4 * max(hidden, 0.1) / 10, epsilon) <= delta
    assert honest >= 26
    assert false <= 1  # the gate refuses a bound, and so a cover, once in a hundred


def test_noise_raises_the_cover_and_alone_hides_any_law() -> None:
    risk = empriv.measure(now_and_then(200, np.array([1.0, 2.0])))
    covers = [risk.cover(0.1, 0.05, noise) for noise in (5.0, 20.0, 100.0)]
    assert covers == sorted(covers)
    # Laplace noise alone hides s (epsilon - 2 log(1 - delta)), whatever the law is
    assert covers[-1] >= 100.0 * (0.1 - 2 * math.log(0.95)) * (1 - 1e-6)
    counts = np.random.default_rng(3).poisson(400, 300).astype(float)
    whole = empriv.measure(counts, counts[None, :] - 1.0).cover(0.1, 0.05)
    assert whole == round(whole)  # a multiple of the step
    # also to readers who know the calendar, whose residuals are no whole numbers, and with noise
    days = np.datetime64("2024-01-01") + np.arange(300)
    counts += 100 * np.sin(np.arange(300) / 300 * 3) + 40 * (np.arange(300) % 7 == 0)
    counts = np.round(counts)
    audit = empriv.audit(Results.from_arrays(counts, counts[None, :] - 1.0, databases=days.astype(str)), epsilon=0.1)
    assert isinstance(audit.against, GivenRisk)
    for noise in (0.0, 3.3):
        whole = audit.cover(0.1, 0.05, noise=noise)
        assert whole == round(whole) >= 1
    assert audit.cover(0.01, 0.001) == 0.0


def test_who_moves_it_by_more_than_is_hidden_is_judged_on_that_day() -> None:
    small, large = np.full(40, 0.05), np.array([40.0])
    hidden = empriv.audit(now_and_then(300, small), epsilon=0.1)
    beyond = empriv.audit(now_and_then(300, np.concatenate((small, large))), epsilon=0.1, unit="kg")
    target = {"epsilon": 0.1, "delta": 0.05}
    passed, failed = hidden.verdict(**target), beyond.verdict(**target)
    assert passed == "pass"
    assert passed.day is not None
    assert passed.day.beyond == 0
    assert failed == "fail"
    assert failed.day is not None
    assert failed.by_estimate == "pass"  # on a random database, as in the paper
    assert beyond.verdict(**target, presence="random") == "pass"
    assert (failed.day.beyond, failed.day.exposed, failed.day.people_beyond) == (3, 3, 1)
    said = beyond.decision(failed)
    assert "The answer hides anyone who moves it by up to" in said.reason
    assert "one person moved it by 40 kg" in said.reason
    assert said.beyond == "2.4% of people in a database moved it by more than is hidden."
    assert failed.to_json()["day"]["beyond"] == 3
    # enough noise hides the same person
    assert beyond.verdict(**target, noise=400.0) == "pass"


def test_between_the_cover_and_what_is_shown_it_cannot_be_told() -> None:
    results = now_and_then(100, np.array([2.5]))
    judged = empriv.audit(results, epsilon=0.1).verdict(epsilon=0.1, delta=0.08)
    assert judged == "unresolved"
    assert judged.day is not None
    assert (judged.day.beyond, judged.day.exposed) == (3, 0)
    assert "cannot be told" in empriv.audit(results).decision(judged).beyond
    assert judged.databases_needed is None or 100 < judged.databases_needed <= 1000


def test_databases_needed_is_never_absurd() -> None:
    results = now_and_then(60, np.full(5, 0.01))
    audit = empriv.audit(results, epsilon=0.1)
    assert audit.verdict(epsilon=0.1, delta=0.03).databases_needed == 99  # what the floor takes
    assert audit.verdict(epsilon=0.1, delta=1e-6).databases_needed is None


def test_who_changes_whether_there_is_an_answer_is_beyond_any_cover_on_that_day_alone() -> None:
    made = now_and_then(200, np.full(10, 0.05))
    codes, values = made.entry_outcomes.copy(), made.entry_q.copy()
    codes[4], values[4] = Outcome.NULL, np.nan  # the second of person 1's databases
    results = replace(made, entry_q=values, entry_outcomes=codes)
    audit = empriv.audit(results, epsilon=0.1)
    judged = audit.verdict(epsilon=0.1, delta=0.05)
    assert judged == "fail"
    assert judged.day is not None
    assert (judged.day.beyond, judged.day.people_beyond) == (1, 1)
    found = audit.moved(top=2, show_ids=True)
    assert math.isinf(found.moved[0])
    assert found.individual[0] == "name 1"
    assert found.database[0] == results.databases[results.entry_database[4]]
    assert not math.isinf(found.moved[1])
    said = "At least one person is given away for certain: whether there is an answer depends on them."
    assert audit.decision(judged).reason == said
    # noise does not hide it either
    assert audit.verdict(epsilon=0.1, delta=0.05, noise=1000.0) == "fail"


def test_moved_names_nobody_unless_asked() -> None:
    audit = empriv.audit(now_and_then(100, np.array([1.0, 5.0, 3.0])))
    shown = audit.moved()
    assert all(str(name).startswith("individual ") for name in shown.individual)
    named = audit.moved(show_ids=True, top=2)
    assert list(named.individual) == ["name 1", "name 2"]
    np.testing.assert_allclose(named.moved, [5.0, 3.0])
    assert named.most == pytest.approx(5.0)
    assert named.share_beyond(2.0) == pytest.approx(2 / 3)
    assert set(named.columns()) == {"individual", "moved", "database"}


def test_the_cover_of_the_others_is_that_without_the_whale() -> None:
    """Somebody makes all of the spread: without them there is little to hide in."""
    rng = np.random.default_rng(5)
    others, whale = rng.normal(0.0, 1.0, 200), rng.normal(0.0, 50.0, 200)
    q = others + whale
    risk = empriv.measure(q, np.stack([others, q - 0.01]))
    assert risk.cover(0.1, 0.05) < 1.0 < empriv.measure(q, q[None, :] - 0.01).cover(0.1, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "truth"),
    [("exponential", -math.log(0.95)), ("uniform", 0.05)],  # the share of the law that a move of d bares at its edge
)
def test_who_moves_the_answer_up_and_down_does_not_smooth_the_edge_of_the_others(law: str, truth: float) -> None:
    """Somebody always there, by whom the results hardly spread more: the others' law is the one without them."""
    honest, size, covers = 0, {"exponential": 0.1, "uniform": 0.09}[law], []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        others = getattr(rng, law)(size=365)
        moves = size * rng.exponential(size=365) * rng.choice([-1.0, 1.0], 365)
        covers.append(empriv.measure(others + moves, others[None, :]).cover(1.0, 0.05))
        honest += covers[-1] <= truth
    assert honest >= 13  # beside the results alone, 1 and 5 of them are
    assert np.median(covers) > 0.2 * truth


def test_given_what_is_known_moves_are_beside_the_spread_of_their_day() -> None:
    """Days of two spreads: the same influence is hidden on wide days and not on calm ones, in the answer's units."""
    rng = np.random.default_rng(6)
    n = 400
    wide = np.arange(n) % 2
    q = np.where(wide, 40.0, 2.0) * rng.normal(size=n)
    risk = empriv.measure(Results.from_arrays(q, q[None, :] - 0.2), known=wide.astype(float))
    audit = empriv.audit(Results.from_arrays(q, q[None, :] - 0.2), known=wide.astype(float))
    assert audit.cover(0.1, 0.05) == risk.cover(0.1, 0.05)
    calm, large = (audit.cover(0.1, 0.05, database=place) for place in (0, 1))
    assert 0.05 < calm < 1
    assert 10 < large / calm < 30
    assert calm <= audit.cover(0.1, 0.05) <= large
    day = audit.verdict(epsilon=0.1, delta=0.05).day
    assert day is not None
    assert day.varies
    with pytest.raises(InputError, match="`database` must be the label"):
        audit.cover(0.1, 0.05, database="nowhere")


@pytest.mark.slow
def test_a_move_is_as_large_on_a_high_day_as_on_a_low_one_where_logarithms_are_taken() -> None:
    # what a person adds is not in proportion to what the others did: only the level of a day is known, not its answer
    rng, day = np.random.default_rng(5), np.datetime64("2024-01-01") + np.arange(364)
    level = np.exp(0.6 * np.sin(2 * np.pi * np.arange(364) / 7))
    others = level * rng.lognormal(0.0, 0.7, 364)
    mondays = np.arange(364) % 7 == 0
    uppers = {}
    for name, pick in (("low", np.argmin), ("high", np.argmax)):
        added = np.zeros(364)
        added[np.flatnonzero(mondays)[pick(others[mondays])]] = 0.3
        audit = empriv.audit(Results.from_arrays(others + added, others[None], databases=day.astype(str)))
        assert isinstance(audit.against, GivenRisk)
        assert audit.against.residuals.logarithm
        day_level = np.exp(audit.against.residuals.fit.level[np.argmax(added)])
        assert np.allclose(audit.against.moves().relative.max(), 0.3 / day_level)
        uppers[name] = next(one for one in audit.verdict(epsilon=0.1, delta=0.05).judged if one.where).upper
    assert uppers["low"] == pytest.approx(uppers["high"], rel=0.35)  # levels and fits of the two days differ
    assert min(uppers.values()) > 0.1  # that of 0.3 beside a lognormal law


def panel(kind: str) -> empriv.Audit:
    """Results with one law; with a spread that a known quantity decides; and of which logarithms are taken."""
    rng = np.random.default_rng(8)
    n = 150
    known: Any = "nothing"
    if kind == "plain":
        q, moves = rng.normal(100.0, 10.0, n), rng.exponential(1.0, (5, n))
    elif kind == "spread":
        known = rng.integers(0, 2, n).astype(float)
        q, moves = 50.0 * known + np.where(known, 20.0, 2.0) * rng.normal(size=n), rng.exponential(0.3, (5, n))
    else:
        known = "calendar"
        days = np.datetime64("2025-01-01") + np.arange(n)
        q = np.exp(5.0 + 0.004 * np.arange(n) + rng.normal(0.0, 0.5, n))
        moves = 0.01 * q * rng.random((5, n))
        return empriv.audit(Results.from_arrays(q, q - moves, databases=days.astype(str).tolist()), epsilon=0.1)
    return empriv.audit(Results.from_arrays(q, q - moves), epsilon=0.1, known=known)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "spread", "logarithm"])
def test_all_say_one_cover(kind: str, tmp_path: Path) -> None:
    """The number, the verdict, the first line of terminal and page, and the share of days beyond; with noise too."""
    audit = panel(kind)
    if kind != "plain":
        assert isinstance(audit.against, GivenRisk)
        assert audit.against.residuals.logarithm == (kind == "logarithm")
    target = {"epsilon": 0.1, "delta": 0.05}
    hidden, verdict = audit.cover(**target), audit.verdict(**target)
    assert verdict.day is not None
    assert verdict.day.cover == hidden > 0
    assert verdict.day.varies == (kind != "plain")
    said = f"moves it by up to {amount(hidden)};"
    assert said in audit.decision(verdict).reason
    judged = [("the target", verdict)]
    if kind != "logarithm":
        assert said in audit.report(tmp_path / "page.html", verdicts=judged).page.read_text()
    audit.save(tmp_path / "audit.empriv")
    show = ["show", str(tmp_path / "audit.empriv"), "--target", "delta <= 0.05 at 0.1"]
    assert said in " ".join(CliRunner().invoke(main, show).output.split())
    assert audit.moved().share_beyond(hidden) == verdict.day.beyond / verdict.day.days
    noise = empriv.design_noise(audit, **target, granularity=1 / 64)
    assert noise.cover == audit.cover(**target, noise=noise) == audit.verdict(**target, noise=noise).day.cover
    assert f"moves it by up to {amount(noise.cover)};" in audit.decision(verdict, noise=noise).reason
    if kind == "logarithm":
        page = audit.report(tmp_path / "noise.html", verdicts=judged, noise=noise).page.read_text()
        assert f"moves it by up to {amount(noise.cover)};" in page
    bounded = empriv.design_noise(audit, **target, granularity=1 / 64, bound=1.5 * audit.moved().most)
    assert bounded.cover == audit.cover(**target, noise=bounded) <= 1.5 * audit.moved().most


def test_last_digits_that_a_regression_smears_are_seen_in_the_answers() -> None:
    rng = np.random.default_rng(7)
    n = 300
    days = np.arange(n) * 1.0
    q = 10.0 * np.rint((1000 + 3.3 * days + rng.normal(0, 60, n)) / 10) + (rng.random(n) < 0.1) * rng.integers(1, 10, n)
    given = empriv.measure(Results.from_arrays(q, q[None, :] - 3.0), known=empriv.Given(days))
    assert given.cover(0.1, 0.05) == 0.0
    assert given.bounds(0.1).upper > 0.9
    assert "no upper bound" in given.bounds(0.1).notes[0]
    assert given.cover(0.1, 0.05, 60.0) > 3.0


def test_the_paper_in_one_word() -> None:
    results = now_and_then(300, np.array([40.0, 0.1]))
    audit = empriv.audit(results, epsilon=0.1, paper=True)
    assert audit.against is None
    judged = audit.verdict(epsilon=0.1, delta=0.05)
    assert (judged, judged.basis, judged.presence, judged.day) == ("pass", "estimate", "random", None)
    assert audit.verdict(epsilon=0.1, delta=0.05, basis="bound", presence="both") == "fail"
    with pytest.raises(InputError, match="`known` must not be given with `paper`"):
        empriv.audit(results, paper=True, known="calendar")


def test_nothing_is_shown_to_fail_by_the_law_of_the_calmest_day() -> None:
    """Logarithms of a level, and weekends that spread four times as much: moves are held against the calmest days."""
    rng, n = np.random.default_rng(3), 210
    days = np.datetime64("2024-01-01") + np.arange(n)
    weekend = np.isin(np.arange(n) % 7, (5, 6))
    q = 200.0 * np.exp(weekend * 0.8 + np.where(weekend, 0.4, 0.1) * rng.normal(size=n))
    moved = np.where(weekend, 40.0, 0.0)  # on days that hide it well
    results = empriv.Results.from_arrays(q, [q - moved], databases=days)
    audit = empriv.audit(results, epsilon=1.0)
    residuals: Any = audit.against.residuals  # type: ignore[union-attr]
    assert residuals.logarithm
    assert residuals.fit.spread is not None
    verdict = audit.verdict(epsilon=1.0, delta=0.05)
    assert verdict.day is not None
    assert verdict.day.lower == 0.0
    assert verdict != "fail"


def of_yesterday(rng: np.random.Generator, people: int = 20) -> tuple[FloatArray, FloatArray]:
    """Answers that depend on the previous one, with everyone and without each of some who hardly move them."""
    q = np.full(200, 100.0)
    for day in range(1, len(q)):
        q[day] = 100 + 0.8 * (q[day - 1] - 100) + rng.normal(0, 5)
    return q, q - 0.05 * (rng.random((people, len(q))) < 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize(("did", "verdict"), [("nothing", "pass"), ("much", "fail"), ("an answer", "fail")])
def test_days_without_a_previous_answer_are_judged_too(cells: int, did: str, verdict: str) -> None:
    """The first day has no residuals, and its people are held against the law of the others."""
    rng = np.random.default_rng(0)
    parts = {}
    for cell in range(cells):
        q, without = of_yesterday(rng)
        if cell == 0 and did == "much":
            without[3, 0] = q[0] - 60
        if cell == 0 and did == "an answer":
            without[3, 0] -= 1.0
        days = np.datetime64("2024-01-01") + np.arange(len(q))
        parts[f"c{cell}"] = empriv.Results.from_arrays(q, without, databases=days)
    if did == "an answer":
        first = parts["c0"]
        theirs = (np.arange(len(first.entry_database)) >= first.starts[3]) & (first.entry_database == 0)
        theirs &= np.arange(len(theirs)) < first.starts[4]
        parts["c0"] = replace(
            first,
            entry_q=np.where(theirs, np.nan, first.entry_q),
            entry_outcomes=np.where(theirs, Outcome.NULL, first.entry_outcomes).astype(np.int8),
        )
    results = parts["c0"] if cells == 1 else empriv.Results.stack(parts)
    audit = empriv.audit(results, epsilon=0.5, known=empriv.Given("previous"))
    judged = audit.verdict(epsilon=0.5, delta=0.05)
    assert judged == verdict or cells > 1
    assert judged.day is not None
    assert (judged.day.upper <= 0.05) == (did == "nothing")
    assert (judged.day.beyond, judged.day.people_beyond) == ((0, 0) if did == "nothing" else (1, 1))
    if did == "an answer":
        with pytest.raises(empriv.EmprivError):
            empriv.design_noise(audit, epsilon=0.5, delta=0.05, granularity=0.01)
        return
    noise = empriv.design_noise(audit, epsilon=0.5, delta=0.05, granularity=0.01)
    errors = noise.expected_error.values() if cells > 1 else [noise.expected_error]
    assert noise.holds
    assert max(errors) > (60 if did == "much" else 0)
    if cells == 1 and did == "much":
        assert audit.moved(top=1).moved.tolist() == [60.0]
        chunked = empriv.audit(results, epsilon=0.5, known=empriv.Given("previous"), in_chunks=True)
        assert chunked.verdict(epsilon=0.5, delta=0.05) == "fail"
        assert chunked.moved(top=1).columns()["database"] == [days[0].item()]
