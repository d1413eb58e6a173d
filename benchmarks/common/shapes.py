"""The parameters of the benchmark models, the same in both frameworks."""

from __future__ import annotations

NUM_CLASSES = 10
NUM_COLUMNS = 20  # of a tall table
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "softmax": {"weights": (784, NUM_CLASSES), "bias": (NUM_CLASSES,)},
    "tall": {"weights": (NUM_COLUMNS, 2), "bias": (2,)},
    "conv": {
        "filters_1": (8, 1, 5, 5),
        "bias_1": (8,),
        "filters_2": (16, 8, 3, 3),
        "bias_2": (16,),
        "weights": (400, NUM_CLASSES),
        "bias": (NUM_CLASSES,),
    },
}
