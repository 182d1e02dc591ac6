"""Step "Promise": what everybody in the data is promised, for how many publications, and against which readers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.folder import LEDGER
from empriv.app.form_fields import by_label, number, settings_in, typed_from, typed_in
from empriv.app.pages import ELSEWHERE, changed_elsewhere, folder_of, form_of, go, show
from empriv.app.run import start_if_ready
from empriv.app.table import reach_of_audit
from empriv.base.targets import goal_of
from empriv.cli.config import NOTHING, Settings
from empriv.errors import EmprivError, InputError
from empriv.words.decision import PRESETS, beyond_reach, guess, promised
from empriv.words.sentences import Nouns, individual_noun

OWN, KEPT = "own", "kept"
AUTO, SOME = "auto", "some"
FIELDS = {
    "preset": "usual", "epsilon": "0.1", "delta": "0.05", "total_risk": "", "times": "1", "known": AUTO, "named": "",
    "presence": "both", "ledger": "",
}  # fmt: skip
LABELS = {
    "preset": "The promise", "epsilon": "epsilon", "delta": "delta", "total_risk": "total risk",
    "times": "The number of publications", "known": "What readers know", "named": "What you name",
    "ledger": "The ledger",
}  # fmt: skip


async def promise(request: Request) -> Response:
    """What is promised."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if request.method == "GET":
        return _page(request, settings, promise_typed(settings, ledgers=folder.ledgers()))
    form = await form_of(request)
    if changed_elsewhere(request, form):
        return _page(request, settings, promise_typed(settings, ledgers=folder.ledgers()), {"": ELSEWHERE}, 409)
    typed = typed_in(form, FIELDS)
    try:
        chosen = promise_settings(settings, typed)
        folder.check_inside(chosen.ledger or LEDGER)
        folder.write(name, chosen)
        await start_if_ready(request, name, chosen)
    except EmprivError as error:
        return _page(request, folder.settings(name), typed, by_label(error, LABELS), 400)
    return go(request, "decision")


async def promise_live(request: Request) -> Response:
    """The whole promise in words, while it is made, and whether the data can show that it is kept."""
    form = await form_of(request)
    settings = folder_of(request).settings(request.path_params["name"])
    typed = typed_in(form, FIELDS)
    try:
        chosen = promise_settings(settings, typed)
        sentences = promise_of(chosen)
    except EmprivError as error:
        errors = by_label(error, LABELS)
        return show(request, "promise_said.html", sentences=(), warnings=(), targets=(), errors=errors)
    warnings: list[str] = []
    if chosen.individual and chosen.files:
        try:
            reach = await reach_of_audit(request, chosen)
            limits = [goal_of([text])["delta"] for text in chosen.target]
            smallest = min((limit for limit in limits if limit is not None), default=math.inf)
            warnings.append(beyond_reach(reach.databases, reach.least_delta, smallest) or "")
        except EmprivError as error:
            warnings.append(str(error))
    warnings = list(filter(None, warnings))
    return show(request, "promise_said.html", sentences=sentences, warnings=warnings, targets=chosen.target)


def promise_typed(settings: Settings, *, ledgers: tuple[str, ...]) -> dict[str, Any]:
    """What the form holds at first; ``ledgers`` are those of the folder."""
    known = {(): AUTO, (AUTO,): AUTO, (NOTHING,): NOTHING}.get(settings.known, SOME)
    typed = {
        **typed_from(settings, FIELDS), "known": known, "named": "\n".join(settings.known) if known == SOME else "",
    }  # fmt: skip
    if not settings.target:
        return {**typed, "ledger": settings.ledger or (LEDGER if LEDGER in ledgers else "")}
    try:
        goal = goal_of(settings.target)
    except InputError:
        return {**typed, "preset": KEPT}
    figures = {name: "" if value is None else f"{value:g}" for name, value in goal.items()}
    same = (key for key, (_, e, d, _) in PRESETS.items() if tuple(goal.values()) == (e, d, None))
    return {**typed, **figures, "preset": next(same, OWN)}


def promise_settings(settings: Settings, typed: Mapping[str, Any]) -> Settings:
    """Settings with what was typed; an error names the field that is wrong."""
    target, known = _target(settings, typed), _known(typed)
    if settings.subsamples is not None and any(word == "calendar" or word.startswith("previous") for word in known):
        raise InputError("`known` must not be the calendar or previous answers: random samples have no order.")
    if typed["ledger"] and typed["known"] == SOME:
        raise InputError(
            "`known` must be what everybody knows, or nothing, if earlier releases are counted: several answers are "
            "not measured for readers who know more."
        )
    epsilons = {float(goal_of([text])["epsilon"] or 0.0) for text in target}
    chosen = replace(
        settings, target=target, epsilon=tuple(sorted(epsilons)), known=known,
        **settings_in(typed, "times", "presence", "ledger"),
    )  # fmt: skip
    chosen.check_known()
    return chosen


def promise_of(settings: Settings) -> tuple[str, ...]:
    """The whole promise in words, one sentence or more for each target."""
    goals = [goal_of(settings.target)] if _together(settings.target) else [goal_of([text]) for text in settings.target]
    known, times = _known_in_words(settings), settings.times or 1
    return tuple(
        promised(
            float(goal["epsilon"] or 0),
            goal["delta"],
            goal["total_risk"],
            times=times,
            known=known,
            presence=settings.presence == "both",
            nouns=_nouns(settings),
        )
        for goal in goals
    )


def _nouns(settings: Settings) -> Nouns:
    """What an individual is called, as on the page of the decision."""
    return Nouns(settings.noun or individual_noun(settings.individual))


def _known_in_words(settings: Settings) -> tuple[str, ...]:
    from empriv.auditing.knowledge import knows
    from empriv.base.text import shortened
    from empriv.measuring.given.reader_knowledge import Given, as_said

    said = as_said(settings.known or AUTO).known
    if said is None or settings.ledger is not None:
        return ()
    if isinstance(said, Given) and said.only_auto:
        return ("what the calendar and previous answers tell",)
    return tuple(shortened(" ".join(text.split()), 40) for text in knows(said))


def _target(settings: Settings, typed: Mapping[str, Any]) -> tuple[str, ...]:
    if typed["preset"] == KEPT and settings.target:
        return settings.target
    if typed["preset"] in PRESETS:
        _, epsilon, delta, _ = PRESETS[typed["preset"]]
        return (f"delta <= {delta:g} at {epsilon:g}",)
    if typed["preset"] != OWN:
        raise InputError("`preset` must be chosen.")
    epsilon = number("epsilon", typed["epsilon"])
    limits = {name: typed[name] for name in ("delta", "total_risk") if typed[name].strip()}
    if not limits:
        raise InputError("`delta` must be a number from 0 to 1, or total risk one.")
    return tuple(f"{name} <= {number(name, text, most=1.0):g} at {epsilon:g}" for name, text in limits.items())


def _known(typed: Mapping[str, Any]) -> tuple[str, ...]:
    """What readers know, as the setting has it."""
    if typed["known"] in (AUTO, NOTHING):
        return (typed["known"],)
    if typed["known"] != SOME:
        raise InputError("`known` must be chosen.")
    named = tuple(line.strip() for line in typed["named"].splitlines() if line.strip())
    if not named:
        raise InputError("`known` must be something: write at least one thing that readers know.")
    return named


def _together(target: tuple[str, ...]) -> bool:
    try:
        goal_of(target)
    except InputError:
        return False
    return True


def _page(
    request: Request, settings: Settings, typed: Mapping[str, Any], errors: Mapping[str, str] | None = None,
    status: int = 200,
) -> Response:  # fmt: skip
    presets = [
        (key, title, why, guess(epsilon, delta, _nouns(settings)), f"epsilon {epsilon:g}, delta {delta:g}")
        for key, (title, epsilon, delta, why) in PRESETS.items()
    ]
    content: dict[str, Any] = {
        "settings": settings, "typed": typed, "presets": presets,
        "ledgers": tuple(dict.fromkeys([*folder_of(request).ledgers(), *filter(None, [settings.ledger])])),
    }  # fmt: skip
    return show(request, "promise.html", step="promise", errors=errors or {}, status=status, **content)


ROUTES = [
    Route("/audits/{name}/promise", promise, methods=["GET", "POST"]),
    Route("/audits/{name}/promise/said", promise_live, methods=["POST"]),
]
