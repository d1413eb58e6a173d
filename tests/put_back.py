"""Do the tests see the defects that they were written for? Puts each back, in a copy, and runs those that must fail.

``python -m tests.put_back`` (or with names of defects) prints a line for each: red as it must be, or NOT SEEN.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Defect(NamedTuple):
    """A change of one place, and the tests that see it.

    Attributes:
        what: it does.
        file: where it is.
        right: the text there.
        wrong: the text that it is put in place of.
        tests: arguments of pytest.
    """

    what: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


def contract(selection: str) -> tuple[str, ...]:
    return "tests/test_contract.py", "-m", "contract or not contract", "-k", selection


DEFECTS = {
    "D1": Defect(
        "PenaltyMH in Pyro fails on a scalar site",
        "pyro_split/potential/position.py",
        "part.reshape((*x.shape[:-1], *like[name].shape))",
        "part.reshape(*x.shape[:-1], *like[name].shape)",
        contract("test_new_data and pyro and PenaltyMH and not numpyro"),
    ),
    "D2": Defect(
        "PenaltyMH in Pyro fails on a SplitPotential",
        "pyro_split/kernels/penalty.py",
        "torch.as_tensor(u).numel() for name, u in given.items()",
        "np.size(u) for name, u in given.items()",
        contract("test_runs_on_a_potential and pyro and PenaltyMH and not numpyro"),
    ),
    "S3": Defect(
        "a run that goes on keeps the first number of rows",
        "numpyro_split/kernels/prepared.py",
        "            return self._prepared.get(key)\n",
        "            return next(iter(self._prepared.values()), None)\n",
        contract("test_new_data and numpyro and SymmetricSplitHMC and not drawn"),
    ),
    "S4": Defect(
        "a kernel in two runs holds the split of the last",
        "numpyro_split/kernels/prepared.py",
        "            return self._prepared.get(key)\n",
        "            return next(reversed(self._prepared.values()), None)\n",
        contract("test_new_data and numpyro and SymmetricSplitHMC and not drawn"),
    ),
    "S5": Defect(
        "arrays that were changed in place are not seen",
        "numpyro_split/kernels/prepared.py",
        "        if changed:\n",
        "        if changed and False:\n",
        contract("test_new_data and numpyro and PenaltyMH and not first and not without"),
    ),
    "S8": Defect(
        "numbers among the arguments are not in the digest",
        "numpyro_split/potential/content.py",
        "digest_of_data(data).add(program, *rest).words",
        "digest_of_data(data).add(*rest).words",
        contract("test_new_data and numpyro and SplitNUTS"),
    ),
    "S13": Defect(
        "negative drifts are dropped",
        "numpyro_split/integrators/integrator.py",
        'row["drift"] != 0',
        'row["drift"] > 0',
        ("tests/test_integrators.py", "-k", "negative and numpyro"),
    ),
}


def is_seen(defect: Defect) -> bool:
    """Whether the tests fail with the defect put back."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "copy"
        ignored = shutil.ignore_patterns(".git", ".venv*", "notebooks", "results", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=ignored)
        path = copy / defect.file
        text = path.read_text()
        if text.count(defect.right) != 1:
            raise ValueError(f"{defect.file} must have one place that reads {defect.right!r}")
        path.write_text(text.replace(defect.right, defect.wrong))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", *defect.tests], cwd=copy, capture_output=True, text=True
        )
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout[-2000:])
    return done.returncode == 1


def main(names: list[str]) -> int:
    """Put defects back, one after the other."""
    unseen = 0
    for name in names or DEFECTS:
        seen = is_seen(DEFECTS[name])
        unseen += not seen
        print(f"{name:4} {DEFECTS[name].what}: {'red' if seen else 'NOT SEEN'}", flush=True)
    return unseen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
