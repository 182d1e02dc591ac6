"""Noise for several numbers released together (docs/composition.md, "Noise").

Splitting epsilon over the numbers is not valid here: they share the data's randomness. What holds under any
dependence is Laplace noise on each with ``sum_c |d_c| / s_c <= epsilon`` for every observed influence d: then each
pair of databases, and so their mixtures, stay within e^epsilon. The scales that keep this at the least noise are
found here, and certified on the lattice on which the noise is drawn. Noise for one number is in `design`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np

from empriv.base.arguments import probability, whole_number
from empriv.base.display import table_html
from empriv.base.progress import progress as progress_bar
from empriv.base.storage import WRONG_FACTS, read_archive, write_archive
from empriv.errors import CertificateError, FileFormatError, InputError
from empriv.measuring import JointRisk, TableRisk, measure
from empriv.measuring.densities.selection import spread
from empriv.noise import drawing
from empriv.noise.drawn import with_noise
from empriv.noise.law import Law, check_granularity, suggested_granularity
from empriv.noise.measured import several_numbers
from empriv.results import FloatArray, Results
from empriv.words.sentences import amount

_ROUNDS = 60
_CUTS = 8  # constraints added in each round
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class JointNoise:
    """Independent noise for each of several numbers, certified jointly for the influences observed.

    Made by `empriv.design_joint_noise`, and by `empriv.load` from a file.

    Attributes
    ----------
    laws : the law of each number's noise
    risk : the joint risk without noise
    epsilon, delta : what was asked
    achieved_epsilon : largest sum over numbers of influence on the lattice over scale
    achieved_delta : largest share of databases in which an individual changes whether a result is a number, which
        no noise hides
    declared_granularity : whether the granularity was given, as a release demands
    notes : what is promised, and what is not

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, (2, 60))
    >>> vector = {name: empriv.Results.from_arrays(x, [x - 1.0]) for name, x in zip("ab", q)}
    >>> risk = empriv.measure(empriv.Results.stack(vector))
    >>> noise = empriv.design_joint_noise(risk, epsilon=0.5, granularity=0.25)
    >>> {name: law.granularity for name, law in noise.laws.items()}
    {'a': 0.25, 'b': 0.25}
    """

    laws: Mapping[str, Law]
    risk: JointRisk | TableRisk = field(repr=False)
    epsilon: float
    delta: float
    achieved_epsilon: float
    achieved_delta: float
    declared_granularity: bool
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"JointNoise({len(self.laws)} numbers, epsilon {self.epsilon:g}, delta {self.delta:g})"

    def _repr_html_(self) -> str:
        rows = [[name, f"±{amount(law.expected_error)}", law.words] for name, law in self.laws.items()]
        title = f"Noise for {len(self.laws)} numbers together, epsilon {self.epsilon:g}, delta {self.delta:g}"
        return table_html(title, ("number", "expected error", "law"), rows)

    @property
    def expected_error(self) -> dict[str, float]:
        """Mean absolute noise of each number."""
        return {name: law.expected_error for name, law in self.laws.items()}

    @property
    def holds(self) -> bool:
        """Whether the promise is kept for everything observed."""
        return self.achieved_epsilon <= self.epsilon and self.achieved_delta <= self.delta

    def remeasure(self, *, draws: int = 8, rng: np.random.Generator | int | None = None) -> JointRisk | TableRisk:
        """The joint risk with noise: every result gets ``draws`` draws of it."""
        whole_number("draws", draws, least=1)
        noisy = with_noise(self.risk.results, self.laws, draws=draws, rng=np.random.default_rng(rng))
        risk = measure(noisy)
        assert isinstance(risk, JointRisk | TableRisk)
        return risk

    def certified_for(self, risk: Any) -> JointNoise:
        """The same noise, with what it achieves computed again for this risk."""
        risk = several_numbers(risk)
        if tuple(risk.components) != tuple(self.laws):
            raise InputError("`noise` must be for the numbers of the audit, got noise for others.")
        steps = [law.granularity for law in self.laws.values()]
        try:
            achieved = _achieved(lattice_influence(risk.results, steps), self.laws)
        except ValueError:
            raise CertificateError("Joint noise must be Laplace noise for each number, got another law.") from None
        made = replace(self, risk=risk, achieved_epsilon=achieved, achieved_delta=_changes_of_kind(risk.results))
        if not made.holds:
            raise CertificateError(
                "Noise must keep its promise for the audit at hand, and this one does not. Nothing is released."
            )
        return made

    @property
    def claim(self) -> str:
        """What the noise claims, as one text: laws and target."""
        return json.dumps(self._facts(), sort_keys=True)

    def check_release(self) -> None:
        """Refuse to release where the promise is not kept, or the granularity was not declared."""
        if not self.holds:
            raise CertificateError("Nothing is released: the noise does not keep what was promised.")
        if not self.declared_granularity:
            raise InputError(
                "`granularity` must be declared for a release, since one taken from the data may reveal something "
                "about them. Hint: design_joint_noise(..., granularity=0.25)."
            )

    def release(self, values: Mapping[str, float]) -> dict[str, float]:
        """Noisy answers, drawn from the operating system's entropy; all numbers at once, and once."""
        self.check_release()
        if set(values) != set(self.laws):
            raise InputError(f"`values` must hold each of the {len(self.laws)} numbers by name, and no other.")
        return {name: float(drawing.release(law, values[name])) for name, law in self.laws.items()}

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers or results."""
        return {
            "format": "empriv joint noise",
            "version": 1,
            **self._facts(),
            "words": {name: law.words for name, law in self.laws.items()},
            "expected_error": self.expected_error,
            "achieved_epsilon": self.achieved_epsilon,
            "achieved_delta": self.achieved_delta,
            "notes": list(self.notes),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file of mode 0600, which `load` reads. It holds the results: it is as secret as they are."""
        meta, arrays = self.risk.results.to_parts()
        facts = {"empriv": version("empriv"), "notes": list(self.notes), **self._facts()}
        write_archive(path, kind="joint noise", meta={**meta, **facts}, arrays=arrays)

    @staticmethod
    def load(path: str | PathLike[str]) -> JointNoise:
        """Read what `save` wrote; what the laws achieve is computed anew, nothing is taken on trust."""
        meta, arrays = read_archive(path, kinds=("joint noise",))
        results = Results.from_parts(meta, arrays)
        try:
            laws = {str(name): Law.from_json(law) for name, law in meta["laws"].items()}
            if tuple(laws) != results.components or not isinstance(meta["declared_granularity"], bool):
                raise TypeError("facts")
            achieved = _achieved(lattice_influence(results, [law.granularity for law in laws.values()]), laws)
            return JointNoise(
                laws=laws,
                risk=_measured(results),
                epsilon=_number(meta["epsilon"]),
                delta=_number(meta["delta"]),
                achieved_epsilon=achieved,
                achieved_delta=_changes_of_kind(results),
                declared_granularity=meta["declared_granularity"],
                notes=tuple(map(str, meta["notes"])),
            )
        except WRONG_FACTS as error:
            raise FileFormatError(
                "The file is damaged: its facts about the noise are not what empriv writes."
            ) from error

    def _facts(self) -> dict[str, Any]:
        return {
            "laws": {name: law.to_json() for name, law in self.laws.items()},
            "epsilon": self.epsilon,
            "delta": self.delta,
            "declared_granularity": self.declared_granularity,
        }


def _number(value: Any) -> float:
    """A target that was read: a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise TypeError("number")
    return float(value)


def design_joint_noise(
    risk: JointRisk | TableRisk,
    *,
    epsilon: float,
    delta: float = 0.0,
    granularity: float | Mapping[str, float] | None = None,
    progress: bool | None = None,
) -> JointNoise:
    """Laplace noise for each number: the least, in sum over their spreads, that keeps epsilon for all influences seen.

    Parameters
    ----------
    risk : joint risk of the numbers
    epsilon : what is promised jointly
    delta : share of databases in which an individual may change whether a result is a number; no noise hides that
    granularity : of the lattice, a power of two, for all or by name; None suggests one, and then nothing is released
    progress : show a progress bar; None decides by the terminal

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, (2, 60))
    >>> vector = {name: empriv.Results.from_arrays(x, [x - 1.0]) for name, x in zip("ab", q)}
    >>> risk = empriv.measure(empriv.Results.stack(vector))
    >>> noise = empriv.design_joint_noise(risk, epsilon=0.5, granularity=0.25)
    >>> print(f"{noise.achieved_epsilon:.2f}")
    0.50
    """
    risk = several_numbers(risk)
    if not (np.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"`epsilon` must be positive and finite, got {epsilon:g}.")
    probability("delta", delta)
    names = tuple(risk.components)
    steps = _granularities(risk, names, granularity)
    changed = _changes_of_kind(risk.results)
    if changed > delta:
        raise CertificateError(
            f"No noise keeps delta at {delta:g}: an individual changes whether a result is a number in a share of "
            f"{changed:.2g} of databases."
        )
    influence = lattice_influence(risk.results, steps)
    weights = np.array([1.0 / (_spread(risk, name) or 1.0) for name in names])
    with progress_bar(_ROUNDS, "Designing noise", show=progress) as advance:
        rates = _least_noise(influence, weights, epsilon, advance)
    laws = {
        name: Law.of(step, [("laplace", 1.0, 1.0 / rate)] if rate > 0 else [("point", 1.0, 0.0)])
        for name, step, rate in zip(names, steps, rates.tolist(), strict=True)
    }
    achieved = _achieved(influence, laws)
    if achieved > epsilon:
        raise CertificateError(f"The noise reaches epsilon {achieved:g}, not {epsilon:g}.")
    return JointNoise(
        laws=laws,
        risk=risk,
        epsilon=float(epsilon),
        delta=float(delta),
        achieved_epsilon=achieved,
        achieved_delta=changed,
        declared_granularity=granularity is not None,
        notes=(
            "Holds for the influences observed, under any dependence between the numbers.",
            "Assumes no unseen influence: an individual who moves a result further than any seen is not covered.",
        ),
    )


def _achieved(influence: FloatArray, laws: Mapping[str, Law]) -> float:
    """The epsilon that laws of one Laplace part each, or of no noise where nobody moves a number, achieve."""
    total = np.zeros(len(influence))
    for column, law in zip(influence.T, laws.values(), strict=True):
        part = law.parts[0]
        if len(law.parts) > 1 or part.kind not in ("laplace", "point"):
            raise ValueError("a law of another kind")
        if part.kind == "point":
            total += np.where(column > 0, np.inf, 0.0)
        else:
            # The ratio of two discrete Laplace laws a distance d apart is at most exp(d/s), exactly.
            total += column / part.scale
    return float(total.max(initial=0.0)) * (1 + _ROUNDING)


def lattice_influence(results: Results, steps: Sequence[float]) -> FloatArray:
    """(entries, numbers) change of each rounded answer: rounding may add a whole step to an influence.

    0 where a side is not a number: the noise does not touch those (`achieved_delta` counts them).
    """
    d = results.q.shape[-1]
    draws = results.draws or 1
    with_all = results.q.reshape(-1, draws, d)[results.entry_database].reshape(-1, d)
    without = results.entry_q.reshape(-1, d)
    step = np.asarray(steps)
    # the division by a power of two is exact, and rounding half to even is what a release does
    change = np.abs(np.rint(with_all / step) - np.rint(without / step)) * step
    return np.asarray(np.nan_to_num(change, nan=0.0))


def _granularities(
    risk: JointRisk | TableRisk, names: tuple[str, ...], granularity: float | Mapping[str, float] | None
) -> list[float]:
    if isinstance(granularity, Mapping):
        if set(granularity) != set(names):
            raise InputError(f"`granularity` must hold each of the {len(names)} numbers by name, and no other.")
        return [check_granularity(granularity[name]) for name in names]
    if granularity is not None:
        return [check_granularity(granularity)] * len(names)
    return [suggested_granularity(_width(risk, name)) for name in names]


def _width(risk: JointRisk | TableRisk, name: str) -> float:
    influence = np.nan_to_num(risk.components[name].influence(), nan=0.0)
    return float(influence.max(initial=0.0)) or _spread(risk, name) or 1.0


def _spread(risk: JointRisk | TableRisk, name: str) -> float:
    results = risk.components[name].results
    return spread(results.q[results.outcomes == 0].ravel())


def _changes_of_kind(results: Results) -> float:
    """Largest share, over individuals, of databases in which a component's outcome changes kind: number, NULL, ..."""
    before = results.outcomes[results.entry_database]
    changed = np.any((before != results.entry_outcomes).reshape(len(before), -1), axis=1)
    owner = np.repeat(np.arange(results.n_individuals), results.presence)
    counts = np.bincount(owner, weights=changed, minlength=results.n_individuals)
    return float(counts.max(initial=0.0)) / results.n_databases


def _least_noise(influence: FloatArray, weights: FloatArray, epsilon: float, advance: Any) -> FloatArray:
    """Rates u = 1/s that minimise sum_c weights_c / u_c under influence @ u <= epsilon, by cutting planes.

    Convex. Whatever the solver returns is scaled until every influence keeps to epsilon, so that a poor solution
    costs noise, never privacy. 0 for a number that nobody changes.
    """
    from scipy.optimize import minimize

    largest = influence.max(axis=0, initial=0.0)
    moved = np.flatnonzero(largest > 0)
    out = np.zeros(len(weights))
    if not len(moved):
        return out
    rows = np.unique(influence[:, moved] / largest[moved], axis=0)  # in units of each number's largest influence
    cost = weights[moved] * largest[moved]
    cost = cost / cost.sum()

    def feasible(u: FloatArray) -> FloatArray:
        return np.asarray(u / (rows @ u).max() * (1 - 4 * _ROUNDING))

    best = feasible(np.sqrt(cost))  # what is best where one row has all the largest influences
    cuts = np.unique(np.concatenate((rows.argmax(axis=0), [rows.sum(axis=1).argmax()])))
    for _ in range(_ROUNDS):
        advance(1)
        a = rows[cuts]
        solution = minimize(
            lambda u: float((cost / u).sum()),
            best,
            jac=lambda u: -cost / u**2,
            bounds=[(1e-6, 1.0)] * len(moved),
            constraints={"type": "ineq", "fun": lambda u, a=a: 1.0 - a @ u, "jac": lambda _, a=a: -a},
            method="SLSQP",
            options={"maxiter": 200, "ftol": 1e-12},
        )
        u = np.clip(np.asarray(solution.x, float), 1e-6, 1.0)
        over = rows @ u
        candidate = feasible(u)
        if np.all(np.isfinite(candidate)) and (cost / candidate).sum() < (cost / best).sum():
            best = candidate
        worst = np.argsort(-over)[:_CUTS]
        worst = worst[over[worst] > 1 + 1e-9]
        if not len(worst):
            break
        cuts = np.union1d(cuts, worst)
    out[moved] = epsilon * best / largest[moved]
    return out


def _measured(results: Results) -> JointRisk | TableRisk:
    risk = measure(results)
    assert isinstance(risk, JointRisk | TableRisk)
    return risk
