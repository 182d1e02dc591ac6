"""`audit` and `Audit`: collect, measure, validate, say; wiring only.

The words are in `summary`, the numbers in `measuring`, how far to trust them in `validate`, the rows in `collect`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.density_specs import density_from_json, density_to_json
from empriv.errors import FileFormatError, InputError
from empriv.measuring.densities import Density, Kde
from empriv.measuring.joint import JointRisk
from empriv.measuring.risk import Risk, measure
from empriv.origins import Origin, describe, origin_from_json, origin_to_json, text, text_or_none
from empriv.results import FloatArray, Results
from empriv.storage import read_archive, write_archive
from empriv.summary import Summary, atoms_of, joint_facts, outcome_counts, smallest_supported_delta, summarise
from empriv.validate import words
from empriv.validate.bounds import Bounds, bounds
from empriv.validate.checks import Check, checks
from empriv.validate.verdict import Verdict, verdict

if TYPE_CHECKING:
    from empriv.collecting import Databases, Engine, Query
    from empriv.collecting.rows import FrameKind

JSON_VERSION = 1
DEFAULT_EPSILONS = (0.05, 0.1, 0.2)


@dataclass(frozen=True, eq=False)
class Audit:
    """How private a query on some data is.

    Attributes
    ----------
    results : query results with everyone, and without each individual
    risk : what was measured from them; a `JointRisk` if the query gives several numbers
    epsilons : the epsilons asked for, rising
    query : SQL text, or the name of the function
    origin : where the rows came from, or None if results were given
    density : the recipe for the density
    component : the component audited, if the query was a vector, and how many it has
    """

    results: Results = field(repr=False)
    risk: Risk | JointRisk = field(repr=False)
    epsilons: tuple[float, ...]
    query: str
    origin: Origin | None
    density: Density
    component: str | None = None
    n_components: int | None = None

    def delta(self, epsilon: npt.ArrayLike) -> Any:
        """Failure probability of the most exposed individual: a float, or an array for an array."""
        return self.risk.delta(epsilon)

    def delta_i(self, epsilon: npt.ArrayLike) -> FloatArray:
        """Failure probability of each individual, in the order of ``results.individuals``."""
        return self.risk.delta_i(epsilon)

    def total_risk(self, epsilon: npt.ArrayLike) -> Any:
        """Chance that somebody's privacy fails, if failures are independent."""
        return self.risk.total_risk(epsilon)

    def epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``."""
        return self.risk.epsilon(delta)

    @cached_property
    def components(self) -> dict[str, Audit]:
        """The audit of each number alone; empty if the query gives one number only."""
        if not isinstance(self.risk, JointRisk):
            return {}
        count = len(self.risk.components)
        return {
            name: replace(self, results=risk.results, risk=risk, component=name, n_components=count)
            for name, risk in self.risk.components.items()
        }

    def bounds(
        self,
        epsilon: npt.ArrayLike,
        level: float = 0.95,
        method: str = "analytic",
        *,
        rng: int = 0,
        progress: bool | None = None,
    ) -> Bounds:
        """Lower bound, estimate and upper bound of delta, of each delta_i and of total risk; see `empriv.bounds`."""
        return bounds(self.risk, epsilon, level, method, rng=rng, progress=progress)

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """What could make the figures wrong, gravest first, looked at for the smallest epsilon asked for."""
        return checks(self.risk, self.epsilons[0])

    def verdict(
        self,
        *,
        epsilon: float,
        delta: float | None = None,
        total_risk: float | None = None,
        basis: str = "bound",
        level: float = 0.95,
    ) -> Verdict:
        """ "pass", "fail" or "unresolved" against targets, with reasons.

        ``basis="bound"`` asks whether the upper bound meets the target, ``basis="estimate"`` whether the point
        estimate does, as in the paper; the verdict holds both.
        """
        return verdict(
            self.risk, epsilon=epsilon, delta=delta, total_risk=total_risk, basis=basis, level=level, looked=self.checks
        )

    def individuals(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table of the individuals, riskiest first."""
        return self.risk.individuals(epsilon, top=top)

    def summary(self, epsilons: Iterable[float] | float | None = None) -> Summary:
        """The audit in words, at the epsilons asked for or at others."""
        return summarise(
            self.risk,
            self.epsilons if epsilons is None else check_epsilons(epsilons),
            query=self.query,
            origin=self.origin,
            component=self.component,
            n_components=self.n_components,
        )

    def with_validity(self, said: Summary) -> Summary:
        """A summary with the bounds at its first epsilon, and the checks that ask to be read."""
        figure = said.figures[0]
        found = self.bounds(figure.epsilon)
        sentences = (
            words.upper(found.upper, found.level, found.finest),
            words.lower(found.lower, found.level),
            words.total_upper(found.total_risk_upper, found.level),
            *found.notes,
        )
        # exact leaks are among the alarms already
        grave = [c.sentence for c in self.checks if c.severity != "info" and c.code != "exact-leak"]
        calm = [check.sentence for check in self.checks if check.code == "iid" and check.severity == "info"]
        notes = (said.notes[0], *sentences, *said.notes[1:], *calm)
        return replace(said, warnings=(*said.warnings, *grave), notes=tuple(dict.fromkeys(notes)))

    def to_json(self, epsilons: Iterable[float] | float | None = None) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers; its keys are in docs/formats.md."""
        said = self.with_validity(self.summary(epsilons))
        with_all, without = outcome_counts(self.results)
        model = self.risk.density
        return {
            "format": "empriv audit figures",
            "version": JSON_VERSION,
            "empriv": version("empriv"),
            "query": self.query,
            "component": self.component,
            "n_components": self.n_components,
            "source": origin_to_json(self.origin),
            "n_databases": self.results.n_databases,
            "n_individuals": self.results.n_individuals,
            "draws": self.results.draws,
            "joint": joint_facts(self.risk, [figure.epsilon for figure in said.figures]),
            "figures": [asdict(figure) for figure in said.figures],
            "epsilon_at_delta_0": _finite_or_none(self.epsilon(0.0)),
            "bounds": self.bounds(np.array([figure.epsilon for figure in said.figures])).to_json(),
            "checks": [check.to_json() for check in self.checks],
            "smallest_supported_delta": smallest_supported_delta(self.results.n_databases),
            "density": {
                "recipe": density_to_json(self.density),
                "model": None if model is None else model.name,
                "scores": [
                    {
                        "candidate": score.candidate,
                        "log_likelihood": _finite_or_none(score.log_likelihood),
                        "standard_error": _finite_or_none(score.standard_error),
                        "chosen": score.chosen,
                    }
                    for score in (() if model is None else model.scores)
                ],
            },
            "not_numbers": {"with_everyone": with_all, "without_an_individual": without},
            "atoms": [asdict(atom) for atom in atoms_of(self.risk)],
            "words": {
                "asked": said.asked,
                "figures": list(said.sentences),
                "alarms": list(said.alarms),
                "warnings": list(said.warnings),
                "notes": list(said.notes),
            },
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file of mode 0600, which `load` reads; the format is in docs/formats.md."""
        meta, arrays = self.results.to_parts()
        facts = {
            "empriv": version("empriv"),
            "query": self.query,
            "epsilons": list(self.epsilons),
            "source": origin_to_json(self.origin),
            "density": density_to_json(self.density),
            "component": self.component,
            "n_components": self.n_components,
        }
        write_archive(path, kind="audit", meta={**meta, **facts}, arrays=arrays)


def audit(
    data: Databases | Results,
    query: str | Callable[..., Any] | Query | Sequence[str | Callable[..., Any] | Query] | None = None,
    *,
    epsilon: Iterable[float] | float = DEFAULT_EPSILONS,
    density: Density | None = None,
    component: str | None = None,
    draws: int | None = None,
    rng: int = 0,
    post: Callable[[Any], Any] | None = None,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    jobs: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | None = None,
    notice: Callable[[str], None] | None = None,
    frame: FrameKind = "dict",
) -> Audit:
    """Measure how private a query already is on these databases.

    Parameters
    ----------
    data : databases, from `databases`, `subsamples` or `splits`; or `Results` that were collected before
    query : SQL text, an SQL expression of aggregates, or a function of the rows; or a list of several, which are
        audited together; not with `Results`
    epsilon : the epsilons to report; any others can be asked later
    density : how densities are estimated; default ``Kde("laplace", "one-se")``
    component : audit this component of a vector query alone, by name; otherwise all are audited together
    draws, rng, post, engine, memory_limit, jobs, checkpoint, progress, notice, frame : as for `collect`

    Returns
    -------
    Audit
    """
    epsilons = check_epsilons(epsilon)
    density = Kde() if density is None else density
    if not isinstance(density, Density):
        raise InputError(f"`density` must have a method `fit`, got {type(density).__name__}. Hint: empriv.Kde().")
    if isinstance(data, Results):
        if query is not None:
            raise InputError("`query` must not be given with `Results`, which hold its answers already.")
        return _measured(data, epsilons, density, component, query="The query", origin=None, grouped=True)
    if query is None:
        raise InputError("`query` must be SQL text or a function of the rows.")
    from empriv.collecting import collect
    from empriv.collecting.queries import query_of

    several = isinstance(query, list | tuple)
    given: Sequence[Any] = query if isinstance(query, list | tuple) else [query]
    queries = [query_of(one, post=post) for one in given]
    if post is not None:
        queries = [replace(one, post=post) for one in queries]
    results = collect(
        data, queries if several else queries[0], draws=draws, rng=rng, engine=engine, memory_limit=memory_limit,
        jobs=jobs, checkpoint=checkpoint, progress=progress, notice=notice, frame=frame,
    )  # fmt: skip
    text = "; ".join(one.text if one.post is None else f"{one.text}, then {_name(one.post)}" for one in queries)
    grouped = any(one.groups for one in queries)
    return _measured(results, epsilons, density, component, query=text, origin=describe(data), grouped=grouped)


def load(path: str | PathLike[str], *, density: Density | None = None) -> Audit | Results:
    """Read what `Audit.save` or `Results.save` wrote.

    Parameters
    ----------
    path : the file
    density : measure a saved audit with this density instead of the one that it was made with; needed if that was
        of a kind of your own, since a file does not hold code
    """
    meta, arrays = read_archive(path, kinds=("results", "audit"))
    results = Results.from_parts(meta, arrays)
    if meta["kind"] == "results":
        if density is not None:
            raise InputError("`density` must be given for a saved audit only, got a file that holds results.")
        return results
    facts = _facts(meta)
    if density is None:
        if meta["density"] is None:
            raise InputError(
                "`density` must be given: the audit was made with a density of your own, which a file cannot hold. "
                "Hint: empriv.load(path, density=...)."
            )
        density = density_from_json(meta["density"])
    return Audit(results=results, risk=measure(results, density=density), density=density, **facts)


def check_epsilons(epsilon: Iterable[float] | float) -> tuple[float, ...]:
    """The epsilons asked for, rising and without doubles."""
    given: Any = epsilon
    if isinstance(given, str | bytes):
        raise InputError(f"`epsilon` must be a number, or several, got {type(given).__name__}.")
    try:
        numbers = [float(one) for one in (given if np.ndim(given) else [given])]
    except (TypeError, ValueError):
        raise InputError("`epsilon` must be a number, or several.") from None
    if not numbers:
        raise InputError("`epsilon` must hold at least one number, got none.")
    for one in numbers:
        if not (math.isfinite(one) and one >= 0):
            raise InputError(f"`epsilon` must be finite and at least 0, got {one:g}.")
    return tuple(sorted(set(numbers)))


def _measured(
    results: Results,
    epsilons: tuple[float, ...],
    density: Density,
    component: str | None,
    *,
    query: str,
    origin: Origin | None,
    grouped: bool,
) -> Audit:
    if results.n_individuals == 0:
        raise InputError("There must be at least one individual, got 0: all rows are nobody's.")
    names = results.components
    if names is None and component is not None:
        raise InputError("`component` must be None: the query gives one number.")
    if names is not None and component is not None:
        results = _one_component(results, names, component, grouped)
    return Audit(
        results=results,
        risk=measure(results, density=density),
        epsilons=epsilons,
        query=query,
        origin=origin,
        density=density,
        component=component,
        n_components=None if names is None or component is None else len(names),
    )


def _one_component(results: Results, names: Sequence[str], component: str, grouped: bool) -> Results:
    # The keys of groups are values in the rows: an error must not show them. Names of select items are the user's own.
    listed = f"{len(names):,} components, one for each group" if grouped else f"the components {', '.join(names)}"
    if component not in names:
        raise InputError(f"`component` must name one of {listed}, got {component!r}.")
    return results.component(component)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _facts(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a saved audit, none of which is taken on trust."""
    try:
        source = origin_from_json(meta["source"])
        component, n_components = text_or_none(meta["component"]), meta["n_components"]
        if not isinstance(n_components, int | None) or (component is None) != (n_components is None):
            raise TypeError("n_components")
        return {
            "epsilons": check_epsilons(meta["epsilons"]),
            "query": text(meta["query"]),
            "origin": source,
            "component": component,
            "n_components": n_components,
        }
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError("The file is damaged: its facts about the audit are not what empriv writes.") from error
