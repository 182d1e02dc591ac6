"""Releases through the ledger: measured together with what was released before, written before they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.auditing.composing import NOW, Composition
from empriv.errors import InputError, RefusalError
from empriv.ledger import ReleaseEntry
from empriv.noise.law import Law

pytestmark = pytest.mark.slow

DAYS, PEOPLE = 40, 8
SUM = "SELECT sum(amount) FROM data"
SUM_WITHOUT = "SELECT sum(amount) FROM data WHERE who <> 'p0'"


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    generator = np.random.default_rng(5)
    amounts = generator.lognormal(0.0, 0.5, (DAYS, PEOPLE))
    return pd.DataFrame(
        {
            "day": np.repeat(np.arange(DAYS), PEOPLE),
            "who": [f"p{k}" for k in range(PEOPLE)] * DAYS,
            "amount": amounts.ravel().round(2),
        }
    )


@pytest.fixture
def data(rows: pd.DataFrame) -> Any:
    return empriv.databases(rows, database="day", individual="who")


def noise_for(audit: empriv.Audit, **changed: Any) -> Any:
    options = {"epsilon": 1.0, "delta": 0.0, "method": "classical", "granularity": 2.0**-6, **changed}
    return empriv.design_noise(audit, **options)


def entries(ledger: empriv.Ledger) -> list[ReleaseEntry]:
    return [entry for entry in ledger.entries() if isinstance(entry, ReleaseEntry)]


def test_the_differencing_attack_is_refused(tmp_path: Path, data: Any) -> None:
    """A sum, and days later the same sum without one person, each private enough by itself."""
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=empriv.Policy(epsilon=1.0, delta=0.9))
    first = empriv.audit(data, SUM, ledger=ledger)
    assert first.composition is None
    # The data's own randomness protects either sum, so that little noise is needed.
    little = {"epsilon": 50.0}
    done = first.release(12.5, noise=noise_for(first, **little), ledger=ledger, database=3)
    assert not done.repeated
    second = empriv.audit(data, SUM_WITHOUT, ledger=ledger)
    assert second.composition is not None
    assert second.alone.delta(1.0) <= 0.3  # by itself it would be allowed
    assert second.delta(1.0) > 0.9
    with pytest.raises(RefusalError, match=r"1 release is recorded .* would make delta .* above the limit 0\.9"):
        second.release(11.0, noise=noise_for(second, **little), ledger=ledger, database=3)
    assert len(entries(ledger)) == 1
    assert ledger.verify().intact


def test_two_sums_next_to_no_noise_show_the_person(tmp_path: Path, data: Any) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    first = empriv.audit(data, SUM, ledger=ledger)
    first.release(12.5, noise=noise_for(first, epsilon=50.0, granularity=2.0**-10), ledger=ledger, database=3)
    second = empriv.audit(data, SUM_WITHOUT, ledger=ledger)
    target = int(second.results.position("p0"))
    assert second.delta_i(1.0)[target] > 0.8
    assert "1 earlier release" in " ".join(second.summary().notes)


def test_enough_noise_is_allowed_and_the_same_release_gives_the_same_answer(tmp_path: Path, data: Any) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=empriv.Policy(epsilon=1.0, delta=0.35))
    first = empriv.audit(data, SUM, ledger=ledger)
    heavy = noise_for(first, epsilon=0.2)
    one = first.release(12.5, noise=heavy, ledger=ledger, database=3)
    second = empriv.audit(data, "SELECT count(*) FROM data WHERE amount > 1", ledger=ledger)
    two = second.release(4.0, noise=noise_for(second, epsilon=0.2), ledger=ledger, database=3)
    assert [one.repeated, two.repeated] == [False, False]
    assert second.release(
        4.0, noise=noise_for(second, epsilon=0.2), ledger=ledger, database=3
    ).answer == two.answer  # fmt: skip
    last = entries(ledger)[-1]
    assert last.joint is not None
    assert last.joint.entries == (entries(ledger)[0].id,)
    assert last.answer == two.answer


def test_the_same_query_of_another_day_is_no_second_query(tmp_path: Path, data: Any) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=empriv.Policy(queries=1))
    first = empriv.audit(data, SUM, ledger=ledger)
    noise = noise_for(first)
    answers = {first.release(q, noise=noise, ledger=ledger, database=day).answer
               for day, q in enumerate(first.results.q[:3].tolist())}  # fmt: skip
    assert len(entries(ledger)) == 3
    # A day that was not audited, or an answer that was not, may be one of these by another name.
    for value, day in ((12.5, 40), (float(first.results.q[0]), 5)):
        with pytest.raises(RefusalError, match=r"not audited, .* counts as a further query"):
            first.release(value, noise=noise, ledger=ledger, database=day)
    assert len(answers) > 1
    again = empriv.audit(data, SUM.lower(), ledger=ledger)
    assert again.composition is not None
    assert again.composition.results.components == (f"released in entry {entries(ledger)[0].id}", NOW)


def test_a_function_is_kept_with_its_results(tmp_path: Path, data: Any) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger")

    def total(rows: dict[str, Any]) -> float:
        return float(np.sum(rows["amount"]))

    first = empriv.audit(data, total, ledger=ledger, jobs=1)
    first.release(12.5, noise=noise_for(first), ledger=ledger, database=3)
    assert entries(ledger)[0].results is not None
    second = empriv.audit(data, SUM_WITHOUT, ledger=ledger)
    assert second.composition is not None
    np.testing.assert_allclose(second.composition.results.q[:, 0], first.results.q)


def test_a_saved_audit_keeps_its_composition(tmp_path: Path, data: Any) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    first = empriv.audit(data, SUM, ledger=ledger)
    first.release(12.5, noise=noise_for(first), ledger=ledger, database=3)
    second = empriv.audit(data, SUM_WITHOUT, ledger=ledger)
    second.save(tmp_path / "b.empriv")
    again = empriv.load(tmp_path / "b.empriv")
    assert isinstance(again, empriv.Audit)
    np.testing.assert_array_equal(again.delta_i([0.1, 1.0]), second.delta_i([0.1, 1.0]))
    np.testing.assert_array_equal(again.alone.results.q, second.alone.results.q)
    assert again.to_json()["earlier_releases"] == [entries(ledger)[0].id]


def test_several_numbers_are_released_at_once(tmp_path: Path, data: Any) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=empriv.Policy(epsilon=1.0, delta=0.0))
    both = empriv.audit(data, ["sum(amount)", "count(*)"], ledger=ledger)
    noise = empriv.design_noise(both.risk, epsilon=1.0, delta=0.0, granularity=2.0**-6)
    names = list(both.components)
    done = both.release(dict.fromkeys(names, 12.0), noise=noise, ledger=ledger, database=3)
    assert isinstance(done.answer, tuple)
    assert len(done.answer) == 2
    third = empriv.audit(data, SUM_WITHOUT, ledger=ledger)
    assert third.composition is not None
    assert len(third.composition.laws) == 2


@pytest.mark.parametrize("known", ["calendar", "previous", "nothing"])
def test_a_table_is_released_whatever_its_readers_know(tmp_path: Path, rows: pd.DataFrame, known: str) -> None:
    """Noise that was designed for what is left of a table goes with the audit that it was designed for, read again."""
    rows = rows.assign(day=pd.Timestamp("2025-01-06") + pd.to_timedelta(rows["day"], "D"))
    data = empriv.databases(rows, database="day", individual="who")
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=empriv.Policy(epsilon=1.0, delta=0.05))
    audit = empriv.audit(data, ["sum(amount)", "max(amount)"], known=known)
    noise = empriv.design_noise(audit, epsilon=1.0, delta=0.05, granularity=2.0**-6)
    audit.save(tmp_path / "a.empriv")
    noise.save(tmp_path / "n.empriv")
    again: Any = empriv.load(tmp_path / "a.empriv")
    answers = dict(zip(audit.components, audit.alone.results.q[3].tolist(), strict=True))
    where = audit.alone.results.databases[3]
    done = again.release(answers, noise=empriv.load(tmp_path / "n.empriv"), ledger=ledger, database=where)
    assert isinstance(done.answer, tuple)
    assert len(done.answer) == 2
    assert not done.repeated


def test_what_does_not_go_together_is_refused(tmp_path: Path, data: Any) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    first = empriv.audit(data, SUM, ledger=ledger)
    other = empriv.audit(data, "avg(amount)")
    with pytest.raises(InputError, match="noise for other results"):
        first.release(1.0, noise=noise_for(other), ledger=ledger, database=3)
    with pytest.raises(InputError, match="must go with the rows"):
        empriv.audit(first.results, ledger=ledger)
    with pytest.raises(InputError, match="must not be given with `ledger`"):
        empriv.audit(data, SUM, ledger=ledger, known="count(*)")
    with pytest.raises(InputError, match="one number, got several"):
        first.release({"a": 1.0}, noise=noise_for(first), ledger=ledger, database=3)
    assert not entries(ledger)


@pytest.mark.parametrize(("scale", "least", "most"), [(3.0, 0.08, 0.14), (60.0, 0.0, 0.03)])
def test_noise_that_is_all_that_hides_a_person_is_measured(scale: float, least: float, most: float) -> None:
    """A sum, released with Laplace noise, beside the same sum without somebody who adds 1: the noise moved by 1.

    At epsilon 0.1 that is 1 - exp((0.1 - 1/3)/2) = 0.110 at scale 3, and 0 at scale 60.
    """
    base = np.random.default_rng(1).normal(0.0, 10.0, 60)
    released, now = (empriv.Results.from_arrays(base + added, [base]) for added in (1.0, 0.0))
    stacked = empriv.Results.stack({"released": released, NOW: now})
    law = Law.of(2.0**-6, [("laplace", 1.0, scale)])
    risk = Composition(stacked, {"released": law}, (NOW,), (1,)).measured()
    assert least <= risk.delta(0.1) <= most
