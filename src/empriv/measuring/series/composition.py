"""Composition: what so many independent answers of one pair of laws tell apart, by privacy-loss distributions.

An answer x has the loss log p(x)/q(x). Losses of independent answers add, so that the law of their sum is a power of a
Fourier transform. Losses are put on a grid by connecting dots: a mass (p, q) with a loss between two grid points goes
to both of them such that p and q stay what they are. That errs upwards, by about step²/6 in the variance of one loss;
rounding losses up would add half a step to every answer. Losses by Fourier transforms are of Koskela, Jälkö and
Honkela (2020), connected dots of Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from empriv.results import FloatArray

STEPS = 48  # of the grid, in a standard deviation of the loss
_MOST_STEPS = 1 << 21  # of a distribution of summed losses
_TAIL = 1e-13  # mass beyond the ends of a distribution of summed losses
_FARTHEST = 256.0  # effect sizes beyond it have a delta of 1
_HALVINGS = 80
_RATES = np.geomspace(0.03, 1.5, 12)


@dataclass(frozen=True, eq=False)
class Losses:
    """The law of a privacy loss under p, on a grid.

    Attributes
    ----------
    step, first : losses are multiples of ``step``, from ``first`` steps on
    masses : of each loss
    certain : mass with an infinite loss: outcomes that q never gives
    """

    step: float
    first: int
    masses: FloatArray
    certain: float

    @property
    def losses(self) -> FloatArray:
        return np.asarray(self.step * (self.first + np.arange(len(self.masses))), float)

    def delta(self, epsilons: FloatArray) -> FloatArray:
        """(epsilons,) the hockey stick: ``E max(0, 1 - e^(epsilon - loss))``."""
        from_here = np.maximum(0.0, -np.expm1(np.minimum(0.0, np.subtract.outer(epsilons, self.losses))))
        return np.asarray(np.minimum(1.0, self.certain + from_here @ self.masses))

    def composed(self, times: int) -> Losses:
        """The loss of ``times`` independent answers."""
        if times == 1 or not len(self.masses):
            return Losses(self.step, self.first, self.masses, float(certain_after(self.certain, times)))
        low, high = _ends(self, times)
        size = 1 << max(1, int(high - low)).bit_length()
        # Losses are kept modulo the size: what lies beyond the ends (less than `_TAIL`) comes back inside.
        wrapped = np.zeros(size)
        places = (self.first + np.arange(len(self.masses))) % size
        np.add.at(wrapped, places, self.masses)
        summed = np.fft.irfft(np.fft.rfft(wrapped) ** times, size)
        summed = np.maximum(np.roll(summed, -(low % size)), 0.0)
        return Losses(self.step, low, summed, float(certain_after(self.certain, times)))


def losses_of(p: FloatArray, q: FloatArray) -> Losses:
    """The losses of outcomes with masses p and q, on a grid whose step suits them."""
    here = p > 0
    seen = here & (q > 0)
    certain = float(p[here & ~seen].sum())
    p, q = p[seen], q[seen]
    if not len(p):
        return Losses(1.0, 0, np.zeros(0), certain)
    loss = np.log(p) - np.log(q)
    step = _step_of(p, loss)
    below = np.floor(loss / step)
    first = int(below.min())
    place = (below - first).astype(np.int64)
    # q (e^{g2} - e^{loss})/(e^{g2} - e^{g1}) of q goes to the lower point g1, and e^{g1} times that of p
    lower = -np.expm1(loss - (below + 1) * step) / -np.expm1(-step) * q
    lower = np.clip(lower, 0.0, q)
    p_lower = np.minimum(lower * np.exp(below * step), p)
    masses = np.bincount(place, p_lower, minlength=int(place.max()) + 2)
    masses += np.bincount(place + 1, p - p_lower, minlength=len(masses))
    return Losses(step, first, np.asarray(masses, float), certain)


def _step_of(p: FloatArray, loss: FloatArray) -> float:
    """A share of the losses' deviation; where all are one loss, any grid that holds it nearly."""
    share = p / p.sum()
    step = float(np.sqrt(share @ (loss - share @ loss) ** 2)) / STEPS
    most = float(np.abs(loss).max())
    if not step > 1e-12 * max(1.0, most):
        step = max(most, 1e-300) / STEPS
    return max(step, float(np.ptp(loss)) / _MOST_STEPS)


def composed_delta(p: FloatArray, q: FloatArray, times: int, epsilons: FloatArray) -> FloatArray:
    """(epsilons,) delta of so many answers with masses p and q, in the worse of the two directions."""
    both = [losses_of(*pair).composed(times).delta(epsilons) for pair in ((p, q), (q, p))]
    return np.asarray(np.maximum(*both))


def certain_after(share: npt.ArrayLike, times: npt.ArrayLike) -> FloatArray:
    """``1 - (1 - share)^times``: what tells for certain in a share of answers, after so many."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(np.asarray(times, float) * np.log1p(-np.minimum(np.asarray(share, float), 1.0))))


def gaussian_delta(size: npt.ArrayLike, epsilons: npt.ArrayLike) -> FloatArray:
    """delta of two normal laws of variance 1 that are ``size`` apart; size and epsilon broadcast.

    ``Phi(d/2 - epsilon/d) - e^epsilon Phi(-d/2 - epsilon/d)`` (Balle and Wang, 2018, theorem 8), by logarithms: both
    terms are nearly equal where delta is small.
    """
    from scipy.special import log_ndtr  # slow import

    size, epsilons = np.broadcast_arrays(np.asarray(size, float), np.asarray(epsilons, float))
    out = np.zeros(size.shape)
    apart = size > 0
    mu, epsilon = size[apart], epsilons[apart]
    with np.errstate(invalid="ignore", over="ignore"):
        ratio = epsilon / mu
        near, far = log_ndtr(mu / 2 - ratio), log_ndtr(-mu / 2 - ratio)
        value = np.exp(near) * -np.expm1(epsilon + far - near)
    value = np.where(np.isinf(epsilon) | np.isinf(near), 0.0, value)
    out[apart] = np.where(np.isinf(mu), 1.0, np.clip(value, 0.0, 1.0))
    return out


def gaussian_size(deltas: FloatArray, epsilon: float) -> FloatArray:
    """The effect sizes whose Gaussian curve has these deltas at this epsilon; infinite for a delta of 1."""
    low, high = np.zeros(len(deltas)), np.full(len(deltas), _FARTHEST)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = gaussian_delta(middle, epsilon) < deltas
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(deltas <= 0, 0.0, np.where(deltas >= 1, np.inf, high))


def delta_of_effects(squares: npt.ArrayLike, escapes: npt.ArrayLike, epsilons: npt.ArrayLike) -> FloatArray:
    """delta after answers whose squared effect sizes and ``-log(1 - p)`` sum to these; all broadcast.

    ``1 - (1 - delta_Gauss(sqrt(squares))) e^-escapes``: p is the chance that an answer gives a person away for certain.
    """
    with np.errstate(divide="ignore"):
        kept = np.log1p(-gaussian_delta(np.sqrt(np.asarray(squares, float)), epsilons))
    return np.asarray(-np.expm1(kept - np.asarray(escapes, float)))


def _ends(losses: Losses, times: int) -> tuple[int, int]:
    """First and last step between which all but `_TAIL` of the summed losses lie, on either side, by Chernoff."""
    x, masses = losses.losses, losses.masses
    present = masses > 0
    x, log = x[present], np.log(masses[present])
    high, low = times * (losses.first + len(masses) - 1), times * losses.first
    share = masses[present] / masses.sum()
    deviation = float(np.sqrt(share @ (x - share @ x) ** 2))
    wanted = -np.log(_TAIL)
    # about the rate that is best for a normal law; any rate gives ends that hold
    best = np.sqrt(2 * wanted / times) / max(deviation, losses.step)
    for rate in (best * _RATES).tolist():
        up, down = (times * float(np.logaddexp.reduce(log + sign * rate * x)) for sign in (1.0, -1.0))
        high = min(high, math.ceil((up + wanted) / rate / losses.step))
        low = max(low, math.floor(-(down + wanted) / rate / losses.step))
    return low, min(max(high, low + 1), low + _MOST_STEPS)
