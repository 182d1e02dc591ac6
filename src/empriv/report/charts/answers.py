"""The chart of the answers: each database's, with the band of what can be predicted.

What readers can predict protects nobody; what varies within the band does. Where something was counted as known, the
band lies around the level that it predicts; else around the median of all answers.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.auditing.totals import TotalledRisk
from empriv.base.text import shortened
from empriv.measuring import AnyRisk, GivenRisk
from empriv.report.charts.chart import (
    BLUE,
    HEIGHT,
    INK,
    SKY,
    VERMILION,
    WIDTH,
    Chart,
    Scale,
    clean,
    layer,
    records,
    spec_of,
    stacked,
)
from empriv.report.gather import Material
from empriv.results import FloatArray, Outcome, Results
from empriv.words.sentences import amount, days_of

LEVEL = 0.95  # of the answers lie in the band
_MOST_DRAWN = 400  # databases, evenly; the table has more
_MOST_DOTS = 120  # of more, a line alone
_MOST_VIEWS, _SMALL = 4, 110  # how many of several numbers are drawn, and the height of each
_LETTER = 7.0  # pixels of a label's letter


@dataclass(frozen=True, eq=False)
class Predictable:
    """What can be predicted of the answer on each database: a level, and the ends of a band around it."""

    level: FloatArray
    low: FloatArray
    high: FloatArray
    said: str


def results_chart(material: Material) -> Chart:
    """The answer on each database with the band of what can be predicted; the first few of several numbers, each in a
    view of its own."""
    audit = material.audit
    results, unit = audit.results, audit.unit
    series: dict[str, tuple[FloatArray, Predictable]] = {}
    if results.components is None:
        answers = answers_of(results)
        series[""] = answers, predictable(audit.measured, answers)
    for name in (results.components or ())[:_MOST_VIEWS]:
        answers = answers_of(results.component(name))
        series[name] = answers, _around_median(answers)
    labels = [shortened(str(label), 24) for label in results.databases]
    height = HEIGHT if len(series) == 1 else _SMALL
    views = [
        {"width": WIDTH, "height": height, "layer": _layers(*drawn, labels, name, place, height, unit)}
        for place, (name, drawn) in enumerate(series.items())
    ]
    said = [next(iter(series.values()))[1].said]
    if (results.draws or 1) > 1:
        said.append(f"Each is the mean of {results.draws:,} draws.")
    if odd := sum(int(np.count_nonzero(~np.isfinite(answers))) for answers, _ in series.values()):
        answers_said = f"{results.n_databases * len(series):,} answers"
        said.append(f"{odd:,} of {answers_said} are not a number: crosses at the bottom.")
    if len(labels) > _MOST_DRAWN:
        said.append(f"{_MOST_DRAWN:,} of {len(labels):,} are drawn.")
    if (more := len(results.components or ()) - _MOST_VIEWS) > 0:
        said.append(f"{more:,} more {'number is' if more == 1 else 'numbers are'} not drawn.")
    return Chart(
        name="results",
        title="The answers, and what can be predicted of them",
        caption=" ".join(said),
        spec=spec_of(layer=views[0]["layer"]) if len(views) == 1 else stacked(views),
        data=_table(results, labels, series),
        hover=_hover(labels, series, unit) if len(series) == 1 else None,
    )


def answers_of(results: Results) -> FloatArray:
    """The answer on each database, draws averaged; NaN where none is a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a database where no draw is a number
        return np.asarray(np.nanmean(results.q.reshape(results.n_databases, -1), axis=1))


def predictable(risk: AnyRisk, answers: FloatArray) -> Predictable:
    """What somebody can predict of the answers, by what was counted as known."""
    if isinstance(risk, TotalledRisk):
        return predictable(risk.kept, answers)
    return _around_fit(risk, answers) if isinstance(risk, GivenRisk) else _around_median(answers)


def _around_fit(risk: GivenRisk, answers: FloatArray) -> Predictable:
    residuals, fit = risk.residuals, risk.residuals.fit
    fitted = np.isfinite(fit.residuals)
    if not fitted.any():
        return _around_median(answers)
    in_units = np.exp if residuals.logarithm else np.asarray
    scale = fit.spread.scale if fit.spread is not None else np.ones(len(fitted))
    ends = np.quantile((fit.residuals / scale)[fitted], [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    level, low, high = np.full((3, len(answers)), np.nan)  # not known of databases whose previous answers are not
    for curve, end in ((level, 0.0), (low, ends[0]), (high, ends[1])):
        curve[residuals.places[fitted]] = in_units((fit.level + scale * end)[fitted])
    known = ", ".join(term.name for term in fit.terms) or "the level alone"
    return Predictable(
        level, low, high,
        said=f"Line: what readers can predict who know {known}. Band: where {LEVEL:.0%} of the answers lie around it. "
        "Only what varies within the band hides anybody.",
    )  # fmt: skip


def _around_median(answers: FloatArray) -> Predictable:
    numeric = answers[np.isfinite(answers)]
    low, middle, high = np.quantile(numeric, [0.5 - LEVEL / 2, 0.5, 0.5 + LEVEL / 2]) if len(numeric) else (np.nan,) * 3
    n = len(answers)
    return Predictable(
        np.full(n, middle), np.full(n, low), np.full(n, high),
        said=f"Line: the median of all answers. Band: where {LEVEL:.0%} of them lie. Only that they vary from database "
        "to database hides anybody.",
    )  # fmt: skip


def _layers(
    answers: FloatArray, band: Predictable, labels: list[str], name: str, place: int, height: int, unit: str
) -> list[dict[str, Any]]:
    numeric = np.flatnonzero(np.isfinite(answers))
    around = np.flatnonzero(np.isfinite(band.low) & np.isfinite(band.high))
    low, high = value_range(np.concatenate((answers[numeric], band.low[around], band.high[around])))
    x, y = Scale(0.5, len(answers) + 0.5), Scale(low, high)
    named = labelled(x, labels, height)
    at = {"x": named["encoding"]["x"], "y": answer_axis(y, _titled(name, unit), height)}
    between = {**at, "y": {**at["y"], "field": "low"}, "y2": {"field": "high"}}
    drawn, known = _evenly(numeric), _evenly(around)
    rows = records(at=known + 1, value=band.level[known], low=band.low[known], high=band.high[known])
    shape = {"interpolate": "step"} if len(known) > 1 and float(np.ptp(band.level[known])) > 0 else {}
    points = records(at=drawn + 1, value=answers[drawn])
    layers = [
        named,
        layer("band", {"type": "area", "color": SKY, "opacity": 0.35, **shape}, rows, between),
        layer("level", {"type": "line", "color": VERMILION, "strokeWidth": 1.2, **shape}, rows, at),
        layer("line", {"type": "line", "color": BLUE, "strokeWidth": 1, "opacity": 0.75}, points, at),
    ]
    if len(drawn) <= _MOST_DOTS:
        dot = {"type": "point", "filled": True, "color": BLUE, "size": 18, "opacity": 1}
        layers.append(layer("points", dot, points, at))
    missing = np.flatnonzero(~np.isfinite(answers))[:_MOST_DRAWN]
    if len(missing):
        cross = {"type": "point", "shape": "cross", "color": VERMILION, "filled": True, "size": 50, "opacity": 1}
        layers.append(layer("missing", cross, records(at=missing + 1, value=[low] * len(missing)), at))
    return [{**part, "name": f"{part['name']}{place}"} for part in layers]  # names of views must differ


def _titled(name: str, unit: str) -> str:
    said = shortened(name, 40) or "answer"
    return f"{said} ({unit})" if unit else said


def _table(
    results: Results, labels: list[str], series: dict[str, tuple[FloatArray, Predictable]]
) -> dict[str, list[Any]]:
    data: dict[str, list[Any]] = {"database": labels}
    for name, (answers, _) in series.items():
        component = results if results.components is None else results.component(name)
        codes = component.outcomes.reshape(results.n_databases, -1)[:, 0]
        data[shortened(name, 40) or "answer"] = [
            clean(float(v)) if math.isfinite(v) else Outcome(int(codes[k])).name.lower().replace("_", " ")
            for k, v in enumerate(answers)
        ]
    if len(series) == 1:
        ((_, band),) = series.values()
        data |= {"predicted": _cleaned(band.level), "from": _cleaned(band.low), "to": _cleaned(band.high)}
    return data


def _cleaned(values: FloatArray) -> list[float | None]:
    return [clean(float(value)) for value in values]


def _hover(labels: list[str], series: dict[str, tuple[FloatArray, Predictable]], unit: str) -> dict[str, Any]:
    ((answers, band),) = series.values()
    places = _evenly(np.arange(len(labels)))
    texts = [
        f"{labels[k]}: {amount(float(answers[k]), unit) if math.isfinite(answers[k]) else 'not a number'}"
        + (f" (predicted {amount(float(band.level[k]), unit)})" if math.isfinite(band.level[k]) else "")
        for k in places
    ]
    return {"at": [(float(k) + 0.5) / len(labels) for k in places], "text": texts, "layer": "line0"}


def _evenly(places: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """At most so many of them as are drawn, the first and the last among them."""
    if len(places) <= _MOST_DRAWN:
        return places
    return np.asarray(places[np.linspace(0, len(places) - 1, _MOST_DRAWN).round().astype(int)])


def value_range(values: FloatArray) -> tuple[float, float]:
    """From below the least to above the largest."""
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (high - low) if high > low else max(abs(high) * 0.1, 1.0)
    return low - margin, high + margin


def answer_axis(y: Scale, title: str, height: int) -> dict[str, Any]:
    """An axis of numbers of the user's own, with separators between thousands."""
    most = max(abs(y.low), abs(y.high))
    return y.encoding("value", title, format="~s" if most >= 1e5 or most < 1e-4 else ",~r", tickCount=height // 36)


def labelled(x: Scale, labels: list[str], height: int) -> dict[str, Any]:
    """The databases' labels, as many as fit, as data of a layer: their text never becomes part of an expression."""
    spots = label_spots(labels)
    rows = records(at=[k + 1 for k, _ in spots], label=[text for _, text in spots])
    axis = x.encoding(
        "at", None, grid=False, labels=False, values=[k + 1 for k, _ in spots],
    )  # fmt: skip
    encoding = {"x": axis, "y": {"value": height + 14}, "text": {"field": "label"}}
    return layer("labels", {"type": "text", "align": "center", "color": INK, "baseline": "middle"}, rows, encoding)


def label_spots(labels: list[str]) -> list[tuple[int, str]]:
    """Which databases are labelled, and how: where labels are days in order, the first of a month or of a year."""
    days = days_of(labels)
    if days is None or days != sorted(days) or len(days) < 45:
        texts = labels if days is None else [f"{day.day} {day:%b}" for day in days]
        room = max(2, int(WIDTH / (_LETTER * (max(map(len, texts)) + 2))))
        return [(k, texts[k]) for k in range(0, len(texts), max(1, math.ceil(len(texts) / room)))]
    firsts = [
        k for k in range(len(days)) if k == 0 or (days[k].year, days[k].month) != (days[k - 1].year, days[k - 1].month)
    ]
    if days[0].day > 10 and len(firsts) > 1:
        firsts = firsts[1:]  # a month that begins in its middle
    months = [k for k in firsts if days[k].month == 1] if len(firsts) > 40 else firsts
    step = max(1, math.ceil(len(months) / 5))
    return [(k, f"{days[k]:%b %Y}" if months is firsts else f"{days[k]:%Y}") for k in months[::step]]
