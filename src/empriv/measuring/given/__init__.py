"""The risk given what an adversary knows: `measure_against` gives a `GivenRisk` or an `AdversaryRisk`."""

from empriv.measuring.given.adversaries import Buckets, Given, OwnContribution, Weighted
from empriv.measuring.given.adversary_risk import AdversaryRisk, measure_against
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.given.presence import PresenceRisk

__all__ = [
    "AdversaryRisk",
    "Buckets",
    "Given",
    "GivenRisk",
    "OwnContribution",
    "PresenceRisk",
    "Weighted",
    "measure_against",
]
