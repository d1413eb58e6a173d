"""How long a proof takes that a model's rows are independent, in both packages.

``python -m benchmarks.row_proof`` prints seconds (minimum, median and maximum of 5) of one proof, in which the model is
run on shapes twice and both lists of operations are walked: of a logistic regression on 10⁶ rows of 50 numbers, and of
a residual network of 18 layers and 11 million parameters on images of 32 x 32 x 3. ``--rows`` takes another number.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions
import pyro
import pyro.distributions
import torch
from jax import lax

from benchmarks.common.report import add_common_options, chosen, save
from numpyro_split.splitting.model_split import ModelSplit as NumPyroSplit
from pyro_split.splitting.model_split import ModelSplit as PyroSplit

RUNS = 5
WIDTHS = (64, 64, 128, 128, 256, 256, 512, 512)  # of the eight blocks of two layers
CLASSES = 10


def regression(ppl: Any, dist: Any) -> Callable[..., None]:
    """Logistic regression, of either package."""

    def model(X: Any, y: Any) -> None:
        w = ppl.sample("w", dist.Normal(0.0 * X[0], 1.0).to_event(1))
        with ppl.plate("data", X.shape[0]):
            ppl.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    return model


def residual_network(ppl: Any, dist: Any, zeros: Any, convolve: Any, relu: Any) -> Callable[..., None]:
    """Eighteen layers; images have their channels first."""

    def weights(name: str, *shape: int) -> Any:
        return ppl.sample(name, dist.Normal(zeros(shape), 0.05).to_event(len(shape)))

    def model(images: Any, labels: Any) -> None:
        h, width = relu(convolve(images, weights("first", 64, 3, 3, 3), 1)), 64
        for i, wider in enumerate(WIDTHS):
            stride = 1 if wider == width else 2
            inner = relu(convolve(h, weights(f"{i}a", wider, width, 3, 3), stride))
            inner = convolve(inner, weights(f"{i}b", wider, wider, 3, 3), 1)
            short = h if wider == width else convolve(h, weights(f"{i}c", wider, width, 1, 1), stride)
            h, width = relu(inner + short), wider
        logits = h.mean((2, 3)) @ weights("last", width, CLASSES)
        with ppl.plate("data", images.shape[0]):
            ppl.sample("y", dist.Categorical(logits=logits), obs=labels)

    return model


def jax_convolve(x: Any, w: Any, stride: int) -> Any:
    """Padded to the same size."""
    return lax.conv_general_dilated(x, w, (stride, stride), [(w.shape[2] // 2,) * 2] * 2)


def torch_convolve(x: Any, w: Any, stride: int) -> Any:
    """Padded to the same size."""
    return torch.nn.functional.conv2d(x, w, stride=stride, padding=w.shape[2] // 2)


def data_of(num_rows: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of the regression and of the network."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_rows, 50), np.float32)
    images = rng.standard_normal((8, 3, 32, 32), np.float32)
    return {
        "logistic regression": (X, (rng.random(num_rows) < 0.5).astype(np.float32)),
        "residual network": (images, rng.integers(0, CLASSES, 8)),
    }


def proof_numpyro(name: str, data: tuple[np.ndarray, np.ndarray]) -> Callable[[], Any]:
    """One proof in NumPyro."""
    ppl, dist = numpyro, numpyro.distributions
    network = residual_network(ppl, dist, jnp.zeros, jax_convolve, jax.nn.relu)
    model = regression(ppl, dist) if name == "logistic regression" else network
    args = tuple(jnp.asarray(x) for x in data)
    options = {"plate": "data", "data_axes": None, "subset_order": "sequential"}
    start = numpyro.infer.init_to_uniform(radius=0.1)
    split = NumPyroSplit.find(model, args, {}, num_subsets=4, init_strategy=start, program=None, **options)
    z = split.reference_position
    density = split.bind(args, {})._density
    return lambda: split._judge(density, args, z, set())[0]


def proof_pyro(name: str, data: tuple[np.ndarray, np.ndarray]) -> Callable[[], Any]:
    """One proof in Pyro."""
    ppl, dist = pyro, pyro.distributions
    network = residual_network(ppl, dist, torch.zeros, torch_convolve, torch.relu)
    model = regression(ppl, dist) if name == "logistic regression" else network
    args = tuple(torch.as_tensor(x) for x in data)
    options = {"plate": "data", "data_axes": None, "subset_order": "sequential"}
    start = pyro.infer.autoguide.initialization.init_to_uniform(radius=0.1)
    split = PyroSplit.find(model, args, {}, num_subsets=4, init_strategy=start, jit_compile=False, **options)
    density = split._density(args, {})
    z = split.reference_position(args, {})
    split._prior_rows = None
    return lambda: split._judge(density, z, set())[0]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, help="default 10⁶")
    add_common_options(parser)
    options = parser.parse_args()
    options.rows = options.rows or (10**4 if options.quick else 10**6)
    proofs = {"numpyro": proof_numpyro, "pyro": proof_pyro}
    figures = {}
    for name, data in data_of(options.rows).items():
        for package in chosen(options.framework, list(proofs)):
            prove, taken = proofs[package](name, data), []
            for _ in range(RUNS):
                start = time.perf_counter()
                verdict = prove()
                taken.append(time.perf_counter() - start)
            figures[f"{name}, {package}"] = [min(taken), float(np.median(taken)), max(taken)]
            print(f"{name}, {package:12}", *(f"{x:8.3f}" for x in figures[f"{name}, {package}"]), verdict)
    save(options.json, {"rows": options.rows}, {"seconds": figures})


if __name__ == "__main__":
    main()
