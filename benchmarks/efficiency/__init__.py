"""Effective draws per data pass, per gradient and per second, of our kernels and of others."""
