"""Memory that leave-one-out and WAIC take at a million rows of a thousand draws, read by blocks of rows."""
