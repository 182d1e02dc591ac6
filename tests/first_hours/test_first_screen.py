"""What is shown first: the terminal's screen, whole, for each verdict and kind of risk; the page's, in words."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest

import empriv
from empriv.base.progress import Bar
from empriv.cli.config import Settings, settings_of
from empriv.cli.running import audit_stages, judged
from empriv.cli.terminal import console_for, print_screen
from empriv.report import write_report

TARGET = "delta <= 0.05 at 0.1"

PASS = """\
Publish
The answer hides anyone who moves it by up to 0.958 min; nobody moved it by more
than 0.304 min.
A reader who guesses 50:50 whether a person's rows were counted gets at most
52.5% sure, but surer in at most 5% of cases.
In a database that they are in, the most exposed person's delta at epsilon 0.1
is at most 0.012 with 95% confidence; the target allows 0.05. Holds for
databases like these 400, and readers who may know one person's rows.
Verdict on delta <= 0.05 at 0.1: PASS.

The query was asked of 400 databases, with everyone and without each of 2
individuals.
epsilon  delta (most exposed)  total risk (anybody)  individuals exposed
    0.1                     0                     0               0 of 2
Moved the answer furthest (by their identifiers)
individual  delta_i  moved the answer by  in databases
0                0%            0.304 min           400
1                0%            0.267 min           400
1 thing to know before you rely on this: --verbose lists it.
Next: if you publish it again and again, ask for that, such as --times 30.
"""
FAIL = """\
Do not publish as it is
The answer hides anyone who moves it by up to 0.958 min; one person moved it by
8.25 min. 50% of people in a database moved it by more than is hidden.
In a database that they are in, the most exposed person's delta at epsilon 0.1
is at least 0.28 with 95% confidence; the target allows 0.05. Holds for
databases like these 400, and readers who may know one person's rows.
Verdict on delta <= 0.05 at 0.1: FAIL.

The query was asked of 400 databases, with everyone and without each of 2
individuals.
epsilon  delta (most exposed)  total risk (anybody)  individuals exposed
    0.1                 0.312                 0.312               1 of 2
Moved the answer furthest (by their identifiers)
individual  delta_i  moved the answer by  in databases
0               31%             8.25 min           400
1                0%            0.267 min           400
1 thing to know before you rely on this: --verbose lists it.
Next: see what you can do, and what it costs:
  empriv advise audit.empriv --target 'delta <= 0.05 at 0.1'
"""
UNRESOLVED = """\
Do not publish as it is
The answer hides anyone who moves it by up to 0.701 min; one person moved it by
1.02 min. 42% of people in a database moved it by more than is hidden. It cannot
be told whether these are hidden.
In a database that they are in, the most exposed person's delta at epsilon 0.1
is at most 0.087 with 95% confidence; the target allows 0.05. About 501
databases would resolve it. Holds for databases like these 100, and readers who
may know one person's rows.
Verdict on delta <= 0.05 at 0.1: UNRESOLVED.

The query was asked of 100 databases, with everyone and without each of 2
individuals.
epsilon  delta (most exposed)  total risk (anybody)  individuals exposed
    0.1                0.0102                0.0102               1 of 2
Moved the answer furthest (by their identifiers)
individual  delta_i  moved the answer by  in databases
0                1%             1.02 min           100
1                0%            0.315 min           100
1 thing to know before you rely on this: --verbose lists it.
Next: see what you can do, and what it costs:
  empriv advise audit.empriv --target 'delta <= 0.05 at 0.1'
"""
FEW = """\
Do not publish as it is
12 databases are too few to tell: at least 59 are needed.
Holds for databases like these 12, and readers who may know one person's rows.
Verdict on delta <= 0.05 at 0.1: UNRESOLVED.

The query was asked of 12 databases, with everyone and without each of 1
individual.
epsilon  delta (most exposed)  total risk (anybody)  individuals exposed
    0.1                     0                     0               0 of 1
Moved the answer furthest (by their identifiers)
individual  delta_i  moved the answer by  in databases
0                0%                 0.14            12
2 things to know before you rely on this: --verbose lists them.
Next: collect more databases: with fewer than 30 there is no upper bound.
"""
IN_CHUNKS = """\
Do not publish as it is
The answer hides anyone who moves it by up to 0.958; one person moved it by
8.25. 50% of people in a database moved it by more than is hidden.
In a database that they are in, the most exposed person's delta at epsilon 0.1
is at least 0.28 with 95% confidence; the target allows 0.05. Holds for
databases like these 400, and readers who may know one person's rows.
Verdict on delta <= 0.05 at 0.1: FAIL.

The query was asked of 400 databases, with everyone and without each of 2
individuals, in chunks: the 2 most exposed are kept, others totalled.
epsilon  delta (most exposed)  total risk (anybody)  individuals exposed
    0.1                 0.312                 0.312               1 of 2
Moved the answer furthest (by their identifiers)
individual  delta_i  moved the answer by  in databases
0               31%                 8.25           400
1                0%                0.267           400
Next: ask for less, such as sum(least(amount, 60)) for amounts up to 60, and
audit again.
"""
NO_TARGET = """\
No target was given: delta 0.31 at epsilon 0.1, at most 0.41
The most exposed person's privacy fails with a probability of 31% in a random
database.
Holds for databases like these 400, and readers who know nothing else of the
database.

The query was asked of 400 databases, with everyone and without each of 2
individuals.
epsilon  delta (most exposed)  total risk (anybody)  individuals exposed
    0.1                 0.312                 0.312               1 of 2
Moved the answer furthest (by their identifiers)
individual  delta_i  moved the answer by  in databases
0               31%             8.25 min           400
1                0%            0.267 min           400
1 thing to know before you rely on this: --verbose lists it.
Next: say what is private enough, such as --target "delta <= 0.05 at 0.1", for a
decision.
"""


def screen(audit: empriv.Audit, *, target: str | None = TARGET, **given: Any) -> list[str]:
    """The lines that are printed of an audit."""
    settings: Settings = settings_of({}, {"target": () if target is None else (target,), "show_ids": True, **given})
    console = console_for(io.StringIO())
    console.width = 80
    finished = judged(audit, settings, console, Bar(audit_stages(settings), show=False), saved="audit.empriv")
    print_screen(finished.screen, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def results(n: int, *effects: float) -> empriv.Results:
    rng = np.random.default_rng(7)
    q = rng.normal(1000.0, 10.0, n)
    return empriv.Results.from_arrays(q, np.stack([q - rng.normal(effect, 0.1, n) for effect in effects]))


@cache
def calm() -> empriv.Audit:
    return empriv.audit(results(400, 0.05, 0.01), epsilon=0.1, unit="min")


@cache
def loud() -> empriv.Audit:
    return empriv.audit(results(400, 8.0, 0.01), epsilon=0.1, unit="min")


@cache
def open_() -> empriv.Audit:
    return empriv.audit(results(100, 0.8, 0.01), epsilon=0.1, unit="min")


@cache
def few() -> empriv.Audit:
    return empriv.audit(results(12, 0.05), epsilon=0.1)


@cache
def table() -> empriv.Audit:
    made = {"sum(a)": results(150, 8.0, 0.01), "sum(b)": results(150, 0.1, 0.01)}
    return empriv.audit(empriv.Results.stack(made), epsilon=0.1)


@cache
def buckets() -> empriv.Audit:
    made = results(120, 0.05)
    return empriv.audit(made, epsilon=0.1, known=empriv.Buckets(np.arange(120) % 2, 2))


@cache
def chunked() -> empriv.Audit:
    return empriv.audit(results(400, 8.0, 0.01), epsilon=0.1, known="nothing", in_chunks=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "given", "golden"),
    [(calm, {}, PASS), (loud, {}, FAIL), (open_, {}, UNRESOLVED), (few, {}, FEW),
     (chunked, {}, IN_CHUNKS), (loud, {"target": None}, NO_TARGET)],
    ids=["pass", "fail", "unresolved", "few databases", "in chunks", "no target"],
)  # fmt: skip
def test_the_first_screen(make: Callable[[], empriv.Audit], given: dict[str, Any], golden: str) -> None:
    assert screen(make(), **given) == golden.splitlines()


@pytest.mark.slow
def test_the_decision_does_not_depend_on_whether_a_page_is_written() -> None:
    """With a page, what can be done was tried, and is said in place of the command that tries it."""
    alone, with_page = screen(loud()), screen(loud(), report="page.html")
    assert alone[-1].startswith("  empriv advise ")
    assert with_page[-2:] == ["Next: do that:", with_page[-1]]
    assert with_page[-1].startswith("  empriv noise audit.empriv --epsilon 0.1 --delta 0.05 --dither ")
    tried = [line for line in with_page[:-2] if line not in alone]
    assert tried[0].startswith("Instead: add noise (±")
    assert [line for line in with_page[:-2] if line not in tried] == alone[:-2]


def test_the_first_screen_of_a_table() -> None:
    lines = screen(table())
    assert lines[0] == "Do not publish as it is"
    assert lines[1].startswith("At least one person is given away for certain: sum(a) minus sum(b)")
    assert any(line.startswith("EXACT LEAK: sum(a) ") for line in lines)
    assert "moves a number by up to" in "\n".join(lines)


@pytest.mark.parametrize("make", [calm, loud, open_, few, table, buckets, chunked])
def test_it_fits_a_screen_of_80_by_25_and_verbose_says_more(make: Callable[[], empriv.Audit]) -> None:
    audit = make()
    for target in (TARGET, None):
        lines = screen(audit, target=target)
        assert len(lines) < 25  # and one for what was written
        assert all(len(line.rstrip()) <= 80 for line in lines if not line.startswith("  empriv "))
    more = screen(audit, verbose=True)
    assert more[0] == screen(audit)[0]
    assert len(more) > len(lines)
    assert any(line.startswith("Estimate: delta =") for line in more)


@pytest.mark.slow
def test_the_command_that_is_named_works(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    from click.testing import CliRunner

    from empriv.cli.main import main

    monkeypatch.chdir(tmp_path)
    audit = loud()
    audit.save("audit.empriv")
    command = screen(audit)[-1].strip()
    done = CliRunner().invoke(main, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    assert "noise" in done.output


@cache
def sales() -> empriv.Audit:
    """Takings of 200 days, of which one client moves some by far more than the others do."""
    rng = np.random.default_rng(1)
    day, client = (part.ravel() for part in np.meshgrid(np.arange(200), np.arange(60)))
    came = rng.random(len(day)) < 0.5
    amount = np.where((client == 0) & (rng.random(len(day)) < 0.1), 400.0, rng.exponential(20.0, len(day))).round()
    days = (np.datetime64("2024-01-01") + day)[came]
    rows = arrow.table({"day": days, "client": client[came], "amount": amount[came]})
    data = empriv.databases(rows, database="day", individual="client")
    return empriv.audit(data, "sum(amount)", epsilon=1.0, known="nothing", unit="€")


FIRST_SCREENS: dict[str, tuple[Callable[[], empriv.Audit], float, bool]] = {
    "pass": (calm, 0.1, False), "noise": (loud, 0.1, True), "cap": (sales, 1.0, False), "fail": (loud, 0.1, False),
    "cannot tell": (open_, 0.1, False), "few": (few, 0.1, False), "leak": (table, 0.1, False),
    "series": (lambda: calm().repeated(52), 0.1, False), "a pass of a series": (lambda: calm().repeated(2), 0.5, False),
}  # fmt: skip


def said_first(make: Callable[[], empriv.Audit], epsilon: float, noisy: bool, folder: Path) -> list[str]:
    """The sentences that a page says in large letters."""
    audit = make()
    verdict = audit.verdict(epsilon=epsilon, delta=0.05)
    noise = empriv.design_noise(audit, epsilon=epsilon, delta=0.05, granularity=0.5) if noisy else None
    page = write_report(audit, folder / "page.html", verdicts=[("the target", verdict)], noise=noise).page.read_text()
    (box,) = re.findall(r'<section class="decision.*?</section>', page, re.DOTALL)
    large = re.findall(r"<p(?! class=\"small\").*?</p>", box, re.DOTALL)
    said = [" ".join(html.unescape(re.sub(r"<[^>]+>|\u2060", "", part)).split()) for part in large]
    made = audit.decision(verdict, noise=noise)
    assert said[0] == made.line
    assert said[1] in (made.reason, f"{made.reason} {made.beyond}")
    return said


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST_SCREENS)
def test_a_page_says_what_to_do_in_sixty_words_and_three_figures(name: str, tmp_path: Path) -> None:
    said = " ".join(said_first(*FIRST_SCREENS[name], tmp_path))
    assert len(said.split()) <= 60
    assert len(re.findall(r"[0-9][0-9.,]*", said)) <= 3
    assert not re.search("delta|epsilon|upper bound|beyond that", said)


@pytest.mark.slow
def test_a_cap_that_was_tried_is_what_to_do_instead(tmp_path: Path) -> None:
    said = said_first(*FIRST_SCREENS["cap"], tmp_path)
    assert said[0] == "Do not publish as it is"
    capped = r"cap what each client adds, and add a little noise \(±€[0-9.]+ in all\)"
    assert re.fullmatch(rf"Instead: {capped}\. Sign the page of that answer, not this one\.", said[2])
