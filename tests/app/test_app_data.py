"""The step Data: what its form writes, shows live, keeps and refuses."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from html import unescape
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from app.conftest import FORM, Made, RunningDesk, Step, Visitor, chosen, sales
from empriv.cli.check import check
from empriv.collecting.run_query import tables_inside
from empriv.errors import EmprivError

pytestmark = pytest.mark.slow  # questions are asked of worker processes

HOSTILE = "<img src=x onerror=alert(1)> \"q\" 's' -- " + "very long " * 20 + "end"
QUOTED = HOSTILE.replace('"', '""')
ELSEWHERE = {"unidentified": "drop", "timezone": "Europe/Paris"}
WEEK, HOUR = "date_trunc('week', day)", "date_trunc('hour', t)"


@pytest.fixture
def step(of: Made) -> Step:
    return of(sales(days=40, people=8))


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"individual": "absent"}, "individual", "Whom a row belongs to must be"),
        ({"database": "client"}, "database", "each person would be a database"),
        ({"database": ":samples", "subsamples": "1"}, "subsamples", "from 2 to"),
        ({"database": ":samples", "fraction": "<b>2"}, "fraction", "between 0 and 1"),
        ({"database": ":sql", "expression": "absent + 1"}, "database", "must name a column"),
        ({"database": ":sql", "expression": "(SELECT 1)"}, "database", "must"),
        ({"database": ":files"}, "database", "must be chosen"),  # there is one
        ({"database": ""}, "database", "must be chosen"),
        ({"database": "date_trunc('hour', day)"}, "database", "must be chosen"),  # of dates
        ({"timezone": "Mars/Olympus"}, "timezone", "must be the name of a time zone"),
        ({"column": "client"}, "column", "must hold numbers"),
        ({"measure": "variance"}, "measure", "must be one of"),
        ({"measure": "rate"}, "holds", "must say which rows"),
        ({"by": "client"}, "query", "must not group by what identifies"),
        ({"mode": "sql", "query": "avg(absent)"}, "query", "does not exist"),
        ({"mode": "sql", "query": "SELEC"}, "query", "The query"),
        ({"mode": "sql", "query": ""}, "query", "must be SQL"),
        ({"mode": "sql", "query": "SELECT count(*) FROM read_csv('/etc/passwd')"}, "query", "must"),
        ({"unit": "x" * 99}, "unit", "must be a short name"),
    ],
)
def test_what_is_refused_is_said_beside_its_field_and_kept(
    step: Step, fields: dict[str, str], field: str, says: str
) -> None:
    before = step.file.read_bytes()
    answer = step.send(**{"holds_value": "kept", **fields})
    assert answer.status == 400
    wrong = re.search(rf'id="wrong-{field}"[^>]*>([^<]*)<', answer.text)
    assert wrong
    assert says in unescape(wrong[1])
    assert step.file.read_bytes() == before
    assert 'value="kept"' in answer.text
    assert "<b>2" not in answer.text
    for typed in (fields.get(name, "") for name in ("query", "expression", "fraction")):
        assert typed in unescape(answer.text)


class TestWhoAndWhen:
    def test_what_is_likeliest_is_suggested_and_nothing_is_written(self, step: Step) -> None:
        before = step.file.read_bytes()
        assert step.visitor.get(step.path).status == 200
        assert chosen(step.page(), "individual") == ["client"]
        assert chosen(step.page(), "database") == ["day"]
        assert step.file.read_bytes() == before

    def test_counts_and_the_smallest_delta_that_they_support(self, step: Step) -> None:
        assert "40 days, 8 people: enough for delta ≥ 0.072." in step.live()  # 1 - 0.05^(1/40) = 0.0722
        weeks = step.live(database=WEEK)
        assert "6 weeks, 8 people" in weeks
        assert "6 databases give no upper bound" in weeks
        samples = step.live(database=":samples", subsamples="59")
        assert "59 random samples, 8 people: enough for delta ≥ 0.05." in samples
        assert "secret" in samples or "who was sampled" in samples

    @pytest.mark.parametrize(
        ("fields", "written"),
        [
            ({}, {"individual": ("client",), "database": "day"}),
            ({"database": WEEK}, {"database": WEEK}),
            ({"database": "region"}, {"database": "region"}),
            ({"database": ":samples", "subsamples": "50", "fraction": "0.25"}, {"subsamples": 50, "fraction": 0.25}),
            ({"database": ":sql", "expression": "dayofyear(day)"}, {"database": "dayofyear(day)"}),
            (ELSEWHERE, ELSEWHERE),
        ],
    )
    def test_what_is_chosen_is_written_and_shown_again(
        self, step: Step, fields: dict[str, str], written: dict[str, Any]
    ) -> None:
        assert step.send(follow=False, **fields).headers["location"] == f"/audits/{step.name}/promise"
        assert {key: getattr(step.settings, key) for key in written} == written
        assert chosen(step.page(), "database") == [fields.get("database", "day")]

    def test_several_columns_may_say_who(self, step: Step) -> None:
        step.send(("individual", "region"))
        assert step.settings.individual == ("client", "region")
        assert set(chosen(step.page(), "individual")) == {"client", "region"}

    def test_rows_without_a_person_are_a_choice(self, of: Made) -> None:
        step = of(sales(days=35, people=4) + b"2024-01-03,,5.0,north\n")
        assert re.search(r"\b1 of [\d,]+ rows have no person", step.live())
        answer = step.send()
        assert (answer.status, 'id="wrong-unidentified"' in answer.text) == (400, True)
        assert step.send(follow=False, unidentified="keep").status == 303

    def test_ids_that_look_like_row_numbers(self, of: Made) -> None:
        rows = b"transaction_id,day,x\n" + b"".join(b"%d,2024-01-%02d,1\n" % (k, 1 + k % 28) for k in range(56))
        said = of(rows).live(individual="transaction_id")
        assert "does it number rows, rather than people?" in said

    def test_dates_that_could_be_swapped_are_refused_with_a_hint(self, of: Made) -> None:
        step = of(b"client;day;x\n" + b"".join(b"p%d;0%d/01/2026;1,5\n" % (k % 5, 1 + k % 9) for k in range(40)))
        for shown in map(unescape, (step.piece("preview"), step.piece("form"))):
            assert "Dates must tell the day from the month" in shown
            assert "Hint:" in shown
        assert step.send().status == 400

    def test_values_that_are_in_one_database_each_are_no_people(self, of: Made) -> None:
        """A basket is bought once, a household comes back: the one that comes back is suggested."""
        rows = [f"{40 * day + k},2024-01-{1 + day:02d},h{k},1.5" for day in range(31) for k in range(20) for _ in "ab"]
        step = of("\n".join(["basket_id,day,household,amount", *rows]).encode())
        assert chosen(step.page(), "individual") == ["household"]
        right, wrong = step.live(individual="household"), step.live(individual="basket_id")
        assert "31 days, 20 people" in right
        assert "A person is in 31 of them on average." in right
        assert "rather than people" not in right
        assert "620 people" in wrong
        assert "Nobody is in more than one database." in wrong

    def test_each_file_may_be_a_database(self, desk: RunningDesk, visitor: Visitor) -> None:
        for number in range(3):
            (desk.folder / f"ward-{number}.csv").write_text("client,x\n" + "".join(f"p{k},{k}\n" for k in range(9)))
        (desk.folder / "wards.toml").write_text('files = ["ward-*.csv"]')
        step = Step(desk, visitor, "wards", {**FORM, "database": ":files", "column": "x"})
        assert "Each file (3)" in step.page()
        assert "3 files, 9 people" in step.live()
        step.send()
        assert step.settings.database is None
        assert chosen(step.page(), "database") == [":files"]

    def test_moments_need_a_time_zone(self, of: Made) -> None:
        rows = b"".join(b"p%d,2024-01-%02dT23:30:00Z,1\n" % (k % 5, 1 + k % 28) for k in range(99))
        step = of(b"client,at,x\n" + rows)
        assert "Europe/Paris" in step.page()
        assert "Days begin at midnight in UTC" in step.live(database="date_trunc('day', \"at\")")

    def test_readings_are_cut_into_hours(self, of: Made) -> None:
        times = [
            f"2024-03-{day:02d} {hour:02d}:30:00,m{k},1.5" for day in range(1, 4) for hour in range(24) for k in "ab"
        ]
        step = of("\n".join(["t,meter,kwh", *times]).encode())
        fields = {"individual": "meter", "database": HOUR, "column": "kwh"}
        told = step.live(**fields)
        assert "72 hours, 2 people" in told
        assert "From 2024-03-01 to 2024-03-03 23:00:00." in told
        step.send(**fields)
        assert step.settings.database == HOUR

    @pytest.mark.parametrize(("content", "says"), [(b"a,b\n", "must hold rows"), (b"", "is empty")])
    def test_a_table_without_rows(self, of: Made, content: bytes, says: str) -> None:
        step = of(content)
        assert says in step.piece("form")
        assert says in step.page()

    def test_one_row_and_no_column_that_fits(self, of: Made) -> None:
        step = of(b"a,a\ntrue,false\n")
        page, said = step.page(), step.live(individual="a", database=":samples")
        for sentence in ("No column looks like it", "No column holds dates", "No column holds numbers"):
            assert sentence in page
        assert "365 random samples, 1 person" in said
        assert "several people" in said

    def test_files_outside_the_folder_are_not_read(self, desk: RunningDesk, visitor: Visitor, tmp_path: Path) -> None:
        outside = tmp_path / "secret.csv"
        outside.write_text("client,day\nmrs-secret,2024-01-01\n")
        for number, source in enumerate([str(outside), f"SELECT * FROM '{outside}'", f"{tmp_path}/*.csv"]):
            (desk.folder / f"evil-{number}.toml").write_text(f"files = [{json.dumps(source)}]")
            step = Step(desk, visitor, f"evil-{number}", FORM)
            for shown in (step.piece("preview"), step.piece("form")):
                assert "must be" in shown
                assert "mrs-secret" not in shown
                assert "client" not in shown

    def test_nothing_chosen_yet_and_settings_that_changed_elsewhere(self, step: Step) -> None:
        answer = step.send(seen="0" * 16)
        assert (answer.status, "changed elsewhere" in answer.text) == (409, True)
        step.file.write_text("top = 3\n")
        assert "must be chosen first" in step.piece("form")
        assert step.visitor.get(f"/audits/{step.name}/promise").status == 200


class TestStatistic:
    @pytest.mark.parametrize(
        ("fields", "sql", "gives"),
        [
            ({}, "avg(amount)", "one number"),
            ({"measure": "count", "by": "region"}, "SELECT region, count(*) FROM data GROUP BY region", "2 numbers"),
            ({"measure": "people"}, "count(DISTINCT client)", "one number"),
            (
                {"measure": "rate", "holds_column": "region", "holds_value": "it's"},
                "avg(CASE WHEN region = 'it''s' THEN 1.0 ELSE 0.0 END)",
                "one number",
            ),
            ({"mode": "sql", "query": " sum(amount) / count(*) "}, "sum(amount) / count(*)", "one number"),
        ],
    )
    def test_the_sql_is_shown_written_and_its_choices_are_remembered(
        self, ready: Step, fields: dict[str, str], sql: str, gives: str
    ) -> None:
        said = ready.live(**fields)
        assert sql in said
        assert gives in said
        ready.send(**fields, unit="€")
        assert (ready.settings.query, ready.settings.unit) == ((sql,), "€")
        page = ready.page()
        assert chosen(page, "mode") == [fields.get("mode", "build")]
        if "measure" in fields:
            assert chosen(page, "measure") == [fields["measure"]]
        assert f'value="{fields.get("holds_value", "")}"' in unescape(page)

    def test_a_query_of_another_hand_is_shown_as_sql(self, ready: Step) -> None:
        ready.send()
        toml = ready.file.read_text()
        ready.file.write_text(toml.replace('"avg(amount)"', '"max(amount) </textarea>"'))
        assert chosen(ready.page(), "mode") == ["sql"]
        assert "max(amount) &lt;/textarea&gt;" in ready.page()
        ready.file.write_text(toml)
        memory = ready.desk.folder / ".empriv-app" / "built" / f"{ready.name}.json"
        for broken in ("{", "[]", '{"avg(amount)": {"where": 3}}', '{"avg(amount)": {"holds": [], "where": [[1]]}}'):
            memory.write_text(broken)
            assert chosen(ready.page(), "mode") == ["sql"]

    def test_conditions(self, ready: Step) -> None:
        def conditions(day: str) -> list[tuple[str, str]]:
            rows = [("region", "is one of", "north, south"), ("", "=", ""), ("day", "≥", day)]
            return [(f"where_{part}", row[k]) for row in rows for k, part in enumerate(("column", "operator", "value"))]

        before = ready.file.read_bytes()
        more = ready.send(*conditions("2024-01-05"), do="more")
        assert (more.status, more.text.count('name="where_value"')) == (200, 4)
        assert 'value="north, south"' in more.text
        assert ready.file.read_bytes() == before
        ready.send(*conditions("2024-01-05"))
        (query,) = ready.settings.query
        assert query == "SELECT avg(amount) FROM data WHERE region IN ('north', 'south') AND day >= '2024-01-05'"
        assert "2024-01-05" in ready.page()
        wrong = ready.send(*conditions("soon"))
        assert wrong.status == 400
        assert "Condition 3 must be a date" in wrong.text
        assert 'id="wrong-where_2"' in wrong.text
        assert 'value="soon"' in wrong.text

    def test_a_component_is_of_its_query_and_several_queries_are_left_alone(self, ready: Step) -> None:
        ready.send()
        ready.file.write_text(f'component = "avg(amount)"\n{ready.file.read_text()}')
        ready.send()
        assert ready.settings.component == "avg(amount)"  # nothing has changed
        ready.send(measure="sum")
        assert (ready.settings.query, ready.settings.component) == (("sum(amount)",), None)
        ready.file.write_text(ready.file.read_text().replace('"sum(amount)"', '["sum(amount)", "count(*)"]'))
        assert "asks several queries together" in ready.visitor.get(ready.path).text
        assert ready.send().status == 400
        assert ready.settings.query == ("sum(amount)", "count(*)")


class TestNames:
    def test_of_several_lines(self, of: Made) -> None:
        rows = "".join(f"p{k % 5},2024-01-{1 + k % 28:02},{k},{k % 2}\n" for k in range(60))
        step = of(f'"the\nclient",day,"the\namount"," kind "\n{rows}'.encode())
        fields = {"individual": "the\r\nclient", "column": "the\r\namount"}
        step.send(**fields)
        assert step.settings.individual == ("the\nclient",)
        assert chosen(step.page(), "individual") == ["the\nclient"]
        assert "identifies" in step.send(**fields, by="the\r\nclient").text
        assert step.settings.query == ('avg("the\namount")',)
        assert chosen(step.page(), "mode") == ["build"]

    def test_hostile(self, of: Made) -> None:
        rows = "".join(f'"</option>{k % 3}",p{k % 7},2024-01-{1 + k % 28:02},{k},1\n' for k in range(200))
        step = of(f'"{QUOTED}",client,day,x,x\n{rows}'.encode())
        step.send(("individual", HOSTILE), column="x")
        assert step.settings.individual == ("client", HOSTILE)
        where = {"where_column": HOSTILE, "where_operator": "≠", "where_value": "'"}
        fields = {"column": "x", "by": HOSTILE, **where}
        assert "a table of 3 numbers" in step.live(**fields)
        step.send(**fields)
        (query,) = step.settings.query
        assert f'"{QUOTED}"' in query
        for page in (step.page(), step.live_html(**fields)):
            assert "<img" not in page
            assert "</option>0" not in page

    @pytest.mark.parametrize(("database", "count"), [("x y", 3), ('"""x y"""', 5)])
    def test_one_column_is_not_taken_for_another(self, of: Made, database: str, count: int) -> None:
        rows = "".join(f"p{k % 7},a{k % 3},b{k % 5}\n" for k in range(60))
        step = of(f'client,x y,"""x y"""\n{rows}'.encode())
        assert f"{count} databases, 7 people" in step.live(database=database, measure="count")
        step.send(database=database, measure="count")
        assert chosen(step.page(), "database") == [database]

    @pytest.mark.parametrize("place", [0, -3, -2], ids=["day", "column", "samples"])
    def test_the_command_line_takes_what_was_filled_in(
        self, of: Made, monkeypatch: pytest.MonkeyPatch, place: int
    ) -> None:
        rows = "".join(f'c{k % 3},"{k % 2}",2024-01-{1 + k % 28:02},{k}\n' for k in range(100))
        step = of(f'client of,"{QUOTED}",Jour de l\'année,x\n{rows}'.encode())
        offered = re.search(r'<select[^>]*name="database".*?</select>', step.page(), re.DOTALL)
        assert offered is not None
        database = unescape(re.findall(r'value="([^"]*)"', offered[0])[place])
        where = {"where_column": "x", "where_operator": "≥", "where_value": "0"}
        step.send(individual=HOSTILE, database=database, subsamples="40", column="x", **where)
        step.file.write_text(step.file.read_text() + 'target = ["delta <= 0.05 at 0.1"]\n')
        monkeypatch.chdir(step.desk.folder)
        outcome = CliRunner().invoke(check, [step.file.name, "--dry-run"])
        assert outcome.exception is None, outcome.output
        assert "is valid" in outcome.output
        assert chosen(step.page(), "database") == [database]


def test_a_database_file_asks_which_of_its_tables(desk: RunningDesk, visitor: Visitor) -> None:
    """Whoever uploads one need not know that a table must be named: one alone is taken, of several one is chosen."""
    one, two = (Step(desk, visitor, name, FORM) for name in ("ward1", "ward2"))
    for tables in (["stays"], ["patients", "stays <b>"]):
        path = desk.folder / f"ward{len(tables)}.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for table in tables:
                connection.execute(f'CREATE TABLE "{table}" (patient TEXT, day TEXT, cost REAL)')
                connection.execute(f"INSERT INTO \"{table}\" VALUES ('p', '2024-01-01', 2.5)")
            connection.commit()
        assert visitor.post("/new", {"way": "files", "files": path.name}).status == 200
    assert one.settings.table == "stays"
    asked = two.piece("form")
    assert 'value="patients"' in asked
    assert "stays &lt;b&gt;" in asked
    visitor.post(f"{two.path}/source", {"way": "table", "table": "stays <b>"}, page=two.path)
    assert two.settings.table == "stays <b>"
    assert '<td data-l="From">2.5</td>' in two.piece("preview")


def test_tables_of_a_duckdb_file_are_those_that_hold_rows(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE sales (x INT); CREATE SCHEMA s; CREATE TABLE s.more (x INT)")
        connection.execute("CREATE VIEW peeking AS SELECT * FROM sales")
    assert set(tables_inside(str(path))) == {"sales", "s.more"}
    path.write_bytes(b"no database")
    with pytest.raises(EmprivError):
        tables_inside(str(path))
