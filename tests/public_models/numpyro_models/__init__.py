"""Models of NumPyro's examples and tutorials, word for word; see README.md in the folder above."""
