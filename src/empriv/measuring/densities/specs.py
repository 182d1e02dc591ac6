"""Densities as text, for the command line, and as JSON, for saved files.

Only empriv's own recipes can be written down. A user's own density is code, which a file must not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from empriv.errors import FileFormatError, InputError
from empriv.measuring.densities.density import RULES, BestOf, Density, Ecdf, Kde, VariableKde
from empriv.measuring.densities.kernels import KERNELS

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
