"""The risk of a whole table: `measure_table` gives a `TableRisk`."""

from empriv.measuring.tables.fit import TableFit
from empriv.measuring.tables.table_risk import GivenTableRisk, TableRisk, measure_given_table, measure_table

__all__ = ["GivenTableRisk", "TableFit", "TableRisk", "measure_given_table", "measure_table"]
