"""`Scan`: an audit whose risk was tallied: the riskiest individuals are kept, and the others are summed up.

An `Audit` holds every result and answers at any epsilon. A `Scan` answers only at the epsilons it was made for, but
there it answers like an audit. `tallied` is its risk, and `scanning` makes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import pairwise
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.auditing.audit import Audit
from empriv.auditing.knowledge import known_facts, known_from_parts, known_to_parts
from empriv.base.arguments import noun_name, unit_name
from empriv.base.storage import WRONG_FACTS, read_archive, write_archive
from empriv.collecting.origins import Origin, origin_from_json, origin_to_json, text, text_or_none
from empriv.errors import FileFormatError, InputError
from empriv.measuring import GivenRisk, Risk, measure_line
from empriv.measuring.densities.density import Density
from empriv.measuring.densities.specs import density_from_json, density_to_json
from empriv.results import FloatArray, Results
from empriv.scale.tallied import TalliedRisk
from empriv.scale.tally import Tally
from empriv.words.sentences import left_out_checks, nothing_known_in_scan
from empriv.words.summary import Summary

_OTHER_DENSITY = (
    "`density` must be the one that the scan was made with: only the riskiest individuals are kept, and with another "
    "density other people may be riskier. Hint: scan again with density=..."
)


@dataclass(frozen=True, eq=False)
class Scan(Audit):
    """How private a query is, with the riskiest individuals kept and the others summed up.

    Made by `empriv.scan`, and by `empriv.load` from a file.

    Attributes
    ----------
    results : with everyone, and without each of the riskiest individuals
    risk : the `TalliedRisk`; it can answer only what it was made for
    epsilons, query, origin, density, component : as for `Audit`

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> scan = empriv.scan(data, "avg(delay)", epsilon=0.1, top=3)
    >>> len(scan.individuals(0.1)["delta_i"])
    3
    """

    risk: TalliedRisk = field(repr=False)

    @property
    def riskiest(self) -> Risk:
        """The risk of the riskiest individuals, for a closer look at any epsilon."""
        return self.risk.riskiest

    @property
    def tally(self) -> Tally:
        """Largest values, sums and counts over all individuals."""
        return self.risk.tally

    @property
    def deltas(self) -> tuple[float, ...]:
        """The deltas for which `epsilon` can answer."""
        return self.risk.deltas

    @property
    def level(self) -> float:
        """Of the bounds."""
        return self.risk.level

    @property
    def bounded(self) -> bool:
        """Whether upper bounds were computed."""
        return self.risk.bounded

    def histogram(self, epsilon: float) -> dict[str, npt.NDArray[Any]]:
        """Individuals by delta_i: columns ``above``, ``up_to`` and ``individuals``; the first row are those at 0."""
        return self.risk.histogram(epsilon)

    @property
    def measured_against(self) -> object:
        """The risk that says what is counted as known, if anything is."""
        return self.riskiest

    @property
    def takes_noise(self) -> bool:
        """No: noise is designed for everyone at once."""
        return False

    def summary(self, epsilons: Iterable[float] | float | None = None) -> Summary:
        """The scan in words, with its bounds at the first epsilon and its checks."""
        summary = self.with_validity(super().summary(epsilons))
        known = () if known_facts(self.riskiest, ()) is not None else (nothing_known_in_scan(),)
        return replace(summary, notes=(*summary.notes, left_out_checks(), *known))

    def to_json(self, epsilons: Iterable[float] | float | None = None) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers; its keys are in docs/scale.md."""
        smallest = [(delta, self.epsilon(delta)) for delta in self.deltas]
        return super().to_json(epsilons) | {
            "format": "empriv scan figures",
            "known": known_facts(self.riskiest, ()),
            "epsilon_at": [{"delta": delta, "epsilon": e if math.isfinite(e) else None} for delta, e in smallest],
            "histograms": [
                {"epsilon": epsilon, **{name: column.tolist() for name, column in self.histogram(epsilon).items()}}
                for epsilon in self.epsilons
            ],
            "bounded": self.bounded,
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file of mode 0600, which `Scan.load` reads."""
        meta, arrays = self.tally.to_parts()
        everyone = self.results.to_parts()[1]
        given, known = known_to_parts(self.riskiest)
        facts = {
            "empriv": version("empriv"),
            "epsilons": list(self.epsilons),
            "deltas": list(self.deltas),
            "level": self.level,
            "bounded": self.bounded,
            "known": given,
            "query": self.query,
            "source": origin_to_json(self.origin),
            "density": density_to_json(self.density),
            "component": self.component,
            "draws": self.results.draws,
            "ordered": self.results.ordered,
            "unit": self.unit,
            "noun": self.noun,
        }
        if self.risk.source is not None:
            arrays["made_from_bounds"] = self.risk.source
        arrays |= {name: everyone[name] for name in ("q", "outcomes", "databases")}
        write_archive(path, kind="scan", meta={**meta, **facts}, arrays=arrays | known)

    @staticmethod
    def load(path: str | PathLike[str], *, density: Density | None = None) -> Scan:
        """Read what `save` wrote; ``density`` is needed if the scan used a class of your own.

        A scan cannot be measured with another density: the people who would then be the riskiest may not be in it.
        """
        meta, arrays = read_archive(path, kinds=("scan",))
        saved_density = meta.get("density")
        if density is None and saved_density is None:
            raise InputError("`density` must be given: the scan was made with a density of your own.")
        if density is not None and saved_density is not None and density_to_json(density) != saved_density:
            raise InputError(_OTHER_DENSITY)
        try:
            tally = Tally.from_parts(meta, arrays, Results.from_parts({**meta, "components": None}, arrays))
            source = arrays.get("made_from_bounds")
            if source is not None and source.shape != (2, len(tally.worst)):
                raise ValueError("made_from_bounds")
            if (len(meta["epsilons"]), len(meta["deltas"])) != (len(tally.worst), len(tally.epsilon_at)):
                raise ValueError("epsilons and deltas")
            if not (0.0 < meta["level"] < 1.0 and _rising(meta["epsilons"], math.inf) and _rising(meta["deltas"], 1.0)):
                raise ValueError("level, epsilons or deltas")
            recipe = density_from_json(meta["density"]) if density is None else density
            loaded = scan_of(
                tally,
                _measured_again(meta, arrays, tally, recipe),
                source=source,
                epsilons=tuple(map(float, meta["epsilons"])),
                deltas=tuple(map(float, meta["deltas"])),
                level=float(meta["level"]),
                bounded=bool(meta["bounded"]),
                query=text(meta["query"]),
                origin=origin_from_json(meta["source"]),
                density=recipe,
                component=text_or_none(meta["component"]),
                unit=unit_name(meta.get("unit", "")),
            )
            loaded = replace(loaded, noun=noun_name(meta.get("noun", "")))
        except WRONG_FACTS as error:
            raise FileFormatError(
                "The file is damaged: its facts about the scan are not what empriv writes."
            ) from error
        if saved_density is None and not np.allclose(
            loaded.riskiest.delta_i(np.array(loaded.epsilons)), tally.riskiest_delta_i, rtol=1e-6, atol=1e-9
        ):
            raise InputError(_OTHER_DENSITY)
        return loaded


def scan_of(
    tally: Tally,
    riskiest: Risk,
    *,
    source: FloatArray | None,
    epsilons: tuple[float, ...],
    deltas: tuple[float, ...],
    level: float,
    bounded: bool,
    query: str,
    origin: Origin | None,
    density: Density,
    component: str | None,
    unit: str = "",
) -> Scan:
    """The scan of a tally whose riskiest individuals were measured."""
    risk = TalliedRisk(riskiest.results, riskiest, tally, epsilons, deltas, level, bounded, source)
    return Scan(tally.riskiest, risk, epsilons, query, origin, density, component, unit=unit)


def _measured_again(
    meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], tally: Tally, recipe: Density
) -> Risk:
    """The riskiest, given what is known if anything is."""
    given = known_from_parts(meta.get("known"), arrays, tally.riskiest, recipe)
    if given is None:
        return _plainly_measured(tally.riskiest, recipe, tally.n_individuals)
    if not isinstance(given, GivenRisk):
        raise ValueError("kind of knowledge")
    return given.of_people(tally.riskiest, people=tally.n_individuals)


def _plainly_measured(results: Results, recipe: Density, people: int) -> Risk:
    risk = measure_line(results, recipe, people=people)
    if results.made_from is None:
        return risk
    return replace(risk, made_from=_plainly_measured(results.made_from, recipe, people))


def _rising(numbers: Sequence[float], most: float) -> bool:
    """Whether numbers that were read are finite, rise, and lie between 0 and ``most``."""
    within = all(math.isfinite(one) and 0 <= one <= most for one in numbers)
    return within and all(one < other for one, other in pairwise(numbers))
