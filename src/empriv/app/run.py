"""The run of an audit: what it will do, how far it is, and what to mend if it failed."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from empriv.app.folder import Folder
from empriv.app.jobs import AUDIT, Job, cancel, latest, start
from empriv.app.pages import ELSEWHERE, changed_elsewhere, folder_of, show, workers_of
from empriv.base.progress import duration
from empriv.cli.config import Settings
from empriv.cli.targets import parse_target
from empriv.errors import InputError
from empriv.words.planning import opinion

# Which step asks for a setting, by the words of an error; names in backquotes come first.
_ASKED_IN = {
    "data": (
        "files", "FILES", "file", "table", "tables", "sql", "source", "upload", "server", "individual", "database",
        "databases", "subsamples", "fraction", "timezone", "unidentified", "query", "component", "unit", "order",
        "column", "aggregate", "SQL",
    ),
    "promise": ("target", "epsilon", "times", "known", "ledger", "scope", "basis", "presence", "density"),
}  # fmt: skip
_PLAIN = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson")  # files that cannot lead to others
_WRITTEN = ("json", "save", "report")  # settings that the command is given here
_BY_WORD = {word: step for step, words in _ASKED_IN.items() for word in words}


@dataclass(frozen=True)
class Point:
    """One line of what will be run; ``said`` is empty where it is missing, and ``step`` is where it is asked for."""

    about: str
    said: str
    step: str
    lacks: str = ""


async def start_run(request: Request, form: Mapping[str, Any]) -> None:
    """Start the audit, unless work on it is under way already: a second click, or another tab."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    under_way = latest(folder, name)
    if under_way is not None and under_way.running:
        return
    if changed_elsewhere(request, form):
        raise InputError(ELSEWHERE)
    if not folder.file(name, ".toml").is_file():
        raise InputError("This audit has no settings to run: it was saved elsewhere.")
    lacking = [point.lacks for point in plan_of(settings) if point.lacks]
    if lacking:
        raise InputError(f"{lacking[0]} Then it can be run.")
    distrusted = await why_distrusted(request, settings)
    if distrusted and form.get("trust") != "yes":
        raise InputError("Say that you trust it, or choose other data.")
    start(folder, name, AUDIT, arguments_of(name, trusted=bool(distrusted) or _named(folder, settings)))


async def start_if_ready(request: Request, name: str, settings: Settings) -> None:
    """Start an audit that lacks nothing, and whose rows need no trust; otherwise the page asks."""
    folder = folder_of(request)
    under_way = latest(folder, name)
    if under_way is not None and under_way.running:
        return
    if not any(point.lacks for point in plan_of(settings)) and not await why_distrusted(request, settings):
        start(folder, name, AUDIT, arguments_of(name, trusted=_named(folder, settings)))


async def stop(request: Request, form: Mapping[str, Any]) -> None:
    """Cancel the work on an audit."""
    del form
    folder, name = folder_of(request), request.path_params["name"]
    job = latest(folder, name)
    if job is not None and job.running:
        await run_in_threadpool(cancel, folder, job.key)


async def progress(request: Request) -> Response:
    """How far the work on an audit is, which the page asks for again and again; when it has ended, the page anew."""
    job = latest(folder_of(request), request.path_params["name"])
    if job is None or not job.running:
        return show(request, "reload.html", onwards="")
    return show(request, "progress.html", job=job, **how_far(job))


async def run_content(request: Request, settings: Settings) -> dict[str, Any]:
    """What the page says of the run: what it will do, how far it is, or why it failed."""
    folder, name = folder_of(request), request.path_params["name"]
    points = plan_of(settings)
    job, last = latest(folder, name), latest(folder, name, AUDIT)
    running = job is not None and job.running
    ready = folder.file(name, ".toml").is_file() and not any(point.lacks for point in points)
    distrusted = await why_distrusted(request, settings) if ready and not running else ""
    command = ("empriv", *arguments_of(name, trusted=bool(distrusted) or _named(folder, settings)))
    return {
        "points": points, "job": job if running else None, "last": last, "ready": ready, "distrusted": distrusted,
        "run_command": shlex.join(command), "mend": step_for(last.said) if last and last.state == "failed" else None,
        **(how_far(job) if job is not None and running else {}),
    }  # fmt: skip


def how_far(job: Job) -> dict[str, Any]:
    """What a bar shows of work that is under way."""
    return {"share": job.share, "elapsed": duration(time.time() - job.began)}


def arguments_of(name: str, *, trusted: bool = False) -> tuple[str, ...]:
    """The command that runs an audit: what it does in a terminal, in the folder, it does here."""
    files = {"--config": ".toml", "--save": ".empriv", "--json": ".json", "--report": ".html"}
    named = [text for option, ending in files.items() for text in (option, f"{name}{ending}")]
    return ("audit", *named, *(("--trust-config",) if trusted else ()))


def plan_of(settings: Settings) -> tuple[Point, ...]:
    """What will be run, point by point, with what is missing yet."""
    data = ", ".join(settings.files) + (f", table {settings.table}" if settings.table else "")
    cut, lacks_cut = "", "Say which column tells the databases apart."
    if settings.subsamples is not None:
        cut, lacks_cut = f"{settings.subsamples:,} random samples of the rows", ""
    elif settings.database is not None:
        cut, lacks_cut = f"each {settings.database} is one database", ""
    elif len(settings.files) > 1 or any(set("*?[") & set(text) for text in settings.files):
        cut, lacks_cut = "each file is one database", ""
    person = " and ".join(settings.individual)
    return (
        Point("Data", data, "data", "" if settings.files else "Choose the data."),
        Point("Databases", cut, "data", lacks_cut),
        Point(
            "Who is protected", f"each {person}" if person else "", "data",
            "" if person else "Say which column tells who a row is about.",
        ),
        Point("Statistic", "; ".join(settings.query), "data", "" if settings.query else "Say what is published."),
        Point("Promise", _promised(settings), "promise"),
    )  # fmt: skip


async def why_distrusted(request: Request, settings: Settings) -> str:
    """What settings name beyond the folder, and beyond what was named when the app was started; "" if nothing."""
    folder = folder_of(request)
    if _plainly_inside(folder, settings):
        return ""
    others = tuple(text for text in settings.files if text not in folder.named)
    return await workers_of(request).run(what_needs_trust, replace(settings, files=others))


def what_needs_trust(settings: Settings) -> str:
    """What the command would refuse to read unless it is told to trust the settings; called beside the server."""
    from empriv.cli.trust import check_trust

    named = {**vars(settings), "tables": {**settings.tables, "": settings.table}}
    try:
        check_trust("audit.toml", {key: value for key, value in named.items() if key not in _WRITTEN})
    except InputError as error:
        return str(error).partition("\nHint:")[0]
    return ""


def _named(folder: Folder, settings: Settings) -> bool:
    """Whether settings name what was named when the app was started, which the command must be told to trust."""
    return any(text in folder.named for text in settings.files)


def _plainly_inside(folder: Folder, settings: Settings) -> bool:
    """Whether settings name nothing but plain files in the folder: then nobody need be asked."""
    known = folder.tables()
    files = all(text in known and text.endswith(_PLAIN) for text in settings.files)
    simple = settings.database is None or settings.database.isidentifier()
    return (
        files and simple and not settings.sql and not settings.tables and settings.ledger in (None, *folder.ledgers())
    )


def step_for(sentence: str) -> str | None:
    """The step that can mend what an error says, if one can."""
    quoted = re.findall(r"`(?:--)?([\w-]+)", sentence)
    words = [*(word.replace("-", "_") for word in quoted), *re.findall(r"\w+", sentence)]
    return next((_BY_WORD[word] for word in words if word in _BY_WORD), None)


def _promised(settings: Settings) -> str:
    targets = [parse_target(text) for text in settings.target]
    said = " and ".join(
        f"{target.figure.replace('_', ' ')} at most {target.limit:g} at epsilon {target.epsilon:g}"
        for target in targets
    )
    often = "" if settings.times is None else f", over {settings.times:,} publications together"
    meaning = f". {opinion(targets[0].epsilon)}" if len({target.epsilon for target in targets}) == 1 else ""
    return f"{said}{often}{meaning}" if said else f"nobody said: there will be figures{often}, and no decision"
