"""What ways to publish would do, asked beside the server while a slider moves: on a sample of the audit's people.

The audit is loaded once for each process and kept until its file changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from empriv.app.aside import engine_beside
from empriv.cli.config import read_config, settings_of
from empriv.errors import EmprivError, InputError

if TYPE_CHECKING:
    from empriv.comparing.goals import Goal
    from empriv.comparing.on_a_sample import ClippedAnswers, Sample, Tried

AS_IT_IS, NOISE, ROUNDING, CLIPPING = "as-is", "noise", "rounding", "clipping"
_SECONDS = 30.0  # that collecting clipped answers may take


@dataclass(frozen=True)
class LiveQuestion:
    """An audit that was saved, and what it is held against.

    Attributes
    ----------
    name : of the audit
    epsilon, delta, total_risk, presence : the target
    rows : whether its settings say where the rows are, and these may be read
    """

    name: str
    epsilon: float
    delta: float | None
    total_risk: float | None
    presence: str
    rows: bool


@dataclass(frozen=True)
class Slider:
    """One way to publish: what its stops are called, the number at each, and why there are none if there are none."""

    way: str
    titles: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    column: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class Sliders:
    """All ways, and who is looked at of how many."""

    each: tuple[Slider, ...]
    looked_at: int
    people: int
    databases: int
    granularity: float
    unit: str


def sliders_of(question: LiveQuestion) -> Sliders:
    """What there is to choose from."""
    from empriv.words.sentences import amount
    from empriv.words.what_to_do import title

    sample = _sample(question)
    unit = sample.asked.unit
    noises, steps = sample.noises(), sample.roundings()
    sliders = [
        Slider(NOISE, tuple(f"±{amount(scale, unit)}" for scale in noises), noises),
        Slider(ROUNDING, tuple(f"to {amount(to, unit)}" for to in steps), steps)
        if steps
        else Slider(ROUNDING, refusal="All answers are the same: rounding hides nothing."),
    ]
    try:
        clipped = _clipped(question)
        titles = tuple(title("top-coding", {"column": clipped.column, "at": at}) for at in clipped.caps)
        sliders.append(Slider(CLIPPING, titles, clipped.caps, clipped.column))
    except EmprivError as error:
        sliders.append(Slider(CLIPPING, refusal=str(error)))
    return Sliders(
        tuple(sliders),
        len(sample.people),
        sample.asked.n_individuals,
        sample.asked.n_databases,
        sample.granularity,
        unit,
    )


def tried_at(question: LiveQuestion, way: str, place: int) -> Tried:
    """What a way does at one stop of its slider."""
    sample = _sample(question)
    if way == AS_IT_IS:
        return sample.as_it_is()
    if way == NOISE:
        return sample.with_noise(sample.noises()[place])
    if way == ROUNDING:
        return sample.with_rounding(sample.roundings()[place])
    return _clipped(question).tried(place)


def rounded_query(query: str, to: float) -> str:
    """The query whose answer is rounded."""
    from empriv.protocols.places import rounded_text

    return rounded_text(query, to)


def clipped_query(query: str, column: str, at: float) -> str:
    """The query that caps a column."""
    from empriv.protocols.places import capped_text, summed_columns

    if column not in summed_columns(query):
        raise InputError("`column` must be one that the query adds up.")
    return capped_text(query, column, at)


def _sample(question: LiveQuestion) -> Sample:
    from empriv.comparing.goals import Goal

    path = Path(f"{question.name}.empriv")
    seen = path.stat()
    goal = Goal.of(
        epsilon=question.epsilon, delta=question.delta, total_risk=question.total_risk, presence=question.presence
    )
    return _loaded(str(path), seen.st_mtime_ns, seen.st_size, goal)


@lru_cache(maxsize=1)
def _loaded(path: str, changed: int, size: int, goal: Goal) -> Sample:
    del changed, size  # they are of the key
    from empriv.cli.inputs import load_audit
    from empriv.comparing.on_a_sample import Sample

    return Sample.of(load_audit(path, (goal.epsilon,)), goal)


def _clipped(question: LiveQuestion) -> ClippedAnswers:
    if not question.rows:
        raise InputError("Clipping needs the rows, and the settings of this audit do not say where they are.")
    settings = Path(f"{question.name}.toml")
    return _collected(_sample(question), str(settings), settings.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _collected(sample: Sample, path: str, changed: int) -> ClippedAnswers:
    del changed
    from empriv.cli.inputs import source_of
    from empriv.collecting.run_options import Run

    settings = settings_of(read_config(path), {})
    with engine_beside(memory_limit=settings.memory_limit, timeout=_SECONDS) as engine:
        return sample.clippings(source_of(settings), Run(engine=engine, progress=False))
