"""Publishing again: the composition of so many looks at one pair of laws, and the risk after them."""

from empriv.measuring.series.repeated_risk import RepeatedRisk, repeated_of

__all__ = ["RepeatedRisk", "repeated_of"]
