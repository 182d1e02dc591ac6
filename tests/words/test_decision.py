"""The one line of decision: which word, from which figures, under which condition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import empriv
from empriv.errors import InputError
from empriv.words.decision import DAY, Case, Covered, JudgedTarget, NoisyAnswer, decide
from empriv.words.sentences import Nouns, amount, database_noun, individual_noun

MET = JudgedTarget("delta", 0.05, 0.0, 0.007, 0.036)
OPEN = replace(MET, upper=0.07)
ABOVE = replace(MET, estimate=0.09, upper=0.2)
BROKEN = replace(MET, lower=0.08, estimate=0.19, upper=0.3)
CASE = Case("pass", MET, 0.1, 0.95, 0.007, 0.036, 456, known=("the calendar",), presence=True, unit="min")
CHEAP = NoisyAnswer(1.2, 6.04, 0.049)
DAY_AT_MOST = Covered(0.69, 0.17, 4.2, 0.3, 0.0, 0.1, days=1000, beyond=0, exposed=0, people_beyond=0, people=9)


def test_publish_where_the_bound_meets_the_target() -> None:
    made = decide(CASE)
    assert (made.word, made.line) == ("Publish", "Publish")
    assert made.reason == (
        "The most exposed person's privacy fails with a probability of at most 3.6%; the target allows 5%."
    )
    assert made.condition == (
        "The most exposed person's delta at epsilon 0.1 is at most 0.036 with 95% confidence; the target allows 0.05. "
        "Holds for databases like these 456, and readers who may know the calendar and one person's rows."
    )


def test_a_lower_bound_above_the_target_is_why_not_to_publish() -> None:
    made = decide(replace(CASE, outcome="fail", judged=BROKEN))
    assert made.line == "Do not publish as it is"
    assert made.reason == (
        "The most exposed person's privacy fails with a probability of at least 8%; the target allows 5%."
    )
    assert made.condition.startswith("The most exposed person's delta at epsilon 0.1 is at least 0.08 with 95% confi")


def test_cover_and_largest_move_are_in_the_answers_units() -> None:
    hidden = DAY_AT_MOST
    said = "The answer hides anyone who moves it by up to 0.69 min; one person moved it by 4.2 min."
    passed = decide(replace(CASE, hidden=replace(hidden, largest=0.5)))
    assert (
        passed.reason == "The answer hides anyone who moves it by up to 0.69 min; nobody moved it by more than 0.5 min."
    )
    assert passed.condition.startswith("The most exposed person's delta at epsilon 0.1 is at most 0.036 with 95% ")
    assert passed.promise == (
        "A reader who guesses 50:50 whether a person's rows were counted gets at most 52.5% sure, but surer in at "
        "most 5% of cases."
    )
    beyond = replace(hidden, beyond=30, exposed=30, people_beyond=4)
    day = replace(BROKEN, where=DAY)
    failed = decide(replace(CASE, outcome="fail", judged=day, hidden=beyond))
    assert failed.reason == said
    assert failed.beyond == "3% of people in a database moved it by more than is hidden."
    most = decide(replace(CASE, outcome="fail", judged=day, hidden=replace(beyond, beyond=999)))
    assert most.beyond == "More than 99% of people in a database moved it by more than is hidden."
    aircraft = decide(replace(CASE, outcome="fail", judged=day, hidden=beyond, nouns=Nouns("aircraft", "week")))
    assert "any aircraft that moves it" in aircraft.reason
    assert "one aircraft moved it by 4.2 min" in aircraft.reason
    assert aircraft.beyond == "3% of aircraft-weeks moved it by more than is hidden."
    assert "Holds for weeks like these 456, " in aircraft.condition
    assert aircraft.promise == ""
    some = decide(replace(CASE, outcome="fail", judged=day, hidden=replace(beyond, exposed=2, varies=True)))
    assert some.reason.startswith("On a typical database the answer hides")
    open_ = decide(replace(CASE, outcome="unresolved", judged=replace(OPEN, where=DAY), hidden=beyond, needed=500))
    assert open_.beyond.endswith("It cannot be told whether these are hidden.")
    assert "About 500 databases would resolve it." in open_.condition
    nothing = replace(beyond, cover=0.0, largest=float("inf"))
    assert decide(replace(CASE, outcome="fail", judged=day, hidden=nothing)).reason.startswith(
        "Nothing shows that the answer hides anyone who moves it; a person is given away by a value, "
        "or changes whether there is an answer at all."
    )


def test_an_estimate_above_the_target_is_not_called_a_failure() -> None:
    reason = decide(replace(CASE, outcome="unresolved", judged=ABOVE)).reason
    assert reason == (
        "The most exposed person's privacy is estimated to fail with a probability of 9%, and it may be 20%; the "
        "target allows 5%."
    )


def test_too_few_databases_say_how_many_only_where_more_would_do() -> None:
    case = replace(CASE, outcome="unresolved", judged=OPEN)
    assert "About 800 databases would resolve it." in decide(replace(case, needed=800)).condition
    assert "would resolve" not in decide(case).condition
    few = decide(replace(case, n_databases=25, obstacles=("No bound.",), nouns=Nouns("aircraft", "day")))
    assert few.reason == "25 days are too few to tell: at least 59 are needed."
    # with 52 there is an upper bound, but none as low as 0.05
    for obstacles in ((), ("No bound.",)):
        few = decide(replace(case, n_databases=52, obstacles=obstacles, hidden=replace(DAY_AT_MOST, cover=0.0)))
        assert few.reason == "52 databases are too few to tell: at least 59 are needed."
        assert few.beyond == ""


def test_what_rules_out_a_pass_comes_first_where_the_figures_meet_the_target() -> None:
    case = replace(CASE, outcome="unresolved", obstacles=("The databases have a trend.",))
    assert decide(case).reason == "The databases have a trend."


def test_noise_is_offered_with_its_cost_in_the_answers_unit() -> None:
    made = decide(replace(CASE, outcome="fail", judged=BROKEN, noise=CHEAP))
    assert made.word == "Publish with noise"
    assert made.line == "Publish with noise (±1.2 min)"
    assert made.reason == (
        "With it, the most exposed person's privacy fails with a probability of at most 4.9%; the target allows 5%."
    )
    assert made.condition.startswith(
        "With the noise, which is 20% of a typical 6.04 min, delta is at most 0.049 for the most exposed. Holds for "
    )
    hidden = replace(DAY_AT_MOST, beyond=30, exposed=30, people_beyond=4, varies=True)
    covered = decide(replace(CASE, outcome="fail", judged=BROKEN, hidden=hidden, noise=replace(CHEAP, cover=4.3)))
    assert covered.reason == (
        "With the noise, the answer hides anyone who moves it by up to 4.3 min; nobody moved it by more than 4.2 min."
    )
    assert covered.condition.startswith("Without noise it hides moves of up to 0.69 min. With the noise, ")
    assert "at most 52.5% sure" in made.promise


def test_noise_that_leaves_little_of_the_answer_says_so() -> None:
    made = decide(replace(CASE, outcome="fail", judged=BROKEN, noise=replace(CHEAP, error=3.1)))
    assert made.word == "Publish with noise"
    assert made.reason.endswith("Its error is more than half of a typical answer: what is published tells little.")
    assert "tells little" not in decide(replace(CASE, outcome="fail", judged=BROKEN, noise=CHEAP)).reason


def test_what_speaks_against_noise_is_why_not_to_publish_with_it() -> None:
    made = decide(replace(CASE, outcome="unresolved", judged=OPEN, noise=replace(CHEAP, against=("A trend.",))))
    assert (made.word, made.line, made.reason) == ("Do not publish", "Do not publish with this noise", "A trend.")
    # what adds nothing leaves the answer as it is
    assert decide(replace(CASE, outcome="unresolved", judged=OPEN, noise=replace(CHEAP, error=0.0))).line == (
        "Do not publish as it is"
    )


def test_without_a_target_there_is_no_decision_but_the_figures() -> None:
    made = decide(replace(CASE, outcome=None, judged=None))
    assert made.word == "No decision"
    assert made.line == "No target was given: delta 0.007 at epsilon 0.1, at most 0.036"
    assert made.reason == "The most exposed person's privacy fails with a probability of 0.7% in a random database."


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (3133.4, "", "3,133"), (1.234, "min", "1.23 min"), (12980.0, "€", "€12,980"), (-5.0, "$", "-$5"),
        (37.0, "%", "37%"), (0.0, "", "0"), (float("nan"), "min", "unknown"),
    ],
)  # fmt: skip
def test_amounts_have_units_and_thousands(value: float, unit: str, said: str) -> None:
    assert amount(value, unit) == said


@pytest.fixture(scope="module")
def risky() -> empriv.Audit:
    rng = np.random.default_rng(3)
    q = rng.normal(100.0, 10.0, 200)
    results = empriv.Results.from_arrays(q, np.stack([q - rng.normal(30.0, 3.0, 200), q - rng.normal(0.1, 0.1, 200)]))
    return empriv.audit(results, epsilon=0.1, unit="min")


@pytest.mark.slow
def test_an_audit_decides_and_noise_that_keeps_the_target_changes_it(risky: empriv.Audit) -> None:
    verdict = risky.verdict(epsilon=0.1, delta=0.05)
    assert verdict == "fail"
    assert risky.decision(verdict).line == "Do not publish as it is"
    noise = empriv.design_noise(risky, epsilon=0.1, delta=0.05)
    assert noise.unit == "min"
    said = risky.decision([verdict], noise=noise)
    assert said.word == "Publish with noise"
    assert said.line == f"Publish with noise (±{amount(noise.expected_error, 'min')})"
    # noise for a laxer target does not do for a stricter one
    lax = empriv.design_noise(risky, epsilon=0.1, delta=0.3)
    assert risky.decision(verdict, noise=lax).word == "Do not publish"


def test_the_unit_is_kept_in_files(risky: empriv.Audit, tmp_path) -> None:
    risky.save(tmp_path / "a.empriv")
    assert empriv.load(tmp_path / "a.empriv").unit == "min"
    assert risky.to_json()["unit"] == "min"
    scan = empriv.audit(risky.results, epsilon=0.1, unit="€", known="nothing", in_chunks=True)
    scan.save(tmp_path / "s.empriv")
    assert empriv.load(tmp_path / "s.empriv").unit == "€"
    assert scan.decision(scan.verdict(epsilon=0.1, delta=0.05)).line == "Do not publish as it is"


@pytest.mark.parametrize("unit", [5, "a" * 25, "a\n", " min", "\x1b[31m"])
def test_a_unit_is_short_and_can_be_printed(risky: empriv.Audit, unit: object) -> None:
    with pytest.raises(InputError, match="`unit` must be a short name"):
        empriv.audit(risky.results, unit=unit)


@pytest.mark.parametrize(
    ("columns", "noun"),
    [(("aircraft",), "aircraft"), (("customer_id",), "customer"), (("household_key",), "household"), (("id",), ""),
     (("a", "b"), ""), (("<b>x</b>",), ""), (("x" * 60,), ""), (("loan officer_id",), "loan officer"),
     (("idNum",), ""), (("id_code",), ""), (("playerID",), "player"), (("tailnum",), "tailnum")],
)  # fmt: skip
def test_individuals_are_called_by_their_column(columns: tuple[str, ...], noun: str) -> None:
    assert individual_noun(columns) == noun


@pytest.mark.parametrize(
    ("column", "labels", "noun"),
    [("d", ["2024-01-01", "2024-01-05", "2024-01-02"], "day"), ("d", ["2024-01-01", "2024-01-08"], "week"),
     ("d", ["2024-01-01", "2024-02-01", "2024-03-01"], "month"), ("week", [1, 2], "week"), ("team", ["a"], ""),
     (None, [0, 1], ""), ("d", ["2024-01-01 00:00:00", "2024-01-02 00:00:00"], "day"),
     ("d", ["2024-01-01 00:00:00+00", "2024-01-08 00:00:00+00"], "week"),
     ("d", ["2024-01-01 01:00:00+00", "2024-01-08 00:00:00+00"], "")],
)  # fmt: skip
def test_databases_are_called_by_the_time_between_them(column: str | None, labels: list[object], noun: str) -> None:
    assert database_noun(column, labels) == noun
