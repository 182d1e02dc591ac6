"""Step "Decision": the run with its progress, then the page itself, what can be done, the release and the checker."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app import release, review, run
from empriv.app.folder import IMPACT, PUBLIC
from empriv.app.form_fields import by_label
from empriv.app.guard import written_page
from empriv.app.jobs import AUDIT
from empriv.app.listing import decided
from empriv.app.pages import folder_of, form_of, go, show
from empriv.app.tried_actions import act, actions_content
from empriv.errors import EmprivError
from empriv.words.decision import PUBLISH

Form = Mapping[str, Any]
PAGES = {"report": ".html", "noise": ".noise.html", "dpia": IMPACT, "public": PUBLIC}
"""Pages of an audit that may be shown, by the end of their address: the file's ending."""


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
    running = await run.run_content(
        request, settings
    )  # first: a job that ends meanwhile is asked for again by the page
    saved = folder.saved(name)
    released: dict[str, Any] = {}
    try:
        if saved and not (running["job"] and running["job"].title == AUDIT):
            released = await release.release_content(request, settings, form)
    except EmprivError as error:
        errors = {"": str(error), **(errors or {})}
    made, asked = decided(folder, name), request.query_params.get("page", "noise")  # of what is offered
    pages = [key for key, ending in PAGES.items() if folder.current(name, ending) is not None]
    return show(
        request, "decision.html", step="decision", saved=saved, made=made, pages=pages,
        page=asked if asked in pages else "report" if "report" in pages else None, releasable=bool(released),
        as_it_is=made == PUBLISH, errors=errors or {}, status=status,
        page_command=shlex.join(("empriv", *run.page_arguments(name, settings))),
        settings=settings, **running, **actions_content(folder, name, settings), **released,
    )  # fmt: skip


def _done(handler: Callable[[Request, Form], Awaitable[Response | None]]) -> Callable[[Request], Awaitable[Response]]:
    """What a form of the page asks for, then the page again; with the error beside its field if it was refused."""

    async def answer(request: Request) -> Response:
        form = await form_of(request)
        try:
            return await handler(request, form) or go(request, "decision")
        except EmprivError as error:
            return await _page(request, form, by_label(error, {**release.LABELS, **review.LABELS}), 400)

    return answer


_FORMS = {
    "run": run.start_run, "run/stop": run.stop, "page": run.write_page, "actions": act,
    "release": release.release_answer, "release/as-it-is": release.prepare_as_it_is, "release/record": run.write_record,
    "review": review.review,
}  # fmt: skip
ROUTES = [
    Route("/audits/{name}/decision", decision),
    Route("/audits/{name}/written/{page}", written),
    Route("/audits/{name}/run/progress", run.progress),
    *(Route(f"/audits/{{name}}/{end}", _done(handler), methods=["POST"]) for end, handler in _FORMS.items()),
]
