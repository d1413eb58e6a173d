"""Rows from disk: memory and seconds per data pass of a memory-mapped table, against rows in memory."""
