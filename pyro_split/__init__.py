"""Exact MCMC for Pyro models on data too large for one gradient."""

from pyro_split import networks, priors
from pyro_split.audit import audit
from pyro_split.dynamic_hmc import XHMC, SplitNUTS
from pyro_split.gibbs import BlockGibbsHMC
from pyro_split.inference_data import to_inference_data
from pyro_split.penalty_mh import PenaltyMH
from pyro_split.potential import SplitPotential
from pyro_split.s3hmc import S3HMC
from pyro_split.split_hmc import NaiveSplitHMC, RandomisedSplitHMC, SplitHMC, SymmetricSplitHMC
from pyro_split.splitting import split_model
from pyro_split.stochastic_gradient import SGHMC, SGLD
from pyro_split.windowed_hmc import WindowedHMC
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
