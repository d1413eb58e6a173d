"""Cobb and Jalaian (2021), table 1: softmax regression on MNIST by the four schemes, long enough for effective sizes.

The paper has 48,000 images in M = 10 subsets, L = 20, ε = 6e-4, five chains of 3,000 iterations. The quick size has
1,000 images: their likelihood is 48 times flatter, and ε is √48 times larger, so that the schemes stand where they do
with all. Scaling and prior, which are not given, as in ``benchmarks.logistic_mnist``, which has the acceptances of the
published rows and step. Chains start at approximate draws from the posterior, the same for all schemes.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common.labelled import load_images
from benchmarks.logistic_mnist.__main__ import SCALINGS
from benchmarks.logistic_mnist.chains import laplace_draw
from benchmarks.papers.cobb_2021.schemes import SCHEMES, print_summary, run_scheme, setting_from, store_of, summary
from benchmarks.papers.options import earlier, parse_options, settings_of, write

PAPER = {
    "full": (0.87, 0.01, 68.7, 0.211),
    "naive": (0.87, 0.01, 68.7, 0.018),
    "randomised": (0.45, 0.01, 38.4, 0.010),
    "symmetric": (0.96, 0.01, 75.0, 0.021),
}
FULL = {"num_subsets": 10, "num_steps": 20, "step_size": 6e-4, "mass": 1.0, "warmup": 0, "draws": 3000, "chains": 5}
FULL |= {"rows": 48_000, "prior_sd": 0.1, "schemes": SCHEMES}
SIZES = {"quick": {**FULL, "step_size": 4.2e-3, "draws": 400, "chains": 2, "rows": 1_000}, "full": FULL}


def main(arguments: list[str] | None = None) -> None:
    """Run the schemes."""
    options = parse_options(__doc__, SIZES, arguments, frameworks=("numpyro", "pyro"))
    setting = setting_from(options)
    images = load_images(options.data, options.rows)
    centre, scale = SCALINGS["centred"]
    x, y = (images.rows - np.float32(centre)) / np.float32(scale), images.labels
    draws = [laplace_draw(x, y, options.prior_sd, options.seed + chain) for chain in range(setting.chains)]
    start = {name: np.array([draw[name] for draw in draws], np.float32) for name in draws[0]}
    if options.framework == "pyro":
        import torch

        from benchmarks.common import pyro_models

        model = pyro_models.classifiers(options.prior_sd)["softmax"]
        rows = (torch.as_tensor(x), torch.as_tensor(y).long())
    else:
        from benchmarks.common import numpyro_models

        model, rows = numpyro_models.classifiers(options.prior_sd)["softmax"], (x, y)
    settings = settings_of(options, SIZES, data=images.source)
    found = earlier(options, settings, "schemes")
    for scheme in [name for name in options.schemes if name not in found]:
        chains = run_scheme(options.framework, scheme, model, rows, setting, start, options.seed, store_of(options))
        found[scheme] = summary(scheme, chains)
        print_summary(found[scheme], PAPER[scheme])
        write(options, settings, {"schemes": found})


if __name__ == "__main__":
    main()
