"""`Folder`: the one folder that the app works in, and the files of each audit in it.

They are the files that the command line reads and writes, named after the audit: NAME.toml, NAME.empriv, NAME.json,
NAME.html, NAME.noise.empriv, and one releases.ledger. What the app alone needs is in .empriv-app, and may be deleted.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import stat
import unicodedata
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from empriv.base.storage import kind_of, write_atomically
from empriv.cli.config import Settings, read_config, settings_of, to_toml
from empriv.errors import EmprivError, InputError

OWN = ".empriv-app"
LEDGER = "releases.ledger"
COPIES = f"{OWN}/rows"
"""Of large text files, which take long to parse; they go when the desk stops."""
TEXT = (".csv", ".json", ".jsonl", ".ndjson", ".tsv")
TABLES = (*TEXT, ".parquet", ".duckdb", ".db", ".sqlite")
DEMO = "demo-flights.parquet"
AT_ONCE = 2.0
"""Seconds between files that one command writes, which a copy may put in another order."""
_ELSEWHERE = re.compile(r"~|[A-Za-z][A-Za-z0-9+.-]*:")  # somebody's home, a URL, or a drive
_SERVERS = "servers.json"
_FIGURES = (".json", ".key.json", ".noise.json", ".advice.json", ".review.json")  # of an audit
_MOST_BYTES = {".toml": 1 << 20, ".html": 1 << 26, ".json": 1 << 26}  # of what is read as a whole
IMPACT, PUBLIC = ".dpia.html", ".public.html"
_MADE = (
    ".toml", ".empriv", ".json", ".html", ".key.json", ".noise.empriv", ".noise.html", ".noise.json",
    ".noise.key.json", ".advice.json", ".review.json", IMPACT, PUBLIC,
)  # fmt: skip
_MOST_OF_FIGURES = 1 << 24  # those of ten thousand cells fit
_HEAD = 1 << 16  # bytes
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
        own = folder / OWN
        if own.is_symlink() or (own.exists() and not own.is_dir()):
            raise InputError(f"{OWN} must be a folder of its own, got a link or a file: remove it.")
        own.mkdir(mode=0o700, exist_ok=True)
        own.chmod(0o700)  # somebody else may have made it
        return Folder(folder.resolve(), named)

    @property
    def own(self) -> Path:
        return self.path / OWN

    def ledgers(self) -> tuple[str, ...]:
        """Names of the ledgers in the folder; no link, which may lead out of it."""
        paths = (path for path in self.path.glob("*.ledger") if path.is_file() and not path.is_symlink())
        return tuple(sorted(path.name for path in paths))

    def file(self, name: str, ending: str) -> Path:
        """A file of an audit: ``folder.file("sales", ".empriv")``."""
        if not _NAME.fullmatch(name):
            raise InputError("The audit's name must be small letters, digits, - and _.")
        return self.path / f"{name}{ending}"

    def written(self, name: str, ending: str) -> Path | None:
        """A file of an audit that is there; None if there is none, or no command writes so large a one.

        None also if it is a link, which may lead out of the folder.
        """
        path = self.file(name, ending)
        try:
            facts = path.lstat()
        except OSError:
            return None
        fits = facts.st_size <= _MOST_BYTES.get(path.suffix, facts.st_size)
        return path if stat.S_ISREG(facts.st_mode) and fits else None

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
                if _NAME.fullmatch(name) and self.written(name, ending) is not None:
                    latest[name] = max(latest.get(name, 0.0), path.stat().st_mtime)
        return tuple(sorted(latest, key=lambda name: (-latest[name], name)))

    def made_files(self, name: str) -> tuple[Path, ...]:
        """The files that commands and the app wrote of an audit: no rows, no ledger, nothing of somebody else."""
        paths = (self.written(name, ending) for ending in _MADE)
        return tuple(path for path in paths if path is not None and _is_made(path))

    def new_name(self, title: str) -> str:
        """A name for a new audit, made of a title."""
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
        stem = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:50] or "audit"
        # An audit of sales.json must not be called sales: its figures would take that file's place.
        endings = (".toml", ".empriv", ".json", ".html")
        names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
        return next(name for name in names if not any((self.path / f"{name}{end}").exists() for end in endings))

    def settings(self, name: str) -> Settings:
        """What an audit's TOML says; nothing yet if there is none."""
        path = self.written(name, ".toml")
        return Settings() if path is None else settings_of(read_config(path), {})

    def figures(self, name: str) -> dict[str, Any]:
        """What NAME.json says of the audit; nothing if it is somebody's table, or damaged, or of an earlier audit."""
        path = self.current(name, ".json")
        try:
            if path is None or path.stat().st_size > _MOST_OF_FIGURES:
                return {}
            content = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) and content.get("format") == "empriv audit figures" else {}

    def decided(self, name: str) -> str:
        """The word of the decision, by the figures that the command wrote; "" if nothing is written."""
        decision = self.figures(name).get("decision")
        return str(decision.get("word", "")) if isinstance(decision, dict) else ""

    def settings_mark(self, name: str) -> str:
        """A mark of what an audit's TOML holds, so that a form that was filled in before it changed is noticed."""
        path = self.written(name, ".toml")
        return "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()[:16]

    def write(self, name: str, settings: Settings) -> None:
        """Write an audit's TOML."""
        write_atomically(self.file(name, ".toml"), to_toml(settings).encode())

    def tables(self) -> tuple[str, ...]:
        """Files with rows in the folder, as settings name them: none that commands wrote of an audit."""
        of_audits = {f"{name}{ending}" for name in self.audits() if self.saved(name) for ending in _FIGURES}
        files = (path for path in self.path.iterdir() if path.suffix.lower() in TABLES and path.is_file())
        return tuple(sorted(path.name for path in files if path.name not in of_audits))

    def check_source(self, text: str) -> str:
        """A source that may be read: a file in the folder, or what was named at the start."""
        from empriv.collecting.sources import is_address

        if text in self.named or text in self.servers():
            return text
        if is_address(text):
            raise InputError(
                "`address` must be one that was typed here: whoever wrote these settings names a server, which would "
                "learn who asks. Hint: type its address in the step Data."
            )
        try:
            path = (self.path / text).resolve()
            # A folder here may be called "~" or "https:", which an engine takes for another place.
            inside = path.is_relative_to(self.path) and not path.is_relative_to(self.own) and not _ELSEWHERE.match(text)
            there = path.is_file()
        except (OSError, ValueError, RuntimeError):  # too long, with a NUL, or a link to itself
            raise InputError("`files` must name a file that is there.") from None
        if not inside:
            raise InputError(
                "`files` must be in the folder of the app. Hint: upload the file, or start `empriv app FILE`."
            )
        if not there:
            raise InputError("`files` must name a file that is there.")
        return str(path.relative_to(self.path))

    def servers(self) -> tuple[str, ...]:
        """Addresses that somebody typed here."""
        try:
            content = json.loads((self.own / _SERVERS).read_bytes())
        except (OSError, ValueError, RecursionError):
            return ()
        return tuple(map(str, content)) if isinstance(content, list) else ()

    def keep_server(self, address: str) -> None:
        """Remember that somebody typed an address."""
        from empriv.collecting.sources import shown_address

        known = dict.fromkeys((*self.servers(), address, shown_address(address)))
        write_atomically(self.own / _SERVERS, json.dumps(list(known)).encode())

    def check_sources(self, settings: Settings) -> None:
        """Refuse an audit that reads other rows: somebody else may have written its TOML."""
        from empriv.collecting.sources import is_address, is_sql

        if not settings.files:
            raise InputError("`files` must be chosen first. Hint: the step Data.")
        for text in (*settings.files, *settings.tables.values()):
            if text in self.named:
                continue
            if is_sql(text):
                raise InputError("`files` must be files or a server here: SQL as a source is for the command line.")
            before, _, table = text.rpartition("::")
            path = before if before and not is_address(text) and not re.search(r"[/\\\]]", table) else text
            for match in self._files_of(path):
                self.check_source(match)

    def _files_of(self, path: str) -> list[str]:
        """The files that a pattern names, hidden ones too, which an engine reads as well; a path alone otherwise."""
        if not glob.has_magic(path) or "\0" in path:
            return [path]
        matches = list(glob.iglob(path, root_dir=self.path, recursive=True, include_hidden=True))  # noqa: PTH207
        return matches if matches and not os.path.lexists(self.path / path) else [*matches, path]

    def check_inside(self, path: str) -> str:
        """The path of a file in the folder."""
        try:
            inside = (self.path / path).resolve().is_relative_to(self.path)
            (self.path / path).is_file()  # too long a name is told by this
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            raise InputError(f"{Path(path).name} must be in the folder of the app.")
        return path

    def saved(self, name: str, kind: str = "audit", ending: str = ".empriv") -> bool:
        """Whether there is a saved audit, or saved noise, of this name."""
        path = self.written(name, ending)
        try:
            return path is not None and kind_of(path) == kind
        except EmprivError:
            return False


def put_demo(folder: Folder) -> str:
    """Copy the demo's data to the folder."""
    from empriv.datasets import flights

    target = folder.path / DEMO
    if not target.exists():
        target.unlink(missing_ok=True)  # a link to nothing would be written through
        shutil.copyfile(flights(), target)
    return DEMO


def _is_made(path: Path) -> bool:
    """Whether a file is one that empriv wrote, by what it says of itself: sales.json may be somebody's table."""
    if path.suffix == ".toml":
        return True
    with path.open("rb") as file:
        start = file.read(_HEAD)
    if path.suffix == ".json":
        return b'"format": "empriv' in start or path.name.endswith(".key.json")
    return path.name.endswith((".empriv", IMPACT)) or (b"Content-Security-Policy" in start and b"empriv" in start)
