"""What could make the figures wrong: `checks` gives a `Check` for each thing examined, by the kind of risk."""

from empriv.validate.checks import (
    given,
    one_number,
    series,
    whole_tables,
)  # they register their checks
from empriv.validate.checks.check import Check, checks, checks_of

__all__ = ["Check", "checks", "checks_of", "given", "one_number", "series", "whole_tables"]
