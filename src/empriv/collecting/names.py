"""Names in the statements that empriv writes, for those who need nothing else of SQL."""

# The table that queries read, and the columns that say where each of its rows belongs.
DATA, DATABASE, INDIVIDUAL = "data", "empriv_database", "empriv_individual"
# Columns of an entry: a result without an individual, and the database that it is of.
ENTRY = WHO, WHERE, VALUE = "individual", "database", "q"
