"""What ``benchmarks.data_pass`` times in NumPyro."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpyro

from benchmarks.common.labelled import Labelled
from benchmarks.common.numpyro_models import Classifier, classifiers
from benchmarks.data_pass.passes import STEP_SIZE, PassTimer, Settings
from numpyro_split import NaiveSplitHMC, SymmetricSplitHMC, split_model

VERSIONS = {"jax": jax.__version__, "numpyro": numpyro.__version__}
KERNELS = {"symmetric": SymmetricSplitHMC, "naive": NaiveSplitHMC}
OTHER_FORMS = {
    "conv": ("conv by lax",),
    "conv by lax": ("conv",),
}  # of the same model, whose bare gradient may be the faster one


def pass_timer(model_name: str, labelled: Labelled, settings: Settings) -> PassTimer:
    """Compile the kernels' transitions and the bare gradients of one model."""
    model = classifiers()[model_name]
    x = jnp.asarray(labelled.rows if model_name == "softmax" else labelled.inputs)
    y = jnp.asarray(labelled.labels)
    z = model.position()
    whole, part = jax.jit(jax.grad(model.potential)), slice(0, len(y) // settings.num_subsets)
    others = {name: jax.jit(jax.grad(classifiers()[name].potential)) for name in OTHER_FORMS.get(model_name, ())}
    x_part, y_part = x[part], y[part]
    energies = jax.jit(split_model(model, (x, y), num_subsets=settings.num_subsets).energies)
    timer = PassTimer(
        bare={"jit": lambda: _wait(whole(z, x, y))}
        | {name: partial(lambda gradient: _wait(gradient(z, x, y)), gradient) for name, gradient in others.items()},
        bare_subset=lambda: _wait(whole(z, x_part, y_part)),
        end_point=lambda: _wait(energies(z)),
    )
    for name, kernel_class in KERNELS.items():
        timer.transitions[name], timer.num_passes[name] = _transition(kernel_class, model, (x, y), z, settings)
    return timer


def _transition(kernel_class: type, model: Classifier, data: tuple, z: dict, settings: Settings):
    """A compiled iteration, and the data passes in it. The data are constants, as in ``MCMC`` by default."""
    kernel = kernel_class(
        model,
        settings.num_subsets,
        num_steps=settings.num_steps,
        step_size=STEP_SIZE,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    state = kernel.init(jax.random.key(0), 0, z, data)
    iterate = jax.jit(lambda state: kernel.sample(state, data, {}))
    num_grads = int(iterate(state).num_grads)
    return lambda: _wait(iterate(state)), num_grads / settings.num_subsets


def _wait(result: object) -> None:
    jax.block_until_ready(result)
