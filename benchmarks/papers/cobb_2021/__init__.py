"""Cobb and Jalaian (2021), Scaling HMC for Bayesian neural networks with symmetric splitting, and its draft of 2020."""
