"""Priors and networks for Bayesian neural networks, written as the host's models."""
