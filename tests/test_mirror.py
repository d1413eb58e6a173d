"""The two packages have the same rooms and names, stand alone, and depend downwards only."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# float32; how each traces; what a run may find on a kernel; numbers among arguments; chains, and rows, in processes
ONLY_IN = {
    "numpyro_split": {
        "kernels/prepared.py",
        "potential/compensated.py",
        "potential/content.py",
        "potential/derivatives.py",
        "potential/local_rows.py",
        "potential/sharded_rows.py",
        "potential/shards.py",
        "potential/tracing.py",
        "splitting/captured.py",
        "splitting/over_shards.py",
    },
    "pyro_split": {
        "potential/capture.py",
        "potential/ranks.py",
        "potential/running.py",
        "runs/processes.py",
    },
}
NAMES_OF_SHARDS = {"ShardedRows", "shard_rows"}  # numpyro_split's alone
# arguments that one host has, or that default to each host's own; JAX's arrays say themselves who holds which rows
OF_ONE_HOST = (
    "jit_compile",
    "init_strategy",
    "forward_mode_differentiation",
    "regularize_mass_matrix",
    "process_group",
)
WORDS = {"full_mass": "dense_mass"}  # the host's word for one thing
LAYERS = (  # each imports from those before it alone
    {"host"},
    {"potential", "models"},
    {"splitting"},
    {"integrators"},
    {"trajectories"},
    {"adaptation", "subsampling"},
    {"inference_data"},
    {"kernels"},
    {"runs", "parts"},
    {"__init__"},
)
MOST_AT_THE_TOP = 6  # files of a package that are in no folder


def files(package):
    folder = ROOT / package
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}


def test_same_rooms():
    numpyro_rooms, pyro_rooms = (files(package) - ONLY_IN[package] for package in ("numpyro_split", "pyro_split"))
    assert numpyro_rooms == pyro_rooms
    assert all(ONLY_IN[package] <= files(package) for package in ONLY_IN)


@pytest.mark.both_packages
def test_same_public_names():
    import numpyro_split
    import pyro_split

    assert [name for name in numpyro_split.__all__ if name not in NAMES_OF_SHARDS] == pyro_split.__all__


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
    from numpyro_split.kernels.host_kernel import SplitKernel

    public = [getattr(numpyro_split, name) for name in numpyro_split.__all__]
    kernels = {x.__name__ for x in public if isinstance(x, type) and issubclass(x, SplitKernel)}
    mark = next(mark for mark in test_same_arguments_and_defaults.pytestmark if mark.name == "parametrize")
    assert kernels <= set(mark.args[1])


def kernels_of(package):
    """The public kernels of a package, and the class that they are made from."""
    base = importlib.import_module(f"{package}.kernels.host_kernel").SplitKernel
    public = vars(importlib.import_module(package))
    return base, [x for x in public.values() if isinstance(x, type) and issubclass(x, base)]


def classes_of(package):
    """Every class that a package defines."""
    modules = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    for module in modules:
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and found.__module__ == module.name:
                yield found


@pytest.mark.both_packages
@pytest.mark.parametrize("package", ["numpyro_split", "pyro_split"])
def test_a_kernel_is_one_class_below_the_hosts(package):
    base, kernels = kernels_of(package)
    assert len(kernels) == 12
    (host,) = base.__bases__
    assert not host.__module__.startswith(package)
    assert all(kernel.__bases__ == (base,) for kernel in kernels)


@pytest.mark.both_packages
@pytest.mark.parametrize("package", ["numpyro_split", "pyro_split"])
def test_no_method_of_ours_is_overridden(package):
    """But constructors; what a protocol asks for has no body."""
    overridden = []
    for found in classes_of(package):
        bases = [b for b in found.__mro__[1:] if b.__module__.startswith(package) and not getattr(b, "_is_protocol", 0)]
        own = {name for name, x in vars(found).items() if inspect.isfunction(x) or isinstance(x, property)}
        concrete = [
            (name, x) for base in bases for name, x in vars(base).items() if callable(x) or isinstance(x, property)
        ]
        names = {name for name, x in concrete if not getattr(x, "__isabstractmethod__", False)}
        overridden += [f"{found.__name__}.{name}" for name in own & names - {"__init__"}]
    assert not overridden


@pytest.mark.both_packages
@pytest.mark.parametrize("package", ["numpyro_split", "pyro_split"])
def test_every_argument_of_a_kernel_is_documented(package):
    for kernel in kernels_of(package)[1]:
        asked = list(inspect.signature(kernel).parameters)
        text = kernel.__doc__.partition("    Args:\n")[2].partition("\n\n")[0]
        told = re.findall(r"^        (\w+): ", text, re.MULTILINE)
        assert sorted(told) == sorted(asked), kernel.__name__


@pytest.mark.parametrize(
    ("package", "foreign"), [("numpyro_split", ["torch", "pyro"]), ("pyro_split", ["jax", "numpyro"])]
)
def test_importing_one_never_imports_the_other(package, foreign):
    code = f"import sys, {package}; print([m for m in {foreign} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_common_parts_name_no_framework():
    for path in (ROOT / "split_common").rglob("*.py"):
        assert not imported(path) & {"jax", "numpyro", "torch", "pyro"}, path.name


@pytest.mark.parametrize("package", ["numpyro_split", "pyro_split"])
def test_floors_are_entered_from_above(package):
    floor = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
    for module, others in imports_within(package).items():
        for other in others:
            here, there = (name.split(".")[0] for name in (module, other))
            assert floor[there] < floor[here] or here == there, f"{package}.{module} imports {other}"


@pytest.mark.parametrize("package", ["numpyro_split", "pyro_split"])
def test_no_files_import_in_a_circle(package):
    TopologicalSorter(imports_within(package)).prepare()  # raises CycleError


@pytest.mark.parametrize("package", ["numpyro_split", "pyro_split"])
def test_few_files_stand_at_the_top(package):
    assert len([name for name in files(package) if "/" not in name]) <= MOST_AT_THE_TOP


def imports_within(package):
    """For each file of a package, by its dotted name in it, those of the package's files that it imports, anywhere."""
    names = {path: path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in files(package)}
    found = {}
    for path, name in names.items():
        tree = ast.parse((ROOT / package / path).read_text())
        taken = {
            f"{node.module}.{alias.name}".removeprefix(f"{package}.")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package
            for alias in node.names
        }
        found[name] = {other if other in names.values() else other.rpartition(".")[0] for other in taken} - {""}
    return found


def imported(path):
    """Top-level packages that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        found |= {name.partition(".")[0] for name in names}
    return found


def test_long_tests_exist():
    """Where one is renamed, its line in tests/long_tests.txt is dead and it runs by default."""
    for line in (ROOT / "tests/long_tests.txt").read_text().splitlines():
        if not line.startswith("#"):
            file, *_, function = line.split("[")[0].split("::")
            assert f"def {function}(" in (ROOT / "tests" / file).read_text(), line


def test_the_map_of_the_rooms_is_complete():
    """docs/design.md names every file of the packages, and no file that is not there."""
    rooms = (ROOT / "docs" / "design.md").read_text().split("## Layers")[0]
    named = set(re.findall(r"(?<![/\w])\w+\.py", rooms))
    files = {path.name for package in (*ONLY_IN, "split_common") for path in (ROOT / package).rglob("*.py")}
    assert named == files - {"__init__.py"}
