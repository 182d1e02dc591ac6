"""How cells add up: which hidden cells follow from the others, and which must be hidden with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from empriv.errors import InputError
from empriv.measuring.tables.relations import relations_of
from empriv.protocols import cells_to_hide
from empriv.results import Results


def two_way(rng: np.random.Generator, rows: int = 3, columns: int = 4, n: int = 80) -> Results:
    """A table of two ways with both margins and the grand total, and people in one cell each."""
    inner = rng.poisson(20.0, (n, rows, columns)).astype(float)
    parts, moves = {}, {}
    people = [(r, c) for r in range(rows) for c in range(columns)]

    def add(name: str, values: Any, who: Any) -> None:
        parts[name], moves[name] = values, np.array([float(who(r, c)) for r, c in people])

    for r in range(rows):
        for c in range(columns):
            add(f"{r}{c}", inner[:, r, c], lambda i, j, r=r, c=c: (i, j) == (r, c))
    for r in range(rows):
        add(f"row {r}", inner[:, r].sum(axis=1), lambda i, _, r=r: i == r)
    for c in range(columns):
        add(f"column {c}", inner[:, :, c].sum(axis=1), lambda _, j, c=c: j == c)
    add("all", inner.sum(axis=(1, 2)), lambda *_: True)
    return Results.stack(
        {name: Results.from_arrays(values, values - moves[name][:, None]) for name, values in parts.items()}
    )


def test_cells_of_a_table_with_margins() -> None:
    results = two_way(np.random.default_rng(0))
    further = cells_to_hide(results, ["11"])
    assert len(further) == 3  # a rectangle
    assert cells_to_hide(results, ["11", *further]) == ()
    assert len(cells_to_hide(results, ["11", "12"])) == 2  # both follow by the columns


@pytest.mark.slow
def test_what_follows_against_least_squares() -> None:
    """A cell follows if and only if tables that agree in all published cells agree in it."""
    rng = np.random.default_rng(3)
    results = two_way(rng)
    assert results.components is not None
    relations = relations_of(results)
    q = np.concatenate((results.q - results.q.mean(axis=0), results.entry_q - results.q[results.entry_database]))
    for _ in range(60):
        hidden = rng.random(q.shape[1]) < rng.uniform(0.05, 0.5)
        follows = relations.recovered(hidden)
        for cell in np.flatnonzero(hidden):
            x = q[:, ~hidden]
            left = q[:, cell] - x @ np.linalg.lstsq(x, q[:, cell], rcond=None)[0]
            assert follows[cell] == (np.abs(left).max() < 1e-6)
        further = relations.complement(hidden)
        both = hidden.copy()
        both[list(further)] = True
        assert not (relations.recovered(both) & hidden).any()


def test_beside_a_total_the_smallest_part_is_hidden_too() -> None:
    rng = np.random.default_rng(1)
    wards = rng.poisson(30.0 + 10.0 * np.arange(12), (60, 12)).astype(float)
    parts = {f"ward {w}": Results.from_arrays(wards[:, w], wards[:, w] - np.eye(12)[w][:, None]) for w in range(12)}
    whole = wards.sum(axis=1)
    parts["total"] = Results.from_arrays(whole, whole - np.ones((12, 1)))
    assert cells_to_hide(Results.stack(parts), ["ward 3"]) == ("ward 0",)


def test_what_cannot_be_done_is_said() -> None:
    results = two_way(np.random.default_rng(0))
    with pytest.raises(InputError, match="must be Results"):
        cells_to_hide([1.0], ["00"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="that it does not have"):
        cells_to_hide(results, ["nowhere"])
    with pytest.raises(InputError, match="one number"):
        cells_to_hide(results.component("00"), ["00"])
    few = results.on_databases(np.array([0, 1])).of_individuals(np.array([], int))
    with pytest.raises(InputError, match="answers for each cell"):
        cells_to_hide(few, ["00"])
