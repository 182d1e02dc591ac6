"""Step "Promise": what everybody in the data is promised, for how many publications, and against which readers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.decision_step import start_if_ready
from empriv.app.folder import LEDGER
from empriv.app.pages import (
    ELSEWHERE,
    by_label,
    changed_elsewhere,
    folder_of,
    form_of,
    go,
    one_of,
    settings_in,
    show,
    typed_from,
    typed_in,
)  # fmt: skip
from empriv.app.table import reach_of_audit
from empriv.base.targets import goal_of, parse_target
from empriv.base.text import shortened
from empriv.cli.config import NOTHING, Settings
from empriv.errors import EmprivError, InputError
from empriv.words.decision import PRESETS, beyond_reach, guess, promised
from empriv.words.sentences import Nouns, individual_noun

OWN, AUTO, SOME = "own", "auto", "some"
TARGETS = {f"delta <= {delta:g} at {epsilon:g}": key for key, (_, epsilon, delta, _) in PRESETS.items()}
"""Promises to choose from, as the setting has them: the name of each."""
FIELDS = {"target": OWN, "targets": "", "times": "1", "known": AUTO, "named": "", "presence": "both", "ledger": ""}
LABELS = {
    "target": "The promise", "targets": "Your promise", "times": "The number of publications",
    "known": "What readers know", "named": "What you name", "ledger": "The ledger",
}  # fmt: skip


def promise_typed(settings: Settings, *, ledgers: tuple[str, ...]) -> dict[str, Any]:
    """What the form holds at first; ``ledgers`` are those of the folder."""
    known = {(): AUTO, (AUTO,): AUTO, (NOTHING,): NOTHING}.get(settings.known, SOME)
    targets = settings.target or tuple(text for text, key in TARGETS.items() if key == "usual")
    first = LEDGER if LEDGER in ledgers and not settings.target else ""
    return {
        **typed_from(settings, FIELDS),
        "target": targets[0] if targets[0] in TARGETS and len(targets) == 1 else OWN, "targets": "\n".join(targets),
        "known": known, "named": "\n".join(settings.known) if known == SOME else "",
        "ledger": settings.ledger or first,
    }  # fmt: skip


def promise_settings(settings: Settings, typed: Mapping[str, Any]) -> Settings:
    """Settings with what was typed; an error names the field that is wrong."""
    target: tuple[str, ...] = (one_of("target", typed["target"], *TARGETS, OWN),)
    if target == (OWN,):
        target = _lines(typed["targets"])
        if not target:
            raise InputError("`targets` must say what is private enough, such as delta <= 0.05 at 0.1.")
    try:
        epsilons = {parse_target(text).epsilon for text in target}
    except InputError as error:
        raise InputError(str(error).replace("`target`", "`targets`")) from None  # the field where it is typed
    known = (typed["known"],) if typed["known"] in (AUTO, NOTHING) else _lines(typed["named"])
    if typed["known"] not in (AUTO, NOTHING, SOME):
        raise InputError("`known` must be chosen.")
    if not known:
        raise InputError("`known` must name at least one thing that readers know.")
    if settings.subsamples is not None and any(word == "calendar" or word.startswith("previous") for word in known):
        raise InputError("`known` must not be the calendar or previous answers: random samples have no order.")
    if typed["ledger"] and typed["known"] == SOME:
        raise InputError(
            "`known` must be what everybody knows, or nothing, if earlier releases are counted: several answers are "
            "not measured for readers who know more."
        )
    chosen = replace(
        settings, target=target, epsilon=tuple(sorted(epsilons)), known=known,
        **settings_in(typed, "times", "presence", "ledger"),
    )  # fmt: skip
    chosen.check_known()
    return chosen


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def promise_of(settings: Settings) -> tuple[str, ...]:
    """The whole promise in words, one sentence or more for each target."""
    try:
        goals = [goal_of(settings.target)]
    except InputError:  # of several epsilons, or two of one figure
        goals = [goal_of([text]) for text in settings.target]
    promise_in_words = partial(
        promised, times=settings.times or 1, known=_known_in_words(settings), presence=settings.presence == "both",
        nouns=_nouns(settings),
    )  # fmt: skip
    return tuple(promise_in_words(float(goal["epsilon"] or 0), goal["delta"], goal["total_risk"]) for goal in goals)


def _nouns(settings: Settings) -> Nouns:
    """What an individual is called, as on the page of the decision."""
    return Nouns(settings.noun or individual_noun(settings.individual))


def _known_in_words(settings: Settings) -> tuple[str, ...]:
    from empriv.auditing.knowledge import knows
    from empriv.measuring.given.reader_knowledge import Given, parse_known

    said = parse_known(settings.known or AUTO).known
    if said is None or settings.ledger is not None:
        return ()
    if isinstance(said, Given) and said.only_auto:
        return ("what the calendar and previous answers tell",)
    return tuple(shortened(" ".join(text.split()), 40) for text in knows(said))


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
    try:
        chosen = promise_settings(settings, typed_in(form, FIELDS))
        sentences = promise_of(chosen)
    except EmprivError as error:
        return show(request, "promise_said.html", errors=by_label(error, LABELS))
    warning = None
    if chosen.individual and chosen.files:
        try:
            reach = await reach_of_audit(request, chosen)
            limits = [goal_of([text])["delta"] for text in chosen.target]
            smallest = min((limit for limit in limits if limit is not None), default=math.inf)
            warning = beyond_reach(reach.databases, reach.least_delta, smallest)
        except EmprivError as error:
            warning = str(error)
    return show(request, "promise_said.html", sentences=sentences, warning=warning, targets=chosen.target)


def _page(
    request: Request, settings: Settings, typed: Mapping[str, Any], errors: Mapping[str, str] | None = None,
    status: int = 200,
) -> Response:  # fmt: skip
    presets = []
    for target, key in TARGETS.items():
        title, epsilon, delta, why = PRESETS[key]
        says = guess(epsilon, delta, _nouns(settings))
        presets.append((target, title, why, says, f"epsilon {epsilon:g}, delta {delta:g}"))
    ledgers = tuple(dict.fromkeys([*folder_of(request).ledgers(), *filter(None, [settings.ledger])]))
    return show(
        request, "promise.html", step="promise", errors=errors or {}, status=status, typed=typed, presets=presets,
        ledgers=ledgers,
    )  # fmt: skip


ROUTES = [
    Route("/audits/{name}/promise", promise, methods=["GET", "POST"]),
    Route("/audits/{name}/promise/said", promise_live, methods=["POST"]),
]
