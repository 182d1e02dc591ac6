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
from empriv.report.charts.laws import buckets_chart, two_laws
from empriv.report.charts.released import noise_chart, released_chart
from empriv.report.gather import HISTOGRAM_EDGES, gather
from empriv.words.sentences import number
from report.cases import EXTREMES, NASTY, extreme, results


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CHARTS if name not in ("outcomes", "table", "joint", "known")])
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
    # never narrower than the library's own bound at the same epsilon
    between = [k for k in range(len(material.epsilons)) if k not in own][::12]
    for k in between:
        found = ordinary.bounds(float(material.epsilons[k]))
        assert material.band["upper"][k] >= found.upper - 1e-12
        assert material.band["lower"][k] <= found.lower + 1e-12


def test_histogram_counts_everybody(ordinary: empriv.Audit) -> None:
    material = gather(ordinary)
    assert (material.curves.histogram.sum(axis=1) == 30).all()
    one = ordinary.delta_i(float(material.epsilons[5]))
    for k in range(1, len(HISTOGRAM_EDGES)):
        inside = (one > HISTOGRAM_EDGES[k - 1]) & (one <= HISTOGRAM_EDGES[k])
        assert material.curves.histogram[5, k] == np.count_nonzero(inside)


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
@pytest.mark.parametrize("kind", ["svg", "png", "pdf", "html", "json"])
def test_save(ordinary: empriv.Audit, tmp_path: Path, kind: str) -> None:
    target = tmp_path / f"delta.{kind}"
    chart(ordinary, "delta").save(target)
    starts = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF", "html": b"<!doctype html>", "json": b"{"}
    assert target.read_bytes().lstrip().startswith(starts[kind])
    assert target.stat().st_mode & 0o777 == 0o600


def test_wrong_use_is_said(ordinary: empriv.Audit, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`name` must be one of results"):
        chart(ordinary, "nothing")
    with pytest.raises(InputError, match="nothing to draw"):
        chart(ordinary, "outcomes")
    with pytest.raises(InputError, match="`path` must end in one of"):
        chart(ordinary, "delta").save(tmp_path / "delta.bmp")
    with pytest.raises(InputError, match="`scale` must be positive"):
        chart(ordinary, "delta").save(tmp_path / "delta.png", scale=math.nan)
    with pytest.raises(InputError, match="`epsilons` must be at least 0"):
        gather(ordinary, [-1.0])
    with pytest.raises(InputError, match="at least one finite"):
        gather(ordinary, [math.inf])


def test_plain_arrays() -> None:
    x = np.linspace(-3, 3, 61)
    law = np.exp(-np.abs(x)) / 2
    noise = noise_chart(x, law, (x, law), (x, np.exp(-np.abs(x) / 2) / 4))
    buckets = buckets_chart([*NASTY, "same", "same"], np.full(7, 1 / 7), np.full(7, 1 / 7))
    for made in (noise, buckets):
        tags = {one.tag.rpartition("}")[2] for one in ElementTree.fromstring(made.svg).iter()}
        assert not tags & {"script", "img", "image", "foreignObject", "a"}
    assert buckets.data["outcome"][-2:] == ["same (1)", "same (2)"]
    with pytest.raises(InputError, match="must have the same length"):
        buckets_chart(["a"], np.ones(2), np.ones(3))


def test_the_released_distribution_is_wider(ordinary: empriv.Audit) -> None:
    class Laplace:
        def quantile(self, p: float) -> float:
            return -2.0 * math.log(2 * (1 - p))

        def pdf(self, x: np.ndarray) -> np.ndarray:
            return np.exp(-np.abs(x) / 2.0) / 4.0

        def cdf(self, x: np.ndarray) -> np.ndarray:
            return np.where(x < 0, np.exp(x / 2.0) / 2, 1 - np.exp(-x / 2.0) / 2)

    made = released_chart(ordinary, Laplace())
    assert made is not None
    rows = made.spec["vconcat"][1]["layer"][0]["data"]["values"]
    spread = {}
    for law in ("as measured", "as released"):
        x, p = (np.array([row[key] for row in rows if row["law"] == law]) for key in ("x", "p"))
        assert np.trapezoid(p, x) == pytest.approx(1.0, abs=0.03)
        spread[law] = math.sqrt(np.trapezoid(p * (x - np.trapezoid(p * x, x)) ** 2, x))
    # variances add: that of Laplace noise of scale 2 is 8, less what lies beyond the 0.999 quantiles
    assert spread["as released"] ** 2 - spread["as measured"] ** 2 == pytest.approx(8.0, rel=0.1)
    assert released_chart(extreme("constant"), Laplace()) is None


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


def test_noise_on_a_lattice_is_drawn_smooth(ordinary: empriv.Audit) -> None:
    noise = empriv.design_noise(ordinary, epsilon=0.1, delta=0.01)
    made = released_chart(ordinary, noise)
    assert made is not None
    x, p = np.array(made.data["noise"]), np.array(made.data["density"])
    middle = len(x) // 2
    assert x[middle] == pytest.approx(0.0, abs=1e-9)
    assert p == pytest.approx(p[::-1], rel=1e-6)
    assert (np.diff(p[middle:]) < 0).all()  # cells that held now one point of the lattice, now two, would jump
    assert p.sum() * (x[1] - x[0]) == pytest.approx(1.0, abs=0.01)


def test_scales() -> None:
    assert risk_scale(np.zeros(3), np.zeros(3)).high == 1.0
    wide = risk_scale(np.array([1e-4, 0.1]), np.array([1.0]))
    assert (wide.kind, wide.high) == ("log", 1.0)
    assert risk_scale(np.array([0.2, 0.3]), np.array([0.5])).kind == "linear"


def test_publishing_again_shows_the_figures_after_so_many_publications() -> None:
    from empriv.report.charts.publications_chart import publications_chart

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
    assert drawn == ["lines", "target"]  # the other target is at another epsilon
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
