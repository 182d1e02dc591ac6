"""`TableNoise`: noise on each cell of a table, judged as the table is (docs/noise.md, "Tables").

Independent noise on each of several numbers. What it achieves is the judge's bound of the table with this noise, of
every day of everybody (`validate.table_cover`); its scales are found by bisection (`design.table_design`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np

from empriv.base.arguments import finite_epsilon, finite_number, one_epsilon, one_of, probability
from empriv.base.storage import WRONG_FACTS, read_archive, write_archive
from empriv.base.targets import PRESENCES
from empriv.base.text import table_html
from empriv.errors import CertificateError, FileFormatError, InputError
from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring import TableRisk
from empriv.measuring.given.regression import Term
from empriv.measuring.tables.relations import Relations, relations_of
from empriv.measuring.tables.table_risk import measure_table
from empriv.noise import drawing
from empriv.noise.judging import kernel_of as kernel_of_part
from empriv.noise.judging import subject_of
from empriv.noise.law import Law
from empriv.results import FloatArray, Results
from empriv.validate.bounds import bounds
from empriv.validate.checks import outlasting_noise
from empriv.validate.table_bounds import table_upper
from empriv.validate.table_cover import table_cover_of
from empriv.words.sentences import amount


@dataclass(frozen=True, eq=False)
class TableNoise:
    """Independent noise for each of several numbers, and what it achieves.

    Made by `empriv.design_noise` of several numbers, and by `empriv.load` from a file.

    Attributes
    ----------
    laws : the law of each number's noise: Laplace for all of them, or Gaussian
    risk : the risk of the numbers without noise
    epsilon, delta : the target
    declared_granularity : whether the granularity was given, as a release demands
    consistent : whether cells are made to add up again after the noise, as they do without it
    presence : where the target is met: "both" on the day that people are in, and so in a random database, or "random"
    given : whether it was designed given what readers know; then the checks are those of the audit it was designed for

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, (2, 60))
    >>> vector = {name: empriv.Results.from_arrays(x, [x - 1.0]) for name, x in zip("ab", q)}
    >>> risk = empriv.measure(empriv.Results.stack(vector))
    >>> noise = empriv.design_noise(risk, epsilon=0.5, delta=0.05, granularity=0.25)
    >>> {name: law.granularity for name, law in noise.laws.items()}
    {'a': 0.25, 'b': 0.25}
    """

    laws: Mapping[str, Law]
    risk: TableRisk = field(repr=False)
    epsilon: float
    delta: float
    declared_granularity: bool
    consistent: bool = False
    presence: str = "both"
    given: bool = False

    def __repr__(self) -> str:
        return f"TableNoise({len(self.laws)} numbers, epsilon {self.epsilon:g}, delta {self.delta:g})"

    def _repr_html_(self) -> str:
        rows = [[name, f"±{amount(law.expected_error)}", law.words] for name, law in self.laws.items()]
        title = f"Noise for {len(self.laws)} numbers together, epsilon {self.epsilon:g}, delta {self.delta:g}"
        return table_html(title, ("number", "expected error", "law"), rows)

    @property
    def expected_error(self) -> dict[str, float]:
        """Mean absolute noise of each number."""
        if self.consistent:
            deviations = np.sqrt(self.relations.variances_added_up(self._variances))
            return dict(zip(self.laws, (np.sqrt(2 / np.pi) * deviations).tolist(), strict=True))
        return {name: law.expected_error for name, law in self.laws.items()}

    @cached_property
    def relations(self) -> Relations:
        return relations_of(self.risk.results)

    @property
    def _variances(self) -> FloatArray:
        """Of each number's noise: twice the square of a Laplace scale."""
        parts = [law.parts[0] for law in self.laws.values()]
        return np.array([(2.0 if part.kind == "laplace" else 1.0) * part.scale**2 for part in parts])

    # What it achieves

    @cached_property
    def cell_kernels(self) -> Mapping[str, NoiseKernel | None]:
        """The noise of each number as the judge takes it."""
        out = {}
        for name, law in self.laws.items():
            if len(law.parts) > 1 or law.parts[0].kind not in ("laplace", "gaussian", "point"):
                raise CertificateError(
                    "Noise on a table must be Laplace or Gaussian noise on each number, got another."
                )
            out[name] = kernel_of_part(law, law.parts[0])
        return out

    def achieved_delta(self, epsilon: float | None = None) -> float:
        """Upper bound of the largest delta_i with this noise, by default at the target's epsilon; 95% confidence."""
        at = self.epsilon if epsilon is None else one_epsilon(epsilon)
        if at not in self._known:
            self._known[at] = table_upper(self.risk, tuple(self.cell_kernels.values()), at, self.delta, self.presence)
        return self._known[at]

    def achieved_delta_i(self, epsilon: float | None = None) -> FloatArray:
        """The same for each individual in a random database."""
        return bounds(self.risk, self.epsilon if epsilon is None else one_epsilon(epsilon), noise=self).upper_i

    @cached_property
    def _known(self) -> dict[float, float]:
        return {}

    @property
    def holds(self) -> bool:
        """Whether the bound meets the target."""
        return self.achieved_delta() <= self.delta

    def hides_day(self, results: Results) -> bool:
        """Whether all that people did on these databases is hidden: their own leave-one-out."""
        return table_cover_of(self.risk, self).hides(results, self.epsilon, self.delta)

    @property
    def method(self) -> str:
        """How it was designed."""
        return "least"

    @property
    def notes(self) -> tuple[str, ...]:
        """What is promised, and on what it rests, in sentences."""
        where = "on the day that people are in, and so in a random database" if self.presence == "both" else (
            "in a random database"
        )  # fmt: skip
        said = [
            f"The upper bound of everybody's delta with this noise meets the target {where}; cells that a person does "
            "not touch are taken as known without noise.",
            "Holds for moves as large as were seen: a release checks those of its own day.",
        ]
        return (*said, _ADDED_UP) if self.consistent else tuple(said)

    def certified_for(self, risk: Any) -> TableNoise:
        """The same noise, with what it achieves computed again for this risk."""
        table = subject_of(risk).risk
        if not isinstance(table, TableRisk):
            raise InputError(f"`risk` must be that of several numbers, got {type(table).__name__}.")
        if tuple(table.each_number) != tuple(self.laws):
            raise InputError("`noise` must be for the numbers of the audit, got noise for others.")
        made = replace(self, risk=table)
        if not made.holds:
            raise CertificateError(
                "Noise must keep its promise for the audit at hand, and this one does not. Nothing is released."
            )
        return made

    @property
    def claim(self) -> str:
        """What the noise claims, as one text: laws and target."""
        return json.dumps(self._facts(), sort_keys=True)

    @cached_property
    def _lasting(self) -> tuple[str, ...]:
        """What no noise mends. Given what is known, the audit was asked when the noise was designed for it."""
        return () if self.given else outlasting_noise(self.risk, self.epsilon)

    def check_release(self) -> None:
        """Refuse to release where the promise is not kept, or the granularity was not declared."""
        if not self.holds:
            raise CertificateError("Nothing is released: the noise does not keep what was promised.")
        if not self.declared_granularity:
            raise InputError(
                "`granularity` must be declared for a release, since one taken from the data may reveal something "
                "about them. Hint: design_noise(..., granularity=0.25)."
            )
        if self._lasting:
            raise CertificateError(
                f"It cannot be told whether the noisy answers are private enough. {self._lasting[0]}"
            )

    def release(self, values: Mapping[str, float]) -> dict[str, float]:
        """Noisy answers, drawn from the operating system's entropy; all numbers at once, and once."""
        self.check_release()
        if set(values) != set(self.laws):
            raise InputError(f"`values` must hold each of the {len(self.laws)} numbers by name, and no other.")
        noisy = {name: float(drawing.release(law, values[name])) for name, law in self.laws.items()}
        if not self.consistent:
            return noisy
        cells = self.relations.added_up(np.array(list(noisy.values())), self._variances)
        return dict(zip(self.laws, cells.tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers or results."""
        return {
            "format": "empriv table noise",
            "version": 1,
            **self._facts(),
            "words": {name: law.words for name, law in self.laws.items()},
            "expected_error": self.expected_error,
            "achieved_delta": self.achieved_delta(),
            "holds": self.holds,
            "notes": list(self.notes),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file of mode 0600, which `load` reads. It holds the results: it is as secret as they are."""
        meta, arrays = self.risk.results.to_parts()
        known = self.risk.known  # the noise is judged again beside it
        facts = {"empriv": version("empriv"), "known": [[term.name, term.lag] for term in known], **self._facts()}
        columns = {f"known_{k}": term.columns for k, term in enumerate(known)}
        write_archive(path, kind="table noise", meta={**meta, **facts}, arrays={**arrays, **columns})

    @staticmethod
    def load(path: str | PathLike[str]) -> TableNoise:
        """Read what `save` wrote; what the laws achieve is computed anew, nothing is taken on trust."""
        meta, arrays = read_archive(path, kinds=("table noise",))
        results = Results.from_parts(meta, arrays)
        try:
            laws = {str(name): Law.from_json(law) for name, law in meta["laws"].items()}
            if tuple(laws) != results.components or not isinstance(meta["declared_granularity"], bool):
                raise TypeError("facts")
            if not isinstance(meta["consistent"], bool) or not isinstance(meta["given"], bool):
                raise TypeError("facts")
            known = [
                Term(str(name), _columns(arrays[f"known_{k}"], results.n_databases), None, int(lag))
                for k, (name, lag) in enumerate(meta["known"])
            ]
            return TableNoise(
                laws=laws,
                risk=measure_table(results, known=known),
                epsilon=finite_epsilon(finite_number("epsilon", meta["epsilon"])),
                delta=probability("delta", finite_number("delta", meta["delta"])),
                declared_granularity=meta["declared_granularity"],
                consistent=meta["consistent"],
                presence=one_of("presence", meta["presence"], PRESENCES),
                given=meta["given"],
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
            "given": self.given,
            "consistent": self.consistent,
            "presence": self.presence,
        }


def _columns(values: FloatArray, n: int) -> FloatArray:
    """What was known of each database, as it was read."""
    if values.dtype != np.float64 or values.ndim != 2 or len(values) != n or not np.isfinite(values).all():
        raise TypeError("known")
    return values


_ADDED_UP = (
    "Cells are made to add up again after the noise, which needs no more of the data. They are no multiples of the "
    "granularity then."
)
