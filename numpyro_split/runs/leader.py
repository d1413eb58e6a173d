"""Broadcast from the first process, which leads a stored run (:mod:`split_common.runs.leader`)."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from jax.experimental import multihost_utils

HEAD = 8  # bytes that hold the length of a message
PIECE = 256  # bytes; messages are rounded up to a multiple of it, so that few programs that send them are compiled


def broadcast(message: Any) -> Any:
    """The first process's message, in all processes, each of which calls this.

    Args:
        message: any object that can be pickled. The other processes' messages are ignored.
    """
    content = pickle.dumps(message)
    own = len(content).to_bytes(HEAD, "little") + content
    first = _sent(own[:PIECE], PIECE)
    length = HEAD + int.from_bytes(first[:HEAD], "little")
    rest = _sent(own[PIECE:length], length - PIECE) if length > PIECE else b""
    return pickle.loads((first + rest)[HEAD:length])


def _sent(content: bytes, length: int) -> bytes:
    """The first ``length`` bytes of the first process's content, in all processes."""
    words = np.zeros(-(-length // PIECE) * PIECE, np.uint8)
    words[: min(len(content), length)] = np.frombuffer(content[:length], np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(words)).tobytes()[:length]
