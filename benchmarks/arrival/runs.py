"""Runs of a kernel in either framework, and what they are compared by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import arviz as az
import numpy as np

from split_common.report import LEAST_ESS, MOST_RHAT, Report

NUM_WARMUP, NUM_DRAWS, NUM_CHAINS, NUM_SUBSETS = 300, 500, 4, 4
MOMENTS: dict[str, Callable[..., Any]] = {"mean": np.mean, "sd": np.std}
REPORTED = ("num_steps", "diverging", "energy", "accept_prob", "adapt_state.step_size")  # fields of the host's NUTS
MOST_STEPS = 2**10 - 1  # of the host's trees


class Run(NamedTuple):
    """Draws by site, shape (chains, draws, ...), gradients in data passes, and the checks of a report that failed.

    Of the host's NUTS these are checks that need no more than its statistics and draws; of Pyro's, whose energies and
    step sizes its ``MCMC`` does not keep, divergences, R-hat and effective draws.
    """

    draws: dict[str, np.ndarray]
    passes: float
    trouble: list[str]


def host_of(lib: Any, model: Callable[..., None]) -> Callable[[], Any]:
    """What makes the host's NUTS; Pyro's by its compiler, which takes half the time."""
    if lib.name == "numpyro":
        from numpyro.infer import NUTS

        return partial(NUTS, model)
    from pyro.infer import NUTS

    return partial(NUTS, model, jit_compile=True, ignore_jit_warnings=True)


def runs_of(
    lib: Any, make: Callable[[], Any], args: tuple[Any, ...], num_subsets: int | None, seeds: Sequence[int]
) -> list[Run]:
    """Runs of a kernel, one for each seed.

    Args:
        lib: the backend of the framework.
        make: makes the kernel.
        args: of the model.
        num_subsets: M; None for the host's NUTS.
        seeds: of the runs.
    """
    return (_run_numpyro if lib.name == "numpyro" else _run_pyro)(make, args, num_subsets, seeds)


def _run_numpyro(
    make: Callable[[], Any], args: tuple[Any, ...], num_subsets: int | None, seeds: Sequence[int]
) -> list[Run]:
    """Runs of NumPyro's, one for each seed."""
    import jax
    from numpyro.infer import MCMC

    jax.clear_caches()  # of compiled programs a process can hold only so many
    kernel = make()
    sizes = {"num_warmup": NUM_WARMUP, "num_samples": NUM_DRAWS, "num_chains": NUM_CHAINS}
    mcmc = MCMC(kernel, **sizes, chain_method="vectorized", progress_bar=False)
    field = "num_steps" if num_subsets is None else "num_grads"
    fields = REPORTED if num_subsets is None else (field,)
    runs = []
    for seed in seeds:
        mcmc.warmup(jax.random.key(seed), *args, collect_warmup=True, extra_fields=(field,))
        spent = np.asarray(mcmc.get_extra_fields()[field]).sum()
        mcmc.run(jax.random.key(seed + 100), *args, extra_fields=fields)
        spent = spent + np.asarray(mcmc.get_extra_fields()[field]).sum()
        draws = {name: np.asarray(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}
        report = _report_of_host(mcmc) if num_subsets is None else kernel.report(mcmc)
        trouble = [check.name for check in report.trouble]
        runs.append(Run(draws, float(spent) / (num_subsets or 1), trouble))
        mcmc.post_warmup_state = None
    return runs


def _report_of_host(mcmc: Any) -> Report:
    """The report on a run of NumPyro's NUTS."""
    run = az.from_numpyro(mcmc, log_likelihood=False)
    run["sample_stats"]["reached_max_treedepth"] = run["sample_stats"]["n_steps"] >= MOST_STEPS
    return Report.of(run, "NUTS")


def _run_pyro(
    make: Callable[[], Any], args: tuple[Any, ...], num_subsets: int | None, seeds: Sequence[int]
) -> list[Run]:
    """Runs of Pyro's, one for each seed; the host's gradients are counted by a hook."""
    import pyro
    from pyro.infer import MCMC

    spent = [0.0]

    def counted(build: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any) -> Any:
            spent[0] += 1
            return build(*args)

        return count

    def count(kernel: Any, *_: Any) -> None:
        spent[0] += kernel._chain.state.num_grads

    hook = None if num_subsets is None else count
    runs = []
    for seed in seeds:
        draws, trouble, spent[0] = [], [], 0.0
        for chain in range(NUM_CHAINS):
            pyro.set_rng_seed(seed * 100 + chain)
            kernel = make()  # the host's is for one run
            if num_subsets is None:
                kernel._build_basetree = counted(kernel._build_basetree)  # one gradient each
            mcmc = MCMC(kernel, NUM_DRAWS, NUM_WARMUP, disable_progbar=True, hook_fn=hook)
            mcmc.run(*args)
            draws.append(mcmc.get_samples())
            if num_subsets is not None:
                trouble += [check.name for check in kernel.report(mcmc).trouble]
            elif any(mcmc.diagnostics()["divergences"].values()):
                trouble += ["divergences"]
        joined = {name: np.stack([d[name].numpy() for d in draws]) for name in draws[0]}
        of_chains = {name for name in trouble if name != "effective draws"}  # which are few in one chain alone
        told = sorted({*of_chains, *_trouble_of_draws(joined)})
        runs.append(Run(joined, spent[0] / (num_subsets or 1), told))
    return runs


def _trouble_of_draws(draws: dict[str, np.ndarray]) -> list[str]:
    """What the report says of the draws of all chains together, where each chain was a run and has a report."""
    whole = az.convert_to_dataset(draws)
    rhat = max(float(az.rhat(whole)[name].max()) for name in draws)
    ess = min(float(az.ess(whole, method=method)[name].min()) for name in draws for method in ("bulk", "tail"))
    return [*(["R-hat"] if rhat > MOST_RHAT else []), *(["effective draws"] if ess < LEAST_ESS else [])]


def compare(ours: Run, host: Run) -> dict[str, Any]:
    """R-hat and effective draws of a run, and its moments against the host's."""
    rhat, ess, z = [], [], []
    for name in host.draws:
        a, b = (x.draws[name].reshape(NUM_CHAINS, NUM_DRAWS, -1) for x in (ours, host))
        for i in range(a.shape[-1]):
            if np.ptp(b[:, :, i]) == 0:
                continue
            rhat.append(float(az.rhat(a[:, :, i])))
            ess.append(float(az.ess(a[:, :, i])))
            for method, moment in MOMENTS.items():
                errors = [float(az.mcse(x[:, :, i], method=method)) for x in (a, b)]
                z.append(abs(float(moment(a[:, :, i])) - float(moment(b[:, :, i]))) / float(np.hypot(*errors)))
    return {
        "rhat": round(max(rhat), 4),
        "ess": round(min(ess)),
        "z": 0.0 if ours is host else round(max(z), 2),
        "passes": round(ours.passes / host.passes, 3),
        "trouble": ours.trouble,
    }
