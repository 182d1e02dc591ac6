"""What pyproject.toml cannot state: C files that are compiled where there is a compiler, and the README of an index."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent


def readme_for_an_index(source: str | None = None) -> str:
    """README.md for a package index, which shows it without the files that it links to.

    With the address of the source, links and images get whole addresses. Without one, the text of links stays, and
    images go.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if source is None:
        text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", text)
        return re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)", r"\1", text)
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{source}/raw/main/", text)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:|#)", rf"\1{source}/blob/main/", text)


def address_of_the_source() -> str | None:
    """As pyproject.toml names it, if it does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Source")


if __name__ == "__main__":
    from setuptools import Extension, setup

    setup(
        long_description=readme_for_an_index(address_of_the_source()),
        long_description_content_type="text/markdown",
        # EMPRIV_PURE=1: a wheel without compiled parts, for every platform.
        ext_modules=[]
        if os.environ.get("EMPRIV_PURE") == "1"
        else [
            Extension(
                f"empriv.{name}",
                [f"src/empriv/{name.replace('.', '/')}.c"],
                extra_compile_args=["-O3", "-fno-math-errno"],
                optional=True,  # without a compiler, numpy does the same work
            )
            for name in ("measuring.line._line",)
        ],
    )
