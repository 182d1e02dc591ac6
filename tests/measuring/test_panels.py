"""Smooth kernels as polynomials on panels say what the kernels themselves say."""

from __future__ import annotations

import numpy as np
import pytest
from gaps import with_gaps

import empriv
from empriv.measuring.densities.kernels import KERNELS
from empriv.measuring.line import compiled
from empriv.measuring.line.mixtures import SLACK
from empriv.measuring.line.panels import Panels, panel_edges
from empriv.measuring.line.sides import NEAR, ShiftMatrices, Side
from empriv.results import FloatArray
from oracles import mixture_curve

SMOOTH = ["gaussian", "logistic", "student"]
EPSILONS = np.array([0.0, 0.01, 0.05, 0.2, 1.0, 2.0, 3.0])

needs_a_compiler = pytest.mark.skipif(
    compiled.panels is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)


def drawn(kind: str) -> tuple[FloatArray, FloatArray, float]:
    """Results, results without sixty individuals who move them by less than half a bandwidth, and that bandwidth."""
    rng = np.random.default_rng(7)
    n = 1 if kind == "one database" else 24
    q = rng.normal(0, 2, n)
    if kind == "ties":
        q = np.round(q)
    elif kind == "clusters":
        q = 0.15 * q + rng.choice([-9.0, 0.0, 10.0], n)
    elif kind == "far from zero":
        q = 1e9 + 1e6 * q
    h = 0.3 * max(float(np.std(q)), 1.0) if kind != "clusters" else 0.8
    touched = rng.random((60, n)) < (0.1 if kind == "few touched" else 1.0)
    size = rng.choice([1e-6, 0.01, 0.1, 0.49], (60, 1))
    without = q - h * size * rng.random((60, n)) * touched
    if kind == "atoms":
        q, without = q.copy(), without.copy()
        q[:3], without[:, :3] = np.nan, np.nan
    return q, without, h


def measured(q: FloatArray, without: FloatArray, density: empriv.Kde) -> FloatArray:
    return np.asarray(empriv.measure(with_gaps(q, without), density=density).delta_i(EPSILONS))


@needs_a_compiler
@pytest.mark.parametrize("kernel", SMOOTH)
@pytest.mark.parametrize("kind", ["plain", "ties", "clusters", "far from zero", "few touched", "atoms", "one database"])
def test_cells_agree(kind: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    q, without, h = drawn(kind)
    calls, compiled_sticks = [], compiled.panels
    assert compiled_sticks is not None
    monkeypatch.setattr(compiled, "panels", lambda *given: calls.append(1) or compiled_sticks(*given))
    fast = measured(q, without, empriv.Kde(kernel, h))
    assert calls, "nobody would be compared"
    monkeypatch.setattr(compiled, "panels", None)
    slow = measured(q, without, empriv.Kde(kernel, h))
    assert np.abs(fast - slow).max() < 2 * SLACK
    assert np.array_equal(fast == 0, slow == 0), "zero where it is proved"
    if kind == "plain":
        exact = [max(mixture_curve(kernel, q, without[0], np.full(len(q), h))(e)) for e in EPSILONS[1:4]]
        assert np.all(fast[0, 1:4] >= exact)
        assert np.all(fast[0, 1:4] <= np.array(exact) + 4 * SLACK)


@pytest.mark.parametrize("kernel", SMOOTH)
@pytest.mark.parametrize("reach", NEAR)
def test_one_matrix_gives_the_densities_of_all(reach: float, kernel: str) -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(0, 3, 12)
    edges = panel_edges(KERNELS[kernel], points, 1.0)
    assert edges is not None
    width = np.ones((1, 12))
    side = Side.of(KERNELS[kernel], points[None, :], width)
    shifts = reach * rng.choice([-1.0, 1.0, 0.3], (5, 12))
    panels = Panels.of(side, edges, reach)
    moved = Side.of(KERNELS[kernel], points - shifts, width)
    places = np.broadcast_to(panels.matrices.nodes, (5, len(panels.matrices.nodes)))
    exact = moved.density(places, np.arange(5))[0]
    assert np.abs(panels.matrices.evaluate(shifts) / exact - 1).max() < 2e-12
    assert ShiftMatrices.degree_for(reach) <= 20


def test_results_too_many_bandwidths_apart_have_no_panels() -> None:
    assert panel_edges(KERNELS["gaussian"], np.arange(0.0, 1e5, 10.0), 0.5) is None
    assert panel_edges(KERNELS["gaussian"], np.array([-20.0, 0.0, 1.0]), 1.0) is None, "nothing lies between"


@needs_a_compiler
@pytest.mark.parametrize("touched", [0.1, 1.0])
def test_lonely_results_are_not_lost(touched: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to nothing lies between them: one density may be rounded to zero where the other one is not."""
    rng = np.random.default_rng(3)
    q = np.array([-38.7, -2.5, 0.0, 12.3, 14.0, 27.5])
    without = q - 0.45 * rng.random((60, 6)) * (rng.random((60, 6)) < touched)
    fast = measured(q, without, empriv.Kde("gaussian", 1.0))
    monkeypatch.setattr(compiled, "panels", None)
    assert np.abs(fast - measured(q, without, empriv.Kde("gaussian", 1.0))).max() < 2 * SLACK
