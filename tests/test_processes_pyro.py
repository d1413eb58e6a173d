"""Chains in processes of the host's own, from one kernel that several ``MCMC`` objects share (Pyro)."""

import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC

import pyro_split

STILL = {
    "num_subsets": 2,
    "step_size": 1e-6,
    "num_steps": 1,
    "adapt_step_size": False,
    "adapt_mass_matrix": False,
    "step_size_jitter": 0.0,
}
"""Settings with which the first draw is the start, to 1e-3."""

pytestmark = pytest.mark.parametrize("context", ["fork", "spawn"])


@pytest.fixture(autouse=True)
def _enough_cores(monkeypatch):
    monkeypatch.setattr("pyro.infer.mcmc.api.mp.cpu_count", lambda: 4)


def flat(x):
    """Two coordinates that the data say next to nothing about."""
    s = pyro.sample("s", dist.Normal(0.0, 100.0).expand([2]).to_event(1))
    with pyro.plate("data", x.shape[0]):
        pyro.sample("y", dist.Normal(x * s.sum(), 1e5), obs=x)


def bounded(x):
    """A latent below the largest of the data."""
    s = pyro.sample("s", dist.Uniform(0.0, x.max()))
    with pyro.plate("data", x.shape[0]):
        pyro.sample("y", dist.Normal(s, 1.0), obs=x)


def first_draws(kernel, context, seed, num_chains=2, **options):
    pyro.set_rng_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mcmc = MCMC(kernel, 2, 0, num_chains=num_chains, mp_context=context, disable_progbar=True, **options)
        mcmc.run(torch.ones(8))
    return mcmc.get_samples(group_by_chain=True)["s"][:, 0].numpy()


def test_each_chain_starts_where_it_is_given(context):
    """Though the host gives the one kernel all starting points before it starts the chains."""
    given = torch.tensor([[1.0, 1.0], [50.0, 50.0]])
    kernel = pyro_split.SplitHMC(flat, **STILL)
    for _ in range(2):
        draws = first_draws(kernel, context, 0, initial_params={"s": given})
        np.testing.assert_allclose(draws, given, atol=0.01)
    draws = first_draws(kernel, context, 0)
    assert np.abs(draws[:, None] - given.numpy()).max(-1).min() > 0.1, "a later run starts where an earlier one did"


def test_later_runs_start_anew(context):
    """Chains of a second run start neither where the first did nor at one point, and another seed moves them."""
    kernel = pyro_split.SplitHMC(flat, **STILL)
    starts = np.concatenate([first_draws(kernel, context, seed) for seed in (0, 10, 20)])
    starts = np.concatenate([starts, first_draws(kernel, context, 99, num_chains=1)])
    apart = np.abs(starts[:, None] - starts[None]).max(-1) + np.eye(len(starts))
    assert apart.min() > 1e-2


def test_other_supports_are_refused(context):
    """The host would map draws to the interval of the first run."""
    kernel = pyro_split.SplitHMC(bounded, **STILL)

    def run(top):
        MCMC(kernel, 2, 2, num_chains=2, mp_context=context, disable_progbar=True).run(torch.linspace(0.1, top, 8))

    run(1.0)
    run(1.0)
    with pytest.raises(ValueError, match="make a new kernel"):
        run(10.0)
