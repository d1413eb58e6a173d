"""One step of a schedule: kicks by the subsets' gradients, drifts by a kinetic energy."""
