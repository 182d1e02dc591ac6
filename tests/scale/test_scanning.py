"""A scan gives the figures of an audit, whatever the stretches, and goes on where it was interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.collecting.sql import streaming
from empriv.errors import FileFormatError, InputError
from empriv.results import FloatArray, IntArray
from empriv.scale.scanning import scan
from empriv.scale.scans import Scan
from empriv.scale.stretches import parts_of

EPSILONS = (0.02, 0.1, 0.3)


def rows(label: str = "number") -> pd.DataFrame:
    """40 databases, 60 individuals of whom each is in about half, amounts of very different size."""
    rng = np.random.default_rng(5)
    n = 6_000
    who = rng.integers(0, 60, n)
    frame = pd.DataFrame(
        {
            "day": rng.integers(0, 40, n),
            "who": who,
            "x": rng.lognormal(0.0, 0.5, n) * (1 + 3 * (who == 7) + (who == 8)),
            "k": rng.integers(0, 50, n),
        }
    )
    frame = frame[(frame["who"] + frame["day"]) % 3 != 0]
    return frame if label == "number" else frame.assign(who="person " + frame["who"].astype(str))


@pytest.fixture
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several passes and stretches, which otherwise only large tables have."""
    monkeypatch.setattr(streaming.stream.__wrapped__, "__kwdefaults__", {"entries": 200, "rows": 900})


def agree(found: Scan, audit: empriv.Audit) -> None:
    grid = np.array(EPSILONS)
    np.testing.assert_allclose(found.delta(grid), audit.delta(grid), rtol=1e-13)
    np.testing.assert_allclose(found.total_risk(grid), audit.total_risk(grid), rtol=1e-13)
    np.testing.assert_allclose(found.epsilon(0.0), audit.epsilon(0.0), rtol=1e-13)
    assert found.n_individuals == audit.results.n_individuals
    for epsilon in EPSILONS:
        mine, whole = found.individuals(epsilon, top=5), audit.individuals(epsilon, top=5)
        for name, column in whole.items():
            if np.issubdtype(column.dtype, np.floating):
                np.testing.assert_allclose(mine[name], column, rtol=1e-13, err_msg=name)
            else:
                np.testing.assert_array_equal(mine[name], column, err_msg=name)
        assert found.exposed(epsilon) == np.count_nonzero(audit.delta_i(epsilon))
        histogram = found.histogram(epsilon)
        delta_i = audit.delta_i(epsilon)
        expected = [
            np.count_nonzero((delta_i > low) & (delta_i <= high))
            for low, high in zip(histogram["above"][1:], histogram["up_to"][1:], strict=True)
        ]
        assert histogram["individuals"][1:].tolist() == expected
        assert histogram["individuals"].sum() == len(delta_i)
    mine_b, whole_b = found.bounds(grid), audit.bounds(grid)
    np.testing.assert_allclose(mine_b.upper, whole_b.upper, rtol=1e-12)
    assert np.all(mine_b.lower <= whole_b.upper)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["number", "text"])
@pytest.mark.parametrize(
    "query",
    [
        "sum(x)", "SELECT avg(x) FROM data WHERE k < 40", "stddev_samp(x)", "max(x) - min(x)", "median(x)",
        "count(DISTINCT k) + sum(x)",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("small_stretches")
def test_scan_has_the_figures_of_the_audit(query: str, label: str) -> None:
    data = empriv.databases(rows(label), database="day", individual="who")
    agree(scan(data, query, epsilon=EPSILONS, top=5), empriv.audit(data, query, epsilon=EPSILONS))


@pytest.mark.usefixtures("small_stretches")
def test_a_scan_sees_last_digits_and_changed_spreads_as_the_audit_does() -> None:
    """Whole amounts, but for somebody's, and somebody without whom the sums vary less."""
    frame = rows()
    rng = np.random.default_rng(6)
    amount = rng.integers(0, 30, len(frame)) + 0.35 * (frame["who"] == 9)
    frame = frame.assign(x=amount + 400.0 * (frame["who"] == 12) * rng.integers(0, 2, len(frame)))
    data = empriv.databases(frame, database="day", individual="who")
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    pairs = audit.risk.pairs
    assert 9 in audit.results.individuals[[row for row, _ in pairs.sure_residues]]
    assert 12 in audit.results.individuals[pairs.ratios < 1]
    agree(scan(data, "sum(x)", epsilon=EPSILONS, top=5), audit)


@pytest.mark.slow
@pytest.mark.usefixtures("small_stretches")
def test_stretches_have_about_as_many_rows_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of 8,000 integers have most of the rows."""
    rng = np.random.default_rng(9)
    who = np.where(rng.random(4_000) < 0.9, rng.integers(0, 300, 4_000), rng.integers(0, 8_000, 4_000))
    frame = pd.DataFrame({"day": rng.integers(0, 40, 4_000), "who": who, "x": rng.lognormal(size=4_000)})
    data = empriv.databases(frame, database="day", individual="who")
    from empriv.scale import scanning

    entries: list[int] = []
    original = scanning.measure_stretch

    def counting(yardstick: object, stretch: empriv.Results) -> object:
        entries.append(len(stretch.entry_database))
        return original(yardstick, stretch)  # type: ignore[arg-type]

    monkeypatch.setattr(scanning, "measure_stretch", counting)
    found = scan(data, "avg(x)", epsilon=EPSILONS, bounds=False)
    audit = empriv.audit(data, "avg(x)", epsilon=EPSILONS)
    assert found.delta(0.1) == audit.delta(0.1)
    assert found.n_individuals == audit.results.n_individuals
    assert sum(entries) == len(audit.results.entry_database)
    assert max(entries) < 3 * 200


@pytest.mark.slow
def test_results_and_functions_are_scanned_too() -> None:
    data = empriv.databases(rows(), database="day", individual="who")
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    agree(scan(audit.results, epsilon=EPSILONS, top=5), audit)
    by_function = scan(data, lambda r: float(np.sum(r["k"])) / 100, epsilon=EPSILONS, top=5, jobs=1, progress=False)
    agree(by_function, empriv.audit(data, "sum(k) / 100", epsilon=EPSILONS))


@pytest.mark.slow
def test_a_query_that_fails_without_somebody_is_scanned_too(tmp_path: Path) -> None:
    frame = rows()
    frame = frame[(frame["day"] < 12) & (frame["who"] < 10)]
    least = int(frame.groupby("day")["k"].sum().min()) - 1
    query = f"CAST(sum(k) - {least} AS UINTEGER)"  # fails without whoever has more than 1 on that day
    data = empriv.databases(frame, database="day", individual="who")
    found = scan(data, query, epsilon=0.1, jobs=1, progress=False)
    audit = empriv.audit(data, query, epsilon=0.1, jobs=1, progress=False)
    assert found.delta(0.1) == audit.delta(0.1)
    assert found.tally.not_numbers.sum() == np.count_nonzero(audit.results.entry_outcomes) > 0
    with pytest.raises(InputError, match="it fails on some rows"):
        scan(data, query, epsilon=0.1, checkpoint=tmp_path / "kept")


GIVEN = {
    "calendar": "calendar",
    "previous answers": ("calendar", "previous:2"),
    "a quantity": "count(*)",
    "auto": "auto",
}


@pytest.mark.slow
@pytest.mark.parametrize("known", GIVEN)
@pytest.mark.usefixtures("small_stretches")
def test_a_scan_given_what_is_known_has_the_figures_of_the_audit(known: str, tmp_path: Path) -> None:
    frame = rows()
    if known == "auto":  # something to be known: a trend
        frame = frame.assign(x=frame["x"] * (1 + frame["day"] / 20))
    data = empriv.databases(frame, database="day", individual="who")
    found = scan(data, "sum(x)", epsilon=EPSILONS, top=5, known=GIVEN[known])
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS, known=GIVEN[known])
    assert audit.delta(0.1) != audit.risk.delta(0.1)
    agree(found, audit)
    assert found.to_json()["known"]["sentences"] == audit.to_json()["known"]["sentences"]
    assert audit.summary().notes[0] in str(found)
    assert "counts nothing as known" not in str(found)
    found.save(tmp_path / "given.empriv")
    agree(Scan.load(tmp_path / "given.empriv"), audit)


@pytest.mark.slow
@pytest.mark.usefixtures("small_stretches")
def test_logarithms_are_taken_only_if_nobody_leaves_a_result_without_one(tmp_path: Path) -> None:
    frame = rows().assign(x=lambda f: f["x"] * np.exp(f["day"] / 10))
    data = empriv.databases(frame, database="day", individual="who")
    taken = scan(data, "sum(x)", epsilon=EPSILONS, top=5, known="auto")
    agree(taken, empriv.audit(data, "sum(x)", epsilon=EPSILONS, known="auto"))
    assert taken.to_json()["known"]["logarithm"]
    alone = frame[(frame["day"] != 3) | (frame["who"] == 58)]  # on that day nothing is left without them
    data = empriv.databases(alone, database="day", individual="who")
    found = scan(data, "sum(x)", epsilon=EPSILONS, top=1, known="auto", checkpoint=tmp_path / "part")
    audit = empriv.audit(data, "coalesce(sum(x), 0)", epsilon=EPSILONS, known="auto")
    assert not found.to_json()["known"]["logarithm"]
    assert found.delta(0.1) > 0
    zero = scan(data, "coalesce(sum(x), 0)", epsilon=EPSILONS, top=1, known="auto")
    np.testing.assert_allclose(zero.delta(np.array(EPSILONS)), audit.delta(np.array(EPSILONS)), rtol=1e-13)
    zero.save(tmp_path / "zero.empriv")
    loaded = Scan.load(tmp_path / "zero.empriv")
    assert loaded.to_json()["known"]["logarithm"] == audit.to_json()["known"]["logarithm"] is False


@pytest.mark.slow
@pytest.mark.usefixtures("small_stretches")
def test_where_nothing_is_known_a_scan_by_auto_is_the_plain_one_as_the_audit_is() -> None:
    data = empriv.databases(rows(), database="day", individual="who")
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    assert audit.against is None
    agree(scan(data, "sum(x)", epsilon=EPSILONS, known="auto"), audit)
    unordered = replace(audit.results, ordered=False)
    agree(scan(unordered, epsilon=EPSILONS, known="auto"), empriv.audit(unordered, epsilon=EPSILONS))


@pytest.mark.slow
@pytest.mark.parametrize("known", ["nothing", "calendar"])
def test_a_scan_of_what_was_made_from_answers_is_capped_like_the_audit(
    known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("empriv.scale.scanning.parts_of", lambda results, _: parts_of(results, 200))
    data = empriv.databases(rows(), database="day", individual="who")
    asked = empriv.Query("sum(x)", post=lambda answer: round(answer, -1))
    audit = empriv.audit(data, asked, known=known)
    capped = scan(data, asked, epsilon=EPSILONS, known=known, top=20)
    agree(capped, audit)
    if known == "nothing":  # without the answers, figures are others: `agree` would notice
        alone = scan(replace(audit.results, made_from=None), epsilon=EPSILONS)
        assert np.all(alone.delta(np.array(EPSILONS)) > capped.delta(np.array(EPSILONS)))
        with pytest.raises(AssertionError):
            agree(alone, audit)
    codes = [finding.code for finding in capped.bounds(0.1).assumes]
    assert codes == [finding.code for finding in audit.bounds(0.1).assumes]
    np.testing.assert_array_equal(capped.riskiest.delta_i(0.1), capped.tally.riskiest_delta_i[:, 1])
    capped.save(tmp_path / "scan.empriv")
    again = Scan.load(tmp_path / "scan.empriv")
    agree(again, audit)
    assert again.bounds(0.1).assumes == capped.bounds(0.1).assumes
    np.testing.assert_allclose(again.riskiest.delta_i(0.1), capped.tally.riskiest_delta_i[:, 1], rtol=1e-9)


@pytest.mark.parametrize("known", ["buckets:count(*)", "own"])
def test_a_scan_refuses_what_it_cannot_measure_in_parts(known: str) -> None:
    data = empriv.databases(rows(), database="day", individual="who")
    with pytest.raises(InputError, match="in a scan, which measures people a few at a time"):
        scan(data, "sum(x)", known=known)


@pytest.mark.parametrize("known", ["nothing", "auto"])
def test_the_most_that_anybody_did_is_judged_as_in_the_audit(known: str) -> None:
    """Also of people who are not kept: only the largest move of all matters."""
    data = empriv.databases(rows(), database="day", individual="who")
    found = scan(data, "sum(x)", epsilon=0.1, top=5, known=known)
    audit = empriv.audit(data, "sum(x)", epsilon=0.1, known=known)
    for delta in (0.01, 0.3, 0.9):
        mine, whole = found.verdict(epsilon=0.1, delta=delta), audit.verdict(epsilon=0.1, delta=delta)
        assert mine == whole
        assert (mine.judged[-1].where, whole.judged[-1].where) == ("day", "day")
        np.testing.assert_allclose(mine.judged[-1].upper, whole.judged[-1].upper, rtol=1e-9)


def test_a_falsehood_is_not_agreed_to() -> None:
    data = empriv.databases(rows(), database="day", individual="who")
    with pytest.raises(AssertionError):
        agree(scan(data, "sum(x)", epsilon=EPSILONS, top=5), empriv.audit(data, "sum(x * 2 + k)", epsilon=EPSILONS))


@pytest.mark.slow
@pytest.mark.usefixtures("small_stretches")
def test_an_interrupted_scan_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = empriv.databases(rows(), database="day", individual="who")
    path = tmp_path / "kept"
    whole = scan(data, "sum(x)", epsilon=EPSILONS)
    from empriv.scale import scanning

    measured: list[int] = []
    original = scanning.measure_stretch

    def counting(yardstick: object, stretch: empriv.Results) -> object:
        measured.append(stretch.n_individuals)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return original(yardstick, stretch)  # type: ignore[arg-type]

    monkeypatch.setattr(scanning, "measure_stretch", counting)
    with pytest.raises(KeyboardInterrupt):
        scan(data, "sum(x)", epsilon=EPSILONS, checkpoint=path)
    again = scan(data, "sum(x)", epsilon=EPSILONS, checkpoint=path)
    assert sum(measured) - measured[2] == whole.n_individuals, "no stretch is measured twice but the one interrupted"
    np.testing.assert_array_equal(again.tally.kept, whole.tally.kept)
    with pytest.raises(InputError, match="of this very run, got one of another: the query"):
        scan(data, "sum(x) + 1", epsilon=EPSILONS, checkpoint=path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"PK\x03\x04 a checkpoint of an earlier version")
    with pytest.raises(FileFormatError, match="got another kind of file"):
        scan(data, "sum(x)", epsilon=EPSILONS, checkpoint=path)


def test_saved_and_loaded_it_says_the_same(tmp_path: Path) -> None:
    data = empriv.databases(rows("text"), database="day", individual="who")
    found = scan(data, "sum(x)", epsilon=EPSILONS, delta=(0.0, 0.01))
    path = tmp_path / "scan.empriv"
    found.save(path)
    loaded = Scan.load(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert loaded.epsilon(0.01) == found.epsilon(0.01)
    assert loaded.bounds(0.1).to_json() == found.bounds(0.1).to_json()
    assert loaded.individuals(0.1)["individual"].tolist() == found.individuals(0.1)["individual"].tolist()
    assert [check.sentence for check in loaded.checks] == [check.sentence for check in found.checks]
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(FileFormatError):
        Scan.load(path)


def test_another_density_is_refused(tmp_path: Path) -> None:
    data = empriv.databases(rows(), database="day", individual="who")
    path = tmp_path / "scan.empriv"
    scan(data, "sum(x)", epsilon=EPSILONS, density=empriv.Kde("laplace", 0.3)).save(path)
    assert Scan.load(path, density=empriv.Kde("laplace", 0.3)).delta(0.1) == Scan.load(path).delta(0.1)
    with pytest.raises(InputError, match="the one that the scan was made with"):
        Scan.load(path, density=empriv.Kde("laplace", 0.4))

    class Own:
        """A density of one's own, which a file cannot hold."""

        def __init__(self, bandwidth: float) -> None:
            self.recipe = empriv.Kde("laplace", bandwidth)

        def fit(self, points: FloatArray, databases: IntArray) -> object:
            return self.recipe.fit(points, databases)

    scan(data, "sum(x)", epsilon=EPSILONS, density=Own(0.3)).save(path)
    with pytest.raises(InputError, match="must be given"):
        Scan.load(path)
    assert Scan.load(path, density=Own(0.3)).n_individuals == 60
    with pytest.raises(InputError, match="the one that the scan was made with"):
        empriv.load(path, density=Own(30.0))


@pytest.mark.slow
def test_in_words_and_as_json_it_is_like_the_audit() -> None:
    frame = rows()
    frame = frame.assign(x=np.where(frame["day"] < 3, np.nan, frame["x"]))
    data = empriv.databases(frame, database="day", individual="who")
    query = "SELECT CASE WHEN isnan(sum(x)) THEN NULL ELSE sum(x) END FROM data"
    found, audit = scan(data, query, epsilon=EPSILONS), empriv.audit(data, query, epsilon=EPSILONS)
    mine, whole = found.to_json(), audit.to_json()
    for key in (
        "query",
        "source",
        "n_databases",
        "n_individuals",
        "figures",
        "not_numbers",
        "smallest_supported_delta",
    ):
        if key != "figures":  # of which total risk is a sum in another order
            assert mine[key] == whole[key], key
    for one, other in zip(mine["figures"], whole["figures"], strict=True):
        assert one == pytest.approx(other, rel=1e-12), "total risk is a sum in another order"
    said, words = found.summary(), audit.with_validity(audit.summary())
    assert said.asked == words.asked
    assert said.sentences == words.sentences
    assert said.warnings[0] == words.warnings[0], "results that are not numbers"
    assert said.notes[0] in words.notes
    assert said.notes[0] in str(found)
    assert said.notes[-1].startswith("A scan counts nothing as known unless known= says so")
    assert "3 null" in said.warnings[0]
    assert mine["histograms"][0]["individuals"] == found.histogram(EPSILONS[0])["individuals"].tolist()


@pytest.mark.slow
def test_verdict_and_checks_are_those_of_the_audit() -> None:
    data = empriv.databases(rows(), database="day", individual="who")
    found, audit = scan(data, "sum(x)", epsilon=EPSILONS), empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    for delta in (1e-6, 0.999):
        assert found.verdict(epsilon=0.1, delta=delta) == audit.verdict(epsilon=0.1, delta=delta)
    both = {check.code: check.severity for check in audit.checks}
    assert {check.code: check.severity for check in found.checks}.items() <= both.items()


def test_exact_leaks_are_counted_in_everyone() -> None:
    frame = rows()
    frame = frame.assign(x=np.where(frame["who"] == 3, 1.0, np.nan))
    data = empriv.databases(frame, database="day", individual="who")
    found = scan(data, "SELECT max(x) FROM data", epsilon=0.1, top=2)
    assert any(check.code == "exact-leak" and check.severity == "error" for check in found.checks)
    assert found.tally.not_numbers.sum() > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"top": 0}, "`top`"), ({"level": 1.0}, "`level`"), ({"epsilon": -1}, "`epsilon`"),
        ({"epsilon": []}, "`epsilon`"),
        ({"delta": 2}, "`delta`"), ({"results_table": "t"}, "`results_table`"), ({"component": "x"}, "`component`"),
        ({"density": 3}, "`density`"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(arguments: dict[str, object], words: str) -> None:
    data = empriv.databases(rows(), database="day", individual="who")
    with pytest.raises(InputError, match=words):
        scan(data, "sum(x)", **arguments)  # type: ignore[arg-type]


def test_only_what_was_asked_can_be_told() -> None:
    data = empriv.databases(rows(), database="day", individual="who")
    found = scan(data, "sum(x)", epsilon=0.1)
    with pytest.raises(InputError, match="the scan was made for"):
        found.delta(0.2)
    with pytest.raises(InputError, match="the scan was made for"):
        found.epsilon(0.5)
    with pytest.raises(
        InputError, match=r"one of the query's 2 components: .* all of its cells at once\. Hint: empriv\.audit"
    ):
        scan(data, "SELECT sum(x) AS a, sum(k) AS b FROM data")
    assert scan(data, "SELECT sum(x) AS a, sum(k) AS b FROM data", component="a", epsilon=0.1).delta(
        0.1
    ) == found.delta(0.1)
