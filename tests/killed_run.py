"""A process that runs one kernel with a store and kills itself: ``python -m tests.killed_run ...``."""

from __future__ import annotations

import argparse
import os
import signal
import threading
import warnings

from split_common.runs import drive
from tests.backends import NumPyroBackend, PyroBackend
from tests.kernels import TABLE
from tests.stored_run import Run

LENGTHS = {"num_warmup": 150, "num_samples": 150}
EVERY = 5


def the_run(package, kernel, path):
    lib = {"numpyro": NumPyroBackend, "pyro": PyroBackend}[package]()
    return Run(lib, TABLE[kernel], path, **LENGTHS)


def kill_after(seconds):
    """From the first time on that chains move."""
    move, timer = drive._move, threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True

    def timed(*args):
        if not timer.is_alive():
            timer.start()
        return move(*args)

    drive._move = timed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("kernel")
    parser.add_argument("path")
    parser.add_argument("--seconds", type=float, help="until it kills itself; default: it does not")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    drive.LONGEST_WAIT = 0.0  # every multiple of EVERY is committed
    if options.seconds is not None:
        kill_after(options.seconds)
    the_run(options.package, options.kernel, options.path).sample(every=EVERY, warmup=True)


if __name__ == "__main__":
    main()
