"""What was chosen to be counted as known is chosen again on loading: the same, whatever the file says was chosen."""

from __future__ import annotations

import json
import zipfile
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.tables import GivenTableRisk

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


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_the_same_after_loading(kind: str, tmp_path: Path) -> None:
    made = empriv.audit(KINDS[kind], epsilon=EPSILON, target="delta <= 0.05 at 0.1")
    assert isinstance(made.against, GivenRisk)
    assert made.against.steps[-1].name == kind
    path = tmp_path / "a.empriv"
    made.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    meta = json.loads(members["meta.json"])
    meta["known"]["steps"] = [{"name": "nothing", "p": 0.9, "statistic": "", "bends": False}]  # is not believed
    members["meta.json"] = json.dumps(meta).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    loaded = empriv.load(path)
    assert loaded.against.steps == made.against.steps
    assert loaded.to_json() == made.to_json()
    assert str(loaded) == str(made)
    assert np.array_equal(loaded.delta_i(EPSILON), made.delta_i(EPSILON))
    verdicts = [audit.verdict(epsilon=EPSILON, delta=0.05) for audit in (made, loaded)]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].day == verdicts[1].day


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
