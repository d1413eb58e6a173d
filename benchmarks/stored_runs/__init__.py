"""What it costs to write a run to a store: seconds against a run that is not written, and memory of a long one."""
