"""Draw docs/images/demo.svg: what `empriv demo` prints, as a picture. Run: python scripts/make_pictures.py"""

from __future__ import annotations

import os
import subprocess
import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
COLUMNS, LINE, CHARACTER = 100, 17, 8.1


def picture(lines: list[str]) -> str:
    """A terminal window with these lines in it."""
    width, height = COLUMNS * CHARACTER + 40, len(lines) * LINE + 64
    rows = "\n".join(
        f'<text x="20" y="{56 + k * LINE}" textLength="{len(line) * CHARACTER:.1f}" xml:space="preserve">'
        f"{escape(line)}</text>"
        for k, line in enumerate(lines)
        if line.strip()
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img"
 aria-label="What empriv demo prints">
<rect width="100%" height="100%" rx="8" fill="#15202b"/>
<circle cx="22" cy="20" r="6" fill="#e06c60"/><circle cx="42" cy="20" r="6" fill="#e0b050"/>
<circle cx="62" cy="20" r="6" fill="#6fb36f"/>
<g fill="#dbe4ec" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13"
 lengthAdjust="spacingAndGlyphs">
{rows}
</g>
</svg>
"""


def main() -> None:
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    shown = subprocess.run(
        [sys.executable, "-m", "empriv", "demo"], env=environment, check=True, capture_output=True, text=True
    ).stdout
    lines = ["$ empriv demo", *shown.split("The same on the command line:")[0].rstrip().splitlines()]
    target = HERE / "docs" / "images" / "demo.svg"
    target.parent.mkdir(exist_ok=True)
    target.write_text(picture(lines), encoding="utf-8")
    print(target.relative_to(HERE))


if __name__ == "__main__":
    main()
