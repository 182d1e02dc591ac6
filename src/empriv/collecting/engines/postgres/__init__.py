"""PostgreSQL: rows are added up on the server where that moves much less than the rows, and by DuckDB here otherwise.

`session` asks, `splitting` cuts a statement into what is run there and what is run here, `dialect` writes PostgreSQL's
SQL, and `second_look` reads what is sent once more. The connection itself is in `engines.connections`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
