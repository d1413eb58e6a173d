"""Bias of SGLD and SGHMC by step size and batch size, beside exact chains of equal cost (NumPyro)."""
