"""A short run with a store, in both packages under common names, and the ways in which one may die."""

from __future__ import annotations

import numpy as np

from split_common.runs.store import RunStore
from tests.kernels import small

WRITES = ("write", "put_state", "note")  # what a commit does, one after the other


class Killed(BaseException):
    """Stands for the death of the process: nothing catches it."""


class Death:
    """Lets the process die before one of its writes.

    Args:
        place: number of the write.
    """

    def __init__(self, place):
        self.place, self.count, self.happened = place, 0, False

    def __enter__(self):
        self.own = {name: getattr(RunStore, name) for name in WRITES}
        for name, function in self.own.items():
            setattr(RunStore, name, self._counted(function))
        return self

    def __exit__(self, *error):
        for name, function in self.own.items():
            setattr(RunStore, name, function)

    def _counted(self, function):
        def call(*args, **kwargs):
            self.count += 1
            if self.count >= self.place:
                self.happened = True
                raise Killed
            return function(*args, **kwargs)

        return call


class Run:
    """A run of one kernel.

    Args:
        lib: the package.
        entry: of the table of kernels.
        path: of the store.
        num_warmup: iterations of warm-up.
        num_samples: draws.
        problem: model and data.
        options: of the kernel.
        mcmc_options: of the host's ``MCMC``.
    """

    def __init__(self, lib, entry, path, num_warmup=30, num_samples=20, problem=None, options=None, **mcmc_options):
        self.lib, self.entry, self.path = lib, entry, path
        self.num_warmup, self.num_samples = num_warmup, num_samples
        self.problem = problem or small(lib)
        self.options, self.mcmc_options = options or {}, mcmc_options
        self.mcmc = None

    @property
    def kernel(self):
        return getattr(self.mcmc, "sampler", None) if self.lib.name == "numpyro" else self.mcmc.kernel

    def make(self, num_samples=None):
        kernel = self.entry.make(self.lib, self.problem.model, **self.options)
        num_samples = num_samples or self.num_samples
        return self.lib.mcmc(kernel, self.num_warmup, num_samples, **self.mcmc_options)

    def sample(self, num_samples=None, seed=0, args=None, **options):
        """As a new process would."""
        self.mcmc = self.make(num_samples)
        args = self.problem.args if args is None else args
        return self.lib.sample(self.mcmc, *args, seed=seed, store=self.path, **options)

    def try_to_sample(self, **options):
        try:
            self.sample(**options)
        except Killed:
            pass

    def host_draws(self):
        """Draws of the host's own ``run``."""
        return self.lib.host_draws(self.make(), *self.problem.args, seed=0)

    def loaded(self):
        """Draws that the run has loaded."""
        samples = self.mcmc.get_samples(group_by_chain=True)
        return {name: self.lib.to_numpy(x) for name, x in samples.items()}


def draws_in(opened, warmup=False):
    """Everything that was drawn, byte for byte."""
    groups = ["posterior", "sample_stats"] + (["warmup_posterior", "warmup_sample_stats"] if warmup else [])
    return {
        (group, name): np.asarray(opened[group][name]).tobytes() for group in groups for name in opened[group].data_vars
    }
