"""Writing of rows in random order, once, in bounded memory: for sorted rows, whose subsets would differ.

Two passes. In the first every row is dealt to one of K buckets, uniformly, in temporary files; in the second each
bucket is read, its rows put in random order, and written after those of the buckets before. Given the number of rows in
each bucket, every order of all rows is equally likely.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from split_common.checks import check_positive_int
from split_common.data_axes import check_lengths
from split_common.errors import SourceError
from split_common.sources.rows import Source, gives_rows, rows_of

BYTES_AT_A_TIME = 2**24
MOST_BUCKETS = 256  # largest number of buckets, each with a file for each array


def shuffle_rows(
    rows: Any, path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, seed: int = 0, memory: int = 2**28
) -> Any:
    """Write the rows of arrays in random order, the same for all of them, as ``.npy`` files.

    Args:
        rows: an array or a source, or a sequence of them with equally many rows, as a kernel is given them.
        path: path of the file to write; one for each array where ``rows`` is a sequence.
        seed: seed of the order, which is reproduced for rows of the same number and size and the same ``memory``.
        memory: about how many bytes may be in memory at a time.

    Returns:
        The files as memory maps, which kernels take as they are: one, or a list.

    Raises:
        SourceError: for another number of paths than of arrays, and a path where there is a file.
        ValueError: for arrays of unequal length.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> X, y = np.arange(6.0).reshape(6, 1), np.arange(6)
        >>> X, y = shuffle_rows([X, y], [f"{folder.name}/X.npy", f"{folder.name}/y.npy"], seed=1)
        >>> bool((X[:, 0] == y).all()), sorted(y.tolist())
        (True, [0, 1, 2, 3, 4, 5])
    """
    is_one = isinstance(path, str | os.PathLike)
    arrays = [_opened(x) for x in ([rows] if is_one else rows)]
    paths = [Path(os.fspath(x)) for x in ([path] if is_one else path)]
    if len(arrays) != len(paths) or not arrays:
        raise SourceError(f"path must name a file for each array, got {len(paths)} for {len(arrays)}")
    for target in paths:
        if target.exists():
            raise SourceError(f"path must be that of a new file, got {str(target)!r}, which is there")
    check_lengths({str(target): x.shape[0] for target, x in zip(paths, arrays, strict=True)})
    memory, rng = check_positive_int("memory", memory), np.random.default_rng(seed)
    num_bytes = sum(_row_bytes(x) for x in arrays) * arrays[0].shape[0]
    num_buckets = min(MOST_BUCKETS, max(1, math.ceil(3 * num_bytes / memory)))
    with tempfile.TemporaryDirectory(dir=paths[0].parent) as folder:
        sizes = _deal(arrays, folder, num_buckets, rng)
        _gather(arrays, paths, folder, sizes, seed)
    maps = [np.load(target, mmap_mode="r") for target in paths]
    return maps[0] if is_one else maps


def _deal(arrays: Sequence[Any], folder: str, num_buckets: int, rng: np.random.Generator) -> list[int]:
    """Deal rows to buckets; returns the number of rows in each."""
    num_rows, sizes = arrays[0].shape[0], np.zeros(num_buckets, int)
    step = max(1, BYTES_AT_A_TIME // sum(_row_bytes(x) for x in arrays))
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        bucket = rng.integers(num_buckets, size=stop - start)
        order = np.argsort(bucket, kind="stable")
        counts = np.bincount(bucket, minlength=num_buckets)
        sizes += counts
        for place, x in enumerate(arrays):
            pieces = np.split(_read(x, start, stop)[order], np.cumsum(counts)[:-1])
            for number, piece in enumerate(pieces):
                with open(f"{folder}/{place}-{number}", "ab") as file:
                    file.write(np.ascontiguousarray(piece).tobytes())
    return sizes.tolist()


def _gather(arrays: Sequence[Any], paths: Sequence[Path], folder: str, sizes: Sequence[int], seed: int) -> None:
    """Write each bucket's rows in random order, one bucket after the other."""
    for place, (x, target) in enumerate(zip(arrays, paths, strict=True)):
        partial = target.with_name(f"{target.name}.partial")
        with open(partial, "wb") as file:
            header = {"descr": np.lib.format.dtype_to_descr(x.dtype), "fortran_order": False, "shape": tuple(x.shape)}
            np.lib.format.write_array_header_1_0(file, header)
            for number, size in enumerate(sizes):
                if size:
                    # the same order for each array; [seed, 0] would be the stream that dealt the rows
                    order = np.random.default_rng([seed, number + 1]).permutation(size)
                    found = np.fromfile(f"{folder}/{place}-{number}", x.dtype).reshape(-1, *x.shape[1:])
                    file.write(found[order].tobytes())
        partial.rename(target)


def _opened(x: Any) -> Any:
    return rows_of(x).open() if gives_rows(x) else np.asarray(x)


def _read(x: Any, start: int, stop: int) -> np.ndarray:
    return x.read(start, stop) if isinstance(x, Source) else x[start:stop]


def _row_bytes(x: Any) -> int:
    return max(1, x.dtype.itemsize * math.prod(x.shape[1:]))
