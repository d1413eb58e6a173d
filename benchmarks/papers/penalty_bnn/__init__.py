"""The experiments of "Data subsampling for Bayesian neural networks", with PenaltyMH."""
