"""The risk given what readers know: by regression (`Given`), and the paper's Definition 4 on top of it."""

from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.given.reader_knowledge import Buckets, Given, OwnContribution

__all__ = ["Buckets", "Given", "GivenRisk", "OwnContribution", "WorstRisk"]
