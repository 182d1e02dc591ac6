"""Densities: what ``density=`` takes, and what fitting it to the results with everyone gives.

A `Density` is a recipe; ``fit`` makes a `Model` of it. Bandwidths are fitted to the results with everyone, and
belong to the database: pair j has one bandwidth on both sides, because a second fit without the individual would
add a divergence that the individual did not cause.

For a density of your own, write classes that follow the two protocols; nothing else in empriv needs to know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from empriv.errors import FileFormatError, InputError
from empriv.measuring.densities import selection
from empriv.measuring.densities.kernels import KERNELS, Kernel, kernel_named
from empriv.measuring.densities.selection import Score
from empriv.results import FloatArray, IntArray

RULES = ("one-se", "likelihood", "k-fold", "silverman", "scott")


@runtime_checkable
class Model(Protocol):
    """A fitted density.

    ``points`` are always N results in the order that the model was fitted on, those with everyone or those without
    an individual; a point at +inf is an atom and has no part in the density. Mass is 1/N for each point.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=60)
    >>> model = empriv.Kde("gaussian", 0.5).fit(points, np.arange(60))
    >>> model.name
    'gaussian kernel, bandwidth 0.5 (as stated)'
    """

    @property
    def name(self) -> str:
        """The model in words."""

    @property
    def scores(self) -> tuple[Score, ...]:
        """Every candidate that was considered."""

    def pdf(self, x: FloatArray, points: FloatArray) -> FloatArray:
        """Density at each x."""

    def cdf(self, x: FloatArray, points: FloatArray) -> FloatArray:
        """Mass up to each x."""

    def nodes(self, points: FloatArray) -> FloatArray:
        """Sorted places, dense enough that a ratio of two such densities turns at most once between neighbours,
        with every kink or jump among them, and next to no mass beyond the first and last."""


@runtime_checkable
class Density(Protocol):
    """A recipe for a density. An attribute ``literal`` that is true says that it is exactly as stated: then atoms of
    numbers are not looked for."""

    def fit(self, points: FloatArray, databases: IntArray) -> Model:
        """The model of these points; ``databases`` says which points are draws of the same database."""


def density_or_default(density: Any) -> Density:
    """The recipe that was given, checked, or the default."""
    density = Kde() if density is None else density
    if not isinstance(density, Density):
        raise InputError(f"`density` must have a method `fit`, got {type(density).__name__}. Hint: empriv.Kde().")
    return density


def is_literal(density: Density) -> bool:
    """Whether a density is meant literally; one that does not say is not."""
    return bool(getattr(density, "literal", False))


@dataclass(frozen=True, eq=False)
class Mixture:
    """One kernel at each point: ``p(x) = 1/N sum_j k((x - q_j)/h_j)/h_j``.

    ``rule`` is the one that chose the one bandwidth, empty if none did.
    """

    kernel: Kernel
    bandwidths: FloatArray
    name: str
    scores: tuple[Score, ...] = ()
    rule: str = ""

    @property
    def bandwidth(self) -> float:
        """The one bandwidth, NaN where they vary."""
        first = float(self.bandwidths[0])
        return first if np.all(self.bandwidths == first) else float("nan")

    @property
    def likeliest(self) -> float:
        """The bandwidth of the largest out-of-sample likelihood among those that were scored."""
        scored = [score for score in self.scores if score.bandwidth is not None and np.isfinite(score.log_likelihood)]
        best = max(scored, key=lambda score: score.log_likelihood, default=None)
        return self.bandwidth if best is None or best.bandwidth is None else best.bandwidth

    def pdf(self, x: FloatArray, points: FloatArray) -> FloatArray:
        finite = np.isfinite(points)
        h = self.bandwidths[finite]
        z = (np.asarray(x, float)[..., None] - points[finite]) / h
        return np.asarray((self.kernel.pdf(z) / h).sum(axis=-1) / len(points))

    def cdf(self, x: FloatArray, points: FloatArray) -> FloatArray:
        finite = np.isfinite(points)
        z = (np.asarray(x, float)[..., None] - points[finite]) / self.bandwidths[finite]
        return np.asarray(self.kernel.cdf(z).sum(axis=-1) / len(points))

    def nodes(self, points: FloatArray) -> FloatArray:
        finite = np.isfinite(points)
        offsets = np.array(self.kernel.nodes)
        offsets = np.concatenate((-offsets, offsets, [-self.kernel.reach, self.kernel.reach]))
        return np.unique(points[finite, None] + self.bandwidths[finite, None] * offsets)


def is_usual(model: Model | None) -> bool:
    """Whether a fitted density is the one that bounds and publications were validated with: a Laplace kernel whose one
    bandwidth the one-SE rule chose. Where all results are atoms there is none, which any recipe gives."""
    if not isinstance(model, Mixture):
        return model is None
    return model.kernel.name == "laplace" and model.rule == "one-se"


@dataclass(frozen=True)
class Kde:
    """Kernel density estimate with one bandwidth.

    Parameters
    ----------
    kernel : name in `KERNELS`
    bandwidth : a positive number, or a rule
        "one-se" (default): the widest bandwidth whose leave-one-out log likelihood is within one paired standard
        error of the best; "likelihood": the best; "k-fold": the best by ten folds; "silverman", "scott": rules of
        thumb, unsafe where the results have several modes. A number is taken as stated: the density is then
        exactly that mixture, and atoms of numbers are not looked for.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> empriv.measure(q, [q - 1.0], density=empriv.Kde("gaussian", 2.5)).density.name
    'gaussian kernel, bandwidth 2.5 (as stated)'
    """

    kernel: str = "laplace"
    bandwidth: float | str = "one-se"

    def __post_init__(self) -> None:
        kernel_named(self.kernel)
        if isinstance(self.bandwidth, str):
            if self.bandwidth not in RULES:
                raise InputError(f"`bandwidth` must be a number or one of {', '.join(RULES)}, got {self.bandwidth!r}.")
        elif not (np.isfinite(self.bandwidth) and self.bandwidth > 0):
            raise InputError(f"`bandwidth` must be positive and finite, got {self.bandwidth}.")

    @property
    def literal(self) -> bool:
        return not isinstance(self.bandwidth, str)

    def fit(self, points: FloatArray, databases: IntArray) -> Mixture:
        kernel = kernel_named(self.kernel)
        scores: tuple[Score, ...] = ()
        if isinstance(self.bandwidth, str):
            chosen, scores = _bandwidth(*_finite(points, databases), kernel, self.bandwidth)
            how = self.bandwidth
        else:
            chosen, how = float(self.bandwidth), "as stated"
        return Mixture(
            kernel=kernel,
            bandwidths=np.full(len(points), chosen),
            name=f"{self.kernel} kernel, bandwidth {chosen:.6g} ({how})",
            scores=scores,
            rule="" if self.literal else how,
        )


@dataclass(frozen=True)
class VariableKde:
    """Kernel density estimate with a bandwidth for each point, wider where results are sparse: ``h_j = scale · distance
    to the neighbours-th nearest distinct result`` (Breiman, Meisel and Purcell, 1977).

    Parameters
    ----------
    kernel : name in `KERNELS`
    neighbours, scale : numbers, or None to choose them by leave-one-out log likelihood

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, [q - 1.0], density=empriv.VariableKde(neighbours=5, scale=1.0))
    >>> risk.density.name
    'gaussian kernel, variable bandwidth (neighbours 5, scale 1)'
    """

    kernel: str = "gaussian"
    neighbours: int | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        kernel_named(self.kernel)
        if self.neighbours is not None and self.neighbours < 1:
            raise InputError(f"`neighbours` must be at least 1, got {self.neighbours}.")
        if self.scale is not None and not (np.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"`scale` must be positive and finite, got {self.scale}.")

    def fit(self, points: FloatArray, databases: IntArray) -> Mixture:
        kernel = kernel_named(self.kernel)
        x, groups = _finite(points, databases)
        bandwidths, names, log = self._candidates(x, groups, kernel)
        means, errors = selection.means_and_errors(selection.per_database(log, groups))
        best = int(np.argmax(means))
        if not np.isfinite(bandwidths[best]).all():
            raise InputError(
                f"`neighbours` must be less than the number of distinct results ({len(np.unique(x))}), "
                f"got {self.neighbours}."
            )
        # A point that is an atom has no bandwidth of its own; its pair without an individual gets the middle one.
        full = np.full(len(points), float(np.median(bandwidths[best])))
        full[np.isfinite(points)] = bandwidths[best]
        return Mixture(
            kernel=kernel,
            bandwidths=full,
            name=f"{self.kernel} kernel, variable bandwidth ({names[best]})",
            scores=_scores(names, means, errors, best),
        )

    def _candidates(self, x: FloatArray, groups: IntArray, kernel: Kernel) -> tuple[FloatArray, list[str], FloatArray]:
        distances = selection.neighbour_distances(x)
        most = max(1, int(np.isfinite(distances).sum(axis=1).min()))
        ks = (
            [self.neighbours]
            if self.neighbours is not None
            else sorted({min(most, max(1, round(k))) for k in np.geomspace(2, max(2, len(x) / 2), 8)})
        )
        if ks[-1] > distances.shape[1]:
            return np.full((1, len(x)), np.inf), [""], np.zeros((1, len(x)))
        alphas = [self.scale] if self.scale is not None else list(kernel.canonical * np.geomspace(0.15, 3.0, 12))
        at_k = distances[:, np.array(ks) - 1].T
        after_k = distances[:, np.minimum(ks, distances.shape[1] - 1)].T
        after_k = np.where(np.isfinite(after_k), after_k, at_k)
        scales = np.array(alphas)
        # a centre that has the point left out among its neighbours takes the next
        log = selection.log_densities(x, groups, kernel, scales, at_k, after_k)
        names = [f"neighbours {k}, scale {a:.4g}" for k in ks for a in alphas]
        return (at_k[:, None] * scales[:, None]).reshape(-1, len(x)), names, log


@dataclass(frozen=True)
class Ecdf:
    """Numerical differencing of the empirical distribution over ``span`` gaps (default: about sqrt(n)).

    Piecewise constant between the sorted results, nothing outside them, scaled to mass one.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> empriv.measure(q, [q - 1.0], density=empriv.Ecdf(span=8)).density.name
    'empirical distribution, differenced over 8 gaps'
    """

    span: int | None = None

    def __post_init__(self) -> None:
        if self.span is not None and self.span < 1:
            raise InputError(f"`span` must be at least 1, got {self.span}.")

    def fit(self, points: FloatArray, databases: IntArray) -> Differences:
        x, _ = _finite(points, databases)
        span = self.span if self.span is not None else max(1, round(len(x) ** 0.5))
        return Differences(span=span, name=f"empirical distribution, differenced over {span} gaps")


@dataclass(frozen=True)
class Differences:
    """The fitted `Ecdf`: it has nothing to fit but its span."""

    span: int
    name: str
    scores: tuple[Score, ...] = ()

    def steps(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Edges and the heights between them."""
        x = np.sort(points[np.isfinite(points)])
        last = len(x) - 1
        if last < 1 or x[0] == x[-1]:
            raise InputError("`density` Ecdf must have at least two distinct results on each side, got one.")
        gap = np.arange(last)
        low = np.clip(gap - (self.span - 1) // 2, 0, max(0, last - self.span))
        high = np.minimum(low + self.span, last)
        width = np.diff(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            height = np.where(width > 0, (high - low) / (x[high] - x[low]), 0.0)
        edges = np.unique(x)
        height = height[width > 0]
        mass = (height * np.diff(edges)).sum()
        return edges, height / mass * (len(x) / len(points))

    def pdf(self, x: FloatArray, points: FloatArray) -> FloatArray:
        edges, heights = self.steps(points)
        place = np.searchsorted(edges, np.asarray(x, float), side="right") - 1
        inside = (place >= 0) & (place < len(heights))
        return np.where(inside, heights[np.clip(place, 0, len(heights) - 1)], 0.0)

    def cdf(self, x: FloatArray, points: FloatArray) -> FloatArray:
        edges, heights = self.steps(points)
        cumulative = np.concatenate(([0.0], np.cumsum(heights * np.diff(edges))))
        return np.asarray(np.interp(np.asarray(x, float), edges, cumulative))

    def nodes(self, points: FloatArray) -> FloatArray:
        return self.steps(points)[0]


CANDIDATES: tuple[Density, ...] = (
    Kde("laplace", "one-se"),
    Kde("laplace", "likelihood"),
    Kde("gaussian", "likelihood"),
    Kde("logistic", "likelihood"),
    Kde("student", "likelihood"),
)
"""What `BestOf` chooses from unless told: kernels that reach everywhere, so that any result can be scored."""


@dataclass(frozen=True)
class BestOf:
    """The density of highest out-of-sample log likelihood among several, by ten folds of the databases.

    Without ``candidates`` it chooses as ``best`` on the command line does: from a Laplace kernel by the rule of one
    standard error, and from Laplace, Gaussian, logistic and Student kernels by likelihood.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> best = empriv.BestOf((empriv.Kde("laplace"), empriv.Kde("gaussian")))
    >>> empriv.measure(q, [q - 1.0], density=best).density.name
    'laplace kernel, bandwidth 3.13018 (one-se), best of 2'
    """

    candidates: Sequence[Density] = CANDIDATES

    def __post_init__(self) -> None:
        if not self.candidates:
            raise InputError("`candidates` must hold at least one density, got none.")

    def fit(self, points: FloatArray, databases: IntArray) -> Model:
        units = databases if len(np.unique(databases)) > 1 else np.arange(len(points))
        log = np.array([_held_out(density, points, units) for density in self.candidates])
        means, errors = selection.means_and_errors(selection.per_database(log, units))
        if not np.isfinite(means).any():
            raise InputError("`candidates` must hold a density that can be fitted to parts of the databases, got none.")
        best = int(np.argmax(means))
        model = self.candidates[best].fit(points, databases)
        scores = _scores([_title(density) for density in self.candidates], means, errors, best)
        name = f"{model.name}, best of {len(scores)}"
        if isinstance(model, Mixture):
            return replace(model, name=name, scores=scores, rule="")  # chosen among others, not by its rule alone
        return Chosen(model, name, scores)


@dataclass(frozen=True, eq=False)
class Chosen:
    """A model other than a mixture that `BestOf` chose, with the scores of all candidates."""

    model: Model
    name: str
    scores: tuple[Score, ...]

    def pdf(self, x: FloatArray, points: FloatArray) -> FloatArray:
        return self.model.pdf(x, points)

    def cdf(self, x: FloatArray, points: FloatArray) -> FloatArray:
        return self.model.cdf(x, points)

    def nodes(self, points: FloatArray) -> FloatArray:
        return self.model.nodes(points)


def _finite(points: FloatArray, databases: IntArray) -> tuple[FloatArray, IntArray]:
    """Points that are not atoms, and their groups: the databases, or each draw alone if there is one database."""
    finite = np.isfinite(points)
    groups = databases[finite]
    if not finite.any() or np.all(points[finite] == points[finite][0]):
        raise InputError("A bandwidth needs at least two distinct results, got fewer.")
    return points[finite], groups if len(np.unique(groups)) > 1 else np.arange(len(groups))


def _bandwidth(x: FloatArray, groups: IntArray, kernel: Kernel, rule: str) -> tuple[float, tuple[Score, ...]]:
    """The bandwidth that a rule chooses, and the scores of all that it considered."""
    if rule in ("silverman", "scott"):
        width = 0.9 * selection.spread(x) if rule == "silverman" else 1.06 * float(np.std(x, ddof=1))
        grid = np.array([kernel.canonical * width * len(x) ** -0.2])
    else:
        grid = selection.bandwidth_grid(x, kernel, wide=rule != "one-se")
    alone = len(np.unique(groups)) == len(groups)
    if rule != "k-fold" and kernel.name == "laplace" and alone:
        log = selection.laplace_log_densities(x, grid)
    else:
        log = selection.log_densities(x, selection.folds(groups) if rule == "k-fold" else groups, kernel, grid)
    means, errors = selection.means_and_errors(selection.per_database(log, groups))
    if len(grid) > 1 and not np.isfinite(means).any():
        raise InputError("`bandwidth` must be a number here: no candidate of the rule reaches from result to result.")
    best = selection.one_standard_error(means, errors) if rule == "one-se" else int(np.argmax(means))
    scores = _scores([f"bandwidth {h:.6g}" for h in grid], means, errors, best)
    return float(grid[best]), tuple(replace(score, bandwidth=float(h)) for score, h in zip(scores, grid, strict=True))


def _scores(names: Sequence[str], means: FloatArray, errors: FloatArray, best: int) -> tuple[Score, ...]:
    return tuple(
        Score(name, float(mean), float(error), k == best)
        for k, (name, mean, error) in enumerate(zip(names, means, errors, strict=True))
    )


def _held_out(density: Density, points: FloatArray, units: IntArray) -> FloatArray:
    """Log density at each point, fitted to the other folds; ties of the point left out; -inf where the fit fails."""
    fold = selection.folds(np.unique(units, return_inverse=True)[1])
    log = np.full(len(points), -np.inf)
    log[~np.isfinite(points)] = np.nan
    tolerance = 4 * np.spacing(np.abs(points[np.isfinite(points)]).max())
    for k in np.unique(fold):
        training = np.where(fold == k, np.inf, points)
        held = np.flatnonzero((fold == k) & np.isfinite(points))
        try:
            model = density.fit(training, units)
            for j in held:
                partners = np.where(np.abs(training - points[j]) <= tolerance, np.inf, training)
                share = np.count_nonzero(fold != k) / len(points)
                with np.errstate(divide="ignore"):
                    log[j] = np.log(model.pdf(points[j : j + 1], partners)[0] / share)
        except InputError:
            continue
    return log


def _title(density: Density) -> str:
    return repr(density) if is_dataclass(density) else type(density).__name__


# Densities as text, for the command line, and as JSON, for saved files. Only recipes of empriv can be written down: a
# density of the user is code, which a file must not hold.

GRAMMAR = (
    "a kernel (laplace, gaussian, ...), kernel:rule such as laplace:one-se, kernel:bandwidth such as gaussian:0.5, "
    "variable:kernel such as variable:gaussian, ecdf, ecdf:span, or best"
)
_KINDS: dict[str, type[Kde] | type[VariableKde] | type[Ecdf]] = {"kde": Kde, "variable": VariableKde, "ecdf": Ecdf}
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "kde": {"kernel": (str,), "bandwidth": (str, int, float)},
    "variable": {
        "kernel": (str,),
        "neighbours": (int, type(None)),
        "scale": (int, float, type(None)),
    },
    "ecdf": {"span": (int, type(None))},
}


def density_from_text(text: str) -> Density:
    """The density that a text such as ``"laplace:one-se"`` names."""
    match [part.strip() for part in text.split(":")]:
        case ["best"]:
            return BestOf()
        case ["ecdf"]:
            return Ecdf()
        case ["ecdf", span] if (gaps := _number(span, int)) is not None:
            return Ecdf(gaps)
        case ["variable"]:
            return VariableKde()
        case ["variable", kernel] if kernel in KERNELS:
            return VariableKde(kernel)
        case [kernel] if kernel in KERNELS:
            return Kde(kernel)
        case [kernel, rule] if kernel in KERNELS and rule in RULES:
            return Kde(kernel, rule)
        case [kernel, width] if kernel in KERNELS and (bandwidth := _number(width, float)) is not None:
            return Kde(kernel, bandwidth)
    raise InputError(f"`density` must be {GRAMMAR}, got {text!r}.")


def density_to_json(density: Density) -> dict[str, Any] | None:
    """A density as JSON; None for one that is not empriv's own."""
    if type(density) is BestOf:
        inner = [density_to_json(candidate) for candidate in density.candidates]
        return None if any(spec is None for spec in inner) else {"kind": "best", "candidates": inner}
    for kind, maker in _KINDS.items():
        if type(density) is maker:
            return {"kind": kind} | {name: _plain(getattr(density, name)) for name in _FIELDS[kind]}
    return None


def density_from_json(spec: Any) -> Density:
    """The inverse of `density_to_json`; refuses what it would not have written."""
    if not isinstance(spec, Mapping):
        raise FileFormatError("The file is damaged: its density is not one that empriv writes.")
    kind = spec.get("kind")
    if kind == "best" and isinstance(spec.get("candidates"), list) and spec["candidates"]:
        return BestOf(tuple(density_from_json(candidate) for candidate in spec["candidates"]))
    fields = {name: value for name, value in spec.items() if name != "kind"}
    field_types = _FIELDS.get(str(kind), {})
    if (
        not field_types
        or set(fields) != set(field_types)
        or not all(_fits(fields[name], field_types[name]) for name in field_types)
    ):
        raise FileFormatError("The file is damaged: its density is not one that empriv writes.")
    try:
        return _KINDS[str(kind)](**fields)
    except InputError as error:
        raise FileFormatError("The file is damaged: its density is not one that empriv writes.") from error


def _fits(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and (not isinstance(value, bool) or bool in types)


def _plain(value: Any) -> Any:
    """A NumPy number as a Python number, for JSON."""
    return value.item() if hasattr(value, "item") else value


def _number(text: str, kind: type[int] | type[float]) -> Any:
    try:
        return kind(text)
    except ValueError:
        return None
