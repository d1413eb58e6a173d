"""Audit of a run of :class:`~numpyro_split.PenaltyMH`: exact changes of energy compared with repeated estimates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from numpyro.infer import MCMC

from numpyro_split.host import arguments_of_run, has_draws
from numpyro_split.integrators.euclidean import adapted_kinetic
from numpyro_split.potential.compensated import difference
from numpyro_split.potential.precision import full_precision
from numpyro_split.subsampling.estimates import Estimator
from numpyro_split.subsampling.proposals import draw_force, propose
from split_common.audit import Audit, check_audit_size, check_audited, summarise


@full_precision
def audit(mcmc: MCMC, num_pairs: int = 50, num_repeats: int = 200, seed: int = 0) -> Audit:
    """Compare a finished run's noisy decisions with exact ones.

    Proposals are made from draws of the run, with the adapted step size and mass matrix. For each pair of a draw and
    its proposal the change of energy is computed from all rows, and estimated ``num_repeats`` times with new rows.
    Every pair costs two passes over all rows.

    Args:
        mcmc: a :class:`numpyro.infer.MCMC` that has been run with :class:`~numpyro_split.PenaltyMH`.
        num_pairs: P, number of pairs of a draw and a proposal, at least 3.
        num_repeats: R, number of estimates for each pair, at least 2.
        seed: seed of the choice of draws, proposals and rows.

    Returns:
        Tests of the noise for normality, the share of χ² above K/4, the acceptance with and without noise, and the
        error of the log-density that the chain samples.

    Raises:
        TypeError: for a run of another kernel.
        ValueError: for a run without draws.

    Example:
        >>> from numpyro_split import audit  # then: print(audit(mcmc))
    """
    kernel, (num_pairs, num_repeats) = mcmc.sampler, check_audit_size(num_pairs, num_repeats)
    check_audited(kernel, has_draws(mcmc))
    args, kwargs = arguments_of_run(mcmc)
    state: Any = mcmc.last_state
    prepared, potential, _ = kernel._look_up(state, args, kwargs)
    draws = mcmc.get_samples(group_by_chain=True)
    settings = prepared.method.settings
    batches = settings.batches(potential.plate_size)

    @jax.jit
    def look_at(z: Any, state: Any, rng_key: jax.Array) -> tuple[jax.Array, ...]:
        key_force, key_proposal, key_rows = random.split(rng_key, 3)
        kinetic = adapted_kinetic(state.adapt_state)
        force = draw_force(settings, batches, potential, state.taylor, key_force)
        start, end = propose(settings, force, kinetic, z, state.adapt_state.step_size, key_proposal)
        new, old = potential.energies(end.z), potential.energies(start.z)
        likelihood_power = jnp.full(new.high.shape, batches.likelihood_power(settings.target)).at[0].set(1.0)
        exact = difference(*(jax.tree.map(lambda x: x * likelihood_power, energies) for energies in (new, old)))
        estimator = Estimator(potential, batches, settings.target, state.taylor, state.certainty_rows)
        estimates = lax.map(
            lambda key: estimator(end.z, start.z, state.noise.num_groups, key), random.split(key_rows, num_repeats)
        )
        return exact, kinetic.change(end, start), estimates.change, estimates.chi2, state.num_batches

    unconstrained = dict if prepared.split is None else prepared.split.unconstrain_fn(args, kwargs)
    rng, looked = np.random.default_rng(seed), []
    shape = next(iter(draws.values())).shape[:2]
    for i in range(num_pairs):
        chain, draw = (int(rng.integers(size)) for size in shape)
        values = {name: x[chain, draw] for name, x in draws.items()}
        z = unconstrained(values)
        of_chain = jax.tree.map(lambda x, chain=chain: x[chain], state) if jnp.ndim(state.i) else state
        looked.append(look_at(z, of_chain, random.fold_in(random.key(seed), i)))
    columns = (np.asarray(jnp.stack(x), np.float64) for x in zip(*looked, strict=True))
    exact, kinetic, estimates, chi2, num_batches = columns
    return summarise(
        exact=exact,
        kinetic=kinetic,
        estimates=estimates,
        chi2=chi2,
        num_batches=num_batches,
        corrected=settings.variance_correction,
    )
