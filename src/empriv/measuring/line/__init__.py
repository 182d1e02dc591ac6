"""The risk of one number: `measure_line` gives a `Risk`."""

from empriv.measuring.line.risk import Risk, measure_line

__all__ = ["Risk", "measure_line"]
