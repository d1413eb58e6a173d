"""The parameters of the benchmark models, the same in both frameworks."""

from __future__ import annotations

NUM_CLASSES = 10
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "softmax": {"weights": (784, NUM_CLASSES), "bias": (NUM_CLASSES,)},
    "conv": {
        "filters_1": (8, 1, 5, 5),
        "bias_1": (8,),
        "filters_2": (16, 8, 3, 3),
        "bias_2": (16,),
        "weights": (400, NUM_CLASSES),
        "bias": (NUM_CLASSES,),
    },
}
