"""Lower and upper bounds on delta and total risk: `bounds` gives `Bounds`, by the kind of risk."""

from empriv.validate.bounds.figures import METHODS, Bounds, bounds, bounds_of
from empriv.validate.bounds.moments import LEAST_DATABASES

__all__ = ["LEAST_DATABASES", "METHODS", "Bounds", "bounds", "bounds_of"]
