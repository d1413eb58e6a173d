"""Runs the contract tests in fresh virtual environments of other versions of Python and of the hosts.

``python -m tests.run_versions`` runs all of ``ENVIRONMENTS``, with names as arguments those; each is made in
``.venv-versions/``. The environment variable ``PART``, as pytest's ``-k``, runs a part of the tests. One line is
printed for each environment; its full log is beside it. An environment whose Python is not on the path fails.

torch comes as ``pip`` finds it: on Linux the wheels of PyPI bring CUDA, several GB for each environment with Pyro,
unless pip's configuration knows PyTorch's CPU index. For that reason Pyro runs on Python 3.11 only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".venv-versions"
ALONE = ["tests/test_install.py", "tests/test_mirror.py"]  # need no ArviZ
TESTS = [*ALONE, "tests/test_contract.py"]
STORED = [*TESTS, "tests/test_run_store.py", "tests/test_stored_runs.py"]  # need the extra for stores
TOOLS = ["pytest>=8", "pytest-xdist>=3.5", "matplotlib>=3.8"]
# programs run for a few iterations, so they are compiled fast, not to run fast
FLAGS = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
SHOWN = ["jax", "numpyro", "torch", "pyro-ppl", "arviz", "arviz-base", "numpy", "scipy", "zarr"]
CHECK_WHEEL = """
import importlib, importlib.resources
for name in ("split_common", *(f"{{name}}_split" for name in {packages})):
    package = importlib.import_module(name)
    assert "site-packages" in package.__file__, package.__file__
    assert importlib.resources.files(name).joinpath("py.typed").is_file(), name
"""


class Environment(NamedTuple):
    """What is installed, and which packages' tests run on it.

    Args:
        python: version of the interpreter.
        packages: whose tests run.
        extras: of this project, or none where its dependencies are listed in ``others``.
        others: what pip is given besides.
        pinned: hold everything to constraints.txt.
        tests: files of tests.
    """

    python: str
    packages: tuple[str, ...]
    extras: tuple[str, ...]
    others: tuple[str, ...] = ()
    pinned: bool = False
    tests: tuple[str, ...] = tuple(TESTS)


BOTH = ("numpyro", "pyro")
OLD = ("scipy==1.13.0", "xxhash==3.0.0", "arviz==0.22.0")
ENVIRONMENTS = {
    "pinned": Environment("3.11", BOTH, (*BOTH, "store"), pinned=True, tests=tuple(STORED)),
    "numpyro-only": Environment("3.11", ("numpyro",), ("numpyro",), pinned=True, tests=tuple(ALONE)),
    "pyro-only": Environment("3.11", ("pyro",), ("pyro",), pinned=True, tests=tuple(ALONE)),
    "numpyro-newest": Environment("3.12", ("numpyro",), ("numpyro", "store"), ("arviz>=1",), tests=tuple(STORED)),
    "numpyro-3.13": Environment("3.13", ("numpyro",), ("numpyro", "store"), ("arviz>=1",), tests=tuple(STORED)),
    "pyro-newest": Environment("3.11", ("pyro",), ("pyro", "store"), tests=tuple(STORED)),
    # ArviZ 1.x needs Python 3.12; arviz-base 0.8 has its interface on 3.11
    "pyro-arviz-base": Environment(
        "3.11", ("pyro",), (), ("torch==2.13.0", "pyro-ppl==1.9.2", "arviz-base==0.8.*"), tests=tuple(ALONE)
    ),
    "numpyro-oldest": Environment(
        "3.11", ("numpyro",), ("numpyro",), (*OLD, "numpy==2.0.*", "jax==0.8.0", "jaxlib==0.8.0", "numpyro==0.20.0")
    ),
    "pyro-oldest": Environment(
        "3.11", ("pyro",), ("pyro",), (*OLD, "numpy==1.26.*", "torch==2.4.0", "pyro-ppl==1.9.1")
    ),
}


class Failed(Exception):
    """A command of an environment failed."""


def main(names: list[str]) -> int:
    """Run the named environments, or all, and return the exit status."""
    unknown = sorted(set(names) - set(ENVIRONMENTS))
    if unknown:
        print(f"the environments are {', '.join(ENVIRONMENTS)}, got {', '.join(unknown)}")
        return 2
    return int(not all([run(name, ENVIRONMENTS[name]) for name in names or ENVIRONMENTS]))


def run(name: str, environment: Environment) -> bool:
    """Make one environment afresh, test it, print its line, and say whether all passed."""
    start, place = time.monotonic(), PLACE / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    versions = ""
    with (place / "log.txt").open("w") as log:
        try:
            python = _make(place, environment, log)
            versions = _versions(python)
            _call([python, "-I", "-c", CHECK_WHEEL.format(packages=environment.packages)], log, cwd=place)
            variables = {**os.environ, "SPLIT_TEST_PACKAGES": ",".join(environment.packages), "XLA_FLAGS": FLAGS}
            part = ["-k", os.environ["PART"]] if "PART" in os.environ else []
            pytest = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", "not slow", *part]
            _call([*pytest, *environment.tests], log, env=variables)
            outcome = "passed"
        except Failed as failure:
            outcome = f"FAILED ({failure}; {log.name})"
    found = re.findall(r"^(\d+ .*) in [\d.]+s", (place / "log.txt").read_text(), re.MULTILINE)
    counts = found[-1] if found else "no tests run"
    print(f"{name}: {outcome}; {counts}; {time.monotonic() - start:.0f} s; {versions}", flush=True)
    return outcome == "passed"


def _make(place: Path, environment: Environment, log) -> str:
    interpreter = shutil.which(f"python{environment.python}")
    if interpreter is None:
        raise Failed(f"no Python {environment.python}")
    _call([interpreter, "-m", "venv", str(place)], log)
    python = str(place / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if environment.pinned:
        install += ["-c", "constraints.txt"]
    project = f".[{','.join(environment.extras)}]" if environment.extras else "."
    if "torch" in ",".join(environment.others) or "pyro" in environment.extras:
        torch = [x for x in environment.others if x.startswith("torch")] or ["torch"]
        _call([*install, *torch], log)  # first, or pip prefers another release to a local build
    _call([*install, *TOOLS, *environment.others, project], log)
    return python


def _call(command: list[str], log, **options) -> None:
    log.flush()
    options = {"cwd": ROOT, **options}
    done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode:
        raise Failed(" ".join(command[1:4]))


def _versions(python: str) -> str:
    code = f"""
import platform
from importlib.metadata import PackageNotFoundError, version

print("Python", platform.python_version(), end="")
for name in {SHOWN}:
    try:
        print(",", name, version(name), end="")
    except PackageNotFoundError:
        pass
"""
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
