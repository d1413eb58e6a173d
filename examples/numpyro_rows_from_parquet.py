"""A logistic regression on rows of a Parquet file, which are read subset by subset, written to a store as it is drawn.

    pip install -e '.[numpyro,store,tables]'
    python examples/numpyro_rows_from_parquet.py                        # makes a small file in a temporary folder
    python examples/numpyro_rows_from_parquet.py --file rows.parquet --store run.zarr

Stop it (Ctrl-C) and start it again with the same ``--file`` and ``--store``: it goes on where it was.
``python -m split_common.watch run.zarr`` shows how it stands meanwhile.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pyarrow
from numpyro.infer import MCMC
from pyarrow import parquet

from numpyro_split import SplitHMC, sample, table_rows

COLUMNS = [f"x{i}" for i in range(10)]


def write_file(path: Path, num_rows: int = 50_000) -> None:
    """Write a table of ten columns and a label, in row groups of 5,000 rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_rows, len(COLUMNS)), np.float32)
    y = rng.random(num_rows) < 1 / (1 + np.exp(-X @ np.linspace(-1.0, 1.0, len(COLUMNS))))
    columns = dict(zip(COLUMNS, X.T, strict=True))
    parquet.write_table(pyarrow.table({**columns, "label": y.astype(np.int32)}), path, row_group_size=5_000)


def model(X: jax.Array, y: jax.Array) -> None:
    """Logistic regression."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def main() -> None:
    """Draw, and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--file", type=Path, help="a Parquet file with columns x0 to x9 and label; default: one is made"
    )
    parser.add_argument("--store", help="where the run is written; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "rows.parquet"
        if not path.exists():
            write_file(path)
        X, y = table_rows(path, COLUMNS, label="label")
        mcmc = MCMC(SplitHMC(model, num_subsets=10), num_warmup=200, num_samples=200, progress_bar=False)
        found = sample(mcmc, jax.random.key(0), X, y, store=options.store or f"{folder}/run.zarr")
        print(found["posterior"]["w"].mean(("chain", "draw")).values.round(2))


if __name__ == "__main__":
    main()
