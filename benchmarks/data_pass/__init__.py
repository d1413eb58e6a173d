"""Time of a data pass inside a split kernel, over that of a bare compiled gradient of the same model."""
