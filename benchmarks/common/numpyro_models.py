"""The benchmark models in NumPyro, and the same log-densities written by hand in JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import lax

from benchmarks.common.shapes import SHAPES

Position = dict[str, jax.Array]
Convolve = Callable[..., jax.Array]


def softmax_logits(z: Position, x: jax.Array) -> jax.Array:
    """Logits of softmax regression; ``x`` has shape (n, 784), or (n, 20) in a tall table."""
    return x @ z["weights"] + z["bias"]


def convolve_patches(x: jax.Array, filters: jax.Array, stride: int = 2) -> jax.Array:
    """An unpadded convolution as one product with the patches of ``x``, shape (n, height, width, channels).

    XLA compiles ``lax``'s convolutions, in loops on CPUs, four times slower than outside of them
    (https://github.com/jax-ml/jax/issues/12868), and a chain of any sampler is a loop. A product is a product.
    """
    num_filters, _, rows, columns = filters.shape
    down, across = x.shape[1] - rows + 1, x.shape[2] - columns + 1
    patches = [x[:, i : i + down : stride, j : j + across : stride] for i in range(rows) for j in range(columns)]
    return jnp.concatenate(patches, axis=-1) @ filters.transpose(2, 3, 1, 0).reshape(-1, num_filters)


def convolve_lax(x: jax.Array, filters: jax.Array, stride: int = 2) -> jax.Array:
    """The same by ``lax``."""
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, filters.transpose(2, 3, 1, 0), (stride, stride), "VALID", dimension_numbers=layout
    )


def convolve_for_device(x: jax.Array, filters: jax.Array, stride: int = 2) -> jax.Array:
    """The quicker of the two where it runs: products on a CPU, whose patches a GPU would have to hold in memory."""
    convolve = convolve_patches if jax.default_backend() == "cpu" else convolve_lax
    return convolve(x, filters, stride)


def conv_logits(z: Position, x: jax.Array, convolve: Convolve = convolve_patches) -> jax.Array:
    """Logits of a small convolutional net; ``x`` has shape (n, 28, 28)."""
    h = jax.nn.relu(convolve(x[..., None], z["filters_1"]) + z["bias_1"])
    h = jax.nn.relu(convolve(h, z["filters_2"]) + z["bias_2"])
    return h.reshape(h.shape[0], -1) @ z["weights"] + z["bias"]


def pooled_logits(z: Position, x: jax.Array, convolve: Convolve = convolve_for_device) -> jax.Array:
    """Logits of the network of Cobb and Jalaian (2021) for Fashion-MNIST; ``x`` has shape (n, 28, 28)."""
    h = x[..., None]
    for layer in ("1", "2"):
        h = convolve(h, z[f"filters_{layer}"], 1) + z[f"bias_{layer}"]
        n, height, width, channels = h.shape
        h = jax.nn.relu(h.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4)))
    h = h.transpose(0, 3, 1, 2).reshape(h.shape[0], -1)  # channels first, as in torch
    h = jax.nn.relu(h @ z["hidden"] + z["hidden_bias"])
    return h @ z["weights"] + z["bias"]


class Classifier:
    """A NumPyro model of labels y given inputs x: logits by a function, every parameter N(0, sd²) a priori."""

    def __init__(
        self,
        logits: Callable[[Position, jax.Array], jax.Array],
        shapes: dict[str, tuple[int, ...]],
        prior_sd: float = 1.0,
    ):
        self.logits, self.shapes, self.prior_sd = logits, shapes, prior_sd

    def __call__(self, x: jax.Array, y: jax.Array) -> None:
        """The generative program."""
        prior = dist.Normal(0.0, self.prior_sd)
        z = {
            name: numpyro.sample(name, prior.expand(shape).to_event(len(shape))) for name, shape in self.shapes.items()
        }
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("y", dist.Categorical(logits=self.logits(z, x)), obs=y)

    def potential(self, z: Position, x: jax.Array, y: jax.Array) -> jax.Array:
        """The same potential energy up to a constant, as one would write it by hand."""
        log_probs = jax.nn.log_softmax(self.logits(z, x))
        log_likelihood = jnp.take_along_axis(log_probs, y[:, None], axis=1).sum()
        return 0.5 * sum(jnp.sum(u**2) for u in z.values()) / self.prior_sd**2 - log_likelihood

    def position(self, scale: float = 0.05) -> Position:
        """A fixed point near zero, where no gradient vanishes."""
        keys = jax.random.split(jax.random.key(0), len(self.shapes))
        return {
            name: scale * jax.random.normal(key, shape)
            for key, (name, shape) in zip(keys, self.shapes.items(), strict=True)
        }


def classifiers(prior_sd: float = 1.0) -> dict[str, Classifier]:
    """The benchmark models by name."""
    return {
        "softmax": Classifier(softmax_logits, SHAPES["softmax"], prior_sd),
        "tall": Classifier(softmax_logits, SHAPES["tall"], prior_sd),
        "conv": Classifier(conv_logits, SHAPES["conv"], prior_sd),
        "pooled": Classifier(pooled_logits, SHAPES["pooled"], prior_sd),
        "conv by lax": Classifier(partial(conv_logits, convolve=convolve_lax), SHAPES["conv"], prior_sd),
    }
