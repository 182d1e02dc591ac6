"""Comparing protocols: several ways to publish an answer, on the same databases, by their privacy and their error.

`compare` puts given ways side by side; `advise` tries its own and ranks them against a target.
"""

from empriv.comparing.advising import advise
from empriv.comparing.comparison import Comparison, Utility, compare
from empriv.comparing.ways import Action, Advice

__all__ = ["Action", "Advice", "Comparison", "Utility", "advise", "compare"]
