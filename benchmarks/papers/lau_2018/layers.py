"""Table 4.11 of Lau (2018): two to four hidden layers of 35 units, every weight N(0, 1)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from benchmarks.common.numpyro_models import Classifier, Position
from benchmarks.papers.lau_2018.digits import HIDDEN, TARGET_ACCEPT_PROB, Paper, Row, parse_options, run_table
from numpyro_split import SplitNUTS

PAPER = {2: Paper(16.4, 284, 1596), 3: Paper(16.8, 246, 1418), 4: Paper(49.8, 402, 1310)}


def logits(z: Position, x: jax.Array) -> jax.Array:
    """Layers of tanh units without biases, "layer 1" first."""
    for name in sorted(name for name in z if name != "output"):
        x = jnp.tanh(x @ z[name])
    return x @ z["output"]


def network(num_layers: int) -> Classifier:
    """The model with some hidden layers."""
    shapes = {f"layer {i + 1}": (HIDDEN if i else 64, HIDDEN) for i in range(num_layers)}
    return Classifier(logits, shapes | {"output": (HIDDEN, 10)})


def rows() -> list[Row]:
    """The thesis's rows in its order."""
    return [
        Row(
            f"{count} layers",
            paper,
            partial(SplitNUTS, network(count), target_accept_prob=TARGET_ACCEPT_PROB),
            ("tree_depth",),
            logits=logits,
        )
        for count, paper in PAPER.items()
    ]


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    run_table(rows(), parse_options(__doc__, arguments))


if __name__ == "__main__":
    main()
