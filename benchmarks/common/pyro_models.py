"""The benchmark models in Pyro, and the same log-densities written by hand in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.common.shapes import SHAPES

Position = dict[str, Tensor]


def softmax_logits(z: Position, x: Tensor) -> Tensor:
    """Logits of softmax regression; ``x`` has shape (n, 784), or (n, 20) in a tall table."""
    return x @ z["weights"] + z["bias"]


def conv_logits(z: Position, x: Tensor) -> Tensor:
    """Logits of a small convolutional net; ``x`` has shape (n, 28, 28)."""
    h = F.relu(F.conv2d(x[:, None], z["filters_1"], z["bias_1"], stride=2))
    h = F.relu(F.conv2d(h, z["filters_2"], z["bias_2"], stride=2))
    return h.flatten(1) @ z["weights"] + z["bias"]


def pooled_logits(z: Position, x: Tensor) -> Tensor:
    """Logits of the network of Cobb and Jalaian (2021) for Fashion-MNIST; ``x`` has shape (n, 28, 28)."""
    h = x[:, None]
    for layer in ("1", "2"):
        h = F.relu(F.max_pool2d(F.conv2d(h, z[f"filters_{layer}"], z[f"bias_{layer}"]), 2))
    h = F.relu(h.flatten(1) @ z["hidden"] + z["hidden_bias"])
    return h @ z["weights"] + z["bias"]


class Classifier:
    """A Pyro model of labels y given inputs x: logits by a function, every parameter N(0, sd²) a priori."""

    def __init__(
        self,
        logits: Callable[[Position, Tensor], Tensor],
        shapes: dict[str, tuple[int, ...]],
        prior_sd: float = 1.0,
    ):
        self.logits, self.shapes, self.prior_sd = logits, shapes, prior_sd

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """The generative program."""
        prior = dist.Normal(torch.zeros((), device=x.device), self.prior_sd)
        z = {name: pyro.sample(name, prior.expand(shape).to_event(len(shape))) for name, shape in self.shapes.items()}
        with pyro.plate("data", x.shape[0]):
            pyro.sample("y", dist.Categorical(logits=self.logits(z, x)), obs=y)

    def potential(self, z: Position, x: Tensor, y: Tensor) -> Tensor:
        """The same potential energy up to a constant, as one would write it by hand."""
        negative_log_likelihood = F.cross_entropy(self.logits(z, x), y, reduction="sum")
        return 0.5 * sum(u.square().sum() for u in z.values()) / self.prior_sd**2 + negative_log_likelihood

    def position(self, scale: float = 0.05) -> Position:
        """A fixed point near zero, where no gradient vanishes."""
        generator = torch.Generator().manual_seed(0)
        return {name: scale * torch.randn(shape, generator=generator) for name, shape in self.shapes.items()}


def classifiers(prior_sd: float = 1.0) -> dict[str, Classifier]:
    """The benchmark models by name."""
    return {
        "softmax": Classifier(softmax_logits, SHAPES["softmax"], prior_sd),
        "tall": Classifier(softmax_logits, SHAPES["tall"], prior_sd),
        "conv": Classifier(conv_logits, SHAPES["conv"], prior_sd),
        "pooled": Classifier(pooled_logits, SHAPES["pooled"], prior_sd),
    }
