"""Arrays and plain values packed into one byte string, with a digest that shows whether it is whole.

A packed string is a line of JSON (the plain values, and type, shape and place of each array), the bytes of the arrays,
and a digest of both. Reading one executes nothing: arrays are made from their bytes, numbers and texts come from JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from split_common.digest import Digest

DIGEST_BYTES = 32  # bytes of a digest in hexadecimal


class Packed(NamedTuple):
    """Plain values and arrays.

    Attributes:
        values: values that JSON can hold.
        arrays: arrays by name.

    Example:
        >>> packed = Packed({"iteration": 3}, {"z": np.arange(2.0)})
        >>> Packed.of_bytes(packed.to_bytes()).arrays["z"]
        array([0., 1.])
        >>> Packed.of_bytes(packed.to_bytes()[:-1]) is None
        True
    """

    values: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def to_bytes(self) -> bytes:
        """The packed string."""
        places, parts, offset = {}, [], 0
        for name, x in self.arrays.items():
            content = np.ascontiguousarray(x).tobytes()
            places[name] = [x.dtype.name, list(x.shape), offset]
            parts.append(content)
            offset += len(content)
        head = json.dumps({"values": self.values, "places": places, "bytes": offset}).encode()
        body = b"".join([head, b"\n", *parts])
        return body + Digest().add(body).key.encode()

    @classmethod
    def of_bytes(cls, content: bytes) -> Packed | None:
        """The content of a packed string; None where it is not whole."""
        body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
        if len(content) <= DIGEST_BYTES or Digest().add(body).key.encode() != digest:
            return None
        end = body.index(b"\n")
        head = json.loads(body[:end])
        return cls(head["values"], dict(_arrays(head["places"], body[end + 1 :])))


def _arrays(places: Mapping[str, Any], content: bytes) -> Any:
    for name, (dtype, shape, offset) in places.items():
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        yield name, np.frombuffer(content, kind, count, offset).reshape(shape).copy()
