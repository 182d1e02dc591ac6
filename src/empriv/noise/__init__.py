"""Noise: the least that suffices, judged on the lattice that it is released on."""

METHODS = ("least", "paper", "classical", "as-it-is")
