"""Both packages are tested by the same bodies, in float64, through the ``lib`` fixture.

``SPLIT_TEST_PACKAGES=numpyro`` (or ``pyro``) runs the half of one package, where the other framework is not installed.
"""

import importlib.metadata
import os

# Two devices for chain_method="parallel". Programs run for a few iterations: they are compiled fast, not to run fast,
# each by one thread. A process that is given a flag which its JAX does not know ends at once.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1 "
    + "--xla_cpu_use_fusion_emitters=false"
    * any(x.version.startswith(("0.8.", "0.9.", "0.10.")) for x in importlib.metadata.distributions(name="jax")),
)

import gc
import shutil
import tempfile
from pathlib import Path

import pytest

from split_common.runs import drive
from tests.backends import ABSENT, BACKENDS, PACKAGES, NumPyroBackend, PyroBackend

# A process's compiled programs take gigabytes, and some eleven memory maps each, of which Linux allows 65,530. Whenever
# JAX lowers a program, all maps are read: of 14,000 that took a third of the time of tests.
MEMORY_MAPS, MOST_MAPS = Path("/proc/self/maps"), 4_000
LONG_TESTS = {*Path(__file__).with_name("long_tests.txt").read_text().splitlines()}
drive.LONGEST_WAIT = 0.0  # stored runs of a moment are committed at every multiple of ``every``


def pytest_configure(config):
    """Keep what a test compiles, most of it single operations, for the tests after it, in a folder empty at first."""
    gc.set_threshold(100_000, 20, 50)  # of gigabytes that stay, which Python would look through time and again
    config.compiled = tempfile.mkdtemp(prefix="split-tests-")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", config.compiled)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def pytest_unconfigure(config):
    shutil.rmtree(config.compiled, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark long tests as slow, and leave out those of a package that this environment is said to be without."""
    for item in items:
        if item.nodeid.removeprefix("tests/") in LONG_TESTS:
            item.add_marker(pytest.mark.slow)
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


@pytest.fixture(autouse=True)
def _forget_compiled():
    """Keep compiled programs in memory for other tests until they are many."""
    yield
    if "numpyro" in PACKAGES and not (MEMORY_MAPS.exists() and MEMORY_MAPS.read_text().count("\n") < MOST_MAPS):
        import jax

        jax.clear_caches()


@pytest.fixture(params=[NumPyroBackend, PyroBackend], ids=["numpyro", "pyro"])
def lib(request):
    """One of the two frameworks, under common names."""
    return request.param()
