"""Audits of tables that are larger than memory, or on a cluster: measured a stretch of individuals at a time.

`tally` is what is kept about individuals once they are measured; `stretches` measures a stretch of them; `scanning`
goes through all of them on one machine, and `cluster` on many. The result is a `Scan`: an audit whose risk is a
`TalliedRisk`. Measuring knows no data engine: stretches come from `collecting`, and the same functions run in the
executors of a cluster.
"""
