"""Runs whose draws are written to disk as they are made."""
