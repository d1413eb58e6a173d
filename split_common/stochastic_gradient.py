r"""Stochastic-gradient Langevin dynamics and Hamiltonian Monte Carlo: the step, how far off it is, and its parts.

Target, at no step size exactly: p(z|y)^(1/T). A chain samples a distribution near it. Let ∇Ũ be the gradient of
U = -log p(z, y) with the likelihood of n rows, drawn afresh, scaled by N/n, or of all rows; G a constant diagonal;
η the step size. With momentum r ~ N(0, T I) and velocity v = sqrt(ηG) r, so v ~ N(0, ηTG), a step is

.. math:: r \leftarrow (1-\alpha) r - \sqrt{\eta G}\,\nabla\tilde U(z) + \mathcal N(0, 2(\alpha-\hat\beta)T), \qquad
          z \leftarrow z + \sqrt{\eta G}\,r,

which in v is that of Chen, Fox and Guestrin, eq. 15, with mass matrix 1/G: v ← (1-α)v - ηG∇Ũ(z) + N(0, 2(α-β̂)ηTG).
In r nothing depends on η or G, so both may change between steps without disturbing the momentum.

Where each iteration draws a new r, its first kick is half a kick, with no friction. Then r belongs to the time of z,
as in leapfrog, and L = 1 is stochastic-gradient Langevin dynamics,

.. math:: z \leftarrow z - \tfrac{\eta}{2} G\,\nabla\tilde U(z) + \mathcal N(0, \eta T G),

with step size ε = η: one transition is written for both. A whole first kick would divide the variance of a normal
target by about 1 + 1/L for short trajectories, and no kick before the first drift by 1 - 1/L.

How far off, for a normal target of precision h in one coordinate, G = 1, gradient noise of variance V (0 for all rows):

* Langevin: variance (T + εV/4) / (h (1 - εh/4)), stable below εh = 4.
* momentum carried on: variance (T(1 - β̂/α) + ηV/(2α)) / (h (1 - ηh/(2(2-α)))), so β̂ = ηV/(2T) cancels the noise.

Both means are exact: off a normal target they are not.

Step-size schedules, preconditioners, kicks and rules are plain arithmetic here, so they take the arrays of either
framework, and iteration numbers that a compiler traces.

Reference:
    Welling and Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics, ICML. Chen, Fox and Guestrin
    (2014), Stochastic gradient Hamiltonian Monte Carlo, ICML. Li, Chen, Carlson and Carin (2016), Preconditioned
    stochastic gradient Langevin dynamics for deep neural networks, AAAI. Lau (2018), section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from split_common import health
from split_common.checks import MAX_COUNT, check_flag, check_positive_float, check_positive_int
from split_common.errors import first_line
from split_common.minibatches import share_of_shard
from split_common.values import finite_number, is_name, real_array, shown

STATISTICS = (*health.STATISTICS, "rows_touched")
RMSPROP = "rmsprop"
RMS_DECAY, RMS_FLOOR = 0.99, 1e-5  # as in Li et al. (2016): how fast V forgets, and what keeps 1/sqrt(V) finite

StepSizes = Callable[[Any], Any]


class Kick(NamedTuple):
    """One change of the momentum, r ← (1 - friction) r - weight sqrt(ηG) ∇Ũ(z) + noise ξ.

    Attributes:
        weight: weight of the gradient.
        friction: share of the momentum that is lost.
        noise: standard deviation of the noise that is added.
    """

    weight: Any
    friction: Any
    noise: Any


class Dynamics(NamedTuple):
    """How a kernel moves from one draw to the next.

    Attributes:
        batch_size: n, rows of a gradient; None for all of them.
        num_steps: L.
        temperature: T.
        draws_momentum: whether each iteration draws a new momentum.
        friction: α.
        noise_estimate: β̂.
        has_kinetic_energy: whether the momentum counts in the energy.
    """

    batch_size: int | None
    num_steps: int
    temperature: float
    draws_momentum: bool
    friction: float
    noise_estimate: float
    has_kinetic_energy: bool

    @classmethod
    def langevin(cls, batch_size: Any, temperature: Any) -> Dynamics:
        """One step with a momentum of its own, as the arguments of a kernel ask for it.

        Raises:
            ValueError: for an argument out of range.
        """
        return cls(
            batch_size=check_batch_size(batch_size),
            num_steps=1,
            temperature=check_positive_float("temperature", temperature),
            draws_momentum=True,
            friction=1.0,
            noise_estimate=0.0,
            has_kinetic_energy=False,
        )

    @classmethod
    def hamiltonian(
        cls,
        batch_size: Any,
        *,
        num_steps: Any,
        temperature: Any,
        resample_momentum: Any,
        friction: Any,
        noise_estimate: Any,
    ) -> Dynamics:
        """L steps with friction, as the arguments of a kernel ask for them.

        Raises:
            TypeError: for a flag that is no bool.
            ValueError: for an argument out of range.
        """
        alpha, beta = check_friction(friction, noise_estimate)
        return cls(
            batch_size=check_batch_size(batch_size),
            num_steps=check_positive_int("num_steps", num_steps, MAX_COUNT),
            temperature=check_positive_float("temperature", temperature),
            draws_momentum=check_flag("resample_momentum", resample_momentum),
            friction=alpha,
            noise_estimate=beta,
            has_kinetic_energy=True,
        )

    @property
    def described_target(self) -> str:
        """The target in words, where it is not the posterior; else ""."""
        return "" if self.temperature == 1 else f"the posterior to the power of 1/T, T = {self.temperature:g}"

    @property
    def kicks(self) -> list[Kick]:
        """Kicks of one iteration, L of them.

        A momentum drawn afresh belongs to the same time as the position, so the first kick is half a kick, as
        leapfrog's is; a momentum carried on is half a step behind already.
        """
        noise = math.sqrt(2 * (self.friction - self.noise_estimate) * self.temperature)
        first = Kick(0.5, 0.0, 0.0) if self.draws_momentum else Kick(1.0, self.friction, noise)
        return [first] + (self.num_steps - 1) * [Kick(1.0, self.friction, noise)]

    def cost(self, num_rows: int, num_subsets: int, num_shards: int = 1) -> tuple[int, int]:
        """Gradients of an iteration, each of a minibatch or a subset; and rows read for them, as many of each shard."""
        if self.batch_size is None:
            grads, rows = num_subsets, num_rows
        else:
            grads, rows = 1, num_shards * share_of_shard(self.batch_size, num_shards)
        return self.num_steps * grads, self.num_steps * rows


def polynomial_decay(a: float, b: float, gamma: float) -> StepSizes:
    """The step sizes a (b + t)^(-gamma) of iterations t = 0, 1, ...

    Their sum is infinite and the sum of their squares finite, which is what averages over draws need to converge to
    those of the target when each draw is weighed by its step size (Welling and Teh 2011).

    Args:
        a: scale, above 0.
        b: number of iterations before the decay sets in, above 0.
        gamma: exponent of the decay, above 0.5 and at most 1.

    Returns:
        A function of the iteration number, which may be traced.

    Raises:
        ValueError: for a number out of its range.

    Example:
        >>> schedule = polynomial_decay(4.0, 16.0, 1.0)
        >>> schedule(0), schedule(48)
        (0.25, 0.0625)
    """
    if check_positive_float("gamma", gamma) <= 0.5 or gamma > 1:
        raise ValueError(f"gamma must lie above 0.5 and be at most 1, got {gamma!r}")
    return partial(_polynomial, check_positive_float("a", a), check_positive_float("b", b), float(gamma))


def _polynomial(a: float, b: float, gamma: float, t: Any) -> Any:
    return a * (b + t) ** -gamma


def step_size_at(step_size: float | StepSizes, t: Any) -> Any:
    """Step size of iteration ``t``, from a number or a schedule."""
    return step_size(t) if callable(step_size) else step_size


def adapts(preconditioner: Any) -> bool:
    """Whether a preconditioner follows the gradients of warm-up."""
    return isinstance(preconditioner, str)


def rms_update(mean_square: Any, grad: Any, t: Any) -> Any:
    """Exponentially weighted mean of squared gradients, after the gradient number ``t`` (from 0).

    It is RMSprop's mean divided by the sum of its weights so far, as in Adam, so it starts at the first square.
    """
    weight = (1 - RMS_DECAY) / (1 - RMS_DECAY ** (t + 1))
    return mean_square + weight * (grad**2 - mean_square)


def rms_diagonal(mean_square: Any) -> Any:
    """Diagonal of the preconditioner G, from mean squares of gradients."""
    return 1 / (RMS_FLOOR + mean_square**0.5)


def site_diagonals(preconditioner: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Diagonal of a given preconditioner by site, each of the site's shape; a scalar 1 where None is given."""
    if preconditioner is None:
        return {name: np.ones(()) for name in shapes}
    if isinstance(preconditioner, Mapping):
        return {name: preconditioner[name].reshape(shape) for name, shape in shapes.items()}
    names = sorted(shapes)
    ends = np.cumsum([math.prod(shapes[name]) for name in names])
    parts = np.split(preconditioner, ends[:-1])
    return {name: part.reshape(shapes[name]) for name, part in zip(names, parts, strict=True)}


def check_step_size(value: Any) -> float | StepSizes:
    """Return a number above 0, or a schedule whose first step size is one.

    Raises:
        ValueError: for anything else.
    """
    if not callable(value):
        try:
            return check_positive_float("step_size", value)
        except ValueError:
            raise ValueError(
                f"step_size must be a finite number above 0 or a function of the iteration number, got {shown(value)}"
            ) from None
    try:
        first = value(0)
    except Exception as error:
        raise ValueError(
            f"step_size must be a finite number above 0 or a function of the iteration number, got {shown(value)}, "
            f"which for iteration 0 fails with {type(error).__name__}: {first_line(error)}"
        ) from error
    if not (finite_number(first) or 0) > 0:
        raise ValueError(
            f"step_size(0) must be a finite number above 0, got {shown(first)} from step_size={shown(value)}"
        )
    return value


def check_batch_size(value: Any, num_rows: int | None = None) -> int | None:
    """Return ``value``, or raise unless it is None or from 1 to the number of rows."""
    if value is None:
        return None
    batch_size = check_positive_int("batch_size", value)
    if num_rows is not None and batch_size > num_rows:
        raise ValueError(
            f"batch_size must be at most the number of rows in the data plate, {num_rows}, got {shown(value)}"
        )
    return batch_size


def check_friction(friction: Any, noise_estimate: Any) -> tuple[float, float]:
    """Return both, or raise unless 0 < friction ≤ 1 and 0 ≤ noise_estimate < friction."""
    alpha, beta = check_positive_float("friction", friction), finite_number(noise_estimate)
    if alpha > 1:
        raise ValueError(f"friction must be above 0 and at most 1, got {shown(friction)}")
    if beta is None or not 0 <= beta < alpha:
        raise ValueError(
            f"noise_estimate must be at least 0 and below friction (no noise would be left to add), "
            f"got noise_estimate={shown(noise_estimate)} and friction={shown(friction)}"
        )
    return alpha, beta


def check_preconditioner(value: Any) -> Any:
    """Return None, "rmsprop", or a given diagonal as NumPy arrays.

    Raises:
        ValueError: for an unknown name, or entries that are not finite and above 0.
    """
    if value is None or (adapts(value) and value == RMSPROP):
        return value
    given = value if isinstance(value, Mapping) else {"": value}
    arrays = {}
    for name, entries in given.items():
        x = real_array(entries)
        fits = is_name(name) if isinstance(value, Mapping) else x is not None and x.ndim == 1
        if x is None or x.size == 0 or not fits:
            break
        if not np.all(np.isfinite(x) & (x > 0)):
            where = f"preconditioner[{name!r}]" if name else "preconditioner"
            raise ValueError(f"{where} must hold finite numbers above 0, got {x.min()} in {shown(value)}")
        arrays[name] = x
    if not arrays or len(arrays) < len(given):
        raise ValueError(
            f"preconditioner must be None, {RMSPROP!r}, an array or a dict of arrays by site, of real numbers (an "
            f"array of shape (D,)), got {shown(value)}"
        )
    return arrays if isinstance(value, Mapping) else arrays[""]


def check_preconditioner_sizes(preconditioner: Any, sizes: Mapping[str, int]) -> None:
    """Raise unless a given diagonal has an entry for each unconstrained value."""
    if isinstance(preconditioner, Mapping):
        found = {name: x.size for name, x in preconditioner.items()}
        if found != dict(sizes):
            raise ValueError(f"preconditioner must hold an entry for each value of {dict(sizes)}, got {found}")
    elif isinstance(preconditioner, np.ndarray) and preconditioner.shape != (sum(sizes.values()),):
        raise ValueError(
            f"preconditioner must have shape ({sum(sizes.values())},), for sites {sorted(sizes)} in this order, "
            f"got {preconditioner.shape}"
        )


def check_can_adapt(preconditioner: Any, name: str, num_warmup: int) -> None:
    """Raise when a preconditioner adapts in warm-up and there is none."""
    if adapts(preconditioner) and num_warmup < 1:
        raise ValueError(
            f"{name} must be at least 1 for preconditioner={preconditioner!r}, which adapts in warm-up only, "
            f"got {num_warmup}"
        )
