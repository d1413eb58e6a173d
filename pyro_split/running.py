"""One run at a time: Pyro keeps its handlers in one stack for the whole process."""

from __future__ import annotations

import sys
import threading
from types import FrameType

from pyro.infer.mcmc import api


def check_only_run() -> None:
    """Raise when another thread of this process is in the middle of a run of MCMC.

    Pyro's own ``MCMC`` leaves its stack of handlers in disorder when two threads run it at once, and both draw from
    torch's one generator.

    Raises:
        RuntimeError: naming both threads.
    """
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and _is_in_run(frames.get(thread.ident or 0)):
            raise RuntimeError(
                "Pyro runs one MCMC at a time in a process (its handlers and random numbers are the process's), got "
                f"a run in thread {threading.current_thread().name!r} while thread {thread.name!r} is in one; use "
                "processes"
            )


def _is_in_run(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == api.__file__ and frame.f_code.co_name == "run":
            return True
        frame = frame.f_back
    return False
