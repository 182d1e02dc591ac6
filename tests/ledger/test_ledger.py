"""The ledger in one process: releases, repeats, overlap, policies, what is refused."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from asking import DAYS, asked, days, together
from hypothesis import given, settings
from hypothesis import strategies as st

from empriv.errors import InputError, LedgerError, RefusalError
from empriv.ledger import Figures, Head, Joint, Ledger, Policy, PolicyEntry, ReleaseEntry, Review, identity_of
from empriv.ledger.chain import START, link
from empriv.results import Results


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "releases.ledger")


def origin(**changed: Any) -> Any:
    facts = {
        "sources": ("sales.parquet",),
        "database": "day",
        "individual": ("client",),
        "drawn": None,
        "computed": False,
    }
    return SimpleNamespace(**{**facts, **changed})


def forbidden() -> float:
    raise AssertionError("nothing may be drawn")


def test_a_new_ledger_is_private_and_holds_one_entry(ledger: Ledger) -> None:
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    (first,) = ledger.entries()
    assert isinstance(first, PolicyEntry)
    assert (first.id, first.kind, first.previous, first.policy) == (1, "created", START, Policy())
    assert [file.name for file in ledger.path.parent.iterdir()] == [ledger.path.name]


def test_the_file_says_what_it_is(ledger: Ledger) -> None:
    with sqlite3.connect(ledger.path) as connection:
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    connection.close()
    assert found == [0x45504C47, 4]
    assert mode == "delete"


def test_a_release_is_remembered_to_the_last_bit(ledger: Ledger) -> None:
    answer = 0.1 + 0.2
    done = ledger.release(asked(component="north", joint=together(0.5, total_risk=0.7)), lambda: answer)
    assert done.answer.hex() == answer.hex()  # type: ignore[union-attr]
    assert not done.repeated
    entry = ledger.entries()[1]
    assert entry == done.entry
    assert isinstance(entry, ReleaseEntry)
    assert (entry.query, entry.component, entry.method) == ("sum(amount)", "north", "robust")
    assert entry.law == {"kind": "laplace", "scale": 1.5}
    assert entry.asked == Figures(0.1, 0.01)
    assert entry.achieved == Figures(0.1, 0.005, 0.05)
    assert entry.joint == Joint(0.1, 0.5, 0.7)
    assert (entry.n_databases, entry.n_individuals) == (30, 100)
    assert entry.time.endswith("+00:00")


def test_several_answers_released_together(ledger: Ledger) -> None:
    done = ledger.release(asked(), lambda: np.array([1.5, -2.0]))
    assert done.answer == (1.5, -2.0)
    assert ledger.release(asked(), forbidden).answer == (1.5, -2.0)


def test_a_repeated_release_gives_the_stored_answer_and_nothing_else_does(ledger: Ledger) -> None:
    first = ledger.release(asked(), lambda: 1.25)
    # Figures that were measured again do not make it another release.
    again = ledger.release(asked(" sum(amount)\n", achieved=Figures(0.1, 0.0051), joint=together(0.2)), forbidden)
    assert again.repeated
    assert again.entry == first.entry
    # Nor does another spelling, another target or method with the same noise, or other databases beside this one.
    for same in (
        asked("SUM( Amount ) -- again"),
        asked(identity=days(29)),
        asked(asked=Figures(0.2, 0.01)),
        asked(asked=Figures(0.1, 0.02)),
        asked(method="optimal"),
    ):
        assert ledger.release(same, forbidden).entry == first.entry
    others = [
        asked("sum(amount) + 0"),
        asked(database="2026-01-08"),
        asked(law={"kind": "laplace", "scale": 1.6}),
        asked(component="north"),
    ]
    for number, other in enumerate(others):
        done = ledger.release(other, lambda number=number: float(number))  # type: ignore[misc]
        assert (done.repeated, done.answer) == (False, float(number))
    assert len(ledger.entries()) == 2 + len(others)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "1", None, [], [1.0, float("nan")]])
def test_an_answer_that_is_no_number_writes_nothing(ledger: Ledger, bad: Any) -> None:
    with pytest.raises(InputError, match="`draw` must give"):
        ledger.release(asked(), lambda: bad)
    assert len(ledger.entries()) == 1


def test_a_draw_that_fails_writes_nothing_and_frees_the_lock(ledger: Ledger) -> None:
    def fail() -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger.release(asked(), fail)
    assert len(ledger.entries()) == 1
    assert ledger.release(asked(), lambda: 1.0).answer == 1.0


def test_the_entry_is_written_before_the_answer_is_shown(ledger: Ledger) -> None:
    """Nobody else sees it while it is drawn; whoever has the answer finds it in the file."""
    seen = []

    def draw() -> float:
        seen.append(len(Ledger(ledger.path).entries()))
        return 1.0

    ledger.release(asked(), draw)
    assert seen == [1]
    assert len(Ledger(ledger.path).entries()) == 2


def test_threads_share_a_ledger(ledger: Ledger) -> None:
    answers: list[tuple[str, Any]] = []

    def work(own: int) -> None:
        for k in range(5):
            for query in (f"{own}.{k}", f"shared {k}"):
                answers.append((query, ledger.release(asked(query), lambda own=own: float(own)).answer))  # type: ignore[misc]

    threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 40
    assert len(set(answers)) == 25
    assert len(ledger.entries()) == 26
    assert ledger.verify().intact


UNUSUAL = "SELECT '[red]ü\x1b[31m\u202e\ud800 😀 \\u0041\x00' -- \"'; DROP TABLE entries"


def test_queries_of_any_text(ledger: Ledger, tmp_path: Path) -> None:
    ledger.release(asked(UNUSUAL), lambda: 1.0)
    assert ledger.release(asked(UNUSUAL), forbidden).repeated
    (_, entry) = ledger.entries()
    assert isinstance(entry, ReleaseEntry)
    assert entry.query == UNUSUAL
    assert ledger.verify().intact
    ledger.export(tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[1])["entry"]["query"] == UNUSUAL


class TestOverlap:
    def test_another_query_on_the_same_databases(self, ledger: Ledger) -> None:
        identity = identity_of(DAYS, origin())
        for query in ("q1", "q2"):
            ledger.release(asked(query, identity=identity), lambda: 1.0)
        found = ledger.released(identity)
        assert [entry.query for entry in found] == ["q1", "q2"]
        assert len({entry.fingerprint for entry in found}) == 1

    @pytest.mark.parametrize(
        ("labels", "where"),
        [
            (DAYS[:20], origin()),
            ((*DAYS, "2026-02-01"), origin()),
            (("2026-02-01", "2026-01-30"), origin()),
            (DAYS, origin(sources=("renamed.parquet",))),
            (DAYS, origin(individual=("household",))),
            (DAYS, origin(database="t::DATE")),
            (DAYS, None),
            ([f"{day} 00:00:00" for day in DAYS], origin()),
            (np.array(DAYS, "datetime64[ns]"), origin()),
            (["2026-W01"], origin(database="week")),
            (range(5), origin(database=None, drawn="random subsamples")),
        ],
    )
    def test_is_found(self, ledger: Ledger, labels: Any, where: Any) -> None:
        ledger.release(asked(identity=identity_of(DAYS, origin())), lambda: 1.0)
        assert [entry.id for entry in ledger.released(identity_of(labels, where))] == [2]

    @pytest.mark.parametrize(
        ("labels", "where", "scope"),
        [
            (["2026-02-01"], origin(), ""),
            (["2026-W01"], origin(database="week", sources=("visits.parquet",)), ""),
            (["2026-02-01"], None, ""),
            (DAYS, origin(), "another shop"),
        ],
    )
    def test_is_not_seen_where_there_is_none(self, ledger: Ledger, labels: Any, where: Any, scope: str) -> None:
        ledger.release(asked(identity=identity_of(DAYS, origin())), lambda: 1.0)
        assert ledger.released(identity_of(labels, where, scope=scope)) == ()

    def test_whole_numbers_are_the_same_label_however_written(self, ledger: Ledger) -> None:
        ledger.release(asked(identity=identity_of([1, 2]), database=2), lambda: 1.0)
        assert [entry.id for entry in ledger.released(identity_of(["1", 2.0, np.float64(3)]))] == [2]

    def test_labels_and_sources_are_not_in_the_file(self, ledger: Ledger, tmp_path: Path) -> None:
        labels = [f"hidden ward {k}" for k in range(3)]
        identity = identity_of(labels, origin(sources=("hidden.parquet",), database="hidden"), scope="hidden scope")
        ledger.release(asked(identity=identity, database=labels[0]), lambda: 1.0)
        ledger.export(tmp_path / "out.jsonl")
        for path in (ledger.path, tmp_path / "out.jsonl"):
            assert b"hidden" not in path.read_bytes()
            assert b"sum(amount)" in path.read_bytes()

    def test_digests_differ_between_ledgers(self, tmp_path: Path) -> None:
        entries = [Ledger(tmp_path / name).release(asked(), lambda: 1.0).entry for name in ("a", "b")]
        assert entries[0].fingerprint != entries[1].fingerprint
        assert entries[0].database != entries[1].database

    def test_the_database_released_from_is_among_them(self) -> None:
        with pytest.raises(InputError, match="`database` must be one of the databases of `identity`") as caught:
            asked(database="2031-05-05")
        assert "2031" not in str(caught.value)


ONE, RISK = {"epsilon": 0.1, "delta": 0.01}, {"epsilon": 0.1, "total_risk": 0.05}


class TestPolicy:
    def limited(self, tmp_path: Path, **limits: Any) -> Ledger:
        return Ledger(tmp_path / "limited.ledger", policy=Policy(**limits))

    def test_differencing_is_refused(self, tmp_path: Path) -> None:
        """Two sums, each private, that differ by one person: jointly delta is 1, days later or not."""
        ledger = self.limited(tmp_path, epsilon=0.1, delta=0.01)
        ledger.release(asked("sum(amount)"), lambda: 5.0)
        ledger = Ledger(tmp_path / "limited.ledger", create=False)
        second = asked("sum(amount) FILTER (client <> 7)", identity=days(25), joint=together(1.0, 2))
        with pytest.raises(RefusalError) as caught:
            ledger.release(second, forbidden)
        assert str(caught.value) == (
            "The ledger 'limited.ledger' refuses the release. 1 release is recorded from 25 of the 25 databases, with "
            "delta 0.005 and total_risk 0.05 at epsilon 0.1. This one would make delta 1 at epsilon 0.1, above the "
            "limit 0.01."
        )
        assert len(ledger.entries()) == 2

    @pytest.mark.parametrize(
        ("limits", "first", "release", "match"),
        [
            (ONE, False, {"achieved": Figures(0.1, 0.02)}, r"Nothing is released .* delta 0\.02 at epsilon"),
            (ONE, False, {"achieved": Figures(0.2, 0.0)}, r"at epsilon 0\.2, above the limit 0\.1"),
            (ONE, False, {"achieved": Figures(0.05, 0.01)}, None),
            (ONE, True, {"joint": together(0.01, 2)}, None),
            (ONE, True, {"joint": together(float(np.nextafter(0.01, 0)), 2)}, None),
            (ONE, True, {"joint": together(float(np.nextafter(0.01, 1)), 2)}, r"delta 0\.010{10,}\d+ .* limit 0\.01"),
            (RISK, False, {"achieved": Figures(0.1, 0.0)}, "does not state its total_risk"),
            (RISK, True, {"joint": together(1.0, 2, total_risk=0.06)}, r"total_risk 0\.06 at epsilon 0\.1"),
            (RISK, True, {"joint": together(1.0, 2, total_risk=0.05)}, None),
        ],
    )
    def test_figures_at_the_limits(
        self, tmp_path: Path, limits: dict[str, float], first: bool, release: dict[str, Any], match: str | None
    ) -> None:
        ledger = self.limited(tmp_path, **limits)
        if first:
            ledger.release(asked("q1"), lambda: 1.0)
        if match is None:
            assert ledger.release(asked("q2", **release), lambda: 2.0).answer == 2.0
            return
        with pytest.raises(RefusalError, match=match):
            ledger.release(asked("q2", **release), forbidden)

    def test_number_of_releases(self, tmp_path: Path) -> None:
        ledger = self.limited(tmp_path, queries=2)
        for query in ("q1", "q2"):
            ledger.release(asked(query), lambda: 1.0)
        with pytest.raises(RefusalError, match=r"2 releases are .* query number 3, above the limit of 2 queries"):
            ledger.release(asked("q3"), forbidden)
        # Neither a repeated release, nor the same query of another database, nor one from other databases is a third.
        assert ledger.release(asked("q1"), forbidden).repeated
        assert not ledger.release(asked("q1", database="2026-01-08"), lambda: 1.0).repeated
        ledger.release(asked("q3", identity=identity_of(["2026-02-01"]), database="2026-02-01"), lambda: 1.0)

    def test_joint_figures_are_needed_and_must_cover_all(self, tmp_path: Path) -> None:
        ledger = self.limited(tmp_path, epsilon=0.1, delta=0.01)
        ledger.release(asked("q1"), lambda: 1.0)
        with pytest.raises(RefusalError, match="has no joint figures"):
            ledger.release(asked("q2"), forbidden)
        ledger.release(asked("q3", joint=together(0.008, 2)), lambda: 1.0)
        # Measured before q3 was released: what the three reveal together nobody knows.
        with pytest.raises(RefusalError, match=r"leave out entry 3\. Hint: another release came first"):
            ledger.release(asked("q2", joint=together(0.009, 2)), forbidden)
        ledger.release(asked("q2", joint=together(0.009, 2, 3)), lambda: 1.0)
        assert len(ledger.entries()) == 4

    def test_figures_of_the_last_alone_are_not_taken_for_all(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "later.ledger")
        for query in ("q1", "q2"):
            ledger.release(asked(query), lambda: 1.0)
        ledger.change_policy(Policy(epsilon=0.1, delta=0.01))
        with pytest.raises(RefusalError, match=r"at epsilon 0\.1 by the last alone\."):
            ledger.release(asked("q3"), forbidden)

    def test_a_change_is_an_entry(self, tmp_path: Path) -> None:
        ledger = self.limited(tmp_path, queries=1)
        ledger.release(asked("q1"), lambda: 1.0)
        ledger.change_policy(Policy(queries=2))
        assert ledger.policy == Policy(queries=2)
        assert [entry.kind for entry in ledger.entries()] == ["created", "release", "policy"]
        ledger.release(asked("q2"), lambda: 1.0)
        assert ledger.verify().intact

    def test_a_caller_cannot_forget_or_loosen_it(self, tmp_path: Path) -> None:
        self.limited(tmp_path, queries=1)
        path = tmp_path / "limited.ledger"
        assert Ledger(path).policy == Policy(queries=1)
        assert Ledger(path, policy=Policy(queries=1)).policy == Policy(queries=1)
        with pytest.raises(LedgerError, match=r"`policy` must be the one that the ledger 'limited\.ledger' holds"):
            Ledger(path, policy=Policy(queries=9))

    @pytest.mark.parametrize(
        "limits",
        [
            {"epsilon": 0.1}, {"delta": 0.1}, {"total_risk": 0.1, "queries": 1}, {"epsilon": -1, "delta": 0.1},
            {"epsilon": 0.1, "delta": 1.1}, {"epsilon": float("nan"), "delta": 0.1}, {"queries": 0},
            {"queries": 1.5}, {"queries": True}, {"epsilon": "0.1", "delta": 0.1},
            {"epsilon": float("inf"), "delta": 0},
        ],
    )  # fmt: skip
    def test_limits_that_say_nothing(self, limits: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="must be"):
            Policy(**limits)


def test_results_are_kept_with_a_release_and_come_back(ledger: Ledger) -> None:
    rng = np.random.default_rng(3)
    results = Results.from_arrays(rng.normal(size=30), rng.normal(size=(4, 30)), databases=DAYS)
    found = ledger.results_of(ledger.release(asked("a function", results=results), lambda: 1.0).entry)
    assert found is not None
    assert np.array_equal(found.q, results.q)
    assert np.array_equal(found.entry_q, results.entry_q)
    assert list(found.databases) == list(DAYS)
    assert ledger.results_of(ledger.release(asked("text"), lambda: 1.0).entry) is None
    assert ledger.verify().intact


class TestPaths:
    def test_what_is_no_ledger(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        before = sorted(tmp_path.iterdir())
        for name, match in (
            (".", "which is no file"), ("pipe", "which is no file"), ("link", "which does not exist"),
            ("none/a.ledger", "must be in a directory that exists"),
            ("x" * 300, "can be reached|cannot be created"), ("nul\x00byte", "can be reached|cannot be created"),
        ):  # fmt: skip
            with pytest.raises(LedgerError, match=match):
                Ledger(tmp_path / name)
        with pytest.raises(LedgerError, match="'none', which does not exist"):
            Ledger(tmp_path / "none", create=False)
        assert sorted(tmp_path.iterdir()) == before

    @pytest.mark.parametrize("content", [b"", b"day,client,amount\n1,2,3\n" * 400, b"SQLite format 3\x00"])
    def test_a_file_of_another_kind_is_refused_and_left_alone(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "other"
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="must be a ledger, got a file of another kind"):
            Ledger(path)
        assert path.read_bytes() == content
        path.unlink()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE entries (id)")
        with pytest.raises(LedgerError, match="must be a ledger, got a file of another kind"):
            Ledger(path)

    def test_another_version(self, ledger: Ledger) -> None:
        with closing(sqlite3.connect(ledger.path)) as connection:
            connection.execute("PRAGMA user_version = 2")
        with pytest.raises(LedgerError, match="has format version 2; this empriv reads 4"):
            Ledger(ledger.path)

    def test_a_journal_without_its_ledger(self, ledger: Ledger) -> None:
        ledger.path.with_name(ledger.path.name + "-journal").write_bytes(b"left over")
        ledger.path.unlink()
        with pytest.raises(LedgerError, match="is missing, while the journal of its last write is there"):
            Ledger(ledger.path)

    @pytest.mark.parametrize("name", ["a b?mode=memory#x.ledger", "ü😀%41.ledger", "'quoted\".ledger"])
    def test_names_are_taken_as_they_are(self, tmp_path: Path, name: str) -> None:
        Ledger(tmp_path / name).release(asked(), lambda: 1.0)
        assert [file.name for file in tmp_path.iterdir()] == [name]

    def test_a_full_database(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        """As SQLite reports a disk without room."""
        real = sqlite3.connect

        def full(*arguments: Any, **named: Any) -> sqlite3.Connection:
            connection = real(*arguments, **named)
            connection.execute("PRAGMA max_page_count = 1")
            return connection

        before = ledger.path.read_bytes()
        monkeypatch.setattr(sqlite3, "connect", full)
        with pytest.raises(LedgerError, match=r"the disk is full\. Nothing was written or released\."):
            ledger.release(asked("x" * 50_000), lambda: 1.0)
        monkeypatch.undo()
        assert ledger.path.read_bytes() == before
        assert ledger.verify().intact


class TestExport:
    def test_can_be_verified_without_the_ledger(self, ledger: Ledger, tmp_path: Path) -> None:
        for k in range(3):
            ledger.release(asked(f"q{k}", achieved=Figures(0.1, k / 7)), lambda k=k: k / 3)  # type: ignore[misc]
        assert ledger.export(tmp_path / "out.jsonl") == 4
        previous = START
        for line in (tmp_path / "out.jsonl").read_text().splitlines():
            row = json.loads(line)
            body = json.dumps(row["entry"], sort_keys=True, separators=(",", ":"))
            assert row["previous"] == previous
            assert row["hash"] == link(previous, body)
            previous = row["hash"]
        assert str(ledger.head) == f"4:{previous}"
        assert float.fromhex(row["entry"]["answer"]) == 2 / 3

    def test_never_replaces_the_ledger(self, ledger: Ledger, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(ledger.path)
        for path in (ledger.path, tmp_path / "link"):
            with pytest.raises(LedgerError, match="must go to another file than the ledger"):
                ledger.export(path)
        assert ledger.verify().intact

    def test_where_it_cannot_be_written(self, ledger: Ledger, tmp_path: Path) -> None:
        with pytest.raises(LedgerError, match=r"The export cannot be written to 'out.jsonl': No such file"):
            ledger.export(tmp_path / "none" / "out.jsonl")


def test_head_as_text() -> None:
    head = Head(12, "ab" * 32)
    assert Head.parse(f" {head}\n") == head
    for bad in ("", "12", "0:" + "ab" * 32, "12:AB", "12:" + "ab" * 31):
        with pytest.raises(InputError, match="must read COUNT:HASH"):
            Head.parse(bad)


def test_what_cannot_be_asked() -> None:
    for changed, match in (
        ({"query": "  "}, "`query` must be the text"),
        ({"law": {"scale": float("nan")}}, "`law` must be fit for JSON"),
        ({"law": {"scale": object()}}, "`law` must be fit for JSON"),
        ({"law": 3}, "`law` must be fit for JSON"),
    ):
        with pytest.raises(InputError, match=match):
            asked(**changed)
    for labels, match in (([], "must name at least one database"), ("2026-01-01", "must be labels of databases, got")):
        with pytest.raises(InputError, match=match):
            identity_of(labels)
    for field in ({"outcome": "maybe"}, {"checker": " "}, {"role": "x" * 101}, {"reason": ""}, {"time": "yesterday"}):
        with pytest.raises(InputError, match=f"`{next(iter(field))}` must be"):
            replace(APPROVAL, **field)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["q1", "q2", "q3"]), st.integers(1, 4), st.integers(1, 4), st.sampled_from([0.0, 0.01, 0.02])
    ),
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(steps=STEPS, limit=st.integers(1, 4))
def test_any_sequence_of_releases(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, float]], limit: int
) -> None:
    """Against a plain model: what was shown stays, repeats repeat, and no limit is ever broken."""
    ledger = Ledger(tmp_path_factory.mktemp("any") / "a", policy=Policy(epsilon=0.1, delta=0.01, queries=limit))
    model: dict[tuple[str, int], tuple[range, float]] = {}
    beside: set[tuple[str, int]] = set()  # those that could not be told from an earlier one
    heads = [ledger.head]
    for number, (query, low, size, delta) in enumerate(steps):
        labels = range(low, low + size)
        identity = identity_of(labels)
        earlier = [key for key, (days, _) in model.items() if set(days) & set(labels)]
        assert [entry.query for entry in ledger.released(identity)] == [key[0] for key in earlier]
        joint = Joint(0.1, delta, entries=tuple(entry.id for entry in ledger.released(identity)))
        release = asked(query, identity=identity, database=low, joint=joint)
        key = (query, low)
        further = any(one[0] == query and one[1] not in labels for one in earlier)
        count = len({one[0] for one in earlier} | {query}) + len(beside & set(earlier)) + further
        if key in model:
            done = ledger.release(release, forbidden)
            assert (done.repeated, done.answer) == (True, model[key][1])
        elif count > limit or delta > 0.01:
            with pytest.raises(RefusalError):
                ledger.release(release, forbidden)
        else:
            model[key] = labels, float(number)
            beside |= {key} if further else set()
            assert ledger.release(release, lambda: float(number)).answer == number  # noqa: B023
        assert len(ledger.entries()) == len(model) + 1
        heads.append(ledger.head)
    assert all(ledger.verify(head).intact for head in heads)


APPROVAL = Review("approved", "A. Checker", "data protection officer", "nobody stands out", "2026-11-18T09:30:00Z")


def test_a_review_is_kept_in_the_chain(ledger: Ledger) -> None:
    done = ledger.release(asked(review=APPROVAL), lambda: 1.0)
    assert done.entry.review == APPROVAL
    assert Ledger(ledger.path).entries()[-1] == done.entry
    assert ledger.release(asked(), forbidden).entry.review == APPROVAL  # the same release: what was said then
    with sqlite3.connect(ledger.path, isolation_level=None) as connection:
        connection.execute("DROP TRIGGER entries_no_update")
        connection.execute("UPDATE entries SET body = replace(body, 'A. Checker', 'B. Another')")
    connection.close()
    assert any("Entry 2 was changed" in fault for fault in ledger.verify().faults)


def test_what_a_checker_refused_is_not_released(ledger: Ledger) -> None:
    with pytest.raises(RefusalError, match="A checker refused this release"):
        ledger.release(asked(review=replace(APPROVAL, outcome="refused")), forbidden)
    assert len(ledger.entries()) == 1
