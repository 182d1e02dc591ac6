"""`script_of`: the Python program that makes an audit, its page and its figures anew, from its settings alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from empriv.cli.config import Settings
from empriv.cli.targets import parse_target
from empriv.errors import InputError

_DEFAULT = Settings()
_SCRIPT = '''"""The audit that {name}.toml describes, its page and its figures, as `empriv audit` writes them."""

import json
from pathlib import Path

import empriv

data = {data}
audit = empriv.audit({audit}){repeated}
verdicts = [{verdicts}]
audit.save("{name}.empriv")
page = audit.report("{name}.html", verdicts=verdicts{config})
figures = audit.to_json()
if verdicts:
    figures["decision"] = page.decision.to_json()
    figures["verdicts"] = [{{"target": target, **verdict.to_json()}} for target, verdict in verdicts]
Path("{name}.json").write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\\n", encoding="utf-8")
print(page.decision)
'''
_NOISE = """
noise = empriv.design_noise({noise})
noise.save("{name}.noise.empriv")
# One release spends privacy, and is written down. The same release again gives the same answer.
# ledger = empriv.Ledger({ledger}, create=False)
# print(audit.release(answer, noise=noise, ledger=ledger, database=label).answer)
"""


def script_of(name: str, settings: Settings, noise: Mapping[str, Any] | None = None, ledger: str = "") -> str:
    """A program that does what `empriv audit` does with these settings, and designs the noise again, if there is some.

    Parameters
    ----------
    name : of the audit's files
    settings : what its TOML says
    noise : arguments of `design_noise`, if noise was designed
    ledger : file of the ledger
    """
    if not (settings.files and settings.individual and settings.query):
        raise InputError("The settings must say which data, who and what: a script is made of them.")
    verdicts = "".join(f"\n    ({_text(text)}, audit.verdict({_limits(settings, text)}))," for text in settings.target)
    script = _SCRIPT.format(
        name=name, data=_data(settings), audit=_call(_audit(settings), "data", _text(settings.asked)),
        repeated="" if settings.times is None else f".repeated({settings.times})",
        verdicts=f"{verdicts}\n" if verdicts else "",
        config=f', config=Path("{name}.toml").read_text(encoding="utf-8")',
    )  # fmt: skip
    if noise is None:
        return script
    arguments = _call({key: _text(value) for key, value in noise.items() if value is not None}, "audit")
    return script + _NOISE.format(name=name, noise=arguments, ledger=_text(ledger))


def _data(settings: Settings) -> str:
    """The call that describes the databases."""
    source: Any = settings.files[0] if len(settings.files) == 1 else list(settings.files)
    whole = settings.database is not None or settings.subsamples is not None
    if whole and not isinstance(source, str):
        raise InputError("`files` must be one for a script: several that make one table are for the command line.")
    given: dict[str, Any] = {
        "database": settings.database, "individual": list(settings.individual), "count": settings.subsamples,
        "fraction": None if settings.subsamples is None else settings.fraction or 0.5, "table": settings.table,
        "sql": settings.sql, "tables": dict(settings.tables) or None, "timezone": settings.timezone,
        "unidentified": None if settings.unidentified == _DEFAULT.unidentified else settings.unidentified,
    }  # fmt: skip
    function = "databases" if settings.subsamples is None else "subsamples"
    named = {key: _text(value) for key, value in given.items() if value is not None}
    return f"empriv.{function}({_call(named, _text(source))})"


def _audit(settings: Settings) -> dict[str, str]:
    """Arguments of `audit`, as Python writes them; those that are as by default are left out."""
    arguments = {"epsilon": _text(list(settings.epsilon))}
    for key in ("component", "scope", "unit", "noun", "memory_limit", "timeout"):
        value = getattr(settings, key)
        if value != getattr(_DEFAULT, key):
            arguments[key] = _text(value)
    if settings.density != _DEFAULT.density:
        arguments["density"] = _density(settings.density)
    if settings.ledger is not None:
        arguments["ledger"] = f"empriv.Ledger({_text(settings.ledger)}, create=False)"
    if settings.known and settings.known != ("auto",):
        arguments["known"] = _text(settings.known[0] if len(settings.known) == 1 else list(settings.known))
    return arguments


def _density(text: str) -> str:
    """The density of this name, as Python makes it."""
    from empriv.measuring.densities.specs import density_from_text

    return re.sub(r"\b([A-Z]\w+)\(", r"empriv.\1(", repr(density_from_text(text)))


def _limits(settings: Settings, target: str) -> str:
    parsed = parse_target(target)
    limits = {"epsilon": parsed.epsilon, parsed.figure: parsed.limit}
    asked = {**limits, "basis": settings.basis, "presence": settings.presence}
    return _call({key: _text(value) for key, value in asked.items()})


def _call(named: Mapping[str, str], *first: str) -> str:
    """What is between the parentheses of a call."""
    return ", ".join([*first, *(f"{key}={value}" for key, value in named.items())])


def _text(value: Any) -> str:
    """A value as Python writes it, in the quotes that people use, and in letters that no editor hides."""
    if isinstance(value, str):
        plain = ascii(value)
        return f'"{plain[1:-1]}"' if '"' not in value and plain[0] == "'" else plain
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return ascii(value)
