"""Releases: one answer, with noise or as it is, through the ledger; and the checker, who approves or refuses it.

The answer that somebody types goes to the command by its input: no file holds it but the ledger, which keeps a digest.
NAME.review.json holds every review, with the digests of the audit and the noise that it is about: another audit or
other noise has not been reviewed. The ledger keeps the last review of what is released; what a checker refused is not
released. Functions that open a ledger are called beside the server, in the folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
import time
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from empriv.app.folder import Folder
from empriv.app.jobs import AS_IT_IS, PAGE, RELEASE, Job, is_under_way, latest, start
from empriv.app.pages import folder_of, positive, show, workers_of
from empriv.app.table import remembered
from empriv.base.storage import WRONG_FACTS, write_atomically
from empriv.base.targets import Target, parse_target
from empriv.cli.config import Settings
from empriv.cli.running import POLICY_FAILED
from empriv.errors import EmprivError, InputError
from empriv.words.decision import PUBLISH

# What people read in the place of a field's name.
LABELS = {
    "book": "The ledger", "database": "The database", "rows": "The file of rows", "value": "The answer",
    "confirm": "The box", "granularity": "The step", "delta": "delta", "epsilon": "epsilon",
}  # fmt: skip
REVIEW_LABELS = {"checker": "Your name", "role": "Your role", "reason": "The reason", "outcome": "Your answer"}
REFUSED = "refused"
_REVIEWS = "empriv reviews"  # format of the file


# The ledger of an audit's answers


def ledger_named(folder: Folder, name: str) -> str:
    """The name of a ledger in the folder, there or to be made."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,99}\.ledger", name) or (folder.path / name).is_symlink():
        raise InputError("`book` must be a name that ends in .ledger, such as releases.ledger.")
    return name


async def ledger_of(request: Request, name: str) -> str:
    """The ledger that an audit's answers are released through: one for each promise.

    The one that its settings name; else one with the limits of its promise, or without any; else a new one.
    """
    folder = folder_of(request)
    settings = folder.settings(name)
    if settings.ledger is not None:
        return ledger_named(folder, settings.ledger)
    limits = limits_of_promise(settings)
    books = folder.ledgers()
    changed = tuple((folder.path / book).stat().st_mtime_ns for book in books)
    policies = await remembered(request, (books, changed), policies_of, books)
    readable = [(book, policy) for book, policy in zip(books, policies, strict=True) if policy is not None]
    same = [book for book, policy in readable if all(policy.get(key) == value for key, value in limits.items())]
    without = [book for book, policy in readable if policy.get("epsilon") is None]  # it limits no figure
    if same or without:
        return (same or without)[0]
    free = (f"releases{number}.ledger" for number in ("", *(f"-{k}" for k in range(2, 1000))))
    return next(book for book in free if not (folder.path / book).exists())


def limits_of_promise(settings: Settings) -> dict[str, Any]:
    """The limits of a promise, as a ledger has them; no limit where nothing is promised."""
    if not settings.target:
        return {"epsilon": None}
    target = target_of(settings)
    return {"epsilon": target.epsilon, target.figure: target.limit}


def new_limits(settings: Settings) -> dict[str, Any]:
    """The limits of a new ledger: the promise, over as many releases in a row as it is for."""
    return {**limits_of_promise(settings), "window": settings.times or 1} if settings.target else {}


def target_of(settings: Settings) -> Target:
    """What was promised; an error if nothing was."""
    if not settings.target:
        raise InputError("The promise must say what is private enough. Hint: the step of the promise.")
    return parse_target(settings.target[0])


def policies_of(books: tuple[str, ...]) -> tuple[dict[str, Any] | None, ...]:
    """The limits of each ledger, None if it cannot be read."""
    from empriv.ledger import Ledger

    limits: list[dict[str, Any] | None] = []
    for book in books:
        try:
            limits.append(dict(vars(Ledger(book, create=False).policy)))
        except EmprivError:
            limits.append(None)
    return tuple(limits)


def make_ledger(name: str, limits: Mapping[str, Any]) -> None:
    """Make a ledger, as `empriv ledger init` does."""
    from empriv.ledger import Ledger, Policy

    Ledger(name, policy=Policy(**limits))


# The checker


async def review(request: Request, form: Mapping[str, Any]) -> None:
    """Keep what a checker says."""
    folder, name = folder_of(request), request.path_params["name"]
    if not folder.saved(name):
        raise InputError("The audit must be run before it is reviewed.")
    if form.get("offered") != offered(folder, name):
        raise InputError("The audit or its noise has changed since you opened the page. Look again, then answer.")
    from empriv.ledger import Review

    texts = {field: " ".join(str(form.get(field) or "").split()) for field in ("outcome", "checker", "role", "reason")}
    said = Review(**texts, time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    digests = await run_in_threadpool(digests_of, folder, name)
    content = {"format": _REVIEWS, "reviews": [*_all_reviews(folder, name), {**vars(said), **digests}]}
    path = folder.file(name, ".review.json")
    write_atomically(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def reviews_of(folder: Folder, name: str) -> list[dict[str, str]]:
    """Reviews of what is offered now, latest first."""
    every = _all_reviews(folder, name)
    now = digests_of(folder, name) if every else {}
    return [each for each in reversed(every) if now.items() <= each.items()]


def check_not_refused(folder: Folder, name: str) -> None:
    """Refuse to release what a checker refused last."""
    said = reviews_of(folder, name)
    if said and said[0]["outcome"] == REFUSED:
        raise InputError("A checker refused this release. Change the answer or its noise, or have it approved.")


def review_to_pass_on(folder: Folder, name: str) -> str | None:
    """The file whose last review is of the audit and the noise that are there now, for the ledger to keep; or None."""
    last, current = _all_reviews(folder, name)[-1:], reviews_of(folder, name)[:1]
    return folder.file(name, ".review.json").name if last and last == current else None


def _all_reviews(folder: Folder, name: str) -> list[dict[str, str]]:
    """All reviews of an audit, in their order; none if the file is not there, or damaged."""
    path = folder.written(name, ".review.json")
    try:
        content = {} if path is None else json.loads(path.read_bytes())
        listed = content["reviews"] if content.get("format") == _REVIEWS else ()
        return [{field: str(each[field]) for field in (*REVIEW_LABELS, "time", "audit", "noise")} for each in listed]
    except (OSError, *WRONG_FACTS):
        return []


def digests_of(folder: Folder, name: str) -> dict[str, str]:
    """SHA-256 of the audit and of its noise; "" where there is none."""

    def digest(ending: str) -> str:
        path = folder.written(name, ending)
        if path is None:
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return {"audit": digest(".empriv"), "noise": digest(".noise.empriv")}


def offered(folder: Folder, name: str) -> str:
    """A mark of the audit and the noise that a page offers: what is released is what somebody has seen there."""
    paths = [path for end in (".empriv", ".noise.empriv") if (path := folder.written(name, end)) is not None]
    facts = [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in paths]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


# The release


async def release_answer(request: Request, form: Mapping[str, Any]) -> None:
    """Release one answer."""
    folder, name = folder_of(request), _saved(request)
    if is_under_way(folder, name):
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
    if folder.decided(name) != PUBLISH:
        raise InputError("Answers as they are must be decided to be private enough, and these are not.")
    if not is_under_way(folder, name):
        step = positive("granularity", str(form.get("granularity", "")))
        start(folder, name, AS_IT_IS, noise_arguments(name, folder.settings(name), step))


async def labels(request: Request) -> Response:
    """Which databases were audited, for the field that names one."""
    known = await workers_of(request).run(labels_of, _saved(request))
    return show(request, "release_labels.html", labels=known)


def release_arguments(
    folder: Folder, name: str, book: str, form: Mapping[str, Any]
) -> tuple[tuple[str, ...], str | None]:
    """The command that releases what a form asks for, and what it reads from its input."""
    way, label = form.get("way"), str(form.get("database") or "").strip()
    if way not in ("database", "rows", "value"):
        raise InputError("`database` must be chosen, or rows, or an answer of yours.")
    arguments = ["release", f"{name}.noise.empriv", "--audit", f"{name}.empriv", "--ledger", book, "--json", "-"]
    checked = review_to_pass_on(folder, name)
    if checked is not None:
        arguments += ["--review", checked]
    private = None
    if way == "rows":
        if not form.get("rows"):
            raise InputError("`rows` must be a file of the folder.")
        arguments += [f"--rows={folder.check_source(str(form['rows']))}"]
    elif not label:
        raise InputError("`database` must say which database the answer is from.")
    else:
        arguments += [f"--database={label}"]
    if way == "value":
        private = str(form.get("value") or "").replace("\r\n", "\n").strip()
        _check_value(private, several=folder.figures(name).get("n_components") is not None)
        arguments += ["--value", "-"]
    if form.get("confirm") != "yes":
        raise InputError("`confirm` must be ticked: a release cannot be taken back.")
    return tuple(arguments), private


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


async def release_content(request: Request, settings: Settings, form: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the page shows of releases."""
    folder, name = folder_of(request), request.path_params["name"]
    job, last = latest(folder, name), latest(folder, name, RELEASE)
    failed = job is not None and job.title in (RELEASE, AS_IT_IS, PAGE) and job.state == "failed"
    refused = last is not None and last.state == "done" and last.code == POLICY_FAILED
    released, reviews, book = _released(last), reviews_of(folder, name), await ledger_of(request, name)
    command = ("empriv", "release", f"{name}.noise.empriv", "--audit", f"{name}.empriv", "--ledger", book)
    ends = (".noise.empriv", ".empriv")
    times = [path.stat().st_mtime for end in ends if (path := folder.written(name, end)) is not None]
    return {
        "noisy": folder.saved(name, "noise", ".noise.empriv"), "book": book, "books": folder.ledgers(),
        "offered": offered(folder, name), "released": released,
        "refused": last.said.removeprefix("Refused: ") if refused and last is not None else None,
        "ended": last is not None and last.state in ("lost", "cancelled"),
        "not_released": job.said if failed and job is not None else None,
        # typed answers are not kept
        "given": {key: str(value) for key, value in (form or {}).items() if key != "value"},
        "older": len(times) == 2 and times[0] < times[1],  # noise of an earlier run of the audit
        "tables": [("", "none"), *((table, table) for table in folder.tables())],
        "several": folder.figures(name).get("n_components") is not None,
        "release_command": shlex.join(command), "unit": settings.unit, "reviews": reviews,
        "checked": next((each for each in reviews if released and each["time"][:19] <= released["time"][:19]), None),
    }  # fmt: skip


def _saved(request: Request) -> str:
    """The name of the audit, which must have been run."""
    name: str = request.path_params["name"]
    if not folder_of(request).saved(name):
        raise InputError("The audit must be run before anything is released.")
    return name


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
    if job is None or job.state != "done" or job.code != 0:
        return None
    try:
        facts = json.loads(job.said)
        answer = facts["answer"]
    except WRONG_FACTS:
        return None
    answers = list(answer.items()) if isinstance(answer, dict) else [("", answer)]
    label = next((text.partition("=")[2] for text in job.arguments if text.startswith("--database=")), "")
    return {**facts, "answers": answers, "database": label}
