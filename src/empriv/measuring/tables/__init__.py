"""The risk of a whole table: `measure_table` gives a `TableRisk`."""

from empriv.measuring.tables.fit import TableFit
from empriv.measuring.tables.table_presence import TablePresenceRisk
from empriv.measuring.tables.table_risk import TableRisk, measure_table

__all__ = ["TableFit", "TablePresenceRisk", "TableRisk", "measure_table"]
