"""SQL queries, answered for everybody at once.

`decompose` takes a query apart, from its `plain_form`; `aggregates` says what is kept of each of its parts, and
`rewrite` writes the statement. `execute` asks a session for all results, or for some individuals at a time, `rerun`
runs a query that cannot be rewritten once per individual, and `groups` finds the groups of GROUP BY. `allowlist` says
what a query may do, `explain_errors` what is wrong with it, and `printing` where. Statements know no engine: they are
put to a `Session`.
"""
