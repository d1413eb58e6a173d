"""Seconds a gradient, and bytes that a kick sends, of rows in one or two shards: devices and processes, M = 1 to 64."""
