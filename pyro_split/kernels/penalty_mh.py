r"""Metropolis-Hastings that reads a few rows an iteration, with a penalty for what it does not know.

Target: :math:`\pi(z) \propto p(z) \prod_i p(y_i | z)^s`, s = 1 for the posterior; s = n/N for the expected posterior
of n rows, which over a finite data set is the likelihood tempered by n/N.

Transition: draw :math:`p \sim N(0, M)` and a force; run leapfrog steps by it to (z', p')
(:mod:`pyro_split.subsampling.proposals`); estimate :math:`\delta` of U(z') - U(z), and its variance :math:`\chi^2`,
from batches of rows drawn independently of all that, and from rows of great influence, which every iteration reads
(:mod:`pyro_split.subsampling.estimates`); accept with probability

.. math:: \min(1, \exp(-\delta - u(\chi^2) - [K(p') - K(p)])).

Given the force, the proposal is a volume-preserving map that is its own inverse up to a flip of the momentum; the
acceptance, on average over normal noise of variance :math:`\chi^2`, satisfies detailed balance with respect to
:math:`e^{-U-K}` (:mod:`split_common.penalty`). So :math:`\pi` is left invariant, for as long as the noise is normal
and its variance is known well enough: which :func:`~pyro_split.audit` checks. No iteration reads all rows.

Reference:
    Ceperley and Dewing (1999), The penalty method for random walks with uncertain energies, J. Chem. Phys. 110; used
    for networks in "Data subsampling for Bayesian neural networks" (penalty Bayesian neural networks, PBNN).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from pyro.infer import MCMC
from pyro.infer.autoguide.initialization import init_to_uniform

from pyro_split.adaptation.settling import settle
from pyro_split.adaptation.step_size_and_metric import Adapter
from pyro_split.integrators.euclidean import EuclideanKinetic
from pyro_split.integrators.integrator import IntegratorState
from pyro_split.kernels.minibatch_kernel import MinibatchKernel
from pyro_split.potential.expansion import Reference, expand, find_reference
from pyro_split.potential.position import Position, flatten, unflatten
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.subsampling.audit import audit
from pyro_split.subsampling.certainty import find_certainty_rows
from pyro_split.subsampling.estimates import Estimate, Estimator
from pyro_split.subsampling.num_batches import NoiseAdapter, NoiseState, warn_if_noisy
from pyro_split.subsampling.proposals import Forces, propose
from pyro_split.trajectories.fixed_length import Decision, metropolis
from split_common.audit import Audit
from split_common.checks import check_sites
from split_common.health import STATISTICS
from split_common.minibatches import resolve_num_subsets
from split_common.penalty import (
    PENALTY_STATISTICS,
    Batches,
    PenaltySettings,
    check_given_reference,
    check_hessian_size,
    check_reference,
    penalty,
)
from split_common.settling import Settled


class PenaltyMHState(NamedTuple):
    """State of the chain.

    Attributes:
        z: the draw, a dict of unconstrained values by site.
        potential_energy: estimate of the target's -log density at ``z``, from this iteration's rows.
        energy: that plus the kinetic energy.
        num_steps: leapfrog steps of the last proposal.
        num_grads: gradients of its minibatch; 0 where the proposal reads no row.
        accept_prob: acceptance probability of the last proposal.
        diverging: whether the last proposal's energy error was above 1000, infinite or undefined.
        step_size: step size of the last proposal.
        chi2: χ², variance of the estimate that it was accepted by.
        num_batches: K of that estimate.
        tail_error: estimate, from its rows, of how far single rows may put the log-density off.
        rows_touched: rows read in this iteration.
        noise: what is remembered of the noise.
        settled: what warm-up settled on, and how far it still moved.
    """

    z: Position
    potential_energy: float
    energy: float
    num_steps: int
    num_grads: int
    accept_prob: float
    diverging: bool
    step_size: float
    chi2: float
    num_batches: int
    tail_error: float
    rows_touched: int
    noise: NoiseState
    settled: Settled


def penalised_change(estimate: Estimate, kinetic_change: float, corrected: bool) -> float:
    """The change of energy that a decision rests on: the estimate, and the penalty for its noise."""
    return estimate.change + penalty(estimate.chi2, estimate.num_batches, corrected) + kinetic_change


def transition(
    start: IntegratorState, end: IntegratorState, estimate: Estimate, kinetic: EuclideanKinetic, corrected: bool
) -> tuple[IntegratorState, float, Decision]:
    """The end of a proposal, its start where it is refused; the estimated energy there, and the decision.

    Args:
        start: where the proposal starts.
        end: where it ends.
        estimate: of the change of energy between the two.
        kinetic: the kinetic energy.
        corrected: whether the penalty allows for the variance's being an estimate.
    """
    change = penalised_change(estimate, kinetic.change(end, start), corrected)
    decision = metropolis(change, lambda: float(torch.rand(())))
    chosen = end if decision.accepted else start
    return chosen, estimate.energies[int(decision.accepted)], decision


class PenaltyMH(MinibatchKernel):
    """Metropolis-Hastings with a penalty for noise: a few rows an iteration, the full posterior.

    The change of energy is estimated from ``num_batches`` batches of ``batch_size`` rows; where the search for a
    reference finds rows of great influence, they are one more batch, which every iteration reads, and count once. The
    noise lowers the acceptance, by about exp(-χ²/2), and not the target: provided it is normal and χ² is below about
    K/4. A warning says when it is not; :func:`~pyro_split.audit` measures the bias. The default, a control variate of
    second order with proposals that follow its surrogate, suits regressions with up to some hundred parameters on any
    number of rows.

    Args:
        model: Pyro model whose likelihood sits in a plate over the data rows and whose latent sites lie outside
            it; or a :class:`~pyro_split.SplitPotential`, which needs ``initial_params``.
        batch_size: n, rows of a batch, at most the number of rows.
        num_batches: K, at least 2; the variance is estimated from as many numbers.
        proposal: "random_walk"; "langevin", one step along a gradient; or "hamiltonian", ``num_steps`` of them.
        target: "posterior"; or "expected", the posterior of the mean log-likelihood of n rows, which is the likelihood
            tempered by n/N: there n sets how far predictions trust the data.
        control_variate: None; "taylor1" or "taylor2", an expansion about a reference of first or second order, of which
            only the rest is estimated.
        hessian_rank: directions in which "taylor2" is of second order, for a model of thousands of parameters; None
            for all.
        gradient: what moves a proposal: "surrogate", the expansion itself, which reads no row, or "minibatch", rows
            drawn for each iteration. None takes the surrogate where there is one of second order.
        gradient_batch_size: rows of that minibatch; None for as many as in all batches.
        reference: where to expand, and near which chains start: constrained values by site. None finds the mode from
            all rows, before sampling (unless ``initial_params`` say where to start and there is no control variate).
        variance_correction: whether the penalty allows for χ²'s being an estimate; False is the plain χ²/2.
        step_size: step size, or where its adaptation starts. A Hamiltonian proposal's step is a random fraction of it,
            from 2/3 to 1.
        num_steps: leapfrog steps of a Hamiltonian proposal; None for 5.
        adapt_step_size: adapt the step size in warm-up, by dual averaging.
        adapt_mass_matrix: adapt the mass matrix in warm-up, in the host's windows. Of a model with at most 2,000
            parameters it is that of the normal approximation at the reference instead, if there is one, and nothing
            adapts.
        full_mass: as Pyro's.
        target_accept_prob: acceptance that the step size is adapted to; None for 0.4, 0.6 or 0.65 by proposal.
        target_noise: χ² that the number of batches is adapted to in warm-up, up to 16 times ``num_batches``; None
            leaves it.
        inverse_mass_matrix: inverse mass matrix to start from, as Pyro's; a list is an array.
        init_strategy: the host's initialisation strategy: where the search for the mode starts.
        find_heuristic_step_size: look for a workable step size at the start and after each metric update.
        num_subsets: in how many subsets passes over all the data are made, before sampling; at least 2 are used, for
            the check that the model's rows are apart, so 1 counts as 2, and ``kernel.num_subsets`` says so.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: for each argument that holds rows, the axis they lie along; None takes every tensor whose
            axis 0 has length N.
        jit_compile: trace the model once and keep its tensor operations.

    Raises:
        TypeError: at construction for a flag that is no bool, or for what is no function or mapping and should be.
        ValueError: at construction for an argument out of range; at ``run`` for a batch larger than the data, latent
            sites inside the plate, more parameters than "taylor2" can take without ``hessian_rank``, and the faults
            of model or data of :func:`~pyro_split.split_model`.

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

    _statistic_names = (*STATISTICS, *PENALTY_STATISTICS)

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
        step_size: float = 1.0,
        num_steps: int | None = None,
        adapt_step_size: bool = True,
        adapt_mass_matrix: bool = True,
        full_mass: bool | list[tuple[str, ...]] = False,
        target_accept_prob: float | None = None,
        target_noise: float | None = None,
        inverse_mass_matrix: Any = None,
        init_strategy: Callable[..., Any] = init_to_uniform,
        find_heuristic_step_size: bool = True,
        num_subsets: int = 2,
        plate: str | None = None,
        data_axes: dict[str, int | None] | None = None,
        jit_compile: bool = True,
    ):
        self._penalty = PenaltySettings.checked(
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
        self._given_reference = check_given_reference(reference, torch.Tensor)
        super().__init__(
            model,
            resolve_num_subsets(num_subsets),
            plate=plate,
            data_axes=data_axes,
            step_size=step_size,
            inverse_mass_matrix=inverse_mass_matrix,
            adapt_step_size=adapt_step_size,
            adapt_mass_matrix=adapt_mass_matrix,
            full_mass=full_mass,
            target_accept_prob=self._penalty.target_accept_prob,
            init_strategy=init_strategy,
            find_heuristic_step_size=find_heuristic_step_size,
            jit_compile=jit_compile,
        )
        self._forget_reference()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what ``setup`` finds again; traced functions do not pickle."""
        state = {**super().__getstate__(), "_reference": Reference(None, None, None)}
        return {**state, "_estimator": None, "_forces": None}

    def _forget_reference(self) -> None:
        self._reference = Reference(None, None, None)
        self._estimator: Estimator | None = None
        self._forces: Forces | None = None

    def diagnostics(self) -> dict[str, Any]:
        """The host's, every statistic as a list with one entry per draw, and the inverse mass matrix by block."""
        found = self._adapter.inverse_mass_matrix if self._adapter else {}
        return {**super().diagnostics(), "inverse_mass_matrix": {sites: x.clone() for sites, x in found.items()}}

    def audit(self, mcmc: MCMC, **options: int) -> Audit:
        """Compare a finished run's noisy decisions with exact ones: see :func:`~pyro_split.audit`."""
        return audit(mcmc, **options)

    def _set_up(
        self, potential: SplitPotential, init_params: Position | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Find the reference and the expansion about it: the only passes over all the data."""
        self._forget_reference()
        likelihood_power = self._batches(potential.plate_size).likelihood_power(self._penalty.target)
        given = init_params or self._given_reference or {}
        sizes = {name: torch.as_tensor(u).numel() for name, u in given.items()}
        if self._split is not None:
            sizes = self._split.site_sizes
        if sizes:
            check_hessian_size(sum(sizes.values()), self._penalty)
        if self._penalty.control_variate or self._given_reference is not None or init_params is None:
            z = self._find_reference(potential, init_params, likelihood_power, args, kwargs)
            found = expand(potential, z, likelihood_power, self._penalty)
            rows = find_certainty_rows(potential, found, self._batches(potential.plate_size), likelihood_power)
            self._reference = found._replace(certainty_rows=rows)

    def _find_reference(
        self,
        potential: SplitPotential,
        init_params: Position | None,
        likelihood_power: float,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Position:
        """The reference that was given, or the mode."""
        if self._given_reference is not None:
            dtype = torch.get_default_dtype()
            given = {name: torch.as_tensor(x, dtype=dtype) for name, x in self._given_reference.items()}
            if self._split is None:
                return given
            check_reference(given, self._split.site_sizes)
            reference = self._split.unconstrain(given)
            check_sites("reference", {name: u.numel() for name, u in reference.items()}, self._split.site_sizes)
            return reference
        if self._split is not None:
            return find_reference(potential, self._split.reference_position(args, kwargs), likelihood_power)
        if init_params is None:
            raise ValueError(
                "reference or initial_params must be given for a kernel made from a SplitPotential, got None"
            )
        return find_reference(potential, init_params, likelihood_power)

    @property
    def _has_laplace_metric(self) -> bool:
        """Whether the mass matrix is that of the expansion, which nothing adapts."""
        return self._reference.covariance is not None and self._settings.inverse_mass_matrix is None

    def _batches(self, num_rows: int) -> Batches:
        settings = self._penalty
        adapts = settings.target_noise is not None
        return Batches.of(num_rows, settings.batch_size, settings.num_batches, adapts)

    def _find_start(self, potential: SplitPotential, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Position:
        """A draw from the normal approximation at the reference, or the reference."""
        assert self._reference.z is not None  # found, since no other start was given
        flat, covariance = flatten(self._reference.z), self._reference.covariance
        if covariance is not None:
            flat = flat + torch.as_tensor(np.linalg.cholesky(covariance)).to(flat) @ torch.randn_like(flat)
        return unflatten(flat, self._reference.z)

    def _new_estimator(self, potential: SplitPotential, sites: Sequence[str]) -> Estimator:
        batches, known = self._batches(potential.plate_size), self._reference
        rows = torch.as_tensor([] if known.certainty_rows is None else known.certainty_rows, dtype=torch.int64)
        return Estimator(potential, batches, self._penalty.target, known.taylor, rows, sites)

    def _new_adapter(self, potential: SplitPotential, z: Position) -> Adapter:
        settings = self._settings
        if self._has_laplace_metric:
            # in this metric the posterior is about a standard normal: no step size needs to be looked for
            settings = settings._replace(
                inverse_mass_matrix=torch.as_tensor(self._reference.covariance),
                full_mass=True,
                adapt_mass_matrix=False,
                find_heuristic_step_size=False,
            )

        def trial(kinetic: EuclideanKinetic, z: Position) -> Callable[[float], float]:
            def energy_change(step_size: float) -> float:
                start, end, estimate = self._propose(kinetic, z, step_size, 1)
                return penalised_change(estimate, kinetic.change(end, start), self._penalty.variance_correction)

            return energy_change

        return Adapter(settings, self._warmup_steps, lambda z: z, z, trial, self._penalty.longest_step)

    def _start(self, potential: SplitPotential, z: Position) -> PenaltyMHState:
        batches, taylor = self._batches(potential.plate_size), self._reference.taylor
        self._estimator = self._new_estimator(potential, list(z))
        self._forces = Forces(self._penalty, batches, potential, taylor, list(z))
        self._adapter = self._new_adapter(potential, z)
        energies = potential.energies(z)
        energy = float(energies[0] + batches.likelihood_power(self._penalty.target) * energies[1:].sum())
        return PenaltyMHState(
            z=z,
            potential_energy=energy,
            energy=energy,
            num_steps=0,
            num_grads=0,
            accept_prob=0.0,
            diverging=False,
            step_size=self._adapter.step_size,
            chi2=0.0,
            num_batches=0,
            tail_error=0.0,
            rows_touched=0,
            noise=NoiseState(),
            settled=Settled(),
        )

    def _propose(
        self, kinetic: EuclideanKinetic, z: Position, step_size: float, num_groups: int
    ) -> tuple[IntegratorState, IntegratorState, Estimate]:
        """Start and end of a proposal, and the estimated change of energy between them."""
        assert self._forces is not None
        assert self._estimator is not None
        start, end = propose(self._penalty, self._forces.draw(), kinetic, z, step_size)
        return start, end, self._estimator(end.z, start.z, num_groups)

    def _transition(self, potential: SplitPotential, state: PenaltyMHState) -> PenaltyMHState:
        assert self._estimator is not None
        settings, batches = self._penalty, self._estimator.batches
        kinetic, step_size = self._adapter.kinetic, self._adapter.step_size
        start, end, estimate = self._propose(kinetic, state.z, step_size, state.noise.num_groups)
        chosen, energy, decision = transition(start, end, estimate, kinetic, settings.variance_correction)
        reads = settings.gradient == "minibatch"
        rows_of_force = reads * min(settings.gradient_batch_size, batches.num_rows)
        self._adapter.update(self._t, decision.accept_prob, chosen.z)
        moved = PenaltyMHState(
            z=chosen.z,
            potential_energy=energy,
            energy=energy + kinetic.energy(chosen.z, chosen.p),
            num_steps=settings.num_steps,
            num_grads=reads * (settings.num_steps + 1),
            accept_prob=decision.accept_prob,
            diverging=decision.diverging,
            step_size=step_size,
            chi2=estimate.chi2,
            num_batches=estimate.num_batches,
            tail_error=estimate.tail_error,
            rows_touched=batches.num_certain + estimate.num_batches * batches.batch_size + rows_of_force,
            noise=NoiseAdapter(settings.target_noise, batches, self._warmup_steps).update(
                self._t, estimate, state.noise
            ),
            settled=settle(state.settled, self._t, self._adapter),
        )
        warn_if_noisy(self._t - self._warmup_steps, moved.num_batches, moved.noise)
        return moved

    def _recompute(self, potential: SplitPotential, state: PenaltyMHState, z: Position) -> PenaltyMHState:
        return state._replace(z=z)
