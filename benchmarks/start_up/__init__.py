"""Seconds from a kernel to its first draw, in fresh processes."""
