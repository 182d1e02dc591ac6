"""What is made from an answer tells no more than the answer: figures and upper bounds are capped by the answer's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv import protocols
from empriv.errors import FileFormatError, InputError
from empriv.noise.drawing import with_noise
from empriv.noise.law import Law
from empriv.results import Results

EPSILONS = np.array([0.0, 0.1, 0.5])


def to_ten(value: Any) -> Any:
    return np.round(value, -1)


def sums(seed: int = 1, n: int = 60, people: int = 20) -> Results:
    x = np.random.default_rng(seed).exponential(size=(n, people))
    total = x.sum(axis=1)
    return Results.from_arrays(2 * total, 2 * (total - x.T))


def rounded(answers: Results, *, kept: bool = True) -> Results:
    return replace(
        answers, q=to_ten(answers.q), entry_q=to_ten(answers.entry_q), postprocessed_from=answers if kept else None
    )


@pytest.fixture(scope="module")
def data() -> empriv.Databases:
    x = np.random.default_rng(1).exponential(size=(60, 20))
    frame = pd.DataFrame({"day": np.repeat(np.arange(60), 20), "who": np.tile(np.arange(20), 60), "x": 2 * x.ravel()})
    return empriv.databases(frame, database="day", individual="who")


@pytest.mark.slow
def test_figures_and_bounds_are_not_above_those_of_the_answers() -> None:
    answers = sums()
    plain, capped = empriv.measure(answers), empriv.measure(rounded(answers))
    alone = empriv.measure(rounded(answers, kept=False))
    assert (alone.delta_i(EPSILONS) > plain.delta_i(EPSILONS)).any()  # as if rounding told more
    np.testing.assert_array_equal(
        capped.delta_i(EPSILONS), np.minimum(alone.delta_i(EPSILONS), plain.delta_i(EPSILONS))
    )
    np.testing.assert_array_equal(capped.epsilon_i(0.01), np.minimum(alone.epsilon_i(0.01), plain.epsilon_i(0.01)))
    assert capped.epsilon(0.01) == capped.epsilon_i(0.01).max()
    assert (capped.total_risk(EPSILONS) <= plain.total_risk(EPSILONS)).all()
    bounded, of_answers, own = (risk.bounds(EPSILONS) for risk in (capped, plain, alone))
    np.testing.assert_array_equal(bounded.upper_i, np.minimum(own.upper_i, of_answers.upper_i))
    assert (bounded.upper <= of_answers.upper).all()
    np.testing.assert_array_equal(bounded.lower, own.lower)
    assert isinstance(capped.bounds(0.1).upper, float)
    assert capped.bounds(0.1).upper <= plain.bounds(0.1).upper


def test_the_cap_is_said_when_it_bites() -> None:
    answers = sums()
    notes = empriv.measure(rounded(answers)).bounds(0.1).notes
    assert any(note.startswith("Made from answers which tell at most delta") for note in notes)
    assert not any("Made from" in note for note in empriv.measure(rounded(answers, kept=False)).bounds(0.1).notes)
    # a constant tells nothing: there is nothing to cut off
    silent = replace(
        answers, q=np.zeros_like(answers.q), entry_q=np.zeros_like(answers.entry_q), postprocessed_from=answers
    )
    assert empriv.measure(silent).delta(0.1) == 0.0


@pytest.mark.slow
def test_publishing_again_is_capped_too() -> None:
    answers = sums(people=4)
    made = replace(answers, q=np.round(answers.q, 1), entry_q=np.round(answers.entry_q, 1), postprocessed_from=answers)
    risk, plain = empriv.measure(made), empriv.measure(answers)
    capped, source = risk.repeated(5), plain.repeated(5)
    assert (capped.delta_i(EPSILONS) <= source.delta_i(EPSILONS)).all()
    assert (capped.bounds(EPSILONS).upper <= source.bounds(EPSILONS).upper).all()
    assert (risk.repeated(5).epsilon_i(0.1) <= plain.repeated(5).epsilon_i(0.1)).all()
    assert risk.repeated(5).repeated(3).postprocessed_from is not None


def test_a_stated_bandwidth_is_taken_at_its_word() -> None:
    answers, density = sums(), empriv.Kde("laplace", 3.0)
    capped, alone = (empriv.measure(rounded(answers, kept=kept), density=density) for kept in (True, False))
    np.testing.assert_array_equal(capped.delta_i(EPSILONS), alone.delta_i(EPSILONS))


@pytest.mark.slow
def test_post_keeps_the_answers_it_was_applied_to(data: empriv.Databases, tmp_path: Path) -> None:
    plain = empriv.audit(data, "sum(x)", epsilon=0.1)
    audit = empriv.audit(data, "sum(x)", post=to_ten, epsilon=0.1)
    assert audit.results.postprocessed_from is not None
    np.testing.assert_array_equal(audit.results.postprocessed_from.entry_q, plain.results.entry_q)
    assert audit.delta(0.1) <= plain.delta(0.1)
    assert "Made from answers which tell at most" in str(audit)
    audit.save(tmp_path / "a.empriv")
    again = empriv.load(tmp_path / "a.empriv")
    assert isinstance(again, empriv.Audit)
    np.testing.assert_array_equal(again.delta_i(0.1), audit.delta_i(0.1))
    assert again.bounds(0.1).upper == audit.bounds(0.1).upper
    together = empriv.collect(data, ["sum(x)", "count(*)"], post=to_ten)
    assert together.postprocessed_from is not None
    one = together.component(together.components[0])  # type: ignore[index]
    assert one.postprocessed_from is not None
    np.testing.assert_array_equal(one.postprocessed_from.q, plain.results.q)


def test_a_chain_of_answers_is_saved_and_a_forged_one_refused(tmp_path: Path) -> None:
    answers = sums(people=4)
    noisy = with_noise(rounded(answers), Law.of(0.25, [("laplace", 1.0, 2.0)]), draws=3, rng=np.random.default_rng(0))
    noisy.save(tmp_path / "r.empriv")
    again = Results.load(tmp_path / "r.empriv")
    assert again.draws == 3
    assert again.postprocessed_from is not None
    assert again.postprocessed_from.draws is None
    assert again.postprocessed_from.postprocessed_from is not None
    np.testing.assert_array_equal(again.postprocessed_from.postprocessed_from.entry_q, answers.entry_q)
    meta, arrays = noisy.to_parts()
    meta = {**meta, "components": None}
    for wrong in (
        ({**meta, "postprocessed_from": [{"components": None, "draws": 2}]}, arrays),
        ({**meta, "postprocessed_from": "all"}, arrays),
        (meta, {**arrays, "postprocessed_from_1_q": arrays["postprocessed_from_1_q"][:-1]}),
        (meta, {name: array for name, array in arrays.items() if name != "postprocessed_from_0_q"}),
    ):
        with pytest.raises(FileFormatError):
            Results.from_parts(*wrong)


def test_what_was_postprocessed_from_other_entries_is_refused() -> None:
    answers = sums(people=4)
    with pytest.raises(InputError, match="`postprocessed_from` must have the same databases"):
        replace(answers, postprocessed_from=sums(n=59, people=4))
    half = rounded(answers).on_databases(np.arange(30)).of_individuals(np.array([2, 0]))
    assert half.postprocessed_from is not None
    np.testing.assert_array_equal(to_ten(half.postprocessed_from.entry_q), half.entry_q)
    assert half.individuals.tolist() == [2, 0]
    first, rest = (rounded(answers).on_databases(part) for part in (np.arange(30), np.arange(30, 60)))
    whole = first.with_databases(rest)
    assert whole.postprocessed_from is not None
    np.testing.assert_array_equal(whole.postprocessed_from.entry_q, answers.entry_q)
    assert first.with_databases(replace(rest, postprocessed_from=None)).postprocessed_from is None


@pytest.mark.slow
def test_protocols_on_answers_and_noise_are_capped(data: empriv.Databases) -> None:
    raw = protocols.plain("sum(x)")
    plain = empriv.measure(raw.collect(data))
    for made in (
        protocols.rounded(raw, to=10),
        protocols.passed(raw, lambda answer: min(answer, 40.0)),
        protocols.laplace(protocols.rounded(raw, to=10), sensitivity=1, epsilon=1),
        protocols.passed(raw, lambda answer, rng: answer + rng.normal()),
    ):
        risk = empriv.measure(made.collect(data, draws=3))
        assert risk.postprocessed_from is not None
        assert (risk.delta_i(EPSILONS) <= plain.delta_i(EPSILONS)).all()
        assert (risk.bounds(EPSILONS).upper_i <= plain.bounds(EPSILONS).upper_i).all()
    for other in (protocols.cap_people(raw, at=1), raw):
        assert other.collect(data).postprocessed_from is None  # the query was changed


def test_several_numbers_and_somebody_who_knows_part_are_capped_too() -> None:
    first, second = sums(1, people=5), sums(2, people=5)
    both = Results.stack({"a": rounded(first), "b": second})
    assert both.postprocessed_from is not None
    joint, source = empriv.measure(both), empriv.measure(both.postprocessed_from)
    assert (joint.delta_i(EPSILONS) <= source.delta_i(EPSILONS)).all()
    alone = empriv.measure(first)
    assert (joint.each_number["a"].delta_i(EPSILONS) <= alone.delta_i(EPSILONS)).all()
    known = np.arange(first.n_databases) % 7.0
    for knowledge in (empriv.Given(known), empriv.Buckets(np.arange(first.n_databases) % 2)):
        made, plain = (empriv.measure(results, known=knowledge) for results in (rounded(first), first))
        assert (made.delta_i(EPSILONS) <= plain.delta_i(EPSILONS)).all()


@pytest.mark.slow
def test_noise_on_an_answer_is_never_estimated_as_less_private() -> None:
    worse = 0
    for seed in range(20):
        answers = sums(seed)
        noise = np.random.default_rng(1000 + seed)
        apart = [noise.laplace(scale=1.0, size=(len(part), 2)) for part in (answers.q, answers.entry_q)]
        noisy = replace(
            answers, q=answers.q[:, None] + apart[0], entry_q=answers.entry_q[:, None] + apart[1],
            outcomes=np.zeros(apart[0].shape, np.int8), entry_outcomes=np.zeros(apart[1].shape, np.int8), draws=2,
        )  # fmt: skip
        plain = empriv.measure(answers).delta(0.1)
        worse += empriv.measure(noisy).delta(0.1) > plain
        assert empriv.measure(replace(noisy, postprocessed_from=answers)).delta(0.1) <= plain
    assert worse > 5  # with chance of its own on each side, and without the cap
