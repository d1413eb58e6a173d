"""What the command lines of these scripts share: two sizes, a store to go on from, and any size by hand."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.common.report import add_common_options, save


def parse_options(
    description: str | None,
    sizes: Mapping[str, Mapping[str, Any]],
    arguments: Sequence[str] | None = None,
    *,
    frameworks: Sequence[str] = ("numpyro",),
    data: bool = True,
) -> argparse.Namespace:
    """The command line of a script: one option for each entry of its sizes, by the entry's name.

    Args:
        description: of the script.
        sizes: what "quick" and "full" are: numbers, by name.
        arguments: of the command line; None for the process's.
        frameworks: that the script runs in.
        data: whether it reads data from a directory.

    Returns:
        The options, where what was not given by hand is that of the size asked for.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, frameworks, data, full="the published size; hours", one_at_a_time=True)
    parser.add_argument(
        "--store", metavar="DIR", help="folder to write the draws to, from which the same command goes on"
    )
    parser.add_argument("--seed", type=int, default=0)
    for name, value in sizes["quick"].items():
        several = {"nargs": "+"} if isinstance(value, tuple) else {}
        kind = type(value[0]) if isinstance(value, tuple) else type(value)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, **several)
    options = parser.parse_args(arguments)
    for name, value in sizes["full" if options.full else "quick"].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def settings_of(options: argparse.Namespace, sizes: Mapping[str, Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """What is written beside the results: the numbers of the size, what was published, the seed, and ``more``."""
    given = {name: getattr(options, name) for name, value in sizes["quick"].items() if not isinstance(value, tuple)}
    published = {f"published_{name}": sizes["full"][name] for name in given if sizes["full"][name] != given[name]}
    return {**given, **published, "seed": options.seed, "framework": options.framework, **more}


def earlier(options: argparse.Namespace, settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    """What an earlier run with the same settings has written under a key of its results; a run goes on from it."""
    if options.json is None or not Path(options.json).exists():
        return {}
    found = json.loads(Path(options.json).read_text())
    same = found["settings"] == json.loads(json.dumps(settings, default=float))
    return dict(found["results"].get(key, {})) if same else {}


def write(options: argparse.Namespace, settings: Mapping[str, Any], results: Any) -> None:
    """Write the results where asked."""
    save(options.json, dict(settings), results)


@contextmanager
def clock() -> Iterator[list[float]]:
    """Seconds of a block, in a list that is filled when it ends."""
    found: list[float] = []
    start = time.perf_counter()
    yield found
    found.append(time.perf_counter() - start)
