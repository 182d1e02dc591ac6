"""People measured in chunks, for tables that are larger than memory or on a cluster.

`totals` is what is kept of people once they are measured, and `TotalledRisk` answers from it; `measure_chunks` measures
them on one machine, and `cluster` in the executors of many. Results come from `collecting`.
"""
