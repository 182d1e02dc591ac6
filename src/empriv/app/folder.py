"""`Folder`: the one folder that the app works in, and the files of each audit in it.

They are the files that the command line reads and writes, named after the audit: NAME.toml, NAME.empriv, NAME.json,
NAME.html, NAME.noise.empriv, and one releases.ledger. What the app alone needs is in .empriv-app, and may be deleted.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from empriv.base.storage import kind_of, write_atomically
from empriv.cli.config import Settings, read_config, settings_of, to_toml
from empriv.errors import EmprivError, InputError

OWN = ".empriv-app"
LEDGER = "releases.ledger"
TABLES = (".csv", ".parquet", ".json", ".jsonl", ".ndjson", ".tsv", ".duckdb", ".db", ".sqlite")
AT_ONCE = 2.0
"""Seconds between files that one command writes, which a copy may put in another order."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")


@dataclass(frozen=True)
class Folder:
    """Where the app works.

    Attributes
    ----------
    path : the folder, resolved
    named : files and addresses outside it that were named when the app was started; nothing else outside is read
    """

    path: Path
    named: tuple[str, ...] = ()

    @staticmethod
    def opened(path: str | os.PathLike[str], named: tuple[str, ...] = ()) -> Folder:
        """The folder, made if it is not there; nobody else may enter what the app alone needs."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / OWN).mkdir(mode=0o700, exist_ok=True)
        return Folder(folder.resolve(), named)

    @property
    def own(self) -> Path:
        return self.path / OWN

    @property
    def ledger(self) -> Path:
        return self.path / LEDGER

    def file(self, name: str, ending: str) -> Path:
        """A file of an audit: ``folder.file("sales", ".empriv")``."""
        if not _NAME.fullmatch(name):
            raise InputError("The audit's name must be small letters, digits, - and _.")
        return self.path / f"{name}{ending}"

    def written(self, name: str, ending: str) -> Path | None:
        """A file of an audit that is there; None if there is none, or a link, which may lead out of the folder."""
        path = self.file(name, ending)
        try:
            return path if stat.S_ISREG(path.lstat().st_mode) else None
        except OSError:
            return None

    def current(self, name: str, ending: str) -> Path | None:
        """A file that was written of the saved audit; None also if it is of an earlier one.

        A run that was ended between its files leaves some of the run before.
        """
        path, saved = self.written(name, ending), self.written(name, ".empriv")
        late = path is not None and saved is not None and path.stat().st_mtime + AT_ONCE < saved.stat().st_mtime
        return None if late else path

    def audits(self) -> tuple[str, ...]:
        """Names of audits, latest first: those with an audit.toml, and those that somebody has saved."""
        latest: dict[str, float] = {}
        for ending in (".toml", ".empriv"):
            for path in self.path.glob(f"*{ending}"):
                name = path.name.removesuffix(ending)
                if _NAME.fullmatch(name) and path.is_file():
                    latest[name] = max(latest.get(name, 0.0), path.stat().st_mtime)
        return tuple(sorted(latest, key=lambda name: (-latest[name], name)))

    def new_name(self, title: str) -> str:
        """A name for a new audit, made of a title."""
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
        stem = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:50] or "audit"
        # An audit of sales.json must not be called sales: its figures would take that file's place.
        endings = (".toml", ".empriv", ".json", ".html")
        return next(
            name for name in _numbered(stem) if not any((self.path / f"{name}{end}").exists() for end in endings)
        )

    def settings(self, name: str) -> Settings:
        """What an audit's TOML says; nothing yet if there is none."""
        path = self.file(name, ".toml")
        return settings_of(read_config(path), {}) if path.is_file() else Settings()

    def seen(self, name: str) -> str:
        """A mark of what an audit's TOML holds, so that a form that was filled in before it changed is noticed."""
        path = self.file(name, ".toml")
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""

    def write(self, name: str, settings: Settings) -> None:
        """Write an audit's TOML."""
        write_atomically(self.file(name, ".toml"), to_toml(settings).encode())

    def tables(self) -> tuple[str, ...]:
        """Files with rows in the folder, as settings name them."""
        return tuple(
            sorted(path.name for path in self.path.iterdir() if path.suffix.lower() in TABLES and path.is_file())
        )

    def check_source(self, text: str) -> str:
        """A source that may be read: a file in the folder, or what was named at the start."""
        from empriv.collecting.sources import is_address

        if text in self.named or is_address(text):
            return text
        path = self.path / text
        if not path.resolve().is_relative_to(self.path) or path.resolve().is_relative_to(self.own):
            raise InputError(
                "`files` must be in the folder of the app. Hint: upload the file, or start `empriv app FILE`."
            )
        if not path.is_file():
            raise InputError("`files` must name a file that is there.")
        return str(path.resolve().relative_to(self.path))

    def check_sources(self, settings: Settings) -> None:
        """Refuse an audit that reads other rows: somebody else may have written its TOML."""
        from empriv.collecting.sources import is_sql

        if not settings.files:
            raise InputError("`files` must be chosen first. Hint: the step Data.")
        for text in (*settings.files, *settings.tables.values()):
            if text in self.named:
                continue
            if is_sql(text):
                raise InputError("`files` must be files or a server here: SQL as a source is for the command line.")
            path = text if "://" in text else text.partition("::")[0]
            matches = list(glob.iglob(path, root_dir=self.path, recursive=True)) if glob.has_magic(path) else []  # noqa: PTH207
            literal = [path] if not matches or (self.path / path).exists() else []
            for match in (*matches, *literal):
                self.check_source(match)

    def check_inside(self, path: str) -> str:
        """The path of a file in the folder."""
        if not (self.path / path).resolve().is_relative_to(self.path):
            raise InputError(f"{Path(path).name} must be in the folder of the app.")
        return path

    def saved(self, name: str, kind: str = "audit", ending: str = ".empriv") -> bool:
        """Whether there is a saved audit, or saved noise, of this name."""
        path = self.file(name, ending)
        try:
            return path.is_file() and kind_of(path) == kind
        except EmprivError:
            return False


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}-{number}"
        number += 1
