"""`compare` and `Comparison`: figures, errors, the front, what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib.resources import files
from typing import Any

import jsonschema
import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import empriv
from empriv import protocols
from empriv.comparing import Comparison, compare
from empriv.comparing.comparison import front_of
from empriv.comparing.ways import Goal
from empriv.errors import InputError, QueryError

RAW = "SELECT sum(amount) FROM data"


@pytest.fixture(scope="module")
def data() -> empriv.Databases:
    rng = np.random.default_rng(5)
    days, people = 24, 15
    rows = pyarrow.table(
        {
            "day": np.repeat(np.arange(days), people),
            "who": np.tile(np.arange(people), days),
            "amount": rng.gamma(2.0, 20.0, size=days * people),
        }
    )
    return empriv.databases(rows, database="day", individual="who")


@pytest.fixture(scope="module")
def several(data: empriv.Databases) -> Comparison:
    return compare(
        {
            "raw": RAW,
            "again": RAW,
            "rounded": protocols.rounded(RAW, to=100),
            "top-coded": "SELECT sum(least(amount, 40)) FROM data",
            "laplace": protocols.laplace(RAW, sensitivity=100, epsilon=1),
        },
        data,
        truth="raw",
        epsilon=(0.1, 0.5),
        draws=5,
    )


def results(q: Any, *, databases: Any = None, shift: float = 0.1) -> empriv.Results:
    q = np.asarray(q, float)
    return empriv.Results.from_arrays(q, q - shift * np.ones((2, *q.shape)), databases=databases)


def check_schema(found: dict[str, Any]) -> None:
    schema = json.loads((files("empriv.report") / "comparison.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(json.dumps(found, allow_nan=False)), schema)


@pytest.mark.slow
def test_figures_and_words_are_those_of_the_audits(several: Comparison, data: empriv.Databases) -> None:
    alone = empriv.audit(data, RAW, epsilon=(0.1, 0.5))
    assert several.delta(0.1)["raw"] == alone.delta(0.1)
    assert several.total_risk(0.5)["raw"] == alone.total_risk(0.5)
    assert several.upper(0.1)["raw"] == alone.bounds(0.1).upper
    assert several.names == ("raw", "again", "rounded", "top-coded", "laplace")  # as given, the randomised one run last
    assert several["raw"].query == RAW
    assert several["laplace"].results.draws == 5
    figures = several.to_json()["protocols"][0]["figures"]
    assert [one["epsilon"] for one in figures] == [0.1, 0.5]
    assert figures[1]["upper"] == several.upper(0.5)["raw"] == several["raw"].bounds(0.5).upper
    table = several.table(0.5)
    assert table["protocol"] == list(several.names)
    assert table["delta"] == list(several.delta(0.5).values())
    assert {name for name, best in zip(several.names, table["front"], strict=True) if best} == set(several.front(0.5))
    assert "At epsilon 0.1" in str(several)
    assert "Errors are against the answers of raw." in str(several)


@pytest.mark.slow
def test_errors_are_against_the_truth(several: Comparison) -> None:
    rows = {row.protocol: row for row in several.utility}
    truth = several["raw"].results.q
    for name in ("rounded", "top-coded", "laplace"):
        q = several[name].results.q.reshape(len(truth), -1)
        error = (q - truth[:, None]).ravel()
        row = rows[name]
        assert row.mean_absolute == pytest.approx(np.abs(error).mean())
        assert row.bias == pytest.approx(error.mean())
        assert row.ninety == pytest.approx(np.quantile(np.abs(error), 0.9))
        assert row.relative == pytest.approx((np.abs(error) / np.repeat(truth, q.shape[1])).mean())
        assert row.unanswered == 0
    assert rows["raw"].mean_absolute == rows["raw"].bias == rows["again"].mean_absolute == 0
    assert rows["rounded"].mean_absolute <= 50
    assert rows["top-coded"].bias < 0


def test_no_answer_is_no_error() -> None:
    truth = results([1.0, 2.0, 3.0, 4.0])
    codes, q = truth.outcomes.copy(), truth.q + 1.0
    codes[0], q[0] = empriv.Outcome.NULL, np.nan
    silent = compare({"truth": truth, "some": replace(truth, q=q, outcomes=codes)}, truth="truth").utility[1]
    assert (silent.unanswered, silent.mean_absolute, silent.bias, silent.n_answers) == (0.25, 1.0, 1.0, 4)
    mute = replace(truth, q=np.full(4, np.nan), outcomes=np.full(4, empriv.Outcome.NULL, np.int8))
    found = compare({"truth": truth, "none": mute}, truth="truth")
    assert found.utility[1].unanswered == 1.0
    assert math.isnan(found.utility[1].mean_absolute)
    assert found.front(0.1) == ("truth",)
    assert found.to_json()["protocols"][1]["utility"]["mean_absolute"] is None
    with pytest.raises(InputError, match="at least one database"):
        _ = compare({"none": mute, "some": truth}, truth="none").utility


@pytest.mark.slow
def test_databases_are_matched_by_label() -> None:
    """The same results in another order of databases make no error."""
    rng = np.random.default_rng(0)
    q, labels = rng.normal(size=30), np.arange(30)
    order = rng.permutation(30)
    found = compare({"a": results(q, databases=labels), "b": results(q[order], databases=labels[order])}, truth="a")
    assert found.utility[1].mean_absolute == 0
    shuffled = compare({"a": results(q, databases=labels), "b": results(q[order], databases=labels)}, truth="a")
    assert shuffled.utility[1].mean_absolute > 0


def test_other_sources_are_other_databases(data: empriv.Databases) -> None:
    one = empriv.audit(data, RAW, epsilon=0.1)
    assert one.origin is not None
    other = replace(one, origin=replace(one.origin, sources=("elsewhere.csv",)))
    assert compare({"a": one, "b": replace(one)}).paired
    assert not compare({"a": one, "b": other}).paired


@pytest.mark.slow
def test_json_has_its_schema(several: Comparison) -> None:
    check_schema(several.to_json())
    with pytest.raises(jsonschema.ValidationError):
        check_schema({**several.to_json(), "more": 1})
    check_schema(compare({"a": results([1.0, 2, 4]), "b": results([1.0, 2])}).to_json())


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8))
def test_the_front_is_what_nothing_betters(points: list[tuple[int, int]]) -> None:
    named = {str(k): (float(x), float(y)) for k, (x, y) in enumerate(points)}
    front = front_of(named)
    for name, (x, y) in named.items():
        better = any(a <= x and b <= y and (a < x or b < y) for a, b in named.values())
        assert (name in front) != better
    assert [named[name][0] for name in front] == sorted(named[name][0] for name in front)


@pytest.mark.slow
def test_errors_of_a_table_are_those_of_all_cells(data: empriv.Databases) -> None:
    both = "SELECT sum(amount) AS total, count(*) AS many FROM data"
    found = compare({"raw": both, "rounded": protocols.rounded(both, to=10)}, data, truth="raw", epsilon=0.5)
    off = np.abs(found["rounded"].results.q - found["raw"].results.q)
    truth = np.abs(found["raw"].results.q)
    assert found.utility[1].mean_absolute == pytest.approx(off.mean())
    assert found.utility[1].relative == pytest.approx((off / truth)[truth > 0].mean())
    assert found.table()["mean_absolute"] == [row.mean_absolute for row in found.utility]
    with pytest.raises(InputError, match="same numbers"):
        _ = compare({"raw": both, "one": RAW}, data, truth="raw").utility


def test_hidden_cells_are_counted() -> None:
    rng = np.random.default_rng(0)
    cells = {name: rng.poisson(50.0, 40).astype(float) for name in ("<b>a", "b", "c")}
    raw = empriv.Results.stack({name: empriv.Results.from_arrays(q, [q - 1.0]) for name, q in cells.items()})
    outcomes = raw.outcomes.copy()
    outcomes[:, 1], outcomes[::4, 2] = 1, 1
    hidden = replace(raw, q=np.where(outcomes == 0, raw.q + 5.0, np.nan), outcomes=outcomes)
    nothing = replace(raw, q=np.full(raw.q.shape, np.nan), outcomes=np.ones(raw.q.shape, np.int8))
    found = compare({"raw": raw, "hidden": hidden, "nothing": nothing}, truth="raw", epsilon=0.5)
    assert found.utility[1].unanswered == pytest.approx(1.25 / 3)
    assert found.utility[1].mean_absolute == pytest.approx(5.0)
    check_schema(found.to_json())
    assert math.isnan(found.utility[2].mean_absolute)
    assert found.to_json()["protocols"][2]["utility"]["mean_absolute"] is None


@pytest.mark.slow
def test_draws_are_of_the_seed_and_as_many_as_the_databases_need(data: empriv.Databases) -> None:
    asked = {name: protocols.laplace(RAW, sensitivity=1, epsilon=1) for name in ("a", "b")}
    found = compare(asked, data, draws=3, rng=4, epsilon=0.5)
    assert np.array_equal(found["a"].results.q, found["b"].results.q)
    other = compare({"raw": RAW, **asked}, data, rng=5)
    assert other["a"].results.draws == 1_500 // 24
    assert not np.array_equal(other["a"].results.q[:, :3], found["a"].results.q)


def test_what_is_refused(data: empriv.Databases) -> None:
    one = results([1.0, 2.0, 4.0])
    noisy = protocols.laplace(RAW, sensitivity=1, epsilon=1)
    for wrong, match in (
        (lambda: compare({"a": one}), "2 to 12"),
        (lambda: compare({str(k): one for k in range(13)}), "2 to 12"),
        (lambda: compare([one, one]), "dict"),  # type: ignore[arg-type]
        (lambda: compare({"a": one, "": one}), "names"),
        (lambda: compare({"a": one, "b": one}, truth="c"), "`truth` must name"),
        (lambda: compare({"a": one, "b": RAW}), "`data` must be given"),
        (lambda: compare({"a": one, "b": one}).utility, "got None"),
        (lambda: compare({"a": one, "b": one}, epsilon=-1), "`epsilon`"),
        (lambda: compare({"a": one, "b": one})["c"], "`name`"),
        (lambda: compare({"a": RAW, "b": noisy}, data, truth="b"), "randomised"),
        (lambda: compare({"a": one, "b": results([1.0, 2.0])}, truth="a"), "same databases"),
    ):
        with pytest.raises(InputError, match=match):
            wrong()
    with pytest.raises(QueryError):
        compare({"a": RAW, "b": "SELECT"}, data)


@pytest.mark.slow
def test_what_is_postprocessed_from_answers_is_never_said_to_tell_more(data: empriv.Databases) -> None:
    raw = protocols.plain("sum(amount)")
    coarse = protocols.rounded(raw, to=10)
    noisy = protocols.laplace(coarse, sensitivity=1, epsilon=1)
    found = compare({"raw": raw, "rounded": coarse, "noisy": noisy}, data, epsilon=[0.1, 0.5], draws=8)
    for figures in (found.delta(0.1), found.total_risk(0.1), found.upper(0.1), found.delta(0.5)):
        assert figures["noisy"] <= figures["rounded"] <= figures["raw"]


@pytest.mark.slow
def test_protocols_are_compared_given_what_is_known() -> None:
    rng = np.random.default_rng(12)
    n, people = 60, 20
    level = 3.0 * (np.arange(n) % 2)
    day = np.repeat(np.arange(n), people)
    columns = {
        "day": day,
        "who": np.tile(np.arange(people), n),
        "x": 0.3 + (level / people)[day] + rng.normal(size=n * people) / np.sqrt(people),
        "odd": day % 2,
    }
    frame = pyarrow.table(columns)
    data = empriv.databases(frame, database="day", individual="who")
    ways = {"raw": "sum(x)", "rounded": empriv.protocols.rounded("sum(x)", to=0.5)}
    known = ("max(odd)", "previous")
    comparison = empriv.compare(ways, data, truth="raw", epsilon=0.1, known=known)
    audit = empriv.audit(data, "sum(x)", epsilon=0.1, known=known)
    assert comparison.delta(0.1)["raw"] == audit.delta(0.1) > audit.risk.delta(0.1)
    assert comparison["rounded"].against is not None
    ours = empriv.Given(level)
    of_results = empriv.compare({"a": audit.results, "b": audit.results}, epsilon=0.1, known=ours)
    assert of_results.delta(0.1)["a"] == empriv.measure(audit.results, known=ours).delta(0.1)


def test_a_target_gets_a_recommendation_or_is_told_that_none_meets_it() -> None:
    """The least error among those that pass; the same sentence in words and JSON."""
    q = np.random.default_rng(0).normal(100.0, 10.0, 40)
    ways = {"raw": results(q), "rounded": results(np.rint(q)), "worse": results(q + 5.0, shift=8.0)}
    several = compare(ways, truth="raw", epsilon=0.1, target={"epsilon": 0.1, "delta": 0.3})
    easy, recommended = several, several.recommendation
    assert recommended is not None
    assert recommended.best == "raw"
    assert recommended.verdicts["worse"] != "pass"
    assert "no error" in recommended.sentence
    assert str(easy).startswith(recommended.sentence)
    assert easy.to_json()["recommendation"]["sentence"] == recommended.sentence
    hard = replace(several, goal=Goal(epsilon=0.1, delta=1e-6))
    refused = hard.recommendation
    assert refused is not None
    assert refused.best is None
    assert refused.nearest in several.names
    assert refused.sentence.startswith("None of the 3 ways tried meets delta <= 1e-06 at epsilon 0.1.")
    check_schema(hard.to_json())
    with pytest.raises(InputError, match="`target` must be a dict"):
        compare({"a": results([1.0, 2.0]), "b": results([1.0, 2.0])}, target={"delta": 0.1})
