"""Publishing again: the composition of so many looks at one pair of laws, and the risk after them."""

from empriv.measuring.series.how_often import HowOften, largest
from empriv.measuring.series.of_kinds import composes, looked_at
from empriv.measuring.series.repeated_risk import RepeatedRisk, repeated_of

__all__ = ["HowOften", "RepeatedRisk", "composes", "largest", "looked_at", "repeated_of"]
