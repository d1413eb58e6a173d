"""Data for the examples, the notebooks and the benchmarks, as NumPy arrays.

The small digits come with scikit-learn. Larger sets lie in a directory that the user names, by argument or by the
environment variable SPLIT_MCMC_DATA; nothing is downloaded unless ``download=True`` asks for it. Each loader says whom
to cite, and under which licence the data are.
"""

from __future__ import annotations

from split_common.datasets.files import DATA_VARIABLE, data_directory
from split_common.datasets.images import (
    ImageData,
    load_cifar10,
    load_digits_split,
    load_fashion_mnist,
    load_mnist,
)
from split_common.datasets.regression import UCI_NAMES, CurveData, RegressionData, load_izmailov, load_uci
from split_common.datasets.speech import SpokenDigits, load_spoken_digits

__all__ = [
    "DATA_VARIABLE",
    "UCI_NAMES",
    "CurveData",
    "ImageData",
    "RegressionData",
    "SpokenDigits",
    "data_directory",
    "load_cifar10",
    "load_digits_split",
    "load_fashion_mnist",
    "load_izmailov",
    "load_mnist",
    "load_spoken_digits",
    "load_uci",
]
