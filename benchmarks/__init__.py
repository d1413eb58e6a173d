"""Benchmarks: what splitting costs, and what it keeps. See the README beside this file."""
