"""Models of Pyro's examples and tutorials, word for word; each file names its origin."""
