"""The NumPyro half: models, samplers, runs."""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC, MCMC

from demo.outcomes import Run
from demo.progress import Reporter
from demo.settings import NUM_CHAINS, NUM_CLASSES, NUM_HIDDEN, NUM_STEPS, NUM_SUBSETS, SEED, Iterations
from numpyro_split import RandomisedSplitHMC, SymmetricSplitHMC, to_inference_data
from split_common.datasets import ImageData

STATISTICS = ("energy", "accept_prob", "num_steps")  # what the split kernels collect by default


def standard_normal(name, *shape):
    return numpyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))


def softmax(x, y=None):
    """Bayesian softmax regression."""
    logits = x @ standard_normal("weights", x.shape[1], NUM_CLASSES) + standard_normal("biases", NUM_CLASSES)
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


def network(x, y=None):
    """Bayesian neural network with one hidden layer."""
    hidden_weights = standard_normal("hidden_weights", x.shape[1], NUM_HIDDEN)
    hidden = jnp.tanh(x @ hidden_weights + standard_normal("hidden_biases", NUM_HIDDEN))
    logits = hidden @ standard_normal("weights", NUM_HIDDEN, NUM_CLASSES) + standard_normal("biases", NUM_CLASSES)
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


def make_kernel(model_name, sampler):
    num_steps = NUM_STEPS[model_name]
    return {
        "plain HMC": partial(HMC, num_steps=num_steps, trajectory_length=None),
        "symmetric": partial(SymmetricSplitHMC, num_subsets=NUM_SUBSETS, num_steps=num_steps),
        "randomised": partial(RandomisedSplitHMC, num_subsets=NUM_SUBSETS, num_steps=num_steps),
    }[sampler]({"softmax": softmax, "network": network}[model_name])


def run(model_name, sampler, digits: ImageData, iterations: Iterations, reporter: Reporter) -> Run:
    """Warm up, then sample and time the sampling alone."""
    kernel = make_kernel(model_name, sampler)
    mcmc = MCMC(
        kernel,
        num_warmup=iterations.warmup,
        num_samples=iterations.draws,
        num_chains=NUM_CHAINS,
        chain_method="sequential",
    )
    # with its progress bar on, MCMC asks for this text at every iteration (and would switch the bar off under CI)
    mcmc.progress_bar = True
    describe = kernel.get_diagnostics_str
    kernel.get_diagnostics_str = lambda state: reporter.advance(describe(state))
    data = jnp.asarray(digits.x_train), jnp.asarray(digits.y_train)
    key_warmup, key_sample = jax.random.split(jax.random.key(SEED))
    reporter.start(model_name, sampler, NUM_CHAINS * (iterations.warmup + iterations.draws), "compiling")
    reporter.phase = "warm-up"
    mcmc.warmup(key_warmup, *data, extra_fields=STATISTICS)  # the same as below, so that nothing compiles there
    reporter.phase = "sampling"
    started = time.perf_counter()
    mcmc.run(key_sample, *data, extra_fields=STATISTICS)
    jax.block_until_ready(mcmc.last_state)
    seconds = time.perf_counter() - started
    inference_data = to_inference_data(mcmc)
    statistics = {name: values.values for name, values in inference_data.sample_stats.items()}
    draws = {name: values.values for name, values in inference_data.posterior.items()}
    return Run("NumPyro", model_name, sampler, draws, statistics, float(statistics["acceptance_rate"].mean()), seconds)
