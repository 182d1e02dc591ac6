"""Audits of tables that are larger than memory, or lie on a cluster: measured some individuals at a time.

`tally` is what is remembered of individuals who were measured and forgotten; `stretches` measures some of them;
`scanning` is `scan` and `Scan`, which go through all. Nothing here knows a data engine: stretches come from
`collecting`, and the same functions run in the executors of a cluster.
"""
