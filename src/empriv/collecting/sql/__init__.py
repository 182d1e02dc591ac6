"""SQL queries, answered for everybody at once.

`decomposing` takes a query apart, from its `plain_form`, with what it reads `per_person`; `aggregates` and `quantiles`
say what is kept of each of its parts, and `rewrite` writes the statement. `statement` is what is asked of a session, in
order; `execute` asks for all results, or for some individuals at a time, and `rerun` runs a query that cannot be
rewritten once per individual. `advice` says what is wrong with a query, and `printing` where. Statements know no
engine: they are put to a `Session`.
"""
