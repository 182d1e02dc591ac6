"""Point masses, in words: what each code says about a result."""

from __future__ import annotations

OUTCOMES = {
    "null": "is empty (null)",
    "nan": "is nan",
    "plus_infinity": "is plus infinity",
    "minus_infinity": "is minus infinity",
    "error": "is error",
    "common": "is the value that most databases have",
    "only_other": "is the only other value",
    "unseen": "is a number never seen with everyone",
    "off_lattice": "is off the lattice that all results with everyone lie on",
    "constant_without": "is constant, or mostly so, without the individual",
    "round_without": "is not round, as all results without the individual are",
}
_CODES = {f"result {words}": code for code, words in OUTCOMES.items()}


def outcome_name(code: str) -> str:
    """The outcome in words."""
    return f"result {OUTCOMES[code]}" if code in OUTCOMES else code


def outcome_code(name: str) -> str:
    """The inverse of `outcome_name`, for files, which hold names."""
    return _CODES.get(name, name)
