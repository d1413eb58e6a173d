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
    # Cobb and Jalaian (2021), section 5.3: 38,390 weights; in the units of torch's layers
    "pooled": {
        "filters_1": (10, 1, 5, 5),
        "bias_1": (10,),
        "filters_2": (20, 10, 5, 5),
        "bias_2": (20,),
        "hidden": (320, 100),
        "hidden_bias": (100,),
        "weights": (100, NUM_CLASSES),
        "bias": (NUM_CLASSES,),
    },
}
