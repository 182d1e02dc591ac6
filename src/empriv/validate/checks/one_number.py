"""`checks`: what could make the figures wrong, each with a code, a severity and its numbers.

"error" stands in the way of a verdict "pass"; "warning" asks to be read; "info" says what was looked at. No sentence
names an individual.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from empriv.errors import InputError
from empriv.measuring.given.adversary_risk import AdversaryRisk
from empriv.measuring.joint.joint_risk import JointRisk
from empriv.measuring.line.atoms import lattice
from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray
from empriv.validate.bounds.analytic import floor
from empriv.validate.bounds.figures import LEAST_DATABASES
from empriv.validate.checks import robustness
from empriv.validate.checks.iid import battery, power_at
from empriv.validate.ground import Ground, ground_of
from empriv.words import sentences as words

SIGNIFICANT = 0.05
_MANY_DATABASES = 100
_CUSP = 1.25  # an interior cusp gave 1.36; but where the risk is small for so many databases, any shape gives more
_PEAK, _SHARP_PEAK = 1.0, 1.3  # `python benchmarks/coverage.py --peaks` prints how often
_HEAVY = 0.5
RISKIEST = 3


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Made by `empriv.checks`, and by `checks` of an audit.

    Attributes
    ----------
    code : a short name that does not change
    title : what was looked at
    severity : "info", "warning" or "error"
    sentence : what was found, in plain words
    numbers : the figures behind it

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> check = empriv.checks(risk, 0.1)[0]
    >>> check.code, check.severity
    ('databases', 'warning')
    """

    code: str
    title: str
    severity: str
    sentence: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        numbers = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in self.numbers.items()
        }
        return {
            "code": self.code,
            "title": self.title,
            "severity": self.severity,
            "sentence": self.sentence,
            "numbers": numbers,
        }


def checks(risk: Risk | JointRisk | AdversaryRisk, epsilon: float, *, rng: int = 0) -> tuple[Check, ...]:
    """Look at everything that could make the figures at ``epsilon`` wrong; gravest first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> [check.code for check in empriv.checks(risk, 0.1) if check.severity != "info"]
    ['databases', 'modes']
    """
    if np.ndim(epsilon) != 0:
        raise InputError("`epsilon` must be one number.")
    if isinstance(risk, JointRisk):
        from empriv.validate.checks.several_numbers import joint_checks  # which is made of the checks here

        return _ordered(joint_checks(risk, epsilon, rng))
    if isinstance(risk, AdversaryRisk):
        return _ordered([*checks(risk.unconditional, epsilon, rng=rng), *map(_adversary_check, risk.warnings)])
    ground = ground_of(risk)
    found = [
        _iid(risk, ground, epsilon, rng),
        number_check(ground.n_databases),
        floor_check(ground.n_databases),
        *leak_checks(risk),
        ties_check(risk),
        _bandwidth(risk, epsilon),
        cusp_check(risk, ground, epsilon),
        *representative_checks(risk, epsilon, rng),
        tails_check(ground),
        dependent_check(risk, ground, epsilon),
    ]
    return _ordered(found)


def _adversary_check(warning: str) -> Check:
    severity = "error" if warning.startswith("EXACT LEAK") else "warning"
    return Check("adversary", "What the adversary knows", severity, warning)


def _ordered(found: list[Check]) -> tuple[Check, ...]:
    grave = ("error", "warning", "info")
    return tuple(sorted(found, key=lambda check: grave.index(check.severity)))


def influences(ground: Ground, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> FloatArray:
    """(rows, n) changes of the results, averaged over draws."""
    change = ground.values.points - ground.values.dense(rows)
    return np.asarray(change.reshape(len(rows), -1, ground.draws).mean(axis=2))


def _iid(risk: Risk, ground: Ground, epsilon: float, rng: int) -> Check:
    code, title = "iid", "Independent, identically distributed databases"
    n = ground.n_databases
    if n < 8:
        return Check(code, title, "warning", f"{words.databases(n)} are too few to test for independence.", {"n": n})
    results = ground.values.points.reshape(n, -1).mean(axis=1)
    influence = influences(ground, robustness.riskiest(risk, epsilon, RISKIEST)).sum(axis=0)
    found = battery(np.stack((results, influence)), rng=rng)
    power = {name: power_at(n, name) for name in ("trend", "serial", "shift", "spread")}
    numbers = {"p": found.p, "n": n, **{f"power_{name}": value for name, value in power.items()}}
    if found.p <= SIGNIFICANT:
        where = "the results" if found.series == 0 else "the influence of the riskiest individuals"
        return Check(code, title, "error", words.departure(found.statistic, found.p, where), numbers)
    return Check(code, title, "info", words.no_departure(n, power["trend"]), numbers)


def number_check(n: int) -> Check:
    """Whether the databases are enough for a bound."""
    code, title, numbers = "databases", "Number of databases", {"n": n}
    if n < LEAST_DATABASES:
        return Check(code, title, "error", words.no_upper_bound(n, LEAST_DATABASES), numbers)
    if n < _MANY_DATABASES:
        return Check(code, title, "warning", words.few_databases(n), numbers)
    return Check(code, title, "info", f"{words.databases(n)}, enough for an upper bound.", numbers)


def floor_check(n: int) -> Check:
    """The least delta that they support."""
    least = floor(n, 0.95)
    return Check(
        "floor", "Smallest delta that can be supported", "info", words.floor(n, least), {"floor": least, "n": n}
    )


def leak_checks(risk: Risk, component: str | None = None) -> list[Check]:
    """Exact leaks, with the name of the component that has them."""
    return [
        Check(
            "exact-leak",
            "Exact leak",
            "error",
            words.exact_leak(name if component is None else f"{component}: {name}", count, share),
            {"individuals": count, "share": share},
        )
        for name, (count, share) in robustness.leaks(risk.pairs).items()
    ]


def ties_check(risk: Risk) -> Check:
    """Repeated results, and lattices."""
    code, title = "ties", "Ties and lattices"
    q = risk.results.q.reshape(-1)
    q = q[np.isfinite(q)]
    counts = np.unique(q, return_counts=True)[1]
    share = float(counts[counts > 1].sum() / len(q)) if len(q) else 0.0
    grid = lattice(q)
    numbers = {"tied_share": share, "lattice_step": None if grid is None else grid[1]}
    if grid is not None:
        sentence = (
            "All results lie on a lattice; smoothing spreads them between its points. Whoever moves results off the "
            "lattice is an exact leak."
        )
        return Check(code, title, "warning", sentence, numbers)
    if share > 0.1:
        sentence = f"{words.percent(share)} of the results are tied: repeated values are compared by counts as well."
        return Check(code, title, "warning", sentence, numbers)
    return Check(code, title, "info", "Hardly any result occurs twice, and they lie on no lattice.", numbers)


def _bandwidth(risk: Risk, epsilon: float) -> Check:
    code, title = "bandwidth", "Sensitivity to bandwidth and kernel"
    own = float(risk.delta(epsilon))
    found = {"as measured": own, **robustness.sensitivity(risk, epsilon)}
    low, high = min(found.values()), max(found.values())
    said = f"delta is between {words.number(low)} and {words.number(high)} at half and double the bandwidth and with "
    said += "other kernels"
    least = floor(risk.results.n_databases, 0.95)
    far = high > 2 * max(own, least)
    if far:
        return Check(code, title, "warning", f"{said}: the estimate hangs on the smoothing.", found)
    return Check(code, title, "info", f"{said}, against {words.number(own)} as measured.", found)


def cusp_check(risk: Risk, ground: Ground, epsilon: float) -> Check:
    """Peaks narrower than the bandwidth."""
    code, title = "cusp", "Structure finer than the bandwidth"
    ratio = robustness.cusp_ratio(ground, robustness.riskiest(risk, epsilon, RISKIEST), epsilon)
    points = ground.values.points[np.isfinite(ground.marked.points)]
    excess = robustness.peak_excess(points, ground.bandwidth)
    numbers = {"ratio": ratio, "excess": excess}
    if ratio > _CUSP and excess > _PEAK:
        sentence = (
            f"Halving the bandwidth raises the bound by {words.percent(ratio - 1)}, and results crowd in a peak "
            "narrower than the bandwidth: near such a peak the upper bound is known to fail."
        )
        return Check(code, title, "error" if excess > _SHARP_PEAK else "warning", sentence, numbers)
    return Check(code, title, "info", "No peak narrower than the bandwidth is seen.", numbers)


def representative_checks(risk: Risk | JointRisk, epsilon: float, rng: int) -> list[Check]:
    """Whether the individuals seen stand for others."""
    delta_i, presence = risk.delta_i(float(epsilon)), risk.results.presence
    groups = robustness.modes(np.nan_to_num(risk.influence(), nan=0.0))
    small = [count for count in groups if count < 5]
    numbers: dict[str, Any] = {"modes": len(groups), "smallest_mode": min(groups, default=0)}
    title = "Representative individuals"
    if small:
        if len(groups) == 1:
            sentence = f"Only {words.people(groups[0])} change the results: others may be riskier than any seen."
        else:
            sentence = (
                f"Influences fall into {len(groups)} groups at least threefold apart, and fewer than 5 individuals are "
                f"in {len(small)} of them: others of that kind may be riskier than any seen."
            )
        modes = Check("modes", title, "warning", sentence, numbers)
    else:
        modes = Check("modes", title, "info", "No mode of contribution rests on fewer than 5 individuals.", numbers)
    share = robustness.rare_share(delta_i, presence)
    rare = Check(
        "rare",
        title,
        "warning" if share > 0.2 else "info",
        f"{words.percent(share)} of the summed risk belongs to individuals seen in one or two databases only.",
        {"share": share},
    )
    split = robustness.halves(delta_i, rng)
    known = math.isfinite(split.ratio)
    if known and split.ratio <= 2:
        said = f"within a factor of {split.ratio:.2g} in half of the splits"
        held = Check(
            "held-out",
            title,
            "info",
            f"The risk of a random half foretells the other half's {said}.",
            {"ratio": split.ratio},
        )
    else:
        times = f" by a factor of {split.ratio:.2g}" if known else ""
        sentence = f"The risk of a random half of the individuals misses the other half's{times}: it hangs on a few."
        held = Check("held-out", title, "warning", sentence, {"ratio": split.ratio})
    return [modes, rare, held]


def tails_check(ground: Ground) -> Check:
    """Heavy tails."""
    code, title = "tails", "Heavy tails"
    points = ground.values.points[np.isfinite(ground.marked.points)]
    index = robustness.tail_index(points) if len(points) else float("nan")
    if index > _HEAVY:
        sentence = (
            f"The results have heavy tails (index {index:.2g}): the most revealing databases may not have been seen."
        )
        return Check(code, title, "warning", sentence, {"index": index})
    return Check(code, title, "info", "No heavy tails seen.", {"index": index})


def dependent_check(risk: Risk, ground: Ground, epsilon: float) -> Check:
    """Contributions that rise and fall together."""
    code, title = "dependent", "Individuals who move together"
    n = ground.n_databases
    ratio = robustness.togetherness(influences(ground, robustness.riskiest(risk, epsilon, 50)))
    numbers = {"ratio": ratio}
    if n > 2 and ratio > 1 + 3 * math.sqrt(2 / (n - 1)):
        sentence = (
            "The riskiest individuals' contributions rise and fall together: failures are not independent, total risk "
            "understates, and removing one individual leaves what the others tell about them."
        )
        return Check(code, title, "warning", sentence, numbers)
    return Check(code, title, "info", "The riskiest individuals' contributions do not move together.", numbers)
