"""Step "Improve": noise, rounding and clipping by sliders, with error against risk; live on a sample, then for sure.

A slider is measured on the most exposed people. For sure is a command of the command line on everybody: noise that is
designed and certified, or the changed query as an audit of its own.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.folder import Folder
from empriv.app.listing import figures_of_file, look_at
from empriv.app.live_figures import (
    AS_IT_IS,
    CLIPPING,
    NOISE,
    ROUNDING,
    LiveQuestion,
    clipped_query,
    rounded_query,
    sliders_of,
    tried_at,
)
from empriv.app.pages import aside_of, folder_of, form_of, go, show
from empriv.app.trade_off import Place, chart_of
from empriv.app.watch_run import arguments_of, how_far, why_distrusted
from empriv.app.work import AUDIT, Work, latest, start
from empriv.base.harmless import shortened
from empriv.base.storage import WRONG_FACTS, write_atomically
from empriv.cli.config import Settings
from empriv.cli.output import POLICY_FAILED
from empriv.cli.policy import goal_of
from empriv.errors import EmprivError, InputError
from empriv.words.planning import failing, opinion
from empriv.words.what_to_do import cell, delta_said, target, upper

WAYS = {NOISE: "Noise", ROUNDING: "Rounding", CLIPPING: "Clipping"}
DESIGN, ADVICE = "Noise", "Advice"
"""Titles of the work of this step."""
_SURE = {
    NOISE: "Find the least noise, for sure",
    ROUNDING: "Audit it rounded, for sure",
    CLIPPING: "Audit it clipped, for sure",
}
_DERIVED = {ROUNDING: "rounded", CLIPPING: "capped", "coarser": "coarser"}
_AT_ONCE = 2  # stops that are measured at once
_NO_TARGET = "Say what is private enough first: what is tried here is held against it."
_SHOWN = 200
_LARGEST = 1e300


@dataclass(frozen=True)
class LiveLook:
    """What was measured on the sample so far: the sliders, and by way and stop (error, share, delta)."""

    sliders: Mapping[str, Any]
    tried: Mapping[str, Mapping[str, tuple[float, float, float]]]

    def at(self, way: str, place: int) -> tuple[float, float, float] | None:
        return self.tried.get(way, {}).get(str(place))

    def with_tried(self, way: str, place: int, figures: tuple[float, float, float]) -> LiveLook:
        return replace(self, tried={**self.tried, way: {**self.tried.get(way, {}), str(place): figures}})

    @property
    def ways(self) -> list[Mapping[str, Any]]:
        """Sliders with stops."""
        return [slider for slider in self.sliders["each"] if slider["values"]]

    def missing(self, places: Mapping[str, int]) -> list[tuple[str, int]]:
        """Stops that are not measured yet, nearest to where the sliders stand first."""
        left = [
            (abs(place - places.get(slider["way"], 0)), slider["way"], place)
            for slider in self.ways
            for place in range(len(slider["values"]))
            if self.at(slider["way"], place) is None
        ]
        first = [(AS_IT_IS, 0)] if self.at(AS_IT_IS, 0) is None else []
        return [*first, *((way, place) for _, way, place in sorted(left))]


async def improve(request: Request) -> Response:
    """The sliders, what was made sure of, and everything that was tried; a form makes sure of something."""
    folder, name = folder_of(request), request.path_params["name"]
    if request.method == "GET":
        return _page(request)
    form = await form_of(request)
    try:
        settings = folder.settings(name)
        way = str(form.get("way", ""))
        if way == "everything":
            start(folder, name, ADVICE, await _advice_command(request, settings))
            return go(request, "improve")
        if way == "take":
            return await _take(request, settings, str(form.get("row", "")))
        if way == "several":
            return await _design_jointly(request, settings, str(form.get("granularity", "")))
        if way not in WAYS:
            raise InputError("`way` must be noise, rounding or clipping.")
        return await _make_sure(request, settings, way, _places(form).get(way, 0))
    except EmprivError as error:
        return _page(request, errors={"": str(error)}, status=400)


async def sliders(request: Request) -> Response:
    """The sliders, which the page asks for once it is there."""
    folder, name = folder_of(request), request.path_params["name"]
    try:
        question = await _question(request, folder.settings(name))
        look = await _look(request, question)
    except EmprivError as error:
        several = figures_of_file(folder, name).get("n_components") is not None
        return show(request, "no_sliders.html", sentence=str(error), several=several)
    return show(
        request, "sliders.html", sliders=look.sliders, names=WAYS, sure=_SURE,
        places={slider["way"]: _first_place(slider, look, question.delta) for slider in look.ways},
    )  # fmt: skip


async def look(request: Request) -> Response:
    """Error against risk where the sliders stand, and what else is measured so far; some more each time it is asked."""
    folder, name = folder_of(request), request.path_params["name"]
    given: Mapping[str, Any] = await form_of(request) if request.method == "POST" else request.query_params
    places = _places(given)
    try:
        question = await _question(request, folder.settings(name))
        known = await _look(request, question)
        here = [(way, place) for way, place in places.items() if _is_stop(known, way, place)]
        wanted = [stop for stop in here if known.at(*stop) is None]
        # the first answer comes soon: what else is not known follows, as the piece asks for itself again
        wanted = wanted[:1] if request.method == "POST" else (wanted or known.missing(places))[:_AT_ONCE]
        known, problems = await _measured(request, question, known, wanted)
    except EmprivError as error:
        return show(request, "problem.html", sentence=str(error))
    return show(request, "look.html", **_content(question, known, dict(here), problems, name))


async def _measured(
    request: Request, question: LiveQuestion, known: LiveLook, wanted: list[tuple[str, int]]
) -> tuple[LiveLook, tuple[str, ...]]:
    """What is known with some more stops, and what went wrong."""
    asked = [aside_of(request).ask(tried_at, question, way, place) for way, place in wanted]
    problems: list[str] = []
    for (way, place), answer in zip(wanted, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(answer, EmprivError):
            problems.append(f"{WAYS.get(way, 'As it is')}: {answer}")
            known = known.with_tried(way, place, (math.nan, math.nan, math.nan))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            known = known.with_tried(way, place, (answer.error, answer.share, answer.delta))
    if wanted:
        known = _kept(request, question, known)
    return known, tuple(dict.fromkeys(problems))


def _content(
    question: LiveQuestion, known: LiveLook, here: Mapping[str, int], problems: tuple[str, ...], name: str
) -> dict[str, Any]:
    """What the piece with chart and table shows."""
    unit, limit = known.sliders["unit"], question.delta
    curves, rows, numbers = [], [], []
    as_it_is = known.at(AS_IT_IS, 0)
    if as_it_is is not None and math.isfinite(as_it_is[2]):
        rows.append(_row("As it is", as_it_is, unit, limit))
        curves.append((AS_IT_IS, "As it is", [Place(as_it_is[0], as_it_is[2], here=True)]))
    for slider in known.ways:
        way, places = slider["way"], []
        for place, title in enumerate(slider["titles"]):
            figures = known.at(way, place)
            if figures is None or not math.isfinite(figures[2]):
                continue
            places.append(Place(figures[0], figures[2], here=here.get(way) == place))
            numbers.append(_row(f"{WAYS[way]}: {title}", figures, unit, limit))
            if here.get(way) == place:
                rows.append(_row(f"{WAYS[way]}: {title}", figures, unit, limit))
        curves.append((way, WAYS[way], places))
    left = len(known.missing(here))
    stops = [(slider, _least(slider, known, limit)) for slider in known.ways]
    keeping = [f"{WAYS[slider['way']]} {slider['titles'][place]}" for slider, place in stops if place is not None]
    return {
        "chart": chart_of(curves, limit), "rows": rows, "numbers": numbers, "left": left, "problems": problems,
        "keeping": keeping, "again": urlencode(here), "unit": unit, "name": name, "limit": limit,
        "epsilon": question.epsilon,
    }  # fmt: skip


def _row(title: str, figures: tuple[float, float, float], unit: str, limit: float | None) -> dict[str, Any]:
    error, share, delta = figures
    return {
        "title": shortened(title, _SHOWN), "error": cell(error, share, 0.0, unit),
        "delta": "no upper bound" if delta >= 1 else upper(delta),
        "meets": None if limit is None else delta <= limit,
    }  # fmt: skip


# What is known already: a file that may be deleted


async def _look(request: Request, question: LiveQuestion) -> LiveLook:
    """What was measured so far, of this audit as it stands."""
    known = _remembered(folder_of(request), question)
    if known is None:
        known = _kept(request, question, LiveLook(asdict(await aside_of(request).ask(sliders_of, question)), {}))
    return known


def _remembered(folder: Folder, question: LiveQuestion) -> LiveLook | None:
    try:
        kept = json.loads(_place(folder, question.name).read_bytes())
        if kept["stamp"] != _stamp(folder, question):
            return None
        tried = {way: {key: _figures(at) for key, at in of.items()} for way, of in kept["tried"].items()}
        return LiveLook(kept["sliders"], tried)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # there is none yet, or none that is ours


def _figures(kept: list[Any]) -> tuple[float, float, float]:
    error, share, delta = map(float, kept)
    return error, share, delta


def _kept(request: Request, question: LiveQuestion, look: LiveLook) -> LiveLook:
    """The same, with what another tab has measured meanwhile, written down."""
    folder = folder_of(request)
    path, other = _place(folder, question.name), _remembered(folder, question)
    if other is not None:
        tried = {way: {**other.tried.get(way, {}), **look.tried.get(way, {})} for way in {*other.tried, *look.tried}}
        look = replace(look, tried=tried)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    content = {"stamp": _stamp(folder, question), "sliders": look.sliders, "tried": look.tried}
    write_atomically(path, json.dumps(content).encode())
    return look


def _place(folder: Folder, name: str) -> Path:
    return folder.own / "improve" / f"{name}.json"


def _stamp(folder: Folder, question: LiveQuestion) -> str:
    saved = folder.file(question.name, ".empriv").stat()
    return f"{saved.st_mtime_ns}-{saved.st_size}-{folder.seen(question.name)}-{question}"


async def _question(request: Request, settings: Settings) -> LiveQuestion:
    folder, name = folder_of(request), request.path_params["name"]
    if not folder.saved(name):
        raise InputError("The audit must have been run before it is improved.")
    aim = aim_of(folder, name, settings)
    if aim is None:
        raise InputError(_NO_TARGET)
    rows = bool(settings.files and settings.individual) and not await why_distrusted(request, settings)
    return LiveQuestion(name, presence=settings.presence, rows=rows, **aim)


def aim_of(folder: Folder, name: str, settings: Settings) -> dict[str, Any] | None:
    """Epsilon, delta and total risk that are to be met: those of the settings, or of the figures that were written."""
    if settings.target:
        return goal_of(settings.target)
    verdicts = figures_of_file(folder, name).get("verdicts")
    listed = verdicts if isinstance(verdicts, list) else ()
    texts = [verdict.get("target") for verdict in listed if isinstance(verdict, dict)]
    try:
        return goal_of([str(text) for text in texts]) if texts else None
    except InputError:
        return None


def _places(form: Mapping[str, Any]) -> dict[str, int]:
    """Where the sliders stand."""
    return {way: int(text) for way in WAYS if (text := str(form.get(way, ""))).isdecimal() and len(text) < 4}


def _is_stop(look: LiveLook, way: str, place: int) -> bool:
    return any(slider["way"] == way and place < len(slider["values"]) for slider in look.ways)


def _first_place(slider: Mapping[str, Any], look: LiveLook, limit: float | None) -> int:
    """Where a slider stands at first: at the least error that keeps the promise, if that is known.

    Noise begins at the least otherwise, where its button designs no more than the promise needs; others in the middle.
    """
    least, middle = _least(slider, look, limit), len(slider["values"]) // 2
    return least if least is not None else 0 if slider["way"] == NOISE else middle


def _least(slider: Mapping[str, Any], look: LiveLook, limit: float | None) -> int | None:
    """The stop with the least error of those that are known to keep the promise on the sample."""
    if limit is None:
        return None
    measured = [(place, look.at(slider["way"], place)) for place in range(len(slider["values"]))]
    within = [(figures[0], place) for place, figures in measured if figures is not None and figures[2] <= limit]
    return min(within)[1] if within else None


# For sure


async def _make_sure(request: Request, settings: Settings, way: str, place: int) -> Response:
    """Start the command that makes sure of where a slider stands."""
    question = await _question(request, settings)
    look = await _look(request, question)
    if not _is_stop(look, way, place):
        raise InputError("The slider must stand at one of its stops.")
    slider = next(slider for slider in look.ways if slider["way"] == way)
    if way == NOISE:
        look, problems = await _measured(request, question, look, [(way, place)] if look.at(way, place) is None else [])
        if problems:
            raise InputError(problems[0])
        figures = None if place == _least(slider, look, question.delta) else look.at(way, place)
        return _design(request, settings, question, look.sliders["granularity"], figures and figures[2])
    value = float(slider["values"][place])
    return await _derive(request, settings, way, column=slider["column"], value=value)


def _design(
    request: Request, settings: Settings, question: LiveQuestion, granularity: float, delta: float | None
) -> Response:
    """Have noise designed: for the target, or for less where the slider promises less."""
    limit = question.delta
    if limit is not None and delta is not None and 0 < delta < limit:
        limit = min(limit, _rounded_up(delta))
    limits = [("--delta", limit), ("--total-risk", question.total_risk)]
    often = ("--times", str(settings.times)) if settings.times is not None and settings.times > 1 else ()
    name = question.name
    start(
        folder_of(request), name, DESIGN,
        ("noise", f"{name}.empriv", "--epsilon", f"{question.epsilon:g}",
         *(text for option, at in limits if at is not None for text in (option, f"{at:g}")),
         *often, "--presence", question.presence, "--granularity", f"{granularity:.12g}",
         *(text for option, ending in _NOISE_FILES.items() for text in (option, f"{name}{ending}"))),
    )  # fmt: skip
    return go(request, "improve")


async def _design_jointly(request: Request, settings: Settings, granularity: str) -> Response:
    """Have noise designed for several numbers together."""
    question = await _question(request, settings)
    if question.delta is None:
        raise InputError("`target` must limit delta for several numbers together.")
    try:
        step = _positive(float(granularity), "granularity")
    except ValueError:
        raise InputError("`granularity` must be a number, such as 0.01.") from None
    name = question.name
    files = (text for option, ending in _NOISE_FILES.items() for text in (option, f"{name}{ending}"))
    aim = ("--epsilon", f"{question.epsilon:g}", "--delta", f"{question.delta:g}", "--granularity", f"{step:.12g}")
    start(folder_of(request), name, DESIGN, ("noise", f"{name}.empriv", *aim, *files))
    return go(request, "improve")


_NOISE_FILES = {"--save": ".noise.empriv", "--report": ".noise.html", "--json": ".noise.json"}


async def _derive(request: Request, settings: Settings, way: str, *, column: str = "", value: Any = None) -> Response:
    """Audit what would be published instead, as an audit of its own."""
    folder, name = folder_of(request), request.path_params["name"]
    plain = replace(settings, json=None, save=None, report=None)
    if way == "coarser":
        if settings.database is None or value not in ("week", "month"):
            raise InputError("`by` must be week or month, of databases that are days.")
        changed = replace(plain, database=f"date_trunc('{value}', CAST(({settings.database}) AS TIMESTAMP))")
    else:
        if len(settings.query) != 1 or settings.component is not None:
            raise InputError("`query` must be one query, got none or several in the settings of this audit.")
        (query,) = settings.query
        asked = (rounded_query, query, value) if way == ROUNDING else (clipped_query, query, column, value)
        changed = replace(plain, query=(await aside_of(request).ask(*asked),))
    derived = folder.new_name(_stem(name, way))
    folder.write(derived, changed)
    if not await why_distrusted(request, changed):
        outside = any(text in folder.named for text in changed.files)
        start(folder, derived, AUDIT, arguments_of(derived, trusted=outside))
    return go(request, "run", derived)


def _stem(name: str, way: str) -> str:
    """What the name of a changed answer's audit begins with."""
    return f"{name[:40]}-{_DERIVED[way]}"


async def _advice_command(request: Request, settings: Settings) -> tuple[str, ...]:
    """The command that tries everything: on the rows where they may be read, otherwise on what was saved."""
    folder, name = folder_of(request), request.path_params["name"]
    question = await _question(request, settings)
    written = ("--json", f"{name}.advice.json")
    whole = settings.times in (None, 1) and settings.component is None and len(settings.query) == 1
    if question.rows and whole and settings.target:
        trust = ("--trust-config",) if any(text in folder.named for text in settings.files) else ()
        return ("advise", "--config", f"{name}.toml", *trust, *written)
    limits = (("--delta", question.delta), ("--total-risk", question.total_risk))
    return (
        "advise", f"{name}.empriv", "--epsilon", f"{question.epsilon:g}",
        *(text for option, at in limits if at is not None for text in (option, f"{at:g}")),
        "--presence", question.presence, *written,
    )  # fmt: skip


async def _take(request: Request, settings: Settings, row: str) -> Response:
    """Do what a row of the advice says."""
    rows = advice_of(folder_of(request), request.path_params["name"])
    chosen = next((each for each in rows if str(each["row"]) == row and each["takes"]), None)
    if chosen is None:
        raise InputError("`row` must be one that can be taken.")
    given = chosen["parameters"]
    if chosen["code"] == NOISE:
        question = await _question(request, settings)
        return _design(request, settings, question, _positive(given.get("granularity"), "granularity"), None)
    if chosen["code"] == ROUNDING:
        return await _derive(request, settings, ROUNDING, value=_positive(given.get("to"), "to"))
    if chosen["code"] == "coarser":
        return await _derive(request, settings, "coarser", value=given.get("by"))
    at = given.get("at")
    if not isinstance(at, int | float) or not abs(at) <= _LARGEST:
        raise InputError("`at` must be a number.")
    return await _derive(request, settings, CLIPPING, column=str(given.get("column")), value=float(at))


_TAKEN = {
    NOISE: "Design it", ROUNDING: "Audit it", "top-coding": "Audit it", "coarser": "Audit it",
    "capped-noise": "Audit it capped, then add noise",
}  # fmt: skip


def advice_of(folder: Folder, name: str) -> list[dict[str, Any]]:
    """The rows of NAME.advice.json; none if it is not there, is damaged, or is older than the audit."""
    path, saved = folder.written(name, ".advice.json"), folder.written(name, ".empriv")
    try:
        if path is None or saved is None or path.stat().st_mtime < saved.stat().st_mtime:
            return []
        content = json.loads(path.read_bytes())
        if content["format"] != "empriv advice":
            return []
        unit = str(content["unit"])
        rows = [*content["options"], *([content["classical"]] if content["classical"] else [])]
        return [
            {
                "row": place, "title": shortened(str(row["title"]), _SHOWN), "code": str(row["code"]),
                "parameters": dict(row["parameters"]), "takes": _TAKEN.get(str(row["code"]), ""),
                "delta": delta_said(_number(row["delta"])), "verdict": str(row["verdict"]),
                "upper": upper(None if row["upper"] is None else _number(row["upper"])),
                "error": cell(_number(row["error"]), _number(row["share"]), _number(row["unanswered"]), unit),
            }
            for place, row in enumerate(rows)
        ]  # fmt: skip
    except (OSError, *WRONG_FACTS):
        return []


def noise_of(folder: Folder, name: str) -> dict[str, Any] | None:
    """What the noise that was designed for this audit achieves; None if there is none, or only older noise."""
    page, facts = folder.written(name, ".noise.html"), folder.written(name, ".noise.json")
    saved = folder.written(name, ".empriv")
    if page is None or saved is None or not folder.saved(name, "noise", ".noise.empriv"):
        return None
    if page.stat().st_mtime < saved.stat().st_mtime:
        return None
    try:
        told = {} if facts is None else json.loads(facts.read_bytes())
        error, unit = _number(told["expected_error"]), str(told["unit"])
        deltas = [_number(told[key]) for key in ("achieved_delta", "achieved_delta_when_present") if told.get(key)]
        return {"error": cell(error, math.nan, 0.0, unit), "delta": delta_said(max(deltas, default=0.0)),
                "epsilon": _number(told["epsilon"])}  # fmt: skip
    except (OSError, *WRONG_FACTS):
        return {}


def _page(request: Request, *, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    try:
        aim = aim_of(folder, name, settings)
    except InputError as error:
        aim, errors = None, {"": str(error), **(errors or {})}
    work = latest(folder, name)
    ended = work if work is not None and not work.running and work.title in (DESIGN, ADVICE) else None
    derived = [
        look_at(folder, other)
        for other in folder.audits()
        if any(other.startswith(_stem(name, way)) for way in _DERIVED)
    ]
    return show(
        request, "improve.html", step="improve", saved=folder.saved(name), aim=aim and target(**aim),
        meaning=_meaning(aim),
        work=work if work is not None and work.running else None, noise=noise_of(folder, name),
        rows=advice_of(folder, name), derived=derived,
        failed=ended.said if ended is not None and _went_wrong(ended) else "",
        errors=errors or {}, status=status, **(how_far(work) if work is not None and work.running else {}),
    )  # fmt: skip


def _meaning(aim: Mapping[str, Any] | None) -> str:
    """What the promise means to a reader, and to a person in the data."""
    if aim is None or not aim["epsilon"]:
        return ""
    return opinion(aim["epsilon"]) + ("" if aim["delta"] is None else f" {failing(aim['delta'])}")


def _went_wrong(work: Work) -> bool:
    """Whether there is a sentence to be shown: it failed, or no noise keeps the promise."""
    return work.state == "failed" or (work.title == DESIGN and work.code == POLICY_FAILED)


def _rounded_up(delta: float) -> float:
    """Two digits, not less."""
    power = 10.0 ** (math.floor(math.log10(delta)) - 1)
    return float(f"{math.ceil(delta / power * (1 - 1e-9)) * power:.2g}")


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _positive(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or not 0 < value <= _LARGEST:
        raise InputError(f"`{name}` must be a number above 0.")
    return float(value)


ROUTES = [
    Route("/audits/{name}/improve", improve, methods=["GET", "POST"]),
    Route("/audits/{name}/improve/sliders", sliders),
    Route("/audits/{name}/improve/look", look, methods=["GET", "POST"]),
]
