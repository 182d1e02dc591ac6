"""How many publications fit: audit, page, chart, noise, noise page, ledger and its refusal say the same number."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import empriv
from empriv.cli.ledger import left_words
from empriv.report.audit_page import again_of, again_with
from empriv.report.charts.curves import publications_chart
from empriv.report.gather import gather

EPSILON, DELTA, DAYS = 1.0, 0.05, 120


def panel(law: str) -> empriv.Audit:
    """Three panels: takings of many, counts of people who come seldom, and averages with somebody heavy."""
    rng = np.random.default_rng(len(law))
    days, who, amount = [], [], []
    for number in range(DAYS):
        day = datetime.date(2025, 1, 1) + datetime.timedelta(days=number)
        for person in range(60):
            if rng.random() < (0.9 if law == "takings" else 0.5):
                days.append(day)
                who.append(f"p{person:02d}")
                amount.append(round(float(rng.exponential(20.0)) * (4.0 if law == "heavy" and person == 0 else 1.0), 2))
    data = empriv.databases(pa.table({"day": days, "who": who, "amount": amount}), database="day", individual="who")
    query = {"takings": "sum(amount)", "seldom": "count(*)", "heavy": "avg(amount)"}[law]
    return empriv.audit(data, query, epsilon=EPSILON, known="nothing")


def number_in(sentence: str) -> int:
    found = re.search(
        r"([\d,]+) publications? (?:is|are) within|(one) publication is within|(not even one)", sentence, re.I
    )
    assert found is not None, sentence
    return int(found[1].replace(",", "")) if found[1] else 1 if found[2] else 0


@pytest.mark.slow
@pytest.mark.parametrize("law", ["takings", "seldom", "heavy"])
def test_all_say_the_same_number(law: str, tmp_path: Path) -> None:
    audit = panel(law)
    # as it is: audit, page, chart, and the audits of so many publications
    often = audit.how_often(epsilon=EPSILON, delta=DELTA)
    made = gather(audit, targets=[(EPSILON, DELTA)])
    chart = publications_chart(made)
    assert chart is not None
    said = again_of(made, chart)
    assert number_in(said["said"][0]) == often.by_bound
    told = audit.publications(EPSILON)
    drawn = dict(zip(chart.data["publications"], chart.data["upper figure"], strict=True))
    for count in (1, 2, 52):
        upper = told.upper_delta(count)
        assert drawn[count] == pytest.approx(upper, rel=1e-5)  # as many digits as a chart has
        verdict = audit.repeated(count).verdict(epsilon=EPSILON, delta=DELTA)
        assert max(target.upper for target in verdict.judged) == upper
        assert verdict != "pass" or count <= often.by_bound
    # with noise: noise, its page, and the ledger
    noise = empriv.design_noise(audit, epsilon=EPSILON, delta=DELTA, times=6, granularity=0.25)
    fits = noise.how_often().by_bound
    assert 6 <= fits < 40
    with_noise = again_with(noise)
    assert with_noise is not None
    assert number_in(with_noise["said"][0]) == fits
    policy = empriv.Policy(epsilon=EPSILON, delta=DELTA, window=1000)
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=policy)
    results = audit.results
    most = np.zeros(DAYS)
    np.maximum.at(most, results.entry_database, np.abs(results.q[results.entry_database] - results.entry_q))
    hidden = np.flatnonzero(most <= noise.cover)

    def release(place: int) -> None:
        audit.release(float(results.q[place]), noise=noise, ledger=ledger, database=results.databases[place])

    for number, place in enumerate(hidden[:fits].tolist(), 1):
        release(place)
        left = ledger.left()
        assert (left.releases, left.more, left.in_one) == (number, fits - number, fits - number)
        assert left.spent.delta == pytest.approx(noise.publications().upper.delta(number, EPSILON), rel=1e-12)
        assert f"{fits - number:,} more like the last" in left_words(left)[2]
    with pytest.raises(empriv.RefusalError, match="would make delta") as refused:
        release(int(hidden[fits]))
    assert f"{noise.publications().upper_delta(fits + 1):.4g} at epsilon" in str(refused.value)


@pytest.mark.slow
def test_all_say_the_same_number_of_the_flights(tmp_path: Path) -> None:
    data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    audit = empriv.audit(data, "avg(delay)", epsilon=EPSILON)  # given the calendar
    made = gather(audit, targets=[(EPSILON, DELTA)])
    said = again_of(made, publications_chart(made))
    assert said is not None
    assert number_in(said["said"][0]) == audit.how_often(epsilon=EPSILON, delta=DELTA).by_bound
    noise = empriv.design_noise(audit, epsilon=EPSILON, delta=DELTA, times=12, granularity=0.01)
    fits = noise.how_often().by_bound
    with_noise = again_with(noise)
    assert with_noise is not None
    policy = empriv.Policy(epsilon=EPSILON, delta=DELTA, window=1000)
    assert number_in(with_noise["said"][0]) == fits >= 12
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=policy)
    for number, place in enumerate((100, 200), 1):
        answer, label = float(audit.results.q[place]), audit.results.databases[place]
        audit.release(answer, noise=noise, ledger=ledger, database=label)
        assert (ledger.left().releases, ledger.left().more) == (number, fits - number)
