"""The two packages have the same rooms and names, stand alone, and depend downwards only."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ONLY_IN = {  # float32; how each traces; what a run may find on a kernel; numbers among arguments
    "numpyro_split": {"energies.py", "tracing.py", "content.py", "prepared.py", "captured.py", "derivatives.py"},
    "pyro_split": {"capture.py", "running.py", "held.py"},
}
# arguments that one host has, or that default to each host's own
OF_ONE_HOST = ("jit_compile", "init_strategy", "forward_mode_differentiation", "regularize_mass_matrix")
WORDS = {"full_mass": "dense_mass"}  # the host's word for one thing
LAYERS = [
    {
        "kernel",
        "hamiltonian",
        "hierarchical",
        "split_hmc",
        "dynamic_hmc",
        "windowed_hmc",
        "s3hmc",
        "gibbs",
        "penalty_mh",
        "audit",
        "stochastic_gradient",
        "minibatch_kernel",
        "inference_data",
    },
    {"noise", "settling"},
    {"proposals", "estimates"},
    {"trajectories", "trees", "windows", "selection", "termination", "thresholds", "adaptation", "alternating"},
    {"integrators", "kinetic", "hierarchy", "conjugacy", "control_variates", "minibatches"},
    {"prepared"},
    {
        "splitting",
        "exactness",
        "row_independence",
        "content",
        "potential",
        "densities",
        "rows",
        "host_density",
        "implied_plate",
        "arguments",
        "readings",
    },
    {"row_rules"},
    {"row_operations"},
    {"energies", "capture", "captured", "tracing", "running", "derivatives"},
]


def files(package):
    return {path.name for path in (ROOT / package).glob("*.py")} - ONLY_IN[package]


def test_same_rooms():
    assert files("numpyro_split") == files("pyro_split")


@pytest.mark.both_packages
def test_same_public_names():
    import numpyro_split
    import pyro_split

    assert numpyro_split.__all__ == pyro_split.__all__


@pytest.mark.both_packages
@pytest.mark.parametrize(
    "name",
    [
        "SymmetricSplitHMC",
        "NaiveSplitHMC",
        "RandomisedSplitHMC",
        "SplitNUTS",
        "XHMC",
        "WindowedHMC",
        "S3HMC",
        "BlockGibbsHMC",
        "PenaltyMH",
        "SGLD",
        "SGHMC",
        "SplitHMC",
        "split_model",
        "audit",
    ],
)
def test_same_arguments_and_defaults(name):
    """And of the same kind: what is positional in one is so in the other, in the same order."""
    import numpyro_split
    import pyro_split

    def signature(package):
        parameters = inspect.signature(getattr(package, name)).parameters.values()
        return {WORDS.get(p.name, p.name): (p.kind, p.default) for p in parameters if p.name not in OF_ONE_HOST}

    def positional(package):
        parameters = inspect.signature(getattr(package, name)).parameters.values()
        return [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]

    assert signature(numpyro_split) == signature(pyro_split)
    assert positional(numpyro_split) == positional(pyro_split)


@pytest.mark.both_packages
def test_every_kernel_is_compared():
    import numpyro_split
    from numpyro_split.kernel import SplitKernel

    public = [getattr(numpyro_split, name) for name in numpyro_split.__all__]
    kernels = {x.__name__ for x in public if isinstance(x, type) and issubclass(x, SplitKernel)}
    mark = next(mark for mark in test_same_arguments_and_defaults.pytestmark if mark.name == "parametrize")
    assert kernels <= set(mark.args[1])


@pytest.mark.parametrize(
    ("package", "foreign"), [("numpyro_split", ["torch", "pyro"]), ("pyro_split", ["jax", "numpyro"])]
)
def test_importing_one_never_imports_the_other(package, foreign):
    code = f"import sys, {package}; print([m for m in {foreign} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_common_parts_name_no_framework():
    for path in (ROOT / "split_common").glob("*.py"):
        assert not imported(path) & {"jax", "numpyro", "torch", "pyro"}, path.name


@pytest.mark.parametrize("package", ["numpyro_split", "pyro_split"])
def test_layers_point_downwards(package):
    depth = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
    for path in (ROOT / package).glob("*.py"):
        for line in imported(path, package):
            if path.stem in depth and line in depth:
                assert depth[line] >= depth[path.stem], f"{path.name} imports {line}"


def imported(path, package=None):
    """Top-level packages a file imports, or the rooms of ``package`` that it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            head, _, rest = name.partition(".")
            found.add(rest.split(".")[0] if package and head == package else head)
    return found
