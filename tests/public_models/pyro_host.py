"""A public model of Pyro's, in the host's own sampler and in the split kernels."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import torch
from pyro.infer import MCMC, NUTS
from pyro.infer.mcmc.util import initialize_model
from pyro.ops.integrator import potential_grad

from pyro_split import SplitNUTS, split_model
from tests.public_models.origin import Unavailable
from tests.public_models.pyro_cases import Case

ADAM_STEPS = 150

Position = dict[str, torch.Tensor]


def energies(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The split's potential and the host's at a random point, at the lowest point of a descent, and around both."""
    with _quietly():
        points, theirs = _points(case)
        model, args, kwargs = case.build()
        potential = split_model(model, args, kwargs, num_subsets=case.num_subsets, **_options(case))
        ours = [float(potential.energies(z).sum()) for z in points]
    return np.array(ours), theirs


def refusal(case: Case) -> Exception | None:
    """What the split raises for the model; None where it takes it."""
    model, args, kwargs = case.build()
    with _quietly():
        try:
            split_model(model, args, kwargs, num_subsets=case.num_subsets, **_options(case))
        except Exception as error:
            return error
    return None


def verdict(case: Case) -> Any:
    """Whether the split is proved."""
    model, args, kwargs = case.build()
    kernel = SplitNUTS(model, num_subsets=case.num_subsets, **_options(case))
    with _quietly():
        kernel.setup(0, *args, **kwargs)
    return kernel._prepared.split.verdict


def posteriors(case: Case, num_samples: int, num_chains: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draws of the split kernel and of the host's NUTS, by latent site, with chains and draws in front.

    The split kernel starts where the host's chains ended, so that both are in the same mode of several.
    """
    model, args, kwargs = case.build()
    found: list[dict[str, torch.Tensor]] = []
    expected: list[dict[str, torch.Tensor]] = []
    with _quietly():
        for _ in range(num_chains):
            host = _host_nuts(case)
            try:
                expected.append(_draws(host, None, args, kwargs, num_samples))
            except ValueError as error:  # a value of a validated distribution underflows to the edge of its support
                raise Unavailable(f"the host's own NUTS fails: {error}") from error
            start = {name: host.transforms[name](x[-1]) for name, x in expected[-1].items()}
            split = SplitNUTS(model, num_subsets=case.num_subsets, **_options(case))
            found.append(_draws(split, start, args, kwargs, num_samples))
    ours, theirs = (
        {name: torch.stack([d[name] for d in x]).numpy() for name in expected[0]} for x in (found, expected)
    )
    return ours, theirs


def _host_nuts(case: Case) -> NUTS:
    """The host's NUTS, by its compiler where that can trace the model: a gradient then takes a third to a half."""
    model, args, kwargs = case.build()
    options = {"init_strategy": case.init_strategy}
    try:
        NUTS(model, jit_compile=True, ignore_jit_warnings=True, **options).setup(1, *args, **kwargs)
    except RuntimeError:
        return NUTS(model, **options)
    return NUTS(model, jit_compile=True, ignore_jit_warnings=True, **options)


def _draws(kernel: Any, start: Any, args: Any, kwargs: Any, num_samples: int) -> dict[str, torch.Tensor]:
    mcmc = MCMC(kernel, num_samples, warmup_steps=num_samples // 2, initial_params=start, disable_progbar=True)
    mcmc.run(*args, **kwargs)
    return mcmc.get_samples()


def _options(case: Case) -> dict[str, Any]:
    return {"plate": case.plate, "data_axes": case.data_axes, "init_strategy": case.init_strategy}


@contextlib.contextmanager
def _quietly() -> Any:
    """Without the host's checks of arguments, which MCMC turns off, and without what models print."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    with pyro.validation_enabled(False), contextlib.redirect_stdout(io.StringIO()):
        yield


def _points(case: Case) -> tuple[list[Position], np.ndarray]:
    """Points, and the host's potential at each."""
    model, args, kwargs = case.build()
    start, potential, _, _ = initialize_model(model, args, kwargs, init_strategy=case.init_strategy)
    start = {name: u.detach() for name, u in start.items()}
    mode = _descend(potential, start)
    nearby = [(start, 0.3), (start, 0.7), (mode, 0.05), (mode, 0.2)]
    points = [start, mode, *(_scatter(potential, z, scale, seed) for seed, (z, scale) in enumerate(nearby))]
    with torch.no_grad():
        return points, np.array([float(potential(z)) for z in points])


def _scatter(potential: Callable[[Position], torch.Tensor], z: Position, scale: float, seed: int) -> Position:
    """A point around ``z``, the nearer the more of them are impossible."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(10):
        point = {name: u + scale * torch.randn(u.shape, generator=generator, dtype=u.dtype) for name, u in z.items()}
        if torch.isfinite(potential(point)):
            return point
        scale /= 2
    return z


def _descend(potential: Callable[[Position], torch.Tensor], start: Position) -> Position:
    """The lowest point that a run of Adam sees."""
    z = {name: u.clone() for name, u in start.items()}
    optimiser = torch.optim.Adam(z.values(), lr=0.05)
    lowest, best = float("inf"), start
    for _ in range(ADAM_STEPS):
        here = {name: u.clone() for name, u in z.items()}  # transforms keep what they made of a tensor, by identity
        gradient, energy = potential_grad(potential, here)
        if not torch.isfinite(energy):
            break
        if energy < lowest:
            lowest, best = float(energy), {name: u.detach() for name, u in here.items()}
        for name, u in z.items():
            u.grad = gradient[name]
        optimiser.step()
    return best
