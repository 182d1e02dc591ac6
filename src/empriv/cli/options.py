"""The options that commands share: what they are called, what they take, what their help says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from empriv.base.targets import PRESENCES, parse_target
from empriv.errors import InputError

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic only in its latest versions

F = TypeVar("F", bound=Callable[..., Any])
UNIDENTIFIED = ("error", "keep", "drop")


class Checked(ParamType):
    """A value that a function checks.

    ``check`` takes a text, or what it has made of one already, and raises an InputError; ``kinds`` and ``rule`` say
    what a file may hold; with ``several`` a file may hold a list, as one text does here.
    """

    def __init__(
        self, name: str, check: Callable[[Any], Any], kinds: tuple[type, ...] = (str,), rule: str = "a text", *,
        several: bool = False,
    ) -> None:  # fmt: skip
        self.name, self._check, self.kinds, self.rule, self.several = name, check, kinds, rule, several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._check(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def _columns(value: Any) -> tuple[Any, ...]:
    columns = tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(value)
    if not all(columns):
        raise InputError(f"must be a column, or several separated by commas, got {value!r}.")
    return columns


def _epsilons(value: Any) -> tuple[float, ...]:
    try:
        epsilons = tuple(float(part) for part in (value.split(",") if isinstance(value, str) else value))
    except ValueError:
        raise InputError(f"must be numbers of at least 0, separated by commas, got {value!r}.") from None
    for epsilon in epsilons:
        if not (math.isfinite(epsilon) and epsilon >= 0):
            raise InputError(f"must be numbers of at least 0, got {epsilon:g}.")
    return epsilons


def _table(value: Any) -> tuple[str, str]:
    """NAME=PATH as a pair; a table of the source itself as a pair of nothing and its name."""
    if isinstance(value, str) and value and "=" not in value:
        return "", value
    name, _, path = value.partition("=") if isinstance(value, str) else (value[0], "=", value[1])
    if not path or (not name and isinstance(value, str)):
        raise InputError("must be a table of the source, or read NAME=PATH for another.")
    return name, path


def _target(value: str) -> str:
    parse_target(value)
    return value


def _unit(value: str) -> str:
    from empriv.base.arguments import unit_name

    return unit_name(value)


def _noun(value: str) -> str:
    from empriv.base.arguments import noun_name

    return noun_name(value)


def _between(name: str, rule: str, limit: float) -> Checked:
    """A number above 0 and below a limit; ``rule`` says so."""

    def check(value: Any) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number < limit:
            raise InputError(f"must be {rule}, got {value!r}.")
        return number

    return Checked(name, check, (int, float), rule)


SECTIONS = {
    "The rows": (
        "database", "individual", "tables", "sql", "timezone", "subsamples", "fraction", "unidentified", "update",
    ),
    "The question": ("query", "epsilon", "target", "presence", "times", "known", "paper", "ledger"),
    "What is printed and written": (
        "unit", "noun", "top", "show_ids", "verbose", "quiet", "json", "save", "report",
    ),
    "How it runs": (
        "estimate", "memory_limit", "timeout", "in_chunks", "checkpoint", "config", "trust_config", "write_config",
    ),
}  # fmt: skip
"""Options of `empriv audit` under their headings in its help."""


class SectionedCommand(click.Command):
    """A command whose help lists its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = ((str(parameter.name), parameter.get_help_record(ctx)) for parameter in self.get_params(ctx))
        records = {name: record for name, record in found if record is not None}
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([records.pop(name) for name in names])
        with formatter.section("Help"):
            formatter.write_dl(list(records.values()))


COLUMNS = Checked("columns", _columns, several=True)
EPSILONS = Checked("epsilons", _epsilons, (int, float), "numbers of at least 0, and at least one number", several=True)
TABLE = Checked("table", _table)
TARGET = Checked("target", _target)
UNIT, NOUN = Checked("unit", _unit), Checked("noun", _noun)
SECONDS = _between("seconds", "a number of seconds above 0, up to a million", 1e6)
SHARE = _between("share", "a number between 0 and 1", 1.0)


def options(*several: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator."""

    def add(command: F) -> F:
        for option in reversed(several):
            command = option(command)
        return command

    return add


epsilon_option = click.option(
    "--epsilon", type=EPSILONS, metavar="E[,E...]",
    help="Epsilons to report. [default: those of --target, or 0.05,0.1,0.2]",
)  # fmt: skip
times_option = click.option(
    "--times", type=click.IntRange(min=1), metavar="N",
    help="Figures and targets of N publications, each from a database of its own. [default: 1]",
)  # fmt: skip
json_option = click.option(
    "--json", metavar="PATH", help="Write the figures, without identifiers; - prints them instead of the summary."
)
show_ids_option = click.option(
    "--show-ids", is_flag=True, default=None, help="Name the riskiest individuals, instead of pseudonyms for this run."
)
top_option = click.option(
    "--top", type=click.IntRange(min=0), metavar="N", help="How many individuals to list. [default: 3]"
)
presence_option = click.option(
    "--presence", type=click.Choice(PRESENCES),
    help="What a target is held against: a random database, as in the paper, and what people did on the days that "
    "they were in; or a random database alone. [default: both]",
)  # fmt: skip
target_option = click.option(
    "--target", multiple=True, type=TARGET, metavar="TARGET",
    help='Give a verdict on it, such as "delta <= 0.01 at 0.1" or "total_risk <= 0.05 at 0.1": exit with code 3 if it '
    "fails, 4 if it is unresolved. May be repeated.",
)  # fmt: skip
target_options = options(target_option, presence_option)
goal_option = click.option(
    "--target", multiple=True, type=TARGET, metavar="TARGET",
    help='What is to be met, such as "delta <= 0.01 at 0.1": the least error that meets it comes first; exit with '
    "code 3 if nothing does. One of delta and one of total_risk, at one epsilon.",
)  # fmt: skip
unit_option = options(
    click.option("--unit", type=UNIT, metavar="UNIT", help="Unit of the answer, such as min or €."),
    click.option(
        "--noun", type=NOUN, metavar="NOUN",
        help="What an individual is called, such as aircraft. [default: by the column that identifies it]",
    ),
)  # fmt: skip
limit_options = options(
    click.option("--memory-limit", metavar="SIZE", help="Such as 2GB: beyond it the engine writes to disk."),
    click.option("--timeout", type=SECONDS, metavar="SECONDS", help="How long the query may take. [default: no limit]"),
)
chunk_options = options(
    click.option(
        "--in-chunks/--in-memory", default=None,
        help="Measure people in chunks, keep the most exposed and total the others; or hold all results in memory. "
        "[default: in chunks where they do not fit in memory or within --memory-limit]",
    ),
    click.option(
        "--checkpoint", metavar="PATH",
        help="In chunks: save progress in this file, and continue from it when run again.",
    ),
)  # fmt: skip
quiet_option = click.option(
    "--quiet", "-q", is_flag=True, default=None, help="Print nothing; only the exit code matters."
)
verbose_option = click.option(
    "--verbose", "-v", is_flag=True, default=None, help="Also print reasons, notes, and what the figures rest on."
)
source_options = options(
    click.argument("files", nargs=-1, metavar="[FILES|postgresql://...]..."),
    click.option(
        "--database", metavar="EXPR",
        help="Column or SQL expression that says which database a row is in. Without it, each file is one database.",
    ),
    click.option(
        "--individual", type=COLUMNS, metavar="COL[,COL]", help="Column that says whom a row belongs to, or several."
    ),
    click.option(
        "--table", "tables", multiple=True, type=TABLE, metavar="TABLE|NAME=PATH",
        help="Which table of a PostgreSQL server or a database file is read; NAME=PATH is another table that the query "
        "joins. May be repeated.",
    ),
    click.option(
        "--sql", metavar="SELECT", help="In place of --table: one SELECT for the PostgreSQL server or SQLite file."
    ),
    click.option(
        "--timezone", metavar="ZONE",
        help="Such as Europe/Paris: where days begin, for times that are moments. [default: the column's own, or UTC]",
    ),
    click.option(
        "--subsamples", type=click.IntRange(min=2), metavar="N",
        help="Draw N random databases from one table, instead of --database: what is published is the answer of one.",
    ),
    click.option(
        "--fraction", type=SHARE, metavar="F",
        help="With --subsamples: everybody is in each of them with this probability. [default: 0.5]",
    ),
    click.option(
        "--unidentified", type=click.Choice(UNIDENTIFIED),
        help="Rows without an individual: refuse them, keep them as nobody's, or drop them. [default: error]",
    ),
)  # fmt: skip
query_option = click.option(
    "--query", metavar="SQL", help="SELECT ... FROM data, or an expression such as avg(amount)."
)
queries_option = click.option(
    "--query", multiple=True, metavar="SQL",
    help="SELECT ... FROM data, or an expression such as avg(amount). Repeated: all of them are released together.",
)  # fmt: skip
KEYS_ONLY = (
    click.Option(["--component"]),
    click.Option(["--scope"]),
    click.Option(["--density"]),
)
"""Keys of audit.toml that no command has as an option."""


def _each_known(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Everything that is known, one by one."""
    del ctx, param
    return tuple(part for text in given for part in split_at_commas(text))


def split_at_commas(text: str) -> list[str]:
    """Parts of a text between its commas, but for those inside parentheses, brackets or quotes, which belong to SQL."""
    parts, start, depth, quote = [], 0, 0, ""
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


known_option = click.option(
    "--known", multiple=True, metavar="WHAT", callback=_each_known,
    help="What readers know, several separated by commas or repeated. auto, the default of an audit: what everybody "
    "knows of databases with an order, as far as it takes. nothing: as in the paper. calendar; previous, or previous:2 "
    "for two answers; SQL such as count(*), a statistic of each database. buckets:SQL and own: the paper's "
    "Definition 4. unordered: databases have no order, although labels are dates or numbers.",
)  # fmt: skip
paper_option = click.option(
    "--paper", is_flag=True, default=None,
    help="Ask as the paper does: nothing is counted as known, databases are random, and the estimate decides.",
)  # fmt: skip
ledger_option = click.option(
    "--ledger", metavar="PATH", help="Audit together with what this ledger says was released from these databases."
)
report_option = click.option(
    "--report", metavar="PATH", help="Write the report, one page of HTML, with the key to its pseudonyms."
)
