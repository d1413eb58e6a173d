"""Integrators of one step: kicks by the gradients of subsets, and drifts by a kinetic energy."""
