"""Figures of runs: what more draws change, runs under several priors, convergence by variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from split_common.plots.axes import (
    COLOURS,
    DATA_COLOUR,
    PRIOR_COLOUR,
    RIGHT_COLOUR,
    axes_or_new,
    check_by_name,
    numbers,
)
from split_common.values import shown

NAMES = {"rhat": "R-hat", "ess": "effective sample size"}
RHAT_LIMIT, ESS_LIMIT = 1.01, 400.0  # limits of Vehtari and others (2021) for rank-based R-hat and effective draws


def plot_cumulative(curves: Mapping[str, np.ndarray], ax: Any = None, ylabel: str = "accuracy") -> Any:
    """Draw a score of the predictions of the first draw, the first two, and so on; a curve for each model.

    Args:
        curves: by the name of each model, what :func:`split_common.metrics.cumulative_accuracy` or
            :func:`~split_common.metrics.cumulative_log_score` gives, shape (draws,).
        ax: Matplotlib axes; None makes a new figure.
        ylabel: name of the score.

    Returns:
        The axes.

    Raises:
        ValueError: for no curves, a curve of another number of axes or without draws, and values that are NaN or plus
            infinity.

    Example:
        >>> import numpy as np
        >>> ax = plot_cumulative({"symmetric": np.array([0.7, 0.8, 0.82])})
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['symmetric: 0.82']
    """
    _check_names("curves", curves)
    ax = axes_or_new(ax)
    for (name, values), colour in zip(curves.items(), cycle(COLOURS), strict=False):
        array = numbers(values)
        if array.ndim != 1 or not array.size:
            raise ValueError(f"curves[{name!r}] must have shape (draws,), not 0, got shape {array.shape}")
        if not np.all(array < np.inf):
            raise ValueError(f"curves[{name!r}] must be numbers below infinity, got {array[~(array < np.inf)][0]}")
        draws = np.arange(1, array.size + 1)
        marker = "." if array.size == 1 else ""
        ax.plot(draws, array, color=colour, linewidth=1.2, marker=marker, label=f"{name}: {array[-1]:.3g}")
    ax.set(xlabel="draws averaged", ylabel=ylabel)
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return ax


def plot_log_posterior(runs: Mapping[str, Any], ax: Any = None) -> Any:
    """Draw the log-posterior along the chains of several runs, a colour for each run and a line for each chain.

    Chains that still climb have not settled. Constants of the priors are part of it: levels of different priors say
    which density is higher, not which model is better.

    Args:
        runs: by name, of the prior say, a run in ArviZ's format, whose statistic ``lp`` is taken, or an array of shape
            (chains, draws).
        ax: Matplotlib axes; None makes a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: for no runs, a run without the statistic, another number of axes, and values that are not finite.

    Example:
        >>> import numpy as np
        >>> ax = plot_log_posterior({"wide": np.array([[-9.0, -5.0, -4.0]]), "narrow": np.array([[-8.0, -7.0, -7.0]])})
        >>> ax.get_xlabel()
        'draw'
    """
    found = {name: _statistic(name, run, "lp") for name, run in _check_names("runs", runs).items()}
    ax = axes_or_new(ax)
    for (name, values), colour in zip(found.items(), cycle(COLOURS), strict=False):
        for i, chain in enumerate(values):
            ax.plot(np.arange(1, chain.size + 1), chain, color=colour, linewidth=0.8, label=None if i else name)
    ax.set(xlabel="draw", ylabel="log-posterior, unnormalised (nats)")
    ax.margins(x=0.0)
    for line in ax.legend(frameon=False, fontsize="small", loc="lower right").get_lines():
        line.set_linewidth(2)
    return ax


def plot_acceptance(runs: Mapping[str, Any], ax: Any = None) -> Any:
    """Draw the mean acceptance rate of several runs, a dot for each chain and a line at their mean.

    Args:
        runs: by name, of the prior say, a run in ArviZ's format, whose statistic ``acceptance_rate`` is taken, or an
            array of shape (chains, draws).
        ax: Matplotlib axes; None makes a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: for no runs, a run without the statistic, another number of axes, and rates not between 0 and 1.

    Example:
        >>> import numpy as np
        >>> ax = plot_acceptance({"wide": np.full((2, 3), 0.9), "narrow": np.full((2, 3), 0.7)})
        >>> [text.get_text() for text in ax.get_xticklabels()]
        ['wide', 'narrow']
    """
    found = {name: _statistic(name, run, "acceptance_rate") for name, run in _check_names("runs", runs).items()}
    for name, values in found.items():
        if np.any((values < 0) | (values > 1)):
            raise ValueError(
                f"runs[{name!r}] must have rates from 0 to 1, got {values[(values < 0) | (values > 1)][0]}"
            )
    ax = axes_or_new(ax)
    for place, (values, colour) in enumerate(zip(found.values(), cycle(COLOURS), strict=False)):
        chains = values.mean(axis=1)
        across = place + np.linspace(-0.12, 0.12, chains.size) if chains.size > 1 else [place]
        ax.plot(across, chains, linestyle="none", marker="o", markersize=5, color=colour, alpha=0.8)
        ax.hlines(chains.mean(), place - 0.25, place + 0.25, color=colour, linewidth=1.5)
    ax.set_xticks(range(len(found)), list(found))
    ax.set(ylabel="mean acceptance rate", ylim=(0.0, 1.02), xlim=(-0.6, len(found) - 0.4))
    return ax


def plot_rhat(data: Any, ax: Any = None, var_names: Sequence[str] | None = None) -> Any:
    """Draw R-hat by variable, of a network by layer: median, quartiles and range over the variable's coordinates.

    A coordinate that is the same in all draws has no R-hat. Its variable's row is drawn without it, and the row's label
    says how many there are.

    Args:
        data: a posterior in ArviZ's format (``InferenceData``, ``DataTree`` or ``Dataset``), of several chains; or the
            R-hat of each coordinate by name of the variable.
        ax: Matplotlib axes; None makes a new figure.
        var_names: the variables, in order from the top; None for all.

    Returns:
        The axes; the dashed line is 1.01.

    Raises:
        ValueError: for one chain, names that are not there, no variables, draws or given numbers that are not finite,
            and draws of which no R-hat is finite, such as fewer than 4 a chain.

    Example:
        >>> import numpy as np
        >>> ax = plot_rhat({"w1": np.array([1.0, 1.01, 1.2]), "b1": np.array([1.0])})
        >>> [text.get_text() for text in ax.get_yticklabels()]
        ['w1 (3)', 'b1']
    """
    ax = _rows(ax, _by_variable(data, var_names, "rhat"), RHAT_LIMIT)
    ax.set(xlabel="R-hat")
    return ax


def plot_ess(data: Any, ax: Any = None, var_names: Sequence[str] | None = None) -> Any:
    """Draw the bulk effective sample size by variable, of a network by layer, as :func:`plot_rhat` draws R-hat.

    Args:
        data: a posterior in ArviZ's format (``InferenceData``, ``DataTree`` or ``Dataset``); or the effective sample
            size of each coordinate by name of the variable.
        ax: Matplotlib axes; None makes a new figure.
        var_names: the variables, in order from the top; None for all.

    Returns:
        The axes; the dashed line is 400.

    Raises:
        ValueError: for names that are not there, no variables, draws or given numbers that are not finite, and draws of
            which no effective sample size is finite, such as fewer than 4 a chain.

    Example:
        >>> import numpy as np
        >>> plot_ess({"w1": np.array([100.0, 900.0])}).get_xlabel()
        'bulk effective sample size'
    """
    ax = _rows(ax, _by_variable(data, var_names, "ess"), ESS_LIMIT)
    ax.set(xlabel="bulk effective sample size")
    ax.set_xlim(left=0.0)
    return ax


def _check_names(name: str, values: Any) -> Mapping[str, Any]:
    """The values, if they are by name and there are any."""
    check_by_name(name, values)
    if not values:
        raise ValueError(f"{name} must hold at least one entry, got none")
    return values


def _statistic(name: str, run: Any, field: str) -> np.ndarray:
    """A statistic of a run, shape (chains, draws)."""
    if hasattr(run, "groups"):  # InferenceData, DataTree
        if "sample_stats" not in run or field not in run["sample_stats"]:
            raise ValueError(f"runs[{name!r}] must hold the statistic {field!r} in group 'sample_stats', got none")
        run = run["sample_stats"][field].transpose("chain", "draw")
    array = numbers(run)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"runs[{name!r}] must have shape (chains, draws), neither of them 0, got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"runs[{name!r}] must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def _by_variable(data: Any, var_names: Sequence[str] | None, diagnostic: str) -> dict[str, np.ndarray]:
    """A diagnostic of each coordinate by variable, given or computed from draws."""
    if hasattr(data, "groups"):  # InferenceData, DataTree
        data = data["posterior"]
    is_given = isinstance(data, Mapping) and not hasattr(data, "data_vars")
    held = dict(data) if is_given else {str(name): x for name, x in getattr(data, "data_vars", {}).items()}
    names = list(held) if var_names is None else list(var_names)
    if not names or not set(names) <= set(held):
        raise ValueError(f"var_names must be some of {sorted(held)}, at least one, got {shown(var_names)}")
    found = {}
    for name in names:
        values = numbers(held[name] if is_given else held[name].transpose("chain", "draw", ...))
        if not values.size or not np.all(np.isfinite(values)):
            raise ValueError(f"{name} must hold finite numbers, got {shown(values[~np.isfinite(values)][:1].tolist())}")
        if not is_given:
            values = _diagnostic(values, diagnostic)
        found[name] = values.ravel()
    if not any(np.isfinite(values).any() for values in found.values()):
        raise ValueError(
            f"data must have a finite {NAMES[diagnostic]} for at least one coordinate, which takes 4 draws a chain "
            f"that are not all the same, got none in {names}"
        )
    return found


def _diagnostic(draws: np.ndarray, name: str) -> np.ndarray:
    """R-hat or effective sample size of each coordinate of draws of shape (chains, draws, ...)."""
    import arviz
    import xarray

    if name == "rhat" and len(draws) < 2:
        raise ValueError("data must hold several chains for R-hat, got one")
    flat = xarray.Dataset({"x": (("chain", "draw", "at"), draws.reshape(*draws.shape[:2], -1))})
    compute: Any = getattr(arviz, name)
    with np.errstate(divide="ignore", invalid="ignore"):  # for coordinates that are the same in all draws
        return np.asarray(compute(flat)["x"])


def _rows(ax: Any, values: Mapping[str, np.ndarray], limit: float) -> Any:
    """A row for each variable, the first on top: range, quartiles, median of the numbers that are finite."""
    ax = axes_or_new(ax)
    for base, found in zip(reversed(range(len(values))), values.values(), strict=True):
        if not (is_finite := np.isfinite(found)).any():
            continue
        least, low, middle, high, most = np.quantile(found[is_finite], [0.0, 0.25, 0.5, 0.75, 1.0])
        ax.hlines(base, least, most, color=RIGHT_COLOUR, linewidth=1)
        ax.hlines(base, low, high, color=RIGHT_COLOUR, linewidth=5)
        ax.plot(middle, base, marker="o", markersize=5, color="white", markeredgecolor=DATA_COLOUR, zorder=3)
    ax.axvline(limit, color=PRIOR_COLOUR, linestyle="--", linewidth=1, zorder=0)
    ax.set_yticks(range(len(values))[::-1], [_row_name(*item) for item in values.items()])
    ax.set_ylim(-0.6, len(values) - 0.4)
    return ax


def _row_name(name: str, values: np.ndarray) -> str:
    """The name of a variable, with the number of its coordinates when it has several, and of those not drawn."""
    missing = int(np.sum(~np.isfinite(values)))
    notes = [str(values.size)] * (values.size > 1) + [f"{missing} not finite"] * (missing > 0)
    return f"{name} ({', '.join(notes)})" if notes else name
