"""The steps Data and Promise: what their forms write, show live, keep and refuse."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sqlite3
from html import escape, unescape
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from app.conftest import RunningDesk, Visitor, sales
from empriv.cli.check import check
from empriv.cli.config import Settings, read_config, settings_of
from empriv.collecting.run_query import tables_inside
from empriv.errors import EmprivError

HOSTILE = "<img src=x onerror=alert(1)> \"q\" 's' -- " + "very long " * 20 + "end"
WHO = {
    "individual": "client", "database": "day", "expression": "", "subsamples": "365", "fraction": "0.5",
    "unidentified": "error", "timezone": "",
}  # fmt: skip
MEAN = {
    "mode": "build", "measure": "mean", "column": "amount", "by": "", "holds_column": "", "holds_operator": "=",
    "holds_value": "", "query": "", "unit": "", "do": "save",
}  # fmt: skip


def audit_of(desk: RunningDesk, content: bytes, **settings: Any) -> str:
    """The name of a new audit of some rows."""
    name = f"a{len(list(desk.folder.glob('*.toml')))}"
    file = desk.folder / f"{hashlib.sha256(content).hexdigest()[:8]}.csv"
    if not file.exists():  # rows that were looked at are not looked at again
        file.write_bytes(content)
    lines = [f"files = [{json.dumps(file.name)}]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    (desk.folder / f"{name}.toml").write_text("\n".join(lines))
    return name


def settings(desk: RunningDesk, name: str) -> Settings:
    return settings_of(read_config(desk.folder / f"{name}.toml"), {})


@pytest.fixture
def name(desk: RunningDesk) -> str:
    return audit_of(desk, sales(days=40, people=8))


@pytest.fixture
def ready(desk: RunningDesk) -> str:
    """An audit for which it is said who and when."""
    return audit_of(desk, sales(days=40, people=8), individual=["client"], database="day")


def waiting(visitor: Visitor, path: str) -> str:
    """The page with its form, once rows were looked at."""
    return visitor.get(f"{path}{'&' if '?' in path else '?'}wait=1").text


def live(visitor: Visitor, path: str, page: str, fields: Any) -> str:
    """What is shown beside the form, as people read it."""
    given = whole(fields) if "/data" in path else fields
    return unescape(re.sub(r"<[^>]+>", "", visitor.post(path, given, page=page).text))


def whole(fields: Any) -> Any:
    """What the form of the step Data sends, if some of its fields are these."""
    given = list(fields.items()) if isinstance(fields, dict) else list(fields)
    names = {key for key, _ in given}
    return [*given, *((key, value) for key, value in {**WHO, **MEAN}.items() if key not in names)]


def send(visitor: Visitor, path: str, fields: Any, **more: Any) -> Any:
    return visitor.post(path, whole(fields), page=f"{path}{'&' if '?' in path else '?'}wait=1", **more)


def chosen(text: str, field: str) -> list[str]:
    """The values of a field that are checked or selected."""
    boxes = re.findall(rf'<input[^>]*name="{field}"[^>]*value="([^"]*)"[^>]* checked', text)
    select = re.search(rf'<select[^>]*name="{field}".*?</select>', text, re.DOTALL)
    return [unescape(v) for v in (boxes or re.findall(r'value="([^"]*)" selected', select[0] if select else ""))]


class TestWhoAndWhen:
    def test_what_is_likeliest_is_suggested_and_nothing_is_written(
        self, desk: RunningDesk, visitor: Visitor, name: str
    ) -> None:
        before = (desk.folder / f"{name}.toml").read_bytes()
        first = visitor.get(f"/audits/{name}/data")
        assert first.status == 200
        page = waiting(visitor, f"/audits/{name}/data")
        assert chosen(page, "individual") == ["client"]
        assert chosen(page, "database") == ["day"]
        assert (desk.folder / f"{name}.toml").read_bytes() == before

    def test_counts_and_the_smallest_delta_that_they_support(self, visitor: Visitor, name: str) -> None:
        path = f"/audits/{name}/data"
        said = live(visitor, f"{path}/live", f"{path}?wait=1", WHO)
        assert "40 days, 8 people: enough for delta ≥ 0.072." in said  # 1 - 0.05^(1/40) = 0.0722
        weeks = live(visitor, f"{path}/live", f"{path}?wait=1", {**WHO, "database": "date_trunc('week', day)"})
        assert "6 weeks, 8 people" in weeks
        assert "6 databases give no upper bound" in weeks
        samples = live(visitor, f"{path}/live", f"{path}?wait=1", {**WHO, "database": ":samples", "subsamples": "59"})
        assert "59 random samples, 8 people: enough for delta ≥ 0.05." in samples
        assert "secret" in samples or "who was sampled" in samples

    @pytest.mark.parametrize(
        ("fields", "written"),
        [
            ({}, {"individual": ("client",), "database": "day"}),
            ({"database": "date_trunc('month', day)"}, {"database": "date_trunc('month', day)"}),
            ({"database": "region"}, {"database": "region"}),
            ({"database": ":samples", "subsamples": "50", "fraction": "0.25"}, {"subsamples": 50, "fraction": 0.25}),
            ({"database": ":sql", "expression": "dayofyear(day)"}, {"database": "dayofyear(day)"}),
            (
                {"unidentified": "drop", "timezone": "Europe/Paris"},
                {"unidentified": "drop", "timezone": "Europe/Paris"},
            ),
        ],
    )
    def test_what_is_chosen_is_written_and_shown_again(
        self, desk: RunningDesk, visitor: Visitor, name: str, fields: dict[str, str], written: dict[str, Any]
    ) -> None:
        path = f"/audits/{name}/data"
        answer = send(visitor, path, {**WHO, **fields}, follow=False)
        assert answer.headers["location"] == f"/audits/{name}/promise"
        settled = settings(desk, name)
        assert {key: getattr(settled, key) for key in written} == written
        assert chosen(waiting(visitor, path), "database") == [fields.get("database", "day")]

    def test_several_columns_may_say_who(self, desk: RunningDesk, visitor: Visitor, name: str) -> None:
        fields = [*WHO.items(), ("individual", "region")]
        send(visitor, f"/audits/{name}/data", fields)
        assert settings(desk, name).individual == ("client", "region")
        assert set(chosen(waiting(visitor, f"/audits/{name}/data"), "individual")) == {"client", "region"}

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
        ],
    )
    def test_what_is_refused_is_said_beside_its_field_and_kept(
        self, desk: RunningDesk, visitor: Visitor, name: str, fields: dict[str, str], field: str, says: str
    ) -> None:
        before = (desk.folder / f"{name}.toml").read_bytes()
        answer = send(visitor, f"/audits/{name}/data", {**WHO, "subsamples": "77", **fields})
        assert answer.status == 400
        wrong = re.search(rf'id="wrong-{field}"[^>]*>([^<]*)<', answer.text)
        assert wrong
        assert says in unescape(wrong[1])
        assert (desk.folder / f"{name}.toml").read_bytes() == before
        if "subsamples" not in fields:
            assert 'value="77"' in answer.text
        for typed in ("absent + 1", "<b>2"):
            if typed in fields.values():
                assert escape(typed) in answer.text
                assert "<b>2" not in answer.text

    def test_rows_without_a_person_are_a_choice(self, desk: RunningDesk, visitor: Visitor) -> None:
        name = audit_of(desk, sales(days=35, people=4) + b"2024-01-03,,5.0,north\n")
        path = f"/audits/{name}/data"
        said = live(visitor, f"{path}/live", f"{path}?wait=1", WHO)
        assert "1 of" in said
        assert "rows have no person" in said
        answer = send(visitor, path, WHO)
        assert answer.status == 400
        assert 'id="wrong-unidentified"' in answer.text
        assert send(visitor, path, {**WHO, "unidentified": "keep"}, follow=False).status == 303

    def test_ids_that_look_like_row_numbers(self, desk: RunningDesk, visitor: Visitor) -> None:
        rows = b"transaction_id,day,x\n" + b"".join(b"%d,2024-01-%02d,1\n" % (k, 1 + k % 28) for k in range(56))
        name = audit_of(desk, rows)
        path = f"/audits/{name}/data"
        said = live(visitor, f"{path}/live", f"{path}?wait=1", {**WHO, "individual": "transaction_id"})
        assert "does it number rows, rather than people?" in said

    def test_dates_that_could_be_swapped_are_refused_with_a_hint(self, desk: RunningDesk, visitor: Visitor) -> None:
        rows = b"client;day;x\n" + b"".join(b"p%d;0%d/01/2026;1,5\n" % (k % 5, 1 + k % 9) for k in range(40))
        name = audit_of(desk, rows)
        for step in ("data/preview", "data/form"):
            shown = unescape(visitor.get(f"/audits/{name}/{step}").text)
            assert "Dates must tell the day from the month" in shown
            assert "Hint:" in shown
        assert send(visitor, f"/audits/{name}/data", WHO).status == 400

    def test_values_that_are_in_one_database_each_are_no_people(self, desk: RunningDesk, visitor: Visitor) -> None:
        """A basket is bought once, a household comes back: the one that comes back is suggested."""
        rows = [f"{40 * day + k},2024-01-{1 + day:02d},h{k},1.5" for day in range(31) for k in range(20) for _ in "ab"]
        name = audit_of(desk, "\n".join(["basket_id,day,household,amount", *rows]).encode())
        path = f"/audits/{name}/data"
        assert chosen(waiting(visitor, path), "individual") == ["household"]
        right = live(visitor, f"{path}/live", f"{path}?wait=1", {**WHO, "individual": "household"})
        assert "31 days, 20 people" in right
        assert "A person is in 31 of them on average." in right
        assert "rather than people" not in right
        wrong = live(visitor, f"{path}/live", f"{path}?wait=1", {**WHO, "individual": "basket_id"})
        assert "620 people" in wrong
        assert "Nobody is in more than one database." in wrong

    def test_each_file_may_be_a_database(self, desk: RunningDesk, visitor: Visitor) -> None:
        for number in range(3):
            (desk.folder / f"ward-{number}.csv").write_text("client,x\n" + "".join(f"p{k},{k}\n" for k in range(9)))
        (desk.folder / "wards.toml").write_text('files = ["ward-*.csv"]')
        path = "/audits/wards/data"
        assert "Each file (3)" in waiting(visitor, path)
        assert "3 files, 9 people" in live(visitor, f"{path}/live", f"{path}?wait=1", {**WHO, "database": ":files"})
        send(visitor, path, {**WHO, "database": ":files", "column": "x"})
        assert settings(desk, "wards").database is None
        assert chosen(waiting(visitor, path), "database") == [":files"]

    def test_moments_need_a_time_zone(self, desk: RunningDesk, visitor: Visitor) -> None:
        rows = b"client,at,x\n" + b"".join(b"p%d,2024-01-%02dT23:30:00Z,1\n" % (k % 5, 1 + k % 28) for k in range(99))
        name = audit_of(desk, rows)
        path = f"/audits/{name}/data"
        assert "Europe/Paris" in waiting(visitor, path)
        said = live(visitor, f"{path}/live", f"{path}?wait=1", {**WHO, "database": "date_trunc('day', \"at\")"})
        assert "Days begin at midnight in UTC" in said

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"a,b\n", "must hold rows"),
            (b"", "is empty"),
        ],
    )
    def test_a_table_without_rows(self, desk: RunningDesk, visitor: Visitor, content: bytes, says: str) -> None:
        name = audit_of(desk, content)
        assert says in visitor.get(f"/audits/{name}/data/form").text
        assert says in waiting(visitor, f"/audits/{name}/data")

    def test_one_row_and_no_column_that_fits(self, desk: RunningDesk, visitor: Visitor) -> None:
        name = audit_of(desk, b"a,a\ntrue,false\n")
        path = f"/audits/{name}/data"
        page = waiting(visitor, path)
        assert "No column looks like it" in page
        assert "No column holds dates" in page
        said = live(visitor, f"{path}/live", f"{path}?wait=1", {**WHO, "individual": "a", "database": ":samples"})
        assert "365 random samples, 1 person" in said
        assert "several people" in said
        assert "No column holds numbers" in waiting(visitor, f"/audits/{name}/data")

    def test_files_outside_the_folder_are_not_read(self, desk: RunningDesk, visitor: Visitor, tmp_path: Path) -> None:
        outside = tmp_path / "secret.csv"
        outside.write_text("client,day\nmrs-secret,2024-01-01\n")
        for number, source in enumerate([str(outside), f"SELECT * FROM '{outside}'", f"{tmp_path}/*.csv"]):
            (desk.folder / f"evil-{number}.toml").write_text(f"files = [{json.dumps(source)}]")
            for step in ("data/preview", "data/form"):
                shown = visitor.get(f"/audits/evil-{number}/{step}").text
                assert "must be" in shown
                assert "mrs-secret" not in shown
                assert "client" not in shown

    def test_nothing_chosen_yet(self, desk: RunningDesk, visitor: Visitor) -> None:
        (desk.folder / "bare.toml").write_text("top = 3\n")
        assert "must be chosen first" in visitor.get("/audits/bare/data/form").text
        assert visitor.get("/audits/bare/promise").status == 200

    def test_an_audit_that_was_changed_elsewhere(self, visitor: Visitor, name: str) -> None:
        answer = send(visitor, f"/audits/{name}/data", {**WHO, "seen": "0" * 16})
        assert answer.status == 409
        assert "changed elsewhere" in answer.text


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
        self, desk: RunningDesk, visitor: Visitor, ready: str, fields: dict[str, str], sql: str, gives: str
    ) -> None:
        path = f"/audits/{ready}/data"
        said = live(visitor, f"{path}/live", f"{path}?wait=1", {**MEAN, **fields})
        assert sql in said
        assert gives in said
        answer = send(visitor, path, {**MEAN, **fields, "unit": "€"}, follow=False)
        assert answer.headers["location"] == f"/audits/{ready}/promise"
        settled = settings(desk, ready)
        assert (settled.query, settled.unit) == ((sql,), "€")
        page = waiting(visitor, path)
        assert chosen(page, "mode") == [fields.get("mode", "build")]
        if "measure" in fields:
            assert chosen(page, "measure") == [fields["measure"]]
        if "holds_value" in fields:
            assert f'value="{fields["holds_value"]}"' in unescape(page)

    def test_a_query_of_another_hand_is_shown_as_sql(self, desk: RunningDesk, visitor: Visitor, ready: str) -> None:
        path = f"/audits/{ready}/data"
        send(visitor, path, MEAN)
        toml = desk.folder / f"{ready}.toml"
        toml.write_text(toml.read_text().replace('"avg(amount)"', '"max(amount) </textarea>"'))
        page = waiting(visitor, path)
        assert chosen(page, "mode") == ["sql"]
        assert "max(amount) &lt;/textarea&gt;" in page
        memory = desk.folder / ".empriv-app" / "built" / f"{ready}.json"
        for broken in ("{", "[]", '{"avg(amount)": {"where": 3}}', '{"avg(amount)": {"holds": [], "where": [[1]]}}'):
            memory.write_text(broken)
            toml.write_text(toml.read_text().replace('"max(amount) </textarea>"', '"avg(amount)"'))
            assert chosen(waiting(visitor, path), "mode") == ["sql"]

    def test_conditions(self, desk: RunningDesk, visitor: Visitor, ready: str) -> None:
        path = f"/audits/{ready}/data"
        rows = [("region", "is one of", "north, south"), ("", "=", ""), ("day", "≥", "2024-01-05")]
        conditions = [
            (f"where_{part}", row[place]) for row in rows for place, part in enumerate(("column", "operator", "value"))
        ]
        more = send(visitor, path, [*MEAN.items(), *conditions, ("do", "more")][1:])
        assert more.status in (200, 303)
        send(visitor, path, [*MEAN.items(), *conditions])
        (query,) = settings(desk, ready).query
        assert query == "SELECT avg(amount) FROM data WHERE region IN ('north', 'south') AND day >= '2024-01-05'"
        assert "2024-01-05" in waiting(visitor, path)
        wrong = [(key, "soon" if value == "2024-01-05" else value) for key, value in conditions]
        answer = send(visitor, path, [*MEAN.items(), *wrong])
        assert answer.status == 400
        assert "Condition 3 must be a date" in answer.text
        assert 'id="wrong-where_2"' in answer.text
        assert 'value="soon"' in answer.text

    def test_one_more_condition_writes_nothing(self, desk: RunningDesk, visitor: Visitor, ready: str) -> None:
        before = (desk.folder / f"{ready}.toml").read_bytes()
        rows = [("where_column", "region"), ("where_operator", "="), ("where_value", "kept")]
        fields = [(key, value) for key, value in MEAN.items() if key != "do"]
        answer = send(visitor, f"/audits/{ready}/data", [*fields, *rows, ("do", "more")])
        assert answer.status == 200
        assert answer.text.count('name="where_value"') == 2
        assert 'value="kept"' in answer.text
        assert (desk.folder / f"{ready}.toml").read_bytes() == before

    @pytest.mark.parametrize(
        ("fields", "field", "says"),
        [
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
        self, desk: RunningDesk, visitor: Visitor, ready: str, fields: dict[str, str], field: str, says: str
    ) -> None:
        before = (desk.folder / f"{ready}.toml").read_bytes()
        answer = send(visitor, f"/audits/{ready}/data", {**MEAN, "holds_value": "kept", **fields})
        assert answer.status == 400
        wrong = re.search(rf'id="wrong-{field}"[^>]*>([^<]*)<', answer.text)
        assert wrong
        assert says in unescape(wrong[1])
        assert 'value="kept"' in answer.text
        assert (desk.folder / f"{ready}.toml").read_bytes() == before
        assert fields.get("query", "") in unescape(answer.text)

    def test_a_component_is_of_its_query_and_several_queries_are_left_alone(
        self, desk: RunningDesk, visitor: Visitor, ready: str
    ) -> None:
        path, toml = f"/audits/{ready}/data", desk.folder / f"{ready}.toml"
        send(visitor, path, MEAN)
        toml.write_text(f'component = "avg(amount)"\n{toml.read_text()}')
        send(visitor, path, MEAN)
        assert settings(desk, ready).component == "avg(amount)"  # nothing has changed
        send(visitor, path, {**MEAN, "measure": "sum"})
        assert (settings(desk, ready).query, settings(desk, ready).component) == (("sum(amount)",), None)
        toml.write_text(toml.read_text().replace('"sum(amount)"', '["sum(amount)", "count(*)"]'))
        assert "asks several queries together" in visitor.get(path).text
        assert send(visitor, path, MEAN).status == 400
        assert settings(desk, ready).query == ("sum(amount)", "count(*)")

    def test_names_of_several_lines(self, desk: RunningDesk, visitor: Visitor) -> None:
        rows = "".join(f"p{k % 5},2024-01-{1 + k % 28:02},{k},{k % 2}\n" for k in range(60))
        name = audit_of(desk, f'"the\nclient",day,"the\namount"," kind "\n{rows}'.encode())
        send(visitor, f"/audits/{name}/data", {**WHO, "individual": "the\r\nclient", "column": "the\r\namount"})
        assert settings(desk, name).individual == ("the\nclient",)
        assert chosen(waiting(visitor, f"/audits/{name}/data"), "individual") == ["the\nclient"]
        fields = {**WHO, **MEAN, "individual": "the\r\nclient", "column": "the\r\namount", "by": "the\r\nclient"}
        refused = send(visitor, f"/audits/{name}/data", fields)
        assert "identifies" in refused.text
        send(visitor, f"/audits/{name}/data", {**fields, "by": ""})
        assert settings(desk, name).query == ('avg("the\namount")',)
        assert chosen(waiting(visitor, f"/audits/{name}/data"), "mode") == ["build"]

    def test_hostile_names(self, desk: RunningDesk, visitor: Visitor) -> None:
        quoted = HOSTILE.replace('"', '""')
        rows = f'"{quoted}",client,day,x,x\n' + "".join(
            f'"</option>{k % 3}",p{k % 7},2024-01-{1 + k % 28:02},{k},1\n' for k in range(200)
        )
        name = audit_of(desk, rows.encode())
        path = f"/audits/{name}/data"
        send(visitor, path, [*WHO.items(), ("individual", HOSTILE), ("column", "x")])
        assert settings(desk, name).individual == ("client", HOSTILE)
        fields = {
            **MEAN,
            "column": "x",
            "by": HOSTILE,
            "where_column": HOSTILE,
            "where_operator": "≠",
            "where_value": "'",
        }
        said = live(visitor, f"{path}/live", f"{path}?wait=1", fields)
        assert "a table of 3 numbers" in said
        send(visitor, path, fields)
        (query,) = settings(desk, name).query
        assert f'"{quoted}"' in query
        pages = [waiting(visitor, path)]
        pages.append(visitor.post(f"{path}/live", whole(fields), page=f"{path}?wait=1").text)
        for page in pages:
            assert "<img" not in page
            assert "</option>0" not in page


def test_one_column_is_not_taken_for_another(desk: RunningDesk, visitor: Visitor) -> None:
    rows = "".join(f"p{k % 7},a{k % 3},b{k % 5}\n" for k in range(60))
    name = audit_of(desk, f'client,x y,"""x y"""\n{rows}'.encode())
    for column, count in (("x y", 3), ('"""x y"""', 5)):
        fields = {**WHO, "database": column, "measure": "count"}
        said = live(visitor, f"/audits/{name}/data/live", f"/audits/{name}/data?wait=1", fields)
        assert f"{count} databases, 7 people" in said
        send(visitor, f"/audits/{name}/data", fields)
        assert chosen(waiting(visitor, f"/audits/{name}/data"), "database") == [column]


@pytest.mark.parametrize("place", [0, -3, -2], ids=["day", "column", "samples"])
def test_the_command_line_takes_what_was_filled_in(
    desk: RunningDesk, visitor: Visitor, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    quoted = HOSTILE.replace('"', '""')
    rows = "".join(f'"{k % 2}",p{k % 7},2024-01-{1 + k % 28:02},{k}\n' for k in range(100))
    name = audit_of(desk, f'client of,"{quoted}",Jour de l\'année,x\n'.encode() + rows.encode())
    condition = {"where_column": "x", "where_operator": "≥", "where_value": "0"}
    offered = re.search(r'<select[^>]*name="database".*?</select>', waiting(visitor, f"/audits/{name}/data"), re.DOTALL)
    assert offered is not None
    database = unescape(re.findall(r'value="([^"]*)"', offered[0])[place])
    who = {**WHO, "individual": HOSTILE, "database": database, "subsamples": "40"}
    send(visitor, f"/audits/{name}/data", {**who, **MEAN, "column": "x", **condition})
    (desk.folder / f"{name}.toml").write_text(
        (desk.folder / f"{name}.toml").read_text() + 'target = ["delta <= 0.05 at 0.1"]\n'
    )
    monkeypatch.chdir(desk.folder)
    outcome = CliRunner().invoke(check, [f"{name}.toml", "--dry-run"])
    assert outcome.exception is None, outcome.output
    assert "is valid" in outcome.output
    assert chosen(waiting(visitor, f"/audits/{name}/data"), "database") == [database]


def test_a_database_file_asks_which_of_its_tables(desk: RunningDesk, visitor: Visitor) -> None:
    """Whoever uploads one need not know that a table must be named: one alone is taken, of several one is chosen."""
    for tables in (["stays"], ["patients", "stays <b>"]):
        path = desk.folder / f"ward{len(tables)}.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for table in tables:
                connection.execute(f'CREATE TABLE "{table}" (patient TEXT, day TEXT, cost REAL)')
                connection.execute(f"INSERT INTO \"{table}\" VALUES ('p', '2024-01-01', 2.5)")
            connection.commit()
        page = visitor.post("/new", {"way": "files", "files": path.name})
        assert page.status == 200
    assert settings(desk, "ward1").table == "stays"
    asked = visitor.get("/audits/ward2/data/form").text
    assert 'value="patients"' in asked
    assert "stays &lt;b&gt;" in asked
    visitor.post("/audits/ward2/data/source", {"way": "table", "table": "stays <b>"}, page="/audits/ward2/data")
    assert settings(desk, "ward2").table == "stays <b>"
    seen = visitor.get("/audits/ward2/data/preview").text
    assert '<td data-l="From">2.5</td>' in seen


def test_tables_of_a_duckdb_file_are_those_that_hold_rows(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE sales (x INT); CREATE SCHEMA s; CREATE TABLE s.more (x INT)")
        connection.execute("CREATE VIEW peeking AS SELECT * FROM sales")
    assert set(tables_inside(str(path))) == {"sales", "s.more"}
    path.write_bytes(b"no database")
    with pytest.raises(EmprivError):
        tables_inside(str(path))


def test_readings_are_cut_into_hours_and_days_are_not(desk: RunningDesk, visitor: Visitor) -> None:
    rows = [f"2024-03-{day:02d} {hour:02d}:30:00,m{k},1.5" for day in range(1, 4) for hour in range(24) for k in (1, 2)]
    hourly = audit_of(desk, "\n".join(["t,meter,kwh", *rows]).encode())
    hour = "date_trunc('hour', t)"
    form = {**WHO, **MEAN, "individual": "meter", "database": hour, "column": "kwh"}
    told = visitor.post(f"/audits/{hourly}/data/live", form, page=f"/audits/{hourly}/data?wait=1").text
    assert "72 hours, 2 people" in told
    assert "From 2024-03-01 to 2024-03-03 23:00:00." in told
    visitor.post(f"/audits/{hourly}/data", form, page=f"/audits/{hourly}/data?wait=1")
    assert settings(desk, hourly).database == hour
