"""Stochastic-gradient Langevin dynamics and Hamiltonian Monte Carlo: approximate, without an accept-reject decision.

Target: p(z|y)^(1/T), only approximately at any step size. Both kernels use one transition. For its step, its bias and
the references, see :mod:`split_common.stochastic_gradient`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor

from pyro_split.kernels.host_kernel import SplitKernel
from pyro_split.kernels.method import Setup
from pyro_split.kernels.options import SPLITTING_DEFAULTS, SplittingOptions
from pyro_split.kernels.state import ChainState
from pyro_split.potential.position import Position, zeros
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.settings import Splitting
from pyro_split.subsampling.rows import draw_minibatch
from split_common.minibatches import LEAST_SUBSETS, check_no_local_latents
from split_common.options import with_options
from split_common.stochastic_gradient import (
    STATISTICS,
    Dynamics,
    StepSizes,
    adapts,
    check_batch_size,
    check_can_adapt,
    check_preconditioner,
    check_preconditioner_sizes,
    check_step_size,
    rms_diagonal,
    rms_update,
    site_diagonals,
    step_size_at,
)


class Point(NamedTuple):
    """A point of a trajectory.

    Attributes:
        z: position.
        momentum: momentum r.
        mean_square: mean square of gradients divided by N; None where no preconditioner adapts.
        energy: estimate of U before the last step.
        is_finite: whether all estimates of U so far are finite.
    """

    z: Position
    momentum: Position
    mean_square: Position | None
    energy: float
    is_finite: bool


def noisy_steps(
    state: ChainState,
    potential: SplitPotential,
    dynamics: Dynamics,
    preconditioner: Any,
    step_size: float,
    i: int,
    in_warmup: bool,
) -> ChainState:
    """One iteration: L steps, each with a gradient from newly drawn rows.

    Args:
        state: current state of the chain.
        potential: potential, bound to the data.
        dynamics: number and form of the steps.
        preconditioner: None, "rmsprop", or a diagonal as :func:`~split_common.stochastic_gradient.site_diagonals`
            takes it.
        step_size: step size η.
        i: the iteration, counted through warm-up and sampling.
        in_warmup: whether this is an iteration of warm-up, in which a preconditioner may adapt.

    Returns:
        The next state.
    """
    momentum = draw_momentum(state.z, dynamics.temperature) if dynamics.draws_momentum else state.momentum
    assert momentum is not None
    start = point = Point(state.z, momentum, state.mean_square, state.potential_energy, True)
    for t, kick in enumerate(dynamics.kicks, start=i * dynamics.num_steps):
        energy, grad = estimate(potential, point.z, dynamics.batch_size)
        mean_square = point.mean_square
        if mean_square is not None and in_warmup:
            rows = potential.plate_size
            mean_square = {name: rms_update(v, grad[name] / rows, t) for name, v in mean_square.items()}
        diagonal = _diagonal(preconditioner, mean_square, point.z)
        noise = draw_momentum(point.z, 1.0)
        z, momentum = {}, {}
        for name, u in point.z.items():
            scale, r = (step_size * diagonal[name]).sqrt(), point.momentum[name]
            r = (1 - kick.friction) * r - kick.weight * scale * grad[name] + kick.noise * noise[name]
            z[name], momentum[name] = u + scale * r, r
        point = Point(z, momentum, mean_square, energy, point.is_finite and math.isfinite(energy))
    return _arrived(state, start, point, dynamics)._replace(step_size=step_size)


def estimate(potential: SplitPotential, z: Position, batch_size: int | None) -> tuple[float, Position]:
    """Unbiased estimates of U(z) and its gradient from newly drawn rows; exact ones for a ``batch_size`` of None."""
    if batch_size is None:
        energies, grad = potential.energies_and_grad(z)
        return float(energies.sum()), grad
    energy, grad = potential.batch_potential_and_grad(z, draw_minibatch(potential.plate_size, batch_size))
    return float(energy), grad


def draw_momentum(z: Position, temperature: float) -> Position:
    """A draw from N(0, T I), a dict like ``z``."""
    return {name: temperature**0.5 * torch.randn_like(u) for name, u in z.items()}


def _diagonal(preconditioner: Any, mean_square: Position | None, z: Position) -> Position:
    """The diagonal of G, a dict like ``z``."""
    if mean_square is not None:
        return {name: rms_diagonal(v) for name, v in mean_square.items()}
    given = site_diagonals(preconditioner, {name: tuple(u.shape) for name, u in z.items()})
    return {name: torch.as_tensor(x, dtype=z[name].dtype, device=z[name].device) for name, x in given.items()}


def _arrived(state: ChainState, start: Point, end: Point, dynamics: Dynamics) -> ChainState:
    """``state`` at the end of a trajectory, or at its start if the end is not finite."""
    moved: list[Tensor] = [x for part in (end.z, end.momentum, end.mean_square or {}) for x in part.values()]
    is_finite = end.is_finite and all(bool(torch.isfinite(x).all()) for x in moved)
    energy = end.energy
    if dynamics.has_kinetic_energy:
        energy += sum(0.5 * float((r**2).sum()) for r in end.momentum.values())
    kept = end if is_finite else start
    return state._replace(
        z=kept.z,
        momentum=kept.momentum,
        mean_square=kept.mean_square,
        potential_energy=end.energy,
        energy=energy,
        diverging=not is_finite,
    )


@dataclass(frozen=True)
class StochasticGradient:
    """Steps by noisy gradients without an accept-reject decision, a :class:`~pyro_split.kernels.method.Method`.

    Attributes:
        name: name of the kernel in messages.
        dynamics: number and form of the steps.
        step_size: step size η, or a function of the iteration number.
        preconditioner: None, "rmsprop", or a diagonal.
        warmup_steps: number of warm-up iterations; 0 before it is known.
    """

    name: str
    dynamics: Dynamics
    step_size: float | StepSizes
    preconditioner: Any
    warmup_steps: int = 0
    statistics = STATISTICS

    @classmethod
    def checked(cls, name: str, dynamics: Dynamics, step_size: Any, preconditioner: Any) -> StochasticGradient:
        """The method that a kernel's arguments ask for.

        Raises:
            ValueError: for an argument out of range.
        """
        return cls(name, dynamics, check_step_size(step_size), check_preconditioner(preconditioner))

    @property
    def details(self) -> list[str]:
        """No text besides the kernel's own."""
        return []

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Number of rows of a gradient, unless all rows are read."""
        size = check_batch_size(self.dynamics.batch_size, num_rows)
        return [] if size is None else [size]

    def check_warmup(self, warmup_steps: int) -> None:
        """Raise if there is no warm-up in which the preconditioner could adapt."""
        check_can_adapt(self.preconditioner, "warmup_steps", warmup_steps)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise unless a given preconditioner fits the sites."""
        check_preconditioner_sizes(self.preconditioner, sizes)

    def for_subsets(self, num_subsets: int) -> StochasticGradient:
        """The method itself: its steps do not depend on the number of subsets."""
        return self

    def prepare(self, setup: Setup) -> StochasticGradient:
        """The method with the length of warm-up.

        Raises:
            ValueError: for latent sites inside the data plate, unless all rows are read.
        """
        if setup.split is not None and self.dynamics.batch_size is not None:
            check_no_local_latents(self.name, setup.split.local_sites)
        return replace(self, warmup_steps=setup.warmup_steps)

    def find_start(self) -> None:
        """No start of its own: the host's strategy finds the starting point."""

    def start(self, potential: SplitPotential, z: Position) -> ChainState:
        """The state of a chain at its starting point."""
        check_batch_size(self.dynamics.batch_size, potential.plate_size)
        energy = float(potential.energies(z).sum())
        num_grads, rows_touched = self.dynamics.cost(potential.plate_size, potential.num_subsets)
        return ChainState(
            i=0,
            z=z,
            momentum=draw_momentum(z, self.dynamics.temperature),
            mean_square=zeros(z) if adapts(self.preconditioner) else None,
            potential_energy=energy,
            energy=energy,
            num_steps=self.dynamics.num_steps,
            num_grads=num_grads,
            rows_touched=rows_touched,
            accept_prob=1.0,
            mean_accept_prob=1.0,
            diverging=False,
            step_size=self._step_size_at(0),
        )

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state after one iteration."""
        step_size, in_warmup = self._step_size_at(state.i), state.i < self.warmup_steps
        moved = noisy_steps(state, potential, self.dynamics, self.preconditioner, step_size, state.i, in_warmup)
        return moved._replace(i=state.i + 1)

    def refresh(self, potential: SplitPotential, state: ChainState, z: Position) -> ChainState:
        """The state moved to ``z``; it caches nothing that depends on the position."""
        return state._replace(z=z)

    def watch(self, state: ChainState) -> None:
        """No warnings: the report says that draws are approximate."""

    def diagnostics(self, state: ChainState) -> dict[str, Any]:
        """No entries besides the statistics."""
        return {}

    def _step_size_at(self, i: int) -> float:
        return float(step_size_at(self.step_size, i))


class SGLD(SplitKernel):
    """Approximate: stochastic-gradient Langevin dynamics (Welling and Teh 2011).

    An iteration is z ← z - (ε/2) G ∇Ũ(z) + N(0, εTG), with ∇Ũ from ``batch_size`` newly drawn rows. There is no
    accept-reject decision, so **at any fixed step size the draws come from another distribution than the posterior**.
    For T = G = 1 the variance of the draws is too large by a relative error of about εN²/(4n) times the variance of a
    row's gradient (minibatch noise) plus εU''/4 (discretisation). Both vanish only as ε → 0, when the chain no longer
    moves. For exact draws use :class:`~pyro_split.SymmetricSplitHMC` or :class:`~pyro_split.SplitNUTS`.

    ``batch_size=None`` uses all rows, subset by subset, in every iteration: the unadjusted Langevin algorithm (ULA).

    Statistics: ``accept_prob`` is always 1; ``potential_energy`` (``lp`` in ArviZ, with the other sign) is the estimate
    from the same rows as the gradient, taken before the step; ``diverging`` says that a value was not finite, so that
    the chain stayed where it was; ``rows_touched`` counts the rows read. If many draws diverge, the step size is too
    large.

    Args:
        model: Pyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~pyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``initial_params``.
        batch_size: n, the number of rows that a gradient reads, at most N; None for all rows.
        step_size: ε, or a function of the iteration number, counted from 0 through warm-up and sampling, such as
            :func:`~split_common.stochastic_gradient.polynomial_decay` makes. It has no default, because without
            accepted and rejected proposals nothing shows which step size is good.
        temperature: T, the temperature; the target is p(z|y)^(1/T).
        preconditioner: diagonal of G: None for the identity; a tensor over all sites (sorted by name), shape (D,); a
            dict of tensors by site; or "rmsprop" (Li et al. 2016), 1/(1e-5 + sqrt(V)) with V a mean of squared
            gradients of U/N. V adapts in warm-up only. Li et al. adapt it throughout, and leave out the term Γ(z) that
            a G which depends on z needs, which adds a bias; a constant G needs no such term.
        num_subsets: M, the number of subsets in which all rows are read: at the start, and in every iteration for
            ``batch_size=None``. With a ``batch_size`` at least 2 are used, because whether rows are independent given
            the parameters cannot be checked with one: 1 counts as 2, which ``kernel.num_subsets`` shows.
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows to the axis they lie along; None takes every
            tensor whose axis 0 has length N.
        subset_order: "sequential" divides the rows into subsets in their order; "shuffled" deals them out at random by
            a fixed seed.
        init_strategy: Pyro's initialisation strategy.
        jit_compile: whether to trace the model once and keep its tensor operations; False runs it again for every
            gradient.
        process_group: processes that each hold some of the rows and together run one chain: "world" for all processes,
            or a group of ``torch.distributed``; None where this process holds all rows
            (:mod:`pyro_split.potential.ranks`).

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range; at ``run``, for a batch larger than the data, a
            preconditioner of the wrong size, one that adapts in a run without warm-up, latent sites inside the data
            plate unless all rows are used, and the faults of the model or the data that :func:`~pyro_split.split_model`
            lists.

    Example:
        >>> import pyro, pyro.distributions as dist, torch
        >>> from pyro.infer import MCMC
        >>> def model(y):
        ...     mu = pyro.sample("mu", dist.Normal(torch.tensor(0.0), 1.0))
        ...     with pyro.plate("data", y.shape[0]):
        ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
        >>> mcmc = MCMC(SGLD(model, batch_size=5, step_size=1e-3), 50, warmup_steps=50, disable_progbar=True)
        >>> mcmc.run(torch.sin(torch.arange(100.0)))
        >>> mcmc.get_samples()["mu"].shape
        torch.Size([50])
    """

    @with_options(SPLITTING_DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        batch_size: int | None = None,
        *,
        step_size: float | StepSizes,
        temperature: float = 1.0,
        preconditioner: Any = None,
        num_subsets: int | str = 1,
        **options: Unpack[SplittingOptions],
    ):
        least_subsets = 1 if batch_size is None else LEAST_SUBSETS
        splitting = Splitting.checked(model, num_subsets, least_subsets=least_subsets, **options)
        dynamics = Dynamics.langevin(batch_size, temperature)
        super().__init__(model, splitting, StochasticGradient.checked("SGLD", dynamics, step_size, preconditioner))


class SGHMC(SplitKernel):
    """Approximate: stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014).

    A step is v ← (1-α) v - ηG ∇Ũ(z) + N(0, 2(α-β̂)ηTG), z ← z + v, with ∇Ũ from ``batch_size`` newly drawn rows; an
    iteration has L of them. There is no accept-reject decision, so **at any fixed step size the draws come from another
    distribution than the posterior**. Friction balances the minibatch noise only as η → 0, or where β̂ is right.

    The notation of Chen et al. and of algorithm 16 of Lau (2018), both with G = T = 1: their step size ε is sqrt(η), so
    v = ε M⁻¹r in the momentum r; learning rate η, friction α and noise estimate β̂ are as here. Chen et al. have α =
    εM⁻¹C and β̂ = εM⁻¹B̂; with V the variance of ∇Ũ, β̂ = ηV/2. As printed, algorithm 16 loses the momentum that the
    friction leaves (its v is -η∇Ṽ - αv + z) and has β̂ times η inside the noise and η not outside, 2(α - β̂η). It
    updates v and z in another order; see ``resample_momentum``.

    Statistics: those of :class:`SGLD`; ``energy`` includes the kinetic energy ½ vᵀ(ηG)⁻¹v of the last step.

    Args:
        model: Pyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~pyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``initial_params``.
        batch_size: n, the number of rows that a gradient reads; None for all rows.
        step_size: η, the square of a leapfrog step size, or a function of the iteration number.
        friction: α, the friction, above 0 and at most 1.
        noise_estimate: β̂, an estimate of the noise of the gradients, at least 0 and below α.
        num_steps: L, the number of steps of an iteration.
        resample_momentum: True draws v ~ N(0, ηTG) at the start of each iteration, whose first step is then a leapfrog
            step, with half a kick and no friction, so that ``num_steps=1`` is :class:`SGLD` of the same step size.
            False keeps v: the recursion of Chen et al., of which every L-th z is a draw.
        temperature: T, the temperature; the target is p(z|y)^(1/T).
        preconditioner: diagonal of G: None for the identity; a tensor over all sites (sorted by name), shape (D,); a
            dict of tensors by site; or "rmsprop" (Li et al. 2016), 1/(1e-5 + sqrt(V)) with V a mean of squared
            gradients of U/N. V adapts in warm-up only. Li et al. adapt it throughout, and leave out the term Γ(z) that
            a G which depends on z needs, which adds a bias; a constant G needs no such term.
        num_subsets: M, the number of subsets in which all rows are read: at the start, and in every iteration for
            ``batch_size=None``. With a ``batch_size`` at least 2 are used, because whether rows are independent given
            the parameters cannot be checked with one: 1 counts as 2, which ``kernel.num_subsets`` shows.
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows to the axis they lie along; None takes every
            tensor whose axis 0 has length N.
        subset_order: "sequential" divides the rows into subsets in their order; "shuffled" deals them out at random by
            a fixed seed.
        init_strategy: Pyro's initialisation strategy.
        jit_compile: whether to trace the model once and keep its tensor operations; False runs it again for every
            gradient.
        process_group: processes that each hold some of the rows and together run one chain: "world" for all processes,
            or a group of ``torch.distributed``; None where this process holds all rows
            (:mod:`pyro_split.potential.ranks`).

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range; at ``run``, for a batch larger than the data, a
            preconditioner of the wrong size, one that adapts in a run without warm-up, latent sites inside the data
            plate unless all rows are used, and the faults of the model or the data that :func:`~pyro_split.split_model`
            lists.

    Example:
        >>> kernel = SGHMC(lambda y: None, batch_size=10, step_size=1e-4, num_steps=5)
        >>> kernel.num_subsets  # at least 2 with a batch size
        2
    """

    @with_options(SPLITTING_DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        batch_size: int | None = None,
        *,
        step_size: float | StepSizes,
        friction: float = 0.01,
        noise_estimate: float = 0.0,
        num_steps: int = 10,
        resample_momentum: bool = True,
        temperature: float = 1.0,
        preconditioner: Any = None,
        num_subsets: int | str = 1,
        **options: Unpack[SplittingOptions],
    ):
        least_subsets = 1 if batch_size is None else LEAST_SUBSETS
        splitting = Splitting.checked(model, num_subsets, least_subsets=least_subsets, **options)
        dynamics = Dynamics.hamiltonian(
            batch_size,
            num_steps=num_steps,
            temperature=temperature,
            resample_momentum=resample_momentum,
            friction=friction,
            noise_estimate=noise_estimate,
        )
        super().__init__(model, splitting, StochasticGradient.checked("SGHMC", dynamics, step_size, preconditioner))
