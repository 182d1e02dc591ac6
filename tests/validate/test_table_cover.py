"""Tables by the one judge: cover by cell, days in several cells, bounds and verdicts; coverage on many laws is measured
by benchmarks/tables.py."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import empriv
from empriv.judge import score
from empriv.judge.noise_kernels import NoiseKernel, alone
from empriv.measuring.tables import measure_table
from empriv.results import FloatArray, Outcome
from empriv.validate.checks import checks
from empriv.validate.covers import cover_by_cell
from empriv.validate.table_cover import table_cover_of
from empriv.validate.verdict import verdict
from table_results import always, gaussian_delta, table, unit

N = 365
AT = np.array([0.1])


def related(rng: np.random.Generator, d: int, n: int = N) -> FloatArray:
    """Cells that share a common part: each is of variance 1 given the others, or a little more."""
    return np.asarray(100 + 3 * rng.normal(size=(n, 1)) + rng.normal(size=(n, d)))


class TestScore:
    @pytest.mark.slow
    def test_of_normal_numbers_it_is_that_of_their_distance(self) -> None:
        x = np.random.default_rng(0).normal(size=(20_000, 3))
        move = np.array([0.3, -0.2, 0.1])
        one = score.innovations(x, np.eye(3), move, [NoiseKernel("gaussian", 0.5)] * 3)
        truth = gaussian_delta(float(np.linalg.norm(move)) / math.sqrt(1.25))
        assert score.estimate(one, 0.1) == pytest.approx(truth, abs=0.004)
        assert abs(score.estimate(one, 0.1) - gaussian_delta(0.3 / math.sqrt(1.25))) > 0.008  # the first number alone
        assert truth < score.upper(one, 0.1, noise_leaves=np.ones(1))[0] < truth + 0.02
        assert 0.5 * truth < score.lower(one, 0.1) <= truth

    def test_as_it_is_it_covers_and_is_not_empty(self) -> None:
        rng = np.random.default_rng(1)
        move, truth = np.array([0.3, 0.3]), gaussian_delta(0.3 * math.sqrt(2))
        upper = [score.upper(score.innovations(x, np.eye(2), move, ()), 0.1)[0] for x in rng.normal(size=(10, N, 2))]
        assert np.mean(np.array(upper) >= truth) >= 0.9
        assert np.median(upper) < 2 * truth

    def test_what_noise_alone_leaves(self) -> None:
        gauss, laplace = NoiseKernel("gaussian", 2.0), NoiseKernel("laplace", 2.0)
        assert score.alone_of([gauss, gauss], np.array([3.0, 4.0]), 0.1) == pytest.approx(float(alone(gauss, 0.1, 5.0)))
        assert score.alone_of([laplace, laplace], np.array([0.1, 0.1]), 0.1) == 0.0  # |d|/s adds up to epsilon
        assert score.alone_of([laplace, laplace], np.array([0.2, 0.1]), 0.1) > 0.0
        assert score.alone_of([laplace, gauss], np.zeros(2), 0.1) == 0.0


class TestCover:
    def test_a_cell_hides_less_beside_others_that_tell_what_it_would_be(self) -> None:
        q = related(np.random.default_rng(2), 4)
        risk = measure_table(table(q, [always(0.05 * unit(4, 0))]))
        beside = cover_by_cell(risk, 0.1, 0.05)
        alone_ = risk.each_number["cell 0"].cover(0.1, 0.05)
        assert 0.03 < beside.cover[0] < 0.6 * alone_
        assert beside.moved.tolist() == [pytest.approx(0.05), 0.0, 0.0, 0.0]
        assert not beside.beyond.any()
        assert np.all(cover_by_cell(risk, 0.1, 0.05, noise=1.0).cover > beside.cover)
        by_name = dict.fromkeys(risk.fit.cells, 1.0)
        np.testing.assert_array_equal(
            cover_by_cell(risk, 0.1, 0.05, noise=by_name).cover,
            cover_by_cell(risk, 0.1, 0.05, noise=1.0).cover,
        )

    def test_it_is_honest_on_a_normal_table(self) -> None:
        held = []
        for seed in range(8):
            risk = measure_table(table(related(np.random.default_rng(seed), 4), [always(0.01 * unit(4, 0))]))
            # given three others of the same kind a cell has variance 1 + 1/(3 + 1/9)
            spread = math.sqrt(1 + 1 / (3 + 1 / 9))
            held.append(gaussian_delta(float(cover_by_cell(risk, 0.1, 0.05).cover[0]) / spread) <= 0.05)
        assert np.mean(held) >= 0.9

    def test_a_margin_hides_what_the_least_of_its_cells_hides(self) -> None:
        q = 100 + np.random.default_rng(3).normal(size=(N, 3)) * np.array([1.0, 2.0, 4.0])
        wide = np.column_stack((q, q.sum(axis=1)))
        risk = measure_table(table(wide, [always([0.1, 0.0, 0.0, 0.1])]))
        cover = cover_by_cell(risk, 0.1, 0.05).cover
        assert cover[3] == pytest.approx(cover[:3].min())
        assert risk.bounds(0.1).upper < 0.06
        # with noise a margin is a second look at the same
        hiding = table_cover_of(risk, 0.5)
        both = hiding.upper_of_day(np.array([0, 3]), np.array([0.5, 0.5]), AT, 0.95)
        assert both > hiding.upper_of_moves(np.array([0]), np.array([0.5]), AT, 0.95)

    def test_of_counts_it_is_a_whole_number_also_where_some_are_missing(self) -> None:
        q = np.random.default_rng(11).poisson(400, (N, 3)).astype(float)
        codes = np.zeros(q.shape, np.int8)
        codes[::40, 1] = Outcome.NULL
        day = (np.array([1]), unit(3, 0)[None])
        found = cover_by_cell(measure_table(table(q, [day], codes)), 0.1, 0.05)
        assert np.all(found.cover % 1 == 0)
        assert found.cover.min() >= 1
        half = (np.array([1]), 0.5 * unit(3, 0)[None])  # who moves a count by a half leaves the lattice
        assert cover_by_cell(measure_table(table(q, [half], codes)), 0.1, 0.05).cover[0] % 1 != 0

    def test_one_number_is_refused(self) -> None:
        risk = measure_table(table(related(np.random.default_rng(4), 3), [always(unit(3, 0))]))
        with pytest.raises(empriv.InputError, match="several numbers"):
            cover_by_cell(risk.each_number["cell 0"], 0.1, 0.05)
        with pytest.raises(empriv.InputError, match="cover_by_cell"):
            risk.cover(0.1, 0.05)
        with pytest.raises(empriv.InputError, match="each of the 3 numbers by name"):
            cover_by_cell(risk, 0.1, 0.05, noise={"cell 0": 1.0})


class TestVerdict:
    @pytest.mark.slow
    def test_somebody_small_passes_and_somebody_large_fails(self) -> None:
        q = related(np.random.default_rng(5), 5)
        days = np.arange(0, N, 10)
        small = (days, np.tile(0.03 * unit(5, 0, 1), (len(days), 1)))
        large = (days[:3], np.tile(3.0 * unit(5, 2, 3), (3, 1)))
        passed = verdict(measure_table(table(q, [small])), epsilon=0.1, delta=0.05)
        assert passed == "pass"
        assert passed.day is not None
        assert passed.day.beyond == 0
        failed = verdict(measure_table(table(q, [small, large])), epsilon=0.1, delta=0.05)
        assert failed == "fail"
        assert failed.day is not None
        assert (failed.day.beyond, failed.day.exposed, failed.day.people_beyond) == (3, 3, 1)
        assert failed.day.cell in ("cell 2", "cell 3")
        content = json.loads(json.dumps(failed.to_json()))
        assert content["day"]["cells"]["cell"] == [f"cell {k}" for k in range(5)]
        assert len(content["day"]["cells"]["cover"]) == len(content["day"]["cells"]["moved"]) == 5
        # the same with enough noise
        assert verdict(measure_table(table(q, [small, large])), epsilon=0.1, delta=0.05, noise=200.0) == "pass"

    @pytest.mark.slow
    def test_many_kinds_of_days_are_put_in_order(self) -> None:
        rng = np.random.default_rng(6)
        q = related(rng, 6)
        days = np.arange(N)
        moves = np.zeros((N, 6))
        moves[:, :2] = np.exp(rng.uniform(-5.0, 1.0, (N, 1))) * np.array([1.0, 0.5])
        risk = measure_table(table(q, [(days, moves)]))
        hiding = table_cover_of(risk)
        found = hiding.judge(0.1, 0.05, 0.95)
        assert 0 < np.count_nonzero(found.beyond) < N
        assert moves[found.beyond, 0].min() >= 0.9 * moves[~found.beyond, 0].max()
        some = np.flatnonzero(~found.beyond)[::40].tolist()
        assert all(hiding.upper_of_day(np.array([0, 1]), moves[k, :2], AT, 0.95)[0] <= 0.05 for k in some)

    def test_an_exact_leak_is_demonstrated(self) -> None:
        rng = np.random.default_rng(7)
        others, own = 100 + rng.normal(size=(100, 3)), rng.lognormal(size=100)
        q = np.column_stack((others[:, 0] + own, others))
        risk = measure_table(table(q, [(np.arange(100), own[:, None] * unit(4, 0))]))
        bounds = risk.bounds(0.1)
        assert bounds.upper == 1.0
        assert bounds.lower > 0.9
        assert verdict(risk, epsilon=0.1, delta=0.05) == "fail"
        assert any(check.code == "exact-leak" for check in checks(risk, 0.1))

    @pytest.mark.slow
    def test_changing_what_is_shown_counts_as_telling_for_certain(self) -> None:
        q = 100 + np.random.default_rng(8).normal(size=(N, 4))
        codes = np.zeros(q.shape, np.int8)
        codes[::3, 3] = Outcome.NULL
        days = np.arange(1, N, 12)  # the fourth cell is hidden without them, and shown with them
        entry_codes = codes[days].copy()
        entry_codes[:, 3] = Outcome.NULL
        changed = np.count_nonzero(codes[days, 3] == 0)
        risk = measure_table(table(q, [(days, np.tile(0.02 * unit(4, 0, 1), (len(days), 1)))], codes, entry_codes))
        day = verdict(risk, epsilon=0.1, delta=0.05).day
        assert day is not None
        assert (day.beyond, day.exposed, day.lower) == (changed, changed, 1.0)
        upper = risk.bounds(0.1).upper
        assert changed / N < upper < 3 * changed / N
        assert math.isinf(empriv.audit(risk.results).moved().most)

    def test_too_many_cells_or_too_few_databases_leave_noise_alone(self) -> None:
        rng = np.random.default_rng(9)
        nobody = (np.zeros(0, int), np.zeros((0, 70)))
        many = measure_table(table(100 + rng.normal(size=(60, 70)), [always(0.3 * unit(70, 0), 60), nobody]))
        assert many.bounds(0.1).upper_i[0] == 1.0
        assert many.from_below.tolist() == [True, False]
        assert any("from below" in note for note in many.bounds(0.1).notes)
        few = measure_table(table(rng.normal(size=(20, 3)), [always(0.3 * unit(3, 0), 20)]))
        assert few.bounds(0.1).upper == 1.0
        for risk in (many, few):
            assert verdict(risk, epsilon=0.1, delta=0.05) != "pass"
            upper = table_cover_of(risk, 10.0).upper_of_moves(np.array([0]), np.array([0.3]), AT, 0.95)[0, 0]
            assert upper == pytest.approx(float(alone(NoiseKernel("laplace", 10.0), 0.1, 0.3)), abs=0.01)


def test_who_moved_which_cell() -> None:
    q = related(np.random.default_rng(10), 3)
    people = [(np.array([5]), 0.5 * unit(3, 1)[None]), (np.array([7, 8]), np.array([[0.1, 0, 0], [0.9, 0, 0]]))]
    moved = empriv.audit(table(q, people)).moved(show_ids=True).columns()
    assert moved["individual"] == [1, 0]
    assert moved["cell"] == ["cell 0", "cell 1"]
    assert moved["database"] == [8, 5]
    np.testing.assert_allclose(moved["moved"], [0.9, 0.5])


@pytest.mark.slow
def test_upper_bounds_hold_on_a_normal_table_and_are_not_empty() -> None:
    truths = np.array([gaussian_delta(0.3), gaussian_delta(0.3 * math.sqrt(2))])
    held, uppers, lower_held = [], [], []
    for seed in range(8):
        q = 100 + np.random.default_rng(seed).normal(size=(N, 12))
        risk = measure_table(table(q, [always(0.3 * unit(12, 0)), always(0.3 * unit(12, 0, 1))]))
        bounds = risk.bounds(0.1)
        held.append(bounds.upper_i >= truths)
        uppers.append(bounds.upper_i)
        lower_held.append(bounds.lower <= truths.max())
        assert np.all(risk.delta_i(0.1) <= bounds.upper_i)
        assert bounds.lower <= bounds.estimate <= bounds.upper
    assert np.mean(held) >= 0.9
    assert np.mean(lower_held) >= 0.8
    assert np.all(np.median(uppers, axis=0) < 2.2 * truths)  # 1 would hold as well
