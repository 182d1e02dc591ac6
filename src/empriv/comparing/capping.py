"""Cap at the cover: the largest cap on what each person adds that the capped answer still hides.

Of a sum or a count, what somebody adds is what they move the answer by, so that the capped answer follows from the
results: no row is read. Capping changes the law of the answers a little, and with it the cover: the cap is the fixed
point of both. Whoever comes tomorrow is capped too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from empriv.auditing.audit import Audit
from empriv.collecting.queries import queries_in
from empriv.errors import InputError
from empriv.judge.dither import dither
from empriv.measuring.line.moves import moves_of
from empriv.noise.judging import JudgedAnswer
from empriv.noise.measured import one_number
from empriv.protocols.places import adds_people_up
from empriv.results import Results
from empriv.validate.covering import cover

_ROUNDS = 9
_NEAR = 0.04  # of a cap: no nearer is looked for
_DIGITS = 3  # of a cap that people would declare


def can_be_capped(audit: Audit) -> bool:
    """Whether the answer is one sum or count in SQL, of numbers throughout, so that results tell what people add."""
    texts = [] if audit.text is None else queries_in(audit.text)
    results = audit.results
    numbers = not results.outcomes.any() and not results.entry_outcomes.any()
    alone = len(texts) == 1 and audit.component is None and results.draws is None
    return alone and numbers and adds_people_up(texts[0])


def capped_results(results: Results, at: float) -> Results:
    """Results of a sum or a count with what each person adds kept between -at and at."""
    added = results.q[results.entry_database] - results.entry_q
    kept = np.clip(added, -at, at)
    q = results.q - np.bincount(results.entry_database, added - kept, results.n_databases)
    return replace(results, q=q, entry_q=q[results.entry_database] - kept)


def largest_cap(
    results: Results, audited: Callable[[Results], Audit], epsilon: float, delta: float
) -> tuple[float, Results] | None:
    """The largest cap that the dithered answer hides at (epsilon, delta), and the capped results.

    None where nobody moves the answer by more than it hides already, or where it hides nothing.

    Parameters
    ----------
    results : of a sum or a count
    audited : audits results as the answer was audited
    """

    def hidden(published: Results) -> float:
        try:
            risk = one_number(audited(published))
        except InputError:  # of last digits that give somebody away, given what is known
            return 0.0
        pairs = JudgedAnswer(risk).pairs
        noise = dither(pairs.points, draws=pairs.draws)
        return cover(risk, epsilon, delta, noise=0.0 if noise is None else noise.scale)

    most = float(moves_of(results).sizes.max(initial=0.0))
    low, high, cap = 0.0, most, _rounded_down(hidden(results))
    if not 0 < cap < most:
        return None
    for _ in range(_ROUNDS):
        covered = hidden(capped_results(results, cap))
        low, high = (cap, high) if covered >= cap else (low, cap)
        if covered <= 0 or high <= (1 + _NEAR) * low:
            break
        # the smaller the cap, the less the capped answers spread: two steps at once until one is hidden
        cap = _rounded_down(0.5 * (low + high) if low else covered * covered / cap)
        if cap <= low:
            break
    return (low, capped_results(results, low)) if low > 0 else None


def _rounded_down(number: float) -> float:
    """With few digits, and no larger."""
    if not number > 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(number)) - _DIGITS + 1)
    return float(f"{math.floor(number / unit * (1 + 1e-12)) * unit:.12g}")
