"""The two frameworks side by side, each in a process of its own and on one core."""

import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor
from importlib import import_module
from queue import Empty

from rich.console import Console

from demo.outcomes import Outcome, summarise
from demo.progress import Reporter, display
from demo.settings import MODELS, SAMPLERS, Iterations
from split_common.datasets import ImageData

MODULES = {"NumPyro": "demo.numpyro_runs", "Pyro": "demo.pyro_runs"}
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    # runs are short here: compile for less time; and leave the other core to the other framework
    "XLA_FLAGS": "--xla_backend_optimization_level=1 --xla_cpu_multi_thread_eigen=false",
    "TQDM_DISABLE": "1",  # the progress is shown here instead
}


def run_both(digits: ImageData, iterations: dict[str, Iterations], console: Console) -> list[Outcome]:
    """Run every model by every sampler in both frameworks at once, showing progress."""
    context = multiprocessing.get_context("spawn")  # neither JAX nor PyTorch likes to be forked
    with context.Manager() as manager, ProcessPoolExecutor(len(MODULES), context, prepare_process) as pool:
        queue = manager.Queue()
        futures = [pool.submit(run_half, name, digits, iterations[name], Reporter(name, queue)) for name in MODULES]
        with display(console) as shown:
            while not all_done(futures) or not queue.empty():
                try:
                    shown.show(queue.get(timeout=0.2))
                except Empty:
                    continue
        return [outcome for future in futures for outcome in future.result()]


def run_half(framework: str, digits: ImageData, iterations: Iterations, reporter: Reporter) -> list[Outcome]:
    """Every model by every sampler in one framework."""
    runs = import_module(MODULES[framework])
    outcomes = []
    for model in MODELS:
        for sampler in SAMPLERS:
            outcome = summarise(runs.run(model, sampler, digits, iterations, reporter), digits)
            reporter.finish(outcome.acceptance)
            outcomes.append(outcome)
    return outcomes


def prepare_process() -> None:
    """Settings that the frameworks read when they are imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def all_done(futures: list[Future]) -> bool:
    """Whether nothing is left to wait for: all finished, or one failed."""
    return all(future.done() for future in futures) or any(future.done() and future.exception() for future in futures)
