"""The run of an audit: the commands that make it and its page, what they lack, and how far they are."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from empriv.app.folder import IMPACT, PUBLIC, Folder, put_demo
from empriv.app.jobs import AUDIT, Job, cancel, latest, start
from empriv.app.pages import ELSEWHERE, changed_elsewhere, folder_of, show, workers_of
from empriv.app.review import reviews_of
from empriv.base.progress import duration
from empriv.base.targets import parse_target
from empriv.cli.config import Settings
from empriv.errors import InputError

PAGE = "Page"
"""Title of the job that writes the page of a saved audit."""
_PLAIN = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson")  # files that cannot lead to others
_WRITTEN = ("json", "save", "report")  # settings that the command is given here
_DEMO = "demo"


async def start_run(request: Request, form: Mapping[str, Any]) -> None:
    """Start the audit, unless work on it is under way already: a second click, or another tab."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if _is_under_way(folder, name):
        return
    if changed_elsewhere(request, form):
        raise InputError(ELSEWHERE)
    if not folder.file(name, ".toml").is_file():
        raise InputError("This audit has no settings to run: it was saved elsewhere.")
    for sentence in lacking(settings):
        raise InputError(f"{sentence} Then it can be run.")
    distrusted = await why_distrusted(request, settings)
    if distrusted and form.get("trust") != "yes":
        raise InputError("Say that you trust it, or choose other data.")
    start(folder, name, AUDIT, arguments_of(name, trusted=bool(distrusted) or _named(folder, settings)))


async def start_if_ready(request: Request, name: str, settings: Settings) -> None:
    """Start an audit that lacks nothing, and whose rows need no trust; otherwise the page asks."""
    folder = folder_of(request)
    if _is_under_way(folder, name) or lacking(settings) or await why_distrusted(request, settings):
        return
    start(folder, name, AUDIT, arguments_of(name, trusted=_named(folder, settings)))


def start_demo(folder: Folder) -> str:
    """The name of the demo's audit, which is run unless that was done before."""
    from empriv.cli.audit import DEMO_QUERY, DEMO_TARGET

    file = put_demo(folder)
    if _DEMO not in folder.audits():
        settings = Settings(
            files=(file,), individual=("aircraft",), database="date", query=(DEMO_QUERY,), target=(DEMO_TARGET,),
            epsilon=(parse_target(DEMO_TARGET).epsilon,), unit="min",
        )  # fmt: skip
        folder.write(_DEMO, settings)
    if not folder.saved(_DEMO) and not _is_under_way(folder, _DEMO):
        start(folder, _DEMO, AUDIT, arguments_of(_DEMO))
    return _DEMO


async def write_page(request: Request, form: Mapping[str, Any]) -> None:
    """Have the page of a saved audit written."""
    del form
    folder, name = folder_of(request), request.path_params["name"]
    if not _is_under_way(folder, name):
        start(folder, name, PAGE, page_arguments(name, folder.settings(name)))


async def write_record(request: Request, form: Mapping[str, Any]) -> None:
    """Have the section for an impact assessment written, with what the last checker said, and the page to publish."""
    del form
    folder, name = folder_of(request), request.path_params["name"]
    if not _is_under_way(folder, name):
        noise = ("--noise", f"{name}.noise.empriv") if folder.saved(name, "noise", ".noise.empriv") else ()
        said = next(iter(reviews_of(folder, name)), None)
        checked = () if said is None else ("--checker={checker}, {role}: {outcome}, because {reason}".format(**said),)
        asked = (f"{name}.empriv", *_asked(folder.settings(name)), *noise, *checked)
        start(folder, name, PAGE, ("export", *asked, "--dpia", f"{name}{IMPACT}", "--public", f"{name}{PUBLIC}"))


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
    return show(request, "progress.html", job=job, elapsed=elapsed(job))


async def run_content(request: Request, settings: Settings) -> dict[str, Any]:
    """What the page says of the run: what it lacks, how far it is, or why it failed."""
    folder, name = folder_of(request), request.path_params["name"]
    lacks = lacking(settings)
    job, last = latest(folder, name), latest(folder, name, AUDIT)
    job = job if job is not None and job.running else None
    ready = folder.file(name, ".toml").is_file() and not lacks
    distrusted = await why_distrusted(request, settings) if ready and job is None else ""
    command = ("empriv", *arguments_of(name, trusted=bool(distrusted) or _named(folder, settings)))
    return {
        "lacks": lacks, "job": job, "last": last, "ready": ready, "distrusted": distrusted,
        "run_command": shlex.join(command),
        "elapsed": "" if job is None else elapsed(job),
    }  # fmt: skip


def elapsed(job: Job) -> str:
    return duration(time.time() - job.began)


def arguments_of(name: str, *, trusted: bool = False) -> tuple[str, ...]:
    """The command that runs an audit: what it does in a terminal, in the folder, it does here."""
    files = {"--config": ".toml", "--save": ".empriv", "--json": ".json", "--report": ".html"}
    named = [text for option, ending in files.items() for text in (option, f"{name}{ending}")]
    return ("audit", *named, *(("--trust-config",) if trusted else ()))


def page_arguments(name: str, settings: Settings) -> tuple[str, ...]:
    """The command that writes the page of a saved audit, with the verdicts on its targets."""
    asked = _asked(settings)
    return ("show", f"{name}.empriv", "--json", f"{name}.json", "--report", f"{name}.html", *asked)


def _asked(settings: Settings) -> tuple[str, ...]:
    """The promise as options of a command."""
    targets = tuple(text for target in settings.target for text in ("--target", target))
    return (*targets, "--presence", settings.presence) if targets else ()


def lacking(settings: Settings) -> dict[str, str]:
    """What must be said before an audit can be run, and the step that asks for it."""
    several = len(settings.files) > 1 or any(set("*?[") & set(text) for text in settings.files)
    said = {
        "Choose the data.": settings.files,
        "Say which column tells the databases apart.": settings.subsamples or settings.database or several,
        "Say which column tells who a row is about.": settings.individual,
        "Say what is published.": settings.query,
    }
    return {sentence: "data" for sentence, given in said.items() if not given}


async def why_distrusted(request: Request, settings: Settings) -> str:
    """What settings name beyond the folder, and beyond what was named when the app was started; "" if nothing."""
    folder = folder_of(request)
    if _plainly_inside(folder, settings):
        return ""
    others = tuple(text for text in settings.files if text not in folder.named)
    return await workers_of(request).run(what_needs_trust, replace(settings, files=others))


def what_needs_trust(settings: Settings) -> str:
    """What the command would refuse to read unless it is told to trust the settings; called beside the server."""
    from empriv.cli.inputs import check_trust

    named = {**vars(settings), "tables": {**settings.tables, "": settings.table}}
    try:
        check_trust("audit.toml", {key: value for key, value in named.items() if key not in _WRITTEN})
    except InputError as error:
        return str(error).partition("\nHint:")[0]
    return ""


def _is_under_way(folder: Folder, name: str) -> bool:
    job = latest(folder, name)
    return job is not None and job.running


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
