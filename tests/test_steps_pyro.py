"""A chain of Pyro's is a value: an iteration is a function of it and of torch's generator, and leaves it as it is.

The host's adapter changes in place, and so do the tools that a state names; what they are asked must not show it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from tests import kernels
from tests.backends import PyroBackend
from tests.kernels import TABLE, Entry

WARMUP = 40  # its windows end with iterations 5, 35 and 39, counted from 1 as the host does
MOMENTS = {"first window": 3, "window of the metric": 20, "end of that": 33, "end of warm-up": 38, "draws": 43}
NUM_STEPS = 4  # so that the moments named for an end go past it
TOOLS = ("adapter", "estimator", "forces")  # of a state: what they remember is loaded from the rest of it
DENSE = Entry("SplitNUTS", {"full_mass": True, "max_tree_depth": 4})
ENTRIES = {**TABLE, "SplitNUTS with a dense metric": DENSE}


def leaves(x: Any, path: str = "") -> dict[str, Any]:
    """Numbers of nested values by their place, as bytes where they are tensors, so that equality is of bits."""
    if isinstance(x, torch.Tensor):
        return {path: (x.dtype, tuple(x.shape), x.detach().contiguous().numpy().tobytes())}
    if isinstance(x, float):
        return {path: np.float64(x).tobytes()}
    parts: Any = ()
    if hasattr(x, "_asdict"):
        parts = x._asdict().items()
    elif isinstance(x, dict):
        parts = x.items()
    elif isinstance(x, (list, tuple)):
        parts = enumerate(x)
    elif type(x).__module__.startswith("pyro.ops"):  # dual averaging
        parts = vars(x).items()
    else:
        assert x is None or isinstance(x, (str, int, bool, np.ndarray)), f"{path}: {type(x)}"
        return {path: x.tobytes() if isinstance(x, np.ndarray) else x}
    return {place: leaf for name, part in parts for place, leaf in leaves(part, f"{path}/{name}").items()}


def state_of(kernel: Any) -> dict[str, Any]:
    """The state of a kernel's chain, bit for bit."""
    state = kernel._chain.state
    return leaves({name: x for name, x in state._asdict().items() if name not in TOOLS})


def sample(kernel: Any, num_steps: int) -> list[dict[str, Any]]:
    """The states after each of some iterations, and what the generator is left at."""
    found, z = [], dict(kernel._chain.state.z)
    for _ in range(num_steps):
        z = kernel.sample(z)
        found.append({**state_of(kernel), **leaves(z, "drawn"), "generator": torch.get_rng_state().numpy().tobytes()})
    return found


def made(lib: Any, entry: Entry, model: Any) -> Any:
    """The kernel of an entry, which looks for its step sizes."""
    few = {"batch_size": 6, "num_batches": 3} if entry.name == "PenaltyMH" else {}
    return getattr(lib.split, entry.name)(model, **{"num_subsets": 2, **few, **entry.options})


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES.keys())
def test_a_step_is_a_function_of_state_and_generator(entry: Entry) -> None:
    lib: Any = PyroBackend()
    problem = kernels.small(lib)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a run of a few iterations
        kernel = made(lib, entry, problem.model)
        kernel.setup(WARMUP, *problem.args)
        for moment, t in MOMENTS.items():
            sample(kernel, t - kernel._chain.state.i)
            chain, generator, before = kernel._chain, torch.get_rng_state(), state_of(kernel)
            once = sample(kernel, NUM_STEPS)
            sample(kernel, 2)  # the tools are ahead of the chain by more than what is repeated
            kernel._chain = chain
            assert state_of(kernel) == before, f"{moment}: changed in place"
            torch.set_rng_state(generator)
            for one, other in zip(once, sample(kernel, NUM_STEPS), strict=True):
                assert one.keys() == other.keys(), moment
                differing = [name for name in one if one[name] != other[name]]
                assert not differing, f"{moment}: {differing}"


def test_two_chains_do_not_share_what_adapts() -> None:
    """One kernel's chain goes on as if another had not been set up by the same object."""
    lib: Any = PyroBackend()
    problem = kernels.small(lib)
    kernel = lib.split.SplitNUTS(problem.model, num_subsets=2, max_tree_depth=4)
    torch.manual_seed(0)
    kernel.setup(WARMUP, *problem.args)
    sample(kernel, 10)
    chain, generator = kernel._chain, torch.get_rng_state()
    alone = sample(kernel, NUM_STEPS)
    kernel.cleanup()
    kernel.setup(WARMUP, *problem.args)
    sample(kernel, 20)
    kernel._chain = chain
    torch.set_rng_state(generator)
    assert sample(kernel, NUM_STEPS) == alone
