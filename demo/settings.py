"""What the demo runs."""

from dataclasses import dataclass

NUM_SUBSETS = 8
NUM_CHAINS = 2
NUM_HIDDEN = 12
NUM_CLASSES = 10
SEED = 0

MODELS = ("softmax", "network")
SAMPLERS = ("plain HMC", "symmetric", "randomised")

# The same for every sampler. More steps for the softmax regression would bring symmetric splitting, which takes the
# longest ones, to half the period of its faster directions, where z only swaps with -z and its spread is not explored
NUM_STEPS = {"softmax": 6, "network": 8}
# Pyro's HMC holds the length of a trajectory instead; at its adapted step sizes these make about as many steps
PYRO_HMC_LENGTH = {"softmax": 0.95, "network": 0.65}


@dataclass(frozen=True)
class Iterations:
    """Iterations of each chain.

    Attributes:
        warmup: iterations of warm-up.
        draws: draws kept after it.
    """

    warmup: int
    draws: int


# Compiled loops make NumPyro's iterations cheap; Pyro's pay Python's price for each of their many small gradients
ITERATIONS = {"NumPyro": Iterations(500, 500), "Pyro": Iterations(200, 200)}
QUICK_ITERATIONS = {"NumPyro": Iterations(20, 20), "Pyro": Iterations(10, 10)}
