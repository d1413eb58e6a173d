"""What several benchmarks share: command lines, reports, timing, models and data."""
