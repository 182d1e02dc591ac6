"""Noise on the cells of a table: the target is kept for normal tables whose truth is known, with little noise; files,
releases and sums that come out again."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import empriv
from empriv.errors import CertificateError, InputError
from empriv.measuring import TableRisk
from empriv.measuring.series.composition import gaussian_delta
from empriv.measuring.tables.relations import relations_of
from empriv.noise.drawing import with_noise
from empriv.noise.law import Law
from empriv.noise.table_noise import TableNoise
from empriv.results import FloatArray, Outcome, Results
from empriv.validate.verdict import verdict

EPSILON, DELTA = 1.0, 0.05
LOAD = np.random.default_rng(1).normal(size=(2, 6))


def table_of(q: FloatArray, changes: FloatArray) -> Results:
    """Results of cells (n, d), and what people (people, n, d) change."""
    return Results.stack(
        {f"c{k}": Results.from_arrays(q[:, k], q[None, :, k] - changes[..., k]) for k in range(q.shape[1])}
    )


def factors(n: int, d: int, seed: int = 0) -> FloatArray:
    rng = np.random.default_rng(seed)
    return np.asarray(100 + rng.normal(size=(n, 2)) @ LOAD[:, :d] + 4.0 * rng.normal(size=(n, d)))


def constant(n: int, d: int, people: list[dict[int, float]]) -> FloatArray:
    out = np.zeros((len(people), n, d))
    for row, changes in enumerate(people):
        for cell, change in changes.items():
            out[row, :, cell] = change
    return out


def noise_for(results: Results, *, delta: float = DELTA) -> TableNoise:
    made = empriv.design_noise(empriv.measure(results), epsilon=EPSILON, delta=delta, granularity=1 / 64)
    assert isinstance(made, TableNoise)
    return made


@pytest.fixture(scope="module")
def designed() -> tuple[Results, TableNoise]:
    n, d = 300, 6
    people: list[dict[int, float]] = [{k: 2.5} for k in range(d - 1)] + [{0: 2.5, 1: 2.5}, {2: 0.2}]
    results = table_of(factors(n, d), constant(n, d, people))
    return results, noise_for(results)


@pytest.mark.slow
def test_it_keeps_its_target_with_less_noise_than_hides_everybody_by_itself(
    designed: tuple[Results, TableNoise],
) -> None:
    results, noise = designed
    assert noise.holds
    assert 0.8 * DELTA < noise.achieved_delta() <= DELTA
    assert noise.expected_error["c5"] == 0  # nobody is in it
    pure = noise_for(results, delta=0.0)
    assert {law.parts[0].kind for law in pure.laws.values()} == {"laplace", "point"}
    assert pure.achieved_delta() == 0.0
    assert sum(noise.expected_error.values()) < 0.6 * sum(pure.expected_error.values())
    # the truth is as good as normal: the noisy table against that moved
    deviations = np.array([law.parts[0].scale for law in noise.laws.values()])
    kinds = np.array([law.parts[0].kind == "laplace" for law in noise.laws.values()])
    covariance = LOAD.T @ LOAD + 16.0 * np.eye(6) + np.diag(np.where(kinds, 2.0, 1.0) * deviations**2)
    for row in range(results.n_individuals):
        entry = results.starts[row]
        change = results.q[results.entry_database[entry]] - results.entry_q[entry]
        apart = np.sqrt(change @ np.linalg.inv(covariance) @ change)
        assert gaussian_delta(np.array([apart]), EPSILON)[0] <= 1.1 * DELTA
    assert verdict(noise.risk, epsilon=EPSILON, delta=DELTA, noise=noise) == "pass"
    assert np.all(noise.achieved_delta_i() <= noise.achieved_delta() + 0.02)


@pytest.mark.slow
def test_it_is_judged_again_when_read_and_for_other_data(designed: tuple[Results, TableNoise], tmp_path: Path) -> None:
    results, noise = designed
    noise.save(tmp_path / "noise.empriv")
    again = empriv.load(tmp_path / "noise.empriv")
    assert isinstance(again, TableNoise)
    assert again.achieved_delta() == pytest.approx(noise.achieved_delta(), rel=1e-9)
    assert again.claim == noise.claim
    released = noise.release(dict.fromkeys(noise.laws, 100.0))
    assert all(value % (1 / 64) == 0 for value in released.values())
    assert released["c5"] == 100.0
    before = results.q[results.entry_database]
    twice = replace(results, entry_q=before - 2 * (before - results.entry_q))
    with pytest.raises(CertificateError, match="does not"):
        noise.certified_for(empriv.measure(twice))
    assert noise.hides_day(results.on_databases(np.array([0])))
    assert not noise.hides_day(twice.on_databases(np.array([0])))


@pytest.mark.slow
def test_margins_add_up_again() -> None:
    n = 200
    inner = np.random.default_rng(4).poisson(40, (n, 4)).astype(float)
    q = np.c_[inner, inner[:, :2].sum(axis=1), inner[:, 2:].sum(axis=1), inner.sum(axis=1)]
    people = constant(n, 7, [{0: 1, 4: 1, 6: 1}, {1: 1, 4: 1, 6: 1}, {2: 1, 5: 1, 6: 1}, {3: 1, 5: 1, 6: 1}])
    laws = {f"c{k}": Law.of(1 / 64, [("laplace", 1.0, 6.0)]) for k in range(7)}
    risk = empriv.measure(table_of(q, people))
    assert isinstance(risk, TableRisk)
    plain = TableNoise(laws, risk, EPSILON, DELTA, declared_granularity=True)
    noise = replace(plain, consistent=True)
    values = dict(zip(noise.laws, q[0].tolist(), strict=True))
    out = np.array([list(noise.release(values).values()) for _ in range(150)])
    np.testing.assert_allclose(out[:, 4], out[:, 0] + out[:, 1], atol=1e-6)
    np.testing.assert_allclose(out[:, 6], out[:, :4].sum(axis=1), atol=1e-6)
    errors = np.abs(out - q[0]).mean(axis=0)
    np.testing.assert_allclose(errors, list(noise.expected_error.values()), rtol=0.25)
    assert sum(noise.expected_error.values()) < 0.95 * sum(plain.expected_error.values())
    assert any("add up" in note for note in noise.notes)
    assert relations_of(noise.risk.results).weights.shape == (3, 7)


def test_what_no_noise_hides_counts_in_a_random_database_alone() -> None:
    n = 300
    results = table_of(factors(n, 3), constant(n, 3, [{0: 0.5}, {1: 0.5}]))
    codes, values = results.entry_outcomes.copy(), results.entry_q.copy()
    codes[3, 2], values[3, 2] = Outcome.NULL, np.nan
    risk = empriv.measure(replace(results, entry_outcomes=codes, entry_q=values))
    with pytest.raises(CertificateError, match="decides on some database"):
        empriv.design_noise(risk, epsilon=EPSILON, delta=DELTA, granularity=1 / 64)
    noise = empriv.design_noise(risk, epsilon=EPSILON, delta=DELTA, granularity=1 / 64, presence="random")
    assert isinstance(noise, TableNoise)
    assert 1 / n < noise.achieved_delta() <= DELTA


def test_the_differencing_attack_is_hidden_by_noise() -> None:
    rng = np.random.default_rng(3)
    rest, x = rng.normal(100, 10, 60), rng.lognormal(0, 0.5, 60)
    risk = empriv.measure(
        Results.stack({"all": Results.from_arrays(rest + x, [rest]), "others": Results.from_arrays(rest, [rest])})
    )
    assert risk.delta(0.5) == 1.0
    noise = empriv.design_noise(risk, epsilon=0.5, delta=0.05, granularity=0.125)
    assert isinstance(noise, TableNoise)
    assert noise.holds
    assert noise.expected_error["others"] == 0.0
    assert noise.expected_error["all"] > 0.5 * x.max()
    noisy = with_noise(risk.results, noise.laws, draws=16, rng=np.random.default_rng(0))
    assert empriv.measure(noisy).delta(0.5) < 0.15


def test_one_database_one_person_and_nobody() -> None:
    for n, people in itertools.product((1, 2, 5), ([{0: 1.0}], [{}])):
        noise = noise_for(table_of(factors(n, 3), constant(n, 3, people)))
        assert noise.achieved_delta() <= DELTA
        assert (noise.expected_error["c0"] > 0) == bool(people[0])


@pytest.mark.slow
def test_wrong_input_is_refused(designed: tuple[Results, TableNoise]) -> None:
    risk = designed[1].risk
    for wrong, match in (
        ({"epsilon": 0.0}, "`epsilon` must be positive"),
        ({"granularity": 1 / 3}, "power of two"),
        ({"granularity": {"a": 0.25}}, "by name"),
        ({"method": "classical"}, "method 'least'"),
        ({"consistent": 1}, "`consistent` must be"),
        ({"presence": "always"}, "`presence` must be"),
    ):
        with pytest.raises(InputError, match=match):
            empriv.design_noise(risk, **{"epsilon": 1.0, "delta": 0.05, **wrong})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`granularity` must be declared"):
        empriv.design_noise(risk, epsilon=1.0, delta=0.05).release(dict.fromkeys(risk.fit.cells, 1.0))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="each of the 6 numbers"):
        designed[1].release({"c0": 100.1})
    with pytest.raises(InputError, match="`consistent` must be for several"):
        empriv.design_noise(risk.each_number["c0"], epsilon=1.0, delta=0.05, consistent=True)
