"""Base of the minibatch kernels: refuses models whose latents have an entry for each row."""

from __future__ import annotations

from typing import Any

from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.splitting.model_split import ModelSplit
from split_common.minibatches import check_no_local_latents


class MinibatchKernel(SplitKernel):
    """Base of the kernels that read a few rows of the data in an iteration, never all of them."""

    def _study_split(self, split: ModelSplit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        check_no_local_latents(type(self).__name__, split.local_sites)
