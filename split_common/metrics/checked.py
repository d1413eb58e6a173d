"""Checks of users' arrays: each function returns the array, or raises an error that says what is wrong."""

from __future__ import annotations

import numpy as np

SUM_TOLERANCE = 1e-3


def draws_by_points(name: str, values: np.ndarray) -> np.ndarray:
    """The values in float64, if they have two axes, neither of them empty."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must have shape (draws, points), neither of them 0, got shape {array.shape}")
    return array


def checked_log_likelihood(log_likelihood: np.ndarray) -> np.ndarray:
    """The log-likelihoods in float64, or an error that says what is wrong with them."""
    array = draws_by_points("log_likelihood", log_likelihood)
    allowed = array < np.inf  # false for NaN
    if not np.all(allowed):
        raise ValueError(f"log_likelihood must be numbers below infinity, got {array[~allowed][0]}")
    return array


def checked_draws(probabilities: np.ndarray) -> np.ndarray:
    """Class probabilities of each draw in float64, or an error that says what is wrong with them."""
    array = np.asarray(probabilities, dtype=np.float64)
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(
            f"probabilities must have shape (draws, points, classes), none of them 0, got shape {array.shape}"
        )
    return _checked_sums(array)


def checked_predictive(probabilities: np.ndarray) -> np.ndarray:
    """Class probabilities of one prediction a point in float64, or an error that says what is wrong with them."""
    array = np.asarray(probabilities, dtype=np.float64)
    if array.ndim == 3:
        raise ValueError(
            "probabilities must be those of one prediction, of shape (points, classes), got shape "
            f"{array.shape}; predictive_probabilities takes their mean over draws"
        )
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"probabilities must have shape (points, classes), neither of them 0, got shape {array.shape}")
    return _checked_sums(array)


def checked_labels(labels: np.ndarray, num_points: int, num_classes: int) -> np.ndarray:
    """Classes in int64, or an error that says what is wrong with them."""
    array = np.asarray(labels)
    if array.shape != (num_points,):
        raise ValueError(f"labels must have one entry for each point, shape ({num_points},), got shape {array.shape}")
    if array.dtype.kind not in "buif":
        raise ValueError(f"labels must be whole numbers, got the type {array.dtype}")
    allowed = (array >= 0) & (array < num_classes) & (array == np.floor(array.astype(np.float64)))
    if not np.all(allowed):
        raise ValueError(
            f"labels must be whole numbers from 0 to {num_classes - 1}, as there are {num_classes} classes, "
            f"got {array[~allowed][0]}"
        )
    return array.astype(np.int64)


def checked_points(name: str, values: np.ndarray, num_points: int) -> np.ndarray:
    """One finite number for each point in float64, or an error that says what is wrong with them."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (num_points,):
        raise ValueError(f"{name} must have one entry for each point, shape ({num_points},), got shape {array.shape}")
    return checked_finite(name, array)


def checked_finite(name: str, array: np.ndarray) -> np.ndarray:
    """The array, if all of it is finite."""
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def _checked_sums(array: np.ndarray) -> np.ndarray:
    """The probabilities, if they are at least 0 and sum to 1 over the last axis."""
    if not np.all(array >= 0):
        raise ValueError(f"probabilities must be numbers of at least 0, got {array[~(array >= 0)][0]}")
    sums = array.sum(axis=-1)
    worst = sums.flat[np.argmax(np.abs(sums - 1))]
    if abs(worst - 1) > SUM_TOLERANCE:
        raise ValueError(f"probabilities must sum to 1 over the classes (the last axis), got a sum of {worst:.6g}")
    return array
