"""Can the risk be believed? Bounds, checks and a verdict on what `measuring` found; no data engine is seen here."""

from empriv.validate import line_bounds, table_bounds, table_checks  # they register what they make by kind of risk
from empriv.validate.bounds import Bounds
from empriv.validate.verdict import Verdict

__all__ = ["Bounds", "Verdict", "line_bounds", "table_bounds", "table_checks"]
