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
# # A million rows, a few hundred at a time
#
# An exact sampler asks of each proposal how well it fits all the data. With a million rows that is slow, and the usual
# way out is to fit a part of the data, which gives a posterior that is too wide.
#
# `PenaltyMH` estimates the change of the fit from a few hundred rows, measures the variance χ² of that estimate, and
# accepts a little less often to make up for the noise. As long as the noise is normal and χ² is small, the draws come
# from the posterior of all rows. This notebook runs it on a million rows, audits it, breaks it on purpose, and uses its
# other target to calibrate an overconfident model. It is in NumPyro; the last section is in Pyro.

# %%
import os
import time
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import gaussian_kde
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.infer import MCMC, NUTS

from numpyro_split import PenaltyMH, audit, to_inference_data

QUICK = os.environ.get("SPLIT_MCMC_QUICK") == "1"  # few rows and draws: does it run?
NUM_ROWS, NUM_PARAMETERS, PARTS = (50_000 if QUICK else 1_000_000), 20, 50
NUM_WARMUP, NUM_SAMPLES = (50, 100) if QUICK else (200, 1000)
NUM_CHAINS = 4
AUDIT = {"num_pairs": 10, "num_repeats": 50} if QUICK else {}

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8c8c8c"
COLOURS = (BLUE, ORANGE, GREEN, GREY)  # of the chains
plt.rcParams.update({"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False})

# %% [markdown]
# ## Data and model
#
# Logistic regression with 20 weights, the first of them the intercept. The model is plain NumPyro: the observations sit
# in a plate, the weights outside it.

# %%
rng = np.random.default_rng(0)
x = rng.normal(size=(NUM_ROWS, NUM_PARAMETERS)).astype(np.float32)
x[:, 0] = 1.0
true_w = 0.5 * rng.normal(size=NUM_PARAMETERS)
true_w[0] = -1.0
y = (rng.random(NUM_ROWS) < 1 / (1 + np.exp(-x @ true_w))).astype(np.float32)


def model(x, y):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


# %% [markdown]
# ## All rows by PenaltyMH, a part of them by NUTS
#
# `batch_size=20, num_batches=20`: 400 rows an iteration. All rows are read only before sampling: in the search for the
# mode and to expand the log-likelihood there. NUTS gets a fiftieth of the rows. Times include compiling and warm-up.

# %%
runs, rows = {}, {}


def sample(name, kernel, x, y, **sizes):
    """Run a kernel, all chains in one program; keep the run and a row of the table under a name."""
    sizes = {"num_warmup": NUM_WARMUP, "num_samples": NUM_SAMPLES, "num_chains": NUM_CHAINS} | sizes
    mcmc = MCMC(kernel, chain_method="vectorized", progress_bar=False, **sizes)
    start = time.perf_counter()
    mcmc.run(random.key(0), jnp.asarray(x), jnp.asarray(y))
    jax.block_until_ready(mcmc.get_samples())
    seconds = time.perf_counter() - start
    runs[name], idata = mcmc, to_inference_data(mcmc)
    rows[name] = {
        "rows of data": len(x),
        "seconds": seconds,
        "least ESS": az.ess(idata)["w"].values.min(),
        "worst R-hat": az.rhat(idata)["w"].values.max(),
        "mean posterior sd": float(mcmc.get_samples()["w"].std(0).mean()),
    }
    return idata


part = slice(NUM_ROWS // PARTS)
idata = sample("PenaltyMH, all rows", PenaltyMH(model, batch_size=20, num_batches=20), x, y)
sample("NUTS, a part", NUTS(model), x[part], y[part], num_samples=NUM_SAMPLES // 2)
table = pd.DataFrame(rows).T.astype({"rows of data": int, "least ESS": int})
table.round({"seconds": 1, "worst R-hat": 3, "mean posterior sd": 5})

# %%
draws = {name: np.asarray(mcmc.get_samples()["w"]) for name, mcmc in runs.items()}
shown = (1, 2, 3)
fig, axes = plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
for ax, i in zip(axes, shown, strict=False):
    for (name, w), colour in zip(draws.items(), (BLUE, ORANGE), strict=True):
        points = np.linspace(w[:, i].min(), w[:, i].max(), 200)
        ax.fill_between(points, gaussian_kde(w[:, i])(points), color=colour, alpha=0.5, lw=0, label=name)
    ax.axvline(true_w[i], color="black", lw=1, ls="--", label="true weight")
    ax.set(title=f"w[{i}]", yticks=[], ylim=(0, None))
    ax.spines["left"].set_visible(False)
    ax.locator_params(axis="x", nbins=4)
fig.legend(*axes[0].get_legend_handles_labels(), frameon=False, ncols=3, loc="outside lower left")
ratio = draws["NUTS, a part"].std(0) / draws["PenaltyMH, all rows"].std(0)
axes[3].plot(ratio, ".", color=GREY)
axes[3].axhline(PARTS**0.5, color="black", lw=1, ls="--")
axes[3].set(title="sd by NUTS on a part / sd by PenaltyMH", xlabel="weight", ylim=(0, 10), xticks=[0, 5, 10, 15])
axes[3].title.set_fontsize(10)
axes[3].annotate("√50", (NUM_PARAMETERS - 1, PARTS**0.5), xytext=(0, 14), textcoords="offset points", ha="center");

# %% [markdown]
# With a fiftieth of the rows every standard deviation is about √50 times as large (dashed, right), and the densities
# look flat beside those of all rows. NUTS samples them correctly: it is the part of the data that says less. On all
# rows each of its steps would read 50 times as many.
#
# ## Did it work?
#
# The chains first, then the noise. χ² is the variance of the estimated change of energy, one number for each draw. The
# rule can be trusted for χ² below about K/4, here 5.

# %%
stats = idata.sample_stats
fig, axes = plt.subplots(1, 2, figsize=(13, 3), layout="constrained")
for chain, colour in enumerate(COLOURS):
    axes[0].plot(idata.posterior["w"].values[chain, :300, 1], color=colour, lw=0.6)
    axes[1].semilogy(stats["chi2"].values[chain], ".", color=colour, ms=2)
axes[0].set(title="w[1], a colour for each chain", xlabel="draw (the first 300)")
axes[1].axhline(5, color="black", ls="--", lw=1)
axes[1].annotate("K/4", (0, 5), xytext=(2, 4), textcoords="offset points")
axes[1].set(title="χ²", xlabel="draw", ylim=(None, 50))
for name in ("acceptance_rate", "chi2", "rows_touched", "step_size"):
    print(f"{name:16} {stats[name].values.mean():.3g} on average, {stats[name].values.max():.3g} at most")

# %% [markdown]
# χ² is tiny: the second-order expansion accounts for nearly all of the likelihood this close to the mode, and only the
# rest is estimated from rows. The audit checks the same from outside: at some draws it computes the exact change of
# energy from all rows, and compares it with many estimates.

# %%
start = time.perf_counter()
print(audit(runs["PenaltyMH, all rows"], **AUDIT))
print(f"{time.perf_counter() - start:.0f} s")

# %% [markdown]
# Read it from the last line upwards. The temperature is 1 where the draws are as wide as the posterior, and above 1
# where they are wider. The error of the log-density should be near 0, and the acceptance with noise near the exact one.
#
# ## When it goes wrong
#
# The first 20,000 rows, with everything against the kernel: no control variate, only four batches, and a fixed step,
# 0.02 in units of the posterior's standard deviations and still too large. It warns after the first draws.

# %%
wrong = PenaltyMH(model, 100, 4, control_variate=None, step_size=0.02, adapt_step_size=False)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    wrong_idata = sample("wrong", wrong, x[:20_000], y[:20_000], num_chains=2)
    jax.effects_barrier()  # warnings come from inside the compiled program
for warning in caught:
    if "PenaltyMH" in str(warning.message):
        print(f"{warning.category.__name__}: {warning.message}\n")
print(audit(runs["wrong"], **AUDIT))

# %%
fig, ax = plt.subplots(figsize=(8, 3), layout="constrained")
bins = np.logspace(-7, 2, 91)
for name, data, colour in (("all rows, taylor2, K = 20", idata, BLUE), ("wrong, K = 4", wrong_idata, ORANGE)):
    stats = data.sample_stats
    share = (stats["chi2"] / (stats["num_batches"] / 4)).values.ravel().clip(bins[0])
    ax.hist(share, bins, weights=np.full(share.size, 1 / share.size), color=colour, alpha=0.6, label=name)
ax.axvline(1, color="black", ls="--", lw=1, label="limit of trust")
ax.set(xscale="log", xlabel="χ² / (K/4)", ylabel="share of draws")
ax.legend(frameon=False, fontsize=9, loc="upper center");

# %% [markdown]
# Most of the wrong run's estimates have χ² above K/4. The audit sees what follows from it: the acceptance falls far
# below the exact one, and the temperature leaves 1. The remedies are in the warning; here a control variate alone is
# enough.
#
# ## Calibration by batch size
#
# `target="expected"` takes the mean log-likelihood of n rows instead of the sum over all N. Over a finite data set that
# is the posterior whose likelihood is tempered, raised to the power n/N. It is another target, not an approximation of
# the posterior, and n is a knob: the smaller, the less the predictions trust the data.
#
# That is of use where the model believes the data more than it should. Here 100 patients are measured 100 times each.
# The outcome is the patient's and never changes, yet the model takes the 10,000 rows for independent. The rows hold
# what 100 would, so n = 100 should be about right.
#
# With so little information the tempered posteriors are far from normal. The expansion is then a poor guide for
# proposals: its steps get short and the chains slow. `gradient="minibatch"` follows the rows themselves, here 2,000 of
# them drawn for each iteration, and is as exact.

# %%
PATIENTS, MEASUREMENTS = 100, 100
rng = np.random.default_rng(1)
patient_w = rng.normal(size=NUM_PARAMETERS)


def draw_patients(number):
    """Their inputs and outcomes."""
    inputs = rng.normal(size=(number, NUM_PARAMETERS)).astype(np.float32)
    return inputs, (rng.random(number) < 1 / (1 + np.exp(-inputs @ patient_w))).astype(np.float32)


x_patients, y_patients = draw_patients(PATIENTS)
x_test, y_test = draw_patients(20_000)
x_rows = np.repeat(x_patients, MEASUREMENTS, 0)
x_rows = x_rows + 0.1 * rng.normal(size=x_rows.shape).astype(np.float32)
y_rows = np.repeat(y_patients, MEASUREMENTS)

tempered = {"target": "expected", "gradient": "minibatch", "gradient_batch_size": 2000}
kernels = {
    "n = 10": PenaltyMH(model, 10, 20, **tempered),
    "n = 100": PenaltyMH(model, 100, 20, **tempered),
    "n = 1000": PenaltyMH(model, 1000, 4, **tempered),
    "posterior": PenaltyMH(model, 20, 20),
}
if QUICK:
    kernels = {name: kernels[name] for name in ("n = 100", "posterior")}  # compiling takes the time
predictions, scores = {}, {}
for name, kernel in kernels.items():
    stats = sample(name, kernel, x_rows, y_rows, num_samples=NUM_SAMPLES // 2, num_chains=2).sample_stats
    logits = jnp.asarray(x_test) @ runs[name].get_samples()["w"].T
    predictions[name] = np.asarray(jax.nn.sigmoid(logits)).mean(1)
    scores[name] = {
        "log loss": log_loss(y_test, predictions[name]),
        "share right": np.mean((predictions[name] > 0.5) == y_test),
        "posterior sd": rows[name]["mean posterior sd"],
        "χ²": stats["chi2"].values.mean(),
        "least ESS": rows[name]["least ESS"],
    }
pd.DataFrame(scores).T.round({"log loss": 3, "share right": 3, "posterior sd": 3, "χ²": 4, "least ESS": 0})

# %%
fig, axes = plt.subplots(1, len(kernels), figsize=(3.2 * len(kernels), 3.5), sharey=True, layout="constrained")
for ax, (name, p) in zip(axes, predictions.items(), strict=True):
    observed, predicted = calibration_curve(y_test, p, n_bins=10)
    ax.hist(p, 10, range=(0, 1), weights=np.full(p.size, 1 / p.size), color=GREY, alpha=0.4)
    ax.plot([0, 1], [0, 1], color="black", lw=1, ls="--")
    ax.plot(predicted, observed, ".-", color=BLUE)
    ax.set(title=name, xlabel="predicted probability", xlim=(0, 1), ylim=(0, 1))
axes[0].set_ylabel("observed share (line)\nshare of predictions (bars)");

# %% [markdown]
# The dashed line is perfect calibration. The full posterior predicts near 0 and 1 too often (bars), and is wrong there
# more often than it says: the line is flatter than the diagonal. At n = 100 the two agree best, and the log loss on
# new patients is least. At n = 10 predictions are too timid: the line is steeper. That chain has
# the fewest effective draws, so read its row as rough.
#
# Where the groups are known a model that has them (an effect for each patient, or one row for each) is the better
# remedy; where they are not, n can be chosen by the log loss on held-out data.
#
# ## In Pyro
#
# The same names, from `pyro_split`, on fewer rows.

# %%
import pyro  # noqa: E402
import pyro.distributions  # noqa: E402
import torch  # noqa: E402
from pyro.infer import MCMC as PyroMCMC  # noqa: E402

import pyro_split  # noqa: E402


def pyro_model(x, y):
    w = pyro.sample("w", pyro.distributions.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with pyro.plate("data", x.shape[0]):
        pyro.sample("y", pyro.distributions.Bernoulli(logits=x @ w), obs=y)


pyro.set_rng_seed(0)
some = NUM_ROWS // 10
kernel = pyro_split.PenaltyMH(pyro_model, batch_size=20, num_batches=20)
mcmc = PyroMCMC(kernel, warmup_steps=NUM_WARMUP // 2, num_samples=NUM_SAMPLES // 2, disable_progbar=True)
start = time.perf_counter()
mcmc.run(torch.as_tensor(x[:some]), torch.as_tensor(y[:some]))
print(f"{some} rows, {time.perf_counter() - start:.1f} s")
pyro_idata = pyro_split.to_inference_data(mcmc)
w = pyro_idata.posterior["w"].values[0]
print(f"χ² {pyro_idata.sample_stats['chi2'].values.mean():.2g}, least ESS {az.ess(pyro_idata)['w'].values.min():.0f}")
print("(mean - true weight) / sd:", ((w.mean(0) - true_w) / w.std(0)).round(1))
print(pyro_split.audit(mcmc, num_pairs=10, num_repeats=50))

# %% [markdown]
# ## Where to go next
#
# * `docs/penalty_mh.md`: what the kernel computes, its arguments, when not to use it, and how it fails.
# * `docs/stochastic_gradient.md`: SGLD and SGHMC, which read as few rows and are biased at any fixed step.
# * `benchmarks/README.md`, the section on tall data: measured speed beside NUTS and HMCECS.
