"""A saved audit keeps what it is judged by: the decision is the same whichever command asks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import empriv
from empriv.base.targets import parse_targets
from empriv.cli.main import main
from empriv.errors import FileFormatError, InputError, RefusalError
from empriv.ledger import Ledger, Policy

pytestmark = pytest.mark.slow

STRICT, LAX = "delta <= 0.05 at 0.5", "delta <= 0.9 at 0.5"


def run(*words: str) -> Result:
    done = CliRunner().invoke(main, list(words))
    assert "unexpected" not in done.output, done.output
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in which one person is half of every total, so that the strict target fails and the lax one passes."""
    made = tmp_path_factory.mktemp("kept")
    rng, days, people = np.random.default_rng(0), 60, 30
    rows = pd.DataFrame({"day": np.repeat(np.arange(days), people), "who": np.tile(np.arange(people), days)})
    rows["amount"] = np.round(rng.gamma(2.0, 20.0, len(rows)), 2)
    rows.loc[rows["who"] == 0, "amount"] *= 12
    rows.to_parquet(made / "rows.parquet")
    data = empriv.databases(made / "rows.parquet", database="day", individual="who")
    empriv.audit(data, "sum(amount)", target=STRICT).save(made / "strict.empriv")
    return made


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_the_file_keeps_targets() -> None:
    audit = empriv.load("strict.empriv")
    assert isinstance(audit, empriv.Audit)
    assert audit.targets == parse_targets(STRICT)
    assert audit.decision().word != "no target"
    assert audit.decision() == audit.decision(audit.verdict(epsilon=0.5, delta=0.05))
    asked = replace(audit, targets=parse_targets(STRICT, basis="estimate", presence="random"))
    asked.save("asked.empriv")
    assert empriv.load("asked.empriv").targets == asked.targets  # type: ignore[union-attr]


def test_a_further_target_never_stands_in_the_place_of_its_own() -> None:
    plain = run("show", "strict.empriv", "--json", "-")
    lax = run("show", "strict.empriv", "--target", LAX, "--json", "-")
    assert plain.exit_code == lax.exit_code == 3, (plain.output, lax.output)
    first, second = json.loads(plain.stdout), json.loads(lax.stdout)
    assert first["decision"] == second["decision"]
    assert [verdict["target"] for verdict in second["verdicts"]] == [STRICT, LAX]
    loaded = empriv.load("strict.empriv")
    assert isinstance(loaded, empriv.Audit)
    page = loaded.report("page.html", verdicts=[(LAX, loaded.verdict(epsilon=0.5, delta=0.9))])
    assert page.decision is not None
    assert page.decision.line == first["decision"]["line"]


@pytest.mark.parametrize(
    "words",
    [
        ("noise", "strict.empriv", "--epsilon", "0.5", "--delta", "0.9"),
        ("noise", "strict.empriv", "--epsilon", "1.5", "--delta", "0.05"),
        ("noise", "strict.empriv", "--epsilon", "0.5", "--delta", "0.05", "--presence", "random"),
        ("advise", "strict.empriv", "--target", LAX),
    ],
)
def test_no_command_asks_for_less(words: tuple[str, ...]) -> None:
    refused = run(*words)
    assert refused.exit_code == 1, refused.output
    assert len(re.findall("must not allow more than the audit's own", " ".join(refused.output.split()))) == 1


def test_what_an_audit_fails_is_not_released_with_noise_for_a_laxer_target(tmp_path: Path) -> None:
    audit = empriv.load("strict.empriv")
    assert isinstance(audit, empriv.Audit)
    noise = empriv.design_noise(replace(audit, targets=()), epsilon=0.5, delta=0.9, granularity=0.01)
    book = Ledger(tmp_path / "releases.ledger", policy=Policy(epsilon=5.0, delta=1.0))
    with pytest.raises((InputError, RefusalError), match="allows more than the one that is judged"):
        audit.release(float(audit.results.q[0]), noise=noise, ledger=book, database=0)
    assert [entry.kind for entry in book.entries()] == ["created"]


def test_its_own_target_is_asked_without_being_said_again() -> None:
    advised = run("advise", "strict.empriv", "--json", "-")
    assert advised.exit_code in (0, 3), advised.output
    exported = run("export", "strict.empriv", "--dpia", "release.md")
    assert exported.exit_code == 0, exported.output
    assert STRICT in Path("release.md").read_text().replace("\\", "")


def test_options_of_the_command_line_are_kept() -> None:
    done = run(
        "audit", "rows.parquet", "--database", "day", "--individual", "who", "--query", "sum(amount)",
        "--target", LAX, "--presence", "random", "--save", "lax.empriv", "--quiet",
    )  # fmt: skip
    kept = empriv.load("lax.empriv")
    assert isinstance(kept, empriv.Audit)
    assert kept.targets == parse_targets(LAX, presence="random")
    assert run("show", "lax.empriv", "--quiet").exit_code == done.exit_code


def test_a_damaged_target_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from empriv.base.targets import Target

    audit = empriv.load("strict.empriv")
    monkeypatch.setattr(Target, "to_json", lambda self: {"target": self.text, "basis": "hope", "presence": None})
    audit.save("damaged.empriv")
    with pytest.raises(FileFormatError):
        empriv.load("damaged.empriv")


@pytest.mark.parametrize(
    ("target", "asked", "said"),
    [
        (STRICT, {"delta": 0.9}, "must not allow more than the audit's own"),
        (STRICT, {"delta": 0.9, "method": "as-it-is"}, "must not allow more than the audit's own"),
        (STRICT, {"epsilon": 2.0}, "must not allow more than the audit's own"),
        (STRICT, {"epsilon": 0.4, "delta": 0.06}, "must not allow more than the audit's own"),
        (STRICT, {"presence": "random"}, "on a random database alone"),
        ("total_risk <= 0.1 at 0.5", {}, "must be on delta, which noise promises"),
    ],
)
def test_no_noise_is_designed_that_falls_short_of_what_the_audit_asks(
    target: str, asked: dict[str, object], said: str
) -> None:
    """In Python too: what noise adds to is then an answer that the audit objects to."""
    audit = replace(empriv.load("strict.empriv"), targets=parse_targets(target))  # type: ignore[type-var]
    with pytest.raises(InputError, match=said):
        empriv.design_noise(audit, granularity=0.01, **{"epsilon": 0.5, "delta": 0.05, **asked})  # type: ignore[arg-type]


def test_noise_is_for_as_many_publications_as_the_audit() -> None:
    audit = empriv.load("strict.empriv")
    assert isinstance(audit, empriv.Audit)
    with pytest.raises(InputError, match="`times` must be at least the audit's own, 3, got 2"):
        empriv.design_noise(audit.repeated(3), epsilon=0.5, delta=0.05, times=2)
    noise = empriv.design_noise(audit.repeated(3), epsilon=0.5, delta=0.05)
    assert isinstance(noise, empriv.Noise)
    assert noise.times == 3
