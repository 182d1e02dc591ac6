"""Text from data made harmless and short, pseudonyms with the key to them, and what a notebook shows of a value.

HTML is escaped by the templates, and JSON for a script by `script_json`; here go the characters that steer a reader's
eye or a program (controls, overrides of direction, line separators), which become escapes that can be seen.
"""

from __future__ import annotations

import hmac
import json
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Any

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def visible(text: str) -> str:
    """Text without characters that cannot be seen: they become escapes such as ``\\x1b``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def shortened(text: str, longest: int = 60) -> str:
    """Visible text of at most so many characters."""
    escaped = visible(text)
    return escaped if len(escaped) <= longest else escaped[: longest - 3] + "..."


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def pseudonyms(labels: Sequence[Any], salt: bytes, *, shortest: int = 8) -> list[str]:
    """Names of at least so many digits that differ with the salt; without it nobody can tell whom they mean."""
    digests = [hmac.digest(salt, repr(label).encode("utf-8", "backslashreplace"), "sha256").hex() for label in labels]
    names = digests
    for digits in range(shortest, 65, 4):
        names = [digest[:digits] for digest in digests]
        if len(set(names)) == len(names):
            break
    return names


def script_json(content: Any) -> str:
    """JSON that no HTML parser takes for markup, and no script for a line's end, wherever it is put."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    # only strings hold these characters, where an escape means the same
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


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
