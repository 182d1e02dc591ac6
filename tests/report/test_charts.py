"""Charts: specs that vl-convert draws, data as measured, and pictures that hold no markup from data."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

import empriv
from empriv.errors import InputError
from empriv.report import CHARTS
from empriv.report.charts.all_charts import chart, charts_of
from empriv.report.charts.chart import risk_scale
from empriv.report.charts.densities import two_laws
from empriv.report.charts.moves_chart import MovesDrawn, drawn
from empriv.report.gather import gather
from empriv.words.sentences import Nouns, number
from report.cases import EXTREMES, NASTY, extreme, results


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CHARTS if name != "table"])
def test_every_chart_is_drawn(ordinary: empriv.Audit, name: str) -> None:
    made = chart(ordinary, name)
    assert made.name == name
    assert made.caption
    assert len({len(column) for column in made.data.values()}) == 1
    json.dumps(made.spec, allow_nan=False)
    root = ElementTree.fromstring(made.svg)
    assert root.tag.endswith("svg")
    assert made._repr_html_().startswith("<svg")
    assert set(made._repr_mimebundle_()) == {"application/vnd.vegalite.v5+json", "image/svg+xml", "text/plain"}


def test_delta_is_what_was_measured(ordinary: empriv.Audit) -> None:
    made = chart(ordinary, "delta", epsilon=0.1)
    epsilons = gather(ordinary, at=0.1).epsilons
    assert 0.1 in epsilons
    assert made.data["epsilon"] == pytest.approx(epsilons.tolist(), rel=1e-5)
    assert made.data["estimate"] == [number(float(value), 3) for value in ordinary.delta(epsilons)]
    material = gather(ordinary)
    own = np.flatnonzero(material.band["own"])
    for k in own:
        found = ordinary.bounds(float(material.epsilons[k]))
        assert material.band["upper"][k] == found.upper
    # delta falls in epsilon: between, the upper bound is that of a smaller one, and the lower that of a greater
    assert np.all(np.diff(material.band["upper"]) <= 1e-12)
    assert np.all(np.diff(material.band["lower"]) <= 1e-12)
    for k in [k for k in range(len(material.epsilons)) if k not in own][::12]:
        before, after = own[own < k], own[own > k]
        if len(before):
            assert material.band["upper"][k] == max(material.band["upper"][before[-1]], ordinary.delta(epsilons[k]))
        if len(after):
            assert material.band["lower"][k] == min(material.band["lower"][after[0]], ordinary.delta(epsilons[k]))


def test_everybody_who_is_exposed_is_counted(ordinary: empriv.Audit) -> None:
    material = gather(ordinary)
    one = ordinary.delta_i(float(material.epsilons[5]))
    assert material.curves.n_exposed[5] == np.count_nonzero(one > 0)


def test_the_shaded_area_is_where_the_ratio_exceeds() -> None:
    x = np.linspace(-5, 5, 201)
    p, p_i = np.exp(-np.abs(x)) / 2, np.exp(-np.abs(x - 0.3)) / 2
    made = two_laws(x, p, p_i, 0.21)
    shade = next(one for one in made.spec["vconcat"][0]["layer"] if one["name"] == "shade")
    shaded = [row["x"] for row in shade["data"]["values"] if row["p"] > 0]
    truth = x[np.abs(np.log(p / p_i)) > 0.21]
    assert shaded == pytest.approx(truth.tolist(), abs=1e-9)
    assert len(shaded) != len(x)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_are_drawn(name: str) -> None:
    for made in charts_of(gather(extreme(name), [0.0, 0.1, math.inf])):
        json.dumps(made.spec, allow_nan=False)
        assert "NaN" not in made.svg


@pytest.mark.slow
def test_many_databases_are_thinned() -> None:
    audit = empriv.audit(results(n=1500, m=2))
    audit.__dict__["checks"] = ()  # their time grows with the square, and no picture hangs on them
    made = chart(audit, "results")
    assert len(made.svg) < 60_000
    assert len(made.data["answer"]) == 1500


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["svg", "png", "pdf", "json"])
def test_save(ordinary: empriv.Audit, tmp_path: Path, kind: str) -> None:
    target = tmp_path / f"delta.{kind}"
    chart(ordinary, "delta").save(target)
    starts = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF", "json": b"{"}
    assert target.read_bytes().lstrip().startswith(starts[kind])
    assert target.stat().st_mode & 0o777 == 0o600


def test_wrong_use_is_said(ordinary: empriv.Audit, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`name` must be one of moves, results"):
        chart(ordinary, "nothing")
    with pytest.raises(InputError, match="nothing to draw"):
        chart(ordinary, "table")
    with pytest.raises(InputError, match="`path` must end in one of"):
        chart(ordinary, "delta").save(tmp_path / "delta.bmp")
    with pytest.raises(InputError, match="`scale` must be positive"):
        chart(ordinary, "delta").save(tmp_path / "delta.png", scale=math.nan)
    with pytest.raises(InputError, match="`epsilons` must be at least 0"):
        gather(ordinary, [-1.0])
    with pytest.raises(InputError, match="at least one finite"):
        gather(ordinary, [math.inf])


@pytest.mark.slow
def test_a_name_is_no_markup() -> None:
    made = drawn(MovesDrawn(np.array([0.1, 4.0]), np.ones(2, int), 1.0), furthest=NASTY[0])
    tags = {one.tag.rpartition("}")[2] for one in ElementTree.fromstring(made.svg).iter()}
    assert not tags & {"script", "img", "image", "foreignObject", "a"}


@pytest.mark.parametrize("widest", [1.0, 1e4], ids=["linear", "logarithmic"])
def test_every_move_is_counted_once_and_those_beyond_the_cover_are_coloured(widest: float) -> None:
    rng = np.random.default_rng(0)
    sizes = np.concatenate((rng.uniform(0.01, 1.0, 500) * widest ** rng.uniform(0, 1, 500), [0.0, np.inf, np.inf]))
    cover = float(np.quantile(sizes[:500], 0.9))
    made = drawn(MovesDrawn(sizes, np.ones(503, int), cover), unit="min", nouns=Nouns("aircraft", "day"))
    assert sum(made.data["aircraft-days"]) == 500
    assert sum(made.data["beyond"]) == np.count_nonzero(sizes[:500] > cover)
    bars = next(part for part in made.spec["layer"] if part["name"] == "bars")["data"]["values"]
    assert sum(bar["count"] - bar["from"] for bar in bars if bar["what"] == "beyond") == sum(made.data["beyond"]) + 2
    assert f"Orange: {sum(made.data['beyond']) + 2} (" in made.caption
    line = next(part for part in made.spec["layer"] if part["name"] == "here")["data"]["values"][0]
    assert line["said"].startswith("hidden up to ")
    # no bar is of both, and what is said to be beyond changes with the cover
    assert all(bar["from"] == 0 for bar in bars)
    labels = [part["data"]["values"][0].get("said", "") for part in made.spec["layer"] if part["name"] == "more"]
    assert [label.removesuffix(" \u2192") for label in labels] == ["not hidden"]
    assert "All are hidden." in drawn(MovesDrawn(sizes[:500], np.ones(500, int), float(sizes[:500].max()))).caption


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[], [0.0], [np.inf], [0.0, np.inf], [5.0], [1e-300, 1e300]], ids=str)
def test_any_moves_are_drawn(sizes: list[float]) -> None:
    for cover in (None, 0.0, 2.0):
        made = drawn(MovesDrawn(np.array(sizes), np.ones(len(sizes), int), cover), furthest="somebody")
        json.dumps(made.spec, allow_nan=False)
        assert "NaN" not in made.svg


def test_the_furthest_is_named_and_the_line_is_where_the_verdict_has_it(ordinary: empriv.Audit) -> None:
    verdict = ordinary.verdict(epsilon=0.05, delta=0.3)
    assert verdict.day is not None
    assert verdict.day.cover > 0
    names = [str(label) for label in ordinary.results.individuals]
    made = CHARTS["moves"](gather(ordinary, names=names, day=verdict.day))
    assert made is not None
    layers = {part["name"]: part["data"]["values"] for part in made.spec["layer"]}
    assert layers["cover"][0]["low"] == pytest.approx(verdict.day.cover, rel=1e-5)
    furthest = ordinary.moved(top=1, show_ids=True).individual[0]
    assert made.caption.endswith(f" Furthest: person {furthest}.")
    hidden = CHARTS["moves"](gather(ordinary, names=names, day=verdict.day, pseudonyms=True))
    assert hidden is not None
    assert hidden.caption.endswith(f" Furthest: person {furthest} (a code name: the key file tells who).")


def test_where_days_hide_differently_moves_are_shares_of_what_their_day_hides() -> None:
    rng = np.random.default_rng(4)
    level = np.repeat([1.0, 5.0], 60)
    q = level * rng.normal(20.0, 2.0, 120)
    results = empriv.Results.from_arrays(q, q - level * rng.exponential(0.3, (20, 120)))
    audit = empriv.audit(results, known=empriv.Given(level), epsilon=1.0)
    day = audit.verdict(epsilon=1.0, delta=0.1).day
    assert day is not None
    made = CHARTS["moves"](gather(audit, day=day))
    assert made is not None
    layers = {part["name"]: part["data"]["values"] for part in made.spec["layer"]}
    assert layers["cover"][0]["low"] == 1.0
    assert layers["here"][0]["said"] == "hidden"
    assert sum(made.data["beyond"]) == day.beyond > 0


@pytest.mark.slow
def test_several_numbers() -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(size=40)
    one, other = (
        empriv.Results.from_arrays(values, values - 0.05 * rng.exponential(size=(4, 40))) for values in (q, q**2)
    )
    audit = empriv.audit(empriv.Results.stack({"a": one, "b": other}))
    names = [made.name for made in charts_of(gather(audit, [0.05, 0.2]))]
    assert names[:4] == ["results", "delta", "publications", "total_risk"]
    assert "results" not in [made.name for made in charts_of(gather(audit, [0.05, 0.2]), answers=False)]


def test_scales() -> None:
    assert risk_scale(np.zeros(3), np.zeros(3)).high == 1.0
    wide = risk_scale(np.array([1e-4, 0.1]), np.array([1.0]))
    assert (wide.kind, wide.high) == ("log", 1.0)
    assert risk_scale(np.array([0.2, 0.3]), np.array([0.5])).kind == "linear"


def test_publishing_again_shows_the_figures_after_so_many_publications() -> None:
    from empriv.report.charts.curves import publications_chart

    q = np.random.default_rng(2).normal(size=120)
    audit = empriv.audit(empriv.Results.from_arrays(q, np.stack([q - 0.1, q])), epsilon=1.0)
    made = publications_chart(gather(audit, targets=[(1.0, 0.05), (0.5, 0.01)]))
    assert made is not None
    figures = dict(zip(made.data["publications"], made.data["estimate"], strict=True))
    for times in (1, 52, 365):
        assert figures[times] == pytest.approx(audit.repeated(times).delta(1.0), rel=1e-5)
    most = dict(zip(made.data["publications"], made.data["upper figure"], strict=True))
    assert most[52] == pytest.approx(audit.repeated(52).bounds(1.0).upper, rel=1e-5)
    drawn = [part["name"] for part in made.spec["layer"]]
    assert drawn == ["lines", "target", "allowed"]  # the other target is at another epsilon
    year = publications_chart(gather(audit.repeated(5000)))
    assert year is not None
    assert 5000 in year.data["publications"]
    assert "now" in [part["name"] for part in year.spec["layer"]]


def test_kinds_that_do_not_compose_have_no_chart_of_publishing_again() -> None:
    rng = np.random.default_rng(3)
    q = rng.normal(size=60)
    found = empriv.Results.from_arrays(q, [q - 0.1])
    audit = empriv.audit(found, epsilon=1.0, known=empriv.Buckets(rng.normal(size=60), 2))
    assert "publications" not in [made.name for made in charts_of(gather(audit, [1.0]))]
