"""Runs that are written to disk as they go."""
