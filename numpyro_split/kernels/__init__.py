"""Kernels: the host's protocol, implemented once, and the methods that it runs."""
