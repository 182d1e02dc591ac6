"""What an adversary knows, collected from the rows: the step between ``adversary=`` and `measure_against`.

SQL expressions and functions are run on every database like queries. What they mean is for `measuring.known`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.known import Adversary, OwnContribution

if TYPE_CHECKING:
    from empriv.collecting import Databases, Engine


def known_values(
    adversary: Adversary,
    data: Databases | None,
    *,
    databases: npt.NDArray[Any],
    engine: Engine | None = None,
    progress: bool | None = None,
    notice: Callable[[str], None] | None = None,
) -> Any:
    """What the adversary knows of each database: ``known`` of `measure_against`.

    Parameters
    ----------
    adversary : as `as_adversary` gives it
    data : the rows, or None if only results are at hand: then what is known must be arrays
    databases : labels of the results' databases, in whose order the values are returned
    engine, progress, notice : as for `collect`
    """
    if isinstance(adversary, OwnContribution):
        return adversary.contributions
    several = isinstance(adversary.g, list | tuple) and any(isinstance(g, str) or callable(g) for g in adversary.g)
    columns: list[Any] = []
    for g in adversary.g if several else [adversary.g]:
        if not (isinstance(g, str) or callable(g)):
            columns.append(g)
            continue
        if data is None:
            raise InputError("`adversary` must be an array for results alone: there are no rows to collect it from.")
        from empriv.collecting import collect

        found = collect(data, g, engine=engine, progress=progress, notice=notice)
        place = {label: row for row, label in enumerate(found.databases.tolist())}
        if set(place) != set(databases.tolist()):
            raise InputError("`adversary` must be known of the databases that the results are of, got others.")
        q = found.q[[place[label] for label in databases.tolist()]]
        columns.extend(q.T if q.ndim == 2 else [q])
    return columns[0] if len(columns) == 1 else columns
