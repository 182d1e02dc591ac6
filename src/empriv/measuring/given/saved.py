"""What readers know, as the file of an audit or of noise holds it: the terms, and how much was chosen of them.

Loading measures anew: the last step that was taken is taken again with its tests, so that a file can add to what is
known, and never take from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.measuring.densities.density import Density
from empriv.measuring.given.given_risk import GivenRisk, Step, measure_given
from empriv.measuring.given.reader_knowledge import Given
from empriv.measuring.given.regression import Term
from empriv.results import Results


def given_to_parts(
    given: Given, terms: Sequence[Term], steps: Sequence[Step], *, logarithm: bool
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Facts and arrays."""
    values = [np.asarray(term.values) for term in terms]
    facts = {
        "kind": "given",
        "words": list(given.words),
        "knows": [term.name for term in terms],
        "labels": [value.tolist() if term.is_category else None for term, value in zip(terms, values, strict=True)],
        "log_taken": logarithm,
        "steps": [asdict(step) for step in steps],
    }
    numbers = ((place, value) for place, value in enumerate(values) if not terms[place].is_category)
    return facts, {f"known_{place}": value for place, value in numbers}


def risk_to_parts(risk: GivenRisk) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Those of the risk of one number."""
    return given_to_parts(risk.given, risk.quantities, risk.steps, logarithm=risk.residuals.logarithm)


def values_from_parts(facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """The values of each quantity on each database."""
    return [
        arrays[f"known_{place}"] if labels is None else np.array(labels, object)
        for place, labels in enumerate(facts["labels"])
    ]


def given_from_parts(facts: Mapping[str, Any]) -> tuple[Given, list[Step]]:
    """What is known, and the steps that were taken; invalid facts raise KeyError, TypeError or ValueError."""
    if facts["kind"] != "given":
        raise ValueError("kind of knowledge")
    given = Given.of_words([str(word) for word in facts["words"]], [str(name) for name in facts["knows"]])
    return given, [_step(step) for step in facts.get("steps", ())]


def risk_from_parts(
    facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], results: Results, density: Density,
    *, positive: bool = True,
) -> GivenRisk:  # fmt: skip
    """The risk of one number given the same; ``positive`` as for `choose`."""
    given, taken = given_from_parts(facts)
    values = values_from_parts(facts, arrays)
    return measure_given(results, given, values, density=density, positive=positive, taken=taken)


def _step(facts: Mapping[str, Any]) -> Step:
    step = Step(str(facts["name"]), float(facts["p"]), str(facts["statistic"]), facts["bends"] is True)
    if not 0 <= step.p <= 1:
        raise ValueError("p")
    return step
