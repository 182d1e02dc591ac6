"""Step "Decision": the run with its progress, then the page itself, what can be done, the release and the checker.

What is done here are commands: `empriv audit`, `show`, `advise`, `noise` and `export`, in the folder. What was tried is
a table whose rows are buttons: a cap and coarser databases become an audit of what is asked then.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app import release
from empriv.app.folder import IMPACT, PUBLIC, Folder, put_demo
from empriv.app.guard import written_page
from empriv.app.home import listed_audit
from empriv.app.jobs import ADVICE, AUDIT, DESIGN, PAGE, Job, cancel, is_under_way, latest, start
from empriv.app.pages import (
    ELSEWHERE,
    by_label,
    changed_elsewhere,
    folder_of,
    form_of,
    go,
    positive,
    show,
    workers_of,
)
from empriv.base.progress import duration
from empriv.base.storage import WRONG_FACTS
from empriv.base.targets import goal_of, parse_target
from empriv.base.text import shortened
from empriv.cli.config import Settings
from empriv.cli.running import POLICY_FAILED
from empriv.errors import EmprivError, InputError
from empriv.words.decision import PUBLISH
from empriv.words.what_to_do import MARKS, cell, outcome, target

Form = Mapping[str, Any]
PAGES = {"report": ".html", "noise": ".noise.html", "dpia": IMPACT, "public": PUBLIC}
"""Pages of an audit that may be shown, by the end of their address: the file's ending."""
_PLAIN = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson")  # files that cannot lead to others
_WRITTEN = ("json", "save", "report")  # settings that the command is given here
_DEMO = "demo"
COARSER, CAP = "coarser", "cap"
_DERIVED = {COARSER: "coarser", CAP: "capped"}  # in the name of an audit that was made of an action
_TAKEN = {COARSER: "Audit it", CAP: "Audit it capped, then dither"}
_NOISE_FILES = {"--save": ".noise.empriv", "--report": ".noise.html", "--json": ".noise.json"}
_SHOWN = 200
_LARGEST = 1e300


# The run


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
    known = folder.tables()
    files = all(text in known and text.endswith(_PLAIN) for text in settings.files)
    simple = settings.database is None or settings.database.isidentifier()
    inside = settings.ledger in (None, *folder.ledgers())
    if files and simple and inside and not settings.sql and not settings.tables:
        return ""  # nothing but plain files here: no worker need be asked
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


def trusts(folder: Folder, settings: Settings) -> tuple[str, ...]:
    """What a command must be told to read what was named when the app was started."""
    return ("--trust-config",) if any(text in folder.named for text in settings.files) else ()


def audit_command(name: str, trust: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The command that runs an audit: what it does in a terminal, in the folder, it does here."""
    files = {"--config": ".toml", "--save": ".empriv", "--json": ".json", "--report": ".html"}
    return ("audit", *(text for option, ending in files.items() for text in (option, f"{name}{ending}")), *trust)


def page_command(name: str, settings: Settings) -> tuple[str, ...]:
    """The command that writes the page of a saved audit, with the verdicts on its targets."""
    return ("show", f"{name}.empriv", "--json", f"{name}.json", "--report", f"{name}.html", *_promise(settings))


def _promise(settings: Settings) -> tuple[str, ...]:
    """The promise as options of a command."""
    targets = tuple(text for target in settings.target for text in ("--target", target))
    return (*targets, "--presence", settings.presence) if targets else ()


async def start_run(request: Request, form: Form) -> None:
    """Start the audit, unless a job of it is under way already: a second click, or another tab."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if is_under_way(folder, name):
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
    trust = ("--trust-config",) if distrusted else trusts(folder, settings)
    start(folder, name, AUDIT, audit_command(name, trust))


async def start_if_ready(request: Request, name: str, settings: Settings) -> None:
    """Start an audit that lacks nothing, and whose rows need no trust; otherwise the page asks."""
    folder = folder_of(request)
    if not (is_under_way(folder, name) or lacking(settings) or await why_distrusted(request, settings)):
        start(folder, name, AUDIT, audit_command(name, trusts(folder, settings)))


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
    if not folder.saved(_DEMO) and not is_under_way(folder, _DEMO):
        start(folder, _DEMO, AUDIT, audit_command(_DEMO))
    return _DEMO


async def write_page(request: Request, _: Form) -> None:
    """Have the page of a saved audit written."""
    folder, name = folder_of(request), request.path_params["name"]
    if not is_under_way(folder, name):
        start(folder, name, PAGE, page_command(name, folder.settings(name)))


async def write_record(request: Request, _: Form) -> None:
    """Have the section for an impact assessment written, with what the last checker said, and the page to publish."""
    folder, name = folder_of(request), request.path_params["name"]
    if not is_under_way(folder, name):
        noise = ("--noise", f"{name}.noise.empriv") if folder.saved(name, "noise", ".noise.empriv") else ()
        said = next(iter(release.reviews_of(folder, name)), None)
        checked = () if said is None else ("--checker={checker}, {role}: {outcome}, because {reason}".format(**said),)
        asked = (f"{name}.empriv", *_promise(folder.settings(name)), *noise, *checked)
        start(folder, name, PAGE, ("export", *asked, "--dpia", f"{name}{IMPACT}", "--public", f"{name}{PUBLIC}"))


async def stop(request: Request, _: Form) -> None:
    """Cancel the job of an audit."""
    folder = folder_of(request)
    job = latest(folder, request.path_params["name"])
    if job is not None and job.running:
        await run_in_threadpool(cancel, folder, job.key)


async def progress(request: Request) -> Response:
    """How far the job of an audit is, which the page asks for again and again; when it has ended, the page anew."""
    job = latest(folder_of(request), request.path_params["name"])
    if job is None or not job.running:
        return show(request, "reload.html")
    return show(request, "progress.html", job=job, elapsed=_elapsed(job))


def _elapsed(job: Job) -> str:
    return duration(time.time() - job.began)


async def _run_content(request: Request, settings: Settings) -> dict[str, Any]:
    """What the page says of the run: what it lacks, how far it is, or why it failed."""
    folder, name = folder_of(request), request.path_params["name"]
    lacks = lacking(settings)
    job, last = latest(folder, name), latest(folder, name, AUDIT)
    job = job if job is not None and job.running else None
    ready = folder.file(name, ".toml").is_file() and not lacks
    distrusted = await why_distrusted(request, settings) if ready and job is None else ""
    trust = ("--trust-config",) if distrusted else trusts(folder, settings)
    return {
        "lacks": lacks, "job": job, "last": last, "ready": ready, "distrusted": distrusted,
        "run_command": shlex.join(("empriv", *audit_command(name, trust))),
        "page_command": shlex.join(("empriv", *page_command(name, settings))),
        "elapsed": "" if job is None else _elapsed(job),
    }  # fmt: skip


# Actions


async def act(request: Request, form: Form) -> Response | None:
    """Try everything, design noise, or do what a row says."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if not folder.saved(name):
        raise InputError("The audit must have been run before it is improved.")
    aim = aim_of(folder, name, settings)
    if aim is None:
        raise InputError("Say what is private enough first: what is tried here is held against it.")
    way = form.get("way")
    if way == "everything":
        start(folder, name, ADVICE, await _advice_command(request, settings, aim))
    elif way == "noise":
        step = positive("granularity", str(form.get("granularity", "")))
        start(folder, name, DESIGN, _noise_command(folder, name, settings, aim, step))
    elif way == "take":
        return await _take(request, settings, str(form.get("row", "")))
    else:
        raise InputError("`way` must be everything, noise or take.")
    return None


def aim_of(folder: Folder, name: str, settings: Settings) -> Mapping[str, Any] | None:
    """What is to be met, as `goal_of` has it: the targets of the settings, or of the figures that were written."""
    if settings.target:
        return goal_of(settings.target)
    verdicts = folder.figures(name).get("verdicts")
    listed = verdicts if isinstance(verdicts, list) else ()
    texts = [verdict.get("target") for verdict in listed if isinstance(verdict, dict)]
    try:
        return goal_of([str(text) for text in texts]) if texts else None
    except InputError:
        return None


def _noise_command(
    folder: Folder, name: str, settings: Settings, aim: Mapping[str, Any], granularity: float
) -> tuple[str, ...]:
    """The command that designs the least noise that keeps the promise."""
    if aim["delta"] is None or aim["total_risk"] is not None:
        raise InputError("The promise must limit delta, and not the total risk, for noise to be designed.")
    several = folder.figures(name).get("n_components") is not None
    often: tuple[str, ...] = () if several else ("--dither", "--presence", settings.presence)
    if settings.times is not None and settings.times > 1:
        often = ("--times", str(settings.times))
    asked = ("--epsilon", f"{aim['epsilon']:.12g}", "--delta", f"{aim['delta']:.12g}", *often)
    files = (text for option, ending in _NOISE_FILES.items() for text in (option, f"{name}{ending}"))
    return ("noise", f"{name}.empriv", *asked, "--granularity", f"{granularity:.12g}", *files)


async def _advice_command(request: Request, settings: Settings, aim: Mapping[str, Any]) -> tuple[str, ...]:
    """The command that tries everything: on the rows where they may be read, otherwise on what was saved."""
    folder, name = folder_of(request), request.path_params["name"]
    written = ("--json", f"{name}.advice.json")
    rows = bool(settings.files and settings.individual) and not await why_distrusted(request, settings)
    whole = settings.times in (None, 1) and settings.component is None and len(settings.query) == 1
    if rows and whole and settings.target:
        return ("advise", "--config", f"{name}.toml", *trusts(folder, settings), *written)
    limits = ((figure, aim[figure]) for figure in ("delta", "total_risk"))
    texts = (f"{figure} <= {limit:.12g} at {aim['epsilon']:.12g}" for figure, limit in limits if limit is not None)
    targets = (option for text in texts for option in ("--target", text))
    return ("advise", f"{name}.empriv", *targets, "--presence", settings.presence, *written)


async def _take(request: Request, settings: Settings, row: str) -> Response:
    """Audit what a row of the advice would publish instead, as an audit of its own."""
    folder, name = folder_of(request), request.path_params["name"]
    chosen = next((each for each in advice_of(folder, name) if str(each["row"]) == row and each["takes"]), None)
    if chosen is None:
        raise InputError("`row` must be one that can be taken.")
    plain, given = replace(settings, json=None, save=None, report=None), chosen["parameters"]
    if chosen["code"] == COARSER:
        if settings.database is None or given.get("by") not in ("week", "month"):
            raise InputError("`by` must be week or month, of databases that are days.")
        cut = f"date_trunc('{given['by']}', CAST(({settings.database}) AS TIMESTAMP))"
        changed = replace(plain, database=cut)
    else:
        at = given.get("at")
        if not isinstance(at, int | float) or not 0 < at <= _LARGEST:
            raise InputError("`at` must be a number above 0.")
        if len(settings.query) != 1 or settings.component is not None:
            raise InputError("`query` must be one query, got none or several in the settings of this audit.")
        text = await workers_of(request).run(capped_query, settings.query[0], settings.individual, float(at))
        changed = replace(plain, query=(text,))
    derived = folder.new_name(_stem(name, chosen["code"]))
    folder.write(derived, changed)
    if not await why_distrusted(request, changed):
        start(folder, derived, AUDIT, audit_command(derived, trusts(folder, changed)))
    return go(request, "decision", derived)


def _stem(name: str, code: str) -> str:
    """What the name of a changed answer's audit begins with."""
    return f"{name[:40]}-{_DERIVED[code]}"


def capped_query(query: str, individual: Sequence[str], at: float) -> str:
    """The query with what each person adds capped; called beside the server."""
    from empriv.protocols.changed_queries import capped_people_text

    return capped_people_text(query, individual, at)


def advice_of(folder: Folder, name: str) -> list[dict[str, Any]]:
    """Rows of what was tried: all of NAME.advice.json, else those that the audit tried; none of what is damaged."""
    path = folder.current(name, ".advice.json")
    try:
        content = folder.figures(name).get("advice") if path is None else json.loads(path.read_bytes())
        if content is None or content["format"] != "empriv advice":
            return []
        unit = str(content["unit"])
        rows = [*content["options"], *([content["classical"]] if content["classical"] else [])]
        return [_row(place, row, unit) for place, row in enumerate(rows)]
    except (OSError, *WRONG_FACTS):
        return []


def _row(place: int, row: Mapping[str, Any], unit: str) -> dict[str, Any]:
    error, share = (math.nan if row[name] is None else float(row[name]) for name in ("error", "share"))
    shown, code = outcome(str(row["verdict"]), share), str(row["code"])
    return {
        "row": place, "title": shortened(str(row["title"]), _SHOWN), "code": code,
        "parameters": dict(row["parameters"]), "takes": _TAKEN.get(code, ""),
        "verdict": shown, "mark": MARKS.get(shown, ""), "error": cell(error, share, unit),
    }  # fmt: skip


def _actions_content(folder: Folder, name: str, settings: Settings) -> dict[str, Any]:
    """What the page shows of actions: those that were tried, why the last one failed, and changed answers."""
    try:
        aim = aim_of(folder, name, settings)
    except InputError:
        aim = None
    job = latest(folder, name)
    ended = job if job is not None and job.title in (DESIGN, ADVICE) else None
    # it failed, or no noise keeps the promise
    wrong = ended is not None and (ended.state == "failed" or (ended.title == DESIGN and ended.code == POLICY_FAILED))
    stems = tuple(_stem(name, code) for code in _DERIVED)
    return {
        "aim": aim and target(**aim), "rows": [row for row in advice_of(folder, name) if row["takes"]],
        "tried_all": folder.current(name, ".advice.json") is not None,
        "derived": [listed_audit(folder, other) for other in folder.audits() if other.startswith(stems)],
        "not_acted": ended.said if ended is not None and wrong else "",
    }  # fmt: skip


# The page


async def decision(request: Request) -> Response:
    """The decision on an audit, and what can be done with it."""
    return await _page(request)


async def written(request: Request) -> Response:
    """One of the pages that commands wrote of an audit, and no other file."""
    ending = PAGES.get(request.path_params["page"])
    path = None if ending is None else folder_of(request).written(request.path_params["name"], ending)
    if path is None:
        raise HTTPException(404)
    return written_page(path.read_text(encoding="utf-8", errors="replace"))


async def _page(
    request: Request, form: Form | None = None, errors: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    # first: a job that ends meanwhile is asked for again by the page
    running = await _run_content(request, settings)
    saved = folder.saved(name)
    released: dict[str, Any] = {}
    try:
        if saved and not (running["job"] and running["job"].title == AUDIT):
            released = await release.release_content(request, settings, form)
    except EmprivError as error:
        errors = {"": str(error), **(errors or {})}
    made, asked = folder.decided(name), request.query_params.get("page", "noise")  # of what is offered
    pages = [key for key, ending in PAGES.items() if folder.current(name, ending) is not None]
    return show(
        request, "decision.html", step="decision", saved=saved, made=made, pages=pages,
        page=asked if asked in pages else "report" if "report" in pages else None, releasable=bool(released),
        as_it_is=made == PUBLISH, errors=errors or {}, status=status, settings=settings,
        **running, **_actions_content(folder, name, settings), **released,
    )  # fmt: skip


def _done(handler: Callable[[Request, Form], Awaitable[Response | None]]) -> Callable[[Request], Awaitable[Response]]:
    """What a form of the page asks for, then the page again; with the error beside its field if it was refused."""

    async def answer(request: Request) -> Response:
        form = await form_of(request)
        try:
            return await handler(request, form) or go(request, "decision")
        except EmprivError as error:
            return await _page(request, form, by_label(error, {**release.LABELS, **release.REVIEW_LABELS}), 400)

    return answer


_FORMS = {
    "run": start_run, "run/stop": stop, "page": write_page, "actions": act,
    "release": release.release_answer, "release/as-it-is": release.prepare_as_it_is, "release/record": write_record,
    "review": release.review,
}  # fmt: skip
ROUTES = [
    Route("/audits/{name}/decision", decision),
    Route("/audits/{name}/written/{page}", written),
    Route("/audits/{name}/run/progress", progress),
    Route("/audits/{name}/release/labels", release.labels),
    *(Route(f"/audits/{{name}}/{end}", _done(handler), methods=["POST"]) for end, handler in _FORMS.items()),
]
