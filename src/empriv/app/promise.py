"""Step "The promise": what everybody in the data is promised, for how many publications, and against which readers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.folder import LEDGER
from empriv.app.form_fields import by_label, number, whole_number
from empriv.app.pages import ELSEWHERE, changed_elsewhere, folder_of, form_of, go, show, workers_of
from empriv.app.run import start_if_ready
from empriv.app.source_preview import databases_of, reach_of_audit, remembered
from empriv.app.workers import engine_beside
from empriv.cli.config import NOTHING, Settings
from empriv.cli.targets import goal_of
from empriv.errors import EmprivError, InputError
from empriv.words.planning import PRESETS, Promise, beyond_reach, failing, opinion, promised, together_in_words

OWN, KEPT = "own", "kept"
AUTO, SOME = "auto", "some"
LABELS = {
    "preset": "The promise", "epsilon": "epsilon", "delta": "delta", "total_risk": "total risk",
    "times": "The number of publications", "known": "What readers know", "named": "What you name",
    "scope": "The name of the body of data", "ledger": "The ledger",
}  # fmt: skip
_MOST_TIMES = 1_000_000
_SHOWN = 5  # releases


@dataclass(frozen=True)
class PromiseTyped:
    """What the form holds: as typed, whether it can be used or not."""

    preset: str = "usual"
    epsilon: str = "0.1"
    delta: str = "0.05"
    total_risk: str = ""
    times: str = "1"
    known: str = AUTO
    named: str = ""
    presence: str = "both"
    ledger: str = ""
    scope: str = ""


@dataclass(frozen=True)
class LedgerAtHand:
    """What a ledger holds, in words; ``here`` are the releases from the audit's own databases, None if unknown."""

    releases: int
    here: int | None
    limits: str
    lines: tuple[str, ...] = ()


async def promise(request: Request) -> Response:
    """What is promised."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if request.method == "GET":
        return _page(request, settings, typed_from(settings, ledgers=folder.ledgers()))
    form = await form_of(request)
    if changed_elsewhere(request, form):
        return _page(request, settings, typed_from(settings, ledgers=folder.ledgers()), {"": ELSEWHERE}, 409)
    typed = typed_in(form)
    try:
        chosen = settings_from(settings, typed)
        folder.check_inside(chosen.ledger or LEDGER)
        quantities = statistics_in(chosen.known)
        if quantities and settings.individual and settings.files:
            folder.check_sources(settings)
            await workers_of(request).run(check_quantities, chosen, quantities)
        folder.write(name, chosen)
        await start_if_ready(request, name, chosen)
    except EmprivError as error:
        return _page(request, folder.settings(name), typed, by_label(error, LABELS), 400)
    return go(request, "decision")


async def promise_live(request: Request) -> Response:
    """The whole promise in words, while it is made, and whether the data can show that it is kept."""
    form = await form_of(request)
    settings = folder_of(request).settings(request.path_params["name"])
    typed = typed_in(form)
    try:
        chosen = settings_from(settings, typed)
        held = None if chosen.ledger is None else await _held(request, chosen)
        earlier = 0 if held is None else held.releases if held.here is None else held.here
        sentences = promise_of(chosen, earlier)
    except EmprivError as error:
        errors = by_label(error, LABELS)
        return show(request, "promise_said.html", sentences=(), warnings=(), held=None, targets=(), errors=errors)
    warnings = [] if held is None else [together_in_words(earlier, known=typed.known != NOTHING)]
    if chosen.individual and chosen.files:
        try:
            reach = await reach_of_audit(request, chosen)
            limits = [goal_of([text])["delta"] for text in chosen.target]
            smallest = min((limit for limit in limits if limit is not None), default=math.inf)
            warnings.append(beyond_reach(reach.databases, reach.least_delta, smallest) or "")
        except EmprivError as error:
            warnings.append(str(error))
    return show(
        request, "promise_said.html", sentences=sentences, warnings=list(filter(None, warnings)), held=held,
        targets=chosen.target,
    )  # fmt: skip


async def _held(request: Request, settings: Settings) -> LedgerAtHand:
    """What the ledger of an audit holds."""
    folder = folder_of(request)
    path = folder.check_inside(str(settings.ledger))
    there = bool(settings.individual and settings.files)
    if there:
        folder.check_sources(settings)
    changed = (folder.path / path).stat().st_mtime_ns if (folder.path / path).is_file() else 0
    key = (databases_of(request, settings), path, changed, settings.scope)
    return await remembered(request, key, ledger_at_hand, path, settings if there else None)


def ledger_at_hand(path: str, settings: Settings | None) -> LedgerAtHand:
    """What a ledger holds, and what of it is from an audit's databases; called beside the server."""
    from empriv.cli.inputs import source_of
    from empriv.cli.ledger import policy_words
    from empriv.collecting.origins import describe
    from empriv.ledger import Ledger, ReleaseEntry, identity_of

    ledger = Ledger(path, create=False)
    releases = [entry for entry in ledger.entries() if isinstance(entry, ReleaseEntry)]
    lines = tuple(f"{entry.time[:10]}: {' '.join(entry.query.split())}" for entry in releases[-_SHOWN:][::-1])
    here = None
    if settings is not None and releases:
        data = source_of(settings)
        with engine_beside() as engine, engine.session(data) as session:
            labels = session.databases.tolist()
        here = len(ledger.released(identity_of(labels, describe(data), scope=settings.scope)))
    return LedgerAtHand(len(releases), here, policy_words(ledger.policy), lines)


def check_quantities(settings: Settings, quantities: tuple[str, ...]) -> None:
    """Refuse what cannot be computed of each database; called beside the server."""
    from empriv.cli.inputs import source_of
    from empriv.cli.running import limits_of
    from empriv.collecting.looking import gives

    for place, quantity in enumerate(quantities, start=1):
        try:
            with engine_beside(**limits_of(settings)) as engine:
                given = gives(engine, source_of(settings), quantity)
        except EmprivError as error:
            raise InputError(f"`named` must be a word or SQL in every line. Statistic {place}: {error}") from None
        if given.names is not None:
            raise InputError(f"`named` must be one number in every line, got several in statistic {place}.")


def typed_in(form: FormData) -> PromiseTyped:
    """What a form holds."""
    fields = PromiseTyped.__dataclass_fields__
    return PromiseTyped(**{field: str(form.get(field) or "").strip() for field in fields})


def typed_from(settings: Settings, *, ledgers: tuple[str, ...]) -> PromiseTyped:
    """What a form holds at first; ``ledgers`` are those of the folder."""
    known = {(): AUTO, (AUTO,): AUTO, (NOTHING,): NOTHING}.get(settings.known, SOME)
    typed = PromiseTyped(
        times=str(settings.times or 1), known=known, named="\n".join(settings.known) if known == SOME else "",
        presence=settings.presence, scope=settings.scope,
        ledger=settings.ledger or ("" if settings.target or LEDGER not in ledgers else LEDGER),
    )  # fmt: skip
    if not settings.target:
        return typed
    try:
        goal = goal_of(settings.target)
    except InputError:
        return replace(typed, preset=KEPT)
    epsilon, delta, total = goal["epsilon"], goal["delta"], goal["total_risk"]
    preset = next(
        (key for key, (_, e, d, _) in PRESETS.items() if (epsilon, delta, total) == (e, d, None)), OWN
    )  # fmt: skip
    shown = [("" if value is None else f"{value:g}") for value in (epsilon, delta, total)]
    return replace(typed, preset=preset, epsilon=shown[0], delta=shown[1], total_risk=shown[2])


def settings_from(settings: Settings, typed: PromiseTyped) -> Settings:
    """Settings with what was typed; an error names the field that is wrong."""
    target = _target(settings, typed)
    times = whole_number("times", typed.times, 1, _MOST_TIMES)
    known = _known(typed)
    if settings.subsamples is not None and any(word == "calendar" or word.startswith("previous") for word in known):
        raise InputError("`known` must not be the calendar or previous answers: random samples have no order.")
    if typed.ledger and typed.known == SOME:
        raise InputError(
            "`known` must be what everybody knows, or nothing, if earlier releases are counted: several answers are "
            "not measured for readers who know more."
        )
    if typed.presence not in ("both", "random"):
        raise InputError("`presence` must be both or random.")
    chosen = replace(
        settings, target=target, epsilon=_epsilons(target), times=None if times == 1 else times, known=known,
        presence=typed.presence, ledger=typed.ledger or None, scope=typed.scope,
    )  # fmt: skip
    chosen.check_known()
    return chosen


def promise_of(settings: Settings, earlier: int) -> tuple[str, ...]:
    """The whole promise in words, one sentence or more for each target."""
    goals = [goal_of(settings.target)] if _together(settings.target) else [goal_of([text]) for text in settings.target]
    known, times = _known_in_words(settings), settings.times or 1
    there, sampled = settings.presence == "both", settings.subsamples is not None
    return tuple(
        promised(
            Promise(
                float(goal["epsilon"] or 0), goal["delta"], goal["total_risk"], times, known, there, earlier, sampled
            )
        )
        for goal in goals
    )


def _known_in_words(settings: Settings) -> tuple[str, ...]:
    from empriv.auditing.knowledge import knows
    from empriv.base.harmless import shortened
    from empriv.measuring.given.reader_knowledge import Given, as_said

    said = as_said(settings.known or AUTO).known
    if said is None or settings.ledger is not None:
        return ()
    if isinstance(said, Given) and said.only_auto:
        return ("what the calendar and previous answers tell",)
    return tuple(shortened(" ".join(text.split()), 40) for text in knows(said))


def _target(settings: Settings, typed: PromiseTyped) -> tuple[str, ...]:
    if typed.preset == KEPT and settings.target:
        return settings.target
    if typed.preset in PRESETS:
        _, epsilon, delta, _ = PRESETS[typed.preset]
        return (f"delta <= {delta:g} at {epsilon:g}",)
    if typed.preset != OWN:
        raise InputError("`preset` must be chosen.")
    epsilon = number("epsilon", typed.epsilon)
    limits = {name: getattr(typed, name) for name in ("delta", "total_risk") if getattr(typed, name)}
    if not limits:
        raise InputError("`delta` must be a number from 0 to 1, or total risk one.")
    return tuple(f"{name} <= {number(name, text, most=1.0):g} at {epsilon:g}" for name, text in limits.items())


def _known(typed: PromiseTyped) -> tuple[str, ...]:
    """What readers know, as the setting has it."""
    if typed.known in (AUTO, NOTHING):
        return (typed.known,)
    if typed.known != SOME:
        raise InputError("`known` must be chosen.")
    named = tuple(line.strip() for line in typed.named.splitlines() if line.strip())
    if not named:
        raise InputError("`known` must be something: write at least one thing that readers know.")
    return named


def statistics_in(known: tuple[str, ...]) -> tuple[str, ...]:
    """The SQL among what is known."""
    from empriv.measuring.given.reader_knowledge import Buckets, Given, as_said

    said = as_said(known).known
    if isinstance(said, Buckets):
        return (said.g,) if isinstance(said.g, str) else tuple(said.g)
    return said.quantities if isinstance(said, Given) else ()


def _together(target: tuple[str, ...]) -> bool:
    try:
        goal_of(target)
    except InputError:
        return False
    return True


def _epsilons(target: tuple[str, ...]) -> tuple[float, ...]:
    return tuple(sorted({float(goal_of([text])["epsilon"] or 0.0) for text in target}))


def _page(
    request: Request, settings: Settings, typed: PromiseTyped, errors: Mapping[str, str] | None = None,
    status: int = 200,
) -> Response:  # fmt: skip
    presets = [
        (key, title, why, f"{opinion(epsilon)} {failing(delta)}", f"epsilon {epsilon:g}, delta {delta:g}")
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
