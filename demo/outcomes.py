"""What a finished run says: convergence, cost, and predictions on the test images."""

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import accuracy_score

from demo.settings import NUM_SUBSETS
from split_common.datasets import ImageData
from split_common.metrics import predictive_entropy, predictive_probabilities


@dataclass(frozen=True)
class Run:
    """A finished run, as arrays.

    Attributes:
        framework: "NumPyro" or "Pyro".
        model: "softmax" or "network".
        sampler: one of ``settings.SAMPLERS``.
        draws: posterior draws by site, shapes (chains, draws, ...).
        statistics: sampler statistics by ArviZ's names, shape (chains, draws).
        acceptance: mean acceptance while sampling.
        seconds: time spent sampling, without compilation and warm-up.
    """

    framework: str
    model: str
    sampler: str
    draws: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]
    acceptance: float
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What the table and the figures show of a run.

    Attributes:
        framework: as :class:`Run`.
        model: as :class:`Run`.
        sampler: as :class:`Run`.
        acceptance: as :class:`Run`.
        statistics: as :class:`Run`.
        seconds: as :class:`Run`.
        ess_bulk: effective sample size for location, one value per monitored quantity.
        ess_tail: effective sample size of the 5 and 95 % quantiles, likewise.
        r_hat: rank-normalised split R-hat, likewise.
        data_passes: likelihood gradients spent while sampling, in units of all the rows.
        accuracy: share of test images whose most probable class is the right one.
        test_log_density: mean log-probability of the right class over the test images, shape (chains, draws).
        entropy: predictive entropy of each test image, in nats.
        is_right: whether each test image is classified right.
    """

    framework: str
    model: str
    sampler: str
    acceptance: float
    statistics: dict[str, np.ndarray]
    seconds: float
    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    r_hat: np.ndarray
    data_passes: float
    accuracy: float
    test_log_density: np.ndarray
    entropy: np.ndarray
    is_right: np.ndarray


def summarise(run: Run, digits: ImageData) -> Outcome:
    """Reduce a run to what is shown of it."""
    import arviz as az

    log_probabilities = class_log_probabilities(run.draws, digits.x_test)
    of_right_class = log_probabilities[..., np.arange(len(digits.y_test)), digits.y_test]
    probabilities = np.exp(log_probabilities).reshape(-1, *log_probabilities.shape[2:])
    classes = predictive_probabilities(probabilities).argmax(axis=-1)
    monitored = az.convert_to_dataset({"q": all_parameters(run.draws) if run.model == "softmax" else of_right_class})
    return Outcome(
        framework=run.framework,
        model=run.model,
        sampler=run.sampler,
        acceptance=run.acceptance,
        statistics=run.statistics,
        seconds=run.seconds,
        ess_bulk=az.ess(monitored)["q"].values,
        ess_tail=az.ess(monitored, method="tail")["q"].values,
        r_hat=az.rhat(monitored)["q"].values,
        data_passes=data_passes(run.statistics),
        accuracy=accuracy_score(digits.y_test, classes),
        test_log_density=of_right_class.mean(axis=-1),
        entropy=predictive_entropy(probabilities),
        is_right=classes == digits.y_test,
    )


def class_log_probabilities(draws: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Log-probability of each class for each draw and image, shape (chains, draws, images, classes)."""
    if "hidden_weights" in draws:
        x = np.tanh(x @ draws["hidden_weights"] + draws["hidden_biases"][..., None, :])
    logits = x @ draws["weights"] + draws["biases"][..., None, :]
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def all_parameters(draws: dict[str, np.ndarray]) -> np.ndarray:
    """Every parameter side by side, shape (chains, draws, parameters)."""
    return np.concatenate([x.reshape(*x.shape[:2], -1) for x in draws.values()], axis=-1)


def data_passes(statistics: dict[str, np.ndarray]) -> float:
    """Gradients while sampling, counted in passes over all the rows; plain HMC makes one a step."""
    if "num_grads" in statistics:
        return float(statistics["num_grads"].sum()) / NUM_SUBSETS
    return float(statistics["n_steps"].sum())
