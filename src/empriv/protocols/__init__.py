"""Ready-made ways from rows to a published answer, to measure and to compare.

    from empriv import protocols

    protocols.laplace(protocols.winsorised("avg(amount)", "amount", lower=0, upper=500), sensitivity=5, epsilon=1)

Each wraps a query or another protocol. `Protocol.collect` returns `Results` for `measure` and all that follows.
"""

from empriv.protocols.cell_steps import HiddenCells, check_hidden
from empriv.protocols.protocol import Protocol
from empriv.protocols.ready import (
    cap_people,
    cell_noise,
    complementary,
    dominance,
    gaussian,
    hidden,
    k_threshold,
    laplace,
    noised,
    passed,
    plain,
    rounded,
    suppressed,
    top_coded,
    winsorised,
)

__all__ = [
    "HiddenCells",
    "Protocol",
    "cap_people",
    "cell_noise",
    "check_hidden",
    "complementary",
    "dominance",
    "gaussian",
    "hidden",
    "k_threshold",
    "laplace",
    "noised",
    "passed",
    "plain",
    "rounded",
    "suppressed",
    "top_coded",
    "winsorised",
]
