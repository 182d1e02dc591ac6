"""What can be done about an audit, tried on everybody by `empriv advise`: a table whose rows are buttons.

Noise is designed and judged by `empriv noise`; a cap and coarser databases become an audit of what is asked then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from empriv.app.folder import Folder
from empriv.app.form_fields import positive
from empriv.app.jobs import AUDIT, latest, start
from empriv.app.listing import figures_of_file, look_at
from empriv.app.pages import folder_of, go, workers_of
from empriv.app.run import arguments_of, why_distrusted
from empriv.base.storage import WRONG_FACTS
from empriv.base.targets import goal_of
from empriv.base.text import shortened
from empriv.cli.config import Settings
from empriv.cli.running import POLICY_FAILED
from empriv.errors import InputError
from empriv.words.what_to_do import MARKS, cell, outcome, target

DESIGN, ADVICE = "Noise", "Advice"
"""Titles of jobs."""
NOISE, COARSER, CAP = "noise", "coarser", "cap"
_DERIVED = {COARSER: "coarser", CAP: "capped"}
_NOISE_FILES = {"--save": ".noise.empriv", "--report": ".noise.html", "--json": ".noise.json"}
_TAKEN = {COARSER: "Audit it", CAP: "Audit it capped, then dither"}
_SHOWN = 200
_LARGEST = 1e300
Aim = Mapping[str, Any]
"""Epsilon, and the limits on delta and on the total risk that are to be met there."""


async def act(request: Request, form: Mapping[str, Any]) -> Response | None:
    """Try everything, design noise, or do what a row says."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if not folder.saved(name):
        raise InputError("The audit must have been run before it is improved.")
    aim = aim_of(folder, name, settings)
    if aim is None:
        raise InputError("Say what is private enough first: what is tried here is held against it.")
    way = str(form.get("way", ""))
    if way == "everything":
        start(folder, name, ADVICE, await _advice_command(request, settings, aim))
        return None
    if way == NOISE:
        _design(folder, name, settings, aim, positive("granularity", str(form.get("granularity", ""))))
        return None
    if way == "take":
        return await _take(request, settings, str(form.get("row", "")))
    raise InputError("`way` must be everything, noise or take.")


def aim_of(folder: Folder, name: str, settings: Settings) -> Aim | None:
    """What is to be met: the targets of the settings, or of the figures that were written."""
    if settings.target:
        return goal_of(settings.target)
    verdicts = figures_of_file(folder, name).get("verdicts")
    listed = verdicts if isinstance(verdicts, list) else ()
    texts = [verdict.get("target") for verdict in listed if isinstance(verdict, dict)]
    try:
        return goal_of([str(text) for text in texts]) if texts else None
    except InputError:
        return None


def _design(folder: Folder, name: str, settings: Settings, aim: Aim, granularity: float) -> None:
    """Have the least noise designed that keeps the promise."""
    several = figures_of_file(folder, name).get("n_components") is not None
    if aim["delta"] is None or aim["total_risk"] is not None:
        raise InputError("The promise must limit delta, and not the total risk, for noise to be designed.")
    often: tuple[str, ...] = () if several else ("--dither", "--presence", settings.presence)
    if settings.times is not None and settings.times > 1:
        often = ("--times", str(settings.times))
    files = (text for option, ending in _NOISE_FILES.items() for text in (option, f"{name}{ending}"))
    command = (
        "noise",
        f"{name}.empriv",
        "--epsilon",
        f"{aim['epsilon']:.12g}",
        "--delta",
        f"{aim['delta']:.12g}",
        *often,
        "--granularity",
        f"{granularity:.12g}",
        *files,
    )
    start(folder, name, DESIGN, command)


def _targets(aim: Aim) -> tuple[str, ...]:
    """The aim as options of a command that takes targets."""
    limits = ((figure, aim[figure]) for figure in ("delta", "total_risk"))
    texts = (f"{figure} <= {limit:.12g} at {aim['epsilon']:.12g}" for figure, limit in limits if limit is not None)
    return tuple(option for text in texts for option in ("--target", text))


async def _derive(request: Request, settings: Settings, way: str, value: Any) -> Response:
    """Audit what would be published instead, as an audit of its own."""
    folder, name = folder_of(request), request.path_params["name"]
    plain = replace(settings, json=None, save=None, report=None)
    if way == COARSER:
        if settings.database is None or value not in ("week", "month"):
            raise InputError("`by` must be week or month, of databases that are days.")
        changed = replace(plain, database=f"date_trunc('{value}', CAST(({settings.database}) AS TIMESTAMP))")
    else:
        if len(settings.query) != 1 or settings.component is not None:
            raise InputError("`query` must be one query, got none or several in the settings of this audit.")
        text = await workers_of(request).run(capped_query, settings.query[0], settings.individual, value)
        changed = replace(plain, query=(text,))
    derived = folder.new_name(_stem(name, way))
    folder.write(derived, changed)
    if not await why_distrusted(request, changed):
        outside = any(text in folder.named for text in changed.files)
        start(folder, derived, AUDIT, arguments_of(derived, trusted=outside))
    return go(request, "decision", derived)


def _stem(name: str, way: str) -> str:
    """What the name of a changed answer's audit begins with."""
    return f"{name[:40]}-{_DERIVED[way]}"


def capped_query(query: str, individual: Sequence[str], at: float) -> str:
    """The query with what each person adds capped; called beside the server."""
    from empriv.protocols.changed_queries import capped_people_text

    return capped_people_text(query, individual, at)


async def _advice_command(request: Request, settings: Settings, aim: Aim) -> tuple[str, ...]:
    """The command that tries everything: on the rows where they may be read, otherwise on what was saved."""
    folder, name = folder_of(request), request.path_params["name"]
    written = ("--json", f"{name}.advice.json")
    rows = bool(settings.files and settings.individual) and not await why_distrusted(request, settings)
    whole = settings.times in (None, 1) and settings.component is None and len(settings.query) == 1
    if rows and whole and settings.target:
        trust = ("--trust-config",) if any(text in folder.named for text in settings.files) else ()
        return ("advise", "--config", f"{name}.toml", *trust, *written)
    return ("advise", f"{name}.empriv", *_targets(aim), "--presence", settings.presence, *written)


async def _take(request: Request, settings: Settings, row: str) -> Response:
    """Do what a row of the advice says."""
    folder, name = folder_of(request), request.path_params["name"]
    rows = advice_of(folder, name)
    chosen = next((each for each in rows if str(each["row"]) == row and each["takes"]), None)
    if chosen is None:
        raise InputError("`row` must be one that can be taken.")
    given = chosen["parameters"]
    if chosen["code"] == COARSER:
        return await _derive(request, settings, COARSER, given.get("by"))
    return await _derive(request, settings, CAP, _positive(given.get("at"), "at"))


def advice_of(folder: Folder, name: str) -> list[dict[str, Any]]:
    """Rows of what was tried: all of NAME.advice.json, else those that the audit tried; none of what is damaged."""
    path = folder.current(name, ".advice.json")
    try:
        content = figures_of_file(folder, name).get("advice") if path is None else json.loads(path.read_bytes())
        if content is None or content["format"] != "empriv advice":
            return []
        unit = str(content["unit"])
        rows = [*content["options"], *([content["classical"]] if content["classical"] else [])]
        return [
            {
                "row": place, "title": shortened(str(row["title"]), _SHOWN), "code": str(row["code"]),
                "parameters": dict(row["parameters"]), "takes": _TAKEN.get(str(row["code"]), ""),
                "verdict": outcome(str(row["verdict"]), _number(row["share"])),
                "mark": MARKS.get(outcome(str(row["verdict"]), _number(row["share"])), ""),
                "error": cell(_number(row["error"]), _number(row["share"]), unit),
            }
            for place, row in enumerate(rows)
        ]  # fmt: skip
    except (OSError, *WRONG_FACTS):
        return []


def actions_content(folder: Folder, name: str, settings: Settings) -> dict[str, Any]:
    """What the page shows of actions: those that were tried, why the last one failed, and changed answers."""
    try:
        aim = aim_of(folder, name, settings)
    except InputError:
        aim = None
    job = latest(folder, name)
    ended = job if job is not None and job.title in (DESIGN, ADVICE) else None
    # it failed, or no noise keeps the promise
    wrong = ended is not None and (ended.state == "failed" or (ended.title == DESIGN and ended.code == POLICY_FAILED))
    stems = {_stem(name, way) for way in _DERIVED}
    return {
        "aim": aim and target(**aim), "rows": [row for row in advice_of(folder, name) if row["takes"]],
        "tried_all": folder.current(name, ".advice.json") is not None,
        "derived": [look_at(folder, other) for other in folder.audits() if other.startswith(tuple(stems))],
        "not_acted": ended.said if ended is not None and wrong else "",
    }  # fmt: skip


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _positive(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or not 0 < value <= _LARGEST:
        raise InputError(f"`{name}` must be a number above 0.")
    return float(value)
