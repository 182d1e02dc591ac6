"""What could make the figures wrong: `checks` gives a `Message` for each thing examined, by the kind of risk."""

from empriv.validate.checks import given, one_number, whole_tables  # they register their checks
from empriv.validate.checks.check import checks, checks_of

__all__ = ["checks", "checks_of", "given", "one_number", "whole_tables"]
