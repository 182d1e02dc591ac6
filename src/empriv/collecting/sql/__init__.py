"""SQL queries, answered for everybody at once.

`decomposing` takes a query apart, `aggregates`, `exact_sums` and `quantiles` say what is kept of each of its parts, and
`rewrite` writes the statement from `templates`. `statement` is what is asked of a session, in order; `evaluate` asks
for all results, `streaming` for some individuals at a time, and `reruns` runs a query that cannot be rewritten once per
individual. `advice` and `pointing` say what is wrong with a query, and where. Statements know no engine: they are put
to a `Session`.
"""
