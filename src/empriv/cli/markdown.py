"""The outcome of a check as Markdown, for the summary of a pull request: a pure function of the figures in JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from empriv.base.harmless import shortened
from empriv.words.sentences import number

_SIGNS = {"pass": "✅", "fail": "❌", "unresolved": "⚠️"}
_LONGEST = 300


def as_markdown(figures: Mapping[str, Any]) -> str:
    """Decision, promises and what was asked, in Markdown; ``figures`` are those of ``--json`` with a target."""
    decision, verdicts = figures["decision"], figures["verdicts"]
    worst = next((word for word in ("fail", "unresolved") if word in {v["verdict"] for v in verdicts}), "pass")
    lines = [f"### {_SIGNS[worst]} {_plain(decision['line'])}", ""]
    lines += [_plain(decision["reason"]), "", f"<sub>{_plain(decision['condition'])}</sub>", ""]
    lines += ["| promise | outcome | why |", "|---|---|---|"]
    lines += [
        f"| {_plain(v['target'])} | {_SIGNS[v['verdict']]} {v['verdict']} | {_plain(v['sentence'])} |" for v in verdicts
    ]
    lines.append("")
    first = figures["figures"][0]
    asked = [
        ("query", f"`{_code(figures['query'])}`"),
        ("databases", f"{figures['n_databases']:,}"),
        ("individuals", f"{figures['n_individuals']:,}"),
        (f"delta at epsilon {first['epsilon']:g}", number(first["delta"])),
    ]
    lines += [f"- {name}: {value}" for name, value in asked]
    warned = [check["sentence"] for check in figures["checks"] if check["severity"] in ("warning", "error")]
    if warned:
        lines += ["", f"<details><summary>{len(warned)} to look at</summary>", ""]
        lines += [*(f"- {_plain(sentence)}" for sentence in warned), "", "</details>"]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text that stays text in Markdown, in a table too, whatever it holds."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|&@~-])", r"\\\1", shortened(text, _LONGEST).replace("\n", " "))


def _code(text: str) -> str:
    """Text in a span of code, which backticks would end."""
    return shortened(text, _LONGEST).replace("`", "'").replace("|", "¦")
