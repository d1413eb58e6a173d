"""Files of data: the user's directory, downloads by pooch, checksums."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

DATA_VARIABLE = "SPLIT_MCMC_DATA"
Convert = Callable[[Path], Mapping[str, np.ndarray]]


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


def file_in(
    directory: str | os.PathLike[str] | None, name: str, download: bool, make: Callable[[Path], None] | None = None
) -> Path:
    """The path of a file of data, which is made where it is missing and may be downloaded.

    Args:
        directory: the user's directory; None for the environment's, or, for a download where that has none, pooch's
            cache.
        name: name of the file in it.
        download: whether to make the file where it is missing.
        make: makes the file at a path; None for a file that cannot be downloaded.

    Raises:
        FileNotFoundError: when the file is missing and not to be downloaded.
    """
    if directory is None and download and not os.environ.get(DATA_VARIABLE):
        directory = _pooch().os_cache("split-mcmc")
    place = data_directory() if directory is None else Path(directory)
    path = place / name
    if path.is_file():
        return path
    if make is None or not download:
        hint = "" if make is None else "; download=True fetches it"
        raise FileNotFoundError(f"the data directory must hold {name}, got no such file in {str(place)!r}{hint}")
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    return path


def retrieve(url: str, sha256: str | None, path: Path) -> None:
    """Download a file.

    Args:
        url: address of the file.
        sha256: SHA-256 that the file must have; None where :func:`write_arrays` checks its content.
        path: path of the downloaded file.
    """
    known = None if sha256 is None else f"sha256:{sha256}"
    _pooch().retrieve(url, known, path.name, path.parent, progressbar=False)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], sha256: str | None) -> None:
    """Write arrays to an ``.npz`` file, whole or not at all.

    Args:
        path: path of the file.
        arrays: the arrays by name.
        sha256: digest that :func:`content_digest` must give; None where the download itself was checked.

    Raises:
        ValueError: for arrays of another digest.
    """
    if sha256 is not None and (found := content_digest(arrays)) != sha256:
        raise ValueError(f"the arrays of {path.name} must have the SHA-256 {sha256}, got {found} from the download")
    part = path.with_suffix(".part.npz")
    np.savez(part, **arrays)  # pyright: ignore[reportArgumentType]
    os.replace(part, path)


def content_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, types, shapes and contents of arrays, whatever file they lie in.

    Example:
        >>> content_digest({"x": np.zeros(2)})[:12]
        '375df56e36ef'
    """
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays of an ``.npz`` file by name.

    Raises:
        ValueError: when the file is damaged or of another kind, or lacks one.
    """
    try:
        with np.load(path) as file:
            found = {name: file[name] for name in names if name in file}
    except (EOFError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path.name} must be a whole .npz file of numbers or text, got one that is damaged or of another kind"
        ) from error
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"{path.name} must hold the arrays {list(names)}, got none named {missing}")
    return found


def _pooch():  # noqa: ANN202
    try:
        import pooch
    except ImportError as error:
        raise ImportError("download=True needs pooch: pip install 'split-mcmc[datasets]'") from error
    return pooch
