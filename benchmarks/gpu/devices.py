"""Whether the machine has a GPU, and whether arrays lie on it, asked of neither framework."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
DEVICE_FILES = ("/dev/nvidia0", "/dev/kfd")  # of NVIDIA's and AMD's drivers


def machine_gpus() -> list[str]:
    """The GPUs that the machine has, whether or not a framework sees them: name, driver, memory."""
    try:
        found = subprocess.run(QUERY, capture_output=True, text=True, check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        found = []
    return [line for line in found if line] or [path for path in DEVICE_FILES if Path(path).exists()]


def check_places(places: Mapping[str, str], wanted: str) -> None:
    """Raise unless all lies where it should: a figure of a CPU must not pass for one of a GPU.

    Args:
        places: "gpu" or "cpu", by name of an array or of the framework's device.
        wanted: "gpu" or "cpu".

    Raises:
        RuntimeError: otherwise, with what lies elsewhere.
    """
    strays = {name: place for name, place in places.items() if place != wanted}
    if strays:
        raise RuntimeError(
            f"all must lie on the {wanted}, got {strays}; install the framework's build for this GPU, or measure the "
            "CPU by --device cpu"
        )
