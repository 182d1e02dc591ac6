"""Benchmarks, setup.py and the site's helpers are scripts: tests load them by their path."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent


def module_at(path: Path) -> ModuleType:
    """The module in a file that is on no path."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def benchmark(name: str) -> ModuleType:
    """A benchmark by its name."""
    return module_at(ROOT / "benchmarks" / f"{name}.py")
