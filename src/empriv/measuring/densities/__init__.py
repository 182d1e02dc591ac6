"""Densities: recipes, kernels, how a bandwidth is chosen, and recipes as text and JSON."""

from empriv.measuring.densities.density import BestOf, Density, Ecdf, Kde, Mixture, Model, VariableKde
from empriv.measuring.densities.kernels import KERNELS, Kernel

__all__ = ["KERNELS", "BestOf", "Density", "Ecdf", "Kde", "Kernel", "Mixture", "Model", "VariableKde"]
