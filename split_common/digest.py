"""Digests that identify the data of a state, and the content of a cache.

A digest is 128 bits of XXH3 over every byte of what is added, its type and its shape, so that two different contents
have the same one with probability 2⁻¹²⁸. XXH3 is as fast as memory can be read; it is no defence against data made to
collide.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import xxhash

WORDS = 4  # words of 32 bits in a digest
BLOCK_BYTES = 2**24  # bytes of an array that is not contiguous that are copied at a time


class Digest:
    """A digest to which content can be added.

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
        """Add every byte of a contiguous block of its entries."""
        self._hash.update(block.reshape(-1).view(np.uint8).data)
        return self

    @property
    def key(self) -> str:
        """The digest of what was added so far, in hexadecimal."""
        return self._hash.hexdigest()

    @property
    def words(self) -> np.ndarray:
        """The digest of what was added so far, as numbers, shape (4,), uint32."""
        return np.frombuffer(self._hash.digest(), ">u4").astype(np.uint32)


def digest_of_arrays(arrays: Iterable[np.ndarray]) -> Digest:
    """The digest of arrays, in order."""
    digest = Digest()
    for x in arrays:
        digest.add_array(x)
    return digest


def _contiguous_blocks(x: np.ndarray) -> Iterable[np.ndarray]:
    """Contiguous blocks of ``x`` in order: ``x`` itself where it is contiguous, else copies of some rows at a time."""
    if x.flags.c_contiguous or not x.ndim or not x.size:
        return [np.ascontiguousarray(x)]
    rows = max(1, BLOCK_BYTES * x.shape[0] // x.nbytes)
    return (np.ascontiguousarray(x[start : start + rows]) for start in range(0, x.shape[0], rows))
