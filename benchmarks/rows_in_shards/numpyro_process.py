"""One process of NumPyro: ``python -m benchmarks.rows_in_shards.numpyro_process GIVEN PLACE``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax

from benchmarks.common.timing import Spread, interleaved
from benchmarks.rows_in_shards.table_of_rows import rows_of
from numpyro_split import shard_rows, split_model

COLLECTIVE = re.compile(r"= (?P<type>[^=]*?) (?:all-\w+|collective-\w+|reduce-scatter)(?:-start)?\(")
ARRAY = re.compile(r"[a-z]+(?P<bits>\d+)\[(?P<shape>[\d,]*)\]")


def model(X: Any, y: Any) -> None:
    """Logistic regression."""
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0).to_event(1))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def sent_by(text: str) -> list[int]:
    """Bytes of each message in a compiled text."""
    types = [found["type"] for line in text.splitlines() if (found := COLLECTIVE.search(line))]
    return [sum(int(bits) // 8 * _size(shape) for bits, shape in ARRAY.findall(found)) for found in types]


def _size(shape: str) -> int:
    return int(np.prod([int(n) for n in shape.split(",") if n]))


def found_with(rows: Any, num_subsets: int, repeats: int) -> dict[str, Any]:
    """Seconds of a gradient of one subset, and what it sends."""
    potential = split_model(model, rows, num_subsets=num_subsets)
    z = {"w": jnp.zeros(rows[0].shape[1])}

    def kick(potential: Any, z: Any, m: Any) -> Any:
        return potential.subset_energies_and_grad(z, m)[1]

    def sweep(potential: Any, z: Any) -> Any:
        def step(z: Any, m: Any) -> tuple[Any, None]:
            return jax.tree.map(lambda u, grad: u - 1e-9 * grad, z, kick(potential, z, m)), None

        return lax.scan(step, z, jnp.arange(num_subsets))[0]

    sent = sent_by(jax.jit(kick).lower(potential, z, jnp.array(0)).compile().as_text())
    compiled = jax.jit(sweep)
    action = {"pass": lambda: jax.block_until_ready(compiled(potential, z))}
    seconds = interleaved(action, repeats)["pass"] / num_subsets
    return {
        "num_subsets": num_subsets,
        "seconds": Spread.of(seconds)._asdict(),
        "messages": len(sent),
        "bytes": sum(sent),
    }


def main() -> None:
    """Measure; the first process writes."""
    given, place = json.loads(sys.argv[1]), int(sys.argv[2])
    if given["processes"] > 1:
        jax.distributed.initialize(f"localhost:{given['port']}", given["processes"], place)
    num = given["devices"] * given["processes"]
    own = rows_of(given["rows"], place, given["processes"])
    rows = shard_rows(own, jax.make_mesh((num,), ("rows",))) if num > 1 else tuple(map(jnp.asarray, own))
    found = [found_with(rows, num_subsets, given["repeats"]) for num_subsets in given["subsets"]]
    if not place:
        Path(given["out"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
