"""`Results`: what is handed over from collecting to measuring."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.errors import FileFormatError
from empriv.results import outcome_codes
from table_results import of_entries


def results(**changes: Any) -> empriv.Results:
    """Two databases, three individuals: one in both, one in the second, one in none."""
    fields: dict[str, Any] = {
        "q": np.array([1.0, np.nan]),
        "outcomes": np.array([0, empriv.Outcome.NULL], np.int8),
        "databases": np.array(["monday", "tuesday"]),
        "individuals": np.array(["a", "b", "</script>"]),
        "starts": np.array([0, 2, 3, 3]),
        "entry_database": np.array([0, 1, 1], np.int32),
        "entry_q": np.array([0.5, 2.0, np.nan]),
        "entry_outcomes": np.array([0, 0, empriv.Outcome.NULL], np.int8),
    }
    return empriv.Results(**{**fields, **changes})


def test_absent_individuals_change_nothing() -> None:
    r = results()
    assert r.presence.tolist() == [2, 1, 0]
    np.testing.assert_array_equal(r.without("</script>"), r.q)
    np.testing.assert_array_equal(r.without("a"), [0.5, 2.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": np.zeros(3)}, r"`q` must have shape \(2,\), got \(3,\)"),
        ({"entry_q": np.zeros((3, 2))}, "`entry_q` must have shape"),
        ({"starts": np.array([0, 2, 3])}, "`starts` must have shape"),
        ({"starts": np.array([0, 3, 2, 3])}, "`starts` must rise"),
        ({"entry_database": np.array([0, 1, 2], np.int32)}, "must hold indices from 0 to 1"),
        ({"databases": np.array([]), "q": np.zeros(0), "outcomes": np.zeros(0, np.int8)}, "at least one database"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(empriv.InputError, match=message):
        results(**changes)


@pytest.mark.parametrize(
    ("q", "q_without", "message"),
    [
        ([1.0, np.nan], [[1.0, 2.0]], "`q` must hold finite numbers only, got 1"),
        ([1.0, 2.0], [[1.0, np.inf]], "`q_without` must hold finite numbers only, got 1"),
        ([], [[]], "`q` must be a non-empty array"),
        ([[[1.0]]], [[[[1.0]]]], "`q` must be a non-empty array"),
        ([1.0, 2.0], [1.0, 2.0], r"must have shape \(individuals, 2\)"),
        ([1.0, 2.0], [[1.0, 2.0, 3.0]], r"must have shape \(individuals, 2\)"),
        ([1.0, 2.0], np.zeros((0, 2)), r"must have shape \(individuals, 2\)"),
        (["x", "y"], [[1.0, 2.0]], "`q` must be a rectangular array of numbers"),
        ([1.0, 2.0], [[1.0], [1.0, 2.0]], "`q_without` must be a rectangular array of numbers"),
    ],
)
def test_bad_arrays_get_one_sentence(q: Any, q_without: Any, message: str) -> None:
    with pytest.raises(empriv.InputError, match=message) as caught:
        empriv.measure(q, q_without)
    assert "\n" not in str(caught.value)


def test_labels_must_fit_and_differ() -> None:
    with pytest.raises(empriv.InputError, match="must hold 1 labels"):
        empriv.measure([1.0, 2.0], [[1.0, 2.0]], individuals=["a", "b"])
    with pytest.raises(empriv.InputError, match="distinct"):
        empriv.measure([1.0, 2.0], [[1.0, 2.0], [1.0, 2.0]], individuals=["a", "a"])
    with pytest.raises(empriv.InputError, match="matches 0") as caught:
        results().without("somebody's name")
    assert "somebody" not in str(caught.value)


def test_components_are_results_of_their_own() -> None:
    q = np.arange(6.0).reshape(3, 2)
    changed = np.array([[9.0, 8.0]])
    r = of_entries(q, [2], changed, individuals=np.array([7]), components=("mean", "count"))
    assert r.component("count").without(7).tolist() == [1.0, 3.0, 8.0]
    with pytest.raises(empriv.InputError, match="one of the components"):
        r.component("median")
    assert r.select(["count"]).component("count").without(7).tolist() == [1.0, 3.0, 8.0]
    assert r.combined({"mean": 1.0, "count": -2.0}).without(7).tolist() == [-2.0, -4.0, -7.0]


class TestStack:
    def _sparse(self) -> empriv.Results:
        dense = empriv.Results.from_arrays(np.arange(5.0), np.arange(15.0).reshape(3, 5) + 100)
        keep = np.array([0, 2, 5, 14])
        return of_entries(dense.q, dense.entry_database[keep], dense.entry_q[keep], [0, 2, 3, 4])

    def test_entries_are_the_union_and_what_is_absent_is_unchanged(self) -> None:
        rng = np.random.default_rng(0)
        one, other = empriv.Results.from_arrays(rng.normal(size=5), rng.normal(size=(3, 5))), self._sparse()
        both = empriv.Results.stack({"one": one, "other": other})
        assert both.components == ("one", "other")
        for i in range(3):
            np.testing.assert_array_equal(both.without(i), np.stack((one.without(i), other.without(i)), axis=1))
        assert len(empriv.Results.stack({"other": other}).entry_q) == 4

    def test_order_of_databases_and_individuals_does_not_matter(self) -> None:
        one, people, dates = self._sparse(), np.array([2, 0, 1]), np.array([4, 3, 0, 1, 2])
        dense = np.array([one.without(i) for i in range(3)])
        other = empriv.Results.from_arrays(one.q[dates], dense[people][:, dates], individuals=people, databases=dates)
        both = empriv.Results.stack({"one": one, "other": other})
        for i in range(3):
            np.testing.assert_array_equal(both.without(i)[:, 0], both.without(i)[:, 1])

    def test_other_individuals_are_refused(self) -> None:
        other = empriv.Results.from_arrays(np.zeros(5), np.zeros((3, 5)), individuals=[7, 8, 9])
        with pytest.raises(empriv.InputError, match="same databases and individuals"):
            empriv.Results.stack({"one": self._sparse(), "other": other})

    def test_a_deterministic_query_is_repeated_for_each_draw(self) -> None:
        drawn = empriv.Results.from_arrays(np.zeros((5, 2)), np.ones((3, 5, 2)))
        both = empriv.Results.stack({"one": self._sparse(), "drawn": drawn})
        assert both.draws == 2
        assert both.q.shape == (5, 2, 2)
        np.testing.assert_array_equal(both.without(0)[:, 1, 0], self._sparse().without(0))


def test_saved_and_loaded_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "results.empriv"
    r = results(individuals=np.array(["a", "b", "</script>"], object))
    r.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    back = empriv.Results.load(path)
    for name in ("q", "outcomes", "databases", "starts", "entry_database", "entry_q", "entry_outcomes"):
        np.testing.assert_array_equal(getattr(back, name), getattr(r, name))
    assert back.individuals.tolist() == r.individuals.tolist()


def test_a_write_that_fails_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.empriv"
    results().save(path)
    before = path.read_bytes()
    unsavable = results()
    object.__setattr__(unsavable, "q", np.array([object(), object()]))
    with pytest.raises(ValueError, match="Object arrays"):  # which cannot be written without pickle
        unsavable.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", [lambda b: b[:100], lambda _: b"no archive", lambda b: b[: len(b) // 2]])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "results.empriv"
    results().save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileFormatError):
        empriv.Results.load(path)


def test_outcomes_of_floats() -> None:
    codes = outcome_codes([1.0, np.nan, np.inf, -np.inf])
    assert codes.tolist() == [0, empriv.Outcome.NAN, empriv.Outcome.PLUS_INFINITY, empriv.Outcome.MINUS_INFINITY]
