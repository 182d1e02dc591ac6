"""Publishing again: what one publication tells of each person, and what so many tell together."""

from empriv.measuring.series.by_kind import composes, effects_of_risk
from empriv.measuring.series.how_often import HowOften, Publications
from empriv.measuring.series.repeated_risk import RepeatedRisk, repeated_of

__all__ = ["HowOften", "Publications", "RepeatedRisk", "composes", "effects_of_risk", "repeated_of"]
