"""Exact MCMC for NumPyro models on data too large for one gradient."""

from numpyro_split import networks, priors
from numpyro_split.audit import audit
from numpyro_split.dynamic_hmc import XHMC, SplitNUTS
from numpyro_split.gibbs import BlockGibbsHMC
from numpyro_split.inference_data import to_inference_data
from numpyro_split.penalty_mh import PenaltyMH
from numpyro_split.potential import SplitPotential
from numpyro_split.s3hmc import S3HMC
from numpyro_split.split_hmc import NaiveSplitHMC, RandomisedSplitHMC, SplitHMC, SymmetricSplitHMC
from numpyro_split.splitting import split_model
from numpyro_split.stochastic_gradient import SGHMC, SGLD
from numpyro_split.windowed_hmc import WindowedHMC
from split_common.checks import ModelNotSplittableError

__all__ = [
    "S3HMC",
    "SGHMC",
    "SGLD",
    "XHMC",
    "BlockGibbsHMC",
    "ModelNotSplittableError",
    "NaiveSplitHMC",
    "PenaltyMH",
    "RandomisedSplitHMC",
    "SplitHMC",
    "SplitNUTS",
    "SplitPotential",
    "SymmetricSplitHMC",
    "WindowedHMC",
    "audit",
    "networks",
    "priors",
    "split_model",
    "to_inference_data",
]
