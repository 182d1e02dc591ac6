"""The least noise for many publications: the smallest scale whose composition keeps the target of all of them.

Laplace and Gaussian laws are tried, and the one of the smaller expected error is taken. Over many looks what counts is
the variance of the loss, so that Gaussian noise mostly wins. The search looks at the people who need most; what it ends
on is certified for everyone, and whoever misses joins the search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from empriv.errors import CertificateError, InputError
from empriv.noise.certify.composed import ComposedCertificate
from empriv.noise.design.programme import smallest_scale
from empriv.noise.design.search import HopelessError
from empriv.noise.design.task import NONE, Task
from empriv.noise.law import Law
from empriv.noise.noise import Noise
from empriv.results import IntArray

_LOOKED_AT = 48  # people that the search looks at
_ROUNDS = 6
_TOLERANCE = 5e-3  # of the scale
_WIDEST = 2.0**30  # granularities


def least_again(task: Task, times: int, advance: Callable[[], object]) -> Noise:
    """The least noise for ``times`` publications."""
    _check(task)
    none = task.law([(1.0, 0.0)])
    certificate = _certificate(task, none, times)
    if certificate.holds:
        return _finished(task, certificate, NONE)
    influence = task.risk.influence()
    largest = float(influence[np.isfinite(influence)].max(initial=0.0))
    by_influence = np.argsort(-np.where(np.isfinite(influence), influence, 0.0), kind="stable")[:_LOOKED_AT]
    rows = np.union1d(certificate.worst(_LOOKED_AT), by_influence)
    if not _certificate(task, task.law([(1.0, _WIDEST * task.granularity)]), times).holds:
        raise HopelessError
    start = max(largest / task.epsilon, 2 * task.granularity)
    candidates = [
        found for kind in ("laplace", "gaussian") if (found := _least(task, kind, times, rows, start, advance))
    ]
    if not candidates:
        raise HopelessError
    best = min(candidates, key=lambda found: found.law.expected_error)
    return _finished(task, best)


def _least(
    task: Task, kind: str, times: int, rows: IntArray, start: float, advance: Callable[[], object]
) -> ComposedCertificate | None:
    """The certificate, for everyone, of the least law of one kind."""

    def law(scale: float) -> Law:
        return Law.of(task.granularity, [(kind, 1.0, scale)])

    for _ in range(_ROUNDS):
        looked_at = rows

        def holds(scale: float, looked_at: IntArray = looked_at) -> bool:
            return (
                task.granularity <= scale <= _WIDEST * task.granularity
                and _certificate(task, law(scale), times, looked_at).holds
            )

        scale = smallest_scale(holds, start, tolerance=_TOLERANCE)
        advance()
        if scale is None:
            return None
        everyone = _certificate(task, law(scale), times)
        if everyone.holds:
            return everyone
        rows, start = np.union1d(rows, everyone.worst(_LOOKED_AT)), scale
    return None


def _certificate(task: Task, law: Law, times: int, rows: IntArray | None = None) -> ComposedCertificate:
    assert task.delta is not None
    return ComposedCertificate(task.risk, law, task.epsilon, task.delta, times, rows)


def _finished(task: Task, certificate: ComposedCertificate, *notes: str) -> Noise:
    """The law as noise: of one publication it must keep the target as well."""
    said = (
        f"The promise is for {certificate.times:,} publications, each from a database of its own, for people who are "
        "in all of these databases or in none. It rests on the influences seen, at 95% confidence. "
        "It is for random databases: for databases that people are known to be in, nothing was asked.",
    )
    try:
        noise = task.finish(certificate.law, *notes, *said)
    except CertificateError as error:
        raise CertificateError(
            f"Noise for {certificate.times:,} publications must keep the target of one as well: {error}"
        ) from None
    return replace(noise, times=certificate.times, composed=certificate)


def _check(task: Task) -> None:
    """Refuse what composition does not do."""
    if task.total_risk is not None or not task.delta:
        raise InputError("`delta` must be given, above 0 and without `total_risk`, for noise of several publications.")
    if task.bound is not None:
        raise InputError("`bound` must not be given with `times`: what is composed are the influences seen.")
    if task.method != "robust":
        raise InputError(f"`method` must be 'robust' with `times`, got {task.method!r}.")
