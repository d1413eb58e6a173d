"""Adaptation in warm-up of step size, metric, threshold and length, and how well it went."""
