"""Metropolis-Hastings that reads a few rows in each iteration, with a penalty for the noise of the estimates.

Target: the posterior, or the expected posterior of n rows. A transition draws a momentum and a force, makes leapfrog
steps by that force (:mod:`pyro_split.subsampling.proposals`), estimates the change of energy from a few rows
(:mod:`pyro_split.subsampling.estimates`), and accepts or rejects. For the proof that this leaves the target
invariant, for normal noise of known variance, see :mod:`split_common.penalty`; :func:`~pyro_split.audit` checks a
run. No iteration reads all rows.

Reference:
    Ceperley and Dewing (1999), The penalty method for random walks with uncertain energies, J. Chem. Phys. 110; used
    for networks in "Data subsampling for Bayesian neural networks" (penalty Bayesian neural networks, PBNN).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pyro_split.adaptation.settling import settle
from pyro_split.adaptation.step_size_and_metric import Adapter, Trial
from pyro_split.host import AdaptState
from pyro_split.integrators.euclidean import EuclideanKinetic, adapted_kinetic
from pyro_split.integrators.integrator import IntegratorState
from pyro_split.kernels.method import Setup
from pyro_split.kernels.state import ChainState
from pyro_split.potential.expansion import Reference, expand, find_reference, near_mode
from pyro_split.potential.position import Position, flatten, in_one_type, unflatten
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.subsampling.certainty import find_certainty_rows
from pyro_split.subsampling.estimates import Estimate, Estimator
from pyro_split.subsampling.num_batches import NoiseAdapter, NoiseState, warn_if_noisy
from pyro_split.subsampling.proposals import Forces, propose
from pyro_split.trajectories.fixed_length import Decision, metropolis
from split_common.adaptation import AdaptationSettings
from split_common.health import STATISTICS
from split_common.minibatches import check_no_local_latents
from split_common.penalty import (
    PENALTY_STATISTICS,
    PenaltySettings,
    check_hessian_size,
    check_reference,
    check_reference_inside,
    penalty,
)
from split_common.settling import Settled
from split_common.start import check_sites

NOTHING_FOUND = Reference(None, None, None)


def penalised_change(estimate: Estimate, kinetic_change: float, corrected: bool) -> float:
    """The change of energy that a decision depends on: the estimate plus the penalty for its noise."""
    return estimate.change + penalty(estimate.chi2, estimate.num_batches, corrected) + kinetic_change


def decide(
    start: IntegratorState, end: IntegratorState, estimate: Estimate, kinetic: EuclideanKinetic, corrected: bool
) -> tuple[IntegratorState, float, Decision]:
    """Accept or reject a proposal.

    Args:
        start: state in which the proposal starts.
        end: state in which it ends.
        estimate: estimated change of energy from ``start`` to ``end``.
        kinetic: the kinetic energy.
        corrected: whether the penalty accounts for the variance being an estimate.

    Returns:
        ``end`` if it is accepted, otherwise ``start``; the estimated energy there; and the decision.
    """
    change = penalised_change(estimate, kinetic.change(end, start), corrected)
    decision = metropolis(change, lambda: float(torch.rand(())))
    chosen = end if decision.accepted else start
    return chosen, estimate.energies[int(decision.accepted)], decision


@dataclass(frozen=True)
class Penalty:
    """Metropolis-Hastings with a penalty for noise, a :class:`~pyro_split.kernels.method.Method`.

    Attributes:
        settings: settings of estimates and proposals.
        adaptation: settings of the adaptation of step size and mass matrix.
        given_start: the reference that was given, constrained values by site; None to search for the mode.
        warmup_steps: number of warm-up iterations; 0 before it is known.
        reference: reference, expansion and rows of great influence, after they are found.
    """

    settings: PenaltySettings
    adaptation: AdaptationSettings
    given_start: Position | None = None
    warmup_steps: int = 0
    reference: Reference = NOTHING_FOUND
    statistics = (*STATISTICS, *PENALTY_STATISTICS)

    @property
    def details(self) -> list[str]:
        """No text besides the kernel's own."""
        return []

    @property
    def target(self) -> str:
        """The target in words, where it is not the posterior; else ""."""
        return self.settings.described_target

    @property
    def records_energy(self) -> bool:
        """Whether the potential energy in a state is that of all rows: no, it is an estimate."""
        return False

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Numbers of rows of an estimate, and of the gradient that moves a proposal."""
        batches = self.settings.batches(num_rows)
        sizes = batches.batch_size * batches.num_batches, self.settings.gradient_batch_size
        return [min(size, num_rows) for size in sizes]

    def check_warmup(self, warmup_steps: int) -> None:
        """Every number of warm-up iterations is allowed."""

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise unless a given mass matrix fits the sites."""
        self.adaptation.check_sizes(sizes)

    def for_subsets(self, num_subsets: int) -> Penalty:
        """The method itself: its steps do not depend on the number of subsets."""
        return self

    def prepare(self, setup: Setup) -> Penalty:
        """The method with reference and expansion: the only passes over all the data."""
        split, potential = setup.split, setup.potential
        if split is not None:
            check_no_local_latents("PenaltyMH", split.local_sites)
        batches = self.settings.batches(potential.plate_size)
        likelihood_power = batches.likelihood_power(self.settings.target)
        given = setup.initial_params or self.given_start or {}
        sizes = {name: torch.as_tensor(u).numel() for name, u in given.items()}
        if split is not None:
            sizes = split.site_sizes
        if sizes:
            check_hessian_size(sum(sizes.values()), self.settings)
        reference = self.reference
        if self.settings.control_variate or self.given_start is not None or setup.initial_params is None:
            z = self._find_reference(setup, likelihood_power)
            if setup.initial_params:  # of whose type the chain is
                z = {name: u.to(flatten(setup.initial_params)) for name, u in z.items()}
            found = expand(potential, z, likelihood_power, self.settings)
            if self.given_start is None:
                found = near_mode(potential, found, likelihood_power, self.settings)
            rows = find_certainty_rows(potential, found, batches, likelihood_power)
            reference = found._replace(certainty_rows=rows)
        return replace(self, warmup_steps=setup.warmup_steps, reference=reference)

    def find_start(self) -> Position:
        """A draw from the normal approximation at the reference; the reference itself if there is none."""
        assert self.reference.z is not None  # it was found, because no other start was given
        flat, covariance = flatten(self.reference.z), self.reference.covariance
        if covariance is not None:
            flat = flat + torch.as_tensor(np.linalg.cholesky(covariance)).to(flat) @ torch.randn_like(flat)
        return unflatten(flat, self.reference.z)

    def tools(self, potential: SplitPotential, sites: Sequence[str]) -> tuple[Estimator, Forces]:
        """Estimator of changes of energy, and source of the forces of proposals, for sites in this order."""
        batches, known = self.settings.batches(potential.plate_size), self.reference
        rows = torch.as_tensor([] if known.certainty_rows is None else known.certainty_rows, dtype=torch.int64)
        estimator = Estimator(potential, batches, self.settings.target, known.taylor, rows, sites)
        return estimator, Forces(self.settings, batches, potential, known.taylor, sites)

    def start(self, potential: SplitPotential, z: Position) -> ChainState:
        """The state of a chain at its starting point, whose sites are of one type, as the expansion has one."""
        batches = self.settings.batches(potential.plate_size)
        estimator, forces = self.tools(potential, list(z))
        adapter = self._adapter(z, self._trial(estimator, forces))
        energies = potential.energies(z)
        energy = float(energies[0] + batches.likelihood_power(self.settings.target) * energies[1:].sum())
        return ChainState(
            i=0,
            z=z,
            potential_energy=energy,
            energy=energy,
            num_steps=0,
            num_grads=0,
            accept_prob=0.0,
            mean_accept_prob=0.0,
            diverging=False,
            step_size=adapter.state.step_size,
            adapter=adapter,
            adapt_state=adapter.state,
            chi2=0.0,
            num_batches=0,
            tail_error=0.0,
            rows_touched=0,
            noise=NoiseState(),
            settled=Settled(),
            taylor=self.reference.taylor,
            estimator=estimator,
            forces=forces,
        )

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """One iteration: a proposal, a decision from a few rows, then adaptation of step size, metric and batches."""
        adapter, estimator, forces, noise, t = state.adapter, state.estimator, state.forces, state.noise, state.i + 1
        assert adapter is not None
        assert estimator is not None
        assert forces is not None
        assert noise is not None
        assert state.adapt_state is not None
        assert state.settled is not None
        adapter.load(state.adapt_state)
        settings, batches = self.settings, estimator.batches
        kinetic, step_size = adapted_kinetic(state.adapt_state), state.adapt_state.step_size
        start, end, estimate = self._propose(estimator, forces, kinetic, state.z, step_size, noise.num_groups)
        chosen, energy, decision = decide(start, end, estimate, kinetic, settings.variance_correction)
        reads = settings.gradient == "minibatch"
        rows_of_force = reads * min(settings.gradient_batch_size, batches.num_rows)
        energy_of_momentum = kinetic.energy(chosen.z, chosen.p)
        adapter.update(t, decision.accept_prob, chosen.z, self._trial(estimator, forces))
        n = t - self.warmup_steps if t > self.warmup_steps else t
        return state._replace(
            i=t,
            z=chosen.z,
            potential_energy=energy,
            energy=energy + energy_of_momentum,
            num_steps=settings.num_steps,
            num_grads=reads * (settings.num_steps + 1),
            accept_prob=decision.accept_prob,
            mean_accept_prob=state.mean_accept_prob + (decision.accept_prob - state.mean_accept_prob) / n,
            diverging=decision.diverging,
            step_size=step_size,
            adapt_state=adapter.state,
            chi2=estimate.chi2,
            num_batches=estimate.num_batches,
            tail_error=estimate.tail_error,
            rows_touched=batches.num_certain + estimate.num_batches * batches.batch_size + rows_of_force,
            noise=NoiseAdapter(settings.target_noise, batches, self.warmup_steps).update(t, estimate, noise),
            settled=settle(state.settled, t, adapter),
        )

    def refresh(self, potential: SplitPotential, state: ChainState, z: Position) -> ChainState:
        """The state moved to ``z``; it caches nothing that depends on the position."""
        return state._replace(z=in_one_type(z))

    def watch(self, state: ChainState) -> None:
        """Warn if the noise is too large, or if single rows of great influence make estimates unreliable."""
        assert state.num_batches is not None
        assert state.noise is not None
        warn_if_noisy(state.i - self.warmup_steps, state.num_batches, state.noise)

    def diagnostics(self, state: ChainState) -> dict[str, Any]:
        """What warm-up settled on, the inverse mass matrix by block, and whether there was a reference."""
        assert state.adapt_state is not None
        found = {
            "settled": state.settled,
            "adapted_step_size": state.adapt_state.step_size,
            "inverse_mass_matrix": dict(state.adapt_state.inverse_mass_matrix),
        }
        return {**found, "has_reference": self.reference.z is not None}

    def _find_reference(self, setup: Setup, likelihood_power: float) -> Position:
        """The reference that was given, or else the mode, as unconstrained values."""
        potential, split, initial_params = setup.potential, setup.split, setup.initial_params
        if self.given_start is not None:
            dtype = torch.get_default_dtype()
            given = {name: torch.as_tensor(x, dtype=dtype) for name, x in self.given_start.items()}
            if split is None:
                return given
            check_reference(given, split.site_sizes)
            reference = split.unconstrain(given)
            check_sites("reference", {name: u.numel() for name, u in reference.items()}, split.site_sizes)
            check_reference_inside(given, reference)
            return reference
        if split is not None:
            return find_reference(potential, split.reference_position(setup.args, setup.kwargs), likelihood_power)
        if initial_params is None:
            raise ValueError(
                "reference or initial_params must be given for a kernel made from a SplitPotential, got None"
            )
        return find_reference(potential, initial_params, likelihood_power)

    @property
    def _has_laplace_metric(self) -> bool:
        """Whether the mass matrix is that of the normal approximation at the reference, which does not adapt."""
        return self.reference.covariance is not None and self.adaptation.inverse_mass_matrix is None

    def _adapter(self, z: Position, trial: Trial) -> Adapter:
        adaptation = self.adaptation
        if self._has_laplace_metric:
            # in this metric the posterior is about standard normal, so no search for a step size is needed
            adaptation = adaptation._replace(
                inverse_mass_matrix=torch.as_tensor(self.reference.covariance),
                dense=True,
                adapt_mass_matrix=False,
                find_heuristic_step_size=False,
            )
        return Adapter(adaptation, self.warmup_steps, lambda z: z, z, trial, self.settings.longest_step)

    def _trial(self, estimator: Estimator, forces: Forces) -> Trial:
        """The trial of a search for a step size: a proposal."""

        def trial(adapted: AdaptState, z: Position) -> Callable[[float], float]:
            kinetic = adapted_kinetic(adapted)

            def energy_change(step_size: float) -> float:
                start, end, estimate = self._propose(estimator, forces, kinetic, z, step_size, 1)
                return penalised_change(estimate, kinetic.change(end, start), self.settings.variance_correction)

            return energy_change

        return trial

    def _propose(
        self,
        estimator: Estimator,
        forces: Forces,
        kinetic: EuclideanKinetic,
        z: Position,
        step_size: float,
        num_groups: int,
    ) -> tuple[IntegratorState, IntegratorState, Estimate]:
        """Start and end of a proposal, and the estimated change of energy between them."""
        start, end = propose(self.settings, forces.draw(), kinetic, z, step_size)
        return start, end, estimator(end.z, start.z, num_groups)
