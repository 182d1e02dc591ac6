"""The pages that commands write of an audit, and the decision that they state."""

from __future__ import annotations

from empriv.app.folder import Folder
from empriv.app.listing import figures_of_file
from empriv.cli.config import Settings
from empriv.words.decision import Decision

PAGES = {"report": ".html", "noise": ".noise.html", "public": ".public.html"}
"""Pages of an audit that may be shown, by the end of their address: the file's ending."""
PAGE = "Page"
"""Title of the work that writes the page of a saved audit."""


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
