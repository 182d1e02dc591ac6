"""`Utility`: how far a protocol's answers are from the truth, on the same databases.

Answers that are not a number have no error: their share is reported, and errors are over the answers that are numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from empriv.errors import InputError
from empriv.results import FloatArray, IntArray, Outcome, Results

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Utility:
    """Errors of a protocol against the truth's answers, over all databases and draws.

    Made by `empriv.compare`: one of `Comparison.utility`.

    Attributes
    ----------
    protocol : its name
    component : the cell of a table that this is about; None for a query of one number, and for all cells together
    mean_absolute : mean of |answer - truth|; NaN if nothing was answered
    median, ninety, ninety_nine : quantiles of |answer - truth|
    bias : mean of answer - truth
    relative : mean of |answer - truth| / |truth|, over databases whose truth is not 0
    unanswered : share of answers that are not a number, such as hidden cells, among those whose truth is one
    n_answers : how many answers were compared with a truth, answered or not

    Examples
    --------
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 60)
    >>> raw = empriv.Results.from_arrays(q, [q - 1.0])
    >>> rounded = empriv.Results.from_arrays(q.round(-1), [(q - 1.0).round(-1)])
    >>> comparison = empriv.compare({"raw": raw, "rounded": rounded}, truth="raw", epsilon=0.1)
    >>> print(f"{comparison.utility[1].mean_absolute:.2f}")
    2.65
    """

    protocol: str
    component: str | None
    mean_absolute: float
    median: float
    ninety: float
    ninety_nine: float
    bias: float
    relative: float
    unanswered: float
    n_answers: int


def utility_of(name: str, results: Results, truth: Results, places: tuple[IntArray, IntArray]) -> tuple[Utility, ...]:
    """Errors of each number that the query gives.

    Parameters
    ----------
    name : of the protocol
    results, truth : its results, and those of the truth, one answer for each database
    places : the positions of the same databases in both
    """
    _check(results, truth)
    parts: tuple[str | None, ...] = (None,) if results.components is None else results.components
    return tuple(
        _errors(
            name,
            part,
            results if part is None else results.component(part),
            truth if part is None else truth.component(part),
            places,
        )
        for part in parts
    )


def utility_overall(name: str, results: Results, truth: Results, places: tuple[IntArray, IntArray]) -> Utility:
    """Errors of all cells of a table together, or of the one number; parameters as for `utility_of`."""
    _check(results, truth)
    return _errors(name, None, results, truth, places)


def _check(results: Results, truth: Results) -> None:
    if truth.draws is not None:
        raise InputError("`truth` must give one answer for each database, got a randomised protocol.")
    if results.components != truth.components:
        raise InputError(
            "`protocols` must give the same numbers as the truth to be compared with it: one number each, or vectors "
            "whose components have the same names."
        )


def _errors(
    name: str, part: str | None, results: Results, truth: Results, places: tuple[IntArray, IntArray]
) -> Utility:
    mine, theirs = places
    cells = 1 if results.components is None else len(results.components)
    answers = results.q[mine].reshape(len(mine), -1, cells)
    numbers = (results.outcomes[mine] == Outcome.NUMBER).reshape(answers.shape)
    right = np.broadcast_to(truth.q[theirs].reshape(-1, 1, cells), answers.shape)
    has_truth = (truth.outcomes[theirs] == Outcome.NUMBER).reshape(-1, 1, cells)
    has_truth = np.broadcast_to(has_truth, answers.shape)
    n_answers = int(np.count_nonzero(has_truth))
    if n_answers == 0:
        raise InputError("`truth` must have an answer that is a number on at least one database, got none.")
    answered = has_truth & numbers
    error = answers[answered] - right[answered]
    size = np.abs(error)
    scale = np.abs(right[answered])
    median, ninety, ninety_nine = (_quantile(size, level) for level in QUANTILES)
    return Utility(
        protocol=name,
        component=part,
        mean_absolute=_mean(size),
        median=median,
        ninety=ninety,
        ninety_nine=ninety_nine,
        bias=_mean(error),
        relative=_mean(size[scale > 0] / scale[scale > 0]),
        unanswered=1.0 - len(error) / n_answers,
        n_answers=n_answers,
    )


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _quantile(values: FloatArray, level: float) -> float:
    return float(np.quantile(values, level)) if len(values) else float("nan")
