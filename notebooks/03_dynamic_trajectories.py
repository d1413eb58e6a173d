# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How long should a trajectory be?
#
# Hamiltonian Monte Carlo (HMC) moves along a trajectory, and somebody has to say where it ends. Three kernels with
# three answers sample the weights of a small neural network here:
#
# * `SplitNUTS`: when the trajectory turns back (the No-U-Turn sampler);
# * `XHMC`: when it has been all over its energy level, as far as one average can tell (exhaustive HMC);
# * `WindowedHMC`: after a fixed number of steps, but a group of states at its end is accepted, not the last one alone.
#
# All three are exact, whole or over subsets of the data. What differs is how much each draw costs and how much it
# tells. The notebook is in NumPyro; `pyro_split` has the same kernels.

# %%
import os
import time

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.optimize import minimize

import numpyro

numpyro.set_host_device_count(2)  # one device per chain for chain_method="parallel"; before anything touches JAX

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import random
from jax.flatten_util import ravel_pytree
from numpyro.infer import MCMC, init_to_value
from numpyro.infer.util import log_density

from numpyro_split import XHMC, SplitNUTS, WindowedHMC, to_inference_data
from split_common.datasets import load_digits_split
from split_common.metrics import predictive_entropy, predictive_probabilities
from split_common.plots import plot_entropy

QUICK = os.environ.get("SPLIT_MCMC_QUICK") == "1"  # few draws by short trajectories: does it run?
NUM_WARMUP, NUM_SAMPLES = (20, 20) if QUICK else (300, 300)
DEPTH = 4 if QUICK else 7  # most doublings of a trajectory: up to 2**DEPTH - 1 steps
NUM_CHAINS = 2
NUM_SUBSETS = 5

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8c8c8c"
plt.rcParams.update({"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False})

# %% [markdown]
# ## Data
#
# Handwritten digits from scikit-learn, 8 × 8 pixels. To keep the network small each block of 2 × 2 pixels is averaged,
# and 40% of the images are for training. The inputs are centred and have unit variance on average.

# %%
images = load_digits_split(test_fraction=0.6)


def shrink(x):
    """Means of blocks of 2 × 2 pixels, shape (n, 16)."""
    return x.reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, 16)


small = shrink(images.x_train)
centre, scale = small.mean(axis=0), (small - small.mean(axis=0)).std()
x_train, x_test = jnp.asarray((small - centre) / scale), jnp.asarray((shrink(images.x_test) - centre) / scale)
y_train, y_test = jnp.asarray(images.y_train), images.y_test
print(f"{len(x_train)} images for training, {len(x_test)} for testing")

fig, axes = plt.subplots(2, 10, figsize=(10, 2.3))
for digit in range(10):
    i = np.flatnonzero(images.y_train == digit)[0]
    axes[0, digit].imshow(images.x_train[i].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
    axes[1, digit].imshow(small[i].reshape(4, 4), cmap="gray_r", vmin=0, vmax=1)
    axes[0, digit].set_title(digit, fontsize=10)
for ax in axes.flat:
    ax.set_axis_off()
fig.tight_layout()

# %% [markdown]
# ## Model
#
# One hidden layer of 6 units, standard normal priors on all 172 weights, and the likelihood in a plate over the rows.

# %%
NUM_HIDDEN = 6
SHAPES = {"w1": (16, NUM_HIDDEN), "b1": (NUM_HIDDEN,), "w2": (NUM_HIDDEN, 10), "b2": (10,)}


def logits(weights, x):
    return jnp.tanh(x @ weights["w1"] + weights["b1"]) @ weights["w2"] + weights["b2"]


def network(x, y=None):
    weights = {
        name: numpyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))
        for name, shape in SHAPES.items()
    }
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=logits(weights, x)), obs=y)


# %% [markdown]
# ## Where to start
#
# The posterior of a network has many modes. Some are copies, in which hidden units have changed signs or places; others
# predict differently. Short runs rarely cross between them, by any of these kernels. To compare the kernels on one
# thing, all chains start from one mode: the best of a few, found by a standard optimiser. What is sampled is then that
# mode with its surroundings, and R-hat tells whether chains agree there, not whether there is more elsewhere.

# %%
flat, unflatten = ravel_pytree({name: jnp.zeros(shape) for name, shape in SHAPES.items()})


@jax.jit
def potential_and_grad(flat_weights):
    return jax.value_and_grad(lambda w: -log_density(network, (x_train, y_train), {}, unflatten(w))[0])(flat_weights)


def find_mode(seed):
    """A mode of the posterior, from a random start: its potential energy and its weights."""
    start = 0.5 * np.random.default_rng(seed).normal(size=flat.size)

    def both(w):
        return [np.asarray(value, float) for value in potential_and_grad(w)]

    found = minimize(both, start, jac=True, method="L-BFGS-B")
    return float(found.fun), unflatten(jnp.asarray(found.x))


modes = sorted((find_mode(seed) for seed in range(2 if QUICK else 6)), key=lambda mode: mode[0])
for energy, weights in modes:
    accuracy = (logits(weights, x_test).argmax(-1) == y_test).mean()
    print(f"potential energy {energy:.1f}, test accuracy {accuracy:.1%}")

# %% [markdown]
# ## Sample
#
# Four runs on the whole data, `num_subsets=1`, where a step takes one gradient:
#
# * NUTS needs nothing but a limit on the doublings: a trajectory of depth d has up to 2^d − 1 steps.
# * XHMC stops when the mean of dG/dt = pᵀM⁻¹p − zᵀ∇U along the trajectory, with G = zᵀp and M the mass matrix, divided
#   by the number of states, falls below a threshold. Why that mean: along a trajectory that stays in a bounded region
#   G stays bounded, so the mean of its rate of change tends to zero as time goes on, and is far from zero while the
#   trajectory has only begun. The threshold is 0.1 here, a number that has no meaning of its own.
# * XHMC again, with `threshold="adapt"`: in warm-up the threshold moves until successive draws of the slowest
#   coordinate have a correlation of one half. Then it is fixed.
# * Windowed HMC makes 32 steps and weighs windows of 8 states at either end.
#
# Step size and mass matrix are adapted in warm-up, as for every kernel. The search for a first step size is switched
# off in favour of a guess, because it takes as long to compile as the sampling does.
#
# G depends on where the origin of the weights is. Here their posterior lies around zero, as the prior does; for a
# parameter far from zero, centre the data first (`docs/xhmc.md`).

# %%
runs, seconds = {}, {}
START = {"init_strategy": init_to_value(values=modes[0][1]), "step_size": 0.05, "find_heuristic_step_size": False}


def sample(name, kernel, seed):
    """Run one kernel and keep what it gives under a name."""
    mcmc = MCMC(
        kernel,
        num_warmup=NUM_WARMUP,
        num_samples=NUM_SAMPLES,
        num_chains=NUM_CHAINS,
        chain_method="parallel",
        progress_bar=False,
    )
    start = time.perf_counter()
    mcmc.run(random.key(seed), x_train, y_train)
    jax.block_until_ready(mcmc.get_samples())
    runs[name], seconds[name] = to_inference_data(mcmc), time.perf_counter() - start
    stats = runs[name].sample_stats
    print(
        f"{name:<15} {seconds[name]:4.0f} s, {stats.n_steps.values.mean():6.1f} steps, acceptance "
        f"{stats.acceptance_rate.values.mean():.2f}, divergences {int(stats.diverging.sum())}"
    )


sample("NUTS", SplitNUTS(network, max_tree_depth=DEPTH, **START), seed=1)
sample("XHMC, 0.1", XHMC(network, threshold=0.1, max_tree_depth=DEPTH, **START), seed=2)
sample("XHMC, adapted", XHMC(network, threshold="adapt", max_tree_depth=DEPTH, **START), seed=3)
num_steps, window_size = (6, 2) if QUICK else (32, 8)
sample("windowed HMC", WindowedHMC(network, num_steps=num_steps, window_size=window_size, **START), seed=4)

# %% [markdown]
# Seconds include compilation. `acceptance` of a tree is the mean over all its states, of windowed HMC that over the
# states of its windows; it is what the step size is adapted to.
#
# ### Over subsets
#
# The same NUTS with the rows in 5 subsets, so that a gradient takes the memory of a fifth of the rows. With
# `schedule="naive"` a step sums the gradients of all subsets, M = 5 of them, and they bring the energy by which each
# state of the tree is weighed. The symmetric schedule would take 2M − 2 = 8 and a forward pass over all rows besides.
# So for trees the naive schedule is the one to try first.

# %%
kernel = SplitNUTS(network, NUM_SUBSETS, schedule="naive", max_tree_depth=DEPTH, **START)
sample("NUTS, 5 subsets", kernel, seed=5)
stats = runs["NUTS, 5 subsets"].sample_stats
assert np.array_equal(stats.num_grads.values, NUM_SUBSETS * stats.n_steps.values)
print("statistics:", sorted(stats.data_vars))

# %% [markdown]
# ## Energy
#
# Above, the potential energy at every draw, by chain: the traces should look like noise around one level. A slow drift
# would say that warm-up was too short. Below, the spread of the energy (marginal) with that of its changes between
# draws (transition). A transition much narrower than the marginal would say that drawing new momenta does not carry
# the sampler into the tails; the number for it is the Bayesian fraction of missing information (BFMI), of which below
# 0.3 is a warning.

# %%
fig, axes = plt.subplots(2, len(runs), figsize=(14, 5.2), sharey="row", layout="constrained")
for (name, idata), (trace, spread) in zip(runs.items(), axes.T, strict=True):
    for chain, colour in zip(-idata.sample_stats.lp.values, (BLUE, ORANGE), strict=True):
        trace.plot(chain, color=colour, lw=0.6)
    trace.set(title=name, xlabel="draw")
    energy = idata.sample_stats.energy.values
    bins = np.linspace(-50, 50, 31)
    spread.hist((energy - energy.mean()).ravel(), bins, color=BLUE, alpha=0.7, density=True, label="marginal")
    spread.hist(np.diff(energy, axis=1).ravel(), bins, color=ORANGE, alpha=0.5, density=True, label="transition")
    bfmi = ", ".join(f"{value:.2f}" for value in az.bfmi(idata))
    spread.set(xlabel="energy, less its mean", title=f"BFMI {bfmi}", yticks=[])
axes[0, 0].set_ylabel("potential energy")
axes[1, 0].legend(frameon=False, fontsize=8, loc="upper left");

# %% [markdown]
# ## Depth
#
# How often each kernel doubled. The cost of a trajectory doubles with each bar to the right. `reached_max_treedepth`
# says that the limit ended a trajectory, not the rule.

# %%
trees = [name for name, idata in runs.items() if "reached_max_treedepth" in idata.sample_stats]
fig, axes = plt.subplots(1, len(trees), figsize=(12, 2.8), sharey=True, layout="constrained")
for name, ax in zip(trees, axes, strict=True):
    stats = runs[name].sample_stats
    depth, at_limit = stats.tree_depth.values.ravel(), stats.reached_max_treedepth.values
    ax.bar(*np.unique(depth, return_counts=True), color=BLUE, alpha=0.8)
    ax.set(title=f"{name}\nat the limit: {at_limit.mean():.0%}", xlabel="doublings", xticks=range(DEPTH + 1))
axes[0].set_ylabel("trajectories");

# %% [markdown]
# Compare the two runs of XHMC. Adaptation started from 0.1 and went to

# %%
for chain, threshold in enumerate(runs["XHMC, adapted"].sample_stats.threshold.values[:, -1]):
    print(f"chain {chain}: threshold {threshold:.2g}")

# %% [markdown]
# A network can be a hard case for the rule behind `"adapt"`, which asks of the slowest of all 172 weights that draws
# correlate by no more than a half. Where some weight hardly moves however long a trajectory is, because a hidden unit
# is about to change its sign or place, the threshold falls until the limit ends most trajectories, and a warning says
# so. Then the limit is the length, and the draws are exact all the same. On such a model set `max_tree_depth` to what
# you can pay for, or give a threshold.
#
# ### What XHMC looks at
#
# `virial_average` is the mean of dG/dt over the trajectory. Each point is a trajectory, at the number of states that it
# kept (a little to the side of it, so that points do not hide each other). It stopped in one of three ways: the rule
# held of the whole, which is then below the line; it held of a part of the last doubling, which was refused; or the
# limit ended it. What is refused has been paid for and adds no state to choose from.

# %%
THRESHOLD = 0.1
stats = runs["XHMC, 0.1"].sample_stats
depth, mean_rate = stats.tree_depth.values.ravel(), np.abs(stats.virial_average.values.ravel())
at_limit = stats.reached_max_treedepth.values.ravel()
is_whole = (stats.n_steps.values.ravel() == 2**depth - 1) & (mean_rate < THRESHOLD * 2**depth) & ~at_limit
kept = np.where(at_limit | is_whole, depth, depth - 1) + np.random.default_rng(0).uniform(-0.25, 0.25, depth.size)

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
kinds = {"rule held of the whole": is_whole, "of a part": ~is_whole & ~at_limit, "limit": at_limit}
for (label, chosen), colour in zip(kinds.items(), (BLUE, GREY, GREEN), strict=True):
    ax.plot(kept[chosen], mean_rate[chosen], ".", color=colour, alpha=0.6, ms=6, mew=0, label=label)
ends = np.array([-0.4, DEPTH + 0.4])
ax.plot(ends, THRESHOLD * 2.0**ends, color=ORANGE, label="threshold × states")
ax.set_xticks(range(DEPTH + 1), [2**d for d in range(DEPTH + 1)])
ax.set(xlabel="states kept", ylabel="|mean of dG/dt|", yscale="log", title="XHMC, threshold 0.1")
ax.yaxis.set_major_formatter("{x:g}")
ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1));

# %% [markdown]
# ## Predict
#
# Class probabilities of the test images, for every draw. Their mean over draws is the prediction.

# %%
def probabilities(idata):
    """Class probabilities of each draw, shape (chains, draws, images, classes)."""
    weights = {name: jnp.asarray(idata.posterior[name].values) for name in SHAPES}
    return np.asarray(jax.vmap(jax.vmap(lambda w: jax.nn.softmax(logits(w, x_test))))(weights))


by_draw = {name: probabilities(idata) for name, idata in runs.items()}
fig, axes = plt.subplots(1, len(runs), figsize=(14, 3), sharey=True, layout="constrained")
for ax, (name, p) in zip(axes, by_draw.items(), strict=True):
    p = p.reshape(-1, *p.shape[2:])
    is_right = predictive_probabilities(p).argmax(axis=-1) == y_test
    plot_entropy(predictive_entropy(p), is_right, ax=ax)
    ax.set(title=f"{name}\naccuracy {is_right.mean():.1%}", ylabel="")
    ax.legend(frameon=False, fontsize=8)
axes[0].set(ylabel="share of predictions", ylim=(0, 1.3 * axes[0].get_ylim()[1]));

# %% [markdown]
# The predictive entropy is the uncertainty of each prediction, from 0 to log 10 = 2.3. Wrong predictions lie to the
# right: the network is in doubt where it errs. All kernels have one target, so the panels should look alike, up to the
# error of a short run; where one differs by more, a chain has left for another mode.
#
# ## Cost
#
# What counts is effective draws for what was spent. Two kinds of quantity are followed: the log density (`lp`), and the
# probability given to the right class of each of the first 100 test images, of which the median image and the slowest
# one are shown. Single weights are left out, because hidden units may change places. A data pass is `num_grads` / M.

# %%
rows = {}
for name, idata in runs.items():
    stats, p = idata.sample_stats, by_draw[name]
    num_subsets = NUM_SUBSETS if "subsets" in name else 1
    passes = stats.num_grads.values.sum() / num_subsets
    right = np.stack([p[:, :, i, y_test[i]] for i in range(100)])
    ess = np.array([az.ess(values) for values in right])
    rows[name] = {
        "data passes per draw": passes / stats.n_steps.size,
        "draws of lp": 1000 * az.ess(stats.lp.values) / passes,
        "median image": 1000 * np.median(ess) / passes,
        "slowest image": 1000 * ess.min() / passes,
        "R-hat of lp": az.rhat(stats.lp.values),
        "test log loss": -np.log(p.mean((0, 1))[np.arange(len(y_test)), y_test]).mean(),
    }
print("effective draws per thousand data passes")
pd.DataFrame(rows).T.round(2)

# %% [markdown]
# One short run of one model, on two chains: effective draws of so few iterations are uncertain themselves, so do not
# read a ranking from it. What does hold in general:
#
# * Longer trajectories cost in proportion and stop paying once successive draws are nearly independent. Below that, a
#   trajectory twice as long can be worth more than twice.
# * NUTS has no number to set. XHMC has a threshold, whose best value depends on the model and its dimension. Windowed
#   HMC has two numbers, and the product of steps and step size must suit the whole posterior.
# * The split run has the same target and the same data passes per step; what changes is the memory of a gradient.
#
# ## Where to go next
#
# * `docs/split_nuts.md`, `docs/xhmc.md`, `docs/windowed_hmc.md`: what each kernel computes and costs, and how it fails.
# * `benchmarks/README.md`: measurements.
# * `01_numpyro_quickstart`: the workflow from the start, with everything that goes wrong.
