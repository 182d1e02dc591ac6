"""From results to risk: how private they are for every individual, at any epsilon.

`line` measures one number, `tables` several, `given` what readers who know part of the data
learn, `series` publishing again and again; `densities` are fitted for all of them. What every kind of risk can be
asked is written once, in `any_risk`.
"""

from empriv.measuring.any_risk import AnyRisk
from empriv.measuring.given import GivenRisk, WorstRisk
from empriv.measuring.line import Risk, measure_line
from empriv.measuring.measures import measure
from empriv.measuring.series import RepeatedRisk
from empriv.measuring.tables import TableRisk, measure_table

__all__ = [
    "AnyRisk",
    "GivenRisk",
    "RepeatedRisk",
    "Risk",
    "TableRisk",
    "WorstRisk",
    "measure",
    "measure_line",
    "measure_table",
]
