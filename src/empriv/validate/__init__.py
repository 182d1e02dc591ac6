"""Can the risk be believed? Bounds, checks and a verdict on what `measuring` found; no data engine is seen here.

`validate.bounds` and `validate.checks` are rooms of their own, `validate.verdict` and `validate.facts_by_kind` modules.
"""

from empriv.validate import table_moves  # which registers what tables hide
from empriv.validate.bounds import Bounds
from empriv.validate.checks import Check
from empriv.validate.facts_by_kind import facts_of
from empriv.validate.verdict import Verdict

__all__ = ["Bounds", "Check", "Verdict", "facts_of", "table_moves"]
