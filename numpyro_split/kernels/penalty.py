"""Metropolis-Hastings that reads a few rows in each iteration, with a penalty for the noise of the estimates.

Target: the posterior, or the expected posterior of n rows. A transition draws a momentum and a force, makes leapfrog
steps by that force (:mod:`numpyro_split.subsampling.proposals`), estimates the change of energy from a few rows
(:mod:`numpyro_split.subsampling.estimates`), and accepts or rejects. For the proof that this leaves the target
invariant, for normal noise of known variance, see :mod:`split_common.penalty`; :func:`~numpyro_split.audit` checks a
run. No iteration reads all rows.

Reference:
    Ceperley and Dewing (1999), The penalty method for random walks with uncertain energies, J. Chem. Phys. 110; used
    for networks in "Data subsampling for Bayesian neural networks" (penalty Bayesian neural networks, PBNN).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from numpyro.infer.hmc_util import HMCAdaptState
from numpyro.util import is_prng_key

from numpyro_split.adaptation.settling import not_settled, settle
from numpyro_split.adaptation.step_size_and_metric import Adapter, SearchPoint
from numpyro_split.integrators.euclidean import EuclideanKinetic, adapted_kinetic
from numpyro_split.integrators.integrator import IntegratorState
from numpyro_split.kernels.method import Setup
from numpyro_split.kernels.state import ChainState, Warmup
from numpyro_split.potential.content import DataDigest
from numpyro_split.potential.expansion import Reference, Taylor, expand, find_reference, near_mode
from numpyro_split.potential.position import Position, where
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.potential.tracing import eagerly
from numpyro_split.subsampling.certainty import find_certainty_rows
from numpyro_split.subsampling.estimates import Estimate, Estimator
from numpyro_split.subsampling.num_batches import NoiseAdapter, NoiseState, warn_if_noisy
from numpyro_split.subsampling.proposals import draw_force, propose
from numpyro_split.trajectories.fixed_length import Decision, metropolis
from split_common.adaptation import AdaptationSettings
from split_common.certainty import as_many
from split_common.digest import digest_of_arrays
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
from split_common.start import check_sites

NOTHING_FOUND = Reference(None, None, None)


def penalised_change(estimate: Estimate, kinetic_change: jax.Array, corrected: bool) -> jax.Array:
    """The change of energy that a decision depends on: the estimate plus the penalty for its noise."""
    return estimate.change + penalty(estimate.chi2, estimate.num_batches, corrected) + kinetic_change


def decide(
    start: IntegratorState,
    end: IntegratorState,
    estimate: Estimate,
    kinetic: EuclideanKinetic,
    corrected: bool,
    rng_key: jax.Array,
) -> tuple[IntegratorState, jax.Array, Decision]:
    """Accept or reject a proposal.

    Args:
        start: state in which the proposal starts.
        end: state in which it ends.
        estimate: estimated change of energy from ``start`` to ``end``.
        kinetic: the kinetic energy.
        corrected: whether the penalty accounts for the variance being an estimate.
        rng_key: random key of the decision.

    Returns:
        ``end`` if it is accepted, otherwise ``start``; the estimated energy there; and the decision.
    """
    change = penalised_change(estimate, kinetic.change(end, start), corrected)
    decision = metropolis(change, partial(random.uniform, rng_key))
    chosen = where(decision.accepted, end, start)
    return chosen, jnp.where(decision.accepted, estimate.energies[1], estimate.energies[0]), decision


@dataclass(frozen=True)
class Penalty:
    """Metropolis-Hastings with a penalty for noise, a :class:`~numpyro_split.kernels.method.Method`.

    Attributes:
        settings: settings of estimates and proposals.
        adaptation: settings of the adaptation of step size and mass matrix.
        given_start: the reference that was given, constrained values by site; None to search for the mode.
        num_warmup: number of warm-up iterations; 0 before it is known.
        reference: reference, expansion and rows of great influence, after they are found.
        knows_data: whether ``reference`` was found with the data of the run.
    """

    settings: PenaltySettings
    adaptation: AdaptationSettings
    given_start: Position | None = None
    num_warmup: int = 0
    reference: Reference = NOTHING_FOUND
    knows_data: bool = True
    statistics = (*STATISTICS, *PENALTY_STATISTICS)
    plan = ""
    depends_on_data = True  # also without an expansion: rows of great influence have numbers among the data's rows
    free_fields = ("certainty_rows",)  # other data may have fewer or more rows of great influence

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

    @property
    def layout(self) -> tuple[str, ...]:
        """The settings, and a digest of the given reference, as texts."""
        given = digest_of_arrays(np.asarray(x) for x in (self.given_start or {}).values()).key
        return str(self.settings), given

    @property
    def shared_fields(self) -> Mapping[str, Any]:
        """The expansion, the rows that every iteration reads, and a metric that does not adapt."""
        adapts = self.adaptation.adapt_mass_matrix and not self._has_laplace_metric
        metric = HMCAdaptState(*("mass_matrix" in field and not adapts for field in HMCAdaptState._fields))
        return {"taylor": True, "certainty_rows": True, "adapt_state": metric}

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Numbers of rows of an estimate, and of the gradient that moves a proposal."""
        batches = self.settings.batches(num_rows)
        sizes = batches.batch_size * batches.num_batches, self.settings.gradient_batch_size
        return [min(size, num_rows) for size in sizes]

    def check_warmup(self, num_warmup: int) -> None:
        """Every number of warm-up iterations is allowed."""

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise unless a given mass matrix fits the sites."""
        self.adaptation.check_sizes(sizes)

    def for_subsets(self, num_subsets: int) -> Penalty:
        """The method itself: its steps do not depend on the number of subsets."""
        return self

    def prepare(self, setup: Setup) -> Penalty:
        """The method with reference and expansion: the only passes over all the data, made once for each data set."""
        split, potential, init_params = setup.split, setup.potential, setup.init_params
        if split is not None:
            check_no_local_latents("PenaltyMH", split.local_sites)
        batches = self.settings.batches(potential.plate_size)
        likelihood_power = batches.likelihood_power(self.settings.target)
        given = init_params or self.given_start or {}
        sizes = {name: jnp.size(u) for name, u in given.items()} if split is None else split.site_sizes
        if sizes:
            check_hessian_size(sum(sizes.values()), self.settings)
        reference = self.reference
        if self.settings.control_variate or self.given_start is not None or init_params is None:
            with eagerly():
                z = self._find_reference(setup, likelihood_power)
                found = expand(potential, z, likelihood_power, self.settings)
                if self.given_start is None:
                    found = near_mode(potential, found, likelihood_power, self.settings)
                rows = find_certainty_rows(potential, found, batches, likelihood_power)
                reference = found._replace(certainty_rows=rows)
        return replace(self, num_warmup=setup.num_warmup, reference=reference)

    def serves(self, init_params: Position | None) -> bool:
        """Whether the reference is known, or a starting point is given in its place."""
        return init_params is not None or self.reference.z is not None

    def without_data(self) -> Penalty:
        """The method for other data than those that the reference was found with."""
        return replace(self, knows_data=False)

    def find_start(self, rng_key: jax.Array) -> Position:
        """A draw from the normal approximation at the reference; the reference itself if there is none."""
        assert self.reference.z is not None
        flat, unravel = ravel_pytree(self.reference.z)
        covariance = self.reference.covariance
        root = np.zeros((flat.size, 0)) if covariance is None else np.linalg.cholesky(covariance)

        def draw(rng_key: jax.Array) -> Position:
            return unravel(flat + jnp.asarray(root, flat.dtype) @ random.normal(rng_key, (root.shape[1],), flat.dtype))

        return draw(rng_key) if is_prng_key(rng_key) else jax.vmap(draw)(rng_key)

    def start(self, potential: SplitPotential, z: Position, rng_key: jax.Array) -> ChainState:
        """The state of a chain at its starting point."""
        key_adapt, key_chain = random.split(rng_key)
        inverse = self._laplace_metric if self._has_laplace_metric else self.adaptation.inverse_mass_matrix
        batches, found = self.settings.batches(potential.plate_size), self.reference.certainty_rows
        rows = jnp.zeros(0, jnp.int32) if found is None else jnp.asarray(found, jnp.int32)
        estimator = self._estimator(potential, self.reference.taylor, rows)
        adapt_state = self._adapter(estimator, z).init(z, None, inverse, key_adapt)
        zero, none = jnp.zeros(()), jnp.zeros((), jnp.result_type(int))
        energies = potential.energies(z).value
        energy = energies[0] + batches.likelihood_power(self.settings.target) * jnp.sum(energies[1:])
        return ChainState(
            i=none,
            z=z,
            potential_energy=energy,
            energy=energy,
            num_steps=none,
            num_grads=none,
            accept_prob=zero,
            mean_accept_prob=zero,
            diverging=jnp.array(False),
            step_size=adapt_state.step_size,
            chi2=zero,
            num_batches=none,
            tail_error=zero,
            rows_touched=none,
            noise=NoiseState.start(),
            settled=not_settled(),
            taylor=self.reference.taylor,
            certainty_rows=rows,
            adapt_state=adapt_state,
            data_digest=DataDigest.unknown(),
            warmup=Warmup(self.num_warmup),
            rng_key=key_chain,
        )

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """One iteration: a proposal, a decision from a few rows, then adaptation of step size, metric and batches."""
        rng_key, key_proposal, key_accept = random.split(state.rng_key, 3)
        settings, estimator = self.settings, self._estimator(potential, state.taylor, state.certainty_rows)
        batches = estimator.batches
        kinetic, step_size = adapted_kinetic(state.adapt_state), state.adapt_state.step_size
        start, end, estimate = self._propose(
            estimator, kinetic, state.z, step_size, state.noise.num_groups, key_proposal
        )
        chosen, energy, decision = decide(start, end, estimate, kinetic, settings.variance_correction, key_accept)
        reads = settings.gradient == "minibatch"
        rows_of_force = reads * batches.rows_of(min(settings.gradient_batch_size, batches.num_rows))
        in_warmup, i = state.i < self.num_warmup, state.i + 1
        adapter = self._adapter(estimator, state.z)
        adapt_state = adapter.update(state.i, decision.accept_prob, chosen.z, None, state.adapt_state)
        n = jnp.where(in_warmup, i, i - self.num_warmup)
        return state._replace(
            i=i,
            z=chosen.z,
            potential_energy=energy,
            energy=energy + kinetic.energy(chosen.z, chosen.p),
            num_steps=jnp.full_like(state.num_steps, settings.num_steps),
            num_grads=jnp.full_like(state.num_grads, reads * (settings.num_steps + 1)),
            accept_prob=decision.accept_prob,
            mean_accept_prob=state.mean_accept_prob + (decision.accept_prob - state.mean_accept_prob) / n,
            diverging=decision.diverging,
            step_size=step_size,
            chi2=estimate.chi2,
            num_batches=estimate.num_batches,
            tail_error=estimate.tail_error,
            rows_touched=batches.num_certain
            + estimate.num_batches * batches.rows_of(batches.batch_size)
            + rows_of_force,
            noise=NoiseAdapter(settings.target_noise, batches, self.num_warmup).update(state.i, estimate, state.noise),
            settled=settle(state.settled, state.i, adapter, adapt_state),
            adapt_state=adapt_state,
            rng_key=rng_key,
        )

    def refresh(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state with the reference, the expansion and the normal approximation of the data given now.

        For traced data no reference can be searched for, so the expansion is about the reference of the state. The
        number of rows that every iteration reads does not change; if rows of great influence are unknown, those of the
        state are read, or the first rows where there are no longer as many.
        """
        found, num_certain = self.reference.certainty_rows if self.knows_data else None, state.certainty_rows.shape[0]
        rows = jnp.asarray(as_many(found, num_certain), jnp.int32)
        if not self.knows_data:
            rows = jnp.where(jnp.all(state.certainty_rows < potential.plate_size), state.certainty_rows, rows)
        state = state._replace(certainty_rows=rows)
        if self.knows_data:
            state = state._replace(taylor=self.reference.taylor)
            if self._has_laplace_metric:
                estimator = self._estimator(potential, state.taylor, state.certainty_rows)
                adapter, no_search = self._adapter(estimator, state.z), random.key(0)
                fresh = adapter.init(state.z, None, self._laplace_metric, no_search)
                metric = {name: getattr(fresh, name) for name in fresh._fields if "mass_matrix" in name}
                state = state._replace(adapt_state=state.adapt_state._replace(**metric))
        elif state.taylor is not None:
            old = state.taylor
            order = 1 if old.hessian is None else 2
            state = state._replace(taylor=Taylor.at(potential, old.reference, order, old.directions, old.coordinates))
        return state

    def shorten_step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state with a step size that is not too long; unchanged in a Laplace metric, where none is."""
        if self._has_laplace_metric:
            return state
        rng_key, key_adapt = random.split(state.rng_key)
        estimator = self._estimator(potential, state.taylor, state.certainty_rows)
        adapter = self._adapter(estimator, state.z)
        adapt_state = adapter.search_again(state.z, None, state.adapt_state, key_adapt)
        return state._replace(adapt_state=adapt_state, rng_key=rng_key)

    def watch(self, state: ChainState) -> None:
        """Warn if the noise is too large, or if single rows of great influence make estimates unreliable."""
        warn_if_noisy(state.i - self.num_warmup, state.num_batches, state.noise)

    def _find_reference(self, setup: Setup, likelihood_power: float) -> Position:
        """The reference that was given, or else the mode, as unconstrained values."""
        potential, split, init_params = setup.potential, setup.split, setup.init_params
        if self.given_start is not None:
            given = {name: jnp.asarray(x, jnp.result_type(float)) for name, x in self.given_start.items()}
            if split is None:
                return given
            check_reference(given, split.site_sizes)
            reference = split.unconstrain_fn(setup.args, setup.kwargs)(given)
            check_sites("reference", {name: u.size for name, u in reference.items()}, split.site_sizes)
            check_reference_inside(given, reference)
            return reference
        if any(isinstance(x, Tracer) for x in jax.tree.leaves(potential)):
            raise ValueError(
                "reference must be given where the data are traced (`run` under a transformation), got reference=None"
            )
        if split is not None:
            return find_reference(potential, split.reference_position, likelihood_power)
        if init_params is None or any(isinstance(x, Tracer) for x in jax.tree.leaves(init_params)):
            raise ValueError("reference or init_params must be given for a kernel made from a SplitPotential, got None")
        return find_reference(potential, init_params, likelihood_power)

    @property
    def _has_laplace_metric(self) -> bool:
        """Whether the mass matrix is that of the normal approximation at the reference, which does not adapt."""
        return self.reference.covariance is not None and self.adaptation.inverse_mass_matrix is None

    @property
    def _laplace_metric(self) -> jax.Array:
        return jnp.asarray(self.reference.covariance, jnp.result_type(float))

    def _estimator(self, potential: SplitPotential, taylor: Taylor | None, certainty_rows: jax.Array) -> Estimator:
        batches = self.settings.batches(potential.plate_size)
        return Estimator(potential, batches, self.settings.target, taylor, certainty_rows)

    def _adapter(self, estimator: Estimator, z: Position) -> Adapter:
        settings = self.adaptation
        if self._has_laplace_metric:
            # in this metric the posterior is about standard normal, so no search for a step size is needed
            settings = settings._replace(dense=True, adapt_mass_matrix=False, find_heuristic_step_size=False)

        def trial(kinetic: EuclideanKinetic, point: SearchPoint) -> Callable[[jax.Array, jax.Array], jax.Array]:
            def energy_change(step_size: jax.Array, rng_key: jax.Array) -> jax.Array:
                start, end, estimate = self._propose(estimator, kinetic, point.z, step_size, jnp.array(1), rng_key)
                return penalised_change(estimate, kinetic.change(end, start), self.settings.variance_correction)

            return energy_change

        return Adapter(settings, self.num_warmup, lambda z: z, z, trial, self.settings.longest_step)

    def _propose(
        self,
        estimator: Estimator,
        kinetic: EuclideanKinetic,
        z: Position,
        step_size: jax.Array,
        num_groups: jax.Array,
        rng_key: jax.Array,
    ) -> tuple[IntegratorState, IntegratorState, Estimate]:
        """Start and end of a proposal, and the estimated change of energy between them."""
        key_force, key_proposal, key_rows = random.split(rng_key, 3)
        force = draw_force(self.settings, estimator.batches, estimator.potential, estimator.taylor, key_force)
        start, end = propose(self.settings, force, kinetic, z, step_size, key_proposal)
        return start, end, estimator(end.z, start.z, num_groups, key_rows)
