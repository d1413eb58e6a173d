"""PenaltyMH against the host's NUTS and HMCECS on tall logistic regressions (NumPyro)."""
