"""Ways to publish that need the rows: which to try, and what each publishes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from empriv.auditing.audit import Audit
from empriv.collecting.pipeline import run_query
from empriv.collecting.queries import queries_in
from empriv.collecting.run_options import Run
from empriv.collecting.sources import Databases
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.given.calendar import Times, order_of
from empriv.protocols.places import capped_text, summed_columns, value_quantiles
from empriv.protocols.ready import k_threshold, top_coded, winsorised
from empriv.results import FloatArray, Results

_HIGH, _LOW = (0.8, 0.95, 0.99), 0.05  # of the values of a column
_MOST_COLUMNS = 2
_FEW = 0.1  # databases with fewer individuals than the minimum get no answer
_WEEK = 7.0  # days


@dataclass(frozen=True, eq=False)
class RowWay:
    """One way that needs the rows.

    Attributes
    ----------
    code, parameters, toml : as of `Action`
    query : what is collected: a protocol, or the query where databases are cut in another way
    data : the databases it is collected from
    answers : (n,) what the way says of each of the audit's databases, where these are cut in another way
    noise_toml : the query that does it, if noise may follow
    """

    code: str
    parameters: dict[str, Any]
    toml: str
    query: Any
    data: Databases
    answers: FloatArray | None = None
    noise_toml: str = ""

    def collect(self, run: Run) -> Results:
        """What is published, with everyone and without each individual."""
        if hasattr(self.query, "publish"):
            published: Results = self.query.publish(self.data, run)
            return published
        return run_query(self.data, self.query, run)


def ways_on_rows(asked: Audit, data: Databases, run: Run) -> list[RowWay]:
    """Ways that need the rows."""
    texts = [] if asked.text is None else queries_in(asked.text)
    if len(texts) != 1 or asked.component is not None:
        return []
    (query,) = texts
    columns = summed_columns(query)[:_MOST_COLUMNS]
    quantiles = value_quantiles(data, columns, (_LOW, *_HIGH), run) if columns else {}
    ways = [way for column, values in quantiles.items() for way in _clipped(query, data, column, values)]
    count = _minimum(asked.results)
    toml = f'[protocols.minimum]\nkind = "k_threshold"\nk = {count}\n'
    ways.append(RowWay("minimum", {"k": count}, toml, k_threshold(query, k=count), data))
    times = order_of(asked.results)
    if data.database is not None and times is not None and times.unit == "days" and _daily(times):
        ways += _coarser(query, data, data.database, times, asked.results.q)
    return ways


def _clipped(query: str, data: Databases, column: str, values: tuple[float, ...]) -> Iterator[RowWay]:
    low, *high = (two_digits(value) for value in values)
    name = json.dumps(column, ensure_ascii=False)
    for at in dict.fromkeys(high):
        toml = f'[protocols.top_coded]\nkind = "top_coded"\ncolumn = {name}\nat = {at!r}\n'
        capped = f"query = {json.dumps(capped_text(query, column, at), ensure_ascii=False)}\n"
        protocol = top_coded(query, column, at=at)
        yield RowWay("top-coding", {"column": column, "at": at}, toml, protocol, data, noise_toml=capped)
    if low < high[1]:
        limits = {"lower": low, "upper": high[1]}
        toml = f'[protocols.clipped]\nkind = "winsorised"\ncolumn = {name}\nlower = {low!r}\nupper = {high[1]!r}\n'
        yield RowWay("clipping", {"column": column, **limits}, toml, winsorised(query, column, **limits), data)


def two_digits(value: float) -> float:
    """Rounded to two significant digits: a place that people would choose."""
    return float(f"{value:.2g}")


def _minimum(results: Results) -> int:
    """So many individuals that a tenth of the databases have fewer; at least 3."""
    there = np.bincount(results.entry_database, minlength=results.n_databases)
    return max(3, math.ceil(two_digits(float(np.quantile(there, _FEW)))))


def _daily(times: Times) -> bool:
    gaps = np.diff(np.sort(times.place))
    return len(gaps) > 0 and float(np.median(gaps)) < _WEEK


def _coarser(query: str, data: Databases, database: str, times: Times, answers: FloatArray) -> Iterator[RowWay]:
    days = np.floor(times.place).astype(np.int64)
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    for by, places in (("week", (days + 3) // 7), ("month", months)):  # weeks begin on Mondays; 1970 on a Thursday
        _, which = np.unique(places, return_inverse=True)
        if which.max() + 1 < LEAST_DATABASES:
            continue
        # what it says of a day is the mean over the days of its week
        means = np.bincount(which, answers) / np.bincount(which) if answers.ndim == 1 else None
        cut = f"date_trunc('{by}', CAST(({database}) AS TIMESTAMP))"
        toml = f"database = {json.dumps(cut, ensure_ascii=False)}\n"
        said = None if means is None else means[which]
        yield RowWay("coarser", {"by": by}, toml, query, replace(data, database=cut), said)
