"""A public model of NumPyro's, in the host's own sampler and in the split kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.flatten_util import ravel_pytree
from numpyro.infer import MCMC, NUTS
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.util import initialize_model
from numpyro.optim import Adam

from numpyro_split import SplitNUTS
from tests.public_models.case import Case
from tests.public_models.origin import Unavailable

NUM_POINTS, ADAM_STEPS = 6, 300


def energies(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The split's potential and the host's at a random point, at the mode, and around it."""
    model, args, kwargs = case.build()
    try:
        z, host = _points(model, args, kwargs)
    except (ImportError, ModuleNotFoundError) as error:
        raise Unavailable(str(error)) from error
    state = _kernel(case, model).init(random.split(random.key(1), len(host)), 0, z, args, kwargs)
    return np.asarray(state.potential_energy), host


def refusal(case: Case) -> Exception | None:
    """What the kernel raises for the model; None where it takes it."""
    model, args, kwargs = case.build()
    try:
        _kernel(case, model).init(random.key(1), 0, None, args, kwargs)
    except Exception as error:
        return error
    return None


def verdict(case: Case) -> Any:
    """Whether the split is proved."""
    model, args, kwargs = case.build()
    kernel = _kernel(case, model)
    kernel.init(random.key(1), 0, None, args, kwargs)
    return kernel._runs.latest().known_split.verdict


def posteriors(case: Case, num_samples: int, num_chains: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draws of the split kernel and of the host's NUTS, by latent site, with chains and draws in front.

    The split kernel starts where the host's chains ended, so that both are in the same mode of several.
    """
    model, args, kwargs = case.build()
    target = {"target_accept_prob": case.target_accept_prob}
    theirs = _run(NUTS(model, **target), None, args, kwargs, num_samples, num_chains)
    split = SplitNUTS(model, num_subsets=case.num_subsets, **target, **_options(case))
    ours = _run(split, theirs.last_state.z, args, kwargs, num_samples, num_chains)
    found, expected = (
        {name: np.asarray(x) for name, x in mcmc.get_samples(group_by_chain=True).items()} for mcmc in (ours, theirs)
    )
    return {name: found[name] for name in theirs.last_state.z}, {name: expected[name] for name in theirs.last_state.z}


def _run(kernel: Any, start: Any, args: Any, kwargs: Any, num_samples: int, num_chains: int) -> MCMC:
    mcmc = MCMC(
        kernel,
        num_warmup=num_samples // 2,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(random.key(0), *args, init_params=start, **kwargs)
    return mcmc


def _options(case: Case) -> dict[str, Any]:
    return {"plate": case.plate, "data_axes": case.data_axes}


def _kernel(case: Case, model: Callable[..., Any]) -> SplitNUTS:
    return SplitNUTS(model, num_subsets=case.num_subsets, find_heuristic_step_size=False, **_options(case))


def _points(model: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, np.ndarray]:
    """Points where the host's potential is finite, stacked, and what it is there."""
    info = initialize_model(random.key(0), model, model_args=args, model_kwargs=kwargs, init_strategy=init_to_uniform)
    start, unravel = ravel_pytree(info.param_info.z)
    potential = jax.jit(lambda u: info.potential_fn(unravel(u)))
    mode = _descend(lambda u: info.potential_fn(unravel(u)), start)
    around = jnp.tile(jnp.stack([mode, start]), (2 * NUM_POINTS, 1))
    points = jnp.stack([start, mode, *(around + 0.1 * random.normal(random.key(2), around.shape))])
    host = np.array([potential(u) for u in points])
    kept = np.flatnonzero(np.isfinite(host))[:NUM_POINTS]
    return jax.vmap(unravel)(points[kept]), host[kept]


def _descend(potential: Callable[[jax.Array], jax.Array], start: jax.Array) -> jax.Array:
    """The lowest point that a run of Adam sees."""
    adam = Adam(0.05)

    def step(_: Any, carry: Any) -> Any:
        state, best, lowest = carry
        u = adam.get_params(state)
        energy, gradient = jax.value_and_grad(potential)(u)
        lower = energy < lowest
        gradient = jnp.nan_to_num(gradient)
        return adam.update(gradient, state), jnp.where(lower, u, best), jnp.where(lower, energy, lowest)

    return jax.jit(
        lambda u: lax.fori_loop(0, ADAM_STEPS, step, (adam.init(u), u, jnp.full_like(potential(u), jnp.inf)))[1]
    )(start)
