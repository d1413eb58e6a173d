"""The kernels: the host's protocol, and each method over it."""
