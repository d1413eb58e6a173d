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
# # Runs that survive
#
# A long run is worth more than the process it happens in. With a store, `sample` writes draws, statistics and the whole
# state of every chain as it goes. A run that was stopped or killed goes on by the same call, to the same draws, bit for
# bit, as if nothing had happened.
#
# This notebook stops a run by the clock, kills it with `kill -9`, looks into it while it runs, goes on with it,
# compares it with one that was never stopped, extends it, and predicts from the disk. It is in NumPyro; `pyro_split`
# has the same names.

# %%
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import arviz as az
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from numpyro_split import StopWhen, StoreError, open_store, predict
from split_common.watch import snapshot

QUICK = os.environ.get("SPLIT_MCMC_QUICK") == "1"  # few draws: does it run?
NUM_SAMPLES = 400 if QUICK else 2000

BLUE, ORANGE = "#0072b2", "#d55e00"
plt.rcParams.update({"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False})

FOLDER = Path(tempfile.mkdtemp())  # of the stores
PROGRAMS = str(FOLDER / "programs")  # compiled once, kept on disk, where another process finds them:
os.environ |= {"JAX_COMPILATION_CACHE_DIR": PROGRAMS, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
os.environ["SPLIT_MCMC_WARNINGS"] = "report"  # such as warn while they run cannot be kept
jax.config.update("jax_compilation_cache_dir", PROGRAMS)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

# %% [markdown]
# ## A script
#
# A run that is to be killed needs a process of its own, so data, model and call are a script. The notebook imports it,
# and later starts it. What counts for going on is in `run`: the same model, data, kernel, key and settings.

# %%
SCRIPT = """
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC
from numpyro_split import SplitHMC, sample

NUM_ROWS = 20_000
rng = np.random.default_rng(0)
x = rng.normal(size=(NUM_ROWS, 6)).astype(np.float32)
x[:, 0] = 1.0
true_w = np.array([-1.0, 0.8, -0.5, 0.3, 0.0, 1.2])
y = (rng.random(NUM_ROWS) < 1 / (1 + np.exp(-x @ true_w))).astype(np.float32)


def model(x, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def run(store, num_samples, **options):
    kernel = SplitHMC(model, num_subsets=4)
    mcmc = MCMC(kernel, num_warmup=300, num_samples=num_samples, num_chains=4, chain_method="sequential",
                progress_bar=False)
    return sample(mcmc, jax.random.key(0), jnp.asarray(x), jnp.asarray(y), store=store, every=50, **options)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
"""
(FOLDER / "regression.py").write_text(SCRIPT.lstrip())
sys.path.insert(0, str(FOLDER))
from regression import model, run, true_w, x, y  # noqa: E402

# %% [markdown]
# ## One that is never stopped
#
# To compare with. What `sample` returns is what is in the store, in ArviZ's format; numbers are read from disk when
# they are looked at.

# %%
start = time.perf_counter()
whole = run(FOLDER / "whole.zarr", NUM_SAMPLES)
print(f"{time.perf_counter() - start:.0f} s, compiling included")
whole

# %% [markdown]
# ## Stopped by the clock
#
# `StopWhen` ends a run early: after some seconds, at a deadline, or once the draws are worth enough. A warning says
# what happened. The time counts from the call, compilation included: here it is over before warm-up is, of which what
# was done is kept.

# %%
STORE = FOLDER / "run.zarr"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    run(STORE, NUM_SAMPLES, stop_when=StopWhen(seconds=2))
for warning in caught:
    if "stopped" in str(warning.message):
        print(str(warning.message).replace(str(FOLDER), "…"))

# %% [markdown]
# ## Killed
#
# The script goes on from there in a process of its own. The store is open to others while that process writes to it: as
# soon as each chain has 100 more draws, the process is killed, without a chance to clean up.


# %%
def draws_by_chain():
    """How many draws each chain has, by the store."""
    return open_store(STORE).posterior.attrs["draws_by_chain"]


before = draws_by_chain()
environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
process = subprocess.Popen([sys.executable, FOLDER / "regression.py", STORE, str(NUM_SAMPLES)], env=environment)
while process.poll() is None and min(draws_by_chain()) < min(before) + 100:
    time.sleep(0.05)
seen = snapshot(STORE)  # while it runs
process.send_signal(signal.SIGKILL)
status, killed_at = process.wait(), draws_by_chain()
print("exit status:", status, "  draws by chain:", before, "before,", killed_at, "after")

# %% [markdown]
# What `snapshot` saw a moment before the kill. `watch` shows the same again and again until the run ends, and so does
# `python -m split_common.watch PATH` in a terminal, on any machine that sees the files.

# %%
seen

# %% [markdown]
# Everything up to the last commit, 50 draws of a chain at most before the kill, is in the store: what there is can be
# opened as if the run had been meant to be that long.

# %%
opened = open_store(STORE)
print(dict(opened.posterior.sizes))
az.summary(opened, kind="stats").assign(true=true_w).round(3)

# %% [markdown]
# ## Gone on with
#
# The same call. It starts from the states that were committed last; the programs come from the disk.

# %%
start = time.perf_counter()
again = run(STORE, NUM_SAMPLES)
print(f"{time.perf_counter() - start:.0f} s")
for group in ("posterior", "sample_stats"):
    for name, values in whole[group].data_vars.items():
        np.testing.assert_array_equal(again[group][name], values, err_msg=name)
print("draws and statistics of both runs are equal, bit for bit:", again.posterior["w"].shape)

# %%
axes = az.plot_trace(again, compact=False, coords={"w_dim_0": [1, 5]}, figsize=(13, 4.5))
for ax, colour in zip(axes[:, 1], (BLUE, ORANGE), strict=True):
    ax.axvline(min(killed_at), color=colour, ls="--", lw=1)
    ax.set_xlabel("draw (dashed: where it was killed)")
plt.gcf().tight_layout()

# %% [markdown]
# ## What is refused
#
# A store belongs to its model, data, kernel, key and versions. Here one label of 20,000 has changed. Nothing is
# overwritten; the message says what differs.

# %%
import regression  # noqa: E402

regression.y = np.where(np.arange(len(y)) == 7, 1 - y, y)
try:
    run(STORE, NUM_SAMPLES)
except StoreError as error:
    print(str(error).replace(str(FOLDER), "…"))
regression.y = y

# %% [markdown]
# ## Extended
#
# More draws than before, by a larger `num_samples`: warm-up is not repeated, and what was drawn is kept. The draws are
# those of a run that had been as long from the start.

# %%
start = time.perf_counter()
longer = run(STORE, 2 * NUM_SAMPLES)
print(f"{time.perf_counter() - start:.0f} s for as many draws again")
np.testing.assert_array_equal(longer.posterior["w"][:, :NUM_SAMPLES], whole.posterior["w"])
table = {name: az.summary(idata, kind="diagnostics") for name, idata in (("before", whole), ("extended", longer))}
pd.concat(table, axis=1)[[(name, column) for column in ("ess_bulk", "r_hat") for name in table]]

# %% [markdown]
# ## Predictions from the disk
#
# `predict` reads the draws of a store a batch at a time, and keeps of each row's predictive distribution what is asked
# for, here the summaries: neither the draws nor the predictions need to fit in memory.

# %%
rng = np.random.default_rng(1)
x_new = rng.normal(size=(2000, x.shape[1])).astype(np.float32)
x_new[:, 0] = 1.0
rows = predict(model, open_store(STORE), x_new, rng_key=jax.random.key(1), into="summaries")["y"]
predicted, true = rows["probabilities"].values[:, 1], 1 / (1 + np.exp(-x_new @ true_w))
fig, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
axes[0].plot([0, 1], [0, 1], color="black", lw=1, ls="--")
axes[0].plot(true, predicted, ".", color=BLUE, ms=2)
axes[0].set(xlabel="true probability", ylabel="predicted probability", title="2,000 new rows")
axes[1].plot(predicted, rows["mutual_information"], ".", color=ORANGE, ms=2)
axes[1].set(xlabel="predicted probability", ylabel="nats", ylim=(0, None), title="doubt that more data would settle");
# %% [markdown]
# ## What is on disk
#
# Plain zarr: arrays in ArviZ's layout that any zarr reader opens, and one group for each chain with what it goes on
# from. Nothing in a store is executed when it is read.

# %%
import zarr  # noqa: E402

group = zarr.open_group(STORE, mode="r")
print("chain 0:", dict(group["chains/0"].attrs))
size = sum(file.stat().st_size for file in STORE.rglob("*") if file.is_file())
print(f"{size / 2**20:.1f} MiB on disk")
group.tree()

# %% [markdown]
# ## Where to go next
#
# * `docs/stored_runs.md`: stopping by effective sample size, signals, more parameters than memory holds (`load=False`,
#   `keep="summaries"`), object stores, chains in processes, and what is not promised.
# * `docs/predictive.md`: what predictions are made of.
