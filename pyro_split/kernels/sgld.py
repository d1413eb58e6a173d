"""SGLD: stochastic gradient Langevin dynamics, a baseline without an accept step."""

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
