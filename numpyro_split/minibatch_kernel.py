"""What kernels that read a few rows an iteration share: what models they refuse."""

from __future__ import annotations

from typing import Any

from numpyro_split.kernel import SplitKernel
from numpyro_split.splitting import ModelSplit
from split_common.minibatches import check_no_local_latents


class MinibatchKernel(SplitKernel):
    """Base of the kernels that read a few rows of the data in an iteration, never all of them."""

    def _study_split(self, split: ModelSplit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        check_no_local_latents(type(self).__name__, split.local_sites)
