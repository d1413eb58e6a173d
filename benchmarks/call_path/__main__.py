"""How many of the package's files one iteration enters, and whether calls climb.

Of ``MCMC(SymmetricSplitHMC(model, num_subsets=4)).run``: which files of ours an iteration after warm-up enters (in
NumPyro, where an iteration is compiled, the trace of one, in which warm-up and draws are traced at once), how many of
them lie on the way from the host's call to a subset's gradient or to the decision, and which calls go from a folder to
one above it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.common.report import add_common_options, chosen, save

ROOT = Path(__file__).parents[2]
PACKAGES = {"numpyro": "numpyro_split", "pyro": "pyro_split"}
LAYERS = ("host", "potential", "splitting", "integrators", "trajectories", "adaptation", "kernels")
SAME_LAYER = {"subsampling": "adaptation", "models": "potential"}
ENDS = ("subset_energies_and_grad", "subset_grad", "metropolis")  # of the way: a subset's gradient, and the decision


def watch(package: str, work: Callable[[], Any]) -> dict[str, Any]:
    """Files entered while ``work`` runs, those on the way to gradient and decision, and the calls that climb."""
    stack: list[str | None] = []
    entered: set[str] = set()
    on_the_way: set[str] = set()
    climbing: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and stack:
            stack.pop()
        if event != "call":
            return
        name = file_of(frame, package)
        if name is not None:
            caller = next((x for x in reversed(stack) if x is not None), None)
            entered.add(name)
            if caller is not None and layer(name, package) > layer(caller, package):
                climbing.add(f"{caller} calls {frame.f_code.co_qualname} of {name}")
            if frame.f_code.co_name in ENDS:
                on_the_way.update(x for x in (*stack, name) if x is not None)
        stack.append(name)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return {"entered": sorted(entered), "on the way": sorted(on_the_way), "climbing": sorted(climbing)}


def file_of(frame: FrameType, package: str) -> str | None:
    """The file of ours that a frame runs, relative to the repository; None for any other."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    name = path.relative_to(ROOT).as_posix()
    return name if name.startswith((f"{package}/", "split_common/")) else None


def layer(name: str, package: str) -> int:
    """Number of the layer that a file is in; the rules common to both packages are below all."""
    if not name.startswith(package):
        return -1
    room = name.split("/")[1].removesuffix(".py")
    return LAYERS.index(SAME_LAYER.get(room, room)) if SAME_LAYER.get(room, room) in LAYERS else len(LAYERS)


def in_numpyro() -> Callable[[], Any]:
    """The trace of an iteration."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    from numpyro_split import SymmetricSplitHMC

    def model(X: Any, y: Any) -> None:
        b = numpyro.sample("b", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(X @ b, 1.0), obs=y)

    X, y = data()
    kernel, args = SymmetricSplitHMC(model, num_subsets=4), (jnp.asarray(X), jnp.asarray(y))
    state = kernel.init(jax.random.key(0), 20, None, args, {})
    jax.clear_caches()
    return lambda: jax.make_jaxpr(lambda state: kernel.sample(state, args, {}))(state)


def in_pyro() -> Callable[[], Any]:
    """An iteration after warm-up."""
    import pyro
    import pyro.distributions as dist
    import torch

    from pyro_split import SymmetricSplitHMC

    def model(X: Any, y: Any) -> None:
        b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Normal(X @ b, 1.0), obs=y)

    kernel = SymmetricSplitHMC(model, num_subsets=4)
    kernel.setup(20, *(torch.tensor(x, dtype=torch.float32) for x in data()))
    z = kernel.initial_params
    for _ in range(25):
        z = kernel.sample(z)
    return lambda: kernel.sample(z)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Predictors and responses."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)).astype(np.float32)
    return X, (X @ [1.0, -0.5] + rng.normal(size=40)).astype(np.float32)


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser)
    options = parser.parse_args()
    found = {}
    for framework in chosen(options.framework, list(PACKAGES)):
        found[framework] = row = watch(PACKAGES[framework], {"numpyro": in_numpyro, "pyro": in_pyro}[framework]())
        way = row["on the way"]
        print(f"{framework}: {len(row['entered'])} files entered, {len(way)} on the way to gradient and decision")
        print("  entered:", *row["entered"])
        print("  on the way:", *way)
        print("  calls that climb:", *(row["climbing"] or ["none"]), sep="\n    ")
    save(options.json, {}, found)


if __name__ == "__main__":
    main()
