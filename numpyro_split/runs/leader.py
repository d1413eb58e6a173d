"""How the first process tells the others what a stored run does (:mod:`split_common.runs.leader`)."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from jax.experimental import multihost_utils

HEAD = 8  # bytes of a length
PIECE = 256  # bytes that a message is rounded up to, so that few programs are compiled that send one


def broadcast(message: Any) -> Any:
    """What the first process says, in all processes, each of which calls this.

    Args:
        message: the first process's; whatever pickle takes. The others' is not looked at.
    """
    content = pickle.dumps(message)
    own = len(content).to_bytes(HEAD, "little") + content
    first = _sent(own[:PIECE], PIECE)
    length = HEAD + int.from_bytes(first[:HEAD], "little")
    rest = _sent(own[PIECE:length], length - PIECE) if length > PIECE else b""
    return pickle.loads((first + rest)[HEAD:length])


def _sent(content: bytes, length: int) -> bytes:
    """So many bytes of the first process, in all of them."""
    words = np.zeros(-(-length // PIECE) * PIECE, np.uint8)
    words[: min(len(content), length)] = np.frombuffer(content[:length], np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(words)).tobytes()[:length]
