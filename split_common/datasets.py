"""Image data for the demo, the notebooks and the benchmarks, as NumPy arrays.

Nothing here downloads: the small digits come with scikit-learn, larger sets from a directory that the user names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

DATA_VARIABLE = "SPLIT_MCMC_DATA"
DIGITS_WHITE, IMAGE_WHITE = 16.0, 255.0  # the brightest value of a pixel in each set


class ImageData(NamedTuple):
    """Images and their classes, divided into training and test data.

    Attributes:
        x_train: training images in float32, shape (N, pixels) or (N, height, width).
        y_train: their classes in int64, shape (N,).
        x_test: test images, as ``x_train``.
        y_test: their classes.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load_digits_split(test_fraction: float = 0.25, seed: int = 0, centre: bool = False) -> ImageData:
    """Load scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, flat, in a fixed random order.

    Args:
        test_fraction: share of the images that is kept for testing, class by class.
        seed: seed of the division and of the order.
        centre: subtract each pixel's mean over the training images.

    Returns:
        Images in [0, 1], or centred, with 64 pixels each.

    Example:
        >>> digits = load_digits_split()
        >>> digits.x_train.shape, digits.x_test.shape, float(digits.x_train.max())
        ((1347, 64), (450, 64), 1.0)
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, classes = load_digits(return_X_y=True)
    split: list[np.ndarray] = train_test_split(  # pyright: ignore[reportAssignmentType]
        (images / DIGITS_WHITE).astype(np.float32),
        classes.astype(np.int64),
        test_size=test_fraction,
        random_state=seed,
        stratify=classes,
    )
    x_train, x_test, y_train, y_test = split
    if centre:
        mean = x_train.mean(axis=0)
        x_train, x_test = x_train - mean, x_test - mean
    return ImageData(x_train, y_train, x_test, y_test)


def data_directory(option: str | os.PathLike[str] | None = None) -> Path:
    """The directory that holds the larger data sets: an option if given, else the environment's.

    Args:
        option: what the user gave on the command line, or None.

    Raises:
        ValueError: when there is neither an option nor the environment variable SPLIT_MCMC_DATA.
        NotADirectoryError: when what was given is not a directory.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     data_directory(directory).is_dir()
        True
    """
    given = option or os.environ.get(DATA_VARIABLE)
    if not given:
        raise ValueError(
            f"a data directory must be given, as the option --data or in the environment variable {DATA_VARIABLE}, "
            "got neither"
        )
    origin = "the option --data" if option else f"the environment variable {DATA_VARIABLE}"
    if not Path(given).is_dir():
        raise NotADirectoryError(f"{origin} must name a directory, got {str(given)!r}")
    return Path(given)


def load_mnist(directory: str | os.PathLike[str], flatten: bool = True) -> ImageData:
    """Load MNIST's 70,000 handwritten digits of 28 x 28 pixels from ``mnist.npz``.

    Args:
        directory: where ``mnist.npz`` lies (see :func:`data_directory`). The file holds uint8 arrays ``x_train`` of
            shape (60000, 28, 28), ``y_train``, ``x_test`` of shape (10000, 28, 28) and ``y_test``.
        flatten: images of shape (784,) instead of (28, 28).

    Returns:
        Images in [0, 1].

    Raises:
        FileNotFoundError: when the directory has no ``mnist.npz``.
        ValueError: when the file lacks one of the four arrays.

    Example:
        >>> mnist = load_mnist(data_directory())  # doctest: +SKIP
        >>> mnist.x_train.shape  # doctest: +SKIP
        (60000, 784)
    """
    return _load_images(Path(directory) / "mnist.npz", flatten)


def load_fashion_mnist(directory: str | os.PathLike[str], flatten: bool = True) -> ImageData:
    """Load Fashion-MNIST's 70,000 images of clothes, of the shape of MNIST's, from ``fashion_mnist.npz``.

    Args:
        directory: where ``fashion_mnist.npz`` lies, with the arrays of :func:`load_mnist`.
        flatten: images of shape (784,) instead of (28, 28).

    Returns:
        Images in [0, 1].

    Raises:
        FileNotFoundError: when the directory has no ``fashion_mnist.npz``.
        ValueError: when the file lacks one of the four arrays.

    Example:
        >>> clothes = load_fashion_mnist(data_directory())  # doctest: +SKIP
        >>> clothes.x_test.shape  # doctest: +SKIP
        (10000, 784)
    """
    return _load_images(Path(directory) / "fashion_mnist.npz", flatten)


def _load_images(path: Path, flatten: bool) -> ImageData:
    if not path.is_file():
        raise FileNotFoundError(f"the data directory must hold {path.name}, got no such file in {str(path.parent)!r}")
    with np.load(path) as file:
        missing = [name for name in ImageData._fields if name not in file]
        if missing:
            raise ValueError(f"{path.name} must hold the arrays {list(ImageData._fields)}, got none named {missing}")
        arrays = ImageData(*(file[name] for name in ImageData._fields))
    x_train, x_test = (
        x.reshape(len(x), -1) if flatten else x
        for x in (arrays.x_train.astype(np.float32) / IMAGE_WHITE, arrays.x_test.astype(np.float32) / IMAGE_WHITE)
    )
    return ImageData(x_train, arrays.y_train.astype(np.int64), x_test, arrays.y_test.astype(np.int64))
