"""Report on a finished run: problems that its statistics show, each with advice.

Everything is read from the run in ArviZ's format, so that both packages, and runs that were saved, are judged alike.
The limits are those of Stan and of the literature, as far as there are any.

References:
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization: an improved
    R-hat, Bayesian Analysis 16. Betancourt (2016), Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte
    Carlo, arXiv 1604.00695.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from split_common import harmonic
from split_common.certainty import LARGEST_TAIL_ERROR
from split_common.exploration import MAX_EXPLORATION_DEPTH
from split_common.fixed_length import MAX_STEPS, MOST_MEAN_STEPS
from split_common.health import LEAST_BFMI, WARN_ABOVE_SHARE, get_watched
from split_common.penalty import TRUSTED_NOISE
from split_common.settling import METRIC_LIMIT, THRESHOLD_LIMIT, VALUE_LIMIT, Settled, get_settled

MOST_COMPONENTS = 200  # components of the draws whose R-hat and effective sample size are computed
MOST_RHAT = 1.02  # limit for chains that agree; the highest of so many components is sometimes above 1.01 by chance
LEAST_ESS = 100  # effective draws of all chains together, below which no standard error can be trusted
LEAST_DRAWS = 4  # draws of a chain below which ArviZ has neither R-hat nor effective sample sizes
DRAW_MORE = "Too few to trust means, intervals or their errors: draw more, or make warm-up longer."
APPROXIMATE = (
    "approximate draws: there is no accept step, and no statistic shows the error that step_size and batch_size make; "
    "compare with an exact kernel, or with half the step_size"
)
ONE_REFERENCE = "chains without init_params all start beside one reference: that they agree says nothing of other modes"
TARGET = "target"  # attribute of the draws that names the distribution sampled, where it is not the posterior
FREE_SITES = "free_sites"  # attribute of the draws: latent sites of which every number moves by itself
COARSE = 0.2  # square of the spacing of energies, in variances of theirs, above which E-BFMI is that of their rounding
LEAST_ACCEPTANCE = 0.1  # least mean acceptance of a chain
MOST_UNLIKE = 4.0  # largest ratio of the chains' longest step size to the shortest
# Log densities of a chain's first half may fall so many times as far below the median of the second half as those of
# the second half do. They fall exponentially seldom whatever the posterior's tails, so the halves' lowest differ by
# about a nat: of 50,000 chains of 400 independent draws none had a ratio above 5.9, of 20,000 of 1,000 none above 3.9;
# with 13 effective draws in a half, 1 chain of 1,000 has more than 6.
MOST_FALL = 6.0
LEAST_HALF = 100  # draws of half a chain below which lowest values say little


class Check(NamedTuple):
    """One check of a run.

    Attributes:
        name: what was checked.
        value: the value that was found; of several chains or parameters the worst.
        limit: value beyond which the check fails.
        is_fine: whether it is on the right side of the limit.
        seen: sentence that says what was found.
        advice: what to do where the check fails.
    """

    name: str
    value: float
    limit: float
    is_fine: bool
    seen: str
    advice: str


class Report(NamedTuple):
    """Findings about a run; ``print`` it for a text.

    Attributes:
        title: kernel, chains and draws.
        verdict: how the model divides, and how that is known; empty for a run without a model.
        checks: all checks that were made.
        settled: the values that warm-up settled on; empty where nothing adapted, or where they are not known.

    Example:
        >>> fine = Check("divergences", 0.0, 0.0, True, "none of 400 draws diverged", "")
        >>> print(Report("SplitNUTS: 4 chains of 100 draws", "", (fine,)))
        SplitNUTS: 4 chains of 100 draws
          fine: none of 400 draws diverged
    """

    title: str
    verdict: str
    checks: tuple[Check, ...]
    settled: str = ""

    @classmethod
    def of(cls, run: Any, kernel: str) -> Report:
        """The report on a run in ArviZ's format: ``arviz.InferenceData``, or ``xarray.DataTree``."""
        draws = run["posterior"]
        num_chains, num_draws = int(draws.sizes["chain"]), int(draws.sizes["draw"])
        title = f"{kernel}: {num_chains} chain{'s' * (num_chains > 1)} of {num_draws} draw{'s' * (num_draws > 1)}"
        statistics = run["sample_stats"]
        if target := draws.attrs.get(TARGET):
            title += f"\n  draws of {target}, not of the posterior"
        if "chi2" in statistics and num_chains > 1:
            title += f"\n  {ONE_REFERENCE}"
        if not _accepts(statistics):
            title += f"\n  {APPROXIMATE}"
        elif _has_energies(statistics) and (spacing := _coarse_spacing(np.asarray(statistics["energy"]))):
            title += (
                f"\n  E-BFMI is not known unless it is low: single precision keeps these energies to {spacing:.2g} "
                "nats, and rounding hides how slowly they change; double precision tells"
            )
        settled = get_settled(statistics)
        checks = (*_of_statistics(statistics), *_of_warmup(settled), *_of_draws(draws))
        return cls(title, draws.attrs.get("split", ""), checks, ", ".join(filter(None, _settled(statistics, settled))))

    @property
    def trouble(self) -> list[Check]:
        """Checks that are not fine."""
        return [check for check in self.checks if not check.is_fine]

    @property
    def table(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each check."""
        import pandas

        return pandas.DataFrame(self.checks, columns=list(Check._fields)).set_index("name")

    def __str__(self) -> str:
        """A line for each check: failed checks first, with advice."""
        lines = [self.title]
        if self.verdict:
            lines.append(f"  how the model divides: {self.verdict}")
        if self.settled:
            lines.append(f"  warm-up settled on: {self.settled}")
        lines += [f"  TROUBLE: {check.seen}. {check.advice}" for check in self.trouble]
        return "\n".join(lines + [f"  fine: {check.seen}" for check in self.checks if check.is_fine])

    def warn(self) -> None:
        """Give one warning that names all failed checks, if there are any."""
        if self.trouble:
            found = "; ".join(check.seen for check in self.trouble)
            warnings.warn(f"{found}. What to do about it: print(kernel.report(mcmc))", stacklevel=3)


def check_reported(sampler: Any, kernel: type) -> None:
    """Raise unless the sampler of a run is a kernel of this package."""
    if not isinstance(sampler, kernel):
        raise TypeError(f"mcmc must have been run with a kernel of this package, got one of {type(sampler).__name__}")


def warn_of_target(target: str) -> None:
    """Warn that log-likelihoods are of draws of another distribution than the posterior, named by ``target``."""
    warnings.warn(
        f"the log-likelihoods are of draws of {target}: az.loo and az.waic take them for draws of the posterior",
        stacklevel=3,
    )


def note_free_sites(draws: Any, sizes: Mapping[str, int] | None) -> None:
    """Note in draws the latent sites of which every number moves by itself, so that none is the same in all draws.

    Numbers of other sites may be constant: those of deterministic ones, and zeros of a Cholesky factor.

    Args:
        draws: the draws, each of shape (chains, draws, ...).
        sizes: number of unconstrained values at each latent site; None where draws are of these values.
    """
    numbers = {str(name): math.prod(x.shape[2:]) for name, x in draws.data_vars.items()}
    free = [name for name, number in numbers.items() if sizes is None or sizes.get(name) == number]
    if free:
        draws.attrs[FREE_SITES] = free


def check_has_draws(has_draws: bool) -> None:
    """Raise unless a run has draws."""
    if not has_draws:
        raise ValueError(
            'mcmc must have been run, got no draws; of a run with keep="summaries" the store has the findings: '
            "kernel.report(path), open_store(path)"
        )


def _accepts(statistics: Any) -> bool:
    """Whether a run's kernel has an accept step; kernels with noisy gradients alone have none."""
    return "rows_touched" not in statistics or "chi2" in statistics


def _has_energies(statistics: Any) -> bool:
    """Whether a run has energies of all rows; kernels that count rows have estimates, or none of a Hamiltonian."""
    return "rows_touched" not in statistics


def _of_statistics(statistics: Any) -> Iterator[Check]:
    """Checks of the sampler's statistics, each of shape (chains, draws)."""
    of = {str(name): np.asarray(statistics[name]) for name in statistics.data_vars}
    watched, accepts = get_watched(statistics), _accepts(statistics)
    if watched is None:
        yield _divergences(int(of["diverging"].sum()), f"{of['diverging'].size} draws", accepts)
    else:
        yield _divergences(int(sum(watched.num_diverging)), "all iterations since warm-up", accepts)
    if _has_energies(statistics):
        if of["energy"].shape[1] > 1:
            bfmi = _bfmi(of["energy"].astype(float)) if watched is None else np.asarray(watched.bfmi)
            if not (bfmi.min() >= LEAST_BFMI and _coarse_spacing(of["energy"])):
                yield _energies(float(bfmi.min()))
        if "lp" in of and of["lp"].shape[1] >= 2 * LEAST_HALF and np.isfinite(of["lp"]).all():
            yield _arrival(float(_fall(of["lp"]).max()))
        if "reached_max_treedepth" in of:
            yield _depth(float(of["reached_max_treedepth"].mean()))
        else:
            yield _cut(float(np.mean(of["n_steps"] == MAX_STEPS)))  # only a given number of steps may be above
    if "chi2" in of:
        yield _noise(float(np.mean(of["chi2"] > TRUSTED_NOISE * of["num_batches"])))
    if "tail_error" in of:
        yield _tail(float(of["tail_error"].mean()))
    if accepts:
        yield _acceptance(of["acceptance_rate"].mean(axis=1))
    if len(of["step_size"]) > 1:  # one chain has no other to compare with
        yield _step_sizes(of["step_size"].mean(axis=1))


def _divergences(number: int, of: str, adapts: bool) -> Check:
    seen = f"{number or 'none'} of {of} diverged"
    smaller = "raise target_accept_prob (0.95)" if adapts else "lower step_size"
    advice = (
        f"Where trajectories diverge, draws are missing: {smaller}, reparametrise the model (LocScaleReparam for "
        "hierarchies), or give its scales tighter priors."
    )
    return Check("divergences", number, 0, not number, seen, advice)


def _bfmi(energy: np.ndarray) -> np.ndarray:
    """E-BFMI of each chain."""
    change, spread = np.mean(np.diff(energy, axis=1) ** 2, axis=1), np.var(energy, axis=1)
    return change / np.where(spread == 0, np.inf, spread)


def _coarse_spacing(energy: np.ndarray) -> float:
    """Spacing of floating-point numbers at these energies, if it is so wide that their changes are rounding; else 0.

    Each is a sum of rounded terms, whose error has a variance of about spacing²/4; E-BFMI grows by twice that over the
    variance of the energies.
    """
    if not np.isfinite(energy).all():
        return 0.0
    spacing, least = float(np.spacing(np.abs(energy).max())), float(np.var(energy.astype(float), axis=1).min())
    return spacing if spacing**2 > COARSE * least > 0 else 0.0


def _energies(worst: float) -> Check:
    advice = "The energies are explored slowly: the tails are heavy or scales are funnels; reparametrise the model."
    seen = f"the lowest E-BFMI of a chain is {worst:.2f}"
    return Check("E-BFMI", worst, LEAST_BFMI, worst >= LEAST_BFMI, seen, advice)


def _fall(lp: np.ndarray) -> np.ndarray:
    """How far the log densities of each chain's first half fall, in units of how far those of its second half do."""
    first, second = lp[:, : lp.shape[1] // 2], lp[:, lp.shape[1] // 2 :]
    median = np.median(second, axis=1)
    unit = median - second.min(axis=1)
    return (median - first.min(axis=1)) / np.where(unit == 0, np.inf, unit)


def _arrival(worst: float) -> Check:
    seen = f"log densities of a chain's first half fall {worst:.1f} times as far as those of its second half"
    advice = (
        "That chain was on its way when its draws began, and means and standard deviations have the way in them: make "
        "warm-up longer, start it nearer, or leave its first draws out."
    )
    return Check("arrival", worst, MOST_FALL, worst <= MOST_FALL, seen, advice)


def _cut(share: float) -> Check:
    advice = (
        "The draws are exact, but correlated: give a longer warm-up, a larger step_size or a shorter trajectory, and "
        "check inverse_mass_matrix."
    )
    seen = f"{share:.0%} of the trajectories were cut off at {MAX_STEPS} steps"
    return Check("cut trajectories", share, WARN_ABOVE_SHARE, share <= WARN_ABOVE_SHARE, seen, advice)


def _depth(share: float) -> Check:
    seen = f"{share:.0%} of the trajectories ended at max_tree_depth"
    advice = "The draws are exact, but correlated: raise max_tree_depth, or reparametrise the model."
    return Check("depth limit", share, WARN_ABOVE_SHARE, share <= WARN_ABOVE_SHARE, seen, advice)


def _noise(share: float) -> Check:
    seen = f"χ² was above K/4 in {share:.0%} of the draws"
    advice = (
        "The draws may be biased; audit(mcmc) measures by how much. Raise num_batches or batch_size, set target_noise, "
        "use a control variate, or lower step_size."
    )
    return Check("noise", share, WARN_ABOVE_SHARE, share <= WARN_ABOVE_SHARE, seen, advice)


def _tail(error: float) -> Check:
    seen = f"rows that an iteration does not read may put the log-density off by {error:.2g} (by those it reads)"
    advice = (
        "The noise comes from single rows, so the draws may be biased; audit(mcmc) measures by how much. Raise "
        "batch_size (that many of the most influential rows are read in every iteration) or num_batches, or use an "
        "exact kernel."
    )
    return Check("influential rows", error, LARGEST_TAIL_ERROR, error <= LARGEST_TAIL_ERROR, seen, advice)


def _acceptance(by_chain: np.ndarray) -> Check:
    worst = float(by_chain.min())
    seen = f"the lowest mean acceptance of a chain is {worst:.2f}"
    advice = "That chain hardly moves: make warm-up longer, lower step_size, or start it elsewhere."
    return Check("acceptance", worst, LEAST_ACCEPTANCE, worst >= LEAST_ACCEPTANCE, seen, advice)


def _step_sizes(by_chain: np.ndarray) -> Check:
    ratio = float(by_chain.max() / by_chain.min()) if by_chain.min() > 0 else np.inf
    seen = f"the chains' step sizes differ by a factor of {ratio:.1f}"
    advice = "The adaptation had not settled, or the chains are in different regions: make warm-up longer."
    return Check("step sizes", ratio, MOST_UNLIKE, ratio <= MOST_UNLIKE, seen, advice)


def _settled(statistics: Any, settled: Settled) -> Iterator[str]:
    """What warm-up settled on, in words."""
    yield settled.text
    if "center_order" in statistics:
        orders = sorted({int(order) for order in np.unique(statistics["center_order"])})
        words = {0: "not centred", 1: "centred to first order", 2: "centred to second order"}
        yield "splitting " + " or ".join(words[order] for order in orders)
    if "harmonic_drift" in statistics:
        forms = sorted({bool(is_harmonic) for is_harmonic in np.unique(statistics["harmonic_drift"])})
        straight = (
            "straight (the posterior was not found nearly normal, for which the metric's last window needs "
            f"{harmonic.DRAWS_PER_PARAMETER} draws a parameter, {harmonic.LEAST_DRAWS} at least)"
        )
        described = {True: "along a normal approximation", False: straight}
        yield "drifts " + " or ".join(described[is_harmonic] for is_harmonic in forms)


def _of_warmup(settled: Settled) -> Iterator[Check]:
    """Checks of how far adapted values still moved late in warm-up, for chains in which that is known."""
    if settled.metric_change.size:
        factor = float(np.exp(settled.metric_change.max()))
        seen = f"variances of the last window of warm-up differ from the metric's by a factor of {factor:.2g}"
        advice = (
            "The metric had not settled: chains arrived late, or move slowly, so that draws correlate more than they "
            "need to. Make warm-up longer, or reparametrise the model so that its scales differ less."
        )
        yield Check("settled metric", factor, METRIC_LIMIT, factor <= METRIC_LIMIT, seen, advice)
    if settled.trajectory_length.size and settled.step_size.size:
        steps = float(np.max(settled.trajectory_length / settled.step_size))
        seen = f"the learned trajectories are up to {steps:.0f} steps long"
        advice = (
            f"Many trees of warm-up were cut off at depth {MAX_EXPLORATION_DEPTH}, so that trajectories are too short, "
            "and draws correlated. Make warm-up longer, give inverse_mass_matrix, or reparametrise the model."
        )
        yield Check("cut warm-up", steps, MOST_MEAN_STEPS, steps <= MOST_MEAN_STEPS, seen, advice)
    for name in settled.of_values:
        change = getattr(settled, f"{name}_change")
        if change.size:
            factor, words = float(np.exp(change.max())), name.replace("_", " ")
            limit = THRESHOLD_LIMIT if name == "threshold" else VALUE_LIMIT
            seen = f"the {words} moved by a factor of {factor:.2g} in the last window of warm-up"
            advice = f"The {words} had not settled: make warm-up longer."
            yield Check(f"settled {words}", factor, limit, factor <= limit, seen, advice)


def _of_draws(draws: Any) -> Iterator[Check]:
    """Checks of the draws: whether the chains agree, and how many effective draws they have."""
    if name := _not_finite(draws):
        advice = "Draws that are not finite come from the model's transformations or deterministic sites: look there."
        yield Check("finite draws", 0.0, 1.0, False, f"some draws of {name} are not finite", advice)
    num_chains, num_draws = (int(draws.sizes[dimension]) for dimension in ("chain", "draw"))
    if draws.data_vars and num_draws < LEAST_DRAWS:  # where one draw is constant too
        seen = f"{num_draws} draws of a chain are too few to tell whether chains agree"
        yield Check("effective draws", float(num_chains * num_draws), LEAST_ESS, False, seen, DRAW_MORE)
        return
    names, x = _components(draws)
    stuck = _constant(draws, draws.attrs.get(FREE_SITES, ()))
    if stuck := stuck or ([] if names else _constant(draws, draws.data_vars)):
        who = f"{stuck[0]} has" if len(stuck) == 1 else f"{stuck[0]} and {len(stuck) - 1} more have"
        advice = (
            "Chains stand still there: the step size is too small, every proposal was refused, or single precision "
            "cannot hold changes as small as these of a number as large (subtract a constant, or use double precision)."
        )
        yield Check("moving parameters", float(len(stuck)), 0.0, False, f"{who} one value in all draws", advice)
    if not names:
        return
    import arviz
    import xarray

    whole = xarray.Dataset({"x": (("chain", "draw", "at"), x)})
    if len(x) > 1:  # one chain has no other to compare with
        compare: Any = arviz.rhat
        rhat = np.asarray(compare(whole)["x"])
        yield _convergence(names[int(np.argmax(rhat))], float(rhat.max()))
    ess = np.minimum(*(np.asarray(arviz.ess(whole, method=method)["x"]) for method in ("bulk", "tail")))
    yield _knowledge(names[int(np.argmin(ess))], float(ess.min()))


def _not_finite(draws: Any) -> str:
    """Name of the first component with a draw that is infinite or NaN; "" where there is none."""
    for name, variable in draws.data_vars.items():
        values = np.asarray(variable)
        if values.dtype.kind == "f" and not (finite := np.isfinite(values).all(axis=(0, 1))).all():
            return _named(name, int(np.argmin(finite)), values.shape[2:])
    return ""


def _constant(draws: Any, sites: Iterable[str]) -> list[str]:
    """Names of the components of some sites that are the same in all draws of all chains."""
    found = []
    for name in sites:
        values = np.asarray(draws[name]) if name in draws else np.zeros((0, 0, 0))
        if values.size:
            is_constant = np.ravel(values.min((0, 1)) == values.max((0, 1)))
            found += [_named(name, int(at), values.shape[2:]) for at in np.flatnonzero(is_constant)]
    return found


def _components(draws: Any) -> tuple[list[str], np.ndarray]:
    """Names and values, shape (chains, draws, components), of some components that are finite and not constant."""
    found: list[list[tuple[str, np.ndarray]]] = []
    for name, variable in draws.data_vars.items():
        values = np.asarray(variable)
        if values.dtype.kind not in "fiub":
            continue
        flat = values.reshape(*values.shape[:2], -1)
        columns = [(at, flat[:, :, at].astype(float)) for at in evenly(flat.shape[-1], MOST_COMPONENTS)]
        judged = [(at, x) for at, x in columns if np.isfinite(x).all() and not np.all(x == x.flat[0])]
        found.append([(_named(name, at, values.shape[2:]), x) for at, x in judged])
    numbers = shares([len(judged) for judged in found], MOST_COMPONENTS)
    kept = [judged[i] for judged, num in zip(found, numbers, strict=True) for i in evenly(len(judged), num)]
    return [name for name, _ in kept], np.stack([x for _, x in kept], -1) if kept else np.zeros((0, 0, 0))


def shares(sizes: Sequence[int], most: int) -> list[int]:
    """How many components of each variable are looked at, ``most`` in all: as many of each, or all that it has.

    At least one of each variable, also where there are more than ``most``: a scale that many weights share is one
    number beside theirs, and often the worst.

    Example:
        >>> shares([1000, 1, 90, 1000], 200), shares([2, 2, 2], 2)
        ([66, 1, 66, 67], [1, 1, 1])
    """
    numbers, left = [0] * len(sizes), most
    for done, i in enumerate(sorted(range(len(sizes)), key=lambda i: sizes[i])):
        numbers[i] = min(sizes[i], max(left // (len(sizes) - done), 1))
        left -= numbers[i]
    return numbers


def evenly(number: int, most: int) -> np.ndarray:
    """Evenly spaced places among ``number`` of them, at most ``most``.

    Example:
        >>> evenly(9, 3)
        array([0, 4, 8])
    """
    return np.linspace(0, number - 1, min(number, most)).round().astype(int)


def _named(name: Any, at: int, shape: tuple[int, ...]) -> str:
    """Name of a component of a variable, with its indices."""
    return f"{name}{list(map(int, np.unravel_index(at, shape))) or ''}"


def _convergence(name: str, rhat: float) -> Check:
    advice = (
        "The chains have not met: make warm-up and run longer, look at the traces of that parameter for several "
        "modes or a chain that is stuck, and reparametrise the model."
    )
    return Check("R-hat", rhat, MOST_RHAT, rhat <= MOST_RHAT, f"the highest R-hat is {rhat:.3f}, of {name}", advice)


def _knowledge(name: str, ess: float) -> Check:
    seen = f"the fewest effective draws are {ess:.0f}, of {name}"
    return Check("effective draws", ess, LEAST_ESS, ess >= LEAST_ESS, seen, DRAW_MORE)
