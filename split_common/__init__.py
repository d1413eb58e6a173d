"""Framework-neutral parts of the split samplers: schedules, subsets of rows, argument rules, metrics.

Imported by ``numpyro_split`` and ``pyro_split``; names neither JAX nor PyTorch.
"""
