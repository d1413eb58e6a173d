"""Effective draws of σ² per second and per gradient: S3HMC and block Gibbs against the host's NUTS (NumPyro)."""
