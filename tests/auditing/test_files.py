"""Saved audits give back the same bits; facts in a file are checked, and what was chosen as known is chosen again."""

from __future__ import annotations

import json
import stat
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.errors import FileFormatError, InputError
from empriv.measuring.densities.density import BestOf, Ecdf, Kde, Model, VariableKde
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.tables import GivenTableRisk
from empriv.results import Results

WHO = [f"secret-{k}" for k in range(8)]


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The file with other facts."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    meta = json.loads(members["meta.json"])
    change(meta)
    members["meta.json"] = json.dumps(meta).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.fixture(scope="module")
def made() -> empriv.Audit:
    rng = np.random.default_rng(4)
    days = np.repeat(np.arange(40), len(WHO))
    table = pd.DataFrame({"day": days, "who": WHO * 40, "amount": rng.lognormal(1, 0.7, 40 * len(WHO))})
    data = empriv.databases(table, database="day", individual="who")
    return empriv.audit(data, "SELECT avg(amount) FROM data", epsilon=[0.2, 0.05])


@dataclass(frozen=True)
class Own:
    """A user's own density."""

    def fit(self, points: np.ndarray, databases: np.ndarray) -> Model:
        return Kde("gaussian", 0.5).fit(points, databases)


@pytest.mark.slow
@pytest.mark.parametrize(
    "density",
    [Kde(), Kde("gaussian", 0.25), Kde("student", np.float64(0.3)), VariableKde("laplace", 3), Ecdf(6),
     BestOf((Kde(), Kde("logistic", "scott")))],
    ids=repr,
)  # fmt: skip
def test_a_loaded_audit_has_the_same_bits(made: empriv.Audit, tmp_path: Path, density: object) -> None:
    before = empriv.audit(made.results, epsilon=[0.1, 0.3], density=density)  # type: ignore[arg-type]
    before.save(tmp_path / "a.empriv")
    after = empriv.load(tmp_path / "a.empriv")
    assert isinstance(after, empriv.Audit)
    assert after.density == density
    assert after.to_json() == before.to_json()
    np.testing.assert_array_equal(after.delta_i([0.1, 0.3]), before.delta_i([0.1, 0.3]))


@pytest.mark.slow
def test_facts_survive(made: empriv.Audit, tmp_path: Path) -> None:
    made.save(tmp_path / "a.empriv")
    after = empriv.load(tmp_path / "a.empriv")
    assert isinstance(after, empriv.Audit)
    assert (after.query, after.epsilons, after.origin) == (made.query, made.epsilons, made.origin)
    assert after.results.individuals.tolist() == WHO
    assert stat.S_IMODE((tmp_path / "a.empriv").stat().st_mode) == 0o600
    assert Results.load(tmp_path / "a.empriv").n_databases == 40


def test_results_are_loaded_as_results(made: empriv.Audit, tmp_path: Path) -> None:
    made.results.save(tmp_path / "r.empriv")
    assert isinstance(empriv.load(tmp_path / "r.empriv"), Results)
    with pytest.raises(InputError, match="saved audit only"):
        empriv.load(tmp_path / "r.empriv", density=Kde())


def test_an_own_density_must_be_given_again(made: empriv.Audit, tmp_path: Path) -> None:
    before = empriv.audit(made.results, density=Own())
    before.save(tmp_path / "a.empriv")
    assert before.to_json()["density"]["recipe"] is None
    with pytest.raises(InputError, match="`density` must be given: the audit was made with a density of your own"):
        empriv.load(tmp_path / "a.empriv")
    after = empriv.load(tmp_path / "a.empriv", density=Own())
    assert isinstance(after, empriv.Audit)
    assert after.delta(0.1) == before.delta(0.1)


@pytest.mark.parametrize(
    "change",
    [{"density": {"kind": "kde"}}, {"density": {"kind": "os.system"}}, {"density": 3}, {"epsilons": ["a"]},
     {"epsilons": []}, {"query": 7}, {"source": {"sources": [1]}}, {"n_components": "2"}, {"component": "x"}],
    ids=repr,
)  # fmt: skip
def test_facts_are_not_taken_on_trust(made: empriv.Audit, tmp_path: Path, change: dict[str, object]) -> None:
    made.save(tmp_path / "a.empriv")
    changed(tmp_path / "a.empriv", lambda meta: meta.update(change))
    with pytest.raises(FileFormatError, match="damaged"):
        empriv.load(tmp_path / "a.empriv")


EPSILON = 0.1


def dated(n: int, seed: int, *, growth: float, serial: float = 0.0) -> empriv.Results:
    """Daily results that grow and slow down and hang on the day before; and twenty people."""
    rng = np.random.default_rng(seed)
    rest = rng.normal(size=n)
    for k in range(1, n):
        rest[k] += serial * rest[k - 1]
    time = np.linspace(0.0, 1.0, n)
    q = 100.0 + growth * (2 * time - time**2) + rest
    labels = np.array([str(date(2024, 1, 1) + timedelta(days=k)) for k in range(n)])
    moves = np.where(rng.random((20, n)) < 0.2, rng.exponential(0.3, (20, n)), 0.0)
    return empriv.Results.from_arrays(q, q - moves, databases=labels)


KINDS = {
    "calendar": dated(200, 1, growth=4.0),
    "previous": dated(300, 2, growth=20.0, serial=0.7),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_the_same_after_loading(kind: str, tmp_path: Path) -> None:
    made = empriv.audit(KINDS[kind], epsilon=EPSILON, target="delta <= 0.05 at 0.1")
    assert isinstance(made.against, GivenRisk)
    assert made.against.steps[-1].name == kind
    path = tmp_path / "a.empriv"
    made.save(path)
    steps = [{"name": "nothing", "p": 0.9, "statistic": "", "bends": False}]
    changed(path, lambda meta: meta["known"].update(steps=steps))  # is not believed
    loaded = empriv.load(path)
    assert loaded.against.steps == made.against.steps
    assert loaded.to_json() == made.to_json()
    assert str(loaded) == str(made)
    assert np.array_equal(loaded.delta_i(EPSILON), made.delta_i(EPSILON))
    verdicts = [audit.verdict(epsilon=EPSILON, delta=0.05) for audit in (made, loaded)]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].day == verdicts[1].day


@pytest.mark.slow
def test_the_choice_of_a_table_is_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    labels = [date(2024, 1, 1) + timedelta(days=k) for k in range(120)]
    rows = [
        {"day": day, "who": f"p{who}", "x": rng.lognormal(0.0, 0.3) + 0.1 * place, "y": rng.lognormal(0.0, 0.3)}
        for place, day in enumerate(labels)
        for who in range(5)
    ]
    data = empriv.databases(pd.DataFrame(rows), database="day", individual="who")
    made = empriv.audit(data, ["sum(x)", "sum(y)"], epsilon=EPSILON)
    assert isinstance(made.against, GivenTableRisk)
    assert len(made.against.steps) > 1
    made.save(tmp_path / "a.empriv")
    loaded = empriv.load(tmp_path / "a.empriv")
    assert loaded.against.steps == made.against.steps
    assert loaded.to_json() == made.to_json()
