"""Both packages are tested by the same bodies, in float64, through the ``lib`` fixture."""

import os

# two devices for chain_method="parallel"; compiling fast matters more than running fast
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=1")

import pytest

from tests.backends import NumPyroBackend, PyroBackend


@pytest.fixture(autouse=True)
def _float64():
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    yield
    jax.config.update("jax_enable_x64", True)
    torch.set_default_dtype(torch.float64)


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled():
    """Compiled functions of one module are no use to the next, and add up to gigabytes."""
    yield
    import jax

    jax.clear_caches()


@pytest.fixture(params=[NumPyroBackend, PyroBackend], ids=["numpyro", "pyro"])
def lib(request):
    """One of the two frameworks, under common names."""
    return request.param()
