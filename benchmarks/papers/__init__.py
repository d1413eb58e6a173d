"""Published tables and figures, run again with the kernels of this repository."""
