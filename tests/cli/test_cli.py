"""The command line: what it prints, writes, refuses, and how it exits."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import duckdb
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import empriv
from cli.conftest import Run
from empriv.cli.main import main
from empriv.collecting import explain
from empriv.measuring.densities.kernels import KERNELS

DOCS = Path(__file__).parents[2] / "docs"
IDS = [f"[red]secret{k}\x1b[31m:smile:" for k in range(6)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sales.csv, and its first days."""
    folder = tmp_path_factory.mktemp("sales")
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "day": np.repeat(np.arange(45), 6),
            "client": IDS * 45,
            "amount": rng.lognormal(1, 0.6, 270),
            "region": ["north", "south", "east"] * 90,
        }
    )
    table.to_csv(folder / "sales.csv", index=False)
    for day in range(5):
        table[table.day == day].to_csv(folder / f"day{day}.csv", index=False)
    return folder


AUDIT = ("audit", "sales.csv", "--database", "day", "--individual", "client", "--query", "avg(amount)")


def commands() -> list[tuple[str, click.Command]]:
    named = [(name, main.get_command(click.Context(main), name)) for name in main.list_commands(click.Context(main))]
    return [(name, command) for name, command in named if command is not None]


@pytest.mark.parametrize(("name", "command"), commands())
def test_every_command_and_option_has_help_and_is_documented(name: str, command: click.Command) -> None:
    documented = (DOCS / "command-line.md").read_text(encoding="utf-8")
    assert command.help is not None
    assert "Example" in command.help
    assert f"| `empriv {name}` |" in documented
    assert ".. click:: empriv.cli.main:main\n   :prog: empriv\n   :nested: full" in documented  # every option
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.name
    shown = CliRunner().invoke(main, [name, "--help"])
    assert shown.exit_code == 0
    assert "empriv" in shown.output


def test_every_exit_code_and_kernel_is_documented() -> None:
    documented = (DOCS / "command-line.md").read_text(encoding="utf-8")
    assert all(f"\n| {code} |" in documented for code in (0, 1, 2, 3, 4, 130))
    assert all(f"`{kernel}`" in documented for kernel in KERNELS)


class TestSummary:
    @pytest.mark.slow
    def test_it_is_what_the_library_says(self, run: Run) -> None:
        shown = run(*AUDIT, "--epsilon", "0.2,0.1", "--verbose").stdout
        data = empriv.databases("sales.csv", database="day", individual="client")
        said = empriv.audit(data, "avg(amount)", epsilon=[0.1, 0.2]).summary()
        flat = " ".join(shown.split())
        for sentence in (said.asked, said.sentences[0], *said.notes):
            assert sentence in flat
        rows = [line.split() for line in shown.splitlines() if re.match(r" +0\.[12] .* of 6", line)]
        assert [row[0] for row in rows] == ["0.1", "0.2"]
        for row, figure in zip(rows, said.figures, strict=True):
            assert float(row[1]) == pytest.approx(figure.delta, rel=5e-3)
            assert float(row[2].lstrip(">")) == pytest.approx(figure.total_risk, rel=5e-3)
            assert row[3:] == [str(figure.n_exposed), "of", "6"]
        assert "delta is 0 from epsilon" in flat

    @pytest.mark.slow
    def test_nobody_is_named_unless_asked_for(self, run: Run) -> None:
        result = run(*AUDIT)
        assert "secret" not in result.output
        names = re.findall(r"^[0-9a-f]{8}\b", result.output, re.MULTILINE)
        assert len(set(names)) == 3
        # Salted anew in each run.
        assert set(names) != set(re.findall(r"^[0-9a-f]{8}\b", run(*AUDIT).output, re.MULTILINE))

    def test_names_are_shown_as_they_are_and_steer_nothing(self, run: Run) -> None:
        shown = run(*AUDIT, "--show-ids", "--top", "6").stdout
        for k in range(6):
            assert f"[red]secret{k}\\x1b[31m:smile:" in shown
        assert "\x1b" not in shown

    @pytest.mark.slow
    def test_times_gives_the_figures_of_so_many_publications(self, run: Run) -> None:
        written = ("--json", "year.json", "--save", "year.empriv")
        shown = run(*AUDIT, "--epsilon", "1", "--times", "365", "--verbose", *written).stdout
        assert "Holds for 365 publications, days like these 45" in shown
        assert "published once" in shown
        assert "After 365 publications, at epsilon 1," in " ".join(shown.split())
        year, once = json.loads(Path("year.json").read_text()), empriv.load("year.empriv").repeated(1)
        assert year["times"] == 365
        assert year["figures"][0]["delta"] > once.delta(1.0)
        assert "After 12 publications" in run("show", "year.empriv", "--times", "12", "-v").stdout
        assert "After" not in run("show", "year.empriv", "--times", "1", "-v").stdout
        assert "--times" in run(*AUDIT, "--times", "0", code=2).output

    @pytest.mark.slow
    def test_top_bounds_the_list(self, run: Run) -> None:
        assert len(re.findall(r"^[0-9a-f]{8}\b", run(*AUDIT, "--top", "2").stdout, re.MULTILINE)) == 2
        assert "Moved the answer furthest" not in run(*AUDIT, "--top", "0").stdout

    def test_markup_and_control_characters_in_a_query_do_nothing(self, run: Run) -> None:
        shown = run(*AUDIT[:-1], "avg(amount) + 0 * length('[bold]x\x1b[2J')").stdout
        assert "[bold]x\\x1b[2J" in shown
        assert "\x1b" not in shown

    def test_quiet_says_nothing(self, run: Run) -> None:
        result = run(*AUDIT, "--quiet", "--target", "delta <= 0 at 0.01", "--paper", code=3)
        assert result.output == ""

    def test_an_exact_leak_is_said_loudly(self, run: Run) -> None:
        pd.DataFrame({"day": range(30), "client": "everyday", "amount": range(30)}).to_csv("one.csv", index=False)
        shown = run("audit", "one.csv", *AUDIT[2:], "-v").stdout
        assert "EXACT LEAK: result is empty (null)" in shown
        assert "30 of 30 results without an individual are not a number (30 null)" in " ".join(shown.split())
        assert "No epsilon brings delta to 0." in shown

    @pytest.mark.slow
    def test_a_component_is_said_to_be_one(self, run: Run) -> None:
        query = "SELECT sum(amount) AS total, count(*) AS n FROM data"
        together = " ".join(run(*AUDIT[:-1], query, "-v").stdout.split())
        assert "Each number alone, delta at epsilon" in together
        Path("audit.toml").write_text('component = "total"\nscope = "shop"\n')  # keys that are no options
        shown = " ".join(run(*AUDIT[:-1], query, "--config", "audit.toml", "-v").stdout.split())
        assert "Note: This covers one number only, 'total', not the 1 other released beside it" in shown

    @pytest.mark.slow
    def test_no_unicode_where_the_terminal_has_none(self, run: Run) -> None:
        run(*AUDIT, "--save", "a.empriv")
        done = _empriv("show", "a.empriv", "--show-ids", "--verbose", PYTHONIOENCODING="ascii")
        assert done.returncode == 0
        assert done.stdout.isascii()


class TestSources:
    @pytest.mark.slow
    def test_each_file_is_one_database(self, run: Run) -> None:
        files = [f"day{k}.csv" for k in range(5)]
        rest = ("--individual", "client", "--query", "avg(amount)")
        listed = run("audit", *files, *rest).stdout
        assert "5 databases (one for each of 5 sources, from day0.csv to day4.csv)" in " ".join(listed.split())
        assert run("audit", "day*.csv", *rest, "--top", "0").stdout == run("audit", *files, *rest, "--top", "0").stdout

    def test_one_file_without_database_is_refused_with_a_hint(self, run: Run) -> None:
        result = run("audit", "sales.csv", "--individual", "client", "--query", "avg(amount)", code=1)
        assert "Hint: --database" in result.stderr

    def test_files_are_cut_together_by_a_database(self, run: Run) -> None:
        pieces = run("audit", "day0.csv", "day1.csv", "day[234].csv", *AUDIT[2:], "--json", "-").stdout
        assert json.loads(pieces)["n_databases"] == 5
        pd.read_csv("day0.csv").to_parquet("day0.parquet")
        assert "must be of one kind" in run("audit", "day0.parquet", "day1.csv", *AUDIT[2:], code=1).stderr

    @pytest.mark.slow
    def test_a_duckdb_table_and_an_sql_text(self, run: Run) -> None:
        with duckdb.connect("x.duckdb") as connection:
            connection.execute("CREATE TABLE t AS FROM 'sales.csv'").fetchall()
        expected = json.loads(run(*AUDIT, "--json", "-").stdout)["figures"]
        for source in (["x.duckdb::t"], ["SELECT * FROM s", "--table", "s=sales.csv"]):
            found = json.loads(run("audit", *source, *AUDIT[2:], "--json", "-").stdout)["figures"]
            for a, b in zip(found, expected, strict=True):
                assert a == pytest.approx(b, rel=1e-9)

    def test_a_long_sql_text_is_not_mistaken_for_a_path(self, run: Run) -> None:
        text = "SELECT * FROM s WHERE day >= 0" + " AND day >= 0" * 30
        run("audit", text, "--table", "s=sales.csv", *AUDIT[2:], "--json", "a.json", "--quiet")
        assert Path("a.json").exists()

    def test_joins_and_several_columns_of_the_individual(self, run: Run) -> None:
        pd.DataFrame({"region": ["north", "south", "east"], "rate": [1.0, 2.0, 3.0]}).to_csv("rates.csv", index=False)
        query = "SELECT sum(amount * rate) FROM data JOIN rates USING (region)"
        shown = run(
            "audit", "sales.csv", "--database", "day % 15", "--individual", "client, region", "--query", query,
            "--table", "rates=rates.csv", "--memory-limit", "1GB",
        ).stdout  # fmt: skip
        flat = " ".join(shown.split())
        assert "15 databases (by day % 15 in sales.csv)" in flat
        assert "(by client, region)" in flat

    def test_unidentified_rows(self, run: Run) -> None:
        table = pd.read_csv("sales.csv")
        table.loc[0, "client"] = None
        table.to_csv("gaps.csv", index=False)
        assert "`individual` must not be NULL" in run("audit", "gaps.csv", *AUDIT[2:], code=1).stderr
        run("audit", "gaps.csv", *AUDIT[2:], "--unidentified", "keep")

    @pytest.mark.slow
    def test_a_query_ends_in_time(self, run: Run) -> None:
        endless = "SELECT sum(sin(amount * i)) FROM data, range(10000000000) AS c(i)"
        asked = [*AUDIT[: AUDIT.index("--query")], "--query", endless]
        late = run(*asked, "--timeout", "0.3", code=1).stderr
        assert "The query must end within `timeout`, 0.3 seconds, and did not." in late
        run(*AUDIT, "--timeout", "60", "--quiet", "--write-config", "audit.toml")
        assert "timeout = 60.0" in Path("audit.toml").read_text()
        run("audit", "--config", "audit.toml", "--quiet")
        Path("audit.toml").write_text('timeout = "soon"')
        assert "`timeout` must be a number of seconds above 0" in run("audit", "--config", "audit.toml", code=2).stderr
        for wrong in ("0", "-1", "soon", "nan", "inf", "1e300"):
            assert "must be a number of seconds above 0" in run(*AUDIT, "--timeout", wrong, code=2).stderr

    @pytest.mark.slow
    @pytest.mark.parametrize("deep", ["(" * 3000 + "day" + ")" * 3000, "NOT " * 3000 + "day", "day" + " + day" * 3000])
    def test_what_is_nested_without_end_is_a_sentence(self, run: Run, deep: str) -> None:
        for option in ("--database", "--query", "--known", "--individual"):
            words = list(AUDIT)
            if option in words:
                words[words.index(option) + 1] = deep
            else:
                words += [option, deep]
            assert "unexpected" not in run(*words, code=1).stderr


class TestErrors:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                {"--database": "dya"},
                "`database` must name a column of the source, got 'dya'. Hint: did you mean 'day'?",
            ),
            ({"--individual": "cleint"}, "Hint: did you mean 'client'?"),
            ({"--query": "avg(amonut)"}, "Hint: did you mean 'amount'?"),
            ({"--query": "avg("}, "The query must be SQL that can be parsed"),
            ({"sales.csv": "none.csv"}, "The file must exist, got 'none.csv'."),
            ({"sales.csv": "none*.csv"}, "The file must match a file, got 'none*.csv'."),
            ({"sales.csv": "sales.xlsx"}, "Hint: save the sheet as CSV"),
            ({"sales.csv": "sales.feather"}, "`source` must be a file whose name ends in"),
            ({"sales.csv": "sales.sqlite"}, "An SQLite file must be given with its table. Hint: --table"),
            ({"sales.csv": "postgresql://u:p@h/d"}, "A PostgreSQL server must be given with a table or a SELECT."),
        ],
    )
    def test_errors_are_one_line(self, run: Run, change: dict[str, str], words: str) -> None:
        arguments = list(AUDIT)
        for name, value in change.items():
            arguments[arguments.index(name) + name.startswith("--")] = value
        result = run(*arguments, code=1)
        assert result.stderr.startswith("Error: ")
        sentence, *place = result.stderr.splitlines()
        assert words in sentence
        # Of a query the line is shown below, and a caret where it goes wrong.
        assert [line.strip() for line in place] == ([change["--query"], "^"] if "--query" in change else [])
        assert result.stdout == ""

    @pytest.mark.parametrize(
        ("extra", "words"),
        [
            (("--epsilon", "-1"), "must be numbers of at least 0"),
            (("--epsilon", "a"), "must be numbers of at least 0"),
            (("--epsilon", "nan"), "must be numbers of at least 0"),
            (("--epsilon", ""), "must be numbers of at least 0"),
            (("--target", "delta is large"), "must read like"),
            (("--unidentified", "maybe"), "is not one of"),
            (("--individual", "a,,b"), "must be a column"),
            (("--table", "=clients.csv"), "or read NAME=PATH"),
            (("--top", "-1"), "--top"),
            (("--colour",), "No such option"),
            (("--config", "none.toml"), "`config` must be a file that can be read"),
        ],
    )
    def test_wrong_usage_has_its_code(self, run: Run, extra: tuple[str, ...], words: str) -> None:
        result = run(*AUDIT, *extra, code=2)
        assert words in result.stderr
        assert "Traceback" not in result.stderr

    @pytest.mark.parametrize("missing", ["--individual", "--query", "FILES"])
    def test_what_is_missing_is_named(self, run: Run, missing: str) -> None:
        arguments = list(AUDIT)
        at = 1 if missing == "FILES" else arguments.index(missing)
        del arguments[at : at + (1 if missing == "FILES" else 2)]
        assert missing in run(*arguments, code=2).stderr

    def test_an_unexpected_error_shows_no_data(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise KeyError("secret1")

        monkeypatch.setattr("empriv.auditing.make_audit.measure", fail)
        result = run(*AUDIT, code=1)
        assert result.stderr.startswith("Error: unexpected KeyError in test_cli.py, line ")
        assert result.stderr.count("\n") == 1
        assert "secret" not in result.output
        monkeypatch.setenv("EMPRIV_TRACEBACK", "1")
        assert "Traceback" in run(*AUDIT, code=1).stderr


class TestFiles:
    @pytest.mark.slow
    def test_json_holds_the_figures_and_nobody(self, run: Run) -> None:
        target = ("--target", "delta <= 0.9 at 0.1", "--presence", "random")
        run(*AUDIT, "--json", "a.json", *target, "--epsilon", "0.05,0.1,0.2", "--show-ids")
        content = json.loads(Path("a.json").read_text(encoding="utf-8"))
        data = empriv.databases("sales.csv", database="day", individual="client")
        made = empriv.audit(data, "avg(amount)").to_json()
        assert {*content, *content["verdicts"][0], *content["not_numbers"]} <= set(
            re.findall(r"`(\w+)`", (DOCS / "formats.md").read_text(encoding="utf-8"))
        )
        assert content.pop("verdicts")[0]["verdict"] == "pass"
        assert content.pop("decision")["word"] == "Publish"
        assert content == made
        assert "secret" not in json.dumps(content)
        assert stat.S_IMODE(Path("a.json").stat().st_mode) == 0o600

    def test_json_on_stdout_is_json_alone(self, run: Run) -> None:
        assert json.loads(run(*AUDIT, "--json", "-").stdout)["n_individuals"] == 6

    @pytest.mark.slow
    def test_show_says_the_same_words(self, run: Run) -> None:
        shown = run(*AUDIT, "--save", "a.empriv", "--top", "0").stdout
        assert stat.S_IMODE(Path("a.empriv").stat().st_mode) == 0o600
        assert shown.endswith("Wrote a.empriv.\n")
        assert run("show", "a.empriv", "--top", "0").stdout == shown.removesuffix("Wrote a.empriv.\n")
        other = run("show", "a.empriv", "--epsilon", "0.7", "--json", "b.json", "-v").stdout
        assert "At epsilon 0.7" in other
        assert [figure["epsilon"] for figure in json.loads(Path("b.json").read_text())["figures"]] == [0.7]
        run("show", "a.empriv", "--target", "delta <= 0 at 0.01", code=3)

    def test_show_audits_saved_results(self, run: Run) -> None:
        empriv.Results.from_arrays([1.0, 2.0, 4.0], [[0.9, 2.0, 3.8]]).save("r.empriv")
        assert "3 databases" in run("show", "r.empriv").stdout

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"nothing of the kind"])
    def test_show_refuses_what_is_not_a_saved_audit(self, run: Run, content: bytes) -> None:
        Path("a.empriv").write_bytes(content)
        assert "was not written by empriv" in run("show", "a.empriv", code=1).stderr
        assert run("show", "none.empriv", code=1).stderr == "Error: 'none.empriv': No such file or directory.\n"

    @pytest.mark.slow
    def test_a_written_config_repeats_the_run(self, run: Run) -> None:
        Path("b.toml").write_text('density = "gaussian:0.2"')
        asked = ("--config", "b.toml", "--epsilon", "0.3", "--top", "0", "--write-config", "a.toml")
        first = run(*AUDIT, *asked)
        assert "gaussian:0.2" in Path("a.toml").read_text()
        assert run("audit", "--config", "a.toml").stdout == first.stdout.removesuffix("Wrote a.toml.\n")
        other = run("audit", "--config", "a.toml", "--epsilon", "0.4", "-v").stdout
        assert "At epsilon 0.4" in other
        Path("a.toml").write_text('density = "lorentz"')
        assert "`density` must be a kernel" in run(*AUDIT, "--config", "a.toml", code=2).stderr

    @pytest.mark.parametrize("option", ["--json", "--save", "--write-config"])
    def test_where_output_cannot_go_is_said_before_the_work(self, run: Run, option: str) -> None:
        Path("folder").mkdir()
        before = Path("sales.csv").read_bytes()
        for path, words in (
            ("none/a.out", "a directory that exists, got 'none/a.out'"),
            ("folder", "Output must go to a file, got 'folder'"),
            ("/dev/null", "Output must go to a file, got '/dev/null'"),
            ("sales.csv", "Output must not replace what is read, got 'sales.csv'"),
        ):
            result = run(*AUDIT, option, path, code=1)
            assert words in result.stderr
            assert result.stdout == ""
        assert Path("sales.csv").read_bytes() == before
        assert "one path twice" in run(*AUDIT, "--json", "x", "--save", "./x", code=1).stderr

    def test_a_file_that_cannot_be_written_after_all_loses_nothing(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("a.empriv").write_text("what was there")

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        result = run(*AUDIT, "--save", "a.empriv", code=1)
        assert "avg(amount) was asked of 45 databases" in result.stdout
        assert result.stderr == (
            "Error: Output must go to a file that can be written, got 'a.empriv': No space left on device.\n"
        )
        assert Path("a.empriv").read_text() == "what was there"
        assert not [path for path in Path().iterdir() if path.suffix == ".tmp"]


class TestExitCodes:
    def test_files_are_written_although_it_failed(self, run: Run) -> None:
        asked = ("--target", "delta <= 0 at 0.01", "--paper")
        run(*AUDIT, *asked, "--json", "a.json", "--save", "a.empriv", code=3)
        assert json.loads(Path("a.json").read_text())["verdicts"][0]["verdict"] == "fail"
        assert isinstance(empriv.load("a.empriv"), empriv.Audit)


class TestExplain:
    def test_with_and_without_data(self, run: Run) -> None:
        assert "SELECT" in run("explain", "--query", "avg(amount)").stdout
        with_data = run("explain", *AUDIT[1:]).stdout
        assert "empriv_individual" in with_data
        assert with_data == explain(
            empriv.databases("sales.csv", database="day", individual="client"), "avg(amount)"
        ) + "\n"  # fmt: skip

    def test_what_is_missing_is_named(self, run: Run) -> None:
        assert "--query" in run("explain", code=2).stderr
        assert "--individual" in run("explain", "sales.csv", "--query", "avg(amount)", code=2).stderr


def _empriv(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "empriv", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", **environment},
        check=False,
    )


class TestProcesses:
    @pytest.mark.slow
    def test_the_demo_decides_writes_its_page_and_says_how_to_go_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        done = _empriv("demo", PYTHONIOENCODING="utf-8", COLUMNS="80")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) <= 20
        command = next(line for line in lines if " advise " in line)
        assert max(len(line) for line in lines if line != command) <= 80
        assert lines[0] == "Do not publish as it is"
        assert "one aircraft moved it by 4.23 min" in " ".join(lines)
        assert "without each of 193 individuals" in done.stdout
        instead = re.search(
            r"Instead: cap what each aircraft adds, and add a little noise \((±\S+ min) in", " ".join(lines)
        )
        assert instead is not None
        *_, saved, wrote = lines
        key = "Wrote empriv-demo.html; empriv-demo.key.json tells who is who."
        assert [saved, wrote] == ["Wrote empriv-demo.empriv.", key]
        page = Path("empriv-demo.html").read_text(encoding="utf-8")
        assert "avg(delay)" in page
        assert lines[0] in html.unescape(page)  # both decide alike
        again = CliRunner().invoke(main, shlex.split(command.partition("empriv ")[2]))
        assert again.exit_code == 0, again.output
        assert again.output.startswith("Cap each aircraft at ")
        assert instead[1] in again.output

    @pytest.mark.slow
    def test_errors_and_usage(self, tmp_path: Path) -> None:
        missing = _empriv("show", str(tmp_path / "none"))
        assert (missing.returncode, missing.stdout) == (1, "")
        assert missing.stderr.splitlines()[-1] == "Error: 'none': No such file or directory."
        assert _empriv("nonsense").returncode == 2
        assert _empriv("--version").stdout == "empriv 0.1.0\n"
        assert _empriv("--help").returncode == 0

    @pytest.mark.slow
    @pytest.mark.usefixtures("run")
    def test_ctrl_c_stops_at_once_and_leaves_no_file(self, tmp_path: Path) -> None:
        # A query that runs once per individual, slowly.
        query = "SELECT sum(a.amount * sin(b.range)) FROM (SELECT * FROM data LIMIT 9) a, range(3000000) b"
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "empriv", *AUDIT[:-1], query, "--save", "a.empriv"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)},
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while not list(temporary.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert out == ""
        assert err.strip().splitlines()[-1] == "Interrupted: no file is half-written."
        assert "Traceback" not in err
        assert not list(temporary.iterdir())
        assert not Path("a.empriv").exists()


class TestVerdicts:
    """Six individuals in 45 databases: their average and their sum move a lot without any of them."""

    def test_a_target_that_fails_comes_first_and_exits_with_3(self, run: Run) -> None:
        asked = (*AUDIT[:-1], "sum(amount)", "--target", "delta <= 0.001 at 0.05", "--json", "a.json", "-v")
        result = run(*asked, code=3)
        assert result.output.startswith("Do not publish as it is\n")
        assert "Verdict on delta <= 0.001 at 0.05: FAIL." in result.output
        judged = "By the paper's definition: fail; at 95% confidence: fail."
        assert judged in result.output
        found = json.loads(Path("a.json").read_text(encoding="utf-8"))
        assert found["decision"]["line"] == "Do not publish as it is"
        assert found["decision"]["reason"] in " ".join(result.output.split())
        assert found["verdicts"][0]["verdict"] == "fail"
        documented = set(re.findall(r"`(\w+)`", (DOCS / "formats.md").read_text(encoding="utf-8")))
        assert {*found["verdicts"][0], *found["bounds"][0], *found["checks"][0]} <= documented
        assert not any(one in json.dumps(found) for one in ("secret", ":smile:"))

    @pytest.mark.slow
    def test_what_the_bound_cannot_settle_exits_with_4_and_the_estimate_may_settle_it(self, run: Run) -> None:
        # at a large epsilon the estimate is next to nothing, and 45 databases support no delta below 0.064
        target = ("--target", "delta <= 0.01 at 6", "--presence", "random")
        result = run(*AUDIT, *target, "-v", code=4)
        assert "at 95% confidence: unresolved" in " ".join(result.output.split())
        run(*AUDIT, *target, "--paper")
        run(*AUDIT[:-1], "sum(amount)", *target, "--target", "total_risk <= 0 at 0.01", "--quiet", code=3)

    @pytest.mark.slow
    def test_the_bounds_are_said(self, run: Run) -> None:
        said = " ".join(run(*AUDIT, "-v").output.split())
        for words in ("Upper bound (95%, conditional): delta ≤", "Lower bound (95%, approximate): delta ≥"):
            assert words in said
