"""All private names of NumPyro and JAX that this package uses; ``tests/test_host.py`` shows which one has changed."""

from __future__ import annotations

import copy
from typing import Any

from jax._src.array import ArrayImpl
from jax.interpreters.partial_eval import dce_jaxpr
from numpyro.infer.hmc_util import euclidean_kinetic_energy
from numpyro.infer.util import _unconstrain_reparam as unconstrain_reparam

# the gradient of the kinetic energy in the momentum, by the inverse mass matrix in NumPyro's blocks
kinetic_grad = euclidean_kinetic_energy._kinetic_grad

# the keyword by which NumPyro's Gibbs gives a block the values of all other sites; a block that is no HMC of NumPyro's
# own is given constrained values to start from
GIBBS_SITES = "_gibbs_sites"


def names_of_jacobian(latent: str) -> list[str]:
    """Names that the factor of a latent site's Jacobian may have: ``scope`` puts its prefix before the factor's too.

    Example:
        >>> names_of_jacobian("a/tau")
        ['_a/tau_log_det', 'a/_a/tau_log_det']
    """
    ends = [0, *(i + 1 for i, letter in enumerate(latent) if letter == "/")]
    return [f"{latent[:end]}_{latent}_log_det" for end in ends]


def arguments_of_run(mcmc: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a run's model."""
    return mcmc._args, mcmc._kwargs


def has_draws(mcmc: Any) -> bool:
    """Whether a run has been made and still holds its draws."""
    return mcmc.last_state is not None and mcmc._states is not None


def traces_arguments(mcmc: Any) -> bool:
    """Whether a run's compiled programs take the model's arguments as inputs instead of holding them as constants."""
    return mcmc._jit_model_args


def with_arguments(mcmc: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A copy of a finished run, with other arguments of its model."""
    shown = copy.copy(mcmc)
    shown._args, shown._kwargs = args, kwargs
    return shown


def with_draws(mcmc: Any, draws: dict[str, Any]) -> Any:
    """A copy of a finished run, with other draws, by site and by chain."""
    shown = copy.copy(mcmc)
    shown._states, shown._states_flat = {**mcmc._states, mcmc._sample_field: draws}, None
    return shown


def fill_run(
    mcmc: Any, args: tuple[Any, ...], kwargs: dict[str, Any], last_state: Any, states: dict[str, Any] | None
) -> None:
    """Fill a run's fields as the host itself does at the end of a run.

    Args:
        mcmc: the run.
        args: positional arguments of the model.
        kwargs: keyword arguments.
        last_state: state of all chains at the end.
        states: draws and statistics of all chains by the names of the state's fields, chains and draws first; None
            where they are not in memory.
    """
    mcmc._args, mcmc._kwargs = args, kwargs
    mcmc._last_state, mcmc._states, mcmc._states_flat = last_state, states, None


__all__ = [
    "GIBBS_SITES",
    "ArrayImpl",
    "arguments_of_run",
    "dce_jaxpr",
    "fill_run",
    "has_draws",
    "kinetic_grad",
    "names_of_jacobian",
    "traces_arguments",
    "unconstrain_reparam",
    "with_arguments",
    "with_draws",
]
