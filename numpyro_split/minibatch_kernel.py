"""What kernels that read a few rows an iteration share: what models they refuse, by what they know changed data."""

from __future__ import annotations

from typing import Any

import jax

from numpyro_split.kernel import SplitKernel, data_fingerprint
from numpyro_split.potential import SplitPotential
from numpyro_split.splitting import ModelSplit
from split_common.minibatches import FINGERPRINT_ENTRIES, check_no_local_latents


class MinibatchKernel(SplitKernel):
    """Base of the kernels that read a few rows of the data in an iteration, never all of them."""

    def _study_split(self, split: ModelSplit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        check_no_local_latents(type(self).__name__, split.local_sites)

    def _fingerprint(self, potential: SplitPotential) -> jax.Array:
        return data_fingerprint(potential, FINGERPRINT_ENTRIES)
