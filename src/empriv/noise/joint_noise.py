"""Noise for several numbers released together, such as a table (docs/noise.md, "Tables").

Splitting epsilon over the numbers is not valid here: they share the data's randomness. What holds at delta = 0 under
any dependence is Laplace noise on each with ``sum_c |d_c| / s_c <= epsilon`` for every observed influence d: then each
pair of databases, and so their mixtures, stay within e^epsilon. The scales that keep this at the least noise are
found here, and certified on the lattice on which the noise is drawn. At delta > 0 Gaussian noise on each cell may do
with less: `design.cell_scales` finds its scales, and `certify.noisy_tables` says what they achieve. The smaller of the
two is taken. Noise for one number is in `design`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np

from empriv.base.arguments import probability, whole_number
from empriv.base.display import table_html
from empriv.base.progress import progress as progress_bar
from empriv.base.storage import WRONG_FACTS, read_archive, write_archive
from empriv.errors import CertificateError, FileFormatError, InputError
from empriv.measuring import RiskContract, measure
from empriv.measuring.densities.selection import spread
from empriv.measuring.tables.relations import Relations, relations_of
from empriv.noise import drawing
from empriv.noise.certify.noisy_tables import TableCertificate, scales_of
from empriv.noise.design.cell_scales import designed_scales
from empriv.noise.drawn import with_noise
from empriv.noise.law import Law, check_granularity, suggested_granularity
from empriv.noise.measured import SeveralRisk, several_numbers, table_fit
from empriv.noise.touched import TouchedCells, lattice_changes, touched_cells
from empriv.results import FloatArray, Results
from empriv.words.sentences import amount

_ROUNDS = 60
_CUTS = 8  # constraints added in each round
_ROUNDING = 1e-12
_LOOKED_AT = 120  # kinds of people, the worst, whose pairs are composed while scales are looked for


@dataclass(frozen=True, eq=False)
class JointNoise:
    """Independent noise for each of several numbers, certified jointly for the influences observed.

    Made by `empriv.design_joint_noise`, and by `empriv.load` from a file.

    Attributes
    ----------
    laws : the law of each number's noise: Laplace for all of them, or Gaussian
    risk : the risk of the numbers without noise
    epsilon, delta : what was asked
    achieved_epsilon : of Laplace noise, the largest sum over numbers of influence on the lattice over scale; of
        Gaussian noise the epsilon that was asked
    achieved_delta : the largest delta_i at that epsilon. Of Laplace noise it is the share of databases in which an
        individual changes whether a result is a number, which no noise hides
    declared_granularity : whether the granularity was given, as a release demands
    notes : what is promised, and what is not
    consistent : whether cells are made to add up again after the noise, as they do without it

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
    risk: SeveralRisk = field(repr=False)
    epsilon: float
    delta: float
    achieved_epsilon: float
    achieved_delta: float
    declared_granularity: bool
    notes: tuple[str, ...]
    consistent: bool = False

    def __repr__(self) -> str:
        return f"JointNoise({len(self.laws)} numbers, epsilon {self.epsilon:g}, delta {self.delta:g})"

    def _repr_html_(self) -> str:
        rows = [[name, f"±{amount(law.expected_error)}", law.words] for name, law in self.laws.items()]
        title = f"Noise for {len(self.laws)} numbers together, epsilon {self.epsilon:g}, delta {self.delta:g}"
        return table_html(title, ("number", "expected error", "law"), rows)

    @property
    def expected_error(self) -> dict[str, float]:
        """Mean absolute noise of each number."""
        if self.consistent:
            deviations = np.sqrt(self._relations.variances_added_up(self._variances))
            return dict(zip(self.laws, (np.sqrt(2 / np.pi) * deviations).tolist(), strict=True))
        return {name: law.expected_error for name, law in self.laws.items()}

    @cached_property
    def _relations(self) -> Relations:
        return relations_of(self.risk.results)

    @property
    def _variances(self) -> FloatArray:
        """Of each number's noise: twice the square of a Laplace scale."""
        parts = [law.parts[0] for law in self.laws.values()]
        return np.array([(2.0 if part.kind == "laplace" else 1.0) * part.scale**2 for part in parts])

    @property
    def holds(self) -> bool:
        """Whether the promise is kept for everything observed."""
        return self.achieved_epsilon <= self.epsilon and self.achieved_delta <= self.delta

    def remeasure(self, *, draws: int = 8, rng: np.random.Generator | int | None = None) -> RiskContract:
        """The risk with noise: every result gets ``draws`` draws of it."""
        whole_number("draws", draws, least=1)
        return measure(with_noise(self.risk.results, self.laws, draws=draws, rng=np.random.default_rng(rng)))

    def certified_for(self, risk: Any) -> JointNoise:
        """The same noise, with what it achieves computed again for this risk."""
        risk = several_numbers(risk)
        if tuple(risk.components) != tuple(self.laws):
            raise InputError("`noise` must be for the numbers of the audit, got noise for others.")
        try:
            achieved, delta = _certified(risk, self.laws, self.epsilon, self.delta)
        except ValueError:
            raise CertificateError(
                "Joint noise must be Laplace noise for each number, or Gaussian noise for each, got another law."
            ) from None
        made = replace(self, risk=risk, achieved_epsilon=achieved, achieved_delta=delta)
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
        noisy = {name: float(drawing.release(law, values[name])) for name, law in self.laws.items()}
        if not self.consistent:
            return noisy
        cells = self._relations.added_up(np.array(list(noisy.values())), self._variances)
        return dict(zip(self.laws, cells.tolist(), strict=True))

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
            consistent = meta.get("consistent", False)  # files of earlier versions do not say
            if not isinstance(consistent, bool):
                raise TypeError("facts")
            risk = several_numbers(measure(results))
            epsilon, delta = _number(meta["epsilon"]), _number(meta["delta"])
            achieved_epsilon, achieved_delta = _certified(risk, laws, epsilon, delta)
            return JointNoise(
                laws=laws,
                risk=risk,
                epsilon=epsilon,
                delta=delta,
                achieved_epsilon=achieved_epsilon,
                achieved_delta=achieved_delta,
                declared_granularity=meta["declared_granularity"],
                notes=tuple(map(str, meta["notes"])),
                consistent=consistent,
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
            "consistent": self.consistent,
        }


def _number(value: Any) -> float:
    """A target that was read: a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise TypeError("number")
    return float(value)


def design_joint_noise(
    risk: SeveralRisk,
    *,
    epsilon: float,
    delta: float = 0.0,
    granularity: float | Mapping[str, float] | None = None,
    consistent: bool = False,
    progress: bool | None = None,
) -> JointNoise:
    """Noise for each number: the least found, in sum over their spreads, that keeps epsilon and delta for everybody.

    At delta = 0 it is Laplace noise, for all influences seen. At delta > 0 Gaussian noise on each number is taken
    where it is less; it keeps delta in a database that people are in, and so in a random one.

    Parameters
    ----------
    risk : risk of the numbers
    epsilon, delta : what is promised jointly; no noise hides whether a result is a number, which counts in delta with
        the share of databases in which an individual changes that
    granularity : of the lattice, a decimal such as 0.01 or a power of two, for all or by name; None suggests one, and
        then nothing is released
    consistent : make cells add up again after the noise, by least squares: margins are the sums of their cells. It can
        only reduce the noise, and what is released is then no multiple of the granularity any more
    progress : show a progress bar; None shows it if the work takes long

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
    if not isinstance(consistent, bool):
        raise InputError(f"`consistent` must be True or False, got {consistent!r}.")
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
    achieved, achieved_delta = _achieved(influence, laws), changed
    if achieved > epsilon:
        raise CertificateError(f"The noise reaches epsilon {achieved:g}, not {epsilon:g}.")
    notes: tuple[str, ...] = (_OBSERVED, _UNSEEN)
    if delta > changed:
        gaussian, by_cell = _gaussian_laws(risk, names, steps, weights, (epsilon, delta), progress)
        if by_cell <= delta and _cost(gaussian, weights) < _cost(laws, weights):
            laws, achieved, achieved_delta = gaussian, float(epsilon), by_cell
            notes = (_IN_A_DATABASE, _COUNTED_ON, _UNSEEN)
    noise = JointNoise(
        laws=laws,
        risk=risk,
        epsilon=float(epsilon),
        delta=float(delta),
        achieved_epsilon=achieved,
        achieved_delta=achieved_delta,
        declared_granularity=granularity is not None,
        notes=(*notes, _ADDED_UP) if consistent else notes,
        consistent=consistent,
    )
    if consistent:
        _ = noise._relations  # where it cannot be seen how cells add up, that is said now
    return noise


_OBSERVED = "Holds for the influences observed, under any dependence between the numbers."
_UNSEEN = "Assumes no unseen influence: an individual who moves a result further than any seen is not covered."
_IN_A_DATABASE = (
    "Gaussian noise on each cell, for everybody in a database that they are in, on average over those; cells that "
    "somebody does not touch are taken as known without noise."
)
_COUNTED_ON = (
    "For people whom the noise alone does not hide, what is left of their cells given all others counts too: at half "
    "the bandwidth, in resamples of the databases, as if it were the same law whatever the others are, and "
    "independent where it does not correlate."
)
_ADDED_UP = (
    "Cells are made to add up again after the noise, which needs no more of the data. They are no multiples of the "
    "granularity then."
)


def _gaussian_laws(
    risk: SeveralRisk,
    names: Sequence[str],
    steps: Sequence[float],
    weights: FloatArray,
    target: tuple[float, float],
    progress: bool | None,
) -> tuple[dict[str, Law], float]:
    """Gaussian noise on each cell, and the largest delta_i that it achieves."""
    epsilon, delta = target
    touched = touched_cells(risk.results, steps, table_fit(risk))

    with progress_bar(8, "Designing noise for cells", show=progress) as advance:

        def achieved(scales: FloatArray) -> FloatArray:
            advance(1)
            return _certificate(touched, scales, epsilon, delta, most=_LOOKED_AT).by_kind

        scales = designed_scales(touched, weights, epsilon, delta, achieved)
        for widened in (1.0, 1.03, 1.1):  # if somebody was overlooked
            laws = {
                name: Law.of(step, [("gaussian", 1.0, scale)] if scale > 0 else [("point", 1.0, 0.0)])
                for name, step, scale in zip(names, steps, (widened * scales).tolist(), strict=True)
            }
            certified = _certificate(touched, scales_of(laws), epsilon, delta).achieved_delta
            if certified <= delta:
                break
    return laws, certified


def _certificate(
    touched: TouchedCells, scales: FloatArray, epsilon: float, delta: float, most: int | None = None
) -> TableCertificate:
    least = 0.5 * (delta - float(touched.turned.max(initial=0.0)))
    return TableCertificate(touched, scales, epsilon, max(least, 0.0), most)


def _certified(risk: SeveralRisk, laws: Mapping[str, Law], epsilon: float, delta: float) -> tuple[float, float]:
    """The epsilon and delta that laws achieve, computed anew."""
    steps = [law.granularity for law in laws.values()]
    if any(law.parts[0].kind == "gaussian" for law in laws.values()):
        touched = touched_cells(risk.results, steps, table_fit(risk))
        return epsilon, _certificate(touched, scales_of(laws), epsilon, delta).achieved_delta
    return _achieved(lattice_influence(risk.results, steps), laws), _changes_of_kind(risk.results)


def _cost(laws: Mapping[str, Law], weights: FloatArray) -> float:
    return float(weights @ np.array([law.expected_error for law in laws.values()]))


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
    """(entries, numbers) size of the change of each rounded answer: rounding may add a whole step to an influence.

    0 where a side is not a number: the noise does not touch those (`achieved_delta` counts them).
    """
    return np.abs(lattice_changes(results, steps)[0])


def _granularities(
    risk: SeveralRisk, names: tuple[str, ...], granularity: float | Mapping[str, float] | None
) -> list[float]:
    if isinstance(granularity, Mapping):
        if set(granularity) != set(names):
            raise InputError(f"`granularity` must hold each of the {len(names)} numbers by name, and no other.")
        return [check_granularity(granularity[name]) for name in names]
    if granularity is not None:
        return [check_granularity(granularity)] * len(names)
    return [suggested_granularity(_width(risk, name)) for name in names]


def _width(risk: SeveralRisk, name: str) -> float:
    influence = np.nan_to_num(risk.components[name].influence(), nan=0.0)
    return float(influence.max(initial=0.0)) or _spread(risk, name) or 1.0


def _spread(risk: SeveralRisk, name: str) -> float:
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
