"""Ready-made ways from rows to a published answer, to measure and to compare.

    from empriv import protocols

    protocols.laplace("avg(least(amount, 500))", sensitivity=5, epsilon=1)

Each wraps a query or another protocol. `Protocol.collect` returns `Results` for `measure` and all that follows.
"""

from empriv.protocols.protocol import (
    Protocol,
    cap_people,
    cells_to_hide,
    gaussian,
    laplace,
    noised,
    passed,
    plain,
    rounded,
)

__all__ = ["Protocol", "cap_people", "cells_to_hide", "gaussian", "laplace", "noised", "passed", "plain", "rounded"]
