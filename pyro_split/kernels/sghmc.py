"""SGHMC: stochastic gradient Hamiltonian Monte Carlo, a baseline without an accept step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from pyro_split.kernels.host_kernel import SplitKernel
from pyro_split.kernels.options import SPLITTING_DEFAULTS, SplittingOptions
from pyro_split.kernels.stochastic_gradient import StochasticGradient
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.settings import Splitting
from split_common.minibatches import LEAST_SUBSETS
from split_common.options import with_options
from split_common.stochastic_gradient import (
    Dynamics,
    StepSizes,
)


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
        data_axes: dict from the name of each argument that holds rows (or of one tensor in it, as "data['X']") to the
            axis they lie along; None takes every tensor whose axis 0 has length N.
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
