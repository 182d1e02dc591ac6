"""What a notebook shows of a value: a few lines of HTML, made of text that is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from empriv.base.harmless import visible


def lines_html(title: str, lines: Sequence[str]) -> str:
    """A title over paragraphs."""
    return f"<div><strong>{_safe(title)}</strong>{''.join(f'<p>{_safe(line)}</p>' for line in lines)}</div>"


def table_html(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A title over a table."""
    head = "".join(f"<th>{_safe(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<div><strong>{_safe(title)}</strong><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def show_in_turn(title: str, sentences: Iterable[str], value: Any, html: Callable[[], str | None]) -> None:
    """Show in a notebook what is known of a value at once, a further line when it is, and all of it in the end.

    Where nothing can be replaced once it is shown, as in IPython's terminal, show the value in one line.
    """
    from IPython import get_ipython  # it is IPython that asks for this
    from IPython.display import display

    if not hasattr(get_ipython(), "kernel"):
        print(repr(value))
        return
    known: list[str] = []
    handle = display({"text/plain": repr(value)}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    for sentence in sentences:
        known.append(sentence)
        handle.update({"text/plain": repr(value), "text/html": lines_html(title, [*known, "…"])}, raw=True)
    handle.update({"text/plain": repr(value), "text/html": html()}, raw=True)


def _safe(text: str) -> str:
    return escape(visible(text))
