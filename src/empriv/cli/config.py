"""Settings of `empriv audit`: defaults, audit.toml, and the command line's own, put together.

Knows no numerics and no command line; docs/formats.md describes the file.
"""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any

from empriv.errors import InputError

UNIDENTIFIED = ("error", "keep", "drop")
BASES = ("bound", "estimate")
# Kinds of [protocols.NAME]: what each needs, and what it takes besides `query` and `base`.
PROTOCOL_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "plain": ((), ()),
    "rounded": (("to",), ()),
    "winsorised": (("column", "lower", "upper"), ()),
    "top_coded": (("column", "at"), ()),
    "suppressed": (("fewer_than",), ()),
    "k_threshold": (("k",), ()),
    "local_noise": (("column", "scale"), ("law",)),
    "subsampled": (("share",), ()),
    "laplace": (("sensitivity", "epsilon"), ("sampler",)),
    "gaussian": (("sensitivity", "epsilon", "delta"), ("sampler",)),
    "noised": (("noise",), ()),
}


@dataclass(frozen=True)
class Settings:
    """What `empriv audit` is to do; each field is a key of audit.toml."""

    files: tuple[str, ...] = ()
    database: str | None = None
    individual: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    epsilon: tuple[float, ...] = (0.05, 0.1, 0.2)
    density: str = "laplace:one-se"
    unidentified: str = "error"
    component: str | None = None
    adversary: tuple[str, ...] = ()
    buckets: int | None = None
    own_contribution: bool = False
    ledger: str | None = None
    scope: str = ""
    memory_limit: str | None = None
    json: str | None = None
    save: str | None = None
    report: str | None = None
    public: bool = False
    beside: bool = False
    fail_if: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    basis: str = "bound"
    show_ids: bool = False
    top: int = 5
    quiet: bool = False
    tables: Mapping[str, str] = field(default_factory=dict)
    truth: str | None = None
    draws: int | None = None
    rng: int = 0
    protocols: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def asked(self) -> str | list[str]:
        """The one query, or the list of several, as `empriv.audit` takes them."""
        return self.query[0] if len(self.query) == 1 else list(self.query)

    def check_adversary(self) -> None:
        """Refuse adversaries that do not go together."""
        if self.own_contribution and (self.adversary or self.buckets is not None):
            raise InputError("`own_contribution` must not be given with `adversary` or `buckets`.")
        if self.buckets is not None and not self.adversary:
            raise InputError("`buckets` must be given with `adversary`, which says what is known.")

    def check_comparison(self) -> None:
        """Refuse what `empriv compare` does not do."""
        for name in ("adversary", "ledger"):
            if getattr(self, name):
                raise InputError(f"`{name}` must not be given for a comparison, which is of each protocol alone.")
        if len(self.query) > 1:
            raise InputError("`query` must be one for a comparison, got several. Hint: one SELECT of several numbers.")


def settings_of(config: Mapping[str, Any], given: Mapping[str, Any]) -> Settings:
    """Settings from a file, overridden by those given on the command line (None: not given)."""
    return Settings(**{**config, **{name: value for name, value in given.items() if value is not None}})


def read_config(path: str | PathLike[str]) -> dict[str, Any]:
    """Settings in a file, each checked."""
    name = Path(path).name
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"`config` must be a file that can be read, got {name!r}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"`config` must be TOML, got {name!r}: {error}.") from None
    checked = {}
    for key, value in content.items():
        if key not in _CHECKS:
            near = difflib.get_close_matches(key, _CHECKS, n=1)
            hint = f" Hint: did you mean {near[0]!r}?" if near else f" Hint: known keys are {', '.join(_CHECKS)}."
            raise InputError(f"`config` must hold known keys only, got {key!r}.{hint}")
        checked[key] = _CHECKS[key](key, value)
    return checked


def to_toml(settings: Settings) -> str:
    """The file that makes these settings again."""
    lines = ["# empriv audit --config with this file repeats the audit."]
    for one in fields(settings):
        value = getattr(settings, one.name)
        if one.name not in ("tables", *_COMPARING) and value is not None and value != ():
            lines.append(f"{one.name} = {_toml(settings.asked if one.name == 'query' else value)}")
    if settings.tables:
        lines += ["", "[tables]", *(f"{_toml(name)} = {_toml(table)}" for name, table in settings.tables.items())]
    return "\n".join(lines) + "\n"


def epsilons_of(numbers: list[Any]) -> tuple[float, ...]:
    """Epsilons, checked."""
    if not numbers:
        raise InputError("`epsilon` must hold at least one number, got none.")
    for one in numbers:
        if isinstance(one, bool) or not isinstance(one, int | float) or not math.isfinite(one) or one < 0:
            raise InputError(f"`epsilon` must be numbers of at least 0, got {one!r}.")
    return tuple(float(one) for one in numbers)


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"`{key}` must be a text, got {_kind(value)}.")
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value:
        raise InputError(f"`{key}` must be a text or a list of texts, got {_kind(value)}.")
    return tuple(_text(key, one) for one in value)


def _epsilons(key: str, value: Any) -> tuple[float, ...]:
    del key
    return epsilons_of(value if isinstance(value, list) else [value])


def _switch(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"`{key}` must be true or false, got {_kind(value)}.")
    return value


def _count(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"`{key}` must be an integer of at least 0, got {value!r}.")
    return value


def _positive(key: str, value: Any) -> int:
    if _count(key, value) < 1:
        raise InputError(f"`{key}` must be an integer of at least 1, got {value!r}.")
    return int(value)


def _any_text(key: str, value: Any) -> str:
    return "" if value == "" else _text(key, value)


def _choice(key: str, value: Any) -> str:
    if value not in UNIDENTIFIED:
        raise InputError(f"`{key}` must be one of {', '.join(UNIDENTIFIED)}, got {value!r}.")
    return str(value)


def _basis(key: str, value: Any) -> str:
    if value not in BASES:
        raise InputError(f"`{key}` must be one of {', '.join(BASES)}, got {value!r}.")
    return str(value)


def _table(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InputError(f"`{key}` must be a table of names and paths, got {_kind(value)}.")
    return {name: _text(f"{key}.{name}", path) for name, path in value.items()}


def _protocols(key: str, value: Any) -> dict[str, dict[str, Any]]:
    """Tables of protocols: the kind is known, and every key is one that this kind takes."""
    if not isinstance(value, dict) or not value:
        raise InputError(f"`{key}` must be tables such as [{key}.rounded], got {_kind(value)}.")
    for name, table in value.items():
        where = f"{key}.{name}"
        if not isinstance(table, dict):
            raise InputError(f"`{where}` must be a table, got {_kind(table)}.")
        kind = table.get("kind")
        if kind not in PROTOCOL_KEYS:
            near = difflib.get_close_matches(str(kind), PROTOCOL_KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known kinds are {', '.join(PROTOCOL_KEYS)}."
            raise InputError(f"`{where}.kind` must be a known kind, got {kind!r}. Hint: {hint}")
        needed, more = PROTOCOL_KEYS[kind]
        allowed = ("kind", "query", "base", *needed, *more)
        for one in table:
            if one not in allowed:
                near = difflib.get_close_matches(one, allowed, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"its keys are {', '.join(allowed)}."
                raise InputError(f"`{where}` must hold keys of the kind {kind!r}, got {one!r}. Hint: {hint}")
        for one in needed:
            if one not in table:
                raise InputError(f"`{where}.{one}` must be given for the kind {kind!r}.")
        if "query" in table and "base" in table:
            raise InputError(f"`{where}` must have a query of its own or a base, got both.")
        for one in ("query", "base"):
            if one in table:
                _text(f"{where}.{one}", table[one])
        if table.get("base", name) not in value:
            raise InputError(f"`{where}.base` must name another protocol, got {table['base']!r}.")
    return {name: dict(table) for name, table in value.items()}


def _kind(value: Any) -> str:
    return "an empty one" if value in ("", []) else type(value).__name__


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "files": _texts,
    "database": _text,
    "individual": _texts,
    "query": _texts,
    "epsilon": _epsilons,
    "density": _text,
    "unidentified": _choice,
    "component": _text,
    "adversary": _texts,
    "buckets": _positive,
    "own_contribution": _switch,
    "ledger": _text,
    "scope": _any_text,
    "memory_limit": _text,
    "json": _text,
    "save": _text,
    "report": _text,
    "public": _switch,
    "beside": _switch,
    "fail_if": _texts,
    "target": _texts,
    "basis": _basis,
    "show_ids": _switch,
    "top": _count,
    "quiet": _switch,
    "tables": _table,
    "truth": _text,
    "draws": _positive,
    "rng": _count,
    "protocols": _protocols,
}
_COMPARING = ("truth", "draws", "rng", "protocols")  # keys of `empriv compare` alone
