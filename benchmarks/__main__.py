"""Lists the benchmarks, or runs some of them one after the other, each in a process of its own.

``python -m benchmarks`` lists them; ``python -m benchmarks [--quick] NAME ...`` runs them. Options that are not the
runner's are passed on to each, and ``--json-dir DIR`` writes what each finds to ``DIR/NAME.json``.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent


def benchmarks() -> dict[str, str]:
    """The first sentence of each benchmark, by name."""
    scripts = {path.parent.name: path for path in ROOT.glob("*/__main__.py")}
    scripts |= {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in ROOT.glob("papers/*/*.py")
        if "__main__" in path.read_text()
    }
    docs = {name: ast.get_docstring(ast.parse(path.read_text())) or "" for name, path in sorted(scripts.items())}
    return {name: doc.split("\n")[0] for name, doc in docs.items()}


def main() -> int:
    """List or run."""
    known = benchmarks()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to run; none lists them all")
    parser.add_argument("--json-dir", metavar="DIR", help="directory to write the results to")
    options, passed_on = parser.parse_known_args()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"NAME must be one of {', '.join(known)}, got {unknown[0]!r}")
    if not options.names:
        for name, doc in known.items():
            print(f"{name:<36}{doc}")
    failed = 0
    for name in options.names:
        json = ["--json", f"{options.json_dir}/{name}.json"] if options.json_dir else []
        print(f"# {name}", flush=True)
        failed += (
            subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *passed_on, *json], check=False).returncode != 0
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())
