"""Lower and upper bounds on delta: `bounds` gives `Bounds`, by the kind of risk."""

from empriv.judge.upper import LEAST_DATABASES
from empriv.validate.bounds.figures import Bounds, bounds, bounds_of, how_often, publications, upper_total_risk

__all__ = ["LEAST_DATABASES", "Bounds", "bounds", "bounds_of", "how_often", "publications", "upper_total_risk"]
