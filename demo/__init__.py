"""Handwritten digits by plain and by split HMC, in NumPyro and in Pyro: ``python -m demo``."""
