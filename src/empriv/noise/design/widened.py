"""Noise for a database that people are in: a design for a random database, widened until it serves there too.

The least Laplace law that both certificates accept: sought on the people who move the results most, then asked of
everybody, until nobody misses. A robust design relies on a share of epsilon and half the bandwidth there as well.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np

from empriv.errors import CertificateError
from empriv.measuring.given.presence import PresenceRisk
from empriv.noise.certify.there import PresentCertificate
from empriv.noise.design.least import HALF, MARGIN
from empriv.noise.design.programme import smallest_scale
from empriv.noise.design.task import Task
from empriv.noise.law import Law
from empriv.noise.noise import Noise
from empriv.results import IntArray

_FIRST = 8  # people that a scale is first sought for, by influence and by risk
_ROUNDS = 12
_WIDENED = (
    "One Laplace law, the least that serves in a random database and in one that people are in: those who are there "
    "need more than the average over all databases shows."
)


def for_presence(task: Task, noise: Noise, present: PresenceRisk) -> Noise:
    """The noise if it serves in a database that people are in, or the least Laplace noise that does."""
    robust = task.method == "robust"

    def certificate(law: Law, *, margin: bool = False) -> PresentCertificate:
        share, narrower = (MARGIN, HALF) if margin else (1.0, 1.0)
        return PresentCertificate(present, law, share * task.epsilon, task.delta, task.total_risk, narrower)

    if task.study or certificate(noise.law, margin=robust).holds:
        return replace(noise, present=certificate(noise.law))
    influence = present.results.entry_q - present.results.q[present.results.entry_database]
    start = float(np.nanmax(np.abs(influence), initial=task.granularity)) / task.epsilon
    chosen, least = _first(certificate(noise.law, margin=robust), task.epsilon), 0.0

    def serves(width: float) -> bool:
        law = task.law([(1.0, width)])
        if width < max(least, task.granularity / 8) or not task.certificate(law).holds:
            return False
        return next(certificate(law, margin=robust).missed(chosen), None) is None

    for _ in range(_ROUNDS):
        scale = smallest_scale(serves, start, tolerance=0.02)
        if scale is None:
            break
        law = task.law([(1.0, scale)])
        asked = certificate(law, margin=robust)
        if asked.holds:
            return replace(task.finish(law, _WIDENED), present=certificate(law), given=noise.given, unit=noise.unit)
        missed = list(islice(asked.missed(asked.subject), _FIRST))
        chosen = np.union1d(chosen, np.array(missed, np.int64))
        least = least if missed else 1.4 * scale  # where nobody misses alone, it is their sum
    raise CertificateError(
        "Noise must serve in a database that people are in as well, and no scale was found that does. "
        "Hint: presence='random' asks for a random database alone, as the paper does."
    )


def _first(asked: PresentCertificate, epsilon: float) -> IntArray:
    """Those who move the results most, and the most exposed at the target's epsilon, where the certificate of what is
    designed asks for everybody's figures too. Who is missing here is added once they miss their target."""
    rows = asked.subject
    delta_i = asked.risk.delta_i(epsilon)[rows]
    return np.union1d(rows[:_FIRST], rows[np.argsort(-delta_i, kind="stable")[:_FIRST]])
