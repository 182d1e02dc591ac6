"""The first page: all audits of the folder and what was released; to filter, to take away, to delete.

Nothing is loaded that holds results: NAME.toml says what is asked, NAME.json what came out. Any of them may be damaged,
or have been put there by somebody hostile: what cannot be read is listed with a sentence.
"""

from __future__ import annotations

import io
import time
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from empriv.app.folder import IMPACT, PUBLIC, Folder
from empriv.app.jobs import Job, all_jobs, changed_since, forget, latest
from empriv.app.pages import attached, folder_of, form_of, show, workers_of
from empriv.base.storage import kind_of
from empriv.base.targets import parse_target
from empriv.base.text import shortened, visible
from empriv.errors import EmprivError, InputError
from empriv.words.decision import KINDS

if TYPE_CHECKING:
    from empriv.ledger import Ledger, ReleaseEntry

EXPORTED = (".toml", ".json", ".html", ".noise.html", ".noise.json", ".advice.json", ".review.json", IMPACT, PUBLIC)
"""Files of an audit that a checker takes away: none that says who is who, none that holds results."""
NOT_RUN, RUNNING, AUDITED, CHANGED, DAMAGED = "not run yet", "running", "audited", "settings changed since", "damaged"
KINDS_SHOWN = {"publish": "Publish", "change": "Publish changed", "stop": "Do not publish", "open": "Nothing decided"}
"""What the list can be filtered by."""
_SHOWN = 300  # letters of a text in the list
_SHOWN_OF_RELEASE = 200
_NOT_AN_AUDIT = {
    "noise": "Saved noise, which `empriv release` takes.",
    "results": "Saved results, which `empriv show` audits.",
}


# Audits


@dataclass(frozen=True)
class Listed:
    """One audit of the list.

    Attributes
    ----------
    name : of its files
    state : one of `NOT_RUN`, `RUNNING`, `AUDITED`, `CHANGED`, `DAMAGED`, or how its last job ended
    asked : the query
    line : the decision in one line; of what is damaged, why
    kind : of the decision: "publish", "change", "stop", or "open" where there is none
    promise : what was promised, in figures
    figures : what NAME.json holds, or nothing
    saved : whether NAME.empriv holds an audit
    job : the latest one
    when : seconds since 1970 of its latest file
    noisy : whether noise was designed for it
    """

    name: str
    state: str
    asked: str
    line: str
    kind: str
    promise: str
    figures: Mapping[str, Any]
    saved: bool
    job: Job | None
    when: float
    noisy: bool

    @property
    def step(self) -> str:
        """Where a click on it leads."""
        return "decision" if self.saved or self.job is not None else "data"

    @property
    def day(self) -> str:
        return time.strftime("%Y-%m-%d", time.localtime(self.when)) if self.when else ""

    def count(self, name: str) -> str:
        """A number of its figures, such as "n_databases"."""
        number = self.figures.get(name)
        return f"{number:,}" if isinstance(number, int) else ""

    def matches(self, search: str) -> bool:
        """Whether all words of a search are in what is listed."""
        text = " ".join((self.name, self.state, self.asked, self.line, self.promise, self.day)).casefold()
        return all(word in text for word in search.casefold().split())


def listed_audits(folder: Folder, search: str = "", kind: str = "") -> tuple[Listed, ...]:
    """All audits that have the words of a search, and a decision of this kind, latest first."""
    jobs: dict[str, list[Job]] = {}
    for job in all_jobs(folder):
        jobs.setdefault(job.audit, []).append(job)
    every = (listed_audit(folder, name, jobs.get(name, ())) for name in folder.audits())
    return tuple(audit for audit in every if kind in ("", audit.kind) and audit.matches(search))


def listed_audit(folder: Folder, name: str, jobs: Sequence[Job] | None = None) -> Listed:
    """One audit as it stands; ``jobs`` are all of its own, latest first, if they are known."""
    jobs = tuple(all_jobs(folder, name)) if jobs is None else jobs
    job = jobs[0] if jobs else None
    settings, damage = _settings(folder, name)
    figures = folder.figures(name)
    asked = figures.get("query") or settings.get("query") or ""
    asked = "; ".join(map(str, asked)) if isinstance(asked, list) else str(asked)
    endings = (".toml", ".empriv", ".json", ".html")
    written = {end: path.stat().st_mtime for end in endings if (path := folder.written(name, end)) is not None}
    kind = kind_of(folder.file(name, ".empriv")) if ".empriv" in written else None
    if ".empriv" in written and kind != "audit":
        damage = damage or _NOT_AN_AUDIT.get(str(kind), f"{name}.empriv is damaged, or not a file that empriv wrote.")
    decision = figures.get("decision")
    decision = decision if isinstance(decision, dict) else {}
    state = NOT_RUN
    if job is not None and job.running:
        state = RUNNING
    elif damage:
        state = DAMAGED
    elif kind == "audit" or figures:
        state = CHANGED if changed_since(folder, name, jobs) else AUDITED
    elif job is not None and job.state in ("failed", "cancelled", "lost"):
        state = job.state
    return Listed(
        name, state, _short(asked), _short(damage if state == DAMAGED else str(decision.get("line", ""))),
        KINDS.get(str(decision.get("word")), "open"), _short(_promise(settings)), figures, kind == "audit", job,
        max(written.values(), default=0.0), folder.current(name, ".noise.empriv") is not None,
    )  # fmt: skip


def unlisted_files(folder: Folder) -> tuple[str, ...]:
    """Files of audits whose names the app does not take: they are named, not opened."""
    known = set(folder.audits())
    paths = [path for ending in (".toml", ".empriv") for path in folder.path.glob(f"*{ending}")]
    return tuple(sorted(visible(path.name) for path in paths if path.stem.removesuffix(".noise") not in known))


def _settings(folder: Folder, name: str) -> tuple[dict[str, Any], str]:
    """What the TOML says, unchecked, and why it cannot be read."""
    path = folder.written(name, ".toml")
    if path is None:
        return {}, ""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")), ""
    except (OSError, ValueError, RecursionError):  # of TOML and of Unicode alike
        return {}, f"{name}.toml cannot be read: it is not TOML."


def _promise(settings: Mapping[str, Any]) -> str:
    """The promise of settings that nobody has checked."""
    target = settings.get("target") or ()
    texts = [target] if isinstance(target, str) else [text for text in target if isinstance(text, str)]
    try:
        parsed = [parse_target(text) for text in texts]
    except EmprivError:
        return "; ".join(texts)
    return "; ".join(f"{p.figure.replace('_', ' ')} {p.limit:g} at epsilon {p.epsilon:g}" for p in parsed)


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _SHOWN)


# Releases; these functions are called beside the server, in the folder


def ledgers_here() -> list[dict[str, Any]]:
    """All ledgers of the folder: each with its limits and what they still allow in sentences, and its releases."""
    here = Path.cwd().resolve()
    paths = sorted(path for path in here.glob("*.ledger") if path.is_file() and path.resolve().parent == here)
    return [_ledger(path) for path in paths]


def _ledger(path: Path) -> dict[str, Any]:
    from empriv.ledger import Ledger, ReleaseEntry

    shown: dict[str, Any] = {"name": shortened(path.name), "sentences": (), "releases": (), "problem": ""}
    try:
        ledger = Ledger(path, create=False)
        entries = [entry for entry in ledger.entries() if isinstance(entry, ReleaseEntry)]
        sentences = [sentence.replace("total_risk", "total risk") for sentence in _left(ledger, entries)]
        return {**shown, "sentences": sentences, "releases": list(map(_release, reversed(entries)))}
    except EmprivError as error:
        return {**shown, "problem": str(error)}


def _left(ledger: Ledger, releases: list[ReleaseEntry]) -> tuple[str, ...]:
    """What the limits of a ledger are, and what they still allow."""
    from empriv.cli.ledger import figures_words, left_words, policy_words

    policy = ledger.policy
    sentences: tuple[str, ...] = (f"Limits: {policy_words(policy)}.",)
    if policy.window is not None and ledger.left().releases:
        sentences = left_words(ledger.left())
    if policy.queries is not None:
        asked = len({(entry.query, entry.component) for entry in releases})
        spent = f"{asked:,} of {policy.queries:,} queries {'was' if asked == 1 else 'were'} released at least once."
        sentences = (*sentences, spent)
    joint = next((entry.joint for entry in reversed(releases) if entry.joint is not None), None)
    if policy.window is None and joint is not None:
        sentences = (*sentences, f"Spent: the last release and those it shares rows with, {figures_words(joint)}.")
    return sentences


def _release(entry: ReleaseEntry) -> dict[str, str]:
    """A row of the table: the expected noise, what it tells alone, the database with a pseudonym of its rows."""
    from empriv.auditing.composing import laws_of
    from empriv.cli.ledger import figures_words

    answers = entry.answer if isinstance(entry.answer, tuple) else (entry.answer,)
    more = f" and {len(answers) - 4:,} more" if len(answers) > 4 else ""
    asked = " ".join(entry.query.split()) + ("" if entry.component is None else f" [{entry.component}]")
    try:
        errors = [law.expected_error for law in laws_of(entry)]
        noise = f"±{max(errors):.3g}" + (" at most" if len(errors) > 1 else "")
    except EmprivError:
        noise = "not known"
    rows = "" if entry.rows is None else f" ({entry.rows[:12]})"
    return {
        "When": f"{entry.time[:16].replace('T', ' ')} UTC",
        "What": shortened(asked, _SHOWN_OF_RELEASE),
        "Answer": ", ".join(f"{answer:.10g}" for answer in answers[:4]) + more,
        "Noise": noise,
        "It tells, alone": figures_words(entry.achieved).replace("total_risk", "total risk"),
        "Of": shortened(entry.label + rows, _SHOWN_OF_RELEASE),
        "Databases": f"{entry.n_databases:,}",
        "People": f"{entry.n_individuals:,}",
    }


# Pages


async def home(request: Request) -> Response:
    """Every audit with how far it is, and what was released."""
    folder, kind = folder_of(request), request.query_params.get("kind", "")
    search = request.query_params.get("q", "")[:200]
    return show(
        request, "home.html", audits=listed_audits(folder, search, kind), search=search, kind=kind, kinds=KINDS_SHOWN,
        unlisted_files=unlisted_files(folder), empty=not folder.audits(),
    )  # fmt: skip


async def releases(request: Request) -> Response:
    """What the ledgers say, which the page asks for once it is there."""
    return show(request, "releases.html", ledgers=await workers_of(request).run(ledgers_here))


async def state(request: Request) -> Response:
    """How far the job of an audit is, for its row of the list."""
    return show(request, "state.html", audit=listed_audit(folder_of(request), request.path_params["name"]))


async def export(request: Request) -> Response:
    """The files of one audit in one archive."""
    folder, name = folder_of(request), request.path_params["name"]
    paths = [path for ending in EXPORTED if (path := folder.written(name, ending)) is not None]
    if not paths:
        raise InputError("The audit must have files to take away, got none.")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            archive.writestr(path.name, path.read_bytes())
    return attached(out.getvalue(), "application/zip", f"{name}.zip")


async def delete(request: Request) -> Response:
    """Which files of an audit go, and after a confirmation, that they are gone; rows and ledgers stay."""
    folder, name = folder_of(request), request.path_params["name"]
    if request.method == "POST":
        form = await form_of(request)
        job = latest(folder, name)
        if job is not None and job.running:
            raise InputError(f"Work on this audit is under way: {job.title}. Wait for it, or cancel it.")
        if form.get("confirm") == "yes":
            forget(folder, name)
            for path in folder.made_files(name):
                path.unlink(missing_ok=True)
            return RedirectResponse("/", status_code=303)
    files = [path.name for path in folder.made_files(name)]
    if not files:
        raise InputError("The audit must be there to be deleted.")
    return show(request, "delete.html", files=files, rows=folder.settings(name).files)


ROUTES = [
    Route("/", home),
    Route("/releases", releases),
    Route("/state/{name}", state),
    Route("/export/{name}.zip", export),
    Route("/audits/{name}/delete", delete, methods=["GET", "POST"]),
]
