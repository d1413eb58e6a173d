"""Arms of comparison that are no samplers of the library, for all scripts: point estimates and committees, in JAX.

A network is a function of its activation, such as ``partial(networks.cnn, ...)``. Weights are dicts by path, as the
sites of :func:`~numpyro_split.networks.random_module` without their prefix. MC dropout stands in
:mod:`benchmarks.papers.cobb_2019.dropout`, in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from numpyro_split import networks

Weights = dict[str, Any]
Network = Callable[..., Any]  # of a keyword argument ``activation``
CHUNK = 500  # rows in a forward pass


class Training(NamedTuple):
    """How a network is trained.

    Attributes:
        optimiser: one of :mod:`numpyro.optim`, of the mean of the loss over a batch.
        epochs: passes through the rows.
        batch_size: rows of a step; what is left over of an epoch is left out.
        weight_decay: of the loss, ½ weight_decay |w|².
        patience: epochs without a better validation error after which training stops; None for no early stop.
        holdout: share of the rows for validation, where there is an early stop.
    """

    optimiser: Any
    epochs: int
    batch_size: int
    weight_decay: float = 0.0
    patience: int | None = None
    holdout: float = 0.2


def paths_and_shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """Shape of each parameter of a network."""
    with numpyro.handlers.block():
        found: dict[str, tuple[int, ...]] = {}

        def note(name: str, shape: tuple[int, ...]) -> jax.Array:
            found[name.removeprefix("net.")] = shape
            return jnp.zeros(shape)

        networks.random_module("net", network(activation=jax.nn.relu), note)
    return found


def initial_weights(network: Network, seed: int) -> Weights:
    """PyTorch's usual initialisation: uniform within 1 / sqrt(fan-in), biases as the weights of their layer."""
    rng, shapes = np.random.default_rng(seed), paths_and_shapes(network)
    fan_in = {path: int(np.prod(shapes[path.replace("bias", "weight")][1:])) for path in shapes}
    return {path: rng.uniform(-1, 1, shape).astype(np.float32) * fan_in[path] ** -0.5 for path, shape in shapes.items()}


def logits(network: Network, activation: Callable[[Any], Any], weights: Weights, x: Any) -> jax.Array:
    """What a network makes of rows."""
    return networks.random_module("net", network(activation=activation), lambda name, _: weights[name[4:]])(x)


class Trained:
    """Networks trained one after the other on the same rows.

    Args:
        network: to be trained, a function of its activation.
        activation: of its hidden units.
        training: how.
    """

    def __init__(self, network: Network, activation: Callable[[Any], Any], training: Training):
        self.network, self.training = network, training
        self._logits = partial(logits, network, activation)
        self._forward = jax.jit(lambda w, x: jax.nn.softmax(self._logits(w, x)))
        self._update = jax.jit(self._step)

    def _step(self, state: Any, x: Any, y: Any) -> Any:
        training = self.training

        def loss(w: Weights) -> jax.Array:
            log_probs = jax.nn.log_softmax(self._logits(w, x))
            decay = 0.5 * training.weight_decay * sum(jnp.sum(u**2) for u in w.values())
            return decay - jnp.mean(jnp.take_along_axis(log_probs, y[:, None], axis=1))

        return training.optimiser.update(jax.grad(loss)(training.optimiser.get_params(state)), state)

    def weights(self, x: np.ndarray, y: np.ndarray, seed: int) -> Weights:
        """Weights after training from a seed's start, those of the best epoch where there is an early stop."""
        training = self.training
        rng = np.random.default_rng(seed)
        held = rng.permutation(len(x))[: int(training.holdout * len(x)) if training.patience else 0]
        rows = np.setdiff1d(np.arange(len(x)), held)
        state = training.optimiser.init(jax.tree.map(jnp.asarray, initial_weights(self.network, seed)))
        best, best_error, waited = None, np.inf, 0
        for _ in range(training.epochs):
            for batch in _batches(rows, training.batch_size, rng):
                state = self._update(state, x[batch], y[batch])
            if training.patience:
                found = training.optimiser.get_params(state)
                error = float(np.mean(self.probabilities(found, x[held]).argmax(-1) != y[held]))
                best, best_error, waited = (found, error, 0) if error < best_error else (best, best_error, waited + 1)
                if waited >= training.patience:
                    break
        return best if best is not None else training.optimiser.get_params(state)

    def probabilities(self, weights: Weights, x: np.ndarray) -> np.ndarray:
        """Class probabilities of rows, shape (rows, classes)."""
        parts = [self._forward(weights, x[i : i + CHUNK]) for i in range(0, len(x), CHUNK)]
        return np.concatenate([np.asarray(part) for part in parts])

    def ensemble(self, x: np.ndarray, y: np.ndarray, members: int, x_test: np.ndarray, seed: int) -> np.ndarray:
        """Class probabilities by networks of several starts, shape (members, rows, classes).

        With an early stop in the training this is a committee of early-stopped networks, else a deep ensemble.
        """
        return np.array([self.probabilities(self.weights(x, y, seed + i), x_test) for i in range(members)])


def _batches(rows: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    size = min(size, len(rows))
    order = rng.permutation(rows)
    yield from np.split(order[: len(rows) // size * size], len(rows) // size)
