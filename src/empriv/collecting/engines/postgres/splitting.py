"""A statement, cut in two: what is added up on the server, and what is made of it here.

The parts of a statement that read rows on the server become statements of their own, and tables of their answers take
their place. A part is run there if all that it reads is there; parts of one row for each pair of database and
individual, and what is smaller, travel. Rows themselves never do: where one part needs them here, `Untranslated` says
so. Tree in, trees out; nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from sqlglot import exp

from empriv.collecting.engines.postgres.dialect import Untranslated
from empriv.collecting.sql.templates import Node

Ask = Callable[[exp.Select], str]
"""Runs a SELECT on the server, and gives the name of the table here that has its rows."""


@dataclass
class Splitting:
    """The parts of a statement that are known so far.

    Attributes
    ----------
    there : names of tables that are on the server
    ask : runs what is to be run there
    defined : named parts that can be computed on the server, in their order
    kept : those of them whose rows travel, and the tables here that have these
    """

    there: frozenset[str]
    ask: Ask
    defined: dict[str, exp.CTE] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    def split(self, tree: Node) -> Node:
        """The statement to be run here."""
        holder = exp.Paren(this=tree.copy())
        if any(cte.alias.lower() in self.there for cte in holder.find_all(exp.CTE)):
            raise Untranslated("a name that hides a table")
        for select in _outermost(holder):
            select.replace(self._here(select))
        for table in holder.find_all(exp.Table):
            if table.name.lower() in self.there and not table.db:
                raise Untranslated("rows that are not added up")
        return cast(Node, holder.this)

    def _here(self, select: Node) -> Node:
        if isinstance(select, exp.SetOperation):
            for side in (select.this, select.expression):
                side.replace(self._here(side))
            return select
        assert isinstance(select, exp.Select)
        with_ = select.args.get("with_") or select.args.get("with")
        if isinstance(with_, exp.With):
            if with_.args.get("recursive") and self._reads(with_) & self._known:
                raise Untranslated("WITH RECURSIVE")
            for cte in list(with_.expressions):
                self._take(cte)
            left = [cte for cte in with_.expressions if cte.alias.lower() not in self.defined]
            with_.set("expressions", left)
            if not left:
                with_.pop()
        if self._reads(select) & (self._known - set(self.kept)) and self._is_there(select) and _adds_up(select):
            return exp.select("*").from_(self.ask(self._whole(select)))
        for table in _tables_in(select):
            name = table.name.lower()
            if name in self.kept:
                alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name))
                table.replace(exp.Table(this=exp.to_identifier(self.kept[name]), alias=alias.copy()))
            elif name in self.defined:
                raise Untranslated("rows that are not added up")
        for inner in _outermost(select, inside=True):
            inner.replace(self._here(inner))
        return select

    def _take(self, cte: exp.CTE) -> None:
        """A named part: run on the server, known for others that are, or left as it is."""
        body, name = cte.this, cte.alias.lower()
        if not self._reads(body) & (self._known - set(self.kept)):
            if self._reads(body) & set(self.kept):
                body.replace(self._here(body))  # made of what has travelled
            return
        if not self._is_there(body):
            body.replace(self._here(body))
            return
        if name in self.defined:
            raise Untranslated("a name that is given twice")
        self.defined[name] = cte.copy()
        if cte.args.get("materialized"):
            self.kept[name] = self.ask(self._whole(cast(exp.Select, body)))

    def _whole(self, select: exp.Select) -> exp.Select:
        """A SELECT with the named parts that it reads, and those that they read."""
        wanted: list[str] = []

        def want(node: Node) -> None:
            for name in self._reads(node) & set(self.defined):
                if name not in wanted:
                    want(self.defined[name].this)
                    wanted.append(name)

        want(select)
        whole = select.copy()
        if wanted:
            ordered = [name for name in self.defined if name in wanted]
            whole.set("with_", exp.With(expressions=[self.defined[name].copy() for name in ordered]))
        return whole

    @property
    def _known(self) -> set[str]:
        return {*self.there, *self.defined}

    def _reads(self, node: Node) -> set[str]:
        return {table.name.lower() for table in node.find_all(exp.Table) if not table.db}

    def _is_there(self, select: Node) -> bool:
        reads = self._reads(select)
        own = {cte.alias.lower() for cte in select.find_all(exp.CTE)}
        return bool(reads) and isinstance(select, exp.Select) and reads - own <= self._known


def _outermost(node: Node, *, inside: bool = False) -> Iterator[Node]:
    """The SELECTs below a node that stand in no other; with ``inside``, without those in its WITH."""
    found: list[Node] = []

    def look(at: Node) -> None:
        for child in at.iter_expressions():
            if isinstance(child, exp.With) and inside:
                continue
            if isinstance(child, exp.Query) and not isinstance(child, exp.Subquery):
                found.append(child)
            else:
                look(child)

    look(node)
    return iter(found)


def _tables_in(select: exp.Select) -> list[exp.Table]:
    """The tables that a SELECT reads itself, and not in a SELECT of its own."""
    sources = [select.args.get("from_") or select.args.get("from"), *(select.args.get("joins") or ())]
    return [source.this for source in sources if source is not None and isinstance(source.this, exp.Table)]


def _adds_up(select: exp.Select) -> bool:
    """Whether a SELECT gives fewer rows than it reads."""
    aggregates = any(item.find(exp.AggFunc) is not None for item in select.expressions)
    return bool(select.args.get("group") or select.args.get("distinct")) or aggregates
