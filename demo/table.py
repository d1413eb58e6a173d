"""The table at the end."""

import numpy as np
from rich import box
from rich.table import Table

from demo.outcomes import Outcome
from demo.settings import NUM_CHAINS, NUM_STEPS, NUM_SUBSETS, Iterations

CAPTION = (
    "ESS and R-hat by ArviZ: over the {parameters} parameters of the softmax regression; for "
    "the network, whose weights are not identified (hidden units can swap), over the log-probability of the right "
    "class of each of the {images} test images. ESS/s: median bulk ESS per second of sampling on one core, warm-up and "
    "compilation excluded. Passes: likelihood gradients while sampling, in units of all the training images. "
    "Trajectories have {steps[softmax]} steps in the softmax regression and {steps[network]} in the network; Pyro's "
    "HMC holds their length instead, chosen to give about as many steps."
)


def make_table(outcomes: list[Outcome], iterations: dict[str, Iterations]) -> Table:
    """One row for each framework, model and sampler."""
    counts = "; ".join(f"{name}: {i.warmup} + {i.draws}" for name, i in iterations.items())
    table = Table(
        title=f"Handwritten digits, {NUM_SUBSETS} subsets, {NUM_CHAINS} chains\n(warm-up + draws per chain: {counts})",
        caption=CAPTION.format(
            parameters=num_monitored(outcomes, "softmax"), images=num_monitored(outcomes, "network"), steps=NUM_STEPS
        ),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        caption_justify="left",
    )
    for heading in ("frame-\nwork", "model", "sampler"):
        table.add_column(heading, no_wrap=True)
    for heading in (
        "accep-\ntance",
        "ESS bulk\nmin | med",
        "ESS tail\nmin | med",
        "R-hat\nmed | max",
        "ESS/s\n",
        "passes\n",
        "test\nacc.",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for i, outcome in enumerate(outcomes):
        if i and outcome.model != outcomes[i - 1].model:
            table.add_section()
        table.add_row(*cells(outcome))
    return table


def cells(outcome: Outcome) -> list[str]:
    """The texts of one row."""
    ess_per_second = np.median(outcome.ess_bulk) / outcome.seconds
    return [
        outcome.framework,
        outcome.model,
        outcome.sampler,
        f"{outcome.acceptance:.2f}",
        f"{outcome.ess_bulk.min():.0f} | {np.median(outcome.ess_bulk):4.0f}",
        f"{outcome.ess_tail.min():.0f} | {np.median(outcome.ess_tail):4.0f}",
        f"{np.median(outcome.r_hat):.2f} | {outcome.r_hat.max():.2f}",
        f"{ess_per_second:.1f}",
        f"{outcome.data_passes:,.0f}",
        f"{outcome.accuracy:.3f}",
    ]


def num_monitored(outcomes: list[Outcome], model: str) -> int:
    """How many quantities the diagnostics of a model run over."""
    return next(outcome.ess_bulk.size for outcome in outcomes if outcome.model == model)
