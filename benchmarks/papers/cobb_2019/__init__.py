"""Cobb and others (2019), semi-separable HMC for Bayesian networks: the sine regression and the CNN for MNIST."""
