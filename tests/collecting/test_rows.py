"""Rows without somebody: the right ones, fresh each time, of types that stay the same."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from empriv.collecting.function_calls import group_rows
from empriv.errors import SourceError

CODES = np.array([1, 0, -1, 1, 2])


def columns():
    day = datetime.date(2020, 1, 1)
    return {
        "x": np.arange(5.0),
        "n": np.ma.array([1, 2**60 + 1, 3, 4, 5], mask=[0, 0, 1, 0, 0]),
        "flag": np.ma.array([True, False, True, True, False], mask=[0, 0, 0, 0, 1]),
        "name": np.array(["a", "b", None, "d", "e"], object),
        "money": np.array([Decimal("1.10")] * 5, object),
        "day": np.array([day] * 5, object),
        "at": np.array(["2020-01-01T12:00"] * 5, "datetime64[us]"),
        'odd "name"': np.arange(5),
    }


@pytest.mark.parametrize("individual", [0, 1, 2, 3])
def test_the_rows_of_the_individual_are_gone_and_no_others(individual):
    kept = [r for r in range(5) if CODES[r] != individual]
    grouped = group_rows(columns(), CODES, members=None, database=0)
    assert grouped.without(individual)["x"].tolist() == [float(r) for r in kept]
    assert grouped.everyone()["x"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_values_and_types_are_not_changed():
    found = group_rows(columns(), CODES, members=None, database=0).without(2)
    assert found["n"].tolist() == [1, 2**60 + 1, None, 4]
    assert found["flag"].tolist() == [True, False, True, True]
    assert found["name"].tolist() == ["a", "b", None, "d"]
    assert found["money"].tolist() == [Decimal("1.10")] * 4
    assert found["day"].tolist() == [datetime.date(2020, 1, 1)] * 4
    assert found['odd "name"'].tolist() == [0, 1, 2, 3]
    nobody = group_rows(columns(), np.zeros(5, np.int64), members=None, database=0).without(0)
    assert {name: (len(column), column.dtype) for name, column in nobody.items()} == {
        name: (0, column.dtype) for name, column in columns().items()
    }


def test_arrays_are_fresh_and_plain(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(5.0))
    mapped = np.load(path, mmap_mode="r")
    grouped = group_rows({"x": mapped}, CODES, members=None, database=0)
    for frame in (grouped.everyone(), grouped.without(1)):
        assert type(frame["x"]) is np.ndarray
        frame["x"][:] = -1
    assert grouped.everyone()["x"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_values_that_can_be_changed_are_copied():
    tags = np.empty(5, object)
    tags[:] = [[r] for r in range(5)]
    grouped = group_rows({"tags": tags}, CODES, members=None, database=0)
    for frame in (grouped.everyone(), grouped.without(0)):
        for tag in frame["tags"]:
            tag.append("spoilt")
    assert list(grouped.everyone()["tags"]) == [[r] for r in range(5)]


@pytest.mark.parametrize("codes", [CODES.astype(np.float64), CODES.reshape(5, 1)])
def test_individuals_must_be_integers(codes):
    refused = "individuals of the rows of database 4 must be a one-dimensional array of integers"
    with pytest.raises(SourceError, match=refused):
        group_rows(columns(), codes, members=None, database=4)


def test_columns_must_fit():
    with pytest.raises(SourceError, match="columns of database 4 must all have one value per row"):
        group_rows({"x": np.arange(3)}, CODES, members=None, database=4)


def test_strangers_are_refused():
    group_rows(columns(), CODES, members=np.array([0, 1, 2, 3]), database=4)
    refused = r"Database 4 must hold only rows of the individuals listed.*got rows of 2 others"
    with pytest.raises(SourceError, match=refused):
        group_rows(columns(), CODES, members=np.array([1]), database=4)
