"""Rows that lie on disk, or elsewhere outside the framework's memory, and are read subset by subset."""
