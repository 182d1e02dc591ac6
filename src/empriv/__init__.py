"""Empirical differential privacy: how private a statistic already is, from the data's own randomness.

    rows ──collect──▶ Results ──measure──▶ Risk ──design_noise──▶ Noise ──release──▶ answer

`databases` says where the rows are and who the individuals are; `audit` collects and measures at once; `design_noise`
finds the least noise where the data's own randomness is not enough; `Ledger` remembers what has been released.
The public names are listed once, in ``__init__.pyi``. Each is imported when first used: ``import empriv`` is quick.
"""

from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(name)
