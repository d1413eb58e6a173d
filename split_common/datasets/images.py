"""Images and their classes."""

from __future__ import annotations

import math
import os
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from split_common.checks import check_probability
from split_common.datasets.files import file_in, read_arrays, retrieve, write_arrays
from split_common.values import shown, whole_number

CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
SEEDS = 2**32  # as many as scikit-learn takes
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

    E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository; CC BY
    4.0.

    Args:
        test_fraction: share of the images that is kept for testing, class by class; strictly between 0 and 1.
        seed: seed of the division and of the order, a whole number.
        centre: subtract each pixel's mean over the training images.

    Returns:
        Images in [0, 1], or centred, with 64 pixels each.

    Raises:
        ValueError: for a share that does not lie between 0 and 1, or leaves too few images for training or for testing
            to have one of each class; and for a seed that is not a whole number from 0 to
            4294967295.

    Example:
        >>> digits = load_digits_split()
        >>> digits.x_train.shape, digits.x_test.shape, float(digits.x_train.max())
        ((1347, 64), (450, 64), 1.0)
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    fraction, number = check_probability("test_fraction", test_fraction), whole_number(seed)
    if number is None or not 0 <= number < SEEDS:
        raise ValueError(f"seed must be a whole number from 0 to {SEEDS - 1}, got {shown(seed)}")
    images, classes = load_digits(return_X_y=True)
    num_test, least = math.ceil(fraction * len(images)), len(np.unique(classes))
    if not least <= num_test <= len(images) - least:
        raise ValueError(
            f"test_fraction must leave at least {least} images for training and for testing, as there are {least} "
            f"classes, got {shown(test_fraction)}, which is {num_test} of {len(images)}"
        )
    split: list[np.ndarray] = train_test_split(  # pyright: ignore[reportAssignmentType]
        (images / DIGITS_WHITE).astype(np.float32),
        classes.astype(np.int64),
        test_size=num_test,
        random_state=number,
        stratify=classes,
    )
    x_train, x_test, y_train, y_test = split
    if centre:
        mean = x_train.mean(axis=0)
        x_train, x_test = x_train - mean, x_test - mean
    return ImageData(x_train, y_train, x_test, y_test)


def load_mnist(directory: str | os.PathLike[str], flatten: bool = True) -> ImageData:
    """Load MNIST's 70,000 handwritten digits of 28 x 28 pixels from ``mnist.npz``.

    Y. LeCun, L. Bottou, Y. Bengio and P. Haffner (1998), Gradient-Based Learning Applied to Document Recognition,
    Proceedings of the IEEE 86. Usually given as under CC BY-SA 3.0.

    Args:
        directory: where ``mnist.npz`` lies (see :func:`data_directory`). The file holds uint8 arrays ``x_train`` of
            shape (60000, 28, 28), ``y_train``, ``x_test`` of shape (10000, 28, 28) and ``y_test``.
        flatten: images of shape (784,) instead of (28, 28).

    Returns:
        Images in [0, 1].

    Raises:
        FileNotFoundError: when the directory has no ``mnist.npz``.
        ValueError: when the file cannot be read, lacks one of the four arrays, or holds other types or shapes.

    Example:
        >>> mnist = load_mnist(data_directory())  # doctest: +SKIP
        >>> mnist.x_train.shape  # doctest: +SKIP
        (60000, 784)
    """
    return _load_images(file_in(directory, "mnist.npz", False), flatten)


def load_fashion_mnist(directory: str | os.PathLike[str], flatten: bool = True) -> ImageData:
    """Load Fashion-MNIST's 70,000 images of clothes, of the shape of MNIST's, from ``fashion_mnist.npz``.

    H. Xiao, K. Rasul and R. Vollgraf (2017), Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
    Algorithms, arXiv:1708.07747. MIT licence.

    Args:
        directory: where ``fashion_mnist.npz`` lies, with the arrays of :func:`load_mnist`.
        flatten: images of shape (784,) instead of (28, 28).

    Returns:
        Images in [0, 1].

    Raises:
        FileNotFoundError: when the directory has no ``fashion_mnist.npz``.
        ValueError: when the file cannot be read, lacks one of the four arrays, or holds other types or shapes.

    Example:
        >>> clothes = load_fashion_mnist(data_directory())  # doctest: +SKIP
        >>> clothes.x_test.shape  # doctest: +SKIP
        (10000, 784)
    """
    return _load_images(file_in(directory, "fashion_mnist.npz", False), flatten)


def load_cifar10(
    directory: str | os.PathLike[str] | None = None,
    flatten: bool = False,
    *,
    copy: str = "original",
    download: bool = False,
) -> ImageData:
    """Load CIFAR-10: colour images of 32 x 32 pixels in ten classes, airplanes to trucks.

    A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images, technical report, University of
    Toronto. Its authors state no licence, so the images are not to be shown in what is published.

    Args:
        directory: where the file lies; None for the directory that SPLIT_MCMC_DATA names.
        flatten: images of shape (3072,) instead of (32, 32, 3).
        copy: "original" for the 50,000 and 10,000 images of ``cifar10.npz``; "jpeg_subset" for the 5,000 and 2,000 of
            ``cifar10_subset.npz``, which were compressed anew, so that scores on them are not those published for
            CIFAR-10. Both files hold uint8 arrays ``x_train``, ``y_train``, ``x_test`` and ``y_test``.
        download: whether to fetch the original (170 MB) where it is missing, into ``directory`` or, without one,
            pooch's cache; its checksum is verified. It needs ``split-mcmc[datasets]``.

    Returns:
        Images in [0, 1].

    Raises:
        FileNotFoundError: when the directory has no such file.
        ValueError: for another copy, and when the file cannot be read, lacks one of the four arrays, or holds other
            types or shapes.

    Example:
        >>> pictures = load_cifar10(copy="jpeg_subset")  # doctest: +SKIP
        >>> pictures.x_train.shape  # doctest: +SKIP
        (5000, 32, 32, 3)
    """
    if copy not in ("original", "jpeg_subset"):
        raise ValueError(f"copy must be 'original' or 'jpeg_subset', got {shown(copy)}")
    if copy == "jpeg_subset":
        return _load_images(file_in(directory, "cifar10_subset.npz", False), flatten)
    return _load_images(file_in(directory, "cifar10.npz", download, _make_cifar10), flatten)


def _make_cifar10(path: Path) -> None:
    archive = path.with_name("cifar-10-binary.tar.gz")
    retrieve(CIFAR10_URL, CIFAR10_SHA256, archive)
    with tarfile.open(archive) as held:
        train = [_cifar10_records(held, f"data_batch_{k}.bin") for k in range(1, 6)]
        x_test, y_test = _cifar10_records(held, "test_batch.bin")
    x_train, y_train = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    write_arrays(path, {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}, None)
    archive.unlink()


def _cifar10_records(held: tarfile.TarFile, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and classes of a file of records: a byte of the class, 3 x 32 x 32 of the colours."""
    file = held.extractfile(f"cifar-10-batches-bin/{name}")
    records = np.frombuffer(b"" if file is None else file.read(), np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]


def _load_images(path: Path, flatten: bool) -> ImageData:
    """Images and classes of a file, after checks of the types and shapes."""
    arrays = ImageData(**read_arrays(path, ImageData._fields))
    for part, x, y in (("train", arrays.x_train, arrays.y_train), ("test", arrays.x_test, arrays.y_test)):
        if x.dtype != np.uint8 or x.ndim < 2 or not x.size:
            raise ValueError(
                f"{path.name} must hold images in uint8 as x_{part}, at least one, got {x.dtype} of shape {x.shape}"
            )
        if y.dtype.kind not in "iu" or y.shape != x.shape[:1]:
            raise ValueError(
                f"{path.name} must hold a whole number for each of {len(x)} images as y_{part}, got {y.dtype} of shape "
                f"{y.shape}"
            )
    if arrays.x_train.shape[1:] != arrays.x_test.shape[1:]:
        raise ValueError(
            f"{path.name} must hold images of one shape, got {arrays.x_train.shape[1:]} in x_train and "
            f"{arrays.x_test.shape[1:]} in x_test"
        )
    x_train, x_test = (
        x.reshape(len(x), -1) if flatten else x
        for x in (arrays.x_train.astype(np.float32) / IMAGE_WHITE, arrays.x_test.astype(np.float32) / IMAGE_WHITE)
    )
    return ImageData(x_train, arrays.y_train.astype(np.int64), x_test, arrays.y_test.astype(np.int64))
