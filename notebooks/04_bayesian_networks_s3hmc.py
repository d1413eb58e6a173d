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
# # Networks whose precisions are learnt
#
# How large should the weights of a Bayesian network be? Fix their prior's scale, and you have decided how wiggly its
# functions are. Give the scale a prior of its own, and the data decide. The price is a posterior shaped like a funnel:
# where a precision is large its weights are confined to a narrow neck, where it is small they roam.
#
# `S3HMC` moves weights and precisions in one trajectory, with a mass that follows the precisions. This notebook fits a
# small network with it, looks at the draws, splits the uncertainty of its predictions in noise and ignorance, and
# compares five priors. It is in NumPyro; the last section has the same lines in Pyro.

# %%
import os
import time
from functools import partial

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import norm

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.infer import MCMC, Predictive

from numpyro_split import S3HMC, SplitNUTS, networks, priors, to_inference_data
from split_common.metrics import log_predictive_density, variance_decomposition
from split_common.plots import plot_bands, plot_precisions

QUICK = os.environ.get("SPLIT_MCMC_QUICK") == "1"  # few draws by short trajectories: does it run?
NUM_WARMUP, NUM_SAMPLES = (20, 20) if QUICK else (400, 400)
TRAJECTORY = {"num_steps": 4} if QUICK else {}  # the default is a length
DEPTH = 3 if QUICK else 8  # most doublings of a trajectory of NUTS
NUM_CHAINS = 4
if QUICK:
    jax.config.update("jax_disable_most_optimizations", True)  # compile sooner, run slower

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8c8c8c"
COLOURS = (BLUE, ORANGE, GREEN, GREY)  # of the chains
plt.rcParams.update({"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False})

# %% [markdown]
# ## Data
#
# Sixty points of y = sin x + noise of standard deviation 0.1, with a gap in the middle. Predictions will be judged on
# other points of the same curve: near the data, in the gap, and beyond the data on either side.

# %%
rng = np.random.default_rng(0)
NOISE = 0.1
x = np.sort(np.concatenate([rng.uniform(-4, -1.2, 30), rng.uniform(1.2, 4, 30)]))
y = np.sin(x) + NOISE * rng.normal(size=x.size)

x_test = np.linspace(-5, 5, 201)
y_test = np.sin(x_test) + NOISE * rng.normal(size=x_test.size)
region = np.where(np.abs(x_test) > 4, "beyond", np.where(np.abs(x_test) < 1.2, "gap", "near"))
grid = np.linspace(-6, 6, 121)

# %% [markdown]
# ## Model
#
# One hidden layer of 20 tanh units. `random_module` draws every parameter of the network from a prior and returns the
# network with the draws in place; the prior is called once for each parameter, so that with `normal_gamma` the weights
# and the biases of each layer have a precision of their own. The precision of the noise is learnt as well.

# %%
net = networks.mlp([1, 20, 1])


def regression(prior):
    """A model of y given x: the network under a prior, and noise of unknown precision."""

    def model(x, y=None):
        f = networks.random_module("net", net, prior)
        noise_precision = numpyro.sample("noise_precision", dist.Gamma(1.0, 0.05))
        with numpyro.plate("data", x.shape[0]):
            mean = f(x[:, None])[:, 0]
            if y is None:
                numpyro.deterministic("f", mean)  # for predictions
            numpyro.sample("y", dist.Normal(mean, noise_precision**-0.5), obs=y)

    return model


NORMAL_GAMMA = partial(priors.normal_gamma, concentration=4.0, rate=4.0)
model = regression(NORMAL_GAMMA)

# %% [markdown]
# ## Sample
#
# The kernel needs no list of what belongs to what: it reads the model's trace and finds which precision scales which
# weights. After `run` its `repr` shows the pairs.

# %%
runs, seconds = {}, {}


def sample(name, kernel, seed):
    """Run one kernel and keep what it gives under a name."""
    mcmc = MCMC(
        kernel,
        num_warmup=NUM_WARMUP,
        num_samples=NUM_SAMPLES,
        num_chains=NUM_CHAINS,
        chain_method="vectorized",  # all chains in one program: for a small network hardly dearer than one
        progress_bar=False,
    )
    start = time.perf_counter()
    mcmc.run(random.key(seed), jnp.asarray(x), jnp.asarray(y))
    jax.block_until_ready(mcmc.get_samples())
    runs[name], seconds[name] = to_inference_data(mcmc), time.perf_counter() - start
    stats = runs[name].sample_stats
    print(
        f"{name}: {seconds[name]:.0f} s, {stats.n_steps.values.mean():.0f} steps a draw, acceptance "
        f"{stats.acceptance_rate.values.mean():.2f}, divergences {int(stats.diverging.sum())}"
    )


START = {"step_size": 0.01, "find_heuristic_step_size": False, "target_accept_prob": 0.9}
kernel = S3HMC(model, **TRAJECTORY, **START)
sample("Normal-Gamma", kernel, seed=1)
print(kernel)

# %% [markdown]
# Read it as: this precision scales these weights, of which there are Q; its mass is Q/2 + α − 1, with α the shape of
# its Gamma prior. The mass is known, not adapted. `noise_precision` scales the 60 observations. With the first four
# precisions a step moves weights, then precisions, then weights again, and only the weights' part reads the data;
# with `noise_precision` among them the precisions' part does too (`output_precision=False` would leave it with the
# weights). The mass of a weight is its prior precision, plus what the data add, which warm-up finds.
#
# ## Energy, block by block
#
# The energy of each draw is the sum of two parts: `weight_energy` has the fit to the data and the kinetic energy of
# the weights, `precision_energy` the priors and the kinetic energy of the precisions. A trajectory conserves the sum
# up to its integration error. The parts are not conserved: what the one block gives, the other takes. On the right each
# point is a draw, its colour the chain; neither part should be stuck at one value while the other moves.

# %%
idata = runs["Normal-Gamma"]
stats = idata.sample_stats
np.testing.assert_allclose(stats.weight_energy + stats.precision_energy, stats.energy, rtol=1e-4, atol=1e-2)

parts = {"weights": stats.weight_energy, "precisions": stats.precision_energy, "sum": stats.energy}
fig, axes = plt.subplots(1, 2, figsize=(11, 3.4), layout="constrained", width_ratios=[2, 1])
for (name, part), colour in zip(parts.items(), (BLUE, ORANGE, GREY), strict=True):
    axes[0].plot(part.values[0], color=colour, lw=0.7, label=name)
axes[0].set(xlabel="draw", ylabel="energy", title="energy of each block, first chain")
axes[0].legend(frameon=False, fontsize=9, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.18))
for chain, colour in enumerate(COLOURS):
    axes[1].plot(parts["weights"][chain], parts["precisions"][chain], ".", color=colour, ms=4, alpha=0.6, mew=0)
axes[1].set(xlabel="energy of the weights' block", ylabel="of the precisions'", title="one against the other")
print("BFMI by chain:", az.bfmi(idata).round(2))

# %% [markdown]
# ## Have the chains mixed?
#
# Not by their weights: exchange two hidden units, or turn the sign of one with its outgoing weight, and the function
# is the same. The posterior has 20! · 2²⁰ copies of every mode, no chain visits them all, and R-hat of a single weight
# says nothing of use. What is identified is the function, so R-hat is asked of f(x). The precisions belong to whole
# layers, which no exchange changes; they are identified too, and often slower than f, because a hidden unit that does
# nothing moves them and not f.

# %%
def functions(name, model, points):
    """The network's function at some points for each draw, shape (chains, draws, points)."""
    posterior = {site: jnp.asarray(values.values) for site, values in runs[name].posterior.items()}
    predict = Predictive(model, posterior, return_sites=["f"], batch_ndims=2)
    return np.asarray(predict(random.key(0), jnp.asarray(points))["f"], float)


f_grid = functions("Normal-Gamma", model, grid)
looked_at = {f"f({point})": f_grid[:, :, np.abs(grid - point).argmin()] for point in (-6, -3, 0, 3, 6)}
looked_at |= {name: values.values for name, values in idata.posterior.items() if name.endswith("precision")}
looked_at |= {"net.0.weight[0], for comparison": idata.posterior["net.0.weight"].values[:, :, 0, 0]}
checks = {
    name: {"mean": draws.mean(), "sd": draws.std(), "R-hat": az.rhat(draws), "ESS": az.ess(draws)}
    for name, draws in looked_at.items()
}
pd.DataFrame(checks).T.round({"mean": 2, "sd": 2, "R-hat": 3, "ESS": 0})

# %%
shown = {"f(0), in the gap": "f(0)", "log τ of the weights out": "net.2.weight_precision", "one weight": None}
fig, axes = plt.subplots(1, 3, figsize=(13, 2.8), layout="constrained")
for (title, name), ax in zip(shown.items(), axes, strict=True):
    draws = looked_at[name or "net.0.weight[0], for comparison"]
    for chain, colour in zip(np.log(draws) if "τ" in title else draws, COLOURS, strict=True):
        ax.plot(chain, color=colour, lw=0.6)
    ax.set(title=title, xlabel="draw")

# %% [markdown]
# The four chains should lie over each other in the first panel and, with a slower beat, in the second. In the third
# they need not. A flat stretch is a chain that stands still: a run of proposals refused where τ is small, the weights
# are large and the likelihood is steep, or a divergence. A few of those are a reason to look again with a larger
# `target_accept_prob`. Some hundred draws a chain do for f; read a precision whose ESS is below 100 or whose R-hat is
# above 1.05 as "about there", and take more draws before a result rests on it.
#
# ## Noise and ignorance
#
# The variance of a prediction has two parts: the noise, which more data would not lessen (aleatoric), and the variance
# of f over draws (epistemic).

# %%
def decompose(name, f):
    """Mean, aleatoric and epistemic variance at the points of ``f``."""
    noise_precision = runs[name].posterior["noise_precision"].values
    return variance_decomposition(f.reshape(-1, f.shape[-1]), 1 / noise_precision.ravel())


fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
plot_bands(grid, *decompose("Normal-Gamma", f_grid), ax=ax, data=(x, y))
ax.plot(grid, np.sin(grid), color=ORANGE, lw=1, ls="--", label="sin x")
ax.plot(grid, f_grid[:, :: NUM_SAMPLES // 2].reshape(-1, grid.size).T, color=GREY, lw=0.5, zorder=1)
ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1));

# %% [markdown]
# Near the data the inner band vanishes in the outer one: what is left there is noise. In the gap the draws (grey) part,
# and the band, which covers the sine, is nearly all epistemic. Beyond the data the bands widen too, yet they follow the
# slope at the edge, and somewhere past |x| = 5 the sine turns back and leaves them. They are right about functions that
# this network under this prior finds likely, and a curve that goes on waving is not among those.
#
# ## Precisions
#
# Posterior and, dashed, prior. Where they look alike the data have taught nothing about that precision.

# %%
prior_draws = Predictive(model, num_samples=4000)(random.key(2), jnp.asarray(x))
by_site = {name: values.values.ravel() for name, values in idata.posterior.items() if name.endswith("precision")}
fig, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
plot_precisions(by_site, ax, prior={name: np.asarray(prior_draws[name]) for name in by_site});

# %% [markdown]
# Sixty rows fix the precision of the noise to within a fifth, around 1/0.1² = 100, in the tail of its prior. Little is
# learnt of the others: 20 weights, each known badly itself, tell about their scale only so much, and the output has a
# single bias. Here that is the honest answer; in a wide network, or a regression with many coefficients, the posteriors
# part from their priors.
#
# ## Priors compared
#
# The same network under five priors.
#
# * Two with fixed scales: N(0, 1), and N(0, 1/fan-in), which divides the variance of the 20 outgoing weights by 20.
# * Two that learn precisions: one for each parameter of the network, as above; and one for each unit (automatic
#   relevance determination, ARD), of the weight that enters a hidden unit and of the weight that leaves it.
# * The regularised horseshoe, which expects most weights near zero and a few large ones. It has a scale for each weight
#   and is sampled non-centred: a weight is a product, and what is sampled in its place has a standard normal prior.
#
# S3HMC is for the two that learn precisions: it needs centred weights with a precision to follow. The others are
# sampled by `SplitNUTS`, of whose trajectories the limit ends most, as it warns: the draws are exact, and more
# correlated. All kernels have the exact posterior as their target, so a difference between rows is the prior's, or that
# of a chain that has not mixed.

# %%
PER_UNIT = partial(NORMAL_GAMMA, per_unit=True)
ARD = {"0.weight": PER_UNIT, "2.weight": partial(PER_UNIT, unit_axis=1), "bias": NORMAL_GAMMA}
candidates = {
    "normal": priors.normal,
    "width-scaled normal": {"weight": priors.width_scaled_normal, "bias": priors.normal},
    "Normal-Gamma": NORMAL_GAMMA,
    "Normal-Gamma, ARD": ARD,
    "regularised horseshoe": {"weight": priors.regularised_horseshoe, "bias": priors.normal},
}
if QUICK:
    candidates = {name: candidates[name] for name in ("normal", "Normal-Gamma")}  # compiling takes the time
models = {name: regression(prior) for name, prior in candidates.items()}
for seed, (name, candidate) in enumerate(models.items(), start=10):
    if name in runs:
        continue
    if name == "Normal-Gamma, ARD":
        sample(name, S3HMC(candidate, **TRAJECTORY, **START), seed)
    else:
        sample(name, SplitNUTS(candidate, max_tree_depth=DEPTH, **START), seed)

# %%
rows = {}
for name, candidate in models.items():
    f, idata = functions(name, candidate, x_test), runs[name]
    noise_sd = idata.posterior["noise_precision"].values[:, :, None] ** -0.5
    log_likelihood = norm.logpdf(y_test, f, noise_sd).reshape(-1, x_test.size)
    log_density = log_predictive_density(log_likelihood)
    rows[name] = {place: log_density[region == place].mean() for place in ("near", "gap", "beyond")}
    rows[name] |= {
        "worst R-hat of f": max(az.rhat(f[:, :, i]) for i in range(0, x_test.size, 5)),
        "least ESS of f": min(az.ess(f[:, :, i]) for i in range(0, x_test.size, 5)),
        "divergences": int(idata.sample_stats.diverging.sum()),
        "seconds": seconds[name],
    }
print("mean log predictive density of test points, nats; larger is better")
table = pd.DataFrame(rows).T.round({"near": 2, "gap": 2, "beyond": 2, "worst R-hat of f": 3})
table.astype({"least ESS of f": int, "divergences": int, "seconds": int})

# %%
fig, axes = plt.subplots(2, 3, figsize=(13, 6.6), sharex=True, sharey=True, layout="constrained")
for ax, (name, candidate) in zip(axes.flat, models.items(), strict=False):
    plot_bands(grid, *decompose(name, functions(name, candidate, grid)), ax=ax, data=(x, y))
    ax.plot(grid, np.sin(grid), color=ORANGE, lw=1, ls="--", label="sin x")
    ax.get_legend().remove()
    ax.set(title=name, xlabel="", ylabel="")
axes[0, 0].set_ylim(-3, 3)
axes[0, -1].tick_params(labelbottom=True)
for ax in axes.flat[len(models) :]:
    ax.set_axis_off()
axes[-1, -1].legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, loc="center");

# %% [markdown]
# What to read from table and figure:
#
# * Near the data the priors hardly differ. The log density there is a little below that of the noise alone, which is
#   −log(0.1 √(2π)) − ½ = 0.88 on average.
# * In the gap they differ in how far they let f swing. A narrow band scores best here, because the sine goes through
#   the gap by the shortest way; with another curve it would cost dearly. One curve cannot tell which prior is better.
# * Beyond the data all follow the slope at the edge, with bands that widen faster the larger the weights may be.
# * A learnt precision does not free you of choices, it moves them: Gamma(4, 4) still says what scales to expect, only
#   with less force.
# * Compare rows only if R-hat of f is near 1 and the divergences are few. The horseshoe has many scales to every few
#   informative weights, and is the first to fail here: divergences mean parts of the posterior that the chain could not
#   enter, and a low ESS that its row is rough. A smaller step (`target_accept_prob=0.95` or more) and longer runs are
#   the remedies; a regularised slab helps with the largest weights and not with the smallest scales.
#
# ## In Pyro
#
# The same names, from `pyro_split`; `model` is the function above with `pyro.sample` and `pyro.plate`:
#
# ```python
# from pyro_split import S3HMC, networks, priors
#
# f = networks.random_module("net", networks.mlp([1, 20, 1]), priors.normal_gamma)  # inside the model
# mcmc = MCMC(S3HMC(model), num_samples=500, warmup_steps=500)  # outside
# ```
#
# ## Where to go next
#
# * `docs/s3hmc.md`: what the kernel computes, which models it recognises, and how it fails; `docs/block_gibbs.md`:
#   precisions drawn from their conjugate conditionals instead.
# * `docs/priors.md`, `docs/predictive.md`: the priors and networks, the metrics and figures.
# * With many rows pass `num_subsets`: the weights then move by gradients of subsets.
# * `03_dynamic_trajectories`: `SplitNUTS`, used here for the priors without a precision.
