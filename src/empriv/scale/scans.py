"""`Scan`: what is known of a query when the riskiest individuals are kept, and the others are summed up.

An `Audit` holds every result and answers at any epsilon. A `Scan` was asked at a few epsilons beforehand, and holds
what a decision needs, in the memory of a small audit, however many individuals there are. `scanning` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.base.storage import read_archive, write_archive
from empriv.collecting.origins import Origin, origin_from_json, origin_to_json, text, text_or_none
from empriv.errors import FileFormatError, InputError
from empriv.measuring.densities.density import Density
from empriv.measuring.densities.specs import density_from_json, density_to_json
from empriv.measuring.line.risk import Risk, measure
from empriv.results import FloatArray
from empriv.scale.resampling import resampled_upper
from empriv.scale.stretches import nobody_listed
from empriv.scale.tally import EDGES, Tally
from empriv.validate.bounds.analytic import floor, narrowing, total_bound
from empriv.validate.bounds.figures import LEAST_DATABASES, METHODS, Bounds
from empriv.validate.bounds.lower import lower_bounds
from empriv.validate.checks.one_number import Check, checks
from empriv.validate.ground import ground_of
from empriv.validate.verdict import Verdict, verdict
from empriv.words import scan as saying
from empriv.words import sentences as words
from empriv.words.summary import Summary

if TYPE_CHECKING:
    from empriv.collecting.engines.engine import ClusterEngine

_OTHER_DENSITY = (
    "`density` must be the one that the scan was made with: only the riskiest individuals are kept, and with another "
    "density others may be. Hint: scan again with density=..."
)
# Checks that look at everyone: the riskiest alone would give another answer.
_OF_EVERYONE = {"modes", "rare", "held-out", "exact-leak"}


@dataclass(frozen=True, eq=False)
class Scan:
    """How private a query is, with the riskiest individuals kept and the others summed up.

    Made by `empriv.scan`, and by `empriv.load` from a file.

    Attributes
    ----------
    epsilons, deltas : what was asked beforehand: nothing else can be told
    level : of the bounds
    bounded : whether upper bounds were computed
    tally : largest values, sums and counts over all individuals, and the riskiest
    risk : the riskiest individuals, measured: for looking closer, at any epsilon
    query, origin, density, component : as for `Audit`

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> scan = empriv.scan(data, "avg(delay)", epsilon=0.1, top=3)
    >>> len(scan.individuals(0.1)["delta_i"])
    3
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

    def bounds(
        self,
        epsilon: npt.ArrayLike,
        *,
        method: str = "analytic",
        engine: ClusterEngine | None = None,
        rng: int = 0,
        progress: bool | None = None,
    ) -> Bounds:
        """Lower bound, estimate and upper bound at the scan's ``level``, at epsilons that were asked for.

        The upper bound is over all individuals. The lower one looks for its set among the riskiest alone, which is
        honest: at worst it is weaker. ``estimate_i`` and ``upper_i`` are those of the riskiest.

        With ``method="bootstrap"``, databases are resampled (seed ``rng``) as a cross-check, for the riskiest alone;
        given a `SparkEngine`, in its executors.
        """
        if method not in METHODS:
            raise InputError(f"`method` must be one of {', '.join(METHODS)}, got {method!r}.")
        found = self._analytic(epsilon)
        if method == "analytic" or self.n_databases < LEAST_DATABASES:
            return found
        grid = np.array(self.epsilons)
        upper_i = resampled_upper(self.risk, grid, self.level, engine=engine, rng=rng, progress=progress)
        upper_i = np.maximum.accumulate(np.maximum(upper_i, self.tally.riskiest_delta_i)[:, ::-1], axis=1)[:, ::-1]
        places = [self.epsilons.index(one) for one in np.atleast_1d(np.asarray(epsilon, float)).tolist()]
        upper = np.maximum(upper_i.max(axis=0, initial=found.floor)[places], found.lower)
        one = np.ndim(epsilon) == 0
        return replace(
            found,
            method="bootstrap",
            upper=float(upper[0]) if one else upper,
            upper_i=upper_i[:, places[0]] if one else upper_i[:, places],
            total_risk_upper=float(max(upper[0], found.total_risk_upper))
            if one
            else np.maximum(upper, found.total_risk_upper),
            notes=(*found.notes, f"Databases were resampled for the {len(upper_i):,} riskiest individuals alone."),
        )

    def _analytic(self, epsilon: npt.ArrayLike) -> Bounds:
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

    def summary(self) -> Summary:
        """The scan in words, at the epsilons that were asked for."""
        return saying.summary_of(self)

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers; its keys are in docs/scale.md."""
        return saying.json_of(self)

    def __str__(self) -> str:
        return saying.text_of(self)

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
        """Read what `save` wrote; ``density`` is needed if it was of a kind of your own.

        A scan cannot be measured with another density: those who would then be the riskiest may be forgotten.
        """
        meta, arrays = read_archive(path, kinds=("scan",))
        known = meta.get("density")
        if density is None and known is None:
            raise InputError("`density` must be given: the scan was made with a density of your own.")
        if density is not None and known is not None and density_to_json(density) != known:
            raise InputError(_OTHER_DENSITY)
        try:
            everyone = nobody_listed(arrays["q"], arrays["outcomes"], arrays["databases"], meta["draws"])
            tally = Tally.from_parts(meta, arrays, everyone)
            recipe = density_from_json(meta["density"]) if density is None else density
            found = Scan(
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
        if known is None and not np.allclose(
            found.risk.delta_i(np.array(found.epsilons)), tally.riskiest_delta_i, rtol=1e-6, atol=1e-9
        ):
            raise InputError(_OTHER_DENSITY)
        return found

    def _at(self, epsilon: npt.ArrayLike, values: npt.NDArray[Any]) -> Any:
        grid = np.asarray(epsilon, float)
        places = [_place("epsilon", one, self.epsilons) for one in np.atleast_1d(grid).tolist()]
        return values[places[0]].item() if grid.ndim == 0 else values[places]


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
