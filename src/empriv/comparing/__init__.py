"""Comparing protocols: several ways to publish an answer, on the same databases, by their privacy and their error.

`compare` collects and measures, `Comparison` holds what was found; `differences` tells which differences are more than
chance and smoothing, `utility` how far the answers are from the truth. How it is shown is for `report`.
"""

from empriv.comparing.comparison import Comparison
from empriv.comparing.differences import Difference
from empriv.comparing.make_comparison import compare
from empriv.comparing.utility import Utility

__all__ = ["Comparison", "Difference", "Utility", "compare"]
