"""By default an audit counts as known what everybody knows; where it cannot, it says so and gives the plain figures."""

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import empriv
from empriv.auditing.knowledge import known_to_readers
from empriv.cli.main import main
from empriv.measuring.given.calendar import times_of
from empriv.validate.checks import checks

EPSILON = 0.1


def days(n: int) -> np.ndarray:
    return np.array([f"{datetime.date(2024, 1, 1) + datetime.timedelta(days=day)}" for day in range(n)])


def series(n: int = 120, *, trend: float = 3.0, labels: Any = None, seed: int = 0) -> empriv.Results:
    """Results with a trend of ``trend`` standard deviations from first to last, and two people."""
    rng = np.random.default_rng(seed)
    q = 100.0 + rng.normal(0.0, 1.0, n) + trend * np.linspace(-0.5, 0.5, n)
    return empriv.Results.from_arrays(
        q, np.stack((q - 0.3, q - rng.uniform(0.0, 0.2, n))), databases=days(n) if labels is None else labels
    )


def why(audit: empriv.Audit) -> str:
    assert audit.against is None
    assert audit.nothing_known is not None
    assert audit.nothing_known.sentence in str(audit)
    return str(audit.nothing_known.numbers["why"])


@pytest.mark.slow
def test_a_trend_counts_as_known_and_the_papers_figure_is_beside_it() -> None:
    audit = empriv.audit(series(), epsilon=EPSILON)
    plain = empriv.audit(series(), epsilon=EPSILON, known="nothing")
    assert audit.against is not None
    assert audit.delta(EPSILON) > 1.2 * plain.delta(EPSILON)
    assert audit.risk.delta(EPSILON) == plain.delta(EPSILON)
    said = str(audit)
    assert "Counted as known: the trend" in said
    assert "Ignoring what is known, delta would be " in said
    assert "was asked of 120 databases" in said
    by_code = {check.code: check.severity for check in plain.checks}
    assert by_code["iid"] == "error"
    # databases that are numbered have an order, but no calendar
    shops = empriv.audit(series(labels=np.arange(120)), epsilon=EPSILON)
    assert known_to_readers(shops.against) == ("the trend",)
    assert {check.code: check.severity for check in audit.checks}["iid"] == "info"


def test_a_still_series_gives_the_papers_figures() -> None:
    results = series(trend=0.0)
    audit = empriv.audit(results, epsilon=EPSILON)
    assert why(audit) == "silent"
    assert np.array_equal(audit.delta_i(EPSILON), empriv.measure(results).delta_i(EPSILON))


def test_nothing_is_the_paper() -> None:
    audit = empriv.audit(series(), epsilon=EPSILON, known="nothing")
    assert audit.against is None
    assert audit.nothing_known is None


@pytest.mark.parametrize("labels", [[f"store {k}" for k in range(120)], [f"{k}-{k}" for k in range(120)]])
def test_labels_that_are_neither_dates_nor_numbers_have_no_order(labels: list[str]) -> None:
    audit = empriv.audit(series(labels=labels), epsilon=EPSILON)
    assert why(audit) == "no-order"
    assert "count(*)" in str(audit)
    (tested,) = [check for check in audit.checks if check.code == "iid"]
    assert tested.severity == "info"
    assert "no order" in tested.sentence
    assert "p" not in tested.numbers


def test_unordered_says_that_there_is_none(tmp_path: Path) -> None:
    audit = empriv.audit(series(), epsilon=EPSILON, known="unordered")
    assert why(audit) == "no-order"
    assert not [check for check in audit.checks if check.code == "iid" and check.severity == "error"]
    audit.save(tmp_path / "audit.empriv")
    loaded = empriv.load(tmp_path / "audit.empriv")
    assert isinstance(loaded, empriv.Audit)
    assert not loaded.results.ordered
    assert str(loaded) == str(audit)
    with pytest.raises(empriv.InputError, match="must not be calendar where the databases are said to have no order"):
        empriv.audit(series(), known=("unordered", "calendar"))


def test_the_order_is_that_of_the_labels() -> None:
    results = series()
    mixed = results.on_databases(np.random.default_rng(1).permutation(results.n_databases))
    by_code = {check.code: check for check in checks(empriv.measure(mixed), EPSILON)}
    assert by_code["iid"].severity == "error"
    assert empriv.audit(mixed).delta(EPSILON) == pytest.approx(empriv.audit(results).delta(EPSILON), rel=1e-9)


def test_files_that_are_called_by_their_date_have_an_order() -> None:
    times = times_of(np.array([f"sales-{day}.csv" for day in days(40)]))
    assert times is not None
    assert times.unit == "days"
    assert times_of(np.array([f"store {k}.csv" for k in range(40)])) is None


def test_what_cannot_be_measured_falls_back_to_the_plain_figures() -> None:
    assert why(empriv.audit(series(21))) == "few"
    assert empriv.audit(series(22, trend=8.0)).against is not None
    drawn = np.random.default_rng(0).normal(100.0, 1.0, (60, 4))
    assert why(empriv.audit(empriv.Results.from_arrays(drawn, (drawn - 0.1)[None]))) == "draws"
    still = np.full(60, 5.0)
    assert why(empriv.audit(empriv.Results.from_arrays(still, (still - 1.0)[None]))) == "constant"
    results = series()
    assert why(empriv.audit(results, density=empriv.Ecdf())) == "density"
    both = empriv.Results.stack({"a": results, "b": series(seed=1)})
    assert empriv.audit(both).against is not None  # several numbers are a table, of which the same is known
    assert empriv.audit(both, component="a").against is not None


def test_results_that_are_not_numbers_do_no_harm() -> None:
    results = series(60, trend=6.0)
    outcomes, q = results.outcomes.copy(), results.q.copy()
    outcomes[[3, 50]], q[[3, 50]] = empriv.Outcome.NULL, np.nan
    entries, entry_q = results.entry_outcomes.copy(), results.entry_q.copy()
    gone = np.isin(results.entry_database, [3, 50])
    entries[gone], entry_q[gone] = empriv.Outcome.NULL, np.nan
    holes = empriv.Results(
        q, outcomes, results.databases, results.individuals, results.starts, results.entry_database, entry_q, entries
    )
    audit = empriv.audit(holes, epsilon=EPSILON)
    assert 0 < audit.delta(EPSILON) < 1
    assert "not a number" in str(audit)


def test_a_ledger_goes_with_the_default(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {
        "day": np.repeat(days(40), 5), "who": np.tile(np.arange(5), 40), "amount": rng.normal(10.0, 2.0, 200),
    }  # fmt: skip
    import pyarrow as pa

    data = empriv.databases(pa.table(rows), database="day", individual="who")
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    assert why(empriv.audit(data, "avg(amount)", ledger=ledger)) == "ledger"
    with pytest.raises(empriv.InputError, match="`known` must not be given with `ledger`"):
        empriv.audit(data, "avg(amount)", ledger=ledger, known="calendar")


@pytest.mark.slow
def test_random_databases_have_no_order() -> None:
    import pyarrow as pa

    rng = np.random.default_rng(0)
    table = pa.table({"who": np.arange(200), "amount": rng.normal(10.0, 2.0, 200)})
    data = empriv.subsamples(table, individual="who", count=40, fraction=0.5)
    assert why(empriv.audit(data, "avg(amount)")) == "no-order"


@pytest.mark.slow
def test_noise_is_designed_for_what_is_left_and_can_be_released(tmp_path: Path) -> None:
    pytest.importorskip("opendp", reason="releasing needs the extra `release`: pip install empriv[release]")
    audit = empriv.audit(series(), epsilon=EPSILON)
    given = empriv.design_noise(audit, epsilon=EPSILON, delta=0.01, granularity=2.0**-6)
    plain = empriv.design_noise(audit.risk, epsilon=EPSILON, delta=0.01, granularity=2.0**-6)
    assert given.expected_error > plain.expected_error
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    with pytest.raises(empriv.InputError, match="got noise for somebody who knows nothing"):
        audit.release(100.0, noise=plain, ledger=ledger, database=audit.results.databases[0])
    assert len(ledger.entries()) == 1  # that it was created
    released = audit.release(100.0, noise=given, ledger=ledger, database=audit.results.databases[0])
    assert abs(released.answer - 100.0) < 1000 * given.expected_error


@pytest.mark.slow
def test_the_command_line_counts_it_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = series(60)
    rows = [f"{day},{who},{0.1 * q}" for day, q in zip(results.databases, results.q, strict=True) for who in range(10)]
    Path("sales.csv").write_text("day,who,amount\n" + "\n".join(rows))
    asked = ["audit", "sales.csv", "--database", "day", "--individual", "who", "--query", "sum(amount)"]

    def run(*more: str) -> dict[str, Any]:
        done = CliRunner().invoke(main, [*asked, *more, "--epsilon", "0.1", "--json", "-"])
        assert done.exit_code == 0, done.output
        return dict(json.loads(done.output))

    known = run()
    assert known["known"]["terms"] == ["trend", "weekday"]
    for more in (("--known", "nothing"), ("--known", "unordered")):
        assert run(*more)["known"] is None
    assert run("--known", "nothing")["nothing_known"] is None
    assert run("--known", "unordered")["nothing_known"]["why"] == "no-order"
    Path("audit.toml").write_text('known = "nothing"\n')
    assert run("--config", "audit.toml")["known"] is None
    wrong = CliRunner().invoke(main, [*asked, "--known", "nothing, calendar"])
    assert wrong.exit_code == 2
    assert "`known` must be nothing alone" in " ".join(wrong.output.split())
