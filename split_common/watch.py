"""Shows how a run that is written to a store stands: ``python -m split_common.watch PATH``.

The progress of the chains costs almost nothing to read. A look at their draws takes longer
(:mod:`split_common.runs.findings`), so the next look is taken after :data:`REST` times as long as the last one took.
Nothing is written, and nothing that is read is executed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import rich

from split_common.checks import check_positive_float
from split_common.errors import StoreError, first_line
from split_common.runs.findings import NOTHING, look
from split_common.runs.life import checked_progress, life_of
from split_common.runs.screen import Screen, display
from split_common.runs.store_path import checked_path, is_held

REST = 10.0


def snapshot(store: str | os.PathLike[str]) -> Any:
    """How a run stands now, as one screen.

    Args:
        store: path of a run's store, or an address that fsspec knows; the run may be in progress or have ended.

    Returns:
        An object that ``rich.print`` shows, as does a notebook's cell that ends with it: how far each chain is, when it
        will be done, divergences, acceptance, step size and gradients, trouble, the coordinates that are known worst,
        and traces.

    Raises:
        TypeError: for something that is no path.
        StoreError: where there is nothing at the path, or no store.

    Example:
        >>> snapshot("nothing.zarr")
        Traceback (most recent call last):
        ...
        split_common.errors.StoreError: store must be the path of a run's store, got 'nothing.zarr', where nothing is
    """
    path = checked_path(store)
    held = is_held(path)
    found = checked_progress(path)
    findings = look(path, found)
    return Screen(path, found, life_of(found, held, findings.warmup_seconds), findings)


def watch(store: str | os.PathLike[str], *, refresh: float = 2.0) -> None:
    """Show how a run stands, again and again, until it ends or Ctrl-C is pressed; in a terminal or a notebook's cell.

    It also goes on for a run whose process has died, since the run may be resumed.

    Args:
        store: path of a run's store, or an address that fsspec knows.
        refresh: seconds from one screen to the next, above 0.

    Raises:
        TypeError: for something that is no path.
        ValueError: for a time out of range; as :class:`~split_common.errors.StoreError` where there is nothing at the
            path, or no store.

    Example:
        >>> watch("nothing.zarr", refresh=5.0)
        Traceback (most recent call last):
        ...
        split_common.errors.StoreError: store must be the path of a run's store, got 'nothing.zarr', where nothing is
    """
    path, refresh = checked_path(store), check_positive_float("refresh", refresh)
    checked_progress(path)
    findings, looked_at, next_look = NOTHING, None, 0.0
    with contextlib.suppress(KeyboardInterrupt), display() as show:
        while True:
            held = is_held(path)  # asked first: a process that has let go of the store has written all it had
            found = checked_progress(path)
            life = life_of(found, held, findings.warmup_seconds)
            show(Screen(path, found, life, findings))
            if found.chains != looked_at and (life.is_over or time.monotonic() >= next_look):
                start = time.monotonic()
                findings = look(path, found)
                rest = 0.0 if looked_at is None else REST * (time.monotonic() - start)  # the first look imports ArviZ
                looked_at, next_look = found.chains, time.monotonic() + rest
                show(Screen(path, found, life_of(found, held, findings.warmup_seconds), findings))
            if life.is_over:
                return
            time.sleep(refresh)


def main(arguments: Sequence[str] | None = None) -> None:
    """Watch a run from a command line.

    Args:
        arguments: arguments of the command; None for those of the process.

    Raises:
        SystemExit: with code 2 and a message of one line, for wrong arguments and for a path without a store.

    Example:
        >>> main(["--help"])
        Traceback (most recent call last):
        ...
        SystemExit: 0
    """
    parser = argparse.ArgumentParser(prog="python -m split_common.watch", description="Watch a run with a store.")
    parser.add_argument("path", metavar="PATH", help="the run's store, or an address that fsspec knows")
    parser.add_argument("--refresh", type=float, default=2.0, metavar="SECONDS", help="between screens (default 2)")
    parser.add_argument("--once", action="store_true", help="show one screen, and end")
    given = parser.parse_args(arguments)
    try:
        refresh = check_positive_float("--refresh", given.refresh)
    except ValueError as error:
        parser.error(str(error))
    try:
        if given.once:
            rich.print(snapshot(given.path))
        else:
            watch(given.path, refresh=refresh)
    except (StoreError, OSError, TypeError) as error:
        parser.error(first_line(error))


if __name__ == "__main__":
    main(sys.argv[1:])
