"""Table 4.14 of Lau (2018): WAIC and test error of four widths of the hidden layer.

The thesis defines WAIC as lppd - p_WAIC and prints figures of 3·10⁴ to 8·10⁴ for 500 images, which no log-density of
ten classes can have: 500 log 10 is 1,151. Here -2 (lppd - p_WAIC), and the pointwise log-densities are of all draws.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.common.numpyro_models import Position
from benchmarks.papers.lau_2018.digits import (
    TARGET_ACCEPT_PROB,
    Digits,
    Paper,
    Row,
    logits,
    network,
    parse_options,
    run_table,
)
from numpyro_split import SplitNUTS

PAPER = {35: Paper(23.4, 358, 1348), 50: Paper(20.4, 714, 1342), 75: Paper(21.2, 883, 1351), 90: Paper(21.2, 562, 1359)}
PAPER_WAIC = {35: 3.05e4, 50: 4.35e4, 75: 6.36e4, 90: 7.57e4}


def criterion(z: Position, digits: Digits) -> dict[str, float]:
    """WAIC of the training images on the scale of a deviance, its standard error, and the test images' deviance."""

    def log_density(x: jax.Array, y: jax.Array, one: Position) -> jax.Array:
        return jnp.take_along_axis(jax.nn.log_softmax(logits(one, x)), y[:, None], axis=1)[:, 0]

    by_set = ((digits.x_train, digits.y_train), (digits.x_test, digits.y_test))
    train, test = (np.asarray(jax.lax.map(partial(log_density, x, y), z), np.float64) for x, y in by_set)
    lppd, penalty = (np.logaddexp.reduce(train, axis=0) - np.log(len(train))), train.var(axis=0, ddof=1)
    found = np.logaddexp.reduce(test, axis=0) - np.log(len(test))
    pointwise = -2 * (lppd - penalty)
    return {
        "waic": float(pointwise.sum()),
        "waic_se": float(np.sqrt(len(pointwise) * pointwise.var(ddof=1))),
        "p_waic": float(penalty.sum()),
        "test_deviance": float(-2 * found.sum()),
        "test_deviance_se": float(2 * np.sqrt(len(found) * found.var(ddof=1))),
    }


def rows() -> list[Row]:
    """The thesis's rows in its order."""
    return [
        Row(
            f"{units} units",
            paper,
            partial(SplitNUTS, network(units), target_accept_prob=TARGET_ACCEPT_PROB),
            ("tree_depth",),
            measure=criterion,
        )
        for units, paper in PAPER.items()
    ]


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    run_table(rows(), parse_options(__doc__, arguments))


if __name__ == "__main__":
    main()
