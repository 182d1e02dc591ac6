"""A function's answers as they are understood, and the rows that it gets: the right ones, fresh each time."""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from empriv.collecting.function_calls import ABSENT, FAILED, SCALAR, align, group_rows, read_answer
from empriv.errors import QueryError, SourceError
from empriv.results import Outcome


def read(said):
    return read_answer(said, database=3)


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (1.5, 1.5), (2, 2.0), (2**53, 2.0**53), (-(2**53), -(2.0**53)), (True, 1.0), (Decimal("0.1"), 0.1),
        (Decimal(2**53), 2.0**53), (Decimal("98765432109876543.21"), 98765432109876543.21), (Fraction(1, 4), 0.25),
        (np.float32(0.5), 0.5), (np.float64(1e300), 1e300), (np.longdouble(0.5), 0.5), (np.int64(-7), -7.0),
        (np.bool_(True), 1.0), (np.array(2.5), 2.5), (np.array(Decimal("2.5"), object), 2.5), (pyarrow.scalar(4), 4.0),
    ],
)  # fmt: skip
def test_numbers(said, value):
    assert read(said) == (SCALAR, [value], [Outcome.NUMBER])


@pytest.mark.parametrize("said", [None, pandas.NA, np.ma.masked, pyarrow.scalar(None, pyarrow.float64())])
def test_nothing(said):
    assert read(said) is ABSENT


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (float("nan"), Outcome.NAN), (Decimal("nan"), Outcome.NAN), (Decimal("snan"), Outcome.NAN),
        (np.float32("nan"), Outcome.NAN), (float("inf"), Outcome.PLUS_INFINITY),
        (Decimal("inf"), Outcome.PLUS_INFINITY), (np.float64("-inf"), Outcome.MINUS_INFINITY),
    ],
)  # fmt: skip
def test_what_is_not_a_number_has_its_own_outcome_and_no_value(said, outcome):
    names, values, outcomes = read(said)
    assert names == SCALAR
    assert np.isnan(values).all()
    assert outcomes == [outcome]


@pytest.mark.parametrize(
    "said",
    [
        [1, None, 2.5], (1, None, 2.5), np.array([1, None, 2.5], object),
        np.ma.array([1.0, 7.0, 2.5], mask=[False, True, False]), polars.Series([1, None, 2.5], strict=False),
        pandas.Series([1, pandas.NA, 2.5], dtype="Float64"), pyarrow.array([1, None, 2.5]),
        pyarrow.chunked_array([[1.0, None], [2.5]]),
    ],
)  # fmt: skip
def test_sequences_have_numbered_components(said):
    names, values, outcomes = read(said)
    assert names == ("0", "1", "2")
    assert [values[0], values[2]] == [1.0, 2.5]
    assert outcomes == [Outcome.NUMBER, Outcome.NULL, Outcome.NUMBER]


def test_mappings_have_named_components():
    names, values, outcomes = read({"b": 1, "a": float("inf")})
    assert names == ("b", "a")
    assert values[0] == 1.0
    assert outcomes == [Outcome.NUMBER, Outcome.PLUS_INFINITY]


@pytest.mark.parametrize("said", [2**53 + 1, -(2**70), np.uint64(2**60), Decimal(10**20), [1, 2**60], {"a": 2**60}])
def test_integers_that_a_float_may_not_hold_are_refused(said):
    with pytest.raises(QueryError, match=r"at most 2\^53.*got a larger one on database 3"):
        read(said)


def test_numbers_that_no_float_holds_are_refused():
    with pytest.raises(QueryError, match="numbers that a float can hold, got a larger one on database 3"):
        read(Fraction(10**400, 3))


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("SECRET", "str"), (b"SECRET", "bytes"), (["SECRET"], "str"), ({"a": "SECRET"}, "str"), (1j, "complex"),
        (object(), "object"), ({1.0}, "set"), (np.zeros((2, 2)), "ndarray"), ([[1.0]], "list"),
        (np.datetime64("2020-01-01"), "datetime64"), (pandas.DataFrame({"a": [1.0]}), "DataFrame"),
        ((x for x in (1.0,)), "generator"),
    ],
)  # fmt: skip
def test_other_types_are_refused_by_name(said, kind):
    with pytest.raises(QueryError, match=f"got a value of type {kind} on database 3") as caught:
        read(said)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("said", [[], (), {}, np.array([])])
def test_no_component_is_refused(said):
    with pytest.raises(QueryError, match="at least one component, got none on database 3"):
        read(said)


def test_names_must_be_text():
    with pytest.raises(QueryError, match="must have text as its keys"):
        read({1: 2.0})


def test_align_reorders_and_spreads():
    names = ("a", "b")
    assert align(read({"b": 2, "a": 1}), names, database=0) == (names, [1.0, 2.0], [0, 0])
    assert align(FAILED, names, database=0)[2] == [Outcome.ERROR, Outcome.ERROR]
    assert align(ABSENT, names, database=0)[2] == [Outcome.NULL, Outcome.NULL]
    assert align(ABSENT, SCALAR, database=0)[2] == [Outcome.NULL]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (1.0, "2 named components elsewhere, got one number on database 3"),
        ([1.0, 2.0, 3.0], "2 named components elsewhere, got a row of 3 on database 3"),
        ({"a": 1.0}, "2 named components elsewhere, got 1 named component on database 3"),
        ({"a": 1.0, "SECRET": 1.0}, "2 named components elsewhere, got 2 named components on database 3"),
    ],
)
def test_align_refuses_other_components_without_naming_them(said, message):
    with pytest.raises(QueryError, match=message) as caught:
        align(read(said), ("a", "b"), database=3)
    assert "SECRET" not in str(caught.value)


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
