"""Audits: figures of the parts put together, words, and files that give back the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.base.arguments import rising_epsilons
from empriv.collecting.origins import describe
from empriv.errors import InputError
from empriv.measuring import measure
from empriv.measuring.densities.density import (
    BestOf,
    Ecdf,
    Kde,
    VariableKde,
    density_from_json,
    density_from_text,
    density_to_json,
)
from empriv.measuring.densities.kernels import KERNELS
from empriv.results import Outcome, Results
from empriv.validate.bounds import floor
from empriv.words import sentences
from empriv.words.sentences import number, percent

WHO = [f"secret-{k}" for k in range(8)]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "day": np.repeat(np.arange(40), len(WHO)),
            "who": WHO * 40,
            "region": ["north", "south"] * (20 * len(WHO)),
            "amount": rng.lognormal(1, 0.7, 40 * len(WHO)),
        }
    )


@pytest.fixture(scope="module")
def data(table: pd.DataFrame) -> empriv.Databases:
    return empriv.databases(table, database="day", individual="who")


@pytest.fixture(scope="module")
def made(data: empriv.Databases) -> empriv.Audit:
    return empriv.audit(data, "SELECT avg(amount) FROM data", epsilon=[0.2, 0.05])


def test_an_audit_is_collecting_then_measuring(table: pd.DataFrame, made: empriv.Audit) -> None:
    sums, counts = table.groupby("day").amount.sum().to_numpy(), len(WHO)
    q = sums / counts
    own = table.pivot(index="who", columns="day", values="amount").to_numpy()
    risk = measure(q, (sums - own) / (counts - 1))
    assert made.epsilons == (0.05, 0.2)
    np.testing.assert_allclose(made.delta([0.05, 0.2]), risk.delta([0.05, 0.2]), rtol=1e-9)
    np.testing.assert_allclose(made.delta_i(0.05), risk.delta_i(0.05), rtol=1e-9)
    assert made.total_risk(0.2) == pytest.approx(risk.total_risk(0.2), rel=1e-9)
    assert made.epsilon(delta=0.0) == pytest.approx(risk.epsilon(0.0), rel=1e-9)
    ranked = made.individuals(epsilon=0.05, top=3)
    assert len(ranked["individual"]) == 3
    assert ranked["delta_i"][0] == made.delta(0.05)


def test_results_are_audited_as_they_are(made: empriv.Audit) -> None:
    again = empriv.audit(made.results, epsilon=0.05)
    assert again.delta(0.05) == made.delta(0.05)
    assert again.origin is None
    assert "40 databases" in again.summary().asked
    with pytest.raises(InputError, match="`query` must not be given with `Results`"):
        empriv.audit(made.results, "sum(amount)")


@pytest.mark.slow
def test_a_python_query_is_named_by_its_function(data: empriv.Databases) -> None:
    def spread(rows: dict[str, np.ndarray]) -> float:
        return float(np.ptp(rows["amount"]))

    made = empriv.audit(data, spread, post=np.log1p, jobs=1)
    assert made.query.endswith("spread, then log1p")
    assert made.results.q.max() < 10


def test_a_query_must_be_given(data: empriv.Databases) -> None:
    with pytest.raises(InputError, match="`query` must be"):
        empriv.audit(data)


def test_rows_of_nobody_cannot_be_audited() -> None:
    frame = pd.DataFrame({"day": [1, 2, 3], "who": pd.Series([None] * 3, dtype="str"), "x": [1.0, 2.0, 4.0]})
    data = empriv.databases(frame, database="day", individual="who", unidentified="keep")
    with pytest.raises(InputError, match="at least one individual, got 0"):
        empriv.audit(data, "sum(x)")


@pytest.mark.parametrize("epsilon", [-0.1, float("nan"), float("inf"), [], "0.1", ["a"], [0.1, -1], None])
def test_wrong_epsilons_are_refused_before_any_work(data: empriv.Databases, epsilon: object) -> None:
    with pytest.raises(InputError, match="`epsilon` must"):
        empriv.audit(data, "sum(no_such_column)", epsilon=epsilon)  # type: ignore[arg-type]


def test_epsilons_rise_without_doubles() -> None:
    assert rising_epsilons([0.2, 0.1, 0.2]) == (0.1, 0.2)
    assert rising_epsilons(np.array([0.5])) == (0.5,)
    assert rising_epsilons(1) == (1.0,)


def test_wrong_density_is_refused_before_any_work(data: empriv.Databases) -> None:
    with pytest.raises(InputError, match="`density` must have a method `fit`"):
        empriv.audit(data, "sum(no_such_column)", density="laplace")  # type: ignore[arg-type]


class TestVectors:
    def test_a_wrong_component_is_refused_without_showing_the_keys_of_groups(self, data: empriv.Databases) -> None:
        query = "SELECT region, sum(amount) FROM data GROUP BY region"
        with pytest.raises(InputError, match="`component` must name one of 2 components") as wrong:
            empriv.audit(data, query, component="nowhere")
        assert "north" not in str(wrong.value)

    @pytest.mark.slow
    def test_one_component_is_audited_and_said_to_be_one(self, data: empriv.Databases) -> None:
        query = "SELECT sum(amount) AS total, count(*) AS n, max(amount) AS most FROM data"
        made = empriv.audit(data, query, component="total")
        alone = empriv.audit(data, "SELECT sum(amount) FROM data")
        np.testing.assert_array_equal(made.delta_i(0.1), alone.delta_i(0.1))
        assert "one number only, 'total', not the 2 others" in made.summary().warnings[0]
        assert made.to_json()["n_components"] == 3

    def test_a_component_of_one_number_is_refused(self, data: empriv.Databases) -> None:
        with pytest.raises(InputError, match="`component` must be None"):
            empriv.audit(data, "sum(amount)", component="total")


class TestWords:
    def test_summary_says_what_was_asked_and_found(self, made: empriv.Audit) -> None:
        said = made.summary()
        assert said.asked == (
            "SELECT avg(amount) FROM data was asked of 40 databases (by day in a table in memory), "
            "with everyone and without each of 8 individuals (by who)."
        )
        assert [figure.epsilon for figure in said.figures] == [0.05, 0.2]
        assert said.figures[0].delta == made.delta([0.05, 0.2])[0]
        assert percent(said.figures[0].delta) in said.sentences[0]
        assert said.notes[0].endswith("from 40 databases. Not a guarantee.")
        assert said.notes[1].startswith("Nothing had to be counted as known")
        assert said.notes[2].startswith("Verified on ")
        assert said.notes[3].startswith("40 databases cannot support any delta below 0.072")
        assert not said.alarms

    def test_no_words_hold_an_identifier(self, made: empriv.Audit) -> None:
        assert "secret" not in json.dumps(made.to_json()) + repr(made.summary()) + repr(made)

    def test_json_is_json_with_the_documented_keys(self, made: empriv.Audit) -> None:
        content = made.to_json()
        json.dumps(content, allow_nan=False)
        documented = Path(__file__).parents[2].joinpath("docs", "formats.md").read_text()
        for key in [*content, *content["density"], *content["figures"][0], *content["source"], *content["words"]]:
            assert f"`{key}`" in documented, key
        assert content["version"] == 1
        assert sum(score["chosen"] for score in content["density"]["scores"]) == 1

    def test_percentages_never_round_to_certainty(self) -> None:
        assert percent(0.0) == "0%"
        assert percent(1.0) == "100%"
        assert percent(0.9999999) == "more than 99%"
        assert percent(0.0036) == "0.36%"
        assert percent(0.123) == "12%"
        assert percent(1e-12) == "1.0e-10%"

    def test_numbers_are_short(self) -> None:
        assert [number(x) for x in (0.0, 0.00364, 3.94, 123.4, 4.5e7, 1e-9)] == [
            "0", "0.0036", "3.9", "123", "4.5e+07", "1.0e-09",
        ]  # fmt: skip

    def test_the_floor_is_that_of_the_design(self) -> None:
        # 59, 299 and 2,995 databases are the least that support 0.05, 0.01 and 0.001.
        for n, least in ((59, 0.05), (299, 0.01), (2995, 0.001)):
            assert floor(n, 0.95) <= least < floor(n - 1, 0.95)
        assert sentences.floor(1, 0.95).startswith("1 database cannot")

    def test_null_without_somebody_is_an_exact_leak(self) -> None:
        rows = [(day, "always", float(day % 7)) for day in range(30)] + [(30, "only here", 3.0)]
        frame = pd.DataFrame(rows, columns=["day", "who", "x"])
        data = empriv.databases(frame, database="day", individual="who")
        said = empriv.audit(data, "sum(x)").summary()
        assert any(
            line.startswith("EXACT LEAK: result is empty (null). For each of 2 individuals") for line in said.alarms
        )
        assert any("31 of 31 results without an individual are not a number (31 null)" in w for w in said.warnings)

    def test_a_constant_without_somebody_is_an_exact_leak(self) -> None:
        rng = np.random.default_rng(0)
        q = rng.normal(size=50)
        without = np.stack([np.zeros(50), q + 0.001 * rng.normal(size=50)])
        made = empriv.audit(Results.from_arrays(q, without))
        (atom,) = made.outcomes.atoms
        assert atom.n_leaks == 1
        assert atom.largest_leak == 1.0
        (alarm,) = made.summary().alarms
        assert alarm.startswith("EXACT LEAK: result is constant, or mostly so, without the individual.")
        assert "100% of databases" in alarm

    def test_a_share_that_moves_is_no_exact_leak(self) -> None:
        # One result in three is NULL with everyone; without the individual it is one more.
        q = np.array([1.0, 2.0, np.nan, 3.5, 4.0, np.nan])
        outcomes = np.where(np.isnan(q), Outcome.NULL, Outcome.NUMBER).astype(np.int8)
        entry = q.copy()
        entry[0] = np.nan
        results = Results(
            q, outcomes, np.arange(6), np.array(["x"]), np.array([0, 6]), np.arange(6, dtype=np.int32), entry,
            np.where(np.isnan(entry), Outcome.NULL, Outcome.NUMBER).astype(np.int8),
        )  # fmt: skip
        made = empriv.audit(results)
        said = made.summary()
        assert not said.alarms
        assert any(
            w.startswith("33% of the results are one outcome of their own (result is empty (null))")
            for w in said.warnings
        )
        assert made.to_json()["not_numbers"] == {"with_everyone": {"null": 2}, "without_an_individual": {"null": 3}}

    def test_sources_are_named_without_folders(self, tmp_path: Path) -> None:
        files = [str(tmp_path / f"{name}.csv") for name in "ab"]
        origin = describe(empriv.databases(files, individual="who", tables={"more": tmp_path / "c.parquet"}))
        assert origin.sources == ("a.csv", "b.csv")
        assert origin.tables == ("more",)
        stored = describe(empriv.databases(f"{tmp_path}/x.duckdb::t", database="d", individual=["a", "b"]))
        assert stored.sources == ("x.duckdb::t",)
        drawn = describe(empriv.subsamples(files[0], individual="who", count=5, fraction=0.5, rng=3))
        assert drawn.drawn == "random subsamples, each individual in with probability 0.5, seed 3,"


class TestDensityNames:
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_every_kernel_has_its_name(self, kernel: str) -> None:
        assert density_from_text(kernel) == Kde(kernel)
        assert density_from_text(f"{kernel}:silverman") == Kde(kernel, "silverman")
        assert density_from_text(f"variable:{kernel}") == VariableKde(kernel)

    def test_other_names(self) -> None:
        assert density_from_text("gaussian:0.5") == Kde("gaussian", 0.5)
        assert density_from_text("ecdf") == Ecdf()
        assert density_from_text("ecdf:5") == Ecdf(5)
        assert density_from_text("variable") == VariableKde()
        assert density_from_text("best") == BestOf()
        assert len(BestOf().candidates) > 3

    @pytest.mark.parametrize(
        "text",
        ["", "gauss", "gaussian:wide", "gaussian:-1", "gaussian:nan", "ecdf:x", "ecdf:0", "best:3", "variable:x"],
    )
    def test_wrong_names_are_refused(self, text: str) -> None:
        with pytest.raises(InputError, match="must be"):
            density_from_text(text)

    def test_a_subclass_is_not_mistaken_for_its_base(self) -> None:
        class Wider(Kde):
            pass

        assert density_to_json(Wider()) is None
        assert density_to_json(BestOf((Kde(), Wider()))) is None
        assert density_from_json(density_to_json(Kde())) == Kde()
