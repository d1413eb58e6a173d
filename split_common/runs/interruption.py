"""Ending of a run by a signal: the signal is noted, and the iteration is finished."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from split_common.values import shown


class Interruption:
    """Whether a signal has arrived.

    Attributes:
        reason: name of the signal; None before one has arrived.
    """

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self) -> str | None:
        """The reason to stop; None to go on."""
        return self.reason


def checked_signals(stop_on: Any) -> tuple[signal.Signals, ...]:
    """The signals of these names, or raise."""
    if isinstance(stop_on, str) or not isinstance(stop_on, Sequence):
        raise TypeError(f"stop_on must be a tuple of names of signals, got {shown(stop_on)}")
    known = signal.Signals.__members__
    for name in stop_on:
        if name not in known or name in ("SIGKILL", "SIGSTOP"):
            raise ValueError(
                f"stop_on must name signals that a process can catch, such as 'SIGTERM', got {shown(name)}"
            )
    return tuple(known[name] for name in stop_on)


@contextmanager
def interruptible(signals: Sequence[signal.Signals]) -> Iterator[Interruption]:
    """Context in which signals are noted; the same signal a second time has its usual effect.

    Outside the main thread, where Python takes no signals, it does nothing.

    Args:
        signals: the signals to note.
    """
    noted = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = {number: signal.getsignal(number) for number in signals}

    def note(number: int, frame: FrameType | None) -> None:
        noted.reason = signal.Signals(number).name
        signal.signal(number, before[signal.Signals(number)])

    for number in signals:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
