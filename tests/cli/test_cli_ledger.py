"""The commands of ``empriv ledger``: what they print, write, refuse, and how they exit."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import click
import pytest

from cli.conftest import Run
from empriv.cli.ledger import ledger as group
from empriv.cli.release import read_review
from empriv.errors import InputError
from empriv.ledger import Figures, Joint, Ledger, Policy, Release, Review, identity_of

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def run(run: Run) -> Run:
    """Runs a command of `empriv ledger`."""
    return partial(run, "ledger")


SAID = {"outcome": "approved", "checker": "A. Checker", "role": "officer", "reason": "fine", "time": "2026-11-18T09:30"}


def release(path: str, query: str = "sum(amount)", *, joint: Joint | None = None, review: Review | None = None) -> None:
    Ledger(path, create=False).release(
        Release(
            identity=identity_of(["hidden ward 1", "hidden ward 2"]), database="hidden ward 1", query=query,
            method="least", law={"scale": 1.5}, asked=Figures(0.1, 0.01), achieved=Figures(0.1, 0.005, 0.05),
            n_individuals=100, joint=joint, review=review,
        ),
        lambda: 1234.5,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "command"), sorted(group.commands.items()))
def test_every_command_and_option_has_help_and_is_documented(name: str, command: click.Command) -> None:
    documented = (DOCS / "again.md").read_text(encoding="utf-8")
    assert command.help is not None
    assert "Example" in command.help
    assert f"`empriv ledger {name} " in documented
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert f"`{option.opts[0]}" in documented, option.opts


def test_init_list_verify_export(run: Run) -> None:
    made = run("init", "a.ledger", "--epsilon", "0.1", "--delta", "0.01", "--queries", "5")
    assert made.output == "Made a.ledger: delta at most 0.01 at epsilon 0.1 and at most 5 queries.\n"
    release("a.ledger")
    release("a.ledger", "SELECT\n  max(x)  FROM data -- \x1b[31m", joint=Joint(0.1, 0.008, entries=(2,)))
    listed = run("list", "a.ledger").output
    assert "made: delta at most 0.01 at epsilon 0.1 and at most 5 queries" in listed
    assert "released: 1234.5" in listed
    assert (
        "2 databases and 100 individuals; least noise; alone delta 0.005 and total_risk 0.05 at epsilon 0.1" in listed
    )
    assert "together with entries 2: delta 0.008 at epsilon 0.1" in listed
    assert "SELECT max(x) FROM data -- \\x1b[31m" in listed
    assert "of hidden ward 1, audited with" in listed  # the ledger says which; an export does not
    verified = run("verify", "a.ledger").output
    head = verified.splitlines()[1].removeprefix("Head: ")
    assert verified.startswith("Intact: 3 entries, all as they were written.\n")
    assert "Entry 3 is the one that was noted." in run("verify", "a.ledger", "--head", head).output
    assert run("export", "a.ledger", "out.jsonl").output == "Wrote 3 entries to out.jsonl.\n"
    assert len(Path("out.jsonl").read_text().splitlines()) == 3


def test_json(run: Run) -> None:
    run("init", "a.ledger")
    release("a.ledger")
    listed = json.loads(run("list", "a.ledger", "--json", "-").output)
    assert [entry["kind"] for entry in listed] == ["created", "release"]
    assert listed[1]["answer"] == 1234.5
    run("verify", "a.ledger", "--json", "found.json")
    found = json.loads(Path("found.json").read_text())
    assert (found["intact"], found["count"], found["faults"]) == (True, 2, [])
    assert found["head"] == f"2:{listed[1]['hash']}"
    run("list", "a.ledger", "--json", "a.ledger", code=1)
    run("verify", "a.ledger")


def test_policy_is_shown_and_changed(run: Run) -> None:
    run("init", "a.ledger")
    assert run("policy", "a.ledger").output == "No limits.\n"
    changed = run("policy", "a.ledger", "--epsilon", "0.1", "--total-risk", "0.2").output
    assert changed == "Total_risk at most 0.2 at epsilon 0.1.\n"
    assert Ledger("a.ledger").policy == Policy(epsilon=0.1, total_risk=0.2)
    assert "policy changed" in run("list", "a.ledger").output


def test_tampering_exits_with_3(run: Run) -> None:
    run("init", "a.ledger")
    release("a.ledger")
    head = str(Ledger("a.ledger").head)
    with closing(sqlite3.connect("a.ledger", isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER entries_no_update")
        connection.execute("UPDATE entries SET body = replace(body, 'sum', 'max')")
    assert "Entry 2 was changed" in run("verify", "a.ledger", code=3).output
    assert not json.loads(run("verify", "a.ledger", "--json", "-", code=3).output)["intact"]
    assert "is not as empriv wrote it" in run("list", "a.ledger", code=1).output
    Path("a.ledger").unlink()
    run("init", "a.ledger")
    assert "is not the one whose hash was noted" in run("verify", "a.ledger", "--head", head, code=3).output


def test_errors(run: Run) -> None:
    for command in (["list"], ["verify"], ["policy"], ["export"]):
        told = run(command[0], "none.ledger", *(["out"] if command == ["export"] else []), code=1)
        assert "which does not exist" in told.output
    assert not Path("none.ledger").exists()
    run("init", "a.ledger")
    assert "must be a new file" in run("init", "a.ledger", code=1).output
    assert "must be given with" in run("init", "b.ledger", "--delta", "0.1", code=2).output
    assert "must read COUNT:HASH" in run("verify", "a.ledger", "--head", "12", code=2).output
    run("init", "b.ledger", "--queries", "0", code=2)
    assert not Path("b.ledger").exists()


def test_a_review_is_read_from_a_file_and_listed(run: Run) -> None:
    run("init", "a.ledger")
    for content in (SAID, {"reviews": [{**SAID, "outcome": "refused"}, {**SAID, "audit": "0f3a"}]}):
        Path("said.json").write_text(json.dumps(content))
        assert read_review("said.json") == Review(**SAID)
    release("a.ledger", review=read_review("said.json"))
    assert "approved by A. Checker, officer, on 2026-11-18: fine" in run("list", "a.ledger").output
    for wrong in ("{}", "[]", "no JSON", json.dumps({**SAID, "outcome": "perhaps"})):
        Path("said.json").write_text(wrong)
        with pytest.raises(InputError):
            read_review("said.json")
