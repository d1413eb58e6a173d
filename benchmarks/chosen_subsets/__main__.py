"""Does the number of subsets that ``num_subsets="auto"`` chooses keep a gradient's memory within what was given?

For the convolutional net on images of noise, and three memories: M, the bytes that were counted when it was chosen, and
how far the resident memory of a process of its own rises while it takes the gradient of the first subset once, after
all that comes before a run. Linux alone, whose /proc/self/clear_refs sets the peak back; glibc is asked to give large
arrays back at once (MALLOC_MMAP_THRESHOLD_), so that what was freed before does not hide what is taken.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common.report import add_common_options, chosen, save, verdict
from split_common.memory import check_memory, text_of_bytes

FRAMEWORKS = ("numpyro", "pyro")
MEMORIES, QUICK_MEMORIES = ("100MB", "300MB", "1GB"), ("20MB",)
NUM_ROWS, QUICK_ROWS = 20_000, 500
GOAL = 1.05  # of resident memory over the one that was given: pages, and what a library keeps inside an operation
SIDE = 28  # of an image


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, FRAMEWORKS)
    parser.add_argument("--memory", help="one memory alone, in this process; prints JSON")
    return parser.parse_args()


def of_numpyro(num_rows: int, memory: str) -> tuple[int, str, Callable[[], Any]]:
    """Subsets chosen, what is said of them, and a gradient that is compiled but was not run."""
    import jax
    import jax.numpy as jnp

    from benchmarks.common.numpyro_models import classifiers
    from numpyro_split.splitting.model_split import ModelSplit, split_model

    model = classifiers()["conv"]
    x = jax.random.uniform(jax.random.key(0), (num_rows, SIDE, SIDE))
    y = jnp.arange(num_rows) % 10
    with Noted(ModelSplit) as noted:
        potential = split_model(model, (x, y), num_subsets="auto", memory=memory)
    z = jax.block_until_ready(jax.tree.map(jnp.asarray, model.position()))
    gradient = jax.jit(lambda potential, z, m: potential.subset_energies_and_grad(z, m))
    compiled = gradient.lower(potential, z, jnp.array(0)).compile()
    return potential.num_subsets, noted.verdict, lambda: jax.block_until_ready(compiled(potential, z, jnp.array(0)))


def of_pyro(num_rows: int, memory: str) -> tuple[int, str, Callable[[], Any]]:
    """Subsets chosen, what is said of them, and a gradient, traced by an earlier one."""
    import torch

    from benchmarks.common.pyro_models import classifiers
    from pyro_split.splitting.model_split import ModelSplit, split_model

    torch.set_num_threads(1)
    model = classifiers()["conv"]
    x, y = torch.rand(num_rows, SIDE, SIDE), torch.arange(num_rows) % 10
    with Noted(ModelSplit) as noted:
        potential = split_model(model, (x, y), num_subsets="auto", memory=memory)
    z = model.position()
    potential.subset_grad(z, 0)
    return potential.num_subsets, noted.verdict, lambda: potential.subset_grad(z, 0)


class Noted:
    """Notes the verdict of the split that a potential is bound by."""

    def __init__(self, kind: Any):
        self._kind, self._bind, self.verdict = kind, kind.bind, ""

    def __enter__(self) -> Noted:
        def bind(split: Any, *arguments: Any) -> Any:
            self.verdict = str(split.verdict)
            return self._bind(split, *arguments)

        self._kind.bind = bind
        return self

    def __exit__(self, *error: object) -> None:
        self._kind.bind = self._bind


def measured(framework: str, num_rows: int, memory: str) -> dict[str, Any]:
    """Subsets chosen and the memory that a gradient takes, in this process."""
    started = time.perf_counter()
    num_subsets, said, gradient = {"numpyro": of_numpyro, "pyro": of_pyro}[framework](num_rows, memory)
    seconds = time.perf_counter() - started
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    gradient()
    risen = resident("VmHWM") - before
    return {
        "framework": framework,
        "memory": check_memory(memory),
        "num_subsets": num_subsets,
        "said": said.rpartition("; ")[2],
        "risen": risen,
        "seconds": seconds,
    }


def resident(name: str) -> int:
    """Resident memory of this process in bytes, now ("VmRSS") or at its peak ("VmHWM")."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def in_a_process(framework: str, quick: bool, memory: str) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.chosen_subsets", "--framework", framework, "--memory", memory]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**17)}
    command += ["--quick"] * quick
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return json.loads(output)


def main() -> None:
    """Measure, print, and write JSON where asked."""
    options = parse_options()
    num_rows = QUICK_ROWS if options.quick else NUM_ROWS
    if options.memory:
        print(json.dumps(measured(options.framework, num_rows, options.memory)))
        return
    results = []
    for framework in chosen(options.framework, FRAMEWORKS):
        for memory in QUICK_MEMORIES if options.quick else MEMORIES:
            found = in_a_process(framework, options.quick, memory)
            ratio = found["risen"] / found["memory"]
            print(f"{framework:8} {found['said']}; resident memory rose by {text_of_bytes(found['risen'])}", end=", ")
            print(f"ratio {ratio:.3f}, {verdict(ratio, GOAL)}; {found['seconds']:.1f} s", flush=True)
            results.append({**found, "ratio": ratio})
    save(options.json, {"rows": num_rows, "model": "convolutional net, float32"}, results)


if __name__ == "__main__":
    main()
