"""Settings of a command, from defaults, audit.toml and the command line.

The command line's own options check the file's values, which are the defaults of the run: click's ``default_map``.
docs/pipeline.md describes the file.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from empriv.base.targets import Target, parse_target, parse_targets
from empriv.cli.options import KEYS_ONLY, Checked, F, options
from empriv.errors import InputError

NOTHING = "nothing"  # of --known: count nothing as known


@dataclass(frozen=True)
class Settings:
    """What `empriv audit` should do; each field is a key of audit.toml."""

    files: tuple[str, ...] = ()
    database: str | None = None
    individual: tuple[str, ...] = ()
    subsamples: int | None = None
    fraction: float | None = None
    table: str | None = None
    sql: str | None = None
    timezone: str | None = None
    query: tuple[str, ...] = ()
    epsilon: tuple[float, ...] = (0.05, 0.1, 0.2)
    times: int | None = None
    density: str = "laplace:one-se"
    unidentified: str = "error"
    component: str | None = None
    known: tuple[str, ...] = ()
    ledger: str | None = None
    scope: str = ""
    unit: str = ""
    noun: str = ""
    memory_limit: str | None = None
    timeout: float | None = None
    in_chunks: bool | None = None
    checkpoint: str | None = None
    json: str | None = None
    save: str | None = None
    report: str | None = None
    target: tuple[str, ...] = ()
    presence: str = "both"
    paper: bool = False
    show_ids: bool = False
    top: int = 3
    quiet: bool = False
    verbose: bool = False
    tables: Mapping[str, str] = field(default_factory=dict)

    @property
    def asked(self) -> str | list[str]:
        """The query, or the list of several, as `empriv.audit` takes them."""
        return self.query[0] if len(self.query) == 1 else list(self.query)

    @property
    def targets(self) -> tuple[Target, ...]:
        """What verdicts are asked for."""
        return parse_targets(self.target, presence=self.presence)

    @property
    def silent(self) -> bool:
        """Whether nothing is printed, or the figures alone."""
        return self.quiet or self.json == "-"

    def check_known(self) -> None:
        """Refuse what cannot be known together."""
        if self.paper and set(self.known) - {NOTHING}:
            raise InputError("`paper` must not be given with `known`: it counts nothing as known.")
        if self.known:
            from empriv.measuring.given.reader_knowledge import parse_known

            parse_known(self.known)

    def check(self) -> None:
        """Refuse also a density that there is none of."""
        from empriv.measuring.densities.density import density_from_text

        self.check_known()
        density_from_text(self.density)


def settings_of(config: Mapping[str, Any], given: Mapping[str, Any]) -> Settings:
    """Settings from a file, overridden by those given on the command line (None or nothing: not given).

    Without epsilons of their own, figures are reported at those of the targets.
    """
    values = {**config, **{name: value for name, value in given.items() if value not in (None, ())}}
    if not values.get("epsilon") and values.get("target"):
        values["epsilon"] = tuple(sorted({parse_target(text).epsilon for text in values["target"]}))
    tables = dict(values.get("tables", ()))
    own = {"table": tables.pop("")} if "" in tables else {}  # of the source itself
    return Settings(**{**values, **own, "tables": tables})


def settings_given(given: Mapping[str, Any]) -> Settings:
    """Settings of the command that runs now: its options, over the file of its --config."""
    in_file = click.get_current_context().default_map or {}
    own = [parameter.name for parameter in KEYS_ONLY]  # click gives a command the keys that are its options
    return settings_of({key: value for key, value in in_file.items() if key in own}, given)


def read_config(path: str | PathLike[str]) -> dict[str, Any]:
    """Settings in a file, each checked by the option of its name."""
    from empriv.base.storage import file_path

    name = Path(path).name
    try:
        content = tomllib.loads(file_path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"`config` must be a file that can be read, got {name!r}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # of TOML, of Unicode, of digits and brackets without end
        raise InputError(f"`config` must be TOML, got {name!r}: {error}.") from None
    if _beyond_64_bits(content):
        raise InputError(f"`config` must be TOML, got {name!r}: an integer has more than 64 bits.")
    # The command imports this module, and its options check the file: so it is imported here, once both exist.
    from empriv.cli.audit import audit

    parameters = {parameter.name: parameter for parameter in (*KEYS_ONLY, *audit.params)}
    keys = [setting.name for setting in fields(Settings)]
    checked: dict[str, Any] = {}
    for key, value in content.items():
        if key not in keys:
            hint = _nearest(key, keys, "known keys")
            raise InputError(f"{name}: `config` must hold known keys only, got {key!r}. Hint: {hint}")
        try:
            if key == "table":  # one option on the command line, two keys in a file
                checked["tables"] = (*checked.get("tables", ()), ("", _value(parameters["sql"], value)))
            elif key == "tables":
                checked[key] = (*checked.get(key, ()), *_value(parameters[key], value))
            else:
                checked[key] = _value(parameters[key], value)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        except click.BadParameter as error:  # from the option's own type
            rule = error.message if "must " in error.message else f"must be valid: {error.message}"
            raise InputError(f"{name}: {rule if rule.startswith('`') else f'`{key}` {rule}'}") from None
    return checked


def _beyond_64_bits(value: Any) -> bool:
    """Whether a value of a file holds an integer that TOML does not know; Python's reader takes any."""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, int) and not -(2**63) <= value < 2**63) or any(map(_beyond_64_bits, members))


def config_options(help_text: str, *, without: Collection[str] = ()) -> Callable[[F], F]:
    """--config, whose file gives the defaults of the other options (``without`` some keys), and --trust-config."""

    def read(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
        del param
        if path is not None and not ctx.resilient_parsing:
            try:
                ctx.default_map = {key: value for key, value in read_config(path).items() if key not in without}
            except InputError as error:
                raise click.UsageError(str(error), ctx) from None
        return path

    return options(
        click.option("--config", metavar="PATH", is_eager=True, callback=read, help=help_text),
        click.option(
            "--trust-config", is_flag=True,
            help="Let the file of --config use SQL as a source, and files outside its own folder, in this run.",
        ),
    )  # fmt: skip


def values_from_file(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a command's values that came from the file of --config."""
    source_of = click.get_current_context().get_parameter_source
    return {name: value for name, value in given.items() if source_of(name) is ParameterSource.DEFAULT_MAP}


def to_toml(settings: Settings) -> str:
    """The text of a file that gives these settings; user and password of a server are for the environment to know."""
    from empriv.collecting.sources import shown_address

    lines = ["# empriv audit --config with this file repeats the audit."]
    shown = tuple(map(shown_address, settings.files))
    if shown != settings.files:
        lines.append("# Credentials are not saved: set PGUSER and PGPASSWORD, or use .pgpass or a service.")
    settings = replace(settings, files=shown)
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if setting.name != "tables" and value is not None and value != ():
            lines.append(f"{setting.name} = {toml_text(settings.asked if setting.name == 'query' else value)}")
    tables = {name: shown_address(table) for name, table in settings.tables.items()}
    if tables:
        lines += ["", "[tables]", *(f"{toml_text(name)} = {toml_text(table)}" for name, table in tables.items())]
    text = "\n".join(lines) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("audit.toml must hold names that are Unicode, got one that is not.") from None
    return text


def toml_text(value: Any) -> str:
    """A value as TOML writes it, on one line."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_text, value))}]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, except for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _value(parameter: click.Parameter, value: Any) -> Any:
    """A value of the file as the option takes it; it must be of the option's own kind: the text "5" is not a number."""
    own = parameter.type
    kinds, rule = (own.kinds, own.rule) if isinstance(own, Checked) else _KINDS.get(own.name, ((str,), "a text"))
    several = getattr(parameter, "multiple", False) or parameter.nargs == -1 or getattr(own, "several", False)
    if parameter.name == "tables":
        if not isinstance(value, dict):
            raise InputError(f"`tables` must be a table of names and paths, got {type(value).__name__}.")
        for name, path in value.items():
            if not isinstance(path, str) or not path:
                raise InputError(f"`tables.{name}` must be a text, got {type(path).__name__}.")
        value = list(value.items())
    else:
        values = value if several and isinstance(value, list) else [value]
        if not values or any(type(member) not in kinds for member in values):
            got = type(values[0]).__name__ if values else "an empty list"
            listed = " or a list of texts" if several and str in kinds else ""
            raise InputError(f"`{parameter.name}` must be {rule}{listed}, got {got}.")
        if "" in values and parameter.name not in ("scope", "unit", "noun"):
            raise InputError(f"`{parameter.name}` must be {rule}, got an empty one.")
        value = values if several else value
    return parameter.type_cast_value(click.Context(click.Command("audit")), value)


def _nearest(word: str, known: Collection[str], all_of_them: str) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"{all_of_them} are {', '.join(known)}."


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer range": ((int,), "an integer"),
}
"""What a TOML value of one of click's own types must be, by the type's name; a text for all others."""
