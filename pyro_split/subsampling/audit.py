"""Auditing a run of :class:`~pyro_split.PenaltyMH`: exact energies beside repeated estimates, at its draws."""

from __future__ import annotations

import numpy as np
import torch
from pyro.infer import MCMC

from pyro_split.host import arguments_of_run, diagnostics_by_chain, has_draws
from pyro_split.integrators.low_rank import kinetic_of_inverse
from pyro_split.subsampling.proposals import propose
from split_common.audit import Audit, check_audited, summarise
from split_common.checks import check_positive_int


def audit(mcmc: MCMC, num_pairs: int = 50, num_repeats: int = 200, seed: int = 0) -> Audit:
    """Compare a finished run's noisy decisions with exact ones.

    From draws of the run, proposals are made at the adapted step size and metric; each pair's change of energy is
    computed from all rows, and estimated afresh ``num_repeats`` times. It reads all rows twice for each pair.

    Args:
        mcmc: a :class:`pyro.infer.MCMC` that has been run with :class:`~pyro_split.PenaltyMH`.
        num_pairs: P, how many pairs to look at.
        num_repeats: R, how many estimates of each.
        seed: picks the draws, the proposals and the rows.

    Returns:
        Normality of the noise, the share of χ² above K/4, acceptance with and without noise, and the error of the
        log-density that the chain samples.

    Raises:
        TypeError: for a run of another kernel.
        ValueError: for a run without draws.

    Example:
        >>> from pyro_split import audit  # then: print(audit(mcmc))
    """
    kernel, num_pairs = mcmc.kernel, check_positive_int("num_pairs", num_pairs)
    num_repeats = check_positive_int("num_repeats", num_repeats)
    check_audited(kernel, has_draws(mcmc))
    by_chain, draws = diagnostics_by_chain(mcmc), mcmc.get_samples(group_by_chain=True)
    first = {name: x[0, 0] for name, x in draws.items()} if kernel._potential is not None else None
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
            looked.append((exact, kinetic.change(end, start), changes, chi2))
    exact, kinetic, estimates, chi2 = (np.array(x, np.float64) for x in zip(*looked, strict=True))
    return summarise(
        exact=exact,
        kinetic=kinetic,
        estimates=estimates,
        chi2=chi2,
        num_batches=max(found["num_batches"][-1] for found in by_chain),
        corrected=settings.variance_correction,
    )
