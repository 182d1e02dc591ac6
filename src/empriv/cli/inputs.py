"""What a command reads: sources, audits, the ledger, a file that is not its user's own; and where it may write."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from empriv.cli.config import Settings, toml_text
from empriv.errors import InputError, SourceError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.collecting.sources import Unidentified


def audit_of(settings: Settings, engine: Any) -> Audit:
    """The audit that settings ask for."""
    import empriv
    from empriv.auditing.memory import KEEP
    from empriv.ledger import Ledger
    from empriv.measuring.densities.density import density_from_text

    audited = empriv.audit(
        source_of(settings), settings.asked, epsilon=settings.epsilon, density=density_from_text(settings.density),
        component=settings.component, known=settings.known or "auto", unit=settings.unit, noun=settings.noun,
        paper=settings.paper, scope=settings.scope, engine=engine, target=settings.target,
        in_chunks=settings.in_chunks, checkpoint=settings.checkpoint, keep=max(KEEP, settings.top),
        # it must exist, so that a wrong path does not make a new, empty one
        ledger=None if settings.ledger is None else Ledger(settings.ledger, create=False),
        progress=False if settings.quiet else None, notice=unsaid if settings.quiet else None,
    )  # fmt: skip
    audited = replace(audited, targets=settings.targets)
    return audited if settings.times is None else audited.repeated(settings.times)


def saved_audit(path: str, settings: Settings) -> Audit:
    """A saved audit, or an audit of saved results, as it is asked about now."""
    import empriv

    saved = empriv.load(path)
    if not isinstance(saved, empriv.Audit | empriv.Results):
        raise InputError("SAVED must hold an audit or results, got noise. Hint: `empriv release` takes it.")
    audited = empriv.audit(saved, epsilon=settings.epsilon) if isinstance(saved, empriv.Results) else saved
    audited = replace(audited, unit=settings.unit or audited.unit, noun=settings.noun or audited.noun)
    return audited if settings.times is None else audited.repeated(settings.times)


def saved_noise(path: str, name: str) -> Any:
    """Noise from a file that an argument of this name gave."""
    import empriv

    saved = empriv.load(path)
    if not isinstance(saved, empriv.Noise | empriv.TableNoise):
        raise InputError(f"{name} must be a file that `empriv noise --save` wrote, got a different one.")
    return saved


def unsaid(sentence: str) -> None:
    """No notice about long runs if nothing is to be printed."""
    del sentence


def source_of(settings: Settings) -> Any:
    """The databases that files and options describe."""
    from empriv.collecting import databases, subsamples

    if settings.subsamples is not None and settings.database is not None:
        raise InputError("`subsamples` must not be given with `database`: databases are drawn, or they are there.")
    if settings.fraction is not None and settings.subsamples is None:
        raise InputError("`fraction` must be given with `subsamples`, which says how many databases are drawn.")
    rows: dict[str, Any] = {
        "individual": settings.individual, "tables": settings.tables, "timezone": settings.timezone,
        "unidentified": cast("Unidentified", settings.unidentified),
    }  # fmt: skip
    if settings.subsamples is not None:
        share = settings.fraction or 0.5
        return subsamples(one_table(settings), count=settings.subsamples, fraction=share, **rows)
    if settings.database is not None:
        return databases(one_table(settings), database=settings.database, **rows)
    _existing(settings)
    source = [file for text in settings.files for file in _expanded(text)]
    if len(source) == 1:
        raise InputError(
            "FILES must be several if each is one database, got one. Hint: --database names the column that says which "
            "database a row is in; --subsamples 365 draws random databases from one table."
        )
    return databases(source, database=None, table=settings.table, sql=settings.sql, **rows)


def one_table(settings: Settings) -> Any:
    """The one table that files and options describe, not cut into databases."""
    from empriv.collecting.sources import Files

    tables = _existing(settings)
    if len(tables) == 1:
        return tables[0]
    files = [table for table in tables if isinstance(table, Files)]
    if len(files) < len(tables) or len({table.kind for table in files}) > 1:
        raise InputError("FILES that make one table must be of one kind, all Parquet, all CSV or all JSON.")
    return Files(tuple(path for table in files for path in table.paths), files[0].kind)


def _existing(settings: Settings) -> list[Any]:
    """A table for each of the files, which must exist, as those of other tables must."""
    from empriv.collecting.sources import chosen, table_of

    # What cannot be a source is refused as such, whether it exists or not.
    tables = [table_of(chosen(text, settings.table, settings.sql)) for text in settings.files]
    for text in (*settings.files, *settings.tables.values()):
        path = text.partition("::")[0]
        if _is_path(text) and not (Path(path).exists() or _matches(path)):
            raise SourceError(f"The file must {'match a file' if glob.has_magic(path) else 'exist'}, got {path!r}.")
    return tables


def paths_read(settings: Settings) -> list[str]:
    """Files that an audit reads."""
    texts = [text for text in (*settings.files, *settings.tables.values()) if _is_path(text)]
    return [path.partition("::")[0] for text in texts for path in _expanded(text)]


def check_targets(paths: Sequence[str | None], read: Sequence[str | None]) -> None:
    """Refuse, before any work, output paths that cannot be written, that are read, or that are given twice."""
    from empriv.base.storage import file_path

    files = [path for path in paths if path is not None and path != "-"]
    if len({os.path.realpath(file_path(path)) for path in files}) < len(files):
        raise InputError("Output must go to different files, got one path twice.")
    sources = [Path(path) for path in read if path is not None and Path(path).exists()]
    for path in files:
        target = Path(path)
        if target.exists() and not target.is_file():
            raise InputError(f"Output must go to a file, got {path!r}, which is not one.")
        if not target.parent.is_dir():
            raise InputError(f"Output must go to a directory that exists, got {path!r}.")
        if not os.access(target.parent, os.W_OK):
            raise InputError(f"Output must go to a directory that can be written, got {path!r}.")
        if target.exists() and any(target.samefile(source) for source in sources):
            raise InputError(f"Output must not replace what is read, got {path!r}.")


def key_of(report: str | None) -> list[str]:
    """The key to the pseudonyms of a report, which is written beside it."""
    return [] if report in (None, "-") else [str(Path(str(report)).with_suffix(".key.json"))]


def _is_path(text: str) -> bool:
    from empriv.collecting.sources import is_sql

    return "://" not in text and not is_sql(text)


def _expanded(text: str) -> list[str]:
    """The files of a glob; anything else as it is."""
    if not _is_path(text) or Path(text).exists() or not glob.has_magic(text):
        return [text]
    return _matches(text) or [text]


def _matches(pattern: str) -> list[str]:
    # Not Path.glob, which takes no absolute pattern.
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|~")  # a URL, a drive, or somebody's home
_WRITTEN = ("json", "save", "report", "ledger", "checkpoint")
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

    tables = dict(settings.get("tables", ()))
    own = {"table": tables.pop("", None), "sql": settings.get("sql")}
    sources = [("files", text, own) for text in settings.get("files", ())]
    sources += [(f"tables.{toml_text(name)}", text, {}) for name, text in tables.items()]
    for key, text, of_source in sources:
        why = _why_not_source(folder, text, **of_source)
        if why is not None:
            yield key, text, why
    database = settings.get("database")
    if database is not None and reads_tables(database):
        yield "database", database, "SQL that reads more than the row"
    paths = [(key, settings.get(key)) for key in _WRITTEN]
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

    quoted = toml_text(shown_address(text))  # on one line: a line break in it cannot forge a line of this message
    return quoted if len(quoted) <= _SHOWN else f"{quoted[:_SHOWN]} ... and {len(quoted) - _SHOWN:,} more characters"
