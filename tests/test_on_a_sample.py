"""What is tried on a sample: part of everybody's figures, and of what is really published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import empriv
from empriv.collecting.run_options import Run
from empriv.comparing.goals import Goal
from empriv.comparing.on_a_sample import Sample
from empriv.protocols.places import rounded_text

GOAL = Goal.of(epsilon=0.1, delta=0.05)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> empriv.Databases:
    rng = np.random.default_rng(0)
    lines = ["day,client,amount"]
    for day in range(40):
        lines += [f"{day},c{client},{rng.gamma(4.0, 5.0):.2f}" for client in range(15) if rng.random() < 0.8]
    path = Path(tmp_path_factory.mktemp("rows")) / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return empriv.databases(str(path), database="day", individual="client")


@pytest.fixture(scope="module")
def sample(rows: empriv.Databases) -> Sample:
    return Sample.of(empriv.audit(rows, "sum(amount)", epsilon=0.1, adversary=None), GOAL)


def test_the_sample_never_exceeds_everybody(sample: Sample) -> None:
    everybody = max(sample.asked.bounds(0.1).upper, sample.asked.bounds_when_present(0.1).upper)
    as_it_is = sample.as_it_is()
    assert 0 < as_it_is.delta <= everybody * (1 + 1e-9)
    assert as_it_is.delta > 0.5 * everybody  # and those who are looked at are the exposed ones
    assert len(sample.people) < sample.asked.n_individuals


def test_more_noise_reveals_less(sample: Sample) -> None:
    tried = [sample.with_noise(scale) for scale in sample.noises()]
    assert [each.error for each in tried] == sorted(each.error for each in tried)
    assert [each.delta for each in tried] == sorted((each.delta for each in tried), reverse=True)
    # as cautious as a design, which needs at least what its most exposed people need
    noise = empriv.design_noise(sample.asked, epsilon=0.1, delta=0.05, granularity=sample.granularity)
    too_little = [each.error for each in tried if each.delta > 0.05]
    assert noise.expected_error > 0.5 * max(too_little)


def test_clipping_is_what_the_capped_query_gives(sample: Sample, rows: empriv.Databases) -> None:
    clipped = sample.clippings(rows, Run(progress=False))
    at = clipped.caps[0]
    truth = empriv.collect(rows, f"sum(least(amount, {at}))")
    np.testing.assert_allclose(clipped.published[0].q, truth.q)
    tried = clipped.tried(0)
    assert tried.error == pytest.approx(np.abs(truth.q - sample.asked.results.q).mean())
    assert clipped.tried(len(clipped.caps) - 1).error < tried.error


@pytest.mark.parametrize("to", [0.1, 0.5, 1.0, 20.0])
def test_rounded_queries_round(rows: empriv.Databases, to: float) -> None:
    exact, rounded = (empriv.collect(rows, text).q for text in ("avg(amount)", rounded_text("avg(amount)", to)))
    np.testing.assert_allclose(rounded, np.round(exact / to) * to, atol=1e-9)
    text = rounded_text("SELECT avg(amount) AS a FROM data WHERE amount > 3", to)
    assert text.endswith("WHERE amount > 3")


def test_several_numbers_are_refused(rows: empriv.Databases) -> None:
    several = empriv.audit(rows, ["sum(amount)", "count(*)"], adversary=None)
    with pytest.raises(empriv.EmprivError, match="one number"):
        Sample.of(several, GOAL)
