"""Run the examples in full: their pictures go to docs/images, what they print into examples/README.md.

    python scripts/make_examples.py [names, such as retail mall] [--check]

In the document a block of text that follows ``<!-- printed by: python examples/NAME.py -->`` is replaced. With
``--check`` nothing is written, and the names of examples that print something else are told, with exit status 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE, IMAGES = ROOT / "examples" / "README.md", ROOT / "docs" / "images"
NAMES = ("retail", "flights", "electricity", "mall", "learning", "upstream", "precipitation")


def printed(name: str, folder: Path) -> str:
    """What an example prints; its pictures are in the folder."""
    out = folder / "example-precipitation" if name == "precipitation" else folder / f"example-{name}.svg"
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), "--out", str(out)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip() + "\n"


def cut(page: str, name: str) -> tuple[str, str, str]:
    """The document before, in and after the block of what an example prints."""
    mark = re.escape(f"<!-- printed by: python examples/{name}.py -->")
    found = re.search(rf"{mark}\n+```text\n(.*?)```\n", page, re.DOTALL)
    if found is None:
        raise SystemExit(f"{PAGE.name} must have a block of what {name}.py prints, got none.")
    return page[: found.start(1)], found[1], page[found.end(1) :]


def keep(folder: Path) -> None:
    """Put the pictures where the documents look for them, readable by all."""
    for made in sorted(folder.rglob("*.svg")):
        target = IMAGES / "-".join(made.relative_to(folder).parts)
        target.write_bytes(made.read_bytes())
        print(f"{target.name}: {target.stat().st_size:,} bytes")


def main(names: list[str], check: bool) -> None:
    different = []
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            text = printed(name, Path(folder))
            before, shown, after = cut(PAGE.read_text(encoding="utf-8"), name)
            if text != shown:
                different.append(name)
            if not check:
                PAGE.write_text(before + text + after, encoding="utf-8")
                keep(Path(folder))
    if check and different:
        sys.exit(f"These print something else than {PAGE.name} says: {', '.join(different)}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--check", action="store_true", help="compare only")
    given = parser.parse_args()
    main(given.names, given.check)
