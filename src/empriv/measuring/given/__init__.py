"""The risk given what an adversary knows: `measure_against` gives an `AdversaryRisk`."""

from empriv.measuring.given.adversaries import Buckets, OwnContribution, Weighted
from empriv.measuring.given.adversary_risk import AdversaryRisk, measure_against

__all__ = ["AdversaryRisk", "Buckets", "OwnContribution", "Weighted", "measure_against"]
