"""Statements as text: printed from their trees, so that what an engine is given was never written by anybody.

A text has two readers, the parser here and the engine's, and they differ somewhere. So a text is read once, as a tree;
the tree is looked at (`allowlist`); and what is sent is printed from it, with every name in quotes. `names_in` says
what a tree names, to be compared with what the engine finds in the printed text.

Names of empriv's own begin with ``empriv_``, which no query may use. When they are sent they carry a nonce besides,
drawn anew for each session: what nobody can guess, nothing in a query can mean. The rows are called so as well, and
not ``data``. Tree in, text out: nothing is run here.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

from sqlglot import exp, parse_one

from empriv.collecting.engines.engine import DATA, EVERYONE
from empriv.errors import QueryError

Node: TypeAlias = "exp.Expr"
AnyNode = TypeVar("AnyNode", bound="exp.Expr")


def text(node: Node) -> str:
    """SQL text of a tree."""
    return str(node.sql(dialect="duckdb"))


def same(one: Node, other: Node) -> bool:
    """Whether two trees are spelt alike; most are told apart without being spelt."""
    return one == other and text(one) == text(other)


def fill(template: str, **nodes: Node | int) -> Node:
    """Parse a template and put trees in the place of the columns of these names."""
    return put(_parsed(template).copy(), nodes)


def query(template: str) -> exp.Select:
    """Parse a SELECT."""
    return _placeless(parse_one(template, dialect="duckdb", into=exp.Select))


def put(tree: Node, nodes: Mapping[str, Node | int]) -> Node:
    """Put trees in the place of the columns of these names."""

    def place(node: Node) -> Node:
        if not isinstance(node, exp.Column) or node.table or node.name not in nodes:
            return node
        value = nodes[node.name]
        if isinstance(value, int):
            number = exp.Literal.number(abs(value))
            return number if value >= 0 else exp.Paren(this=exp.Neg(this=number))
        copied = value.copy()
        return exp.Paren(this=copied) if isinstance(copied, exp.Binary | exp.Neg | exp.Not) else copied

    return tree.transform(place, copy=False)


def reads_of_data(tree: Node) -> list[exp.Table]:
    """Where ``data`` is read."""
    return [table for table in tree.find_all(exp.Table) if table.name.lower() == DATA and not table.db]


def in_place_of(table: exp.Table, select: exp.Query) -> exp.Subquery:
    """A SELECT to stand where a table stands, under the same name, with what is joined to it and made of it there."""
    alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
    kept = {name: table.args[name] for name in ("joins", "laterals", "pivots") if table.args.get(name)}
    return exp.Subquery(this=select, alias=alias.copy(), **kept)


@lru_cache(maxsize=512)
def _parsed(template: str) -> Node:
    return _placeless(parse_one(template, dialect="duckdb"))


def _placeless(tree: AnyNode) -> AnyNode:
    """A tree that no longer knows where its words stood in the text: copying a tree would mostly be copying that."""
    for node in tree.walk():
        node._meta = None
    return tree


OWN_NAMES = "empriv_"
_QUOTED = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(\w*)\$.*?\$\1\$|--[^\n\r]*|/\*.*?\*/", re.DOTALL
)  # texts, names in quotes, and comments
_PLAIN = re.compile(r"[\x20-\x7e\t\n]|\r\n")
_OWN_WORD = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\bempriv_")
_CALL = re.compile(r'"?([A-Za-z_]\w*)"?\s*\(')


@dataclass(frozen=True)
class Names:
    """What a statement names: tables (each as often as it is read), columns, functions, and how many SELECTs it has."""

    tables: Counter[str]
    columns: frozenset[tuple[str, ...]]
    functions: frozenset[str]
    selects: int


def check_characters(text: str, what: str = "The query") -> None:
    """Refuse a text with characters that one reader may take for a letter and another for a space."""
    if "\0" in text:
        raise QueryError(f"{what} must not hold the character U+0000.")
    outside = _QUOTED.sub("", text)
    strange = _PLAIN.sub("", outside)
    if strange:
        hint = ' Hint: put a name with other letters in double quotes, as "Größe".' if strange[0].isalpha() else ""
        hint = " Hint: texts stand in straight quotes, as 'this'." if strange[0] in "‘’‚“”„" else hint
        raise QueryError(
            f"{what} must be written in plain (ASCII) characters outside quotes, got U+{ord(strange[0]):04X}.{hint}"
        )


def printed(tree: Node, nonce: str | None = None) -> str:
    """The text of a statement in DuckDB's SQL, with every name in quotes; with a nonce, ``data`` and own names too."""
    return str(
        (tree if nonce is None else with_nonce(tree, nonce)).sql(dialect="duckdb", identify=True, comments=False)
    )


def with_nonce(tree: Node, nonce: str, kept: Collection[str] = ()) -> Node:
    """A copy in which own names, and the rows themselves, carry a nonce; names in ``kept`` stay as they are."""
    found = tree.copy()
    for node in list(found.walk()):
        if isinstance(node, exp.Table) and node.name.lower() == DATA and not node.db and DATA not in kept:
            if isinstance(node.this, exp.Identifier) and not _of_its_with(node):
                if not node.alias:
                    node.set("alias", exp.TableAlias(this=exp.to_identifier(DATA, quoted=True)))
                node.set("this", exp.to_identifier(secret(EVERYONE, nonce), quoted=True))
        elif isinstance(node, exp.Identifier) and node.name.startswith(OWN_NAMES) and node.name not in kept:
            node.set("this", secret(node.name, nonce))
    return found


def secret(name: str, nonce: str) -> str:
    """An own name as it is sent."""
    prefix = f"{OWN_NAMES}{nonce}_"
    return name if name.startswith(prefix) else prefix + name.removeprefix(OWN_NAMES)


def plain(name: str, nonce: str) -> str:
    """An own name as it was before it was sent."""
    prefix = f"{OWN_NAMES}{nonce}_"
    return OWN_NAMES + name.removeprefix(prefix) if name.startswith(prefix) else name


def own_text(text: str, nonce: str) -> str:
    """A statement of empriv's own, written as text, with own names as they are sent; texts in quotes stay."""

    def put(found: re.Match[str]) -> str:
        word = found.group()
        for start in (OWN_NAMES, f'"{OWN_NAMES}'):
            if word.startswith(start):
                return f"{start}{nonce}_{word.removeprefix(start)}"
        return word

    return _OWN_WORD.sub(put, text)


def readable(tree: Node) -> Node:
    """A copy with short names for states and results, to be shown; sent, they are long, and nobody can guess them."""
    found = tree.copy()
    for node in found.find_all(exp.Identifier):
        node.set("this", re.sub(r"empriv_([a-z]\d+)", r"\1", node.name))
    return found


def names_in(tree: Node) -> Names:
    """What a tree names, in lower case."""
    tables: Counter[str] = Counter()
    columns: set[tuple[str, ...]] = set()
    functions: set[str] = set()
    selects = 0
    for node in tree.walk():
        if isinstance(node, exp.Table):
            if isinstance(node.this, exp.Identifier):
                tables[node.name.lower()] += 1
        elif isinstance(node, exp.Column):
            if not isinstance(node.this, exp.Star):
                columns.add(tuple(part.name.lower() for part in (*node.parts, *_fields(node))))
        elif isinstance(node, exp.Func):
            functions.add(called(node))
        elif isinstance(node, exp.Select | exp.Values):
            selects += 1
    return Names(tables, frozenset(columns), frozenset(functions), selects)


def called(node: Node) -> str:
    """The function that DuckDB is to call."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return str(node.name).lower()
    written = str(node.sql(dialect="duckdb"))
    call = _CALL.match(written)
    return (call.group(1) if call else re.split(r"\W", written)[0] or type(node).__name__).lower()


def _fields(column: exp.Column) -> list[exp.Expr]:
    """Names after those of a column: fields of a struct, which the engine reads as more parts of the same name."""
    found: list[exp.Expr] = []
    node: exp.Expr = column
    while (
        isinstance(node.parent, exp.Dot)
        and node.parent.this is node
        and isinstance(node.parent.expression, exp.Identifier)
    ):
        node = node.parent
        found.append(node.expression)
    return found


def _of_its_with(table: exp.Table) -> bool:
    """Whether a WITH around a table names it; a query cannot, but a statement made of one may."""
    scope = table.parent
    while scope is not None:
        with_ = scope.args.get("with_")
        if isinstance(with_, exp.With) and any(cte.alias.lower() == table.name.lower() for cte in with_.expressions):
            return True
        scope = scope.parent
    return False


KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "ORDER", "LIMIT", "JOIN", "LEFT", "INNER", "ON", "USING", "AND",
    "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END", "AS", "DISTINCT",
    "FILTER", "UNION", "WITH",
)  # fmt: skip
_COMMENT = r"--[^\n]*|/\*.*?(?:\*/|\Z)"
_SEVERAL = 12  # names that a sentence can hold


def pointed(text: str, line: int, column: int) -> str:
    """A line of a text, and below it a caret at a column; both count from 1. Empty if there is no such place."""
    lines = _masked(text).split("\n")
    if not 1 <= line <= len(lines):
        return ""
    shown = lines[line - 1].replace("\t", " ")
    return f"\n  {shown}\n  {' ' * max(0, min(column - 1, len(shown)))}^"


def placed(text: str, start: int | None) -> tuple[str, str]:
    """Words for a place in a text, and the line with a caret below; both empty where there is none."""
    if start is None or not text:
        return "", ""
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    return f" at line {line}, column {column}", pointed(text, line, column)


def unclosed(text: str) -> tuple[str, int, int] | None:
    """The first quote that nothing closes, with its line and column from 1; None if all are closed."""
    for found in re.finditer(rf"{_COMMENT}|'[^']*'|\"[^\"]*\"|(?P<open>['\"])", text, re.DOTALL):
        if found["open"]:
            at = found.start()
            return found["open"], text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return None


def misspelt_keyword(text: str, line: int, column: int) -> str | None:
    """A word just before or at this place that is nearly a keyword, as "'FORM' be FROM"; None if there is none."""
    lines = text.split("\n")
    before = "\n".join([*lines[: line - 1], lines[line - 1][:column]])
    for word in reversed(re.findall(r"[A-Za-z_]+", _masked(before))[-3:]):
        near = difflib.get_close_matches(word.upper(), KEYWORDS, n=1, cutoff=0.74)
        if near and word.upper() not in KEYWORDS:
            return f"{word!r} be {near[0]}"
    return None


def nearest(name: str, known: Iterable[str], *, at_least: float = 0.5) -> str:
    """End of a sentence about an unknown name: a hint at the nearest that is known."""
    names = list(known)
    near = difflib.get_close_matches(_plain(name), [_plain(one) for one in names], n=1, cutoff=at_least)
    if not near:
        return "."
    return f". Hint: did you mean {next(one for one in names if _plain(one) == near[0])!r}?"


def listed(names: Iterable[str]) -> str:
    """Names in quotes, not too many of them."""
    every = list(names)
    rest = "" if len(every) <= _SEVERAL else f" and {len(every) - _SEVERAL} more"
    return ", ".join(map(repr, every[:_SEVERAL])) + rest


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().lower())


def _masked(text: str) -> str:
    """A query with dots in the place of texts, comments and numbers of four digits or more; as long as before."""

    def dots(found: re.Match[str]) -> str:
        inner = found.group()
        closed = len(inner) > 1 and inner[0] == inner[-1] == "'"
        edge = "'" if inner[0] == "'" else ""
        inside = inner[len(edge) : len(inner) - closed]
        return edge + re.sub(r"[^\n]", "…", inside) + ("'" if closed else "")

    # A text that is not closed goes on to the end.
    return re.sub(rf"{_COMMENT}|\$\$.*?(?:\$\$|\Z)|'[^']*'|'[^']*\Z|\b\d{{4,}}\b", dots, text, flags=re.DOTALL)
