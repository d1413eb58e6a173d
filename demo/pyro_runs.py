"""The Pyro half: models, samplers, runs."""

import time
import warnings
from functools import partial

import arviz as az
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import HMC, MCMC

from demo.outcomes import Run
from demo.progress import Reporter
from demo.settings import (
    NUM_CHAINS,
    NUM_CLASSES,
    NUM_HIDDEN,
    NUM_STEPS,
    NUM_SUBSETS,
    PYRO_HMC_LENGTH,
    SEED,
    Iterations,
)
from pyro_split import RandomisedSplitHMC, SymmetricSplitHMC, to_inference_data
from split_common.datasets import ImageData


def standard_normal(name, *shape):
    return pyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))


def softmax(x, y=None):
    """Bayesian softmax regression."""
    logits = x @ standard_normal("weights", x.shape[1], NUM_CLASSES) + standard_normal("biases", NUM_CLASSES)
    with pyro.plate("data", x.shape[0]):
        pyro.sample("y", dist.Categorical(logits=logits), obs=y)


def network(x, y=None):
    """Bayesian neural network with one hidden layer."""
    hidden_weights = standard_normal("hidden_weights", x.shape[1], NUM_HIDDEN)
    hidden = torch.tanh(x @ hidden_weights + standard_normal("hidden_biases", NUM_HIDDEN))
    logits = hidden @ standard_normal("weights", NUM_HIDDEN, NUM_CLASSES) + standard_normal("biases", NUM_CLASSES)
    with pyro.plate("data", x.shape[0]):
        pyro.sample("y", dist.Categorical(logits=logits), obs=y)


def make_kernel(model_name, sampler):
    num_steps = NUM_STEPS[model_name]
    plain = partial(HMC, trajectory_length=PYRO_HMC_LENGTH[model_name], jit_compile=True, ignore_jit_warnings=True)
    return {
        "plain HMC": plain,
        "symmetric": partial(SymmetricSplitHMC, num_subsets=NUM_SUBSETS, num_steps=num_steps),
        "randomised": partial(RandomisedSplitHMC, num_subsets=NUM_SUBSETS, num_steps=num_steps),
    }[sampler]({"softmax": softmax, "network": network}[model_name])


class Watch:
    """Follows a run through MCMC's hook: progress, the time of sampling alone, the steps of the host's HMC."""

    def __init__(self, reporter: Reporter):
        self._reporter = reporter
        self._last = 0.0
        self.seconds = 0.0
        self.num_steps: list[int] = []

    def __call__(self, kernel, params, stage, i):
        now = time.perf_counter()
        sampling = stage.startswith("Sample")
        if sampling:
            self.seconds += now - self._last
            self.num_steps.append(getattr(kernel, "num_steps", 0))
        self._last = now
        self._reporter.phase = "sampling" if sampling else "warm-up"
        self._reporter.advance(", ".join(f"{name} {value}" for name, value in kernel.logging().items()))


def run(model_name, sampler, digits: ImageData, iterations: Iterations, reporter: Reporter) -> Run:
    """Warm up, then sample and time the sampling alone."""
    torch.set_num_threads(1)  # the gradients are too small to share
    # one after the other is how the chains are meant to run here
    warnings.filterwarnings("ignore", message="num_chains=.* is more than available_cpu")
    # torch.jit, which Pyro's HMC uses, announces its own deprecation
    warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
    pyro.set_rng_seed(SEED)
    watch = Watch(reporter)
    mcmc = MCMC(
        make_kernel(model_name, sampler),
        num_samples=iterations.draws,
        warmup_steps=iterations.warmup,
        num_chains=NUM_CHAINS,
        disable_progbar=True,
        hook_fn=watch,
    )
    reporter.start(model_name, sampler, NUM_CHAINS * (iterations.warmup + iterations.draws), "tracing the model")
    mcmc.run(torch.from_numpy(digits.x_train), torch.from_numpy(digits.y_train))
    return to_run(mcmc, model_name, sampler, watch)


def to_run(mcmc, model_name, sampler, watch: Watch) -> Run:
    """The run as arrays; of its own HMC Pyro keeps divergences and acceptance only."""
    if sampler == "plain HMC":
        inference_data = az.from_pyro(mcmc, log_likelihood=False)
    else:
        inference_data = to_inference_data(mcmc)
    statistics = {name: values.values for name, values in inference_data.sample_stats.items()}
    statistics.setdefault("n_steps", np.reshape(watch.num_steps, (NUM_CHAINS, -1)))
    draws = {name: values.values for name, values in inference_data.posterior.items()}
    acceptance = float(np.mean(list(mcmc.diagnostics()["acceptance rate"].values())))
    return Run("Pyro", model_name, sampler, draws, statistics, acceptance, watch.seconds)
