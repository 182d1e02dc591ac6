"""Step "Run": what will be run, the run itself with its stages, and what to mend if it failed."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import dataclass, replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.aside import engine_beside
from empriv.app.folder import LEDGER, Folder
from empriv.app.pages import ELSEWHERE, STEPS, aside_of, changed_elsewhere, folder_of, form_of, go, show
from empriv.app.work import AUDIT, Work, cancel, latest, start
from empriv.base.progress import duration
from empriv.cli.config import Settings
from empriv.cli.targets import parse_target
from empriv.errors import EmprivError, InputError
from empriv.words.planning import opinion

# Which step asks for a setting, by the words of an error; names in backquotes come first.
_ASKED_IN = {
    "data": ("files", "FILES", "file", "table", "tables", "sql", "source", "upload", "server"),
    "people": ("individual", "database", "databases", "subsamples", "fraction", "timezone", "unidentified"),
    "statistic": ("query", "component", "unit", "column", "aggregate", "SQL"),
    "promise": (
        "target", "epsilon", "times", "known", "ledger", "scope", "basis", "presence", "density",
    ),
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


async def run(request: Request) -> Response:
    """What will be run, or how far it is; a form starts it."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if request.method == "GET":
        return await _page(request, settings)
    form = await form_of(request)
    under_way = latest(folder, name)
    if under_way is not None and under_way.running:
        return go(request, "run")  # a second click, or another tab
    if changed_elsewhere(request, form):
        return await _page(request, settings, errors={"": ELSEWHERE}, status=409)
    try:
        if not folder.file(name, ".toml").is_file():
            raise InputError("This audit has no settings to run: it was saved elsewhere.")
        lacking = [point.lacks for point in plan_of(settings) if point.lacks]
        if lacking:
            raise InputError(f"{lacking[0]} Then it can be run.")
        distrusted = await why_distrusted(request, settings)
        if distrusted and form.get("trust") != "yes":
            raise InputError("Say that you trust it, or choose other data.")
        start(folder, name, AUDIT, arguments_of(name, trusted=bool(distrusted) or _named(folder, settings)))
    except EmprivError as error:
        return await _page(request, settings, errors={"": str(error)}, status=400)
    return go(request, "run")


async def progress(request: Request) -> Response:
    """How far the work on an audit is, which the page asks for again and again."""
    folder, name = folder_of(request), request.path_params["name"]
    return progress_piece(request, latest(folder, name))


async def cost(request: Request) -> Response:
    """What the run will take, which the page asks for once it is there."""
    settings = folder_of(request).settings(request.path_params["name"])
    try:
        if await why_distrusted(request, settings):
            raise InputError("What it will take is not known: rows that are not trusted are not looked at.")
        sentences = await aside_of(request).ask(cost_in_words, settings)
    except EmprivError as error:
        sentences = (str(error),)
    return show(request, "cost.html", sentences=sentences)


async def stop(request: Request) -> Response:
    """Cancel the work on an audit."""
    folder, name = folder_of(request), request.path_params["name"]
    form = await form_of(request)
    work = latest(folder, name)
    if work is not None and work.running:
        await run_in_threadpool(cancel, folder, work.key)
    back = str(form.get("back", "run"))
    return go(request, back if back in STEPS else "run")


def progress_piece(request: Request, work: Work | None) -> Response:
    """A bar, until the work has ended: then the page is to be asked for anew, or the decision of an audit is next."""
    if work is None or not work.running:
        done = work is not None and work.title == AUDIT and work.state == "done"
        name = request.path_params["name"]
        return show(request, "reload.html", onwards=f"/audits/{name}/decision" if done else "")
    return show(request, "progress.html", work=work, **how_far(work))


def how_far(work: Work) -> dict[str, Any]:
    """What a bar shows of work that is under way."""
    return {"share": work.share, "elapsed": duration(time.time() - work.began)}


def arguments_of(name: str, *, trusted: bool = False) -> tuple[str, ...]:
    """The command that runs an audit: what it does in a terminal, in the folder, it does here."""
    files = {"--config": ".toml", "--save": ".empriv", "--json": ".json", "--report": ".html"}
    named = [text for option, ending in files.items() for text in (option, f"{name}{ending}")]
    return ("audit", *named, *(("--trust-config",) if trusted else ()))


def cost_in_words(settings: Settings) -> tuple[str, ...]:
    """What an audit will take: rows, memory and time, from a look at the rows; called beside the server."""
    from empriv.auditing.costs import estimate
    from empriv.cli.inputs import source_of
    from empriv.cli.running import limits_of
    from empriv.collecting.run_options import Run

    with engine_beside(**limits_of(settings)) as engine:
        return estimate(source_of(settings), settings.query, Run(engine=engine)).sentences


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
        Point("Databases", cut, "people", lacks_cut),
        Point(
            "Who is protected", f"each {person}" if person else "", "people",
            "" if person else "Say which column tells who a row is about.",
        ),
        Point("Statistic", "; ".join(settings.query), "statistic", "" if settings.query else "Say what is published."),
        Point("Promise", _promised(settings), "promise"),
    )  # fmt: skip


async def why_distrusted(request: Request, settings: Settings) -> str:
    """What settings name beyond the folder, and beyond what was named when the app was started; "" if nothing."""
    folder = folder_of(request)
    if _plainly_inside(folder, settings):
        return ""
    others = tuple(text for text in settings.files if text not in folder.named)
    return await aside_of(request).ask(what_needs_trust, replace(settings, files=others))


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
    return files and simple and not settings.sql and not settings.tables and settings.ledger in (None, LEDGER)


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


async def _page(
    request: Request, settings: Settings, *, errors: dict[str, str] | None = None, status: int = 200
) -> Response:
    folder, name = folder_of(request), request.path_params["name"]
    points = plan_of(settings)
    work = latest(folder, name)
    last = work if work is not None and work.running else latest(folder, name, AUDIT)
    failed = last is not None and last.state == "failed"
    ready = folder.file(name, ".toml").is_file() and not any(point.lacks for point in points)
    distrusted = await why_distrusted(request, settings) if ready else ""
    command = ("empriv", *arguments_of(name, trusted=bool(distrusted) or _named(folder, settings)))
    return show(
        request, "run.html", step="run", points=points, work=last, saved=folder.saved(name), ready=ready,
        distrusted=distrusted, command=shlex.join(command),
        mend=step_for(last.said) if failed and last is not None else None,
        ended=None if last is None or last.ended is None else time.strftime("%d %B, %H:%M", time.localtime(last.ended)),
        errors=errors or {}, status=status, **(how_far(last) if last is not None and last.running else {}),
    )  # fmt: skip


ROUTES = [
    Route("/audits/{name}/run", run, methods=["GET", "POST"]),
    Route("/audits/{name}/run/progress", progress),
    Route("/audits/{name}/run/cost", cost),
    Route("/audits/{name}/run/stop", stop, methods=["POST"]),
]
