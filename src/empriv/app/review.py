"""The checker's view: approve or refuse what is offered for release, with a reason that is kept beside it.

NAME.review.json holds every review, with the digests of the audit and the noise that it is about: another audit or
other noise has not been reviewed. The ledger keeps the last review of what is released; what a checker refused is not
released.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from empriv.app.folder import Folder
from empriv.app.pages import folder_of
from empriv.base.storage import WRONG_FACTS, write_atomically
from empriv.errors import InputError

REFUSED = "refused"
LABELS = {"checker": "Your name", "role": "Your role", "reason": "The reason", "outcome": "Your answer"}
_FORMAT = "empriv reviews"


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
    content = {
        "format": _FORMAT,
        "reviews": [*_all_reviews(folder, name), {**vars(said), **await run_in_threadpool(digests_of, folder, name)}],
    }
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
        listed = content["reviews"] if content.get("format") == _FORMAT else ()
        return [{field: str(each[field]) for field in (*LABELS, "time", "audit", "noise")} for each in listed]
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
