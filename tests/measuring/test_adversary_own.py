"""Individuals as adversaries: the pruned search finds what the plain loop over everybody finds."""

from __future__ import annotations

import numpy as np
import pytest

from empriv import InputError
from empriv.measuring.given.adversaries import OwnContribution, Weighted
from empriv.measuring.given.adversary_risk import AdversaryRisk, measure_against
from empriv.measuring.given.conditional import ViewSearch
from empriv.results import FloatArray, Results


def sums(n: int, people: int, seed: int, *, absent: float = 0.0) -> tuple[FloatArray, Results]:
    """What each of some people gives in each database, and the results of the sum."""
    rng = np.random.default_rng(seed)
    x = rng.lognormal(sigma=0.8, size=(people, n)) * (rng.random((people, n)) >= absent)
    q = x.sum(axis=0) + rng.normal(0, 2, size=n)
    return x, Results.from_arrays(q, q - x)


def search_of(risk: AdversaryRisk) -> ViewSearch:
    assert isinstance(risk.search, ViewSearch)
    return risk.search


@pytest.mark.slow
@pytest.mark.parametrize("absent", [0.0, 0.6])
@pytest.mark.parametrize("epsilon", [0.05, 0.4])
def test_pruned_is_unpruned(absent: float, epsilon: float) -> None:
    _, made = sums(60, 25, 1, absent=absent)
    search = search_of(measure_against(made, OwnContribution()))
    grid = np.array([epsilon])
    pruned, plain = search.curves(grid), search.curves(grid, prune=False)
    assert search.n_conditions > 25
    np.testing.assert_array_equal(pruned[0], plain[0])
    np.testing.assert_array_equal(pruned[1], plain[1])
    assert plain[0].max() > 0.01


@pytest.mark.slow
def test_curves_are_those_of_each_epsilon() -> None:
    _, made = sums(50, 12, 3)
    risk = measure_against(made, OwnContribution())
    grid = np.array([0.4, 0.05, 0.1])
    np.testing.assert_array_equal(risk.delta_i(grid)[:, 1], risk.delta_i(0.05))
    np.testing.assert_array_equal(risk.delta_i(grid)[:, 0], risk.delta_i(0.4))


@pytest.mark.slow
def test_it_is_the_worst_of_all_others_by_weights() -> None:
    x, made = sums(60, 8, 2)
    risk = measure_against(made, OwnContribution())
    others = [measure_against(made, Weighted(known)) for known in x]
    each = np.array([other.delta_i(0.1) for other in others])
    np.fill_diagonal(each, -1.0)
    np.testing.assert_allclose(risk.delta_i(0.1), each.max(axis=0), atol=1e-9)
    table = risk.individuals(0.1)
    expected = each.argmax(axis=0)[table["individual"]]
    np.testing.assert_array_equal(table["adversary"].astype(int), expected)
    epsilons = np.array([other.epsilon_i(0.05) for other in others])
    np.fill_diagonal(epsilons, -1.0)
    needed = epsilons.max(axis=0)
    np.testing.assert_allclose(risk.epsilon_i(0.05), needed, atol=1e-9)
    assert risk.epsilon(0.05) == pytest.approx(needed.max(), rel=1e-9)


def test_own_entry_is_left_out() -> None:
    """One whose contribution is most of the result: others cannot tell, they themselves could."""
    rng = np.random.default_rng(5)
    big = rng.normal(0, 50, size=80)
    small = rng.normal(0, 1, size=(3, 80))
    q = big + small.sum(axis=0) + rng.normal(0, 3, size=80)
    made = Results.from_arrays(q, np.stack([q - big, *(q - small)]))
    risk = measure_against(made, OwnContribution())
    table = risk.individuals(0.1)
    by_small = table["individual"] != 0
    assert set(table["adversary"][by_small].tolist()) == {0}  # who knows the big one sees the small ones best
    assert np.all(risk.delta_i(0.1)[1:] > risk.unconditional.delta_i(0.1)[1:])
    assert 0 not in table["adversary"][~by_small].tolist()
    assert np.isnan(risk.by_condition(0.1, 0)["delta_i"]).any()


def test_shared_knowledge_is_looked_at_once() -> None:
    """Two who are never there know the same, each of them about the other too."""
    rng = np.random.default_rng(5)
    q = rng.normal(size=50)
    x = np.zeros((4, 50))
    x[0] = 0.4
    made = Results.from_arrays(q, q - x)
    risk = measure_against(made, OwnContribution())
    assert len(search_of(risk).views) == 1
    assert search_of(risk).views[0].second == 1
    np.testing.assert_allclose(risk.delta_i(0.1), risk.unconditional.delta_i(0.1), atol=1e-9)
    assert risk.individuals(0.1)["adversary"][0] == 1


@pytest.mark.slow
def test_an_average_needs_contributions() -> None:
    """q - q_i of an average holds the others' average: a constant contribution would determine the result."""
    rng = np.random.default_rng(7)
    x = rng.normal(10, 3, size=(30, 60))
    x[0] = 10.0
    mean = x.mean(axis=0)
    made = Results.from_arrays(mean, (x.sum(axis=0) - x) / 29)
    wrong = measure_against(made, OwnContribution())
    assert any("EXACT LEAK" in said and "contributions" in said for said in wrong.warnings)
    assert any("Contributions were not given" in said for said in wrong.sentences)
    assert wrong.delta(0.1) == pytest.approx(1.0, abs=1e-12)
    right = measure_against(made, OwnContribution(x))
    assert not any("EXACT LEAK" in said for said in right.warnings)
    assert not any("not given" in said for said in right.sentences)
    assert right.delta(0.1) < 0.9


def test_a_query_that_does_not_add_up_is_seen() -> None:
    def seen(made: Results, contributions: FloatArray | None = None) -> bool:
        risk = measure_against(made, OwnContribution(contributions))
        return any("NOT A SUM" in said for said in risk.warnings)

    for seed in range(4):
        x = np.random.default_rng(seed).normal(10, 1, size=(6, 60))
        q = x.sum(axis=0)
        average = Results.from_arrays(q / 6, (q - x) / 5)
        assert seen(average)
        assert not seen(average, x)
        assert not seen(Results.from_arrays(q, q - x))
        together = x + np.linspace(0, 5, 60)  # each one's part of a sum rises with the others'
        q = together.sum(axis=0)
        assert not seen(Results.from_arrays(q, q - together))


def test_absence_is_knowledge() -> None:
    x, made = sums(100, 5, 2, absent=0.3)
    known = np.where(x > 0, x, np.nan)
    risk = measure_against(made, OwnContribution(known))
    views = [view for view in search_of(risk).views if view.owner == 0]
    assert len(views) == 2
    assert sorted(bool(np.isnan(view.places).all()) for view in views) == [False, True]


def test_a_sample_of_adversaries() -> None:
    _, made = sums(50, 20, 3)
    every, some = measure_against(made, OwnContribution()), measure_against(made, OwnContribution(sample=5, rng=1))
    assert np.all(some.delta_i(0.1) <= every.delta_i(0.1))
    assert some.delta_i(0.1).max() < every.delta_i(0.1).max() + 1e-15
    assert some.conditions.n_adversaries == 5
    assert any("5 of 20" in said for said in some.sentences)
    again = measure_against(made, OwnContribution(sample=5, rng=1))
    np.testing.assert_array_equal(some.delta_i(0.1), again.delta_i(0.1))


def test_cost_is_said_first() -> None:
    _, made = sums(50, 20, 3)
    said: list[str] = []
    risk = measure_against(made, OwnContribution(), notice=said.append)
    assert not said
    risk.delta(0.1)
    assert len(said) == 1
    assert "380 pairs" in said[0]
    cost = risk.cost(0.1)
    assert 0 < cost.at_most <= cost.subject * cost.conditions
    assert risk.cost(1e9).at_most == 0


def test_bad_contributions() -> None:
    _, made = sums(50, 20, 3)
    for contributions, message in (
        (np.zeros((20, 49)), "shape"),
        (np.full((20, 50), np.inf), "infinity"),
        ("a", "numbers"),
    ):
        with pytest.raises(InputError, match=message):
            measure_against(made, OwnContribution(contributions))
    q = np.arange(50.0)
    with pytest.raises(InputError, match="2 individuals"):
        measure_against(Results.from_arrays(q, (q - 1)[None]), OwnContribution())
    few = sums(15, 4, 1)[1]
    with pytest.raises(InputError, match="20 effective databases"):
        measure_against(few, OwnContribution())


def test_an_interrupt_stops_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = sums(50, 20, 3)
    risk = measure_against(made, OwnContribution())

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ViewSearch, "_make", interrupted)
    with pytest.raises(KeyboardInterrupt):
        risk.delta(0.1)
