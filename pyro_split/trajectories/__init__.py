"""Trajectories: where each ends, and which of its states is taken."""
