"""Networks in a model: any module, with a prior of your choice on each parameter, which may be hierarchical.

NumPyro's own ``random_eqx_module`` and ``random_nnx_module`` take distributions that are fixed. Here a prior is a
function that makes sample statements (:mod:`numpyro_split.models.priors`), so that a layer's precision can be learnt.

A module is a callable that holds arrays: a ``flax.nnx`` module, or any JAX pytree, as Equinox's modules are.
:func:`mlp` and :func:`cnn` make such pytrees without either library. Their parameters have the names and shapes of the
``torch.nn.Sequential`` that :mod:`pyro_split.models.networks` makes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.contrib.module import nnx_module
from numpyro.handlers import block

from split_common.checks import check_choice, check_positive_int
from split_common.priors import ACTIVATIONS, check_weights, check_widths, pooled_features, prior_of_each

Prior = Callable[[str, tuple[int, ...]], jax.Array]


def random_module(name: str, module: Any, prior: Prior | Mapping[str, Prior]) -> Callable[..., Any]:
    """Draw every parameter of a module from its prior, and return the module with the draws in place.

    Called inside a model, outside the data plate. The prior is called once for each parameter, weights and biases
    apart, as ``prior(f"{name}.{path}", shape)``; it makes the sample statements and returns the parameter. A path joins
    attributes, positions and keys by dots: ``"0.weight"`` in :func:`mlp`, ``"layers.0.weight"`` in ``equinox.nn.MLP``,
    ``"linear.kernel"`` in flax. The module itself is not changed.

    A prior that takes ``unit_axis`` and has none bound, as those of :mod:`numpyro_split.models.priors`, is given the
    module's: the last axis for flax, 0 for the others. A function of your own that calls one of those must pass it.

    Args:
        name: prefix of the sites.
        module: a ``flax.nnx`` module; or any callable pytree, all of whose floating-point arrays are its parameters.
        prior: a function (name, shape) -> parameter for all parameters; or a dict of such functions by a parameter's
            path or the last part of it ("weight", "bias").

    Returns:
        The module with drawn parameters, to be called as the module is: an Equinox module on one row, under
        ``jax.vmap``.

    Raises:
        TypeError: for a module that cannot be called, and for a prior that is not a function.
        ValueError: for a module without parameters, a parameter without a prior, a name in ``prior`` that fits no
            parameter, or a prior that returns another shape.

    Example:
        >>> import jax.numpy as jnp, numpyro
        >>> from functools import partial
        >>> from numpyro_split import priors
        >>> net = mlp([3, 5, 1])
        >>> prior = {"weight": partial(priors.normal_gamma, per_unit=True), "bias": priors.normal}
        >>> with numpyro.handlers.trace() as trace, numpyro.handlers.seed(rng_seed=0):
        ...     random_module("net", net, prior)(jnp.ones((10, 3))).shape
        (10, 1)
        >>> sorted(trace)
        ['net.0.bias', 'net.0.weight', 'net.0.weight_precision', 'net.2.bias', 'net.2.weight', 'net.2.weight_precision']
    """
    if not callable(module):
        raise TypeError(f"module must be callable, got {type(module).__name__}")
    nnx = sys.modules.get("flax.nnx")  # a user of such a module has imported flax.nnx
    if nnx is not None and isinstance(module, nnx.Module):
        with block():  # the module's own values are no sites of the model
            network = nnx_module(name, module)
        return partial(network.func, _draw(name, network.args[0], prior, unit_axis=-1))
    return _draw(name, module, prior, unit_axis=0)


def mlp(
    widths: Sequence[int], activation: str | Callable[[jax.Array], jax.Array] = "tanh", *, bias: bool = True
) -> Callable[[jax.Array], jax.Array]:
    """A multilayer perceptron for :func:`random_module`; its parameters are zeros until drawn.

    Args:
        widths: widths of the input, of each hidden layer, and of the output.
        activation: "tanh", "relu", or a function of an array, after each layer but the last.
        bias: whether layers have biases.

    Returns:
        A callable from shape (..., inputs) to shape (..., outputs), a pytree with parameters "0.weight" of shape
        (units, inputs), "0.bias" of shape (units,), "2.weight", and so on (activations count as positions).

    Raises:
        ValueError: for fewer than two widths, a width below 1, or an unknown activation.

    Example:
        >>> import jax.numpy as jnp
        >>> mlp([3, 50, 1])(jnp.ones((10, 3))).shape
        (10, 1)
    """
    return _Sequential(_dense(check_widths("widths", widths, 2), _activation(activation), bias))


def cnn(
    image_shape: Sequence[int] = (1, 28, 28),
    num_outputs: int = 10,
    *,
    channels: Sequence[int] = (20, 50),
    kernel_size: int = 5,
    hidden: Sequence[int] = (500,),
    activation: str | Callable[[jax.Array], jax.Array] = "relu",
) -> Callable[[jax.Array], jax.Array]:
    """A convolutional network for :func:`random_module`; its parameters are zeros until drawn.

    For each of ``channels`` a convolution without padding, maximum over 2 x 2 pixels, activation; then layers of widths
    ``hidden``, each with its activation, and an output layer. The defaults are the network of Cobb et al. (2019) for
    MNIST, with 431,080 parameters.

    A convolution is a matrix product with the patches of its input, which hold ``kernel_size``² copies of it: on a CPU,
    inside a loop, this takes a small part of the time of XLA's own.

    Args:
        image_shape: (channels, height, width).
        num_outputs: number of units of the last layer.
        channels: number of output channels of each convolution.
        kernel_size: height and width of the kernel of every convolution.
        hidden: widths of the hidden layers.
        activation: "tanh", "relu", or a function of an array.

    Returns:
        A callable from shape (rows, channels, height, width) to shape (rows, outputs), a pytree with parameters
        "0.weight" of shape (channels out, channels in, size, size), "0.bias", and so on by position.

    Raises:
        ValueError: for a size below 1, an image too small, or an unknown activation.

    Example:
        >>> import jax
        >>> net = cnn()
        >>> sum(x.size for x in jax.tree.leaves(net) if hasattr(x, "size"))
        431080
    """
    image = check_widths("image_shape", image_shape, 3)
    if len(image) != 3:
        raise ValueError(f"image_shape must be (channels, height, width), got {image_shape!r}")
    channels = check_widths("channels", channels, 1)
    size = check_positive_int("kernel_size", kernel_size)
    features = pooled_features(image, channels, size)
    widths = (features, *check_widths("hidden", hidden, 0), check_positive_int("num_outputs", num_outputs))
    act = _activation(activation)
    layers: list[Callable[[jax.Array], jax.Array]] = []
    for inputs, units in pairwise((image[0], *channels)):
        layers += [_Convolution(jnp.zeros((units, inputs, size, size)), jnp.zeros(units)), _pool, act]
    return _Sequential([*layers, _flatten, *_dense(widths, act, True)])


class _Linear(NamedTuple):
    """x Wᵀ + b with W of shape (units, inputs)."""

    weight: jax.Array
    bias: jax.Array | None

    def __call__(self, x: jax.Array) -> jax.Array:
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class _Convolution(NamedTuple):
    """Unpadded convolution of images (rows, channels, height, width)."""

    weight: jax.Array
    bias: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        units, _, size, _ = self.weight.shape
        height, width = (side - size + 1 for side in x.shape[2:])
        x = jnp.moveaxis(x, 1, -1)
        shifts = [(i, j) for i in range(size) for j in range(size)]
        patches = jnp.concatenate([x[:, i : i + height, j : j + width] for i, j in shifts], axis=-1)
        kernel = self.weight.transpose(2, 3, 1, 0).reshape(-1, units)
        return jnp.moveaxis(patches @ kernel + self.bias, -1, 1)


@jax.tree_util.register_pytree_with_keys_class
class _Sequential:
    """Layers one after another; a layer's path is its position."""

    def __init__(self, layers: Sequence[Callable[[jax.Array], jax.Array]]):
        self.layers = tuple(layers)

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = layer(x)
        return x

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], None]:
        return [(jax.tree_util.SequenceKey(i), layer) for i, layer in enumerate(self.layers)], None

    @classmethod
    def tree_unflatten(cls, _: None, layers: Sequence[Any]) -> _Sequential:
        return cls(layers)


def _draw(name: str, tree: Any, prior: Prior | Mapping[str, Prior], unit_axis: int) -> Any:
    """The tree with each floating-point array drawn from its prior."""
    keyed, structure = jax.tree_util.tree_flatten_with_path(tree)
    leaves = [(".".join(_key(key) for key in path), leaf) for path, leaf in keyed]
    chosen = prior_of_each(prior, [path for path, leaf in leaves if _is_parameter(leaf)], unit_axis)
    drawn = [
        check_weights(path, chosen[path](f"{name}.{path}", leaf.shape), leaf.shape) if path in chosen else leaf
        for path, leaf in leaves
    ]
    return jax.tree.unflatten(structure, drawn)


def _key(key: Any) -> str:
    return str(next(getattr(key, kind) for kind in ("name", "idx", "key") if hasattr(key, kind)))


def _is_parameter(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _dense(
    widths: Sequence[int], activation: Callable[[jax.Array], jax.Array], bias: bool
) -> list[Callable[[jax.Array], jax.Array]]:
    layers: list[Callable[[jax.Array], jax.Array]] = []
    for inputs, units in pairwise(widths):
        layers += [_Linear(jnp.zeros((units, inputs)), jnp.zeros(units) if bias else None), activation]
    return layers[:-1]


def _activation(activation: str | Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    return activation if callable(activation) else getattr(jax.nn, check_choice("activation", activation, ACTIVATIONS))


def _pool(x: jax.Array) -> jax.Array:
    """Maximum over 2 x 2 pixels; an odd last row or column is left out."""
    rows, channels, height, width = x.shape
    even = x[:, :, : height // 2 * 2, : width // 2 * 2]
    return even.reshape(rows, channels, height // 2, 2, width // 2, 2).max((3, 5))


def _flatten(x: jax.Array) -> jax.Array:
    return x.reshape(x.shape[0], -1)
