"""Audits of several queries together, from rows to words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

import empriv
from empriv.auditing.summary import with_validity
from empriv.errors import InputError, QueryError
from empriv.measuring.tables.table_risk import TableRisk

TARGET = 0


def rows(n_databases: int = 40, people: int = 6) -> Any:
    rng = np.random.default_rng(3)
    database, person = (a.ravel() for a in np.meshgrid(np.arange(n_databases), np.arange(people), indexing="ij"))
    amount = rng.lognormal(1, 0.6, len(person))
    region = np.where(person % 2, "north", "south")
    return pyarrow.table({"day": database, "client": person, "amount": amount, "region": region})


@pytest.fixture(scope="module")
def data() -> empriv.Databases:
    return empriv.databases(rows(), database="day", individual="client")


DIFFERENCING = ["sum(amount)", f"sum(amount) FILTER (WHERE client <> {TARGET})"]


@pytest.fixture(scope="module")
def made(data: empriv.Databases) -> empriv.Audit:
    return empriv.audit(data, DIFFERENCING, epsilon=[0.1, 0.5])


@pytest.mark.slow
def test_the_differencing_attack_is_seen(made: empriv.Audit) -> None:
    assert isinstance(made.risk, TableRisk)
    assert made.delta_i(0.5)[made.results.position(TARGET)] == 1.0
    table = made.individuals(0.5, top=1)
    assert table["individual"].tolist() == [TARGET]
    assert made.verdict(epsilon=0.5, delta=0.1) == "fail"


@pytest.mark.slow
def test_each_query_alone_is_there_and_smaller(made: empriv.Audit, data: empriv.Databases) -> None:
    assert len(made.components) == 2
    for name, alone in made.components.items():
        assert np.all(alone.delta_i(0.5) <= made.delta_i(0.5))
        assert alone.component == name
        assert "one number only" in alone.summary().warnings[0]
    first = next(iter(made.components.values()))
    np.testing.assert_array_equal(first.delta_i(0.5), empriv.audit(data, "sum(amount)").delta_i(0.5))


def test_words_name_the_direction_and_say_what_is_joint(made: empriv.Audit) -> None:
    said = with_validity(made, made.summary())
    first, second = made.components
    assert f"{first} minus {second}" in said.alarms[0]
    assert said.alarms[0].startswith("EXACT LEAK")
    assert any("of all 2 numbers together" in note for note in said.notes)
    assert any(note.startswith("Each number alone, delta at epsilon 0.1") for note in said.notes)
    assert {"exact-leak", "carried", "iid"} <= {check.code for check in made.checks}


def test_figures_fit_for_json(made: empriv.Audit) -> None:
    content = made.to_json()
    json.dumps(content, allow_nan=False)
    assert content["joint"]["dimension"] == 2
    assert len(content["joint"]["components"]) == 2
    assert content["joint"]["leaks"][0]["largest_share"] == 1.0


def test_saved_and_loaded(made: empriv.Audit, tmp_path: Path) -> None:
    made.save(tmp_path / "joint.empriv")
    back = empriv.load(tmp_path / "joint.empriv")
    assert isinstance(back, empriv.Audit)
    np.testing.assert_array_equal(back.delta_i([0.1, 0.5]), made.delta_i([0.1, 0.5]))
    assert back.query == made.query
    assert list(back.components) == list(made.components)


def test_groups_are_audited_jointly(data: empriv.Databases) -> None:
    query = "SELECT region, sum(amount) FROM data GROUP BY region"
    together = empriv.audit(data, query, epsilon=0.5)
    assert isinstance(together.risk, TableRisk)
    assert len(together.components) == 2
    name = next(iter(together.components))
    alone = empriv.audit(data, query, epsilon=0.5, component=name)
    assert alone.delta(0.5) == together.components[name].delta(0.5) <= together.delta(0.5)


@pytest.mark.slow
def test_functions_and_sql_may_be_mixed(data: empriv.Databases) -> None:
    def both(frame: dict[str, Any]) -> list[float]:
        return [float(frame["amount"].sum()), float(frame["amount"].max())]

    made = empriv.audit(data, ["count(*)", both], epsilon=0.5, jobs=1, progress=False)
    assert len(made.components) == 3
    assert isinstance(made.risk, TableRisk)


def test_the_same_query_twice_has_two_names_and_one_delta(data: empriv.Databases) -> None:
    twice = empriv.audit(data, ["sum(amount)", "sum(amount)"], epsilon=0.5)
    once = empriv.audit(data, "sum(amount)", epsilon=0.5)
    assert len(set(twice.components)) == 2
    assert twice.delta(0.5) == pytest.approx(once.delta(0.5), abs=1e-3)


def test_wrong_input_is_refused_in_a_sentence(data: empriv.Databases) -> None:
    with pytest.raises(QueryError, match="at least one query"):
        empriv.audit(data, [])
    with pytest.raises(InputError, match="`checkpoint` must be None for several"):
        empriv.collect(data, DIFFERENCING, checkpoint="file")
    with pytest.raises(InputError, match="each of the 2 numbers by name"):
        empriv.audit(data, DIFFERENCING, epsilon=0.5).bounds(0.5, noise={"another": 1.0})
