"""The benchmark models in NumPyro, and the same log-densities written by hand in JAX."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import lax

from benchmarks.shapes import SHAPES

Position = dict[str, jax.Array]


def softmax_logits(z: Position, x: jax.Array) -> jax.Array:
    """Logits of softmax regression; ``x`` has shape (n, 784)."""
    return x @ z["weights"] + z["bias"]


def conv_logits(z: Position, x: jax.Array) -> jax.Array:
    """Logits of a small convolutional net; ``x`` has shape (n, 28, 28)."""
    h = _convolve(x[:, None], z["filters_1"], z["bias_1"])
    h = _convolve(h, z["filters_2"], z["bias_2"])
    return h.reshape(h.shape[0], -1) @ z["weights"] + z["bias"]


def _convolve(x: jax.Array, filters: jax.Array, bias: jax.Array) -> jax.Array:
    return jax.nn.relu(lax.conv_general_dilated(x, filters, (2, 2), "VALID") + bias[:, None, None])


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
        "conv": Classifier(conv_logits, SHAPES["conv"], prior_sd),
    }
