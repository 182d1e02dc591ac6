"""Publishing again: what one publication tells of each person, and what so many tell together."""

from empriv.measuring.series.repeated import (
    HowOften,
    Publications,
    RepeatedRisk,
    composes,
    effects_of_risk,
    repeated_of,
)

__all__ = ["HowOften", "Publications", "RepeatedRisk", "composes", "effects_of_risk", "repeated_of"]
