"""Releases: one answer, with noise or as it is, through the ledger; and what goes out with it.

The answer that somebody types goes to the command by its input: no file holds it but the ledger, which keeps a digest.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.folder import Folder
from empriv.app.form_fields import by_label, positive
from empriv.app.jobs import Job, latest, start
from empriv.app.ledgers import (
    fits_in_words,
    ledger_named,
    ledger_of,
    make_ledger,
    new_limits,
    target_of,
)
from empriv.app.listing import decided, figures_of_file
from empriv.app.pages import attached, folder_of, show, workers_of
from empriv.app.review import check_not_refused, offered, review_to_pass_on, reviews_of
from empriv.app.run import PAGE
from empriv.base.storage import WRONG_FACTS
from empriv.cli.config import Settings
from empriv.cli.running import POLICY_FAILED
from empriv.errors import EmprivError, InputError
from empriv.words.decision import PUBLISH

RELEASE, AS_IT_IS = "Release", "Noise for answers as they are"
"""Titles of jobs."""
# What people read in the place of a field's name.
LABELS = {
    "book": "The ledger", "database": "The database", "rows": "The file of rows", "value": "The answer",
    "confirm": "The box", "granularity": "The step", "delta": "delta", "epsilon": "epsilon",
}  # fmt: skip
_DOWNLOADS = {".toml": "application/toml", ".json": "application/json"}


async def release_answer(request: Request, form: Mapping[str, Any]) -> None:
    """Release one answer."""
    folder, name = folder_of(request), _saved(request)
    job = latest(folder, name)
    if job is not None and job.running:
        return  # a second click
    book = ledger_named(folder, str(form.get("book") or await ledger_of(request, name)))
    if not folder.saved(name, "noise", ".noise.empriv"):
        raise InputError("Design noise first (zero noise also needs a certificate).")
    if form.get("offered") != offered(folder, name):
        raise InputError("The audit or its noise has changed since you opened the page. Look again, then release.")
    check_not_refused(folder, name)
    arguments, private = release_arguments(folder, name, book, form)
    if form.get("way") == "database":
        check_label(str(form.get("database")), await workers_of(request).run(labels_of, name))
    if book not in folder.ledgers():
        await workers_of(request).run(make_ledger, book, new_limits(folder.settings(name)))
    start(folder, name, RELEASE, arguments, private=private)


async def prepare_as_it_is(request: Request, form: Mapping[str, Any]) -> None:
    """Prepare answers without noise: a law that rounds, and its certificate."""
    folder, name = folder_of(request), request.path_params["name"]
    job = latest(folder, name)
    if decided(folder, name) != PUBLISH:
        raise InputError("Answers as they are must be decided to be private enough, and these are not.")
    if job is None or not job.running:
        step = positive("granularity", str(form.get("granularity", "")))
        start(folder, name, AS_IT_IS, noise_arguments(name, folder.settings(name), step))


async def fits(request: Request) -> Response:
    """How many releases like this one fit in a row: in the ledger that is there, or in the one that would be made."""
    folder, name = folder_of(request), request.path_params["name"]
    try:
        book = ledger_named(folder, request.query_params.get("book") or await ledger_of(request, name))
        limits = None if book in folder.ledgers() else new_limits(folder.settings(name))
        if not folder.saved(name, "noise", ".noise.empriv"):
            return show(request, "release_fits.html", sentence="")
        sentence, endless = await workers_of(request).run(fits_in_words, name, book, limits)
    except EmprivError as error:
        return show(request, "release_fits.html", sentence="", errors=by_label(error, LABELS))
    return show(request, "release_fits.html", sentence=sentence, endless=endless)


async def labels(request: Request) -> Response:
    """Which databases were audited, for the field that names one."""
    known = await workers_of(request).run(labels_of, _saved(request))
    return show(request, "release_labels.html", labels=known)


def _saved(request: Request) -> str:
    """The name of the audit, which must have been run."""
    name: str = request.path_params["name"]
    if not folder_of(request).saved(name):
        raise InputError("The audit must be run before anything is released.")
    return name


async def download(request: Request) -> Response:
    """The audit's settings or figures, as files."""
    name, ending = request.path_params["name"], f".{request.path_params['kind']}"
    path = folder_of(request).written(name, ending) if ending in _DOWNLOADS else None
    if path is None:
        raise HTTPException(404)
    return attached(path.read_bytes(), _DOWNLOADS[ending], path.name)


def release_arguments(
    folder: Folder, name: str, book: str, form: Mapping[str, Any]
) -> tuple[tuple[str, ...], str | None]:
    """The command that releases what a form asks for, and what it reads from its input."""
    way = form.get("way")
    files = (f"{name}.noise.empriv", "--audit", f"{name}.empriv", "--ledger", book)
    label = str(form.get("database") or "").strip()
    if way not in ("database", "rows", "value"):
        raise InputError("`database` must be chosen, or rows, or an answer of yours.")
    arguments: tuple[str, ...] = ("release", *files, "--json", "-")
    checked = review_to_pass_on(folder, name)
    if checked is not None:
        arguments = (*arguments, "--review", checked)
    private = None
    if way == "rows":
        if not form.get("rows"):
            raise InputError("`rows` must be a file of the folder.")
        arguments = (*arguments, f"--rows={folder.check_source(str(form['rows']))}")
    elif not label:
        raise InputError("`database` must say which database the answer is from.")
    if label and way != "rows":
        arguments = (*arguments, f"--database={label}")
    if way == "value":
        several = figures_of_file(folder, name).get("n_components") is not None
        private = str(form.get("value") or "").replace("\r\n", "\n").strip()
        _check_value(private, several=several)
        arguments = (*arguments, "--value", "-")
    if form.get("confirm") != "yes":
        raise InputError("`confirm` must be ticked: a release cannot be taken back.")
    return arguments, private


def noise_arguments(name: str, settings: Settings, granularity: float) -> tuple[str, ...]:
    """The command that judges answers as they are, rounded to multiples, and says what that assumes."""
    target = target_of(settings)
    if target.figure != "delta":
        raise InputError("The promise must have a limit on delta for answers to be released.")
    limit = f"--delta={target.limit:g}"
    presence = () if settings.presence == "both" else (f"--presence={settings.presence}",)
    return (
        "noise", f"{name}.empriv", f"--epsilon={target.epsilon:g}", limit, *presence, "--method", "as-it-is",
        f"--granularity={granularity:g}", "--save", f"{name}.noise.empriv", "--report", f"{name}.noise.html",
    )  # fmt: skip


def labels_of(name: str) -> tuple[str, ...]:
    """Labels of the databases that were audited; called beside the server, in the folder."""
    from empriv.base.storage import read_archive
    from empriv.ledger.values import label_text

    _, arrays = read_archive(f"{name}.empriv", kinds=("audit",))  # nothing is measured for a list of labels
    if "databases" not in arrays:
        raise InputError(f"{name}.empriv must say which databases were audited: it is damaged.")
    return tuple(label_text(label) for label in arrays["databases"].tolist())


def check_label(label: str, known: tuple[str, ...]) -> None:
    """Refuse a database that was not audited."""
    from empriv.ledger.values import label_text

    if label_text(label) not in known:
        raise InputError(f"`database` must be one of those that were audited, from {known[0]} to {known[-1]}.")


def _check_value(text: str, *, several: bool) -> None:
    """Refuse what is no number here, beside its field; the sentence never repeats it."""
    numbers = [line.rpartition("=")[2] for line in text.splitlines()] if several else [text]
    for number in numbers or [""]:
        try:
            finite = math.isfinite(float(number))
        except ValueError:
            finite = False
        if not finite:
            rule = "a line NAME=NUMBER for each number" if several else "a number"
            raise InputError(f"`value` must be {rule}.")


def _released(job: Job | None) -> dict[str, Any] | None:
    """What the last release gave."""
    if job is None or job.title != RELEASE or job.state != "done" or job.code != 0:
        return None
    try:
        facts = json.loads(job.said)
        answer = facts["answer"]
    except WRONG_FACTS:
        return None
    answers = list(answer.items()) if isinstance(answer, dict) else [("", answer)]
    label = next((text.partition("=")[2] for text in job.arguments if text.startswith("--database=")), "")
    return {**facts, "answers": answers, "database": label}


async def release_content(request: Request, settings: Settings, form: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the page shows of releases."""
    folder, name = folder_of(request), request.path_params["name"]
    job, last = latest(folder, name), latest(folder, name, RELEASE)
    failed = job if job is not None and job.title in (RELEASE, AS_IT_IS, PAGE) and job.state == "failed" else None
    refused, released, reviews = None, _released(last), reviews_of(folder, name)
    if last is not None and last.state == "done" and last.code == POLICY_FAILED:
        refused = last.said.removeprefix("Refused: ")
    given = {key: str(value) for key, value in (form or {}).items() if key != "value"}  # typed answers are not kept
    book = await ledger_of(request, name)
    command = ("empriv", "release", f"{name}.noise.empriv", "--audit", f"{name}.empriv", "--ledger", book)
    return {
        "noisy": folder.saved(name, "noise", ".noise.empriv"), "book": book, "books": folder.ledgers(),
        "offered": offered(folder, name), "released": released, "refused": refused,
        "ended": last is not None and last.state in ("lost", "cancelled"),
        "not_released": None if failed is None else failed.said, "given": given, "older": _is_older(folder, name),
        "tables": [("", "none"), *((table, table) for table in folder.tables())],
        "several": figures_of_file(folder, name).get("n_components") is not None,
        "release_command": shlex.join(command), "unit": settings.unit,
        "reviews": reviews,
        "checked": next((each for each in reviews if released and each["time"][:19] <= released["time"][:19]), None),
    }  # fmt: skip


def _is_older(folder: Folder, name: str) -> bool:
    """Whether the noise was designed before the audit was run again."""
    times = [path.stat().st_mtime for end in (".noise.empriv", ".empriv") if (path := folder.written(name, end))]
    return len(times) == 2 and times != sorted(times, reverse=True)


ROUTES = [
    Route("/audits/{name}/release/labels", labels),
    Route("/audits/{name}/release/fits", fits),
    Route("/audits/{name}/files/{kind}", download),
]
