"""What a config file may name without being trusted: files in its own folder, and nothing else.

Somebody else may have written the file. The person who runs the command decides which rows it reads and where it
writes: anything that is SQL, or leads out of the file's own folder, is listed and needs ``--trust-config``.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from empriv.cli.config import toml_text
from empriv.errors import InputError, SourceError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|~")  # a URL, a drive, or somebody's home
_WRITTEN = ("json", "save", "report", "ledger")
_SHOWN = 300


def check_trust(config: str, settings: Mapping[str, Any]) -> None:
    """Refuse settings of a file that is not trusted, if they are SQL sources or lead out of the file's folder.

    Parameters
    ----------
    config : path of the file
    settings : those that come from the file, and not from the command line
    """
    reasons = list(_reasons(Path(config).parent.resolve(), settings))
    if reasons:
        lines = "".join(f"\n  {key} = {_shown(value)}: {why}" for key, value, why in reasons)
        raise InputError(
            f"{Path(config).name} must be trusted before it is used: it names more than files in its own "
            f"folder.{lines}\nHint: if you trust whoever wrote this, run it again with --trust-config, which holds for "
            "one run. What you write on the command line yourself needs no trust."
        )


def needs_trust(config: str, settings: Mapping[str, Any]) -> bool:
    """Whether a file with these settings would have to be trusted."""
    return any(_reasons(Path(config).parent.resolve(), settings))


def _reasons(folder: Path, settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Keys, values and why they need trust."""
    from empriv.collecting.sql.allowlist import reads_tables

    sources = [("files", text) for text in settings.get("files", ())]
    tables = dict(settings.get("tables", ()))
    settings = {**settings, "table": tables.pop("", None)}
    sources += [(f"tables.{toml_text(name)}", text) for name, text in tables.items()]
    for key, text in sources:
        own = {name: settings.get(name) for name in ("table", "sql")} if key == "files" else {}
        why = _why_not_source(folder, text, **own)
        if why is not None:
            yield key, text, why
    database = settings.get("database")
    if database is not None and reads_tables(database):
        yield "database", database, "SQL that reads more than the row"
    paths = [(key, settings.get(key)) for key in _WRITTEN]
    paths += [(f"protocols.{name}.noise", table.get("noise")) for name, table in settings.get("protocols", {}).items()]
    for key, path in paths:
        if path not in (None, "-") and not _inside(folder, str(path)):
            yield key, str(path), "outside the file's folder"


def _why_not_source(folder: Path, text: str, table: str | None = None, sql: str | None = None) -> str | None:
    from empriv.collecting.sources import Connected, Files, Select, Stored, chosen, is_address, table_of

    if is_address(text):
        return "a database server"
    try:
        source = table_of(chosen(text, table, sql))
    except (InputError, SourceError):
        return None  # refused later with its own message; nothing is read
    if isinstance(source, Connected):
        return None if _inside(folder, source.address.text) else "outside the file's folder"
    if isinstance(source, Select):
        return "SQL, which can read any file"
    if isinstance(source, Stored):
        return "a DuckDB file, whose views can read any file"
    assert isinstance(source, Files)
    return None if all(_inside(folder, path) for path in source.paths) else "outside the file's folder"


def _inside(folder: Path, text: str) -> bool:
    """Whether a path or glob stays inside a folder, symbolic links included."""
    parts = Path(text).parts
    if _SCHEME.match(text) or "\0" in text or Path(text).is_absolute() or ".." in parts:
        return False
    # The part before the first * must be inside, even if nothing matches yet.
    plain = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    reached = [text, str(Path(*parts[:plain])), *glob.iglob(text, recursive=True, include_hidden=True)]  # noqa: PTH207
    return all(Path(path).resolve().is_relative_to(folder) for path in reached)


def _shown(text: str) -> str:
    from empriv.collecting.sources import shown_address

    quoted = toml_text(
        shown_address(text)
    )  # on one line, so that a line break in it cannot forge a line of this message
    return quoted if len(quoted) <= _SHOWN else f"{quoted[:_SHOWN]} ... and {len(quoted) - _SHOWN:,} more characters"
