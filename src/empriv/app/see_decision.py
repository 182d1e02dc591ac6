"""Step "Decision": the decision's line, and the page that the command wrote, in a frame of its own."""

from __future__ import annotations

import shlex

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.folder import Folder
from empriv.app.guard import written_page
from empriv.app.listing import figures_of_file
from empriv.app.pages import folder_of, form_of, go, show
from empriv.app.watch_run import how_far
from empriv.app.work import latest, start
from empriv.cli.config import Settings
from empriv.errors import EmprivError
from empriv.words.decision import KINDS, PUBLISH, Decision

PAGES = {"report": ".html", "noise": ".noise.html", "public": ".public.html"}
"""Pages of an audit that may be shown, by the end of their address: the file's ending."""
PAGE = "Page"
"""Title of the work that writes the page of a saved audit."""


async def decision(request: Request) -> Response:
    """The decision on an audit; a form has the page written for one that has none."""
    folder, name = folder_of(request), request.path_params["name"]
    if request.method == "GET":
        return _page(request)
    await form_of(request)
    work = latest(folder, name)
    try:
        if work is None or not work.running:
            start(folder, name, PAGE, page_arguments(name, folder.settings(name)))
    except EmprivError as error:
        return _page(request, errors={"": str(error)}, status=400)
    return go(request, "decision")


async def written(request: Request) -> Response:
    """One of the pages that commands wrote of an audit, and no other file."""
    ending = PAGES.get(request.path_params["page"])
    if ending is None:
        raise HTTPException(404)
    path = folder_of(request).written(request.path_params["name"], ending)
    if path is None:
        raise HTTPException(404)
    return written_page(path.read_text(encoding="utf-8", errors="replace"))


def page_arguments(name: str, settings: Settings, *, public: bool = False) -> tuple[str, ...]:
    """The command that writes the page of a saved audit, with the verdicts on its targets."""
    asked = [text for target in settings.target for text in ("--target", target)]
    asked += ["--basis", settings.basis, "--presence", settings.presence] if settings.target else []
    if public:
        return ("show", f"{name}.empriv", "--report", f"{name}.public.html", "--public", *asked)
    return ("show", f"{name}.empriv", "--json", f"{name}.json", "--report", f"{name}.html", *asked)


def decision_of(folder: Folder, name: str) -> Decision | None:
    """What was decided, by the figures that the command wrote; None if no target was given, or nothing is written."""
    facts = figures_of_file(folder, name).get("decision")
    try:
        return None if facts is None else Decision(**{key: str(value) for key, value in facts.items()})
    except (AttributeError, TypeError):
        return None


def _page(request: Request, *, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    folder, name = folder_of(request), request.path_params["name"]
    made = decision_of(folder, name)
    pages = [key for key, ending in PAGES.items() if folder.current(name, ending) is not None]
    asked = request.query_params.get("page", "report")
    page = asked if asked in pages else "report" if "report" in pages else None
    work = latest(folder, name)
    saved = folder.saved(name) or folder.saved(name, "scan")
    return show(
        request, "decision.html", step="decision", made=made,
        kind="open" if made is None else KINDS.get(made.word, "open"),
        saved=saved, page=page, as_it_is=made is not None and made.word == PUBLISH,
        work=work if work is not None and work.running else None,
        **(how_far(work) if work is not None and work.running else {}),
        failed=work.said if work is not None and work.title == PAGE and work.state == "failed" else None,
        command=shlex.join(("empriv", *page_arguments(name, folder.settings(name)))), errors=errors or {},
        status=status,
    )  # fmt: skip


ROUTES = [
    Route("/audits/{name}/decision", decision, methods=["GET", "POST"]),
    Route("/audits/{name}/written/{page}", written),
]
