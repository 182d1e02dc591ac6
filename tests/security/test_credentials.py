"""A password never leaves the address it came in: not in reprs, errors, tracebacks, saved files, reports or ledgers."""

from __future__ import annotations

import logging
import pickle
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.config import Settings, to_toml
from empriv.cli.main import main
from empriv.collecting import collect, databases
from empriv.collecting.sources import shown_address
from empriv.errors import EmprivError, SourceError
from postgres_server import NEEDED, Server

SECRET = "hunter2-secret"
SAFE = "postgresql://reader:{}@/postgres?host={}"


@pytest.fixture(scope="module")
def locked(server: Server) -> Iterator[str]:
    """The address of a server that asks a user for the password, and has rows."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"day": np.repeat(np.arange(40), 20), "who": np.tile(np.arange(20), 40)})
    server.put("pay", rows.assign(x=rng.normal(size=len(rows))))
    server.run(
        f"CREATE ROLE reader LOGIN PASSWORD '{SECRET}'", "GRANT SELECT ON pay TO reader",
        "CREATE TABLE hidden AS SELECT 1 AS day, 'amy' AS who",
    )  # fmt: skip
    rules = Path(server.folder, "pg_hba.conf")
    before = rules.read_text()
    rules.write_text(f"local all reader scram-sha-256\n{before}")
    server.run("SELECT pg_reload_conf()")
    yield SAFE.format(SECRET, server.folder)
    rules.write_text(before)
    server.run("SELECT pg_reload_conf()", "DROP TABLE pay, hidden", "DROP ROLE reader")


def everything_said(error: BaseException | None) -> str:
    """All that can be read off an error: messages, arguments, causes, contexts, the printed traceback."""
    said = []
    while error is not None:
        said += [repr(error), str(error.args), str(vars(error)), "".join(traceback.format_exception(error))]
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if "empriv" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
                said.append(repr({name: value for name, value in frame.f_locals.items() if name != "self"}))
        error = error.__cause__ or error.__context__
    return "\n".join(said)


@NEEDED
def test_an_audit_of_a_server_leaves_no_password(
    locked: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    data = databases(locked, table="pay", database="day", individual="who")
    assert SECRET not in repr(data) + str(data)
    audit = empriv.audit(data, "avg(x)")
    assert audit.origin is not None
    assert audit.origin.sources == ("postgresql::pay",)
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    empriv.audit(data, "avg(x)", ledger=ledger)
    audit.save(tmp_path / "a.empriv")
    audit.report(tmp_path / "a.html")
    said = [str(audit), repr(audit), repr(audit.origin), str(audit.to_json()), caplog.text, *capfd.readouterr()]
    assert not any(SECRET in text or "reader" in text for text in said)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path.name


@NEEDED
@pytest.mark.parametrize("change", ["password", "user", "database", "port", "host", "parameter", "sslpassword", "form"])
def test_a_connection_that_fails_tells_nothing(locked: str, change: str) -> None:
    address = {
        "password": locked.replace(SECRET, f"{SECRET}x"),
        "user": locked.replace("reader", "nobody").replace("nobody:", "nobody_known:"),
        "database": locked.replace("/postgres?", "/nothing?"),
        "port": f"postgresql://reader:{SECRET}@127.0.0.1:1/postgres",
        "host": f"postgresql://reader:{SECRET}@no.such.host.invalid/postgres",
        "parameter": f"{locked}&passwrod={SECRET}",
        "sslpassword": f"postgresql://127.0.0.1:1/postgres?sslpassword={SECRET}&password={SECRET}",
        "form": f"postgresql://reader:{SECRET}@x/y@127.0.0.1:x/postgres",
    }[change]
    with pytest.raises(SourceError) as caught:
        collect(databases(address, table="pay", database="day", individual="who"), "avg(x)")
    assert SECRET not in everything_said(caught.value)
    assert caught.value.__context__ is None
    assert "Hint" in str(caught.value) or "must" in str(caught.value)


@NEEDED
def test_a_password_from_the_environment_is_used_and_not_told(locked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without = locked.replace(f":{SECRET}@", "@")
    monkeypatch.setenv("PGPASSWORD", SECRET)
    data = databases(without, table="pay", database="day", individual="who")
    assert collect(data, "count(*)").n_databases == 40
    monkeypatch.setenv("PGPASSWORD", f"{SECRET}x")
    with pytest.raises(SourceError, match="must accept the user and the password") as caught:
        collect(data, "count(*)")
    assert SECRET not in everything_said(caught.value)


@NEEDED
@pytest.mark.parametrize(
    ("options", "query", "message"),
    [
        ({"table": "pya"}, "avg(x)", r"`table` must be a table or view .*, got 'pya'\. Hint: did you mean 'pay'\?"),
        ({"table": "hidden"}, "count(*)", r"the right to read the table .* Hint: GRANT SELECT"),
        ({"sql": "SELECT * FROM hidden"}, "count(*)", r"the right to read the table"),
        ({"sql": "SELECT day, who, nothing FROM pay"}, "count(*)", r"a name or a word that the PostgreSQL server does"),
        ({"sql": "SELECT day, who, nothing(x) FROM pay"}, "count(*)", r"a name or a word that the PostgreSQL server"),
        ({"table": "pay"}, "avg(y)", r"uses a column 'y'"),
    ],
)
def test_what_is_missing_on_the_server_is_one_sentence(
    locked: str, options: dict[str, str], query: str, message: str
) -> None:
    data = databases(locked, **options, database="day", individual="who")  # type: ignore[arg-type]
    with pytest.raises(EmprivError, match=message) as caught:
        collect(data, query)
    assert SECRET not in everything_said(caught.value)
    assert "amy" not in everything_said(caught.value)


@NEEDED
def test_the_command_line_writes_no_password_down(locked: str, tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("a.toml", "a.html", "a.empriv", "a.json")}
    command = [
        "audit", locked, "--table", "pay", "--database", "day", "--individual", "who", "--query", "avg(x)",
        "--write-config", files["a.toml"], "--report", files["a.html"], "--save", files["a.empriv"],
        "--json", files["a.json"],
    ]  # fmt: skip
    ran = CliRunner().invoke(main, command)
    assert ran.exit_code == 0, ran.output
    assert SECRET not in ran.output
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 5
    for path in written:
        assert SECRET.encode() not in path.read_bytes(), path.name
    assert 'files = ["postgresql:///postgres"]\ndatabase = "day"' in Path(files["a.toml"]).read_text()
    again = CliRunner().invoke(main, ["audit", "--config", files["a.toml"]])
    assert again.exit_code == 1
    assert "must be trusted" in again.output


@NEEDED
def test_a_command_that_fails_writes_nothing(locked: str, tmp_path: Path) -> None:
    for change, words in ((("pay", "pya"), "got 'pya'"), ((SECRET, f"{SECRET}x"), "must accept the user")):
        command = ["audit", locked.replace(*change), "--table", "pay".replace(*change), "--database", "day"]
        command += ["--individual", "who", "--query", "avg(x)", "--save", str(tmp_path / "a.empriv")]
        ran = CliRunner().invoke(main, command)
        assert ran.exit_code == 1
        assert words in ran.output
        assert SECRET not in ran.output
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"postgresql://u:{SECRET}@host:5432/shop?sslmode=require", "postgresql://host:5432/shop"),
        (f"postgresql://u:{SECRET}@host/shop::sales", "postgresql://host/shop::sales"),
        (f"postgres://host/shop?password={SECRET}", "postgres://host/shop"),
        (f"postgresql://u:{SECRET}@[::1]:5432/shop", "postgresql://[::1]:5432/shop"),
        (f"postgresql://u:a@{SECRET}@host/shop", "postgresql://..."),
        (f"postgresql://u:a/{SECRET}@host/shop", "postgresql://..."),
        (f"postgresql://u:a?{SECRET}@host/shop", "postgresql://..."),
        (f"https://u:{SECRET}@host/x.parquet?sig={SECRET}", "https://host/x.parquet"),
        (f"s3://bucket/x.parquet?s3_secret_access_key={SECRET}", "s3://bucket/x.parquet"),
        ("sales.csv", "sales.csv"),
        ("file.duckdb::table", "file.duckdb::table"),
    ],
)
def test_an_address_is_written_without_who_reads(address: str, shown: str) -> None:
    assert shown_address(address) == shown
    written = to_toml(Settings(files=(address,), tables={"t": address}))
    assert SECRET not in written
    assert shown in written


def test_a_description_of_rows_shows_no_address() -> None:
    for source in (f"postgresql://u:{SECRET}@h/d::t", f"https://u:{SECRET}@h/x.csv?sig={SECRET}"):
        data = databases(source, database="day", individual="who", tables={"t": source})
        assert SECRET not in repr(data)
        assert pickle.loads(pickle.dumps(data)) == data


def test_a_config_file_that_names_a_server_is_not_trusted_nor_quoted(tmp_path: Path) -> None:
    config = tmp_path / "audit.toml"
    rest = 'database = "day"\nindividual = "who"\nquery = "avg(x)"\n'
    for text in (f'files = "postgresql://u:{SECRET}@h/d"\ntable = "pay"\n', f'files = "https://u:{SECRET}@h/x.csv"\n'):
        config.write_text(text + rest)
        ran = CliRunner().invoke(main, ["audit", "--config", str(config)])
        assert ran.exit_code == 1
        assert "must be trusted" in ran.output
        assert SECRET not in ran.output


def test_warnings_are_quiet_about_addresses() -> None:
    data = databases(f"postgresql://u:{SECRET}@127.0.0.1:1/d", table="t", database="d", individual="w")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(SourceError) as failed:
            empriv.audit(data, "count(*)")
    assert not any(SECRET in str(warning.message) for warning in caught)
    assert SECRET not in everything_said(failed.value)
