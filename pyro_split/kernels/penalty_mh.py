"""PenaltyMH: Metropolis-Hastings that decides from a few rows, with a penalty for the noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from pyro.infer import MCMC
from torch import Tensor

from pyro_split.kernels.host_kernel import SplitKernel
from pyro_split.kernels.options import COMMON_DEFAULTS, CommonOptions, Options, resolve_options
from pyro_split.kernels.penalty import Penalty
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.subsampling.audit import audit
from split_common.audit import Audit
from split_common.minibatches import LEAST_SUBSETS
from split_common.options import with_options
from split_common.penalty import (
    PenaltySettings,
    check_given_reference,
)


class PenaltyMH(SplitKernel):
    """Metropolis-Hastings on the full posterior that reads a few rows in each iteration, with a penalty for the noise.

    The change of energy is estimated from ``num_batches`` batches of ``batch_size`` rows. If the search for a reference
    finds rows of great influence, these form one more batch, which every iteration reads. Noise of variance χ² lowers
    the acceptance by a factor of about exp(-χ²/2) but does not change the target, provided that it is normal and χ² is
    below about K/4. A warning says when it is not, and :func:`~pyro_split.audit` measures the bias. The default, a
    control variate of second order whose gradient moves the proposals, suits regressions with up to a few hundred
    parameters and any number of rows.

    Args:
        model: Pyro model whose likelihood sits in a plate over the data rows and whose latent sites lie outside
            it; or a :class:`~pyro_split.SplitPotential`, which needs ``initial_params``.
        batch_size: n, the number of rows in a batch, at most the number of rows in the data.
        num_batches: K, the number of batches, at least 2; the variance of an estimate is itself estimated from K
            numbers.
        proposal: how a proposal is made: "random_walk"; "langevin", by one leapfrog step; or "hamiltonian", by
            ``num_steps`` leapfrog steps.
        target: distribution to sample: "posterior"; or "expected", the posterior with the expected log-likelihood of n
            rows, that is with the likelihood to the power of n/N: there n sets how far predictions trust the data.
        control_variate: "taylor1" or "taylor2", a Taylor expansion of first or second order about a reference, of which
            only the remainder is estimated from rows; None for no expansion.
        hessian_rank: number of directions in which "taylor2" is of second order, for models with thousands of
            parameters; None for all.
        gradient: gradient that moves a proposal: "surrogate", that of the expansion, which reads no row; or
            "minibatch", from rows drawn for each iteration. None takes the surrogate where the expansion is of second
            order, else a minibatch.
        gradient_batch_size: number of rows in that minibatch; None for as many as in all batches together.
        reference: point about which to expand, and near which chains start: a dict of constrained values by site. None
            searches for the mode with all rows, before sampling (unless ``initial_params`` are given and there is no
            control variate).
        variance_correction: whether the penalty accounts for χ² being an estimate; False takes the plain penalty χ²/2.
        step_size: step size, or the value from which its adaptation starts. The steps of a Hamiltonian proposal are a
            random fraction of it, from 2/3 to 1.
        num_steps: number of leapfrog steps of a Hamiltonian proposal; None for 5.
        adapt_step_size: whether the step size adapts in warm-up, by dual averaging.
        adapt_mass_matrix: whether the mass matrix adapts in warm-up, in Pyro's windows. For a model with at most 2,000
            parameters and a reference, the mass matrix is that of the normal approximation at the reference instead,
            and does not adapt.
        full_mass: form of the mass matrix, as for Pyro's HMC.
        target_accept_prob: acceptance probability that the step size is adapted to; None for 0.4 ("random_walk"), 0.6
            ("langevin") or 0.65 ("hamiltonian").
        target_noise: variance χ² of an estimate to which warm-up adapts the number of batches, up to 16 times
            ``num_batches``; None keeps ``num_batches``.
        inverse_mass_matrix: inverse mass matrix to start from; a list counts as an array.
        init_strategy: Pyro's initialisation strategy, from which the search for the mode starts.
        find_heuristic_step_size: whether to search for a workable step size at the start and after each update of the
            mass matrix.
        num_subsets: number of subsets in which all rows are read before sampling; at least 2 are used, because whether
            rows are independent given the parameters cannot be checked with one: 1 counts as 2, which
            ``kernel.num_subsets`` shows.
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows (or of one tensor in it, as "data['X']") to the
            axis they lie along; None takes every tensor whose axis 0 has length N.
        jit_compile: whether to trace the model once and keep its tensor operations.
        process_group: processes that each hold some of the rows and together run one chain: "world" for all processes,
            or a group of ``torch.distributed``; None where this process holds all rows
            (:mod:`pyro_split.potential.ranks`).

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range; at ``run``, for a batch larger than the data, latent
            sites inside the plate, more parameters than "taylor2" allows without ``hessian_rank``, a control variate
            whose sum over all rows rounding has spoilt (:func:`split_common.reference.check_total`), and the faults of
            the model or the data that :func:`~pyro_split.split_model` lists.

    Example:
        >>> import torch, pyro, pyro.distributions as dist
        >>> from pyro.infer import MCMC
        >>> def model(x, y):
        ...     b = pyro.sample("b", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", x.shape[0]):
        ...         pyro.sample("y", dist.Bernoulli(logits=b * x), obs=y)
        >>> x = torch.linspace(-2.0, 2.0, 10_000)
        >>> y = (torch.sin(100 * x) < torch.tanh(x)).float()
        >>> kernel = PenaltyMH(model, batch_size=20, num_batches=10)
        >>> mcmc = MCMC(kernel, warmup_steps=50, num_samples=50, disable_progbar=True)
        >>> mcmc.run(x, y)
        >>> mcmc.diagnostics()["rows_touched"]["chain 0"][-1]
        200
    """

    @with_options(COMMON_DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        batch_size: int = 100,
        num_batches: int = 20,
        *,
        proposal: str = "hamiltonian",
        target: str = "posterior",
        control_variate: str | None = "taylor2",
        hessian_rank: int | None = None,
        gradient: str | None = None,
        gradient_batch_size: int | None = None,
        reference: Position | None = None,
        variance_correction: bool = True,
        num_steps: int | None = None,
        target_accept_prob: float | None = None,
        target_noise: float | None = None,
        num_subsets: int | str = 2,
        **options: Unpack[CommonOptions],
    ):
        settings = PenaltySettings.checked(
            batch_size=batch_size,
            num_batches=num_batches,
            proposal=proposal,
            target=target,
            control_variate=control_variate,
            hessian_rank=hessian_rank,
            gradient=gradient,
            gradient_batch_size=gradient_batch_size,
            variance_correction=variance_correction,
            num_steps=num_steps,
            target_accept_prob=target_accept_prob,
            target_noise=target_noise,
        )
        start = check_given_reference(reference, Tensor)
        whole: Options = {**options, "target_accept_prob": settings.target_accept_prob}
        splitting, adaptation = resolve_options(model, num_subsets, whole, LEAST_SUBSETS)
        super().__init__(model, splitting, Penalty(settings, adaptation, start))

    def audit(self, mcmc: MCMC, **options: int) -> Audit:
        """Compare a finished run's noisy decisions with exact ones: see :func:`~pyro_split.audit`."""
        return audit(mcmc, **options)
