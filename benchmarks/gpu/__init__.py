"""Number of subsets against memory and time on an accelerator, three targets, both frameworks."""
