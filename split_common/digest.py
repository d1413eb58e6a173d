"""Digests: by which a state knows its data, and a cache its content.

A digest is 128 bits of XXH3 over every byte of what is added, its type and its shape, so that two different contents
have the same one with probability 2⁻¹²⁸. XXH3 reads memory at its speed (0.03 s for 10⁶ rows of 50 float32); it is no
defence against data made to collide.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import xxhash

WORDS = 4  # of 32 bits, in a digest
BLOCK_BYTES = 2**24  # of an array that is not contiguous, copied at a time


class Digest:
    """A digest under way.

    Example:
        >>> Digest().add("scale").add_array(np.arange(3)).words.shape
        (4,)
    """

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()

    def add(self, *texts: str | bytes) -> Digest:
        """Add texts, each with its length."""
        for text in texts:
            content = text.encode() if isinstance(text, str) else text
            self._hash.update(len(content).to_bytes(8, "little"))
            self._hash.update(content)
        return self

    def add_array(self, x: np.ndarray) -> Digest:
        """Add the type, the shape and every byte of an array of numbers."""
        self.begin_array(x.dtype, x.shape)
        for block in _contiguous_blocks(x):
            self.add_bytes(block)
        return self

    def begin_array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Digest:
        """Add the type and the shape of an array whose bytes follow, in order."""
        return self.add(str(dtype), str(shape))

    def add_bytes(self, block: np.ndarray) -> Digest:
        """Add every byte of some of its entries, contiguous."""
        self._hash.update(block.reshape(-1).view(np.uint8).data)
        return self

    @property
    def key(self) -> str:
        """The digest of what was added so far, in hexadecimal."""
        return self._hash.hexdigest()

    @property
    def words(self) -> np.ndarray:
        """The same as numbers, shape (4,), uint32."""
        return np.frombuffer(self._hash.digest(), ">u4").astype(np.uint32)


def digest_of_arrays(arrays: Iterable[np.ndarray]) -> Digest:
    """The digest of arrays, in order."""
    digest = Digest()
    for x in arrays:
        digest.add_array(x)
    return digest


def _contiguous_blocks(x: np.ndarray) -> Iterable[np.ndarray]:
    """``x`` in its order: as it is where its bytes lie in order, else copied block by block."""
    if x.flags.c_contiguous or not x.ndim or not x.size:
        return [np.ascontiguousarray(x)]
    rows = max(1, BLOCK_BYTES * x.shape[0] // x.nbytes)
    return (np.ascontiguousarray(x[start : start + rows]) for start in range(0, x.shape[0], rows))
