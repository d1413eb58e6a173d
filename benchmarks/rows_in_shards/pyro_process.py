"""One process of Pyro: ``python -m benchmarks.rows_in_shards.pyro_process GIVEN PLACE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pyro
import pyro.distributions as dist
import torch
import torch.distributed

from benchmarks.common.timing import Spread, interleaved
from benchmarks.rows_in_shards.table_of_rows import COLUMNS, rows_of
from pyro_split import SymmetricSplitHMC


def model(X: Any, y: Any) -> None:
    """Logistic regression."""
    w = pyro.sample("w", dist.Normal(torch.zeros(X.shape[1]), 1.0).to_event(1))
    with pyro.plate("data", X.shape[0]):
        pyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def sent_by(kick: Any) -> list[int]:
    """Bytes of each message of a call."""
    sent, all_reduce = [], torch.distributed.all_reduce

    def counted(message: torch.Tensor, **options: Any) -> Any:
        sent.append(message.numel() * message.element_size())
        return all_reduce(message, **options)

    with mock.patch.object(torch.distributed, "all_reduce", counted):
        kick()
    return sent


def found_with(rows: Any, num_subsets: int, repeats: int, group: str | None) -> dict[str, Any]:
    """Seconds of a gradient of one subset, and what it sends."""
    pyro.set_rng_seed(0)
    kernel = SymmetricSplitHMC(
        model, num_subsets=num_subsets, find_heuristic_step_size=False, step_size=1e-3, process_group=group
    )
    kernel.setup(0, *rows)
    potential = kernel._chain.prepared.potential  # type: ignore[union-attr]

    def sweep() -> None:
        z = {"w": torch.zeros(COLUMNS)}
        for m in range(num_subsets):
            z = {"w": z["w"] - 1e-9 * potential.subset_grad(z, m)["w"]}

    sent = sent_by(lambda: potential.subset_grad({"w": torch.zeros(COLUMNS)}, 0))
    seconds = interleaved({"pass": sweep}, repeats)["pass"] / num_subsets
    return {
        "num_subsets": num_subsets,
        "seconds": Spread.of(seconds)._asdict(),
        "messages": len(sent),
        "bytes": sum(sent),
    }


def main() -> None:
    """Measure; the first process writes."""
    given, place = json.loads(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    is_group = given["processes"] > 1
    if is_group:
        at = f"tcp://localhost:{given['port']}"
        torch.distributed.init_process_group("gloo", init_method=at, rank=place, world_size=given["processes"])
    rows = tuple(map(torch.from_numpy, rows_of(given["rows"], place, given["processes"])))
    group = "world" if is_group else None
    found = [found_with(rows, num_subsets, given["repeats"], group) for num_subsets in given["subsets"]]
    if not place:
        Path(given["out"]).write_text(json.dumps(found))
    if is_group:
        torch.distributed.barrier()  # a rank that ends while another speaks would end that one
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
