"""Names in the statements that empriv writes, for those who need nothing else of SQL."""

# The table that queries read, and the columns that say where each of its rows belongs.
DATA, DATABASE, INDIVIDUAL = "data", "empriv_database", "empriv_individual"
# What the table `data` of everyone is called in an engine, which no query can name.
EVERYONE = "empriv_data"
# Columns of an entry: a result without an individual, and the database that it is of.
ENTRY = WHO, WHERE, VALUE = "individual", "database", "q"
# Every row once, and one row for each random database that is drawn from them.
MASTER, SAMPLES = "empriv_master", "empriv_samples"
_PRIME = 268_435_459  # the first above 16 ** 7


def in_sample(rows: str, samples: str) -> str:
    """The condition that a unit's rows are in a random database; nobody's rows are in all of them.

    A unit is a point (x, y) of hashes, a database a random line: the unit is in if its distance from the line, modulo a
    prime, is small enough. Units are in or out independently of each other, and in any two databases independently.
    """
    distance = f"({rows}.empriv_x * {samples}.a + {rows}.empriv_y * {samples}.b + {samples}.c) % {_PRIME}"
    return f"({distance} < {samples}.most OR {rows}.empriv_x IS NULL)"


def hash_of(text: str, part: int) -> str:
    """A number below 16 ** 7, alike on every engine, from the md5 ``text``; it has parts 0 to 3."""
    digits = (f"(STRPOS('123456789abcdef', SUBSTR({text}, {8 * part + k + 1}, 1)) * {16**k})" for k in range(7))
    return f"CAST({' + '.join(digits)} AS BIGINT)"


def largest_distance(fraction: float) -> int:
    """The distance below which a unit is in a database that holds such a fraction."""
    return round(fraction * _PRIME)
