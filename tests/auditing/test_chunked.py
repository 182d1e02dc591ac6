"""People measured in chunks: the figures of an audit in memory, whatever the chunks, and resumed where it ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.auditing import memory
from empriv.auditing.summary import with_validity
from empriv.collecting import deletion
from empriv.collecting.sql import execute
from empriv.errors import FileFormatError, InputError, QueryError
from empriv.results import FloatArray, IntArray

pytestmark = pytest.mark.slow

EPSILONS = (0.02, 0.1, 0.3)


def in_chunks(data: Any, query: Any = None, **options: Any) -> empriv.Audit:
    """Measured in chunks; as in the paper unless something is known."""
    return empriv.audit(data, query, in_chunks=True, **{"known": "nothing", **options})


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


@pytest.fixture(scope="module")
def data() -> empriv.Databases:
    return empriv.databases(rows(), database="day", individual="who")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several passes and chunks, which otherwise only large tables have."""
    monkeypatch.setattr(execute.stream.__wrapped__, "__kwdefaults__", {"entries": 200, "rows": 900})


def agree(found: empriv.Audit, audit: empriv.Audit) -> None:
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
        histogram = found.risk.histogram(epsilon)
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


@pytest.mark.parametrize(
    ("query", "label"),
    [
        ("sum(x)", "text"), ("SELECT avg(x) FROM data WHERE k < 40", "number"), ("stddev_samp(x)", "number"),
        ("max(x) - min(x)", "text"), ("median(x)", "number"), ("count(DISTINCT k) + sum(x)", "number"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("small_chunks")
def test_it_has_the_figures_of_the_audit(query: str, label: str) -> None:
    data = empriv.databases(rows(label), database="day", individual="who")
    agree(in_chunks(data, query, epsilon=EPSILONS, keep=5), empriv.audit(data, query, epsilon=EPSILONS))


@pytest.mark.usefixtures("small_chunks")
def test_audits_in_chunks_sees_last_digits_and_changed_spreads_as_the_audit_does() -> None:
    """Whole amounts, but for somebody's, and somebody without whom the sums vary less."""
    frame = rows()
    rng = np.random.default_rng(6)
    amount = rng.integers(0, 30, len(frame)) + 0.35 * (frame["who"] == 9)
    frame = frame.assign(x=amount + 400.0 * (frame["who"] == 12) * rng.integers(0, 2, len(frame)))
    data = empriv.databases(frame, database="day", individual="who")
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    pairs = audit.risk.pairs
    assert 9 in audit.results.individuals[[row for row, _ in pairs.digit_steps]]
    assert 12 in audit.results.individuals[pairs.ratios < 1]
    agree(in_chunks(data, "sum(x)", epsilon=EPSILONS, keep=5), audit)


@pytest.mark.usefixtures("small_chunks")
def test_chunks_have_about_as_many_rows_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of 8,000 integers have most of the rows."""
    rng = np.random.default_rng(9)
    who = np.where(rng.random(4_000) < 0.9, rng.integers(0, 300, 4_000), rng.integers(0, 8_000, 4_000))
    frame = pd.DataFrame({"day": rng.integers(0, 40, 4_000), "who": who, "x": rng.lognormal(size=4_000)})
    data = empriv.databases(frame, database="day", individual="who")
    from empriv.auditing import chunked

    entries: list[int] = []
    original = chunked.measure_chunk

    def counting(model: object, chunk: empriv.Results) -> object:
        entries.append(len(chunk.entry_database))
        return original(model, chunk)  # type: ignore[arg-type]

    monkeypatch.setattr(chunked, "measure_chunk", counting)
    found = in_chunks(data, "avg(x)", epsilon=EPSILONS)
    audit = empriv.audit(data, "avg(x)", epsilon=EPSILONS)
    assert found.delta(0.1) == audit.delta(0.1)
    assert found.n_individuals == audit.results.n_individuals
    assert sum(entries) == len(audit.results.entry_database)
    assert max(entries) < 3 * 200


def test_results_are_measured_in_chunks_too(data: empriv.Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("empriv.auditing.chunked.ENTRIES_AT_ONCE", 200)
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS, known="calendar")
    agree(in_chunks(audit.results, epsilon=EPSILONS, keep=5, known="calendar"), audit)


def test_a_query_that_fails_without_somebody_is_measured_in_memory_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = rows()
    frame = frame[(frame["day"] < 12) & (frame["who"] < 10)]
    least = int(frame.groupby("day")["k"].sum().min()) - 1
    query = f"CAST(sum(k) - {least} AS UINTEGER)"  # fails without whoever has more than 1 on that day
    data = empriv.databases(frame, database="day", individual="who")
    with pytest.raises(InputError, match="it fails on some rows"):
        in_chunks(data, query, epsilon=0.1)
    monkeypatch.setattr("empriv.auditing.make_audit.goes_in_chunks", lambda *_: True)  # as where memory is short
    found = empriv.audit(data, query, epsilon=0.1, known="nothing", jobs=1, progress=False)
    assert not found.in_chunks
    assert np.count_nonzero(found.results.entry_outcomes) > 0


GIVEN = {
    "calendar": "calendar",
    "previous answers": ("calendar", "previous:2"),
    "a quantity": "count(*)",
    "auto": "auto",
}


@pytest.mark.parametrize("known", GIVEN)
@pytest.mark.usefixtures("small_chunks")
def test_audits_in_chunks_given_what_is_known_has_the_figures_of_the_audit(known: str, tmp_path: Path) -> None:
    frame = rows()
    if known == "auto":  # something to be known: a trend
        frame = frame.assign(x=frame["x"] * (1 + frame["day"] / 20))
    data = empriv.databases(frame, database="day", individual="who")
    found = in_chunks(data, "sum(x)", epsilon=EPSILONS, keep=5, known=GIVEN[known])
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS, known=GIVEN[known])
    assert audit.delta(0.1) != audit.risk.delta(0.1)
    agree(found, audit)
    assert found.to_json()["known"]["sentences"] == audit.to_json()["known"]["sentences"]
    assert audit.summary().notes[0] in str(found)
    assert "counts nothing as known" not in str(found)
    found.save(tmp_path / "given.empriv")
    agree(empriv.load(tmp_path / "given.empriv"), audit)


@pytest.mark.usefixtures("small_chunks")
def test_logarithms_are_taken_only_if_nobody_leaves_a_result_without_one(tmp_path: Path) -> None:
    frame = rows().assign(x=lambda f: f["x"] * np.exp(f["day"] / 10))
    data = empriv.databases(frame, database="day", individual="who")
    taken = in_chunks(data, "sum(x)", epsilon=EPSILONS, keep=5, known="auto")
    agree(taken, empriv.audit(data, "sum(x)", epsilon=EPSILONS, known="auto"))
    assert taken.to_json()["known"]["logarithm"]
    alone = frame[(frame["day"] != 3) | (frame["who"] == 58)]  # on that day nothing is left without them
    data = empriv.databases(alone, database="day", individual="who")
    found = in_chunks(data, "sum(x)", epsilon=EPSILONS, keep=1, known="auto", checkpoint=tmp_path / "part")
    audit = empriv.audit(data, "coalesce(sum(x), 0)", epsilon=EPSILONS, known="auto")
    assert not found.to_json()["known"]["logarithm"]
    assert found.delta(0.1) > 0
    zero = in_chunks(data, "coalesce(sum(x), 0)", epsilon=EPSILONS, keep=1, known="auto")
    np.testing.assert_allclose(zero.delta(np.array(EPSILONS)), audit.delta(np.array(EPSILONS)), rtol=1e-13)
    zero.save(tmp_path / "zero.empriv")
    loaded = empriv.load(tmp_path / "zero.empriv")
    assert loaded.to_json()["known"]["logarithm"] == audit.to_json()["known"]["logarithm"] is False


@pytest.mark.usefixtures("small_chunks")
def test_where_nothing_is_known_audits_in_chunks_by_auto_is_the_plain_one_as_the_audit_is(
    data: empriv.Databases,
) -> None:
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    assert audit.against is None
    agree(in_chunks(data, "sum(x)", epsilon=EPSILONS, known="auto"), audit)
    unordered = replace(audit.results, ordered=False)
    agree(in_chunks(unordered, epsilon=EPSILONS, known="auto"), empriv.audit(unordered, epsilon=EPSILONS))


@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        ("sum(x)", {"known": "buckets:count(*)"}, "`known` is buckets, which needs everybody at once"),
        ("sum(x)", {"known": "own"}, "`known` is own contribution, which needs everybody at once"),
        ("SELECT k, sum(x) FROM data GROUP BY k", {}, "name one as `component`"),
        (["sum(x)", "avg(x)"], {}, "name one as `component`"),
        (len, {}, "run once per individual"),
        ("sum(x)", {"post": round}, "run once per individual"),
        ("sum(x)", {"ledger": True}, "earlier releases are measured together"),
        ("SELECT sum(a.x) FROM (SELECT * FROM data LIMIT 9) a", {}, "the query is run once per individual, because"),
        ("sum(x)", {"checkpoint": "kept", "in_chunks": False}, "`checkpoint` must not be given here"),
        ("sum(x)", {"results_table": "t"}, "`results_table` must be None without a Spark engine"),
        ("sum(x)", {"keep": 0}, "`keep`"),
        ("sum(x)", {"epsilon": []}, "`epsilon`"),
        ("sum(x)", {"deltas": 2}, "`deltas`"),
        ("sum(x)", {"component": "x"}, "`component`"),
    ],
)
def test_what_cannot_be_measured_in_chunks_is_refused(
    data: empriv.Databases, query: Any, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    if "ledger" in options:
        options = {"ledger": empriv.Ledger(tmp_path / "ledger")}
    asked = {"in_chunks": True, "known": "auto" if "ledger" in options else "nothing", **options}
    with pytest.raises(InputError) as raised:
        empriv.audit(data, query, **asked)
    assert words in str(raised.value)
    assert "in chunks" not in words or "Hint: without" in str(raised.value)


@pytest.mark.parametrize("query", ["sum(x)", "max(x)"])
@pytest.mark.parametrize("known", ["nothing", "auto"])
@pytest.mark.usefixtures("small_chunks")
def test_verdict_cover_and_who_moved_the_answer_are_those_of_the_audit(
    data: empriv.Databases, known: str, query: str, tmp_path: Path
) -> None:
    """Also the counts of people who are not kept."""
    found = in_chunks(data, query, epsilon=0.1, keep=5, known=known)
    found.save(tmp_path / "saved")
    audit = empriv.audit(data, query, epsilon=0.1, known=known)
    for one in (found, empriv.load(tmp_path / "saved")):
        assert isinstance(one, empriv.Audit)
        severities = {check.code: check.severity for check in audit.checks}
        assert {check.code: check.severity for check in one.checks}.items() <= severities.items()
        for delta in (1e-6, 0.01, 0.3, 0.9, 0.999):
            mine, whole = one.verdict(epsilon=0.1, delta=delta), audit.verdict(epsilon=0.1, delta=delta)
            assert mine == whole
            assert mine.day is not None
            assert whole.day is not None
            for name, figure in vars(whole.day).items():
                close = pytest.approx(figure, rel=1e-9) if isinstance(figure, float) else figure
                assert getattr(mine.day, name) == close, name
            assert one.cover(0.1, delta) == pytest.approx(audit.cover(0.1, delta), rel=1e-9)
        listed, all_listed = one.moved(top=5, show_ids=True), audit.moved(top=5, show_ids=True)
        assert listed.columns() == all_listed.columns()
        assert listed.share_beyond(0.5) == all_listed.share_beyond(0.5)
        with pytest.raises(InputError, match="only the most exposed are kept"):
            one.moved(top=None)


def test_a_falsehood_is_not_agreed_to(data: empriv.Databases) -> None:
    with pytest.raises(AssertionError):
        agree(
            in_chunks(data, "sum(x)", epsilon=EPSILONS, keep=5), empriv.audit(data, "sum(x * 2 + k)", epsilon=EPSILONS)
        )


@pytest.mark.usefixtures("small_chunks")
def test_an_interrupted_audit_goes_on(data: empriv.Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept"
    whole = in_chunks(data, "sum(x)", epsilon=EPSILONS)
    from empriv.auditing import chunked

    measured: list[int] = []
    original = chunked.measure_chunk

    def counting(model: object, chunk: empriv.Results) -> object:
        measured.append(chunk.n_individuals)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return original(model, chunk)  # type: ignore[arg-type]

    monkeypatch.setattr(chunked, "measure_chunk", counting)
    with pytest.raises(KeyboardInterrupt):
        in_chunks(data, "sum(x)", epsilon=EPSILONS, checkpoint=path)
    again = in_chunks(data, "sum(x)", epsilon=EPSILONS, checkpoint=path)
    assert sum(measured) - measured[2] == whole.n_individuals, "no stretch is measured twice but the one interrupted"
    np.testing.assert_array_equal(again.risk.totals.log_safe, whole.risk.totals.log_safe)
    with pytest.raises(InputError, match="of this very run, got one of another: the query"):
        in_chunks(data, "sum(x) + 1", epsilon=EPSILONS, checkpoint=path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"PK\x03\x04 a checkpoint of an earlier version")
    with pytest.raises(FileFormatError, match="got another kind of file"):
        in_chunks(data, "sum(x)", epsilon=EPSILONS, checkpoint=path)


def test_saved_and_loaded_it_says_the_same(tmp_path: Path) -> None:
    data = empriv.databases(rows("text"), database="day", individual="who")
    found = in_chunks(data, "sum(x)", epsilon=EPSILONS, deltas=(0.0, 0.01))
    path = tmp_path / "audit.empriv"
    found.save(path)
    loaded = empriv.load(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert loaded.epsilon(0.01) == found.epsilon(0.01)
    assert loaded.bounds(0.1).to_json() == found.bounds(0.1).to_json()
    assert loaded.individuals(0.1)["individual"].tolist() == found.individuals(0.1)["individual"].tolist()
    assert [check.sentence for check in loaded.checks] == [check.sentence for check in found.checks]
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(FileFormatError):
        empriv.load(path)


def test_another_density_is_refused(data: empriv.Databases, tmp_path: Path) -> None:
    path = tmp_path / "audit.empriv"
    in_chunks(data, "sum(x)", epsilon=EPSILONS, density=empriv.Kde("laplace", 0.3)).save(path)
    assert empriv.load(path, density=empriv.Kde("laplace", 0.3)).delta(0.1) == empriv.load(path).delta(0.1)
    with pytest.raises(InputError, match="the one that people were measured with in chunks"):
        empriv.load(path, density=empriv.Kde("laplace", 0.4))

    class Own:
        """A density of one's own, which a file cannot hold."""

        def __init__(self, bandwidth: float) -> None:
            self.recipe = empriv.Kde("laplace", bandwidth)

        def fit(self, points: FloatArray, databases: IntArray) -> object:
            return self.recipe.fit(points, databases)

    in_chunks(data, "sum(x)", epsilon=EPSILONS, density=Own(0.3)).save(path)
    with pytest.raises(InputError, match="must be given"):
        empriv.load(path)
    assert empriv.load(path, density=Own(0.3)).n_individuals == 60
    with pytest.raises(InputError, match="the one that people were measured with in chunks"):
        empriv.load(path, density=Own(30.0))


def test_in_words_and_as_json_it_is_like_the_audit() -> None:
    frame = rows()
    frame = frame.assign(x=np.where(frame["day"] < 3, np.nan, frame["x"]))
    data = empriv.databases(frame, database="day", individual="who")
    query = "SELECT CASE WHEN isnan(sum(x)) THEN NULL ELSE sum(x) END FROM data"
    found = in_chunks(data, query, epsilon=EPSILONS, keep=5)
    audit = empriv.audit(data, query, epsilon=EPSILONS, known="nothing")
    mine, whole = found.to_json(), audit.to_json()
    for key in ("query", "source", "n_databases", "n_individuals", "not_numbers", "smallest_supported_delta"):
        assert mine[key] == whole[key], key
    for one, other in zip(mine["figures"], whole["figures"], strict=True):
        assert one == pytest.approx(other, rel=1e-12), "total risk is a sum in another order"
    said, words = (with_validity(one, one.summary()) for one in (found, audit))
    kept = found.results.n_individuals
    assert said.asked == f"{words.asked[:-1]}, in chunks: the {kept} most exposed are kept, others totalled."
    assert said.sentences == words.sentences
    assert said.warnings[0] == words.warnings[0], "results that are not numbers"
    (own,) = set(said.notes) - set(words.notes)
    assert "all but the most exposed were totalled" in own
    assert set(words.notes) <= set(said.notes)
    assert "3 null" in said.warnings[0]
    chunks = mine["chunks"]
    assert chunks["histograms"][0]["individuals"] == found.risk.histogram(EPSILONS[0])["individuals"].tolist()
    assert (chunks["kept"], chunks["epsilons"], whole["chunks"]) == (kept, list(EPSILONS), None)
    assert chunks["epsilon_at"] == [{"delta": 0.0, "epsilon": mine["epsilon_at_delta_0"]}]


def test_exact_leaks_are_counted_in_everyone() -> None:
    frame = rows()
    frame = frame.assign(x=np.where(frame["who"] == 3, 1.0, np.nan))
    data = empriv.databases(frame, database="day", individual="who")
    found = in_chunks(data, "SELECT max(x) FROM data", epsilon=0.1, keep=2)
    assert any(check.code == "exact-leak" and check.severity == "error" for check in found.checks)
    assert found.risk.totals.not_numbers.sum() > 0


def test_only_what_was_asked_can_be_told(data: empriv.Databases) -> None:
    found = in_chunks(data, "sum(x)", epsilon=0.1)
    with pytest.raises(InputError, match="one that people were measured at"):
        found.delta(0.2)
    with pytest.raises(InputError, match="one that people were measured at"):
        found.epsilon(0.5)
    one = in_chunks(data, "SELECT sum(x) AS a, sum(k) AS b FROM data", component="a", epsilon=0.1)
    assert one.delta(0.1) == found.delta(0.1)
    assert in_chunks(data, "sum(x)", epsilon=0.1, target="delta <= 0.5 at 0.3").delta(0.3) > 0


def test_what_needs_everybodys_results_is_refused(data: empriv.Databases, tmp_path: Path) -> None:
    found = in_chunks(data, "sum(x)", epsilon=0.1, keep=5)
    whole = empriv.audit(data, "sum(x)", epsilon=0.1, known="nothing")
    noise = empriv.design_noise(whole, epsilon=1.0, delta=0.5)
    ledger = empriv.Ledger(tmp_path / "ledger")
    for ask in (
        lambda: found.delta_i(0.1),
        lambda: found.repeated(5),
        lambda: found.how_often(epsilon=0.1, delta=0.1),
        lambda: found.updated(rows()),
        lambda: found.anytime_bounds(0.1),
        lambda: found.release(1.0, noise=noise, ledger=ledger, database=1),
        lambda: empriv.design_noise(found, epsilon=1.0, delta=0.5),
        lambda: empriv.advise(found, epsilon=0.1, delta=0.1),
        lambda: empriv.compare({"a": found, "b": whole}),
        lambda: found.verdict(epsilon=0.1, delta=0.1, noise=1.0),
    ):
        with pytest.raises(InputError, match=r"only the most exposed are kept|must be 0 for") as raised:
            ask()
        assert "in_chunks=False" in str(raised.value) or "noise" in str(raised.value)
    assert not found.takes_noise
    assert found.repeated(1) is not None
    assert found.components == {}
    with pytest.raises(InputError, match=r"`level` must be 0\.95"):
        found.bounds(0.1, level=0.9)


def test_results_that_do_not_fit_are_measured_in_chunks(
    data: empriv.Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the memory that is free, and by the limit that was given; unless all are wanted in memory."""

    def ask(**options: Any) -> empriv.Audit:
        return empriv.audit(data, options.pop("query", "sum(x)"), epsilon=0.1, known="nothing", **options)

    results = len(ask().results.entry_database)
    assert not ask(memory_limit="200MB").in_chunks
    monkeypatch.setattr(memory, "_BYTES_PER_ENTRY", int(0.9 * 200e6 / results))
    assert not ask(memory_limit="200MB").in_chunks
    monkeypatch.setattr(memory, "_BYTES_PER_ENTRY", int(1.1 * 200e6 / results))
    assert ask(memory_limit="200MB").in_chunks
    assert ask(engine=empriv.DuckDBEngine(memory_limit="200MB")).in_chunks
    assert not ask(memory_limit="200MB", in_chunks=False).in_chunks
    assert ask(memory_limit="200MB", query="SELECT sum(x), sum(k) FROM data").results.components
    monkeypatch.setattr(memory, "LARGE", 0)
    assert not ask().in_chunks
    monkeypatch.setattr(memory, "free_memory", lambda: 2**20)
    assert ask().in_chunks
    with pytest.raises(InputError, match="There is too little memory for that"):
        ask(in_chunks=False)
    with pytest.raises(InputError, match="There is too little memory for that"):
        ask(query="SELECT sum(x), sum(k) FROM data")


def test_they_are_verified_by_deletion_as_in_memory(data: empriv.Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[empriv.Results] = []
    original = deletion.verify

    def seen(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments[4])
        return original(*arguments, **options)

    monkeypatch.setattr(deletion, "verify", seen)
    found = in_chunks(data, "sum(x)", epsilon=0.1, keep=5)
    assert found.results.verified is not None
    assert "really deleting half of the people" in str(found)
    assert asked[0].n_individuals == found.results.n_individuals
    wrong = replace(asked[0], q=asked[0].q + 1e-3)
    monkeypatch.setattr(
        deletion, "verify", lambda *given, **options: original(*given[:4], wrong, **options)
    )  # as if other rows had been read
    with pytest.raises(QueryError, match="does not give the same answer when people are really deleted"):
        in_chunks(data, "sum(x)", epsilon=0.1, keep=5)
