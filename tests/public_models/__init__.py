"""Models that nobody here wrote: the examples and tutorials of the hosts (see README.md)."""
