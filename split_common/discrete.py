"""Discrete latent sites: a model that is divided has none, and a run that sums them out has no draws of them."""

from __future__ import annotations

from collections.abc import Sequence

from split_common.errors import WHOLE_RUNS, ModelNotSplittableError


def check_no_discrete(sites: Sequence[str]) -> None:
    """Raise when the model has discrete latent sites."""
    if sites:
        raise ModelNotSplittableError(
            f"every latent site must be continuous, got discrete latent sites {list(sites)}; marginalise them: "
            "write a mixture as MixtureSameFamily, or sum the likelihood over their values yourself (logsumexp, in a "
            f"factor or a distribution of your own); {WHOLE_RUNS}, summing over finitely many values"
        )


def check_none_summed_out(sites: Sequence[str]) -> None:
    """Raise when log-likelihoods are asked for that depend on discrete latent sites of which there are no draws."""
    if sites:
        raise ValueError(
            f"log_likelihood=True needs draws of every latent site, got none of {list(sites)}, which were summed out"
        )
