"""The options that commands share: what they are called, what they take, what their help says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from empriv.cli.targets import parse_target
from empriv.errors import InputError

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic only in its latest versions

F = TypeVar("F", bound=Callable[..., Any])
UNIDENTIFIED = ("error", "keep", "drop")
BASES = ("bound", "estimate")
PRESENCES = ("both", "random")


class Separated(ParamType):
    """Several values in one text, separated by commas; or a list of them, from a file."""

    name = "columns"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        columns = tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(value)
        if not all(columns):
            self.fail(f"must be a column, or several separated by commas, got {value!r}.", param, ctx)
        return columns


class Epsilons(Separated):
    """Epsilons, each finite and at least 0."""

    name = "epsilons"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        try:
            epsilons = tuple(float(part) for part in (value.split(",") if isinstance(value, str) else value))
        except ValueError:
            self.fail(f"must be numbers of at least 0, separated by commas, got {value!r}.", param, ctx)
        for epsilon in epsilons:
            if not (math.isfinite(epsilon) and epsilon >= 0):
                self.fail(f"must be numbers of at least 0, got {epsilon:g}.", param, ctx)
        return epsilons


class Between(ParamType):
    """A number above 0 and below a limit; ``rule`` says so."""

    def __init__(self, name: str, rule: str, limit: float) -> None:
        self.name, self._rule, self._limit = name, rule, limit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number < self._limit:
            self.fail(f"must be {self._rule}, got {value!r}.", param, ctx)
        return number


SECONDS = Between("seconds", "a number of seconds above 0, up to a million", 1e6)
SHARE = Between("share", "a number between 0 and 1", 1.0)


class NamedPath(ParamType):
    """NAME=PATH as a pair; a name alone, which is a table of the source, as one of nothing and the name; or a pair."""

    name = "table"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, str) and value and "=" not in value:
            return "", value
        name, _, path = value.partition("=") if isinstance(value, str) else (value[0], "=", value[1])
        if not path or (not name and isinstance(value, str)):
            self.fail("must be a table of the source, or read NAME=PATH for another.", param, ctx)
        return name, path


class Sentence(ParamType):
    """A text that a parser understands, such as a target."""

    name = "sentence"

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            self._parse(value)
        except InputError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class ShortName(ParamType):
    """A unit or a noun, as `empriv.audit` takes it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from empriv.base.arguments import noun_name, unit_name

        try:
            return unit_name(value) if self.name == "unit" else noun_name(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def options(*several: Callable[[F], F]) -> Callable[[F], F]:
    def add(command: F) -> F:
        for option in reversed(several):
            command = option(command)
        return command

    return add


epsilon_option = click.option(
    "--epsilon",
    type=Epsilons(),
    metavar="E[,E...]",
    help="Epsilons to report. [default: those of --target, or 0.05,0.1,0.2]",
)
times_option = click.option(
    "--times",
    type=click.IntRange(min=1),
    metavar="N",
    help="Figures and targets of N publications, each from a database of its own. [default: 1]",
)
json_option = click.option(
    "--json", metavar="PATH", help="Write the figures, without identifiers; - prints them instead of the summary."
)
show_ids_option = click.option(
    "--show-ids/--hide-ids", default=None, help="Name the riskiest individuals, instead of pseudonyms for this run."
)
top_option = click.option(
    "--top", type=click.IntRange(min=0), metavar="N", help="How many individuals to list. [default: 3]"
)
target_options = options(
    click.option(
        "--target",
        multiple=True,
        type=Sentence(parse_target),
        metavar="TARGET",
        help='Give a verdict on it, such as "delta <= 0.01 at 0.1" or "total_risk <= 0.05 at 0.1": exit with code 3 '
        "if it fails, 4 if it is unresolved. May be repeated.",
    ),
    click.option(
        "--basis",
        type=click.Choice(BASES),
        help="What decides a verdict: the upper bound, or the estimate, as in the paper. [default: bound]",
    ),
    click.option(
        "--presence",
        type=click.Choice(PRESENCES),
        help="What a target is held against: a random database, as in the paper, and what people did on the days that "
        "they were in; or a random database alone. [default: both]",
    ),
)
unit_option = options(
    click.option("--unit", type=ShortName("unit"), metavar="UNIT", help="Unit of the answer, such as min or €."),
    click.option(
        "--noun", type=ShortName("noun"), metavar="NOUN",
        help="What an individual is called, such as aircraft. [default: by the column that identifies it]",
    ),
)  # fmt: skip
limit_options = options(
    click.option("--memory-limit", metavar="SIZE", help="Such as 2GB: beyond it the engine writes to disk."),
    click.option("--timeout", type=SECONDS, metavar="SECONDS", help="How long the query may take. [default: no limit]"),
)
estimate_option = click.option(
    "--estimate", is_flag=True,
    help="Say what an audit would take, rows, memory and seconds, from a small sample; run nothing.",
)  # fmt: skip
quiet_option = click.option("--quiet/--no-quiet", "-q", default=None, help="Print nothing; only the exit code matters.")
verbose_option = click.option(
    "--verbose/--no-verbose", "-v", default=None,
    help="Also print reasons, notes, a chart, and what the figures rest on.",
)  # fmt: skip
source_options = options(
    click.argument("files", nargs=-1, metavar="[FILES|postgresql://...]..."),
    click.option(
        "--database",
        metavar="EXPR",
        help="Column or SQL expression that says which database a row is in. Without it, each file is one database.",
    ),
    click.option(
        "--individual", type=Separated(), metavar="COL[,COL]",
        help="Column that says whom a row belongs to, or several.",
    ),
    click.option(
        "--table", "tables", multiple=True, type=NamedPath(), metavar="TABLE|NAME=PATH",
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
    "--query",
    multiple=True,
    metavar="SQL",
    help="SELECT ... FROM data, or an expression such as avg(amount). Repeated: all of them are released together.",
)


def _each_known(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Everything that is known, one by one; commas inside parentheses or quotes belong to SQL."""
    del ctx, param
    return tuple(part for text in given for part in split_at_commas(text))


def split_at_commas(text: str) -> list[str]:
    """Parts of a text between its commas, but for those inside parentheses, brackets or quotes."""
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
    "--known",
    multiple=True,
    metavar="WHAT",
    callback=_each_known,
    help="What readers know, several separated by commas or repeated. auto, the default of an audit: what everybody "
    "knows of databases with an order, as far as it takes. nothing: as in the paper. calendar; previous, or previous:2 "
    "for two answers; SQL such as count(*), a statistic of each database. buckets:SQL and own: the paper's "
    "Definition 4. unordered: databases have no order, although labels are dates or numbers.",
)
known_options = options(
    known_option,
    click.option(
        "--paper/--no-paper",
        default=None,
        help="Ask as the paper does: nothing is counted as known, databases are random, and the estimate decides.",
    ),
)
ledger_options = options(
    click.option(
        "--ledger", metavar="PATH", help="Audit together with what this ledger says was released from these databases."
    ),
    click.option(
        "--scope", metavar="NAME", help="Name of the body of data in the ledger, if the ledger covers several."
    ),
)
report_options = options(
    click.option(
        "--report", metavar="PATH", help="Write the report, one page of HTML, with the key to its pseudonyms."
    ),
    click.option(
        "--public/--no-public",
        default=None,
        help="Make a report that may be published: no individuals, no results, coarse figures.",
    ),
    click.option(
        "--answers/--no-answers",
        default=None,
        help="Show the answers themselves on the report, which leaves them out otherwise.",
    ),
    click.option(
        "--beside/--no-beside",
        default=None,
        help="Write the figures (.json), the individuals (.individuals.parquet) and the run (.toml) beside the report.",
    ),
)
