"""What errors and last lines suggest is what helps: options, keys of a file, and commands as they were typed."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from functools import cache
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import empriv
from empriv.cli.main import main
from empriv.cli.terminal import as_typed, program, quoted, with_keys, with_options

AUDIT = ("audit", "rows.parquet", "--database", "day", "--individual", "who")
TARGET = ("--target", "delta <= 0.05 at 0.5")


def run(*words: str) -> Result:
    done = CliRunner().invoke(main, list(words))
    assert "unexpected" not in done.output, done.output
    return done


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    rng, days, people = np.random.default_rng(0), 40, 12
    made = pd.DataFrame({"day": np.repeat(np.arange(days), people), "who": np.tile(np.arange(people), days)})
    made["amount"] = np.round(rng.gamma(2.0, 20.0, len(made)), 2)
    made.to_parquet("rows.parquet")
    return made


def next_command(done: Result) -> list[str]:
    found = re.findall(r"^  (empriv .*)$", done.output, re.MULTILINE)
    assert found, done.output
    return shlex.split(found[-1])[1:]


@pytest.mark.slow
@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    "asked",
    [
        ("--query", "sum(amount)", *TARGET),
        ("--query", "sum(amount)", *TARGET, "--target", "delta <= 0.01 at 0.5"),  # the stricter of both
        ("--query", "sum(amount)", "--target", "total_risk <= 0.01 at 0.5"),
        ("--query", "sum(amount)", *TARGET, "--times", "3"),
        ("--query", "SELECT sum(amount), max(amount) FROM data", *TARGET),
    ],
    ids=["one number", "two targets", "total risk", "several publications", "two numbers"],
)
def test_the_next_step_of_an_audit_runs(asked: tuple[str, ...]) -> None:
    done = run(*AUDIT, *asked, "--save", "a b.empriv")
    assert done.exit_code in (3, 4), done.output
    assert run(*next_command(done)).exit_code in (0, 3)


@pytest.mark.usefixtures("rows")
def test_init_outside_its_folder_names_a_check_that_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    begun = run("init", "../rows.parquet", "--write", "my audit.toml")
    assert begun.exit_code == 0, begun.output
    command = re.search(r"then (empriv check .*)$", begun.output, re.MULTILINE)
    assert command is not None
    assert "--trust-config" in command[1]
    assert run(*shlex.split(command[1])[1:]).exit_code == 0
    inside = run("init", str(Path("../rows.parquet").resolve()), "--write", "../audit.toml")
    assert "../audit.toml" in inside.output


def test_check_names_keys_of_the_file(rows: pd.DataFrame) -> None:
    rows["who"] = rows["who"].astype("Int64").mask(rows["who"] == 3)
    rows.to_parquet("rows.parquet")
    Path("audit.toml").write_text(
        "files = 'rows.parquet'\ndatabase = 'day'\nindividual = 'who'\nquery = 'sum(amount)'\n"
        "target = ['delta <= 0.9 at 1']\n"
    )
    refused = run("check", "audit.toml")
    assert refused.exit_code == 1
    key = re.search(r'(unidentified = "\w+") in the file', refused.output)
    assert key is not None, refused.output
    assert "--unidentified" not in refused.output
    Path("audit.toml").write_text(f"{key[1]}\n" + Path("audit.toml").read_text())
    assert run("check", "audit.toml").exit_code in (0, 3, 4)


def test_keys_stand_for_options_in_hints_alone() -> None:
    said = with_keys("No --times 3. Hint: --memory-limit 4GB.")
    assert said == 'No --times 3. Hint: memory_limit = "4GB" in the file.'


@pytest.mark.parametrize(
    ("started", "said"),
    [("venv/bin/empriv", "venv/bin/empriv"), ("/somewhere/pytest", "empriv"), ("/a b/empriv", "'/a b/empriv'")],
)
def test_commands_begin_as_they_were_typed(started: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    assert as_typed("empriv audit x && empriv noise y") == f"{said} audit x && {said} noise y"


def test_a_module_is_run_by_the_python_that_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/site-packages/empriv/__main__.py"])
    assert program().endswith(" -m empriv")
    assert Path(program().split()[0]).name == Path(sys.executable).name


@cache
def hints() -> dict[str, str]:
    """Each text after "Hint:" in the source, as the command line prints it, with the file that has it last."""
    found = {}
    root = Path(empriv.__file__).parent
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text())
        within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):  # what is put in stands for a word
                parts = [part.value if isinstance(part, ast.Constant) else "WORD" for part in node.values]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
                parts = [node.value]
            else:
                continue
            before, hint, _ = (text := " " + "".join(map(str, parts))).partition(" Hint: ")
            if hint:
                found[with_options(text).removeprefix(before)] = str(path.relative_to(root))
    return found


def commands_in_hints() -> list[str]:
    """Each command that a hint names."""
    named = (re.findall(r"\bempriv(?: -*[\w./-]+)+", hint) for hint in hints())
    return sorted({match.strip(" .") for matches in named for match in matches})


# Where only Python comes: functions of the user's own, Spark, and values that no command takes.
PYTHON_ALONE = re.compile(
    r"collecting/(function_|engines/spark/)|protocols/|datasets|measuring/densities/|"
    r"measuring/tables/table_risk|collecting/assemble|measuring/given/definition4|collecting/run_query|"
    r"auditing/(make_audit|updating)|noise/noise.py|noise/judging|auditing/(chunked|memory|totals)|validate/(checks|covers)|ledger/values"
)


@pytest.mark.slow
def test_hints_name_options_on_the_command_line_and_no_arguments_of_python() -> None:
    options = {option for command in every_command() for option in options_of(command)}
    assert len(options) > 60
    seen, wrong = set(), []
    argument = re.compile(r"\b[a-z_]+=(?!\[)|`(?!data`)[a-z_]+`")
    for hint, path in hints().items():
        seen |= set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", hint))
        for_all = PYTHON_ALONE.match(path) is None and "in Python" not in hint and "a Python function" not in hint
        if for_all and argument.search(re.sub(r'"SELECT.*?"', "", hint)):
            wrong.append((path, hint))
    assert not wrong
    assert len(seen) > 15
    assert seen <= options, seen - options


def every_command(group: click.Group = main) -> list[click.Command]:
    below = [command for command in (group.get_command(click.Context(group), name) for name in group.list_commands(
        click.Context(group))) if command is not None]  # fmt: skip
    return [one for each in below for one in (every_command(each) if isinstance(each, click.Group) else [each])]


def options_of(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.slow
def test_every_command_in_a_hint_is_one() -> None:
    named = commands_in_hints()
    assert len(named) > 8, named
    wrong = [text for text in named if not is_command(text.split()[1:])]
    assert not wrong
    assert not is_command(["leger", "verify"])
    assert not is_command(["release", "--row", "FILE"])


def is_command(words: list[str]) -> bool:
    """Whether the first words name a command, and the options after it are its own."""
    command: click.Command = main
    while isinstance(command, click.Group):
        if not words or (found := command.get_command(click.Context(command), words[0])) is None:
            return False
        command, words = found, words[1:]
    own = options_of(command)
    return all(word in own for word in words if word.startswith("--"))


@pytest.mark.parametrize(
    ("query", "hint", "better"),
    [
        ("avg(late)", "CAST(late AS INTEGER) makes 1 and 0 of it", "avg(CAST(late AS INTEGER))"),
        ("sum(order)", 'needs double quotes: sum("order")', 'sum("order")'),
    ],
    ids=["an average of yes and no", "a word of SQL as a name"],
)
def test_a_refused_query_says_what_to_write(rows: pd.DataFrame, query: str, hint: str, better: str) -> None:
    rows.assign(late=rows["amount"] > 40, order=rows["amount"]).to_parquet("rows.parquet")
    refused = run(*AUDIT, "--query", query)
    assert refused.exit_code == 1
    assert hint in refused.output
    assert run(*AUDIT, "--query", better).exit_code == 0


@pytest.mark.slow
def test_a_table_whose_cells_come_and_go_is_asked_for_cell_by_cell(rows: pd.DataFrame) -> None:
    """Noise hides no row that one person makes; counts of each kind, 0 where there is none, are a table it can hide."""
    rows["colour"] = np.where((rows["who"] == 3) & (rows["day"] % 5 == 0), "rare", "usual")
    rows.to_parquet("rows.parquet")
    query = "SELECT colour, count(*) FROM data GROUP BY colour"
    grouped = run(*AUDIT, "--query", query, *TARGET, "--save", "g.empriv")
    assert grouped.exit_code == 3
    said = " ".join(grouped.output.split())
    assert "Next: ask for each cell by itself" in said
    assert "count(*) FILTER (WHERE colour = 'a') AS a, ... in place of GROUP BY colour" in said
    cells = ", ".join(f"count(*) FILTER (WHERE colour = '{kind}') AS {kind}" for kind in ("rare", "usual"))
    run(*AUDIT, "--query", f"SELECT {cells} FROM data", *TARGET, "--save", "c.empriv")
    assert run("noise", "c.empriv", "--epsilon", "0.5", "--delta", "0.05").exit_code == 0


@pytest.mark.slow
def test_noise_is_not_suggested_for_tables_of_databases_that_are_not_alike(rows: pd.DataFrame) -> None:
    """`empriv noise` saves none for them."""
    wild = rows["day"] >= 20
    rows["amount"] = np.where(wild, rows["amount"] * (1 + 9 * (rows["day"] % 3)), 40 + rows["amount"] / 40)
    rows["other"] = rows["amount"] * np.random.default_rng(1).uniform(0.9, 1.1, len(rows))
    rows.to_parquet("rows.parquet")
    audited = run(*AUDIT, "--query", "sum(amount)", "--query", "sum(other)", *TARGET, "--save", "a.empriv")
    assert "Next: the databases are not alike, which no noise mends" in " ".join(audited.output.split())
    refused = run("noise", "a.empriv", "--epsilon", "0.5", "--delta", "0.05", "--save", "n.empriv")
    assert "The noise is not saved" in " ".join(refused.output.split())
    assert not Path("n.empriv").exists()


def test_numbers_that_come_and_go_are_asked_for_as_0(rows: pd.DataFrame) -> None:
    rows["amount"] = rows["amount"].where((rows["who"] == 3) & (rows["day"] % 5 != 0))
    rows.to_parquet("rows.parquet")
    said = " ".join(run(*AUDIT, "--query", "count(*)", "--query", "sum(amount)", *TARGET).output.split())
    assert "Next: ask for numbers that are always there, such as coalesce(sum(x), 0)" in said


def test_databases_whose_previous_answers_are_not_known_are_not_called_too_few_that_there_are(
    rows: pd.DataFrame,
) -> None:
    rows[rows["day"] < 36].to_parquet("rows.parquet")
    said = " ".join(run(*AUDIT, "--query", "sum(amount)", *TARGET, "--known", "previous:7").output.split())
    assert (
        "Next: collect more databases: what readers know leaves 29 of the 36 to judge, and with fewer than 30" in said
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "way"),
    [("sum(amount)", "zero"), ("avg(amount)", "minimum"), ("median(amount)", "zero")],
)
def test_a_day_of_one_person_has_a_way_out(rows: pd.DataFrame, query: str, way: str) -> None:
    """Without its one person a day has no answer at all, which no noise hides: the query is changed first."""
    alone = (rows["day"] == 7) & (rows["who"] != 3)
    rows[~alone].to_parquet("rows.parquet")
    audited = run(*AUDIT, "--query", query, *TARGET, "--save", "a.empriv")
    assert audited.exit_code == 3
    assert "whether there is an answer" in audited.output
    words = next_command(audited)
    assert words[:2] == ["advise", "rows.parquet"]
    done = run(*words, "--json", "advice.json")
    assert done.exit_code == 0, done.output
    options = json.loads(Path("advice.json").read_text())["options"]
    place, option = next((k, each) for k, each in enumerate(options, start=1) if each["code"] == way)
    assert option["meets"]
    run(*words, "--write-config", "advice.toml", "--row", str(place))
    for command in option["command"].split(" && "):
        taken = run(*shlex.split(command)[1:])
        assert taken.exit_code in (0, 3, 4), taken.output
    assert "With it: pass" in taken.output


@pytest.mark.parametrize("word", ["day", "date_trunc('day', at)", 'the "day"', "a'b$c", "a b", "it's `x`"])
def test_words_are_quoted_for_a_shell(word: str) -> None:
    assert shlex.split(quoted(word)) == [word]


def test_a_move_from_one_number_to_another_is_said(rows: pd.DataFrame) -> None:
    """Everybody is there every day: whoever is away is given away, by an answer that is less by one."""
    said = run(*AUDIT, "--query", "count(*)", *TARGET)
    assert len(rows) == 480
    assert "number or not" not in said.output
    assert re.search(r"^\w+ +100% +1 +40$", said.output, re.MULTILINE), said.output
