"""Check the notebooks: each pair in sync, no outputs stored, and every cell runs.

A notebook is kept twice: as text (``.py``, the one to edit) and as ``.ipynb`` without outputs. Run from anywhere::

    python notebooks/run.py --quick            # check, and execute with few draws
    python notebooks/run.py --output DIR       # execute in full, keep the executed notebooks in DIR
    python notebooks/run.py --sync             # write each .ipynb afresh from its .py
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).resolve().parent
QUICK_VARIABLE = "SPLIT_MCMC_QUICK"
FAST_TO_COMPILE = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def read_text(path: Path) -> nbformat.NotebookNode:
    """The notebook that a ``.py`` file describes, its cells numbered so that writing it twice gives one file."""
    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = str(number)
    return notebook


def sync(path: Path) -> None:
    """Write the ``.ipynb`` of a ``.py`` file."""
    nbformat.write(read_text(path), path.with_suffix(".ipynb"))
    print(f"{path.stem}: wrote {path.with_suffix('.ipynb').name}")


def pair_faults(path: Path) -> list[str]:
    """What is wrong with the ``.ipynb`` of a ``.py`` file; empty where nothing is."""
    stored_path = path.with_suffix(".ipynb")
    if not stored_path.exists():
        return [f"{stored_path.name} is missing; run with --sync"]
    stored = nbformat.read(stored_path, as_version=4)
    faults = []
    if any(cell.get("outputs") or cell.get("execution_count") for cell in stored.cells):
        faults.append(f"{stored_path.name} holds outputs; run nbstripout on it")
    if _sources(stored) != _sources(read_text(path)):
        faults.append(f"{stored_path.name} differs from {path.name}; run with --sync")
    return faults


def execute(path: Path, output: Path | None) -> list[str]:
    """Run every cell of a ``.py`` file; return the error, if any, as a list of one."""
    notebook = read_text(path)
    start = time.perf_counter()
    try:
        NotebookClient(notebook, timeout=1800, kernel_name="python3").execute(cwd=str(FOLDER.parent))
    except CellExecutionError as error:
        return [f"{path.name} failed: {error}"]
    finally:
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, output / f"{path.stem}.ipynb")
    print(f"{path.stem}: ran in {time.perf_counter() - start:.0f} s", flush=True)
    return []


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="start of the names of the notebooks to run; default all")
    parser.add_argument("--quick", action="store_true", help=f"few draws (sets {QUICK_VARIABLE}=1 for the notebooks)")
    parser.add_argument("--jobs", type=int, default=1, help="how many to run at a time")
    parser.add_argument("--output", type=Path, help="folder for the executed notebooks")
    parser.add_argument("--sync", action="store_true", help="write the .ipynb files from the .py files, and stop")
    options = parser.parse_args()

    # notebooks are numbered; this file is not
    paths = [p for p in sorted(FOLDER.glob("[0-9]*.py")) if p.stem.startswith(tuple(options.names) or "")]
    if not paths:
        parser.error(f"no notebook has a name that starts with one of {options.names}")
    if options.sync:
        for path in paths:
            sync(path)
        return 0
    os.environ[QUICK_VARIABLE] = "1" if options.quick else "0"
    if options.quick:
        os.environ.setdefault("XLA_FLAGS", FAST_TO_COMPILE)
    faults = [fault for path in paths for fault in pair_faults(path)]
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in pool.map(partial(execute, output=options.output), paths):
            faults += found
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def _sources(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


if __name__ == "__main__":
    sys.exit(main())
