"""Comparing protocols: several ways to publish an answer, on the same databases, by their privacy and their error.

`compare` collects and measures, and `Comparison` holds the figures; `utility` measures how far the answers are from the
truth. `report` shows them.
`advise` tries ways to publish and ranks them against a target (`ways` holds what it finds).
"""

from empriv.comparing.advising import advise
from empriv.comparing.comparison import Comparison
from empriv.comparing.make_comparison import compare
from empriv.comparing.utility import Utility
from empriv.comparing.ways import Action, Advice

__all__ = ["Action", "Advice", "Comparison", "Utility", "advise", "compare"]
