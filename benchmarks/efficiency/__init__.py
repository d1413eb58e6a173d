"""Effective draws per data pass."""
