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
# # Which digit was said, and how sure is that?
#
# A network that hears a digit names one, whoever speaks and however badly. Whether to believe it is another question:
# a recording that is hard to make out, or a voice that nobody trained on, should come with a doubt that one can act on.
#
# This notebook samples a small convolutional network on spectrograms of spoken digits by `SymmetricSplitHMC`, half of
# the data at a time, and compares the mean of its draws with a point estimate of the same network: on voices that it
# knows, and on one that it has never heard. It is in Pyro.

# %%
import os
import tempfile

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.signal import spectrogram
from sklearn.metrics import accuracy_score

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoDelta
from pyro.optim import Adam

from pyro_split import SymmetricSplitHMC, networks, priors, sample, to_inference_data
from split_common.datasets import load_spoken_digits
from split_common.metrics import (
    brier_score,
    class_log_likelihood,
    cumulative_accuracy,
    cumulative_log_score,
    expected_calibration_error,
    mutual_information,
    mutual_information_by_class,
    predictive_entropy,
    predictive_probabilities,
)
from split_common.plots import plot_cumulative, plot_error_entropies, plot_mutual_information, plot_reliability

QUICK = os.environ.get("SPLIT_MCMC_QUICK") == "1"  # few draws of few rows: does it run?
NUM_WARMUP, NUM_SAMPLES, NUM_CHAINS = (4, 4, 1) if QUICK else (150, 150, 2)
NUM_ROWS, ADAM_STEPS = (100, 10) if QUICK else (600, 1500)
UNHEARD = "theo"  # the voice that is kept out of training
plt.rcParams.update({"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8c8c8c"

# %% [markdown]
# ## Data
#
# Three thousand recordings, ten digits by six speakers, as the logarithms of their power by frequency and time (Jackson
# and others, 2018, Free Spoken Digit Dataset, doi:10.5281/zenodo.1342401, CC BY-SA 4.0). They are read from the
# directory that the environment variable `SPLIT_MCMC_DATA` names; `load_spoken_digits(download=True)` fetches them. Where
# they are not at hand, this notebook makes sounds instead: a digit is two tones, as on a telephone's keys, and a speaker
# is a pitch and a noise of his own.
#
# One speaker is kept out of training. Of the others the network hears some recordings, and is tested on others.


# %%
def two_tones(rng, digit, pitch, noise):
    """A second at 8 kHz of the tones that a telephone has for a digit."""
    low, high = (
        (697, 770, 852, 941)[(digit - 1) // 3 if digit else 3],
        (1209, 1336, 1477)[(digit - 1) % 3 if digit else 1],
    )
    t = np.arange(8192) / 8000
    loudness = np.exp(-(((t - rng.uniform(0.2, 0.7)) / 0.15) ** 2))
    tones = np.sin(2 * np.pi * low * pitch * t) + np.sin(2 * np.pi * high * pitch * t)
    return loudness * tones + noise * rng.standard_normal(t.size)


def made_up_digits():
    """Spectrograms, digits and speakers of two tones each."""
    rng = np.random.default_rng(0)
    voices = {"ada": (1.0, 0.3), "ben": (1.03, 0.5), "cem": (0.97, 0.4), UNHEARD: (1.08, 0.6)}
    y, speaker = np.tile(np.arange(10), 160), np.repeat(list(voices), 400)
    audio = np.array([two_tones(rng, d, *voices[who]) for d, who in zip(y, speaker)])
    x = np.log(spectrogram(audio, 8000, "hann", 256, 32)[2] + 1e-10)
    heard = speaker != UNHEARD
    mean, sd = (f(x[heard], axis=(0, 2), keepdims=True) for f in (np.mean, np.std))
    x = (x - mean) / sd
    return x[heard], y[heard], x[~heard], y[~heard]


try:
    digits = load_spoken_digits(split="speaker", test_speakers=(UNHEARD,), window=256, overlap=32)
    x_heard, y_heard, x_unheard, y_unheard = digits[:4]
    SOURCE = "free spoken digits"
except (FileNotFoundError, ValueError) as why:  # no directory, or none with the recordings
    print(f"{why}\nTwo tones in place of each digit.")
    x_heard, y_heard, x_unheard, y_unheard = made_up_digits()
    SOURCE = "two tones in place of a digit"


def pooled(x):
    """Frequencies averaged in fours, a leading axis of one channel: shape (rows, 1, 32, 36)."""
    return torch.as_tensor(x[:, :128].reshape(len(x), 1, 32, 4, -1).mean(3), dtype=torch.float32)


order = np.random.default_rng(1).permutation(len(y_heard))
train, test = order[:NUM_ROWS], order[NUM_ROWS : NUM_ROWS + 500]
X, y = pooled(x_heard[train]), torch.as_tensor(y_heard[train])
TESTS = {
    "known voices": (pooled(x_heard[test]), y_heard[test]),
    "a voice never heard": (pooled(x_unheard[:500]), y_unheard[:500]),
}
print(f"{SOURCE}: {len(y)} to train on, {', '.join(f'{len(labels)} of {name}' for name, (_, labels) in TESTS.items())}")

# %%
fig, axes = plt.subplots(1, 5, figsize=(9, 2.2), sharey=True, layout="constrained")
for ax, digit in zip(axes, range(5)):
    row = int(np.flatnonzero(y.numpy() == digit)[0])
    ax.imshow(X[row, 0], origin="lower", aspect="auto", cmap="viridis", extent=(0, 1.02, 0, 4))
    ax.set(title=f"“{digit}”", xlabel="s")
axes[0].set_ylabel("kHz")
plt.show()

# %% [markdown]
# ## Model
#
# Four convolutional layers with max-pooling and SELU, one dense layer. `random_module` puts a normal prior on every
# weight and returns the network with the draws in place. The rows are in a plate, which is all that splitting asks for.

# %%
net = networks.cnn((1, 32, 36), 10, channels=(4, 8, 8, 16), kernel_size=2, hidden=(), activation=torch.selu)


def weights(name, shape):
    return priors.normal(name, shape, scale=0.6)


def model(x, y=None):
    network = networks.random_module("net", net, weights)
    with pyro.plate("data", x.shape[0]):
        logits = network(x)
        if y is None:
            pyro.deterministic("logits", logits, event_dim=1)  # for predictions
        pyro.sample("y", dist.Categorical(logits=logits), obs=y)


# %% [markdown]
# ## A point estimate, to compare with
#
# The mode of the same posterior, by Adam: what is usually called training with weight decay. It also is where the
# chains begin, each with some noise of its own.

# %%
pyro.set_rng_seed(0)
pyro.clear_param_store()
guide = AutoDelta(model)
svi = SVI(model, guide, Adam({"lr": 0.01}), Trace_ELBO())
losses = [svi.step(X, y) for _ in range(ADAM_STEPS)]
mode = {name: u.detach() for name, u in guide.median().items()}
print(f"{sum(u.numel() for u in mode.values())} weights; the loss fell from {losses[0]:.0f} to {losses[-1]:.0f}")

# %% [markdown]
# ## Sample
#
# Two subsets, so that a gradient takes the memory of half the rows; eleven steps a trajectory, with a jitter by default.
# `sample` writes the run to a store as it goes: killed at any moment, the same call would go on.

# %%
kernel = SymmetricSplitHMC(model, num_subsets=2, num_steps=11, step_size=0.01, adapt_mass_matrix=False)
start = {
    name: torch.stack([u + 0.02 * torch.randn(u.shape) for _ in range(NUM_CHAINS)]) if NUM_CHAINS > 1 else u
    for name, u in mode.items()
}
mcmc = MCMC(
    kernel,
    num_samples=NUM_SAMPLES,
    warmup_steps=NUM_WARMUP,
    num_chains=NUM_CHAINS,
    initial_params=start,
    disable_progbar=True,
)
folder = tempfile.TemporaryDirectory()
sample(mcmc, X, y, store=f"{folder.name}/digits.zarr", every=50)
print(kernel.report(mcmc))

# %% [markdown]
# The report says that the chains have not met. On single weights they need not: a network's units may trade places, and
# many weights do the same. What must agree is what is predicted, so the R-hat that counts is that of the probabilities.


# %%
def probabilities(draws, x):
    """Class probabilities, shape (draws, rows, classes)."""
    logits = Predictive(model, draws, return_sites=["logits"])(x)["logits"]
    return torch.softmax(logits.double(), -1).numpy().reshape(len(logits), len(x), -1)


by_draw = {name: probabilities(mcmc.get_samples(), x) for name, (x, _) in TESTS.items()}
of_mode = {name: probabilities({k: u[None] for k, u in mode.items()}, x)[0] for name, (x, _) in TESTS.items()}

right = {  # probability of the digit that was said, of the first 50 recordings
    name: np.stack([p[:, i, labels[i]] for i in range(50)], 1).reshape(NUM_CHAINS, NUM_SAMPLES, 50)
    for (name, p), (_, labels) in zip(by_draw.items(), TESTS.values())
}
az.summary(az.convert_to_inference_data(right), kind="diagnostics")[["ess_bulk", "r_hat"]].groupby(
    lambda row: row.split("[")[0]
).agg(["min", "median", "max"])

# %% [markdown]
# They have not met there either: R-hat is far above 1.01. Minutes of sampling are short for a network, and the honest
# reading of what follows is an average over the neighbourhoods that two short chains went through, not the posterior.
# The store is there to be gone on with: the same `sample` with a larger `num_samples` draws on from where this ended.
#
# ## Right, and as often right as it says?
#
# The log score and the Brier score judge all of the probabilities, the calibration error how far from the truth stated
# confidences are.


# %%
def scores(p, labels):
    calibration = expected_calibration_error(p, labels)
    log_score = class_log_likelihood(p[None], labels).mean()
    return {
        "accuracy": accuracy_score(labels, p.argmax(1)),
        "log score": log_score,
        "Brier score": brier_score(p, labels),
        "calibration error": calibration.error,
    }


mean_of = {name: predictive_probabilities(p) for name, p in by_draw.items()}
table = {}
for name, (_, labels) in TESTS.items():
    table[name, "point estimate"] = scores(of_mode[name], labels)
    table[name, "mean of the draws"] = scores(mean_of[name], labels)
pd.DataFrame(table).T.round(3)

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, (name, (_, labels)) in zip(axes, TESTS.items()):
    both = {"point estimate": of_mode[name], "mean of the draws": mean_of[name]}
    plot_reliability({what: expected_calibration_error(p, labels) for what, p in both.items()}, ax=ax)
    ax.set_title(name)
plt.show()

# %% [markdown]
# Would more draws help? The accuracy and the log score of the mean over the first draws say: they rise on. The second
# half of the draws is the second chain's.

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
curves = {name: cumulative_accuracy(by_draw[name], labels) for name, (_, labels) in TESTS.items()}
plot_cumulative(curves, ax=axes[0])
curves = {
    name: cumulative_log_score(np.maximum(class_log_likelihood(by_draw[name], labels), -50))
    for name, (_, labels) in TESTS.items()
}
plot_cumulative(curves, ax=axes[1], ylabel="log score (nats)")
plt.show()

# %% [markdown]
# ## A doubt to act on
#
# Where a network is wrong it should be in doubt. The entropies of wrong predictions say how much: a curve further to
# the right is a network that knows better when it is wrong.

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for ax, (name, (_, labels)) in zip(axes, TESTS.items()):
    both = {"point estimate": of_mode[name], "mean of the draws": mean_of[name]}
    wrong = {what: predictive_entropy(p[None])[p.argmax(1) != labels] for what, p in both.items()}
    if all(map(len, wrong.values())):
        plot_error_entropies(wrong, ax=ax)
    ax.set_title(name)
plt.show()

# %% [markdown]
# So one can ask again instead of guessing. Hand the recordings of greatest entropy back to the speaker: how often is
# the network right on the rest? On known voices a threshold makes good answers of most recordings. On a voice that
# nobody trained on even the surest answers are wrong at times: doubt is no cure for data that are unlike.


# %%
def accuracy_of_answered(p, labels):
    """Accuracy on the recordings of least entropy, for each number of them."""
    surest_first = np.argsort(predictive_entropy(p[None]), kind="stable")
    is_right = (p.argmax(1) == labels)[surest_first]
    return np.cumsum(is_right) / np.arange(1, len(labels) + 1)


fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for ax, (name, (_, labels)) in zip(axes, TESTS.items()):
    share = np.arange(1, len(labels) + 1) / len(labels)
    for (what, p), colour in zip(
        {"point estimate": of_mode[name], "mean of the draws": mean_of[name]}.items(), (GREY, BLUE)
    ):
        ax.plot(share[25:], accuracy_of_answered(p, labels)[25:], color=colour, label=what)
    ax.set(title=name, xlabel="share answered")
axes[0].set_ylabel("accuracy of the answers")
axes[0].legend(frameon=False)
plt.show()

# %% [markdown]
# ## What the doubt is about
#
# Entropy has two parts: noise that every draw sees in a recording, and the draws' disagreement, which more data would
# settle. The second is the mutual information of label and weights. By digit said and digit predicted it shows which
# are mixed up, and which mistakes more recordings would mend.

# %%
name = "a voice never heard"
labels = TESTS[name][1]
fig, ax = plt.subplots(figsize=(5.4, 4.6), layout="constrained")
plot_mutual_information(mutual_information_by_class(by_draw[name], labels), ax=ax, class_names=list("0123456789"))
plt.show()
for what, p in by_draw.items():
    print(
        f"{what}: entropy {predictive_entropy(p).mean():.3f}, of it disagreement {mutual_information(p).mean():.3f} nats"
    )

# %% [markdown]
# The recording that the draws disagree about most, and what fifty of them say of it.

# %%
doubtful = int(mutual_information(by_draw[name]).argmax())
fig, (left, right_ax) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", width_ratios=(1, 1.6))
left.imshow(TESTS[name][0][doubtful, 0], origin="lower", aspect="auto", cmap="viridis", extent=(0, 1.02, 0, 4))
left.set(title=f"“{labels[doubtful]}” was said", xlabel="s", ylabel="kHz")
spread = by_draw[name][:: max(1, len(by_draw[name]) // 50), doubtful]
right_ax.plot(np.arange(10), spread.T, "o", color=BLUE, alpha=0.15, markersize=5)
right_ax.plot(np.arange(10), of_mode[name][doubtful], "D", color=ORANGE, label="point estimate")
right_ax.set(xlabel="digit", ylabel="probability", xticks=range(10), title="draws, and the point estimate")
right_ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## What to take home
#
# * The mean of the draws says how sure it is more truly than the mode of the same posterior, even of short chains.
# * Judge a network's chains by their predictions, and say so where these have not met.
# * An entropy is a threshold: answer below it, ask again above it, for recordings like those of training.

# %%
folder.cleanup()
