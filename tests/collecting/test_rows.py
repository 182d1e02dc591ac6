"""Rows without somebody: the right ones, fresh each time, of types that stay the same."""

import datetime
import sys
from decimal import Decimal

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from empriv.collecting.functions.frames import FRAME_KINDS, frame_package, group_rows
from empriv.errors import InputError, SourceError

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


def rows(kind, **options):
    return group_rows(columns(), CODES, kind=kind, members=None, database=0, **options)


def as_lists(frame):
    """Columns as plain lists, None for missing values."""
    if isinstance(frame, pyarrow.Table):
        return frame.to_pydict()
    if isinstance(frame, polars.DataFrame):
        return frame.to_dict(as_series=False)
    if isinstance(frame, pandas.DataFrame):
        return {name: [None if pandas.isna(value) else value for value in frame[name]] for name in frame}
    return {name: column.tolist() for name, column in frame.items()}


@pytest.mark.parametrize("kind", FRAME_KINDS)
@pytest.mark.parametrize("individual", [0, 1, 2, 3])
def test_the_rows_of_the_individual_are_gone_and_no_others(kind, individual):
    kept = [r for r in range(5) if CODES[r] != individual]
    assert as_lists(rows(kind).without(individual))["x"] == [float(r) for r in kept]
    assert as_lists(rows(kind).everyone())["x"] == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("kind", FRAME_KINDS)
def test_values_are_not_changed(kind):
    found = as_lists(rows(kind).without(2))
    assert found["n"] == [1, 2**60 + 1, None, 4]
    assert found["flag"] == [True, False, True, True]
    assert found["name"] == ["a", "b", None, "d"]
    assert found["money"] == [Decimal("1.10")] * 4
    assert found["day"] == [datetime.date(2020, 1, 1)] * 4
    assert found['odd "name"'] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_types_stay_the_same_when_nothing_is_left(kind):
    frames = group_rows(columns(), np.zeros(5, np.int64), kind=kind, members=None, database=0)
    everyone, nobody = frames.everyone(), frames.without(0)
    if kind == "pandas":
        assert nobody.dtypes.to_dict() == everyone.dtypes.to_dict()
        assert len(nobody) == 0
    else:
        assert nobody.schema == everyone.schema
        assert len(nobody) == 0


def test_arrays_are_fresh_and_plain(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(5.0))
    mapped = np.load(path, mmap_mode="r")
    grouped = group_rows({"x": mapped}, CODES, kind="dict", members=None, database=0)
    for frame in (grouped.everyone(), grouped.without(1)):
        assert type(frame["x"]) is np.ndarray
        frame["x"][:] = -1
    assert grouped.everyone()["x"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("kind", ["dict", "pandas"])
def test_values_that_can_be_changed_are_copied(kind):
    tags = np.empty(5, object)
    tags[:] = [[r] for r in range(5)]
    grouped = group_rows({"tags": tags}, CODES, kind=kind, members=None, database=0)
    for frame in (grouped.everyone(), grouped.without(0)):
        for tag in frame["tags"]:
            tag.append("spoilt")
    assert list(grouped.everyone()["tags"]) == [[r] for r in range(5)]


def test_pandas_rows_are_numbered_anew():
    assert rows("pandas").without(0).index.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("codes", [CODES.astype(np.float64), CODES.reshape(5, 1)])
def test_individuals_must_be_integers(codes):
    refused = "individuals of the rows of database 4 must be a one-dimensional array of integers"
    with pytest.raises(SourceError, match=refused):
        group_rows(columns(), codes, kind="dict", members=None, database=4)


def test_columns_must_fit():
    with pytest.raises(SourceError, match="columns of database 4 must all have one value per row"):
        group_rows({"x": np.arange(3)}, CODES, kind="dict", members=None, database=4)


def test_strangers_are_refused():
    group_rows(columns(), CODES, kind="dict", members=np.array([0, 1, 2, 3]), database=4)
    refused = r"Database 4 must hold only rows of the individuals listed.*got rows of 2 others"
    with pytest.raises(SourceError, match=refused):
        group_rows(columns(), CODES, kind="dict", members=np.array([1]), database=4)


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InputError, match="`frame` must be of an installed package, got 'polars'"):
        frame_package("polars")
