"""SplitNUTS at M = 1 against the host's NUTS: time per gradient, and effective draws per gradient."""
