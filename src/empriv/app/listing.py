"""What the desk lists: every audit of the folder with its state and its decision, by small files alone.

Nothing is loaded that holds results: NAME.toml says what is asked, NAME.json what came out. Any of them may be damaged,
or have been put there by somebody hostile: what cannot be read is listed with a sentence.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from empriv.app.folder import Folder
from empriv.app.jobs import Job, all_jobs, changed_since
from empriv.base.storage import kind_of
from empriv.base.targets import parse_target
from empriv.base.text import shortened, visible
from empriv.errors import EmprivError
from empriv.words.decision import KINDS

NOT_RUN, RUNNING, AUDITED, CHANGED, DAMAGED = "not run yet", "running", "audited", "settings changed since", "damaged"
ENDINGS = (".toml", ".empriv")
_FIGURES = "empriv audit figures"
_MOST_BYTES = 1 << 24  # of a file with figures: those of ten thousand cells fit
_SHOWN = 300
KINDS_SHOWN = {"publish": "Publish", "change": "Publish changed", "stop": "Do not publish", "open": "Nothing decided"}
"""What the list can be filtered by."""
_NOT_AN_AUDIT = {
    "noise": "Saved noise, which `empriv release` takes.",
    "results": "Saved results, which `empriv show` audits.",
}


@dataclass(frozen=True)
class Listed:
    """One audit of the list.

    Attributes
    ----------
    name : of its files
    state : one of `NOT_RUN`, `RUNNING`, `AUDITED`, `CHANGED`, `DAMAGED`, or how its last work ended
    asked : the query
    line : the decision in one line; of what is damaged, why
    kind : of the decision: "publish", "change", "stop", or "open" where there is none
    promise : what was promised, in figures
    figures : what NAME.json holds, or nothing
    saved : whether NAME.empriv holds an audit
    work : the latest piece of work on it
    when : seconds since 1970 of its latest file
    noisy : whether noise was designed for it
    """

    name: str
    state: str
    asked: str
    line: str
    kind: str
    promise: str
    figures: Mapping[str, Any]
    saved: bool
    job: Job | None
    when: float
    noisy: bool

    @property
    def step(self) -> str:
        """Where a click on it leads."""
        return "decision" if self.saved or self.job is not None else "data"

    @property
    def day(self) -> str:
        return time.strftime("%Y-%m-%d", time.localtime(self.when)) if self.when else ""

    @property
    def databases(self) -> str:
        return _count(self.figures.get("n_databases"))

    @property
    def people(self) -> str:
        return _count(self.figures.get("n_individuals"))

    def matches(self, search: str) -> bool:
        """Whether all words of a search are in what is listed."""
        text = " ".join((self.name, self.state, self.asked, self.line, self.promise, self.day)).casefold()
        return all(word in text for word in search.casefold().split())


def listed(folder: Folder, search: str = "") -> tuple[Listed, ...]:
    """All audits that a search finds, latest first."""
    jobs: dict[str, list[Job]] = {}
    for job in all_jobs(folder):
        jobs.setdefault(job.audit, []).append(job)
    seen = (look_at(folder, name, jobs.get(name, ())) for name in folder.audits())
    return tuple(audit for audit in seen if audit.matches(search))


def look_at(folder: Folder, name: str, jobs: Sequence[Job] | None = None) -> Listed:
    """One audit as it stands; ``jobs`` are all pieces of work on it, latest first, if they are known."""
    jobs = tuple(all_jobs(folder, name)) if jobs is None else jobs
    job = jobs[0] if jobs else None
    settings, damage = _settings(folder, name)
    figures = figures_of_file(folder, name)
    asked = figures.get("query") or settings.get("query") or ""
    asked = "; ".join(map(str, asked)) if isinstance(asked, list) else str(asked)
    written = {
        ending: path.stat().st_mtime
        for ending in (*ENDINGS, ".json", ".html")
        if (path := folder.written(name, ending)) is not None
    }
    kind = kind_of(folder.file(name, ".empriv")) if ".empriv" in written else None
    if ".empriv" in written and kind != "audit":
        damage = damage or _NOT_AN_AUDIT.get(str(kind), f"{name}.empriv is damaged, or not a file that empriv wrote.")
    decision = figures.get("decision")
    decision = decision if isinstance(decision, dict) else {}
    line, kind_shown = str(decision.get("line", "")), KINDS.get(str(decision.get("word")), "open")
    done = kind == "audit" or bool(figures)
    state = _state(job, damage, done=done, changed=changed_since(folder, name, jobs))
    return Listed(
        name, state, _short(asked), _short(damage if state == DAMAGED else line), kind_shown,
        _short(_promise(settings)), figures, kind == "audit", job,
        max(written.values(), default=0.0), folder.current(name, ".noise.empriv") is not None,
    )  # fmt: skip


def figures_of_file(folder: Folder, name: str) -> dict[str, Any]:
    """What NAME.json says of the audit; nothing if it is somebody's table, or damaged, or of an earlier audit."""
    path = folder.current(name, ".json")
    try:
        if path is None or path.stat().st_size > _MOST_BYTES:
            return {}
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) and content.get("format") == _FIGURES else {}


def decided(folder: Folder, name: str) -> str:
    """The word of the decision, by the figures that the command wrote; "" if nothing is written."""
    decision = figures_of_file(folder, name).get("decision")
    return str(decision.get("word", "")) if isinstance(decision, dict) else ""


def strangers(folder: Folder) -> tuple[str, ...]:
    """Files of audits whose names the app does not take: they are told of, not opened."""
    known = set(folder.audits())
    return tuple(sorted(visible(path.name) for path in _of_audits(folder.path) if not _is_known(path, known)))


def _of_audits(folder: Path) -> Iterator[Path]:
    for ending in ENDINGS:
        yield from folder.glob(f"*{ending}")


def _is_known(path: Path, known: set[str]) -> bool:
    stem = path.name.removesuffix(path.suffix)
    return stem in known or stem.removesuffix(".noise") in known


def _settings(folder: Folder, name: str) -> tuple[dict[str, Any], str]:
    """What the TOML says, unchecked, and why it cannot be read."""
    path = folder.written(name, ".toml")
    if path is None:
        return {}, ""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")), ""
    except (OSError, ValueError, RecursionError):  # of TOML and of Unicode alike
        return {}, f"{name}.toml cannot be read: it is not TOML."


def _state(job: Job | None, damage: str, *, done: bool, changed: bool) -> str:
    if job is not None and job.running:
        return RUNNING
    if damage:
        return DAMAGED
    if done:
        return CHANGED if changed else AUDITED
    if job is not None and job.state in ("failed", "cancelled", "lost"):
        return job.state
    return NOT_RUN


def _promise(settings: Mapping[str, Any]) -> str:
    """The promise of settings that nobody has checked."""
    target = settings.get("target") or ()
    texts = [target] if isinstance(target, str) else [text for text in target if isinstance(text, str)]
    try:
        parsed = [parse_target(text) for text in texts]
    except EmprivError:
        return "; ".join(texts)
    return "; ".join(f"{p.figure.replace('_', ' ')} {p.limit:g} at epsilon {p.epsilon:g}" for p in parsed)


def _count(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else ""


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _SHOWN)
