"""Networks in a model: any module, with a prior of your choice on each parameter, which may be hierarchical.

Here a prior is a function that makes sample statements (:mod:`pyro_split.models.priors`), so that a layer's precision
can be learnt and shared, without rewriting the module. A module is any ``torch.nn.Module``; it is called with drawn
parameters and left as it is, where Pyro's ``to_pyro_module_`` would change its class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from split_common.checks import check_choice, check_positive_int
from split_common.priors import ACTIVATIONS, check_weights, check_widths, pooled_features, prior_of_each

Prior = Callable[[str, tuple[int, ...]], Tensor]


def random_module(name: str, module: nn.Module, prior: Prior | Mapping[str, Prior]) -> Callable[..., Any]:
    """Draw every parameter of a module from its prior, and return the module with the draws in place.

    Called inside a model, outside the data plate. The prior is called once for each parameter, weights and biases
    apart, as ``prior(f"{name}.{path}", shape)``; it makes the sample statements and returns the parameter. Paths are
    those of ``module.named_parameters()``: ``"0.weight"`` in :func:`mlp`. The module itself is not changed.

    A prior that takes ``unit_axis`` and has none bound, as those of :mod:`pyro_split.models.priors`, is given 0, the
    axis of PyTorch's linear and convolutional layers. A function of your own that calls one of those must pass it; bind
    1 for the weights of a transposed convolution.

    Args:
        name: prefix of the sites.
        module: a ``torch.nn.Module``.
        prior: a function (name, shape) -> parameter for all parameters; or a dict of such functions by a parameter's
            path or the last part of it ("weight", "bias").

    Returns:
        The module with drawn parameters, to be called as the module is.

    Raises:
        TypeError: for a module that is none of PyTorch's, and for a prior that is not a function.
        ValueError: for a module without parameters, a parameter without a prior, a name in ``prior`` that fits no
            parameter, or a prior that returns another shape.

    Example:
        >>> import torch, pyro
        >>> from functools import partial
        >>> from pyro_split import priors
        >>> net = mlp([3, 5, 1])
        >>> prior = {"weight": partial(priors.normal_gamma, per_unit=True), "bias": priors.normal}
        >>> with pyro.poutine.trace() as trace, pyro.poutine.seed(rng_seed=0):
        ...     random_module("net", net, prior)(torch.ones(10, 3)).shape
        torch.Size([10, 1])
        >>> sorted(trace.trace.nodes)
        ['net.0.bias', 'net.0.weight', 'net.0.weight_precision', 'net.2.bias', 'net.2.weight', 'net.2.weight_precision']
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    shapes = {path: tuple(parameter.shape) for path, parameter in module.named_parameters()}
    chosen = prior_of_each(prior, list(shapes), unit_axis=0)
    drawn = {path: check_weights(path, chosen[path](f"{name}.{path}", shape), shape) for path, shape in shapes.items()}
    return partial(_call, module, drawn)


def mlp(
    widths: Sequence[int], activation: str | Callable[[Tensor], Tensor] = "tanh", *, bias: bool = True
) -> nn.Sequential:
    """A multilayer perceptron for :func:`random_module`.

    Args:
        widths: widths of the input, of each hidden layer, and of the output.
        activation: "tanh", "relu", or a function of a tensor, after each layer but the last.
        bias: whether layers have biases.

    Returns:
        A module from shape (..., inputs) to shape (..., outputs), with parameters "0.weight" of shape
        (units, inputs), "0.bias" of shape (units,), "2.weight", and so on (activations count as positions).

    Raises:
        ValueError: for fewer than two widths, a width below 1, or an unknown activation.

    Example:
        >>> import torch
        >>> mlp([3, 50, 1])(torch.ones(10, 3)).shape
        torch.Size([10, 1])
    """
    return nn.Sequential(*_dense(check_widths("widths", widths, 2), _activation(activation), bias))


def cnn(
    image_shape: Sequence[int] = (1, 28, 28),
    num_outputs: int = 10,
    *,
    channels: Sequence[int] = (20, 50),
    kernel_size: int = 5,
    hidden: Sequence[int] = (500,),
    activation: str | Callable[[Tensor], Tensor] = "relu",
) -> nn.Sequential:
    """A convolutional network for :func:`random_module`.

    For each of ``channels`` a convolution without padding, maximum over 2 x 2 pixels, activation; then layers of widths
    ``hidden``, each with its activation, and an output layer. The defaults are the network of Cobb et al. (2019) for
    MNIST, with 431,080 parameters.

    Args:
        image_shape: (channels, height, width).
        num_outputs: number of units of the last layer.
        channels: number of output channels of each convolution.
        kernel_size: height and width of the kernel of every convolution.
        hidden: widths of the hidden layers.
        activation: "tanh", "relu", or a function of a tensor.

    Returns:
        A module from shape (rows, channels, height, width) to shape (rows, outputs), with parameters "0.weight" of
        shape (channels out, channels in, size, size), "0.bias", and so on by position.

    Raises:
        ValueError: for a size below 1, an image too small, or an unknown activation.

    Example:
        >>> net = cnn()
        >>> sum(x.numel() for x in net.parameters())
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
    layers: list[nn.Module] = []
    for inputs, units in pairwise((image[0], *channels)):
        layers += [nn.Conv2d(inputs, units, size), nn.MaxPool2d(2), _Activation(act)]
    return nn.Sequential(*layers, nn.Flatten(), *_dense(widths, act, True))


class _Activation(nn.Module):
    """A function of a tensor as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _call(module: nn.Module, parameters: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
    """The module's result with given parameters; in training it writes to its buffers, here to copies of them."""
    buffers = {name: x.clone() for name, x in module.named_buffers()} if module.training else {}
    return torch.func.functional_call(module, {**buffers, **parameters}, args, kwargs)


def _dense(widths: Sequence[int], activation: Callable[[Tensor], Tensor], bias: bool) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for inputs, units in pairwise(widths):
        layers += [nn.Linear(inputs, units, bias=bias), _Activation(activation)]
    return layers[:-1]


def _activation(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return activation if callable(activation) else getattr(torch, check_choice("activation", activation, ACTIVATIONS))
