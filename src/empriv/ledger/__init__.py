"""The ledger of releases: releases from the same databases compose only jointly, so empriv remembers them.

`Ledger` is the file; `identity_of` says which databases a release is from; `Release`, `Figures`, `Joint` and `Policy`
describe a release to it. See docs/again.md.
"""

from empriv.ledger.book import Ledger, Released, Verification
from empriv.ledger.limits import Prices, Remaining
from empriv.ledger.values import (
    Content,
    Entry,
    Figures,
    Head,
    Identity,
    Joint,
    Policy,
    PolicyEntry,
    PriceEntry,
    Release,
    ReleaseEntry,
    Review,
    identity_of,
)

__all__ = [
    "Content",
    "Entry",
    "Figures",
    "Head",
    "Identity",
    "Joint",
    "Ledger",
    "Policy",
    "PolicyEntry",
    "PriceEntry",
    "Prices",
    "Release",
    "ReleaseEntry",
    "Released",
    "Remaining",
    "Review",
    "Verification",
    "identity_of",
]
