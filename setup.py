"""What pyproject.toml cannot state: C files that are compiled where there is a compiler, and the README of an index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent


def readme_for_an_index() -> str:
    """README.md with whole addresses: a package index shows it without the files that it links to."""
    source = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{source}/raw/main/", text)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:|#)", rf"\1{source}/blob/main/", text)


if __name__ == "__main__":
    from setuptools import Extension, setup

    setup(
        long_description=readme_for_an_index(),
        long_description_content_type="text/markdown",
        ext_modules=[
            Extension(
                f"empriv.{name}",
                [f"src/empriv/{name.replace('.', '/')}.c"],
                extra_compile_args=["-O3", "-fno-math-errno"],
                optional=True,  # without a compiler, numpy does the same work
            )
            for name in (
                "judge._noisy_laws",
                "measuring.line._laplace",
            )
        ],
    )
