"""Can the risk be believed? Bounds, checks and a verdict on what `measuring` found; no data engine is seen here.

`validate.bounds` and `validate.checks` are rooms of their own, `validate.covering` and `validate.verdict` modules.
"""

from empriv.validate.bounds import Bounds
from empriv.validate.verdict import Verdict

__all__ = ["Bounds", "Verdict"]
