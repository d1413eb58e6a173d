"""Chains of hamiltorch's symmetric splitting on softmax regression, where hamiltorch can be imported.

It is not on PyPI: ``pip install git+https://github.com/AdamCobb/hamiltorch@19b627b``. Its step size is adapted by its
own dual averaging in warm-up, to its own target of 0.8; it has no metric of its own. Chains are made one after the
other, each from the mode, on the device that JAX computes on.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import time
from typing import Any

import jax
import numpy as np

from benchmarks.common.timing import interleaved
from benchmarks.efficiency.arms import Arm
from benchmarks.efficiency.laplace import Laplace
from benchmarks.efficiency.measures import Sizes, figures
from benchmarks.efficiency.targets import Target

COMMIT, FIRST_STEP_SIZE = "19b627b", 1e-3
HOW = f"pip install git+https://github.com/AdamCobb/hamiltorch@{COMMIT}"


def is_installed() -> bool:
    """Whether hamiltorch can be imported."""
    return importlib.util.find_spec("hamiltorch") is not None


def measure_hamiltorch(target: Target, arm: Arm, known: Laplace, sizes: Sizes, seed: int) -> dict[str, float]:
    """The figures of an arm of hamiltorch's.

    A step is 2M gradients of subsets, and an iteration two more evaluations of all of them.
    """
    import torch

    num_warmup, num_draws = sizes.of(arm)
    device = torch.device("cpu" if jax.default_backend() == "cpu" else "cuda")
    rows = torch.tensor(np.asarray(target.args[0], np.float32)).to(device)  # its weights are in 32 bits
    labels = torch.tensor(np.asarray(target.args[1])).to(device)
    size = len(rows) // target.num_subsets
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, labels), batch_size=size)
    net = torch.nn.Linear(rows.shape[1], 10).to(device)
    mode = known.at_mode()
    start = np.concatenate([np.asarray(mode["weights"]).T.ravel(), np.asarray(mode["bias"])]).astype(np.float32)
    start = torch.from_numpy(start).to(device)
    chains, rates, steps, seconds, warmup_seconds = [], [], [], 0.0, 0.0
    for chain in range(sizes.num_chains):
        torch.manual_seed(1000 * seed + chain)
        begin = time.perf_counter()
        warm, step_size = _sample(net, batches, start, target, arm, num_warmup, None)
        middle = time.perf_counter()
        draws, rate = _sample(net, batches, warm[-1], target, arm, num_draws, step_size)
        warmup_seconds, seconds = warmup_seconds + middle - begin, seconds + time.perf_counter() - middle
        chains.append([_judged(target, draw) for draw in draws])
        rates.append(rate)
        steps.append(step_size)
    num_iterations, share = num_draws * sizes.num_chains, _forward_share(net, rows, labels)
    gradients, forwards = 2.0 * (arm.num_steps or 0), 2.0 * share
    return {
        **figures(np.array(chains, float), gradients * num_iterations, forwards * num_iterations, seconds),
        "warmup_passes": (gradients + forwards) * num_warmup,
        "reference_passes": float(known.passes),
        "warmup_seconds": warmup_seconds,
        "steps": float(arm.num_steps or 0),
        "step_size": float(np.mean(steps)),
        "accept_prob": float(np.mean(rates)),
    }


def _sample(
    net: Any, batches: Any, start: Any, target: Target, arm: Arm, num: int, step_size: float | None
) -> tuple[list[Any], float]:
    """Draws and their acceptance; where no step size is given, what warm-up ends with and the step size."""
    import hamiltorch

    is_warmup = step_size is None
    with contextlib.redirect_stdout(io.StringIO()):
        draws, found = hamiltorch.sample_split_model(
            net,
            batches,
            start,
            target.num_subsets,
            model_loss="multi_class_linear_output",
            num_samples=num + 2 if is_warmup else num,
            num_steps_per_sample=arm.num_steps,
            step_size=FIRST_STEP_SIZE if is_warmup else step_size,
            burn=num if is_warmup else -1,
            sampler=hamiltorch.Sampler.HMC_NUTS if is_warmup else hamiltorch.Sampler.HMC,
            integrator=hamiltorch.Integrator.SPLITTING,
            debug=2,
            verbose=False,
        )
    return draws[1:], found


def _judged(target: Target, draw: Any) -> np.ndarray:
    """The target's quantities at a draw, whose order is that of ``torch.nn.Linear``."""
    inputs, classes = target.shapes["weights"]
    flat = draw.cpu().numpy()
    z = {"weights": flat[: inputs * classes].reshape(classes, inputs).T, "bias": flat[inputs * classes :]}
    return np.asarray(target.judged(z))


def _forward_share(net: Any, rows: Any, labels: Any) -> float:
    """Time of PyTorch's forward pass in its gradients."""
    import torch

    def loss() -> Any:
        return torch.nn.functional.cross_entropy(net(rows), labels.long(), reduction="sum")

    def wait() -> None:
        if rows.is_cuda:
            torch.cuda.synchronize()

    seconds = interleaved({"forward": lambda: (loss(), wait()), "gradient": lambda: (loss().backward(), wait())}, 11)
    return float(np.median(seconds["forward"] / seconds["gradient"]))
