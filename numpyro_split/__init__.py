"""Exact MCMC for NumPyro models on data too large for one gradient."""

from numpyro_split.adaptation.stored_metric import center_of, metric_of, step_size_of
from numpyro_split.inference_data import to_inference_data
from numpyro_split.kernels.block_gibbs import BlockGibbsHMC
from numpyro_split.kernels.penalty_mh import PenaltyMH
from numpyro_split.kernels.s3hmc import S3HMC
from numpyro_split.kernels.sghmc import SGHMC
from numpyro_split.kernels.sgld import SGLD
from numpyro_split.kernels.split_hmc import NaiveSplitHMC, RandomisedSplitHMC, SplitHMC, SymmetricSplitHMC
from numpyro_split.kernels.split_nuts import SplitNUTS
from numpyro_split.kernels.windowed_hmc import WindowedHMC
from numpyro_split.kernels.xhmc import XHMC
from numpyro_split.models import networks, priors
from numpyro_split.potential.sharded_rows import ShardedRows, shard_rows
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.runs.prediction import log_likelihood, predict
from numpyro_split.runs.sample import sample
from numpyro_split.splitting.model_split import split_model
from numpyro_split.subsampling.audit import audit
from split_common import metrics, plots
from split_common.errors import ModelNotSplittableError, RanksError, SourceError, StoreError
from split_common.runs.elpd import loo, waic
from split_common.runs.reading import open_store, summary_of
from split_common.runs.stopping import StopWhen
from split_common.schedule import Reversal, Schedule
from split_common.sources.rows import Rows
from split_common.sources.shuffle import shuffle_rows
from split_common.sources.tables import table_rows
from split_common.stochastic_gradient import polynomial_decay

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
    "RanksError",
    "Reversal",
    "Rows",
    "Schedule",
    "ShardedRows",
    "SourceError",
    "SplitHMC",
    "SplitNUTS",
    "SplitPotential",
    "StopWhen",
    "StoreError",
    "SymmetricSplitHMC",
    "WindowedHMC",
    "audit",
    "center_of",
    "log_likelihood",
    "loo",
    "metric_of",
    "metrics",
    "networks",
    "open_store",
    "plots",
    "polynomial_decay",
    "predict",
    "priors",
    "sample",
    "shard_rows",
    "shuffle_rows",
    "split_model",
    "step_size_of",
    "summary_of",
    "table_rows",
    "to_inference_data",
    "waic",
]
