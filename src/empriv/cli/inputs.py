"""What a command reads: sources, saved audits, the ledger; and where it may write."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from empriv.cli.config import Settings
from empriv.errors import InputError, SourceError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.collecting.sources import Unidentified


def load_audit(path: str, epsilons: tuple[float, ...]) -> Audit:
    """A saved audit, or an audit of saved results."""
    import empriv
    from empriv.base.storage import kind_of

    if kind_of(path) == "scan":
        raise InputError("SAVED must hold an audit or results, got a scan. Hint: `empriv show` takes it.")
    saved = empriv.load(path)
    if not isinstance(saved, empriv.Audit | empriv.Results):
        raise InputError("SAVED must hold an audit or results, got noise. Hint: `empriv release` takes it.")
    return empriv.audit(saved, epsilon=epsilons) if isinstance(saved, empriv.Results) else saved


def density_from_name(name: str) -> Any:
    """The density of --density."""
    from empriv.measuring.densities.specs import density_from_text

    return density_from_text(name)


def ledger_of(settings: Settings) -> Any:
    """The ledger, None if there is none; it must exist, so that a wrong path does not make a new, empty one."""
    if settings.ledger is None:
        return None
    from empriv.ledger import Ledger

    return Ledger(settings.ledger, create=False)


def source_of(settings: Settings) -> Any:
    """The databases that files and options describe."""
    from empriv.collecting import databases, subsamples

    drawn = settings.subsamples is not None
    if drawn and settings.database is not None:
        raise InputError("`subsamples` must not be given with `database`: databases are drawn, or they are there.")
    if settings.fraction is not None and not drawn:
        raise InputError("`fraction` must be given with `subsamples`, which says how many databases are drawn.")
    tables = _existing(settings)
    rows: dict[str, Any] = {
        "individual": settings.individual, "tables": settings.tables, "timezone": settings.timezone,
        "unidentified": cast("Unidentified", settings.unidentified),
    }  # fmt: skip
    if settings.subsamples is not None:
        return subsamples(_joined(tables), count=settings.subsamples, fraction=settings.fraction or 0.5, **rows)
    if settings.database is not None:
        return databases(_joined(tables), database=settings.database, **rows)
    source = [file for text in settings.files for file in _expanded(text)]
    if len(source) == 1:
        raise InputError(
            "FILES must be several if each is one database, got one. Hint: --database names the column that says which "
            "database a row is in; --subsamples 365 draws random databases from one table."
        )
    return databases(source, database=None, table=settings.table, sql=settings.sql, **rows)


def one_table(settings: Settings) -> Any:
    """The table that files and options describe, not cut into databases."""
    return _joined(_existing(settings))


def _existing(settings: Settings) -> list[Any]:
    """A table for each of the files, which must exist, as those of other tables must."""
    from empriv.collecting.sources import chosen, table_of

    # What cannot be a source is refused as such, whether it exists or not.
    tables = [table_of(chosen(text, settings.table, settings.sql)) for text in settings.files]
    for text in (*settings.files, *settings.tables.values()):
        _check_exists(text)
    return tables


def _joined(tables: Sequence[Any]) -> Any:
    """Several files as one table."""
    from empriv.collecting.sources import Files

    if len(tables) == 1:
        return tables[0]
    files = [table for table in tables if isinstance(table, Files)]
    if len(files) < len(tables) or len({table.kind for table in files}) > 1:
        raise InputError("FILES that make one table must be of one kind, all Parquet, all CSV or all JSON.")
    return Files(tuple(path for table in files for path in table.paths), files[0].kind)


def paths_read(settings: Settings) -> list[str]:
    """Files that an audit reads."""
    texts = [text for text in (*settings.files, *settings.tables.values()) if _is_path(text)]
    return [path.partition("::")[0] for text in texts for path in _expanded(text)]


def check_targets(paths: Sequence[str | None], read: Sequence[str]) -> None:
    """Refuse, before any work, output paths that cannot be written, that are read, or that are given twice."""
    from empriv.base.storage import file_path

    files = [path for path in paths if path is not None and path != "-"]
    if len({os.path.realpath(file_path(path)) for path in files}) < len(files):
        raise InputError("Output must go to different files, got one path twice.")
    for path in files:
        _check_target(path, read)


def beside_report(report: str | None, *, everything: bool) -> list[str]:
    """Files that are written beside a report: the key to its pseudonyms, and what ``--beside`` asks for."""
    endings = [".key.json", *((".json", ".individuals.parquet", ".toml") if everything else ())]
    return [] if report in (None, "-") else [str(Path(str(report)).with_suffix(ending)) for ending in endings]


def _check_target(path: str, read: Sequence[str]) -> None:
    target = Path(path)
    if target.exists() and not target.is_file():
        raise InputError(f"Output must go to a file, got {path!r}, which is not one.")
    if not target.parent.is_dir():
        raise InputError(f"Output must go to a directory that exists, got {path!r}.")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"Output must go to a directory that can be written, got {path!r}.")
    if target.exists() and any(target.samefile(source) for source in read if Path(source).exists()):
        raise InputError(f"Output must not replace what is read, got {path!r}.")


def _is_path(text: str) -> bool:
    from empriv.collecting.sources import is_sql

    return "://" not in text and not is_sql(text)


def _check_exists(text: str) -> None:
    if not _is_path(text):
        return
    path = text.partition("::")[0]
    if not (Path(path).exists() or _matches(path)):
        kind = "match a file" if glob.has_magic(path) else "exist"
        raise SourceError(f"The file must {kind}, got {path!r}.")


def _expanded(text: str) -> list[str]:
    """The files of a glob; anything else as it is."""
    if not _is_path(text) or Path(text).exists() or not glob.has_magic(text):
        return [text]
    return _matches(text) or [text]


def _matches(pattern: str) -> list[str]:
    # Not Path.glob, which takes no absolute pattern.
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207
