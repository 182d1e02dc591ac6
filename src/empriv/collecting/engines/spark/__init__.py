"""Spark: queries on a cluster. The only folder that touches pyspark; others use `SparkEngine`, and the protocol.

`session` asks the questions; `statements` puts them in Spark's words and refuses what a query must not reach; `tables`
reads and writes tables, and says what went wrong without quoting rows. Imported when first used: an executor that
measures or calls functions loads neither pyspark's sessions nor a parser of SQL for it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
