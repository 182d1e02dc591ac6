"""Data engines: where rows are, and where statements run.

`engine` is what is asked of every engine, `data_view` the statement that makes the table ``data``, and `arrow` turns
Arrow's columns into arrays. Each engine is a folder of its own, and the only one that imports its package: how to add
another is in docs/architecture.md.
"""
