"""The chart of what an adversary knows: the most exposed individual's delta_i for each value that they may know."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.harmless import shortened
from empriv.measuring import GivenRisk
from empriv.measuring.given.adversaries import FEW_EFFECTIVE, OwnContribution
from empriv.report.charts.chart import (
    BLUE,
    HEIGHT,
    INK,
    ORANGE,
    Chart,
    Scale,
    layer,
    numbers,
    records,
    round_up,
    spec_of,
)
from empriv.report.gather import Material
from empriv.results import FloatArray
from empriv.words.sentences import number

_BARS_WIDTH = 170
_MOST_BARS = 16
_MOST_DOTS = 600
_MOST_ROWS = 500
_DASHED = {"type": "rule", "color": INK, "strokeDash": [5, 3]}
_KINDS = ("enough databases", "few: mostly noise")


def adversary_chart(material: Material) -> Chart | None:
    """delta_i of the most exposed individual under every value of what is known; None if nobody knows anything."""
    against = material.audit.against
    if against is None:
        return None
    epsilon = float(material.epsilons[material.start])
    conditions = against.by_condition(epsilon)
    measured = np.isfinite(conditions["delta_i"])
    z, effective, delta_i = (
        conditions["z"][measured],
        conditions["effective"][measured],
        conditions["delta_i"][measured],
    )
    if not len(delta_i):
        return None
    row = int(np.argmax(against.delta_i(epsilon)))
    # Every individual's own knowledge makes too many conditions to be followed along the slider.
    moves = not isinstance(against.adversary, OwnContribution)
    most_exposed = against.results.individuals[row]
    along = list(against.along_conditions(material.epsilons, most_exposed)[measured].T) if moves else [delta_i]
    alone = against.unconditional.delta_i(material.epsilons if moves else np.array([epsilon]))[row]
    nothing = float(alone[material.start if moves else 0])
    kinds = [_KINDS[int(few)] for few in _few(against, effective)]
    colour = {"field": "kind", "type": "nominal", "scale": {"domain": list(_KINDS), "range": [BLUE, ORANGE]}}
    top = float(np.append(np.concatenate(along), alone).max())
    value = Scale(0.0, round_up(top) if top > 0 else 1.0)
    axis = "delta_i"
    names = [_name(known) for known in z]
    worst_first = np.argsort(-delta_i, kind="stable")
    if z.dtype.kind == "f" and z.ndim == 1 and not isinstance(against.adversary, OwnContribution):
        drawn = worst_first[:_MOST_DOTS]
        span = float(np.ptp(z[drawn])) or 1.0
        x = Scale(float(z[drawn].min()) - 0.03 * span, float(z[drawn].max()) + 0.03 * span)
        shape = {**colour, "scale": {"domain": list(_KINDS), "range": ["circle", "triangle-up"]}}
        rows = records(z=z[drawn], value=delta_i[drawn], kind=[kinds[k] for k in drawn])
        at_y = value.encoding("value", axis)
        big = float(np.abs(z[drawn]).max()) >= 1e6
        at_x = x.encoding("z", "what the adversary knows", grid=False, format="~s" if big else ",~r")
        layers = [
            layer("nothing", _DASHED, records(value=[nothing]), {"y": at_y}),
            layer("conditions", {"type": "point", "filled": True, "size": 50, "opacity": 0.9}, rows,
                  {"x": at_x, "y": at_y, "color": colour, "shape": shape}),
        ]  # fmt: skip
        spec = spec_of(layer=layers)
        left, mark, axis_live = (
            len(z) - len(drawn),
            "Each point is one value of what the adversary knows",
            ("y", HEIGHT),
        )
    else:
        drawn = worst_first[:_MOST_BARS]
        labels = [f"{shortened(names[k], 22)} ({effective[k]:.0f})" for k in drawn]
        labels = [f"{text} · {labels[: k + 1].count(text)}" if labels.count(text) > 1 else text
                  for k, text in enumerate(labels)]  # fmt: skip
        rows = records(z=labels, value=delta_i[drawn], foot=[0.0] * len(drawn), kind=[kinds[k] for k in drawn])
        at_x = value.encoding("value", axis)
        at_y = {"field": "z", "type": "nominal", "sort": labels, "axis": {"title": None, "labelLimit": 180}}
        bars = {"x": at_x, "x2": {"field": "foot"}, "y": at_y, "color": colour}
        layers = [
            layer("conditions", {"type": "bar"}, rows, bars),
            layer("nothing", _DASHED, records(value=[nothing]), {"x": at_x}),
        ]  # fmt: skip
        spec = spec_of(width=_BARS_WIDTH, height=max(60, 24 * len(labels)), layer=layers)
        left, mark = (
            len(z) - len(drawn),
            "Each bar is one value of what the adversary knows, the worst first, with how many databases have it",
        )
        axis_live = ("x", _BARS_WIDTH)
    more = f" {left:,} more, with smaller delta_i, are not drawn." if left else ""
    table = worst_first[:_MOST_ROWS]
    return Chart(
        name="adversary",
        title="What the adversary knows",
        caption=(
            f"{mark}: how exposed the individual who is most exposed at epsilon {epsilon:.4g} is to anyone who knows "
            f"that value{'' if moves else '; the chart stays at that epsilon'}. The dashed line is the same "
            f"individual's delta_i to anyone who knows nothing, {number(nothing)} at that epsilon.{more}"
        ),
        spec=spec,
        data={
            "known": [names[k] for k in table],
            "effective databases": [f"{effective[k]:.1f}" for k in table],
            "delta_i": numbers(delta_i[table]),
        },
        live=None if not moves else {
            "kind": "conditions",
            "along": axis_live[0],
            "scale": value.live(axis_live[1]),
            "values": [numbers(column[drawn]) for column in along],
            "nothing": numbers(alone),
            "table": [numbers(column[table]) for column in along],
        },
    )  # fmt: skip


@singledispatch
def _few(against: object, effective: FloatArray) -> npt.NDArray[np.bool_]:  # noqa: ARG001 — dispatched on
    """Which values too few databases have for more than noise."""
    return np.asarray(effective < FEW_EFFECTIVE)


@_few.register
def _(against: GivenRisk, effective: FloatArray) -> npt.NDArray[np.bool_]:  # noqa: ARG001 — as above
    # what is left of all databases serves in every context
    return np.zeros(len(effective), bool)


def _name(value: Any) -> str:
    """A value of what is known, or several, as text."""
    if np.ndim(value):
        return ", ".join(_name(component) for component in value)
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
