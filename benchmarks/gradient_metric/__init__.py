"""A metric from draws and gradients against the host's."""
