"""What could make the figures wrong: `checks` gives a `Check` of each thing looked at, by the kind of risk."""

from empriv.validate.checks import one_number, several_numbers  # which say what is looked at
from empriv.validate.checks.check import Check, checks, checks_of

__all__ = ["Check", "checks", "checks_of", "one_number", "several_numbers"]
