"""Whether what is chosen in warm-up turns itself off on networks."""
