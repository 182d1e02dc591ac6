"""The risk that noise is designed for, of one number or of several, from whatever object holds it.

`auditing` registers how an audit holds its risk.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from empriv.errors import InputError
from empriv.measuring import GivenRisk, Risk, TableRisk


@singledispatch
def one_number(risk: Any) -> Risk:
    """The risk of one number that was given."""
    raise InputError(f"`risk` must be a Risk or an Audit, got {type(risk).__name__}.")


@one_number.register
def _(risk: Risk) -> Risk:
    return risk


@one_number.register
def _(risk: GivenRisk) -> Risk:
    if len(risk.atoms.names) or risk.atoms.own or risk.atoms.sure_residues:
        raise InputError(
            "`risk` must be of results without outcomes or last digits that have a mass of their own to design noise "
            "given what is known, got some. Hint: design_noise(audit.risk), for somebody who knows nothing."
        )
    return risk.without_logarithm()  # noise is added to the results, not to their logarithms


@singledispatch
def asks_presence(risk: Any) -> bool:  # noqa: ARG001 — dispatched on
    """Whether noise must serve on the day that people are in too, unless somebody says otherwise."""
    return True


@singledispatch
def unit_of(risk: Any) -> str:  # noqa: ARG001 — dispatched on
    """The unit of the answers, where somebody named one."""
    return ""


@singledispatch
def holds_no_answers(risk: Any) -> bool:  # noqa: ARG001 — dispatched on
    """Whether the results that noise is designed for are what is left of the answers given what is known."""
    return False


@holds_no_answers.register
def _(risk: GivenRisk) -> bool:  # noqa: ARG001 — as above
    return True


@singledispatch
def several_numbers(risk: Any) -> TableRisk:
    """The risk of several numbers that was given."""
    raise InputError(f"`risk` must be that of several numbers, got {type(risk).__name__}.")


@several_numbers.register
def _(risk: TableRisk) -> TableRisk:
    return risk


@singledispatch
def has_several(risk: Any) -> bool:  # noqa: ARG001 — dispatched on
    """Whether the risk, or the audit, is of several numbers."""
    return False


@has_several.register
def _(risk: TableRisk) -> bool:  # noqa: ARG001 — as above
    return True
