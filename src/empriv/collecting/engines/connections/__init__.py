"""Connections to where rows live: a PostgreSQL server, an SQLite file. They only read, and give Arrow streams.

The only folder that imports ADBC's drivers. `postgresql` and `sqlite` each speak with one kind of database, and
`incoming` is what both give: the rows of one SELECT, as a stream that is read once.
"""
