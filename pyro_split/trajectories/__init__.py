"""Trajectories: where each ends, and which of its states is the next state of the chain."""
