"""Noise: the least that suffices, certified on the lattice that it is released on."""

METHODS = ("robust", "optimal", "calibrated", "paper", "classical")
