"""Audits of tables that are larger than memory, or lie on a cluster: measured some individuals at a time.

`tally` is what is remembered of individuals who were measured and forgotten; `stretches` measures some of them;
`scanning` goes through all, on one machine, and `cluster` on many. What comes of it is a `Scan`: an audit whose risk is
a `TalliedRisk`. The measuring knows no data engine: stretches come from `collecting`, and the same functions run in the
executors of a cluster.
"""
