"""What a notebook and `repr` show of each value: short, without results or identifiers, escaped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import empriv

SECRET = "<b>mallory</b>"


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    q = rng.normal(12345.678, 10.0, 90)
    without = np.stack([q - rng.exponential(2.0, 90), q - rng.exponential(1.0, 90)])
    results = empriv.Results.from_arrays(q, without, individuals=[SECRET, "eve"])
    audit = empriv.audit(results, epsilon=0.1, unit="min", known="nothing")
    risk = audit.risk
    given = empriv.audit(results, epsilon=0.1, known=empriv.Given(np.arange(90) % 3.0)).against
    against = empriv.audit(results, epsilon=0.1, known=empriv.Buckets(np.arange(90) % 3, 3)).against
    joint = empriv.measure(empriv.Results.stack({"a": results, "b": results}))
    verdict = audit.verdict(epsilon=0.1, delta=0.05)
    noise = empriv.design_noise(audit, epsilon=0.5, delta=0.05, method="classical", granularity=0.25)
    chunked = empriv.audit(results, epsilon=0.1, in_chunks=True)
    return {
        "results": results, "risk": risk, "given": given, "against": against, "joint": joint,
        "moved": audit.moved(), "repeated": risk.repeated(5), "totalled": chunked.risk, "audit": audit,
        "bounds": audit.bounds(0.1), "verdict": verdict, "summary": audit.summary(), "noise": noise,
        "decision": audit.decision(verdict),
        "table noise": empriv.design_noise(joint, epsilon=0.5, delta=0.0, granularity=0.25),
    }  # fmt: skip


def test_reprs_are_short_and_hold_neither_results_nor_identifiers(values: dict[str, Any]) -> None:
    for name, value in values.items():
        shown = repr(value)
        assert len(shown) < 400, name
        assert "mallory" not in shown, name
        assert "array(" not in shown, name
        assert "12345" not in shown, name


def test_every_value_shows_itself_in_a_notebook_escaped_and_without_identifiers(values: dict[str, Any]) -> None:
    for name, value in values.items():
        shown = value._repr_html_()
        assert shown.startswith("<div"), name
        assert "mallory" not in shown, name
        assert "12345" not in shown, name


def test_figures_are_in_what_is_shown(values: dict[str, Any]) -> None:
    delta = values["audit"].delta(0.1)
    assert f"epsilon 0.1: delta {delta:.3g}" in str(values["audit"])
    assert f"<td>{delta:.3g}</td>" in values["risk"]._repr_html_()
    assert repr(values["risk"]) == "Risk(90 databases, 2 individuals)"
    assert repr(values["noise"]).startswith("Noise(classical, epsilon 0.5, delta 0.05, ±")
    assert repr(values["noise"]).endswith(" min)")
    assert repr(values["bounds"]).startswith("Bounds(delta at epsilon 0.1 from 0")
    assert str(values["decision"]).splitlines()[0] == values["decision"].line


def test_markup_in_names_is_text() -> None:
    rng = np.random.default_rng(1)
    q = rng.normal(0.0, 1.0, 40)
    parts = {SECRET: empriv.Results.from_arrays(q, [q - 1]), "b": empriv.Results.from_arrays(q * 2, [q * 2 - 1])}
    noise = empriv.design_noise(empriv.measure(empriv.Results.stack(parts)), epsilon=1.0, delta=0.0, granularity=0.25)
    assert "&lt;b&gt;mallory" in noise._repr_html_()
