"""What a notebook shows of a value: a few lines of HTML, made of text that is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

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


def _safe(text: str) -> str:
    return escape(visible(text))
