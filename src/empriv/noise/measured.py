"""The risk that noise is designed for, of one number or of several, from whatever object holds it.

`auditing` registers how an audit holds its risk.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from empriv.errors import InputError
from empriv.measuring import GivenRisk, JointRisk, Risk


@singledispatch
def one_number(risk: Any) -> Risk:
    """The risk of one number that was given."""
    raise InputError(f"`risk` must be a Risk or an Audit, got {type(risk).__name__}.")


@one_number.register
def _(risk: Risk) -> Risk:
    return risk


@one_number.register
def _(risk: GivenRisk) -> Risk:
    if len(risk.atoms.names) or risk.atoms.own:
        raise InputError(
            "`risk` must be of results without outcomes that have a mass of their own to design noise given what is "
            "known, got some. Hint: design_noise(audit.risk), for somebody who knows nothing."
        )
    return risk.without_logarithm()  # noise is added to the results, not to their logarithms


@one_number.register
def _(risk: JointRisk) -> Risk:  # noqa: ARG001
    raise InputError(
        "`risk` must be that of one number, got several released together. "
        "Hint: design_joint_noise, which makes noise for all of them."
    )


@singledispatch
def several_numbers(risk: Any) -> JointRisk:
    """The risk of several numbers that was given."""
    raise InputError(f"`risk` must be a JointRisk, got {type(risk).__name__}. Hint: design_noise for one number.")


@several_numbers.register
def _(risk: JointRisk) -> JointRisk:
    return risk
