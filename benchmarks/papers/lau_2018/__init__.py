"""Lau (2018), Bayesian neural networks by dynamic Hamiltonian Monte Carlo: tables 4.2 and 4.13."""
