"""Prints what comes of each case, as the table of README.md: ``python -m tests.public_models.report [pattern]``."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys

from tests.public_models.checks import outcome
from tests.public_models.origin import Unavailable


def main(pattern: str = "") -> None:
    """One line per case whose name holds ``pattern``."""
    modules = [f"tests.public_models.{host}_cases" for host in ("numpyro", "pyro")]
    cases = [c for name in modules if importlib.util.find_spec(name) for c in importlib.import_module(name).CASES]
    print("| case | outcome |\n|---|---|")
    for case in cases:
        if re.search(pattern, f"{case.host}/{case.name}"):
            try:
                found = outcome(case)
            except Unavailable as why:
                found = f"not run: {why}"
            except Exception as error:
                found = f"BARE {type(error).__name__}: {error}"
            print(f"| {case.name} | {' '.join(found.split())} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
