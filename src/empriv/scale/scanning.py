"""`scan` and `Scan`: an audit that keeps the riskiest individuals, and sums over all the others.

An `Audit` holds every result and answers at any epsilon. A `Scan` is asked at a few epsilons beforehand, goes through
the individuals once, and holds what a decision needs, in the memory of a small audit, however many there are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.density_specs import density_to_json
from empriv.errors import FileFormatError, InputError
from empriv.measuring.densities import Density, Kde
from empriv.measuring.risk import Risk, measure
from empriv.origins import Origin, describe, origin_from_json, origin_to_json, text, text_or_none
from empriv.progress import progress as progress_bar
from empriv.results import FloatArray, Results
from empriv.scale.stretches import Yardstick, measure_stretch, nobody_listed, parts_of, yardstick_of
from empriv.scale.tally import EDGES, Tally, merge
from empriv.storage import read_archive, write_archive
from empriv.validate import words
from empriv.validate.analytic import floor, narrowing, total_bound
from empriv.validate.bounds import LEAST_DATABASES, Bounds
from empriv.validate.checks import Check, checks
from empriv.validate.ground import ground_of
from empriv.validate.lower import lower_bounds
from empriv.validate.verdict import Verdict, verdict

if TYPE_CHECKING:
    from empriv.collecting import Databases, Engine, Query
    from empriv.collecting.streaming import Stream

TOP = 100
# Checks that look at everyone: the riskiest alone would give another answer.
_OF_EVERYONE = {"modes", "rare", "held-out", "exact-leak"}


@dataclass(frozen=True, eq=False)
class Scan:
    """How private a query is, with the riskiest individuals kept and the others summed up.

    Attributes
    ----------
    epsilons, deltas : what was asked beforehand: nothing else can be told
    level : of the bounds
    bounded : whether upper bounds were computed
    tally : largest values, sums and counts over all individuals, and the riskiest
    risk : the riskiest individuals, measured: for looking closer, at any epsilon
    query, origin, density, component : as for `Audit`
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    level: float
    bounded: bool
    tally: Tally = field(repr=False)
    risk: Risk = field(repr=False)
    query: str
    origin: Origin | None
    density: Mapping[str, Any] | None
    component: str | None = None

    @property
    def n_individuals(self) -> int:
        return self.tally.n_individuals

    @property
    def n_databases(self) -> int:
        return self.risk.results.n_databases

    def delta(self, epsilon: npt.ArrayLike) -> Any:
        """Failure probability of the most exposed individual: a float, or an array for an array."""
        return self._at(epsilon, self.tally.worst)

    def total_risk(self, epsilon: npt.ArrayLike) -> Any:
        """Chance that somebody's privacy fails, if failures are independent."""
        return self._at(epsilon, self.tally.total_risk)

    def exposed(self, epsilon: npt.ArrayLike) -> Any:
        """How many individuals have a delta_i that is not 0."""
        return self._at(epsilon, self.tally.exposed)

    def epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``, which must be among ``deltas``."""
        return float(self.tally.epsilon_at[_place("delta", delta, self.deltas)])

    def histogram(self, epsilon: float) -> dict[str, npt.NDArray[Any]]:
        """Individuals by delta_i: columns ``above``, ``up_to`` and ``individuals``; the first row are those at 0."""
        counts = self.tally.histogram[_place("epsilon", epsilon, self.epsilons)]
        return {"above": np.concatenate(([0.0], EDGES[:-1])), "up_to": EDGES.copy(), "individuals": counts.copy()}

    def individuals(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table of the riskiest individuals, as `Audit.individuals` has them."""
        column = _place("epsilon", epsilon, self.epsilons)
        delta_i, influence = self.tally.riskiest_delta_i[:, column], self.tally.riskiest_influence
        size = np.where(np.isnan(influence), np.inf, influence)
        results = self.risk.results
        order = np.lexsort((np.argsort(np.argsort(results.individuals)), -size, -delta_i))[:top]
        return {
            "individual": results.individuals[order],
            "delta_i": delta_i[order],
            "largest_influence": influence[order],
            "databases": results.presence[order],
        }

    def bounds(self, epsilon: npt.ArrayLike) -> Bounds:
        """Lower bound, estimate and upper bound at the scan's ``level``, at epsilons that were asked for.

        The upper bound is over all individuals. The lower one looks for its set among the riskiest alone, which is
        honest: at worst it is weaker. ``estimate_i`` and ``upper_i`` are those of the riskiest.
        """
        places = [_place("epsilon", one, self.epsilons) for one in np.atleast_1d(np.asarray(epsilon, float)).tolist()]
        grid = np.array(self.epsilons)
        ground, n = ground_of(self.risk), self.n_databases
        lower = np.minimum(lower_bounds(ground, grid, self.level), 1.0)
        least = floor(n, self.level)
        notes = []
        upper, total_upper = np.ones(len(grid)), np.ones(len(grid))
        if n < LEAST_DATABASES:
            notes.append(words.no_upper_bound(n, LEAST_DATABASES))
        elif not self.bounded:
            notes.append("Upper bounds were not asked for, so that none below 1 is known. Hint: scan(bounds=True).")
        else:
            # delta falls in epsilon: a bound for a larger epsilon that is higher was too low before.
            upper = np.maximum(_falling(self.tally.upper), least)
            total_upper = _falling(total_bound(self.tally.exponent, self.tally.spread, self.level))
        upper = np.maximum(upper, lower)
        total_upper = np.maximum(np.maximum(total_upper, _falling(self.tally.total_risk)), upper)
        if ground.refitted:
            notes.append(words.other_density())
        if self.level != 0.95:
            notes.append(words.other_level(self.level))
        shown = self.tally.riskiest_delta_i

        def shaped(values: FloatArray) -> Any:
            return float(values[places[0]]) if np.ndim(epsilon) == 0 else values[places]

        return Bounds(
            epsilon=shaped(grid),
            level=self.level,
            method="analytic",
            lower=shaped(lower),
            estimate=shaped(self.tally.worst),
            upper=shaped(upper),
            estimate_i=shown[:, places[0]] if np.ndim(epsilon) == 0 else shown[:, places],
            upper_i=np.full((0,) if np.ndim(epsilon) == 0 else (0, len(places)), np.nan),
            total_risk_lower=shaped(lower),
            total_risk=shaped(self.tally.total_risk),
            total_risk_upper=shaped(total_upper),
            n_databases=n,
            n_individuals=self.n_individuals,
            floor=least,
            finest=narrowing(n) * ground.bandwidth if ground.smooth_points else float("nan"),
            notes=tuple(notes),
        )

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """What could make the figures wrong, gravest first.

        Exact leaks are looked for in everyone. The others look at the results and at the riskiest individuals; three
        that would need everybody's influence at once are left out ("modes", "rare", "held-out").
        """
        leaks = tuple(
            Check("exact-leak", "Exact leak", "error", words.exact_leak(name, count, share),
                  {"individuals": count, "share": share})
            for name, (count, share) in self.tally.leaks.items()
        )  # fmt: skip
        return leaks + tuple(c for c in checks(self.risk, self.epsilons[0]) if c.code not in _OF_EVERYONE)

    def verdict(
        self, *, epsilon: float, delta: float | None = None, total_risk: float | None = None, basis: str = "bound"
    ) -> Verdict:
        """ "pass", "fail" or "unresolved" against targets, with reasons, as `Audit.verdict` gives it."""
        found = self.bounds(float(epsilon))
        return verdict(
            self.risk, epsilon=epsilon, delta=delta, total_risk=total_risk, basis=basis, level=self.level,
            found=found, looked=self.checks,
        )  # fmt: skip

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file of mode 0600, which `Scan.load` reads."""
        meta, arrays = self.tally.to_parts()
        results, everyone = self.risk.results, self.risk.results.to_parts()[1]
        facts = {
            "empriv": version("empriv"),
            "epsilons": list(self.epsilons),
            "deltas": list(self.deltas),
            "level": self.level,
            "bounded": self.bounded,
            "query": self.query,
            "source": origin_to_json(self.origin),
            "density": self.density,
            "component": self.component,
            "draws": results.draws,
        }
        arrays |= {name: everyone[name] for name in ("q", "outcomes", "databases")}
        write_archive(path, kind="scan", meta={**meta, **facts}, arrays=arrays)

    @staticmethod
    def load(path: str | PathLike[str], *, density: Density | None = None) -> Scan:
        """Read what `save` wrote; ``density`` is needed if it was of a kind of your own."""
        from empriv.density_specs import density_from_json

        meta, arrays = read_archive(path, kinds=("scan",))
        if density is None and meta.get("density") is None:
            raise InputError("`density` must be given: the scan was made with a density of your own.")
        try:
            everyone = nobody_listed(arrays["q"], arrays["outcomes"], arrays["databases"], meta["draws"])
            tally = Tally.from_parts(meta, arrays, everyone)
            recipe = density_from_json(meta["density"]) if density is None else density
            return Scan(
                epsilons=tuple(map(float, meta["epsilons"])),
                deltas=tuple(map(float, meta["deltas"])),
                level=float(meta["level"]),
                bounded=bool(meta["bounded"]),
                tally=tally,
                risk=measure(tally.riskiest, density=recipe),
                query=text(meta["query"]),
                origin=origin_from_json(meta["source"]),
                density=meta["density"],
                component=text_or_none(meta["component"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(
                "The file is damaged: its facts about the scan are not what empriv writes."
            ) from error

    def _at(self, epsilon: npt.ArrayLike, values: npt.NDArray[Any]) -> Any:
        grid = np.asarray(epsilon, float)
        places = [_place("epsilon", one, self.epsilons) for one in np.atleast_1d(grid).tolist()]
        return values[places[0]].item() if grid.ndim == 0 else values[places]


def scan(
    data: Databases | Results,
    query: str | Callable[..., Any] | Query | None = None,
    *,
    epsilon: Iterable[float] | float = (0.05, 0.1, 0.2),
    delta: Iterable[float] | float = 0.0,
    density: Density | None = None,
    component: str | None = None,
    top: int = TOP,
    level: float = 0.95,
    bounds: bool = True,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    checkpoint: str | PathLike[str] | None = None,
    results_table: str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Scan:
    """Audit a table that is larger than memory, or lies on a cluster.

    Results are measured some individuals at a time, and forgotten: largest values, sums, counts, the histogram of
    delta_i and the riskiest individuals are kept. Every figure is the same as an `Audit` has it.

    Parameters
    ----------
    data, query, density, component, engine, memory_limit : as for `audit`
    epsilon : the epsilons at which individuals are measured; others cannot be asked later
    delta : the deltas at which `Scan.epsilon` can be asked
    top : how many of the riskiest individuals are kept, at each epsilon
    level : of confidence of the bounds
    bounds : whether to compute upper bounds, which takes most of the time; without them a verdict by bound can only
        be "fail" or "unresolved"
    checkpoint : file (with Spark: directory) from which an interrupted scan goes on when called again
    results_table : with Spark, name of a table to which delta_i of every individual is written
    progress : whether to show progress; None does so on a terminal, for work that lasts
    options : other arguments of `collect`, for a query that must be run once per individual

    Returns
    -------
    Scan
    """
    asked = _Asked.of(epsilon, delta, density, component, top, level, bounds)
    if isinstance(data, Results):
        if query is not None:
            raise InputError("`query` must not be given with `Results`, which hold its answers already.")
        return asked.scanned(data, "The query", None)
    if query is None:
        raise InputError("`query` must be SQL text or a function of the rows.")
    from empriv.collecting.aggregates import NotDecomposable
    from empriv.collecting.engine import ClusterEngine
    from empriv.collecting.pipeline import collect, engine_of
    from empriv.collecting.queries import query_of
    from empriv.collecting.streaming import stream

    question = query_of(query)
    origin = describe(data)
    opened = engine_of(engine, memory_limit, data)
    cluster = isinstance(opened, ClusterEngine)
    in_sql = question.function is None and question.post is None
    if results_table is not None and not (cluster and in_sql):
        raise InputError("`results_table` must be None without a Spark engine and an SQL query.")
    try:
        if isinstance(opened, ClusterEngine) and in_sql:
            from empriv.scale.cluster import scan_on_cluster

            yardstick, tally = scan_on_cluster(
                opened, data, question, asked.yardstick, component=component, checkpoint=checkpoint,
                results_table=results_table, progress=progress,
            )  # fmt: skip
            return asked.finished(yardstick, tally, question.text, origin)
        if in_sql:
            with stream(opened, data, question) as found:
                yardstick, tally = _streamed(found, asked, question.text, checkpoint, progress)
            return asked.finished(yardstick, tally, question.text, origin)
    except NotDecomposable as why:
        if results_table is not None or checkpoint is not None:
            raise InputError(
                f"`results_table` and `checkpoint` must be None: the query is not scanned in parts, since {why}."
            ) from None
    results = collect(data, question, engine=opened, checkpoint=checkpoint, progress=progress, **options)
    return asked.scanned(results, question.text, origin)


def _streamed(
    found: Stream, asked: _Asked, query: str, checkpoint: str | PathLike[str] | None, progress: bool | None
) -> tuple[Yardstick, Tally]:
    """Measure one stretch after another, keeping the tally alone."""
    everyone = asked.component_of(found.everyone)
    yardstick = asked.yardstick(everyone)
    kept = _Kept(checkpoint, _mark(query, yardstick, found.n_stretches), everyone)
    done, tally = kept.read()
    with progress_bar(found.n_stretches, "Scanning individuals", show=progress) as advance:
        advance(done)
        for stretch in found.stretches(done):
            part = measure_stretch(yardstick, asked.component_of(stretch)).tally
            tally = part if tally is None else merge(tally, part, top=asked.top)
            done += 1
            kept.write(done, tally)
            advance()
    assert tally is not None
    return yardstick, tally


@dataclass(frozen=True, eq=False)
class _Asked:
    """What was asked, checked."""

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    density: Density
    component: str | None
    top: int
    level: float
    bounds: bool

    @staticmethod
    def of(
        epsilon: Any, delta: Any, density: Density | None, component: str | None, top: int, level: float, bounds: bool
    ) -> _Asked:
        density = Kde() if density is None else density
        if not isinstance(density, Density):
            raise InputError(f"`density` must have a method `fit`, got {type(density).__name__}. Hint: empriv.Kde().")
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise InputError(f"`top` must be a whole number of 1 or more, got {top!r}.")
        if not 0.5 < level < 1.0:
            raise InputError(f"`level` must lie between 0.5 and 1, got {level}.")
        epsilons = _numbers("epsilon", epsilon, float("inf"))
        return _Asked(epsilons, _numbers("delta", delta, 1.0), density, component, top, level, bounds)

    def yardstick(self, everyone: Results) -> Yardstick:
        return yardstick_of(
            everyone, self.density, epsilons=self.epsilons, deltas=self.deltas, level=self.level, top=self.top,
            bounds=self.bounds,
        )  # fmt: skip

    def component_of(self, results: Results) -> Results:
        if results.components is None:
            if self.component is not None:
                raise InputError("`component` must be None: the query gives one number.")
            return results
        if self.component is None or self.component not in results.components:
            raise InputError(
                f"`component` must name one of the query's {len(results.components):,} components: a scan is of one "
                "number. Hint: empriv.audit measures numbers that are released together."
            )
        return results.component(self.component)

    def scanned(self, results: Results, query: str, origin: Origin | None) -> Scan:
        """A scan of results that are in memory."""
        results = self.component_of(results)
        if results.n_individuals == 0:
            raise InputError("There must be at least one individual, got 0: all rows are nobody's.")
        yardstick = self.yardstick(nobody_listed(results.q, results.outcomes, results.databases, results.draws))
        tally: Tally | None = None
        for stretch in parts_of(results, 4_000_000):
            part = measure_stretch(yardstick, stretch).tally
            tally = part if tally is None else merge(tally, part, top=self.top)
        assert tally is not None
        return self.finished(yardstick, tally, query, origin)

    def finished(self, yardstick: Yardstick, tally: Tally, query: str, origin: Origin | None) -> Scan:
        if tally.n_individuals == 0:
            raise InputError("There must be at least one individual, got 0: all rows are nobody's.")
        return Scan(
            epsilons=self.epsilons,
            deltas=self.deltas,
            level=self.level,
            bounded=self.bounds,
            tally=tally,
            risk=measure(tally.riskiest, density=yardstick),
            query=query,
            origin=origin,
            density=density_to_json(self.density),
            component=self.component,
        )


@dataclass(frozen=True, eq=False)
class _Kept:
    """The file from which an interrupted scan goes on: the tally so far, and of how many stretches."""

    path: str | PathLike[str] | None
    mark: str
    everyone: Results

    def read(self) -> tuple[int, Tally | None]:
        if self.path is None or not Path(self.path).exists():
            return 0, None
        meta, arrays = read_archive(self.path, kinds=("scan checkpoint",))
        if meta.get("mark") != self.mark:
            raise InputError("`checkpoint` must be of the same scan, got a file of another one. Hint: delete it.")
        return int(meta["done"]), Tally.from_parts(meta, arrays, self.everyone)

    def write(self, done: int, tally: Tally) -> None:
        if self.path is not None:
            meta, arrays = tally.to_parts()
            facts = {"mark": self.mark, "done": done}
            write_archive(self.path, kind="scan checkpoint", meta={**meta, **facts}, arrays=arrays)


def _mark(query: str, yardstick: Yardstick, n_stretches: int) -> str:
    """By what a scan is known again: the question, and the results with everyone."""
    asked = [query, yardstick.epsilons, yardstick.deltas, yardstick.level, yardstick.top, yardstick.bounds, n_stretches]
    digest = hashlib.sha256(json.dumps(asked).encode())
    digest.update(("" if yardstick.model is None else yardstick.model.name).encode())
    digest.update(yardstick.everyone.q.tobytes() + yardstick.everyone.outcomes.tobytes())
    return digest.hexdigest()


def _numbers(name: str, given: Any, most: float) -> tuple[float, ...]:
    """Numbers from 0 to ``most``, rising and without doubles."""
    try:
        numbers = sorted({float(one) for one in (given if np.ndim(given) else [given])})
    except (TypeError, ValueError):
        raise InputError(f"`{name}` must be a number, or several.") from None
    if not numbers or not all(0 <= one <= most and np.isfinite(one) for one in numbers):
        rule = "finite and at least 0" if np.isinf(most) else f"between 0 and {most:g}"
        raise InputError(f"`{name}` must hold numbers that are {rule}.")
    return tuple(numbers)


def _place(name: str, value: float, known: tuple[float, ...]) -> int:
    if float(value) not in known:
        listed = ", ".join(f"{one:g}" for one in known)
        raise InputError(
            f"`{name}` must be one that the scan was made for ({listed}), got {float(value):g}. "
            f"Hint: scan again with {name}=..., or use empriv.audit, which can be asked anything."
        )
    return known.index(float(value))


def _falling(values: FloatArray) -> FloatArray:
    """Raised to the largest of those at greater epsilons, which rise."""
    return np.asarray(np.maximum.accumulate(values[::-1])[::-1])
