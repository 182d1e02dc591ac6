"""Buckets and own contribution: the worst of risks that are measured one by one, with their bounds."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.measuring.given.definition4 import WorstRisk, bucket_labels

EPSILON = 0.1


def shop(n: int = 240, people: int = 4, seed: int = 0) -> tuple[empriv.Results, np.ndarray, np.ndarray]:
    """Takings that hang on the number of customers, and what each of a few people spent."""
    rng = np.random.default_rng(seed)
    customers, spent = rng.normal(100.0, 10.0, n), rng.exponential(0.4, (people, n))
    q = 5.0 * customers + rng.normal(0.0, 10.0, n) + spent.sum(axis=0)
    return empriv.Results.from_arrays(q, q - spent, databases=[f"shop {k}" for k in range(n)]), customers, spent


def test_a_bucket_is_measured_alone_and_the_worst_counts() -> None:
    results, customers, _ = shop()
    risk = empriv.measure(results, known=empriv.Buckets(customers, 3))
    assert isinstance(risk, WorstRisk)
    places = np.argsort(customers).reshape(3, 80)
    alone = [empriv.measure(results.on_databases(np.sort(part))) for part in places]
    oracle = np.max([part.delta_i(EPSILON) for part in alone], axis=0)
    np.testing.assert_array_equal(risk.delta_i(EPSILON), oracle)
    assert risk.by_part(EPSILON)["delta"].max() == risk.delta(EPSILON)
    assert risk.delta(EPSILON) > risk.unconditional.delta(EPSILON)  # the customers explain most of the takings
    assert risk.epsilon(0.01) == max(part.epsilon(0.01) for part in alone)


def test_bounds_and_verdict_are_those_of_the_worst() -> None:
    results, customers, _ = shop(n=600)
    audit = empriv.audit(results, known=empriv.Buckets(customers, 2), epsilon=EPSILON)
    assert isinstance(audit.against, WorstRisk)
    uppers = [part.bounds(EPSILON).upper for part in audit.against.parts]
    assert audit.bounds(EPSILON).upper == max(uppers)
    assert audit.delta(EPSILON) <= max(uppers) < 1
    assert audit.verdict(epsilon=EPSILON, delta=0.5) == "pass"
    assert audit.cover(EPSILON, 0.5) == min(part.cover(EPSILON, 0.5) for part in audit.against.parts)
    days = [part.cover(EPSILON, 0.05) for part in audit.against.parts]
    judged = audit.verdict(epsilon=EPSILON, delta=0.05)
    assert judged.day is not None
    assert judged.day.cover in days


def test_a_constant_in_one_bucket_is_seen() -> None:
    q = np.where(np.arange(120) % 2, 7.0, np.random.default_rng(1).normal(10.0, 1.0, 120))
    results = empriv.Results.from_arrays(q, (q - 0.5)[None], databases=[f"shop {k}" for k in range(120)])
    audit = empriv.audit(results, known=empriv.Buckets(np.arange(120) % 2), epsilon=EPSILON)
    assert audit.delta(EPSILON) == 1.0
    assert audit.verdict(epsilon=EPSILON, delta=0.5) == "fail"
    assert any(check.code == "exact-leak" for check in audit.checks)


def test_an_own_contribution_explains_for_everybody_else() -> None:
    rng = np.random.default_rng(2)
    n = 200
    whale, small = rng.exponential(20.0, n), 0.3
    q = rng.normal(100.0, 1.0, n) + whale
    results = empriv.Results.from_arrays(q, np.stack((q - whale, q - small)), individuals=["whale", "small"])
    risk = empriv.measure(results, known="own")
    given = empriv.measure(results, known=whale)
    assert risk.delta_i(EPSILON)[1] == pytest.approx(given.delta_i(EPSILON)[1], rel=1e-9)
    assert risk.delta_i(EPSILON)[1] > 5 * risk.unconditional.delta_i(EPSILON)[1]
    # nobody is asked about themselves: somebody else knows nothing of the whale
    assert risk.delta_i(EPSILON)[0] == pytest.approx(risk.unconditional.delta_i(EPSILON)[0], rel=0.2)
    given_away = empriv.measure(results, known=empriv.OwnContribution(np.stack((whale, np.full(n, small))), top=1))
    assert len(given_away.parts) == 1
    assert given_away.delta_i(EPSILON)[0] == 0.0


def test_noise_is_refused_which_would_hide_people_from_other_readers() -> None:
    results, customers, _ = shop()
    audit = empriv.audit(results, known=empriv.Buckets(customers, 2), epsilon=EPSILON)
    assert not audit.takes_noise
    with pytest.raises(empriv.InputError, match="`known` must be what is regressed out"):
        empriv.design_noise(audit, epsilon=EPSILON, delta=0.05)


def test_buckets_of_numbers_labels_and_what_is_missing() -> None:
    codes, names = bucket_labels(np.array([1.0, 2.0, np.nan, 3.0, 4.0]), 2)
    assert codes.tolist() == [0, 0, 2, 1, 1]
    assert names == ("bucket 1 of 2", "bucket 2 of 2", "NULL")
    codes, names = bucket_labels(np.array(["b", None, "a", "b"], object), None)
    assert codes.tolist() == [1, 2, 0, 1]
    assert "b" not in names  # a label may be a secret


def test_small_buckets_are_left_out_and_that_is_said() -> None:
    results, _, _ = shop(n=60)
    kind = np.where(np.arange(60) < 50, "often", "seldom")
    audit = empriv.audit(results, known=empriv.Buckets(kind), epsilon=EPSILON)
    assert isinstance(audit.against, WorstRisk)
    assert audit.against.left_out == 10
    assert any("10 databases are in buckets" in check.sentence for check in audit.checks)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (empriv.Buckets(np.arange(59)), "one value for each"),
        (empriv.Buckets([f"label {k}" for k in range(60)]), "at least 20 databases in some bucket"),
        (empriv.Buckets("count(*)"), "collected first"),
        (empriv.OwnContribution(np.zeros((2, 60))), "must have shape"),
        (empriv.OwnContribution(np.full((4, 60), np.inf)), "finite"),
        (empriv.OwnContribution([["a"] * 60] * 4), "array of numbers"),
    ],
)
def test_bad_knowledge_is_refused_in_one_sentence(known: object, message: str) -> None:
    with pytest.raises(empriv.InputError, match=message):
        empriv.measure(shop(n=60)[0], known=known)


def test_one_individual_and_several_numbers_are_refused() -> None:
    q = np.random.default_rng(3).normal(size=60)
    alone = empriv.Results.from_arrays(q, (q - 0.1)[None])
    with pytest.raises(empriv.InputError, match="at least 2 individuals"):
        empriv.measure(alone, known="own")
    with pytest.raises(empriv.InputError, match="must not be buckets or own for several numbers"):
        empriv.measure(empriv.Results.stack({"a": alone, "b": alone}), known="own")
    for wrong in ({"top": 0}, {"top": True}, {"top": 1.5}):
        with pytest.raises(empriv.InputError, match="`top` must be"):
            empriv.OwnContribution(**wrong)
    with pytest.raises(empriv.InputError, match="`count` must be"):
        empriv.Buckets("x", 0)
