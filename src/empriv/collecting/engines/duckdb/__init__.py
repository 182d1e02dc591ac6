"""DuckDB: queries on one machine. The only folder that imports duckdb; others use `DuckDBEngine`, and the protocol.

Imported when first used: a worker process that only calls functions needs none of it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
