"""The four schemes of tables 1 to 3: one leapfrog through all rows, and three ways to split it, at equal settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SCHEMES = ("full", "naive", "randomised", "symmetric")
COLUMNS = 2_000  # of parameters whose effective sizes are worked out at a time
STATISTICS = ("accept_prob", "potential_energy", "diverging")


class Setting(NamedTuple):
    """What the schemes have in common.

    Attributes:
        num_subsets: M of the three that split.
        num_steps: L.
        step_size: ε.
        mass: of every weight.
        warmup: iterations before the draws that count, at the same step size.
        draws: of each chain.
        chains: that run side by side.
    """

    num_subsets: int
    num_steps: int
    step_size: float
    mass: float
    warmup: int
    draws: int
    chains: int


class Chains(NamedTuple):
    """What the chains of a scheme leave.

    Attributes:
        draws: by site, shape (chains, draws, ...).
        accept_prob: shape (chains, draws).
        potential_energy: likewise.
        seconds: of all chains, with compilation.
    """

    draws: dict[str, np.ndarray]
    accept_prob: np.ndarray
    potential_energy: np.ndarray
    seconds: float


def of_numpyro(
    scheme: str, model: Any, data: Sequence[Any], setting: Setting, start: Any, seed: int, store: str | None = None
) -> Chains:
    """Run a scheme in NumPyro.

    Args:
        scheme: one of ``SCHEMES``; "full" is the symmetric schedule of one subset, which is leapfrog.
        model: of the rows.
        data: its arguments.
        setting: of the table.
        start: values by site, a leading axis of chains.
        seed: of the chains.
        store: folder that the run is written to and goes on from; None keeps it in memory.
    """
    import time

    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC

    from numpyro_split import NaiveSplitHMC, RandomisedSplitHMC, SymmetricSplitHMC, sample

    kernels = {"naive": NaiveSplitHMC, "randomised": RandomisedSplitHMC}
    kernel = kernels.get(scheme, SymmetricSplitHMC)(
        model,
        1 if scheme == "full" else setting.num_subsets,
        num_steps=setting.num_steps,
        step_size=setting.step_size,
        adapt_step_size=False,
        adapt_mass_matrix=False,
        step_size_jitter=0.0,
        inverse_mass_matrix=None if setting.mass == 1.0 else _inverse_mass(start, setting.mass),
    )
    mcmc = MCMC(
        kernel,
        num_warmup=setting.warmup,
        num_samples=setting.draws,
        num_chains=setting.chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    values = {name: jnp.asarray(u if setting.chains > 1 else u[0]) for name, u in start.items()}
    options: dict[str, Any] = {"extra_fields": STATISTICS, "init_params": values}
    begin = time.perf_counter()
    if store is None:
        mcmc.run(jax.random.key(seed), *data, **options)
    else:
        sample(mcmc, jax.random.key(seed), *data, store=f"{store}/{scheme}_{seed}.zarr", **options)
    draws = {name: np.asarray(u) for name, u in mcmc.get_samples(group_by_chain=True).items()}
    seconds = time.perf_counter() - begin
    fields = {name: np.asarray(u) for name, u in mcmc.get_extra_fields(group_by_chain=True).items()}
    return Chains(draws, fields["accept_prob"], fields["potential_energy"], seconds)


def of_pyro(
    scheme: str, model: Any, data: Sequence[Any], setting: Setting, start: Any, seed: int, store: str | None = None
) -> Chains:
    """Run a scheme in Pyro, its chains one after the other; arguments as of :func:`of_numpyro`."""
    import time

    import pyro
    import torch
    from pyro.infer import MCMC

    from pyro_split import NaiveSplitHMC, RandomisedSplitHMC, SymmetricSplitHMC, sample, to_inference_data

    kernels = {"naive": NaiveSplitHMC, "randomised": RandomisedSplitHMC}
    found, seconds = [], 0.0
    for chain in range(setting.chains):
        kernel = kernels.get(scheme, SymmetricSplitHMC)(
            model,
            1 if scheme == "full" else setting.num_subsets,
            num_steps=setting.num_steps,
            step_size=setting.step_size,
            adapt_step_size=False,
            adapt_mass_matrix=False,
            step_size_jitter=0.0,
            inverse_mass_matrix=None if setting.mass == 1.0 else torch.as_tensor(_inverse_mass(start, setting.mass)),
        )
        mcmc = MCMC(
            kernel,
            num_samples=setting.draws,
            warmup_steps=setting.warmup,
            initial_params={name: torch.as_tensor(u[chain]) for name, u in start.items()},
            disable_progbar=True,
        )
        pyro.set_rng_seed(seed + chain)
        begin = time.perf_counter()
        if store is None:
            mcmc.run(*data)
        else:
            sample(mcmc, *data, store=f"{store}/{scheme}_{seed}_{chain}.zarr")
        seconds += time.perf_counter() - begin
        found.append(to_inference_data(mcmc))
    names = list(start)
    draws = {name: np.concatenate([one.posterior[name].values for one in found]) for name in names}
    accept_prob = np.concatenate([one.sample_stats["acceptance_rate"].values for one in found])
    energy = np.concatenate([-one.sample_stats["lp"].values for one in found])
    return Chains(draws, accept_prob, energy, seconds)


def run_scheme(framework: str, *arguments: Any, **options: Any) -> Chains:
    """Run a scheme in one of the frameworks."""
    return {"numpyro": of_numpyro, "pyro": of_pyro}[framework](*arguments, **options)


def _inverse_mass(start: dict[str, np.ndarray], mass: float) -> np.ndarray:
    return np.full(sum(u[0].size for u in start.values()), 1 / mass, np.float32)


def flat(draws: dict[str, np.ndarray]) -> np.ndarray:
    """All parameters in a row, shape (chains, draws, parameters)."""
    return np.concatenate([u.reshape(*u.shape[:2], -1) for u in draws.values()], axis=2)


def effective_sizes(draws: dict[str, np.ndarray]) -> dict[str, Any]:
    """Mean over parameters of the effective size, the host's function: of all chains together, and of each alone.

    Chains that sit in places of their own make the first about as large as their number, whatever each of them does.
    """
    from numpyro.diagnostics import effective_sample_size

    u = flat(draws)
    blocks = [u[:, :, i : i + COLUMNS].astype(np.float64) for i in range(0, u.shape[2], COLUMNS)]

    def mean(chains: slice) -> float:
        return float(np.mean(np.concatenate([np.asarray(effective_sample_size(block[chains])) for block in blocks])))

    alone = [mean(slice(i, i + 1)) for i in range(len(u))]
    return {"ess": mean(slice(None)), "ess_by_chain": alone}


def summary(scheme: str, chains: Chains) -> dict[str, Any]:
    """Figures of a row."""
    by_chain = chains.accept_prob.mean(axis=1)
    sizes = effective_sizes(chains.draws)
    return {
        "scheme": scheme,
        "accept_prob": float(by_chain.mean()),
        "accept_prob_sd": float(by_chain.std(ddof=1)) if len(by_chain) > 1 else None,
        "accept_prob_by_chain": by_chain.tolist(),
        **sizes,
        "ess_per_second": sizes["ess"] / chains.seconds,
        "potential_energy": [float(x) for x in np.quantile(chains.potential_energy[:, -1], [0, 0.5, 1])],
        "seconds": chains.seconds,
    }


def print_summary(row: dict[str, Any], paper: Sequence[Any] = ()) -> None:
    """A row, the paper's figures behind it."""
    print(
        f"{row['scheme']:11s} acceptance {row['accept_prob']:.3f} ± {row['accept_prob_sd'] or 0:.3f}",
        f" ESS {row['ess']:.2f} (a chain alone "
        f"{np.mean(row['ess_by_chain']):.2f})  {row['seconds']:.0f} s  paper {paper}",
        flush=True,
    )


def setting_from(options: argparse.Namespace) -> Setting:
    """The setting that a command line names."""
    return Setting(*(getattr(options, name) for name in Setting._fields))


def store_of(options: argparse.Namespace) -> str | None:
    """Folder of the run's stores; a run of the published size has one unless told otherwise."""
    folder = options.store or ("paper_runs" if options.full else None)
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return folder
