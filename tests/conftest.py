"""Both packages are tested by the same bodies, in float64, through the ``lib`` fixture.

``SPLIT_TEST_PACKAGES=numpyro`` (or ``pyro``) runs the half of one package, where the other framework is not installed.
"""

import os

# two devices for chain_method="parallel"; compiling fast matters more than running fast
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=1")

import pytest

from tests.backends import ABSENT, BACKENDS, PACKAGES, NumPyroBackend, PyroBackend


def pytest_collection_modifyitems(config, items):
    """Leave out the tests of a package that this environment is said to be without."""
    absent = {*ABSENT, *(f"{backend.name}_split" for backend in ABSENT)}

    def is_absent(item):
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        needs_both = item.get_closest_marker("both_packages") is not None
        return needs_both or any(isinstance(value, str | type) and value in absent for value in values)

    if absent:
        config.hook.pytest_deselected(items=[item for item in items if is_absent(item)])
        items[:] = [item for item in items if not is_absent(item)]


@pytest.fixture(autouse=True)
def _float64():
    for backend in BACKENDS:
        backend().set_precision(64)
    if "pyro" in PACKAGES:
        import torch

        torch.set_num_threads(1)
    yield
    for backend in BACKENDS:
        backend().set_precision(64)


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled():
    """Compiled functions of one module are no use to the next, and add up to gigabytes."""
    yield
    if "numpyro" in PACKAGES:
        import jax

        jax.clear_caches()


@pytest.fixture(params=[NumPyroBackend, PyroBackend], ids=["numpyro", "pyro"])
def lib(request):
    """One of the two frameworks, under common names."""
    return request.param()
