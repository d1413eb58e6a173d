"""Matrices are multiplied, and rows convolved, in all bits, whatever an accelerator does by default."""

from unittest import mock

import numpy as np
import pytest

from tests.backends import PACKAGES, NumPyroBackend, PyroBackend
from tests.kernels import TABLE, mixed

PRODUCTS = ("dot_general", "conv_general_dilated")
only_numpyro = pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
only_pyro = pytest.mark.parametrize("lib", [PyroBackend], ids=["pyro"], indirect=True)

if "numpyro" in PACKAGES:
    import jax
    from jax.extend import core
if "pyro" in PACKAGES:
    import torch


def precisions(jaxpr):
    """Of every product of matrices in a program, those in its loops and branches too."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in PRODUCTS:
            yield str(eqn.params["precision"])
        for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=is_program):
            if is_program(inner):
                yield from precisions(getattr(inner, "jaxpr", inner))


def is_program(value):
    return isinstance(value, core.ClosedJaxpr | core.Jaxpr)


def all_bits(function, *args):
    """Whether all products are in all bits, of which there must be some."""
    found = set(precisions(jax.make_jaxpr(function)(*args).jaxpr))
    assert found
    return all("HIGHEST" in precision for precision in found)


@only_numpyro
@pytest.mark.parametrize("name", ["SplitHMC", "SplitNUTS", "S3HMC", "PenaltyMH"])
@pytest.mark.parametrize("dense", [False, True])
def test_an_iteration_multiplies_in_all_bits(lib, name, dense):
    entry, problem = TABLE[name], mixed(lib)
    kernel = entry.make(lib, problem.model, **({"dense_mass": True} if dense and name != "S3HMC" else {}))
    state = kernel.init(jax.random.key(0), 10, None, problem.args, {})
    assert all_bits(lambda state: kernel.sample(state, problem.args, {}), state)


@only_numpyro
def test_a_potential_multiplies_in_all_bits(lib):
    problem = mixed(lib)
    potential = lib.split.split_model(problem.model, problem.args, num_subsets=2)
    z = jax.tree.map(jax.numpy.zeros_like, potential_position(lib, problem))
    for function in (potential.potential, potential.energies, potential.potential_and_grad):
        assert all_bits(function, z)
    assert all_bits(lambda z: potential.pointwise_log_likelihood(z, jax.numpy.arange(3)), z)


def potential_position(lib, problem):
    kernel = TABLE["SplitNUTS"].make(lib, problem.model)
    return kernel.init(jax.random.key(0), 10, None, problem.args, {}).z


@only_numpyro
def test_an_audit_multiplies_in_all_bits(lib, monkeypatch):
    from numpyro_split.subsampling import audit as room

    problem, seen, propose = mixed(lib), [], room.propose

    def recorded(*args):
        seen.append(jax.config.jax_default_matmul_precision)
        return propose(*args)

    monkeypatch.setattr(room, "propose", recorded)
    kernel = TABLE["PenaltyMH"].make(lib, problem.model)
    mcmc = lib.mcmc(kernel, 5, 5)
    mcmc.run(jax.random.key(0), *problem.args)
    lib.split.audit(mcmc, num_pairs=3, num_repeats=2)
    assert set(seen) == {"highest"}


@only_numpyro
def test_a_precision_of_the_users_stays(lib):
    problem = mixed(lib)
    z = potential_position(lib, problem)
    potential = lib.split.split_model(problem.model, problem.args, num_subsets=2)
    with jax.default_matmul_precision("tensorfloat32"):
        assert not all_bits(potential.potential_and_grad, z)


@only_pyro
@pytest.mark.parametrize("user", [True, False])
def test_convolutions_on_a_gpu_are_in_all_bits_and_the_setting_stays(lib, user):
    seen = []

    def model(x, y=None):
        seen.append(torch.backends.cudnn.allow_tf32)
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros((1, 1, 2, 2)), 1.0).to_event(4))
        mean = torch.conv2d(x, w).sum((1, 2, 3))
        with lib.ppl.plate("data", x.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(mean, 1.0), obs=y)

    x = lib.array(np.random.default_rng(0).normal(size=(6, 1, 3, 3)))
    before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, user
    try:
        with mock.patch("torch.cuda.is_initialized", return_value=True):
            potential = lib.split.split_model(model, (x, x.sum((1, 2, 3))), num_subsets=2)
            potential.potential_and_grad({"w": lib.np.zeros((1, 1, 2, 2))})
            with pytest.raises(Exception, match="'w'|shape|size"):
                potential.potential_and_grad({"w": lib.np.zeros((1, 1, 4, 4))})
        assert torch.backends.cudnn.allow_tf32 is user
    finally:
        torch.backends.cudnn.allow_tf32 = before
    assert seen
    assert not any(seen)
