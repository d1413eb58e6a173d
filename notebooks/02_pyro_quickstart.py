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
# # Split HMC with Pyro
#
# A model of your own, with its likelihood in a data plate, goes through the whole workflow: **split** into subsets
# of rows, **sampled** with the stock `MCMC` class, **read** with ArviZ, **predicted** with. The model is not
# changed at any point, and the posterior is the exact one: dividing the rows changes the memory and the acceptance
# rate, never the target.
#
# `01_numpyro_quickstart` is the same notebook for NumPyro.

# %%
import logging
import os
import time

import arviz as az
import matplotlib.pyplot as plt
import numpy as np

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS, Predictive

from pyro_split import ModelNotSplittableError, SymmetricSplitHMC, split_model, to_inference_data

torch.set_num_threads(1)  # the tensors here are small: threads would cost more than they give

QUICK = os.environ.get("SPLIT_MCMC_QUICK") == "1"  # few draws by short trajectories: does it run?
NUM_WARMUP, NUM_SAMPLES = (40, 40) if QUICK else (500, 1000)
TRAJECTORY = {"num_steps": 3} if QUICK else {}  # the default is a length
TREE = {"max_tree_depth": 3} if QUICK else {}
NUM_CHAINS = 2
NUM_SUBSETS = 4

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8c8c8c"
plt.rcParams.update({"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False})

# %% [markdown]
# ## Data
#
# Readings of an air pollutant (logarithm of its concentration) at eight stations. They are simulated, so the truth
# is known: each station has a level of its own, there is a daily curve, and pollution falls off with wind as
# `swing * exp(-wind / reach)`, which is not linear in the parameters. The noise has heavy tails, as sensors do. The
# stations differ widely in how many readings they have.

# %%
NUM_ROWS, NUM_STATIONS, NUM_WAVES = 2100, 8, 2
TRUTH = {"level": 3.0, "spread": 0.4, "swing": 0.9, "reach": 3.0, "scale": 0.4, "df": 4.0}


def daily_waves(hour):
    """Sines and cosines with periods of 24 and 12 hours, shape (n, 4)."""
    angle = 2 * np.pi * np.asarray(hour)[:, None] / 24 * np.arange(1, NUM_WAVES + 1)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


rng = np.random.default_rng(7)
station_level = rng.normal(TRUTH["level"], TRUTH["spread"], NUM_STATIONS)
daily_truth = np.array([-0.3, -0.25, -0.2, 0.1])
share = np.geomspace(1, 0.03, NUM_STATIONS)
station = rng.choice(NUM_STATIONS, NUM_ROWS, p=share / share.sum())
hour = rng.uniform(0, 24, NUM_ROWS)
wind = rng.gamma(2.0, 2.0, NUM_ROWS)
waves = daily_waves(hour)
truth = station_level[station] + waves @ daily_truth + TRUTH["swing"] * np.exp(-wind / TRUTH["reach"])
y = truth + TRUTH["scale"] * rng.standard_t(TRUTH["df"], NUM_ROWS)

waves_, wind_, y_ = (torch.tensor(x, dtype=torch.float32) for x in (waves, wind, y))
station_ = torch.tensor(station)
data = (waves_, wind_, station_, y_)
print("readings per station:", np.bincount(station, minlength=NUM_STATIONS))

# %% [markdown]
# ## Model
#
# An ordinary Pyro model. The one thing that splitting asks of it is that the likelihood sits in a `pyro.plate` over
# the rows. The plate over stations holds parameters and no observations, so there is no doubt which plate is meant.
# A plate with `subsample_size`, as written for SVI, is accepted too; the kernel then runs it on the rows it needs.

# %%
def model(waves, wind, station, y=None):
    level = pyro.sample("level", dist.Normal(3.0, 1.0))
    spread = pyro.sample("spread", dist.HalfNormal(0.5))
    with pyro.plate("stations", NUM_STATIONS):
        base = pyro.sample("base", dist.Normal(level, spread))
    daily = pyro.sample("daily", dist.Normal(torch.zeros(2 * NUM_WAVES), 0.5).to_event(1))
    swing = pyro.sample("swing", dist.HalfNormal(1.0))
    reach = pyro.sample("reach", dist.LogNormal(1.0, 0.5))
    scale = pyro.sample("scale", dist.HalfNormal(0.5))
    df = pyro.sample("df", dist.Gamma(2.0, 0.1))
    with pyro.plate("data", waves.shape[0]):
        mean = base[station] + waves @ daily + swing * torch.exp(-wind / reach)
        pyro.sample("y", dist.StudentT(df, mean, scale), obs=y)


# %% [markdown]
# ## Split
#
# The kernel splits the model by itself. `split_model` does the same where you can look at the result: 2100 rows in
# 4 subsets, so the memory of a gradient is that of 525 rows. Every subset carries 1/4 of the prior, and the sum over
# subsets is the model's own potential.
#
# Before anything is sampled the package checks that sum, and its gradient, against the untouched model. It logs what
# it did through the standard `logging` module, shown here. Above 2048 rows it compares on a random sample of rows,
# so that the check does not need the memory that splitting saves.

# %%
logger = logging.getLogger("pyro_split")
logger.setLevel(logging.INFO)
logger.addHandler(logging.StreamHandler())

potential = split_model(model, data, num_subsets=NUM_SUBSETS)
print(f"plate {potential.plate!r}, {potential.plate_size} rows, subsets of {potential.subset_sizes}")
logger.setLevel(logging.WARNING)  # the same line would come with every run below

# %% [markdown]
# ## Sample
#
# `SymmetricSplitHMC(model, num_subsets=M)` is all that is needed: step size and mass matrix are adapted in warm-up,
# which moves by trees that double until they turn back, as NUTS does, and learns from them how long trajectories are
# to be; the length of each draw's trajectory is uniform between 0 and that. Before the metric is known, trees can be
# long, so the first iterations are the slow ones. One option is used here: `full_mass=True`
# adapts a dense mass matrix, which pays where parameters are correlated, as the stations' levels are with the effect
# of wind.
#
# First one short chain, to see what is printed. The progress bar ends with
#
# * `step size=5.62e-01, steps=3`: size and number of the steps of the last trajectory;
# * `acc. prob=0.950`: the mean acceptance probability so far, in warm-up or since. The step size is adapted to a
#   target of 0.8 unless `target_accept_prob` says otherwise; a little more than the target is normal.
#
# The model is replayed through Pyro's handlers once, and its tensor operations are kept (`jit_compile=True`, the
# default here though not in Pyro). A model that cannot be traced is replayed at every gradient, with a warning.

# %%
pyro.set_rng_seed(0)
kernel = SymmetricSplitHMC(model, num_subsets=NUM_SUBSETS, full_mass=True, **TRAJECTORY)
short = MCMC(kernel, warmup_steps=40 if QUICK else 150, num_samples=50)
short.run(*data)

# %% [markdown]
# Now the run to keep. Every statistic of the sampler is collected by default. `summary` ends with the number of
# divergences, trajectories whose energy error was above 1000 or undefined. It should be 0; a few in a long run ask for
# a closer look, many mean that the posterior has a region the sampler cannot enter.
#
# Pyro runs chains in worker processes where there are more processors than chains, and otherwise one after another,
# with a warning. Worker processes started by `spawn` (the default on macOS and Windows) need the model in a module
# that they can import, not in a notebook.

# %%
pyro.set_rng_seed(1)
mcmc = MCMC(
    SymmetricSplitHMC(model, num_subsets=NUM_SUBSETS, full_mass=True, **TRAJECTORY),
    warmup_steps=NUM_WARMUP,
    num_samples=NUM_SAMPLES,
    num_chains=NUM_CHAINS,
    disable_progbar=True,
)
start = time.perf_counter()
mcmc.run(*data)
seconds_split = time.perf_counter() - start
mcmc.summary()

# %% [markdown]
# ## Read with ArviZ
#
# `az.from_pyro` knows of no sampler statistic but `diverging`, and ArviZ 1.x has no `from_pyro` at all.
# `to_inference_data(mcmc)` gives the posterior and every statistic, under the names that `az.from_numpyro` uses.

# %%
idata = to_inference_data(mcmc, dims={"base": ["station"], "daily": ["wave"]})
print("statistics:", sorted(idata.sample_stats.data_vars))
summary = az.summary(idata)
summary

# %% [markdown]
# `r_hat` close to 1 and an effective sample size (`ess_bulk`, `ess_tail`) of some hundreds are what the numbers
# above should show. The trace plot marks divergent draws as ticks along the bottom; the truth is drawn as a line.

# %%
SCALARS = ["level", "spread", "swing", "reach", "scale", "df"]
axes = az.plot_trace(
    idata,
    var_names=SCALARS,
    compact=False,
    lines=[(name, {}, value) for name, value in TRUTH.items()],
    figsize=(10, 11),
    trace_kwargs={"alpha": 0.7},
)
axes[0, 0].figure.suptitle(f"{int(idata.sample_stats.diverging.sum())} divergences", y=1.005)
axes[0, 0].figure.tight_layout()

# %% [markdown]
# The energy plot compares the spread of the energy with that of its changes between draws. Where the second is much
# narrower, momenta are redrawn too weakly for the sampler to reach the tails. The number for it is the Bayesian
# fraction of missing information (BFMI), one per chain; below 0.3 is a warning.

# %%
bfmi = az.bfmi(idata)
ax = az.plot_energy(idata, figsize=(7, 3.5), fill_color=(BLUE, ORANGE), fill_alpha=(0.7, 0.5), legend=True, bfmi=False)
ax.set_title("BFMI by chain: " + ", ".join(f"{value:.2f}" for value in np.atleast_1d(bfmi)))
ax.set_xlabel("energy, less its mean");

# %% [markdown]
# ### Cost
#
# `num_grads` counts subset gradients. A trajectory of L steps takes L(2M − 2) of them, because kicks of one subset
# that meet at one position are one evaluation. Divided by M that is the number of passes over the data.

# %%
stats = idata.sample_stats
steps, grads = stats.n_steps.values, stats.num_grads.values
assert np.array_equal(grads, steps * (2 * NUM_SUBSETS - 2))
print(f"steps per trajectory      {steps.mean():.1f}")
print(f"data passes per iteration {grads.mean() / NUM_SUBSETS:.1f}")
print(f"acceptance                {stats.acceptance_rate.values.mean():.2f}")

# %% [markdown]
# ## Compare with NUTS
#
# The target is the same as that of Pyro's own sampler on the whole data, so the posteriors must agree within Monte
# Carlo error. The last line gives the largest difference of posterior means in units of its standard error; with 18
# parameters a value up to about 3.5 is what chance produces.

# %%
pyro.set_rng_seed(2)
nuts = MCMC(
    NUTS(model, jit_compile=True, ignore_jit_warnings=True, **TREE),
    warmup_steps=NUM_WARMUP,
    num_samples=NUM_SAMPLES,
    num_chains=NUM_CHAINS,
    disable_progbar=True,
)
start = time.perf_counter()
nuts.run(*data)
seconds_nuts = time.perf_counter() - start
idata_nuts = az.from_pyro(nuts, log_likelihood=False, dims={"base": ["station"], "daily": ["wave"]})

summary_nuts = az.summary(idata_nuts, round_to="none")
ours = az.summary(idata, round_to="none")
z_scores = (ours["mean"] - summary_nuts["mean"]) / np.hypot(ours["mcse_mean"], summary_nuts["mcse_mean"])
print(f"split HMC {seconds_split:.0f} s, NUTS {seconds_nuts:.0f} s, tracing included")
print(f"largest |z| of {len(z_scores)} posterior means: {z_scores.abs().max():.2f} ({z_scores.abs().idxmax()})")

# %%
fig, ax = plt.subplots(figsize=(7, 4.5))
order = np.argsort(station_level)
counts = np.bincount(station, minlength=NUM_STATIONS)
for shift, run, colour, label in ((-0.13, idata, BLUE, "split HMC"), (0.13, idata_nuts, ORANGE, "NUTS")):
    draws = run.posterior["base"].values.reshape(-1, NUM_STATIONS)[:, order]
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    position = np.arange(NUM_STATIONS) + shift
    ax.hlines(position, low, high, colour, lw=2)
    ax.plot(middle, position, "o", color=colour, ms=4, label=label)
ax.plot(station_level[order], np.arange(NUM_STATIONS), "k|", ms=12, label="truth")
ax.set_yticks(np.arange(NUM_STATIONS), [f"station {s} ({counts[s]} rows)" for s in order])
ax.set(xlabel="level of the station, median and 90% interval", title="The same posterior from both samplers")
ax.legend(frameon=False)
fig.tight_layout()

# %% [markdown]
# On data of this size, NUTS on all rows is the simpler choice. Splitting is for the case where one gradient over all
# rows does not fit; this comparison shows that it costs nothing in correctness.

# %% [markdown]
# ## Predict
#
# `Predictive` takes the draws as it does those of any kernel: at new inputs and without `y`. Three stations, from the
# one with most readings to the one with fewest, at a wind of 3.

# %%
hours = np.linspace(0, 24, 97)
draws = {name: value[:: max(1, len(value) // 400)] for name, value in mcmc.get_samples().items()}
shown = np.argsort(-counts)[[0, 4, 7]]

fig, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True)
for ax, s in zip(axes, shown, strict=True):
    inputs = (torch.tensor(daily_waves(hours), dtype=torch.float32), torch.full((97,), 3.0), torch.full((97,), int(s)))
    predictive = Predictive(model, draws)(*inputs)["y"].numpy()
    low, high = np.quantile(predictive, [0.05, 0.95], axis=0)
    curve = (
        draws["base"][:, int(s), None]
        + draws["daily"] @ inputs[0].T
        + (draws["swing"] * torch.exp(-3.0 / draws["reach"]))[:, None]
    ).numpy()
    low_mean, high_mean = np.quantile(curve, [0.05, 0.95], axis=0)
    near = (station == s) & (np.abs(wind - 3.0) < 1.0)
    ax.fill_between(hours, low, high, color=BLUE, alpha=0.2, lw=0, label="new reading, 90%")
    ax.fill_between(hours, low_mean, high_mean, color=BLUE, alpha=0.7, lw=0, label="curve, 90%")
    true_curve = station_level[s] + daily_waves(hours) @ daily_truth + TRUTH["swing"] * np.exp(-3.0 / TRUTH["reach"])
    ax.plot(hours, true_curve, color=ORANGE, lw=1.5, label="truth")
    ax.plot(hour[near], y[near], ".", color=GREY, ms=4, label="readings with wind from 2 to 4")
    ax.set(xlabel="hour", xticks=range(0, 25, 6), title=f"station {s}: {counts[s]} readings")
axes[0].set_ylabel("log concentration")
axes[2].legend(frameon=False, fontsize=9, loc="lower left")
fig.tight_layout()

# %% [markdown]
# The nonlinear part on its own: the effect of wind, with the truth.

# %%
winds = np.linspace(0, 15, 100)
effect = draws["swing"].numpy()[:, None] * np.exp(-winds / draws["reach"].numpy()[:, None])
low, high = np.quantile(effect, [0.05, 0.95], axis=0)
fig, ax = plt.subplots(figsize=(6, 3.2))
ax.fill_between(winds, low, high, color=GREEN, alpha=0.5, lw=0, label="posterior, 90%")
ax.plot(winds, TRUTH["swing"] * np.exp(-winds / TRUTH["reach"]), color=ORANGE, label="truth")
ax.plot(wind[wind < 15], np.full((wind < 15).sum(), -0.03), "|", color=GREY, alpha=0.2, ms=6)
ax.set(xlabel="wind (ticks: readings)", ylabel="effect on log concentration")
ax.legend(frameon=False)
fig.tight_layout()

# %% [markdown]
# ## What goes wrong, and what the error says
#
# **A statistic of all rows inside the model.** Run on the rows of one subset, `wind.mean()` is another number, so
# the subsets do not add up. The check finds that before anything is sampled.

# %%
def centred_inside(waves, wind, station, y=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("data", waves.shape[0]):
        pyro.sample("y", dist.Normal(3.0 + slope * (wind - wind.mean(0)), 1.0), obs=y)


def show_error(*args, model=model, **options):
    try:
        MCMC(SymmetricSplitHMC(model, **options), warmup_steps=5, num_samples=5, disable_progbar=True).run(*args)
    except ValueError as error:  # ModelNotSplittableError is one
        print(f"{type(error).__name__}: {error}\n")


assert issubclass(ModelNotSplittableError, ValueError)
show_error(*data, model=centred_inside, num_subsets=NUM_SUBSETS)

# %% [markdown]
# The remedy is to compute the statistic once, outside the model, and to pass the result: centre `wind` before it goes
# in.
#
# **No data plate, a NaN in the data, more subsets than rows, columns of unequal length.** Each error names the
# argument, the rule and the value.

# %%
def without_plate(waves, wind, station, y=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    pyro.sample("y", dist.Normal(slope * wind, 1.0).to_event(1), obs=y)


y_nan = y_.clone()
y_nan[17] = torch.nan
show_error(*data, model=without_plate, num_subsets=NUM_SUBSETS)
show_error(waves_, wind_, station_, y_nan, num_subsets=NUM_SUBSETS)
show_error(*data, num_subsets=3000)
show_error(waves_, wind_, station_, y_[:-1], num_subsets=NUM_SUBSETS)

# %% [markdown]
# **A step size that is too large.** That is no error of the program: trajectories are rejected, and the statistics
# say so. With adaptation on, as by default, this does not happen; here it is switched off.

# %%
kernel = SymmetricSplitHMC(
    model, num_subsets=NUM_SUBSETS, num_steps=5, step_size=1.0, adapt_step_size=False, adapt_mass_matrix=False
)
too_large = MCMC(kernel, warmup_steps=10, num_samples=50, disable_progbar=True)
too_large.run(*data)
stats = to_inference_data(too_large).sample_stats
print(f"divergences {int(stats.diverging.sum())} of 50, acceptance {float(stats.acceptance_rate.mean()):.2f}")

# %% [markdown]
# ## Where to go next
#
# * `docs/symmetric_split_hmc.md`, `docs/naive_split_hmc.md`, `docs/randomised_split_hmc.md`: what each kernel computes
#   and costs, and how it fails.
# * `docs/splitting.md`: which models divide, and how.
# * `docs/scale.md`: memory, data passes, precision.
