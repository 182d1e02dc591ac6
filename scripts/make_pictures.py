"""Draw docs/images/demo.svg: what `empriv demo` prints, as a picture. Run: python scripts/make_pictures.py"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
COLUMNS, LINE, CHARACTER = 100, 17, 7.83
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def row(line: str, y: float) -> str:
    """One line: every character at its own place, braille as dots, so that no font can shift them."""
    places = " ".join(f"{20 + k * CHARACTER:.1f}" for k in range(len(line)))
    text = "".join(" " if is_braille(c) else c for c in line)
    dots = "".join(
        f'<circle cx="{20 + (k + 0.3 + 0.4 * across) * CHARACTER:.1f}" cy="{y - 11 + 4 * down:.1f}" r="1.3"/>'
        for k, c in enumerate(line)
        if is_braille(c)
        for down, bits in enumerate(BRAILLE)
        for across, bit in enumerate(bits)
        if ord(c) - 0x2800 & bit
    )
    return f'<text x="{places}" y="{y}" xml:space="preserve">{escape(text)}</text>{dots}'


def is_braille(character: str) -> bool:
    return 0x2800 <= ord(character) < 0x2900


def picture(lines: list[str]) -> str:
    """A terminal window with these lines in it."""
    width, height = COLUMNS * CHARACTER + 40, len(lines) * LINE + 64
    rows = "\n".join(row(line, 56 + k * LINE) for k, line in enumerate(lines) if line.strip())
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img"
 aria-label="What empriv demo prints">
<rect width="100%" height="100%" rx="8" fill="#15202b"/>
<circle cx="22" cy="20" r="6" fill="#e06c60"/><circle cx="42" cy="20" r="6" fill="#e0b050"/>
<circle cx="62" cy="20" r="6" fill="#6fb36f"/>
<g fill="#dbe4ec" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13">
{rows}
</g>
</svg>
"""


def main() -> None:
    beside = Path(sys.executable).parent  # on the path, `empriv` is called by its name in what is printed
    path = os.pathsep.join([str(beside), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "COLUMNS": str(COLUMNS), "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory() as folder:  # the demo writes its page where it runs
        shown = subprocess.run(
            [str(beside / "empriv"), "demo"], env=environment, check=True, capture_output=True, text=True,
            cwd=folder,
        ).stdout.replace(f"{HERE}{os.sep}", "")  # fmt: skip
    lines = ["$ empriv demo", *shown.rstrip().splitlines()]
    target = HERE / "docs" / "images" / "demo.svg"
    target.parent.mkdir(exist_ok=True)
    target.write_text(picture(lines), encoding="utf-8")
    print(target.relative_to(HERE))


if __name__ == "__main__":
    main()
