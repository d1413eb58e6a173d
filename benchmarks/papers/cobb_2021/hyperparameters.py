"""The draft's appendix B.2: hyperparameters of the four arms by Bayesian optimisation, on a split of its own.

The paper takes BoTorch; here a Gaussian process with a Matérn 5/2 kernel and expected improvement, by scikit-learn, on
the logarithms of step size (learning rate) and prior standard deviation. What is optimised is the log score of the
test digits of the split. As in the paper symmetric split HMC is tuned by fewer rows; its step size adapts, so that
only its prior is searched for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

from benchmarks.papers.cobb_2021.spoken_digits import ARMS, Length, Settings, load, run_arm
from benchmarks.papers.options import earlier, parse_options, settings_of, write
from split_common.metrics import class_log_likelihood, cumulative_log_score

SPLIT = 100  # not one of those of the table
STEPS = {"SGD": (-3.0, -1.0), "SGLD": (-5.0, -3.0), "SGHMC": (-6.5, -4.5), "symmetric": (-2.0, -2.0)}  # log10
PRIORS = (-1.5, 0.0)  # log10 of the standard deviation
LENGTHS = {
    "SGD": Length(50, 100),
    "SGLD": Length(400, 20, 10),
    "SGHMC": Length(40, 20),
    "symmetric": Length(30, 20),
}
PAPER = {"SGD": (0.0103, None), "SGLD": (0.0182, 0.7431), "SGHMC": (0.0076, 0.1086), "symmetric": (4.96e-6, 0.1)}
SIZES = {
    "quick": {"rows": 300, "trials": 6, "first": 3, "factor": 1, "arms": ARMS},
    "full": {"rows": 1878, "trials": 50, "first": 10, "factor": 10, "arms": ARMS},
}
CANDIDATES = 2_000
LEAST_SCORE, LEAST_LIKELIHOOD = -10.0, -50.0


def propose(points: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The point of the unit square that promises most over the best value so far."""
    kernel = Matern(0.5, nu=2.5) + WhiteKernel(0.01)
    fitted = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(points, values)
    candidates = rng.random((CANDIDATES, points.shape[1]))
    mean, sd = fitted.predict(candidates, return_std=True)
    z = (mean - values.max()) / np.maximum(sd, 1e-9)
    return candidates[np.argmax(sd * (z * norm.cdf(z) + norm.pdf(z)))]


def settings_at(arm: str, point: np.ndarray) -> Settings:
    """What a point of the unit square stands for."""
    low, high = np.array([STEPS[arm], PRIORS]).T
    step, prior = 10 ** (low + point * (high - low))
    return Settings(float(step), float(prior))


def log_score(draws: np.ndarray, labels: np.ndarray) -> float:
    """The log score of all draws; ``LEAST_SCORE`` where it is less, and where a chain diverged to no numbers."""
    if np.isnan(draws).any():
        return LEAST_SCORE
    with np.errstate(divide="ignore"):
        likelihood = np.maximum(class_log_likelihood(draws, labels), LEAST_LIKELIHOOD)
    return max(float(cumulative_log_score(likelihood)[-1]), LEAST_SCORE)


def search(arm: str, options: Any) -> dict[str, Any]:
    """All trials of an arm, and the best."""
    rng = np.random.default_rng(options.seed)
    digits = load(options.data, options.rows // 2 if arm == "symmetric" else options.rows, SPLIT)
    length = LENGTHS[arm]._replace(
        draws=LENGTHS[arm].draws * options.factor, warmup=LENGTHS[arm].warmup * options.factor
    )
    points, scores, trials = np.empty((0, 2)), np.empty(0), []
    for i in range(options.trials):
        point = rng.random(2) if i < options.first else propose(points, scores, rng)
        chosen = settings_at(arm, point)
        found = run_arm(arm, digits, chosen, length, options.seed, options.framework)
        score = log_score(found["probabilities"], digits.y_test)
        points, scores = np.vstack([points, point]), np.append(scores, score)
        trials.append({**chosen._asdict(), "log_score": score, "seconds": found["statistics"]["seconds"]})
        print(
            f"{arm:10s} step {chosen.step_size:.2g}, prior sd {chosen.prior_sd:.2g}: log score {score:.3f}", flush=True
        )
    return {"trials": trials, "best": int(np.argmax(scores))}


def main(arguments: list[str] | None = None) -> None:
    """Search for every arm."""
    options = parse_options(__doc__, SIZES, arguments, frameworks=("pyro", "numpyro"))
    settings = settings_of(options, SIZES, split=SPLIT)
    found = earlier(options, settings, "arms")
    for arm in [name for name in options.arms if name not in found]:
        found[arm] = search(arm, options)
        write(options, settings, {"arms": found})


if __name__ == "__main__":
    main()
