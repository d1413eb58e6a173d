"""Chains that move in processes of their own, each of which writes its part of the store.

The main process holds the lock of the store, tells the chains when to stop, and reads the draws they have written. A
chain whose main process has died ends without writing more.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyro
import torch

from pyro_split.host import validates_distributions
from pyro_split.runs.chains import KernelChain, Task
from split_common.runs.drive import drive, resumed
from split_common.runs.plan import Plan
from split_common.runs.store import RunStore

WAIT = 0.2  # seconds between two checks of whether to stop


class Message(NamedTuple):
    """Message of a chain to the main process.

    Attributes:
        chain: number of the chain.
        position: number of warm-up iterations and draws that it has made.
        diagnostics: diagnostics at the chain's end, pickled by value because tensors shared between processes must not
            outlive their process; None before the end.
        error: traceback of the exception that ended the chain, or None.
        text: text for the progress bar.
    """

    chain: int
    position: int
    diagnostics: bytes | None = None
    error: str | None = None
    text: str = ""

    @property
    def numbers(self) -> tuple[int]:
        """Number of the chain, in the form that progress bars need."""
        return (self.chain,)


class Circumstances(NamedTuple):
    """Settings of the main process that a spawned one lacks.

    Attributes:
        dtype: default type of tensors.
        device: default device.
        validates: whether distributions are validated.
    """

    dtype: Any
    device: Any
    validates: bool


def drive_in_processes(
    context: Any,
    task: Task,
    path: str,
    starts: list[tuple[int, Any]],
    summarised: Mapping[str, Any],
    signals: Sequence[int],
    should_stop: Callable[[], str | None],
    on_progress: Callable[[Any, int], None],
) -> tuple[str | None, list[dict[str, Any]], list[int]]:
    """Move chains to the end of the plan, each in a process of its own.

    Args:
        context: context of multiprocessing.
        task: what the chains have in common.
        path: path of the store.
        starts: seed and initial parameters of each chain.
        summarised: shape and type of the variables that are summarised.
        signals: signals that end the run early, which the chains' processes leave to this one.
        should_stop: returns the reason to stop at once, or None to continue.
        on_progress: called with each message of a chain, which has its position, and 0.

    Returns:
        The reason why the chains were stopped, None if they made all draws; and diagnostics and position of each chain.

    Raises:
        RuntimeError: where a chain has failed, or its process has died.
    """
    messages, stop = context.Queue(), context.Event()
    circumstances = Circumstances(torch.get_default_dtype(), torch.get_default_device(), validates_distributions())
    processes = [
        context.Process(
            target=_move_chain,
            args=(number, task, path, start, summarised, signals, messages, stop, os.getpid(), circumstances),
            daemon=True,
        )
        for number, start in enumerate(starts)
    ]
    try:
        return _supervise(processes, task.plan, messages, stop, should_stop, on_progress)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()


def _supervise(
    processes: list[Any],
    plan: Plan,
    messages: Any,
    stop: Any,
    should_stop: Callable[[], str | None],
    on_progress: Callable[[Any, int], None],
) -> tuple[str | None, list[dict[str, Any]], list[int]]:
    """Start the processes, and wait until each chain has ended."""
    with _without_interrupts():
        for process in processes:
            process.start()
    ended: dict[int, Message] = {}
    reason = None
    while len(ended) < len(processes):
        reason = reason or should_stop()
        if reason is not None:
            stop.set()
        try:
            message = messages.get(timeout=WAIT)
        except queue.Empty:
            _check_alive(processes, ended, messages)
            continue
        if message.error is not None:
            raise RuntimeError(f"chain {message.chain} failed:\n{message.error}")
        if message.diagnostics is not None:
            ended[message.chain] = message
        on_progress(message, 0)
    by_chain = [ended[number] for number in range(len(processes))]
    positions = [message.position for message in by_chain]
    return (
        None if min(positions) == plan.end else reason,
        [pickle.loads(x.diagnostics or b"") for x in by_chain],
        positions,
    )


def _check_alive(processes: list[Any], ended: Mapping[int, Message], messages: Any) -> None:
    for number, process in enumerate(processes):
        if number not in ended and not process.is_alive() and messages.empty():
            raise RuntimeError(
                f"the process of chain {number} died (exit code {process.exitcode}); what it committed is in the "
                "store, and the same call goes on from there"
            )


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Context in which started processes ignore Ctrl-C, which is for the main process alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _move_chain(
    number: int,
    task: Task,
    path: str,
    start: tuple[int, Any],
    summarised: Mapping[str, Any],
    signals: Sequence[int],
    messages: Any,
    stop: Any,
    parent: int,
    circumstances: Circumstances,
) -> None:
    """Run a chain to its end: the work of its process."""
    torch.set_default_dtype(circumstances.dtype)
    torch.set_default_device(circumstances.device)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number_of_signal in signals:  # which all processes of a group are sent, as `timeout` does
        signal.signal(number_of_signal, signal.SIG_IGN)

    def should_stop() -> str | None:
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return "stopped" if stop.is_set() else None

    def tell(chains: Any, num: int) -> None:
        messages.put(Message(number, chains.position, text=chains.text))

    try:
        with pyro.validation_enabled(circumstances.validates), pyro.poutine.block():
            store = RunStore.of(path)
            assert store is not None
            chain = KernelChain(number, task, *start)
            recordings = resumed(store, [chain], summarised)
            drive([chain], recordings, task.plan, should_stop, lambda *_: None, tell)
            messages.put(Message(number, chain.position, diagnostics=pickle.dumps(chain.diagnostics())))
    except Exception:
        messages.put(Message(number, 0, error=traceback.format_exc()))
