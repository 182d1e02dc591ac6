"""Answers put in order, compared with a slow loop."""

from __future__ import annotations

import numpy as np
import pytest

from empriv.collecting.assemble import Answers, assemble
from empriv.results import Outcome


@pytest.mark.parametrize("pair_type", [np.int32, np.int64])
@pytest.mark.parametrize(("groups", "items"), [(1, 1), (1, 2), (3, 1)])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_answers_are_where_a_loop_puts_them(groups: int, items: int, share: float, pair_type: type) -> None:
    rng = np.random.default_rng(3)
    n, people = 7, 40
    cells = np.concatenate(
        (np.arange(n * groups), n * groups + np.flatnonzero(rng.random(people * n * groups) < share))
    )
    rng.shuffle(cells)  # everyone's answers among the others'
    pair, group = np.divmod(cells, groups)
    codes = [rng.choice([Outcome.NUMBER, Outcome.NULL], len(cells), p=[0.8, 0.2]).astype(np.int8) for _ in range(items)]
    values = [np.where(code == 0, rng.random(len(cells)), np.nan) for code in codes]
    answers = Answers((pair - n).astype(pair_type), n, group, tuple(zip(values, codes, strict=True)))
    made = assemble(
        answers,
        databases=np.arange(n),
        individuals=np.arange(people),
        components=None if groups * items == 1 else [str(k) for k in range(groups * items)],
        n_groups=groups,
    )
    size, everyone, entries = groups * items, {}, {}
    for k, (p, g) in enumerate(zip(pair.tolist(), group.tolist(), strict=True)):
        if p < n:
            everyone[p] = everyone.get(p, [np.nan] * size)
            everyone[p][g * items : (g + 1) * items] = [column[k] for column in values]
    for k, (p, g) in enumerate(zip(pair.tolist(), group.tolist(), strict=True)):
        if p >= n:  # what has no answer is as with everyone
            entries[p - n] = entries.get(p - n, list(everyone[p % n]))
            entries[p - n][g * items : (g + 1) * items] = [column[k] for column in values]
    keys = sorted(entries)
    np.testing.assert_array_equal(made.q.reshape(n, size), [everyone[j] for j in range(n)])
    np.testing.assert_array_equal(made.entry_q.reshape(-1, size), np.reshape([entries[k] for k in keys], (-1, size)))
    np.testing.assert_array_equal(made.entry_database, [k % n for k in keys])
    np.testing.assert_array_equal(np.repeat(np.arange(people), np.diff(made.starts)), [k // n for k in keys])
    assert ((made.entry_outcomes == Outcome.NUMBER) == np.isfinite(made.entry_q)).all()
