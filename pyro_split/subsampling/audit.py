"""Audit of a run of :class:`~pyro_split.PenaltyMH`: exact changes of energy compared with repeated estimates."""

from __future__ import annotations

import numpy as np
import torch
from pyro.infer import MCMC

from pyro_split.host import arguments_of_run, diagnostics_by_chain, has_draws
from pyro_split.integrators.euclidean import kinetic_of_inverse
from pyro_split.subsampling.proposals import propose
from split_common.audit import Audit, check_audit_size, check_audited, summarise


def audit(mcmc: MCMC, num_pairs: int = 50, num_repeats: int = 200, seed: int = 0) -> Audit:
    """Compare a finished run's noisy decisions with exact ones.

    Proposals are made from draws of the run, with the adapted step size and mass matrix. For each pair of a draw and
    its proposal the change of energy is computed from all rows, and estimated ``num_repeats`` times with new rows.
    Every pair costs two passes over all rows.

    Args:
        mcmc: a :class:`pyro.infer.MCMC` that has been run with :class:`~pyro_split.PenaltyMH`.
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
        >>> from pyro_split import audit  # then: print(audit(mcmc))
    """
    kernel, (num_pairs, num_repeats) = mcmc.kernel, check_audit_size(num_pairs, num_repeats)
    check_audited(kernel, has_draws(mcmc))
    by_chain, draws = diagnostics_by_chain(mcmc), mcmc.get_samples(group_by_chain=True)
    # a run that was given its start, and needed no reference, had none
    needs_start = kernel._potential is not None or not by_chain[0]["has_reference"]
    first = {name: x[0, 0] for name, x in draws.items()} if needs_start else None
    args, kwargs = kernel._open(*arguments_of_run(mcmc))
    split, potential, method = kernel._prepare(0, args, kwargs, first)
    settings, batches = method.settings, method.settings.batches(potential.plate_size)
    sites = list(draws) if split is None else list(split.site_sizes)
    estimator, forces = method.tools(potential, sites)
    rng, looked = np.random.default_rng(seed), []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for _ in range(num_pairs):
            chain, draw = (int(rng.integers(size)) for size in next(iter(draws.values())).shape[:2])
            values = {name: draws[name][chain, draw] for name in sites}
            z = values if split is None else split.unconstrain(values)
            found = by_chain[chain]
            kinetic = kinetic_of_inverse(found["inverse_mass_matrix"])
            start, end = propose(settings, forces.draw(), kinetic, z, found["step_size"][-1])
            change = potential.energies(end.z) - potential.energies(start.z)
            exact = float(change[0] + batches.likelihood_power(settings.target) * change[1:].sum())
            groups = found["num_batches"][-1] // batches.num_batches
            estimates = [estimator(end.z, start.z, groups) for _ in range(num_repeats)]
            changes, chi2 = zip(*((estimate.change, estimate.chi2) for estimate in estimates), strict=True)
            looked.append((exact, kinetic.change(end, start), changes, chi2, found["num_batches"][-1]))
    exact, kinetic, estimates, chi2, num_batches = (np.array(x, np.float64) for x in zip(*looked, strict=True))
    return summarise(
        exact=exact,
        kinetic=kinetic,
        estimates=estimates,
        chi2=chi2,
        num_batches=num_batches,
        corrected=settings.variance_correction,
    )
