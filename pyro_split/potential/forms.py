"""A model's arguments as a user has them, in PyTorch.

Arrays of NumPy, lists of numbers, columns of pandas and fields of dataclasses become tensors of the same type, which
are cut to some rows and traced (:mod:`split_common.containers`, :mod:`split_common.forms`). A model that converts its
data itself (``torch.tensor(x)``, ``torch.as_tensor(x)``, ``torch.from_numpy(x)``) finds tensors, which these functions
take while a split runs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import torch
from pyro import poutine
from torch import Tensor

from pyro_split.host import pytree, unvalidated
from pyro_split.potential.arguments import Arguments
from pyro_split.potential.model_rows import is_deterministic, sample_sites
from pyro_split.potential.precision import full_precision
from pyro_split.potential.running import tensors_for_arrays
from pyro_split.potential.sources import tensor_type
from split_common.containers import Opened
from split_common.forms import VALUE_OF, Forms, Framework
from split_common.tables import Operations


def _build(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments = Arguments(args, kwargs)
    return arguments.build(arguments.data)


@full_precision
def _log_probs(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, np.ndarray]:
    store = pyro.get_param_store()
    with store.scope(store.get_state()), torch.random.fork_rng(), torch.no_grad(), poutine.block(), unvalidated():
        torch.manual_seed(0)
        with tensors_for_arrays():
            model_trace = poutine.trace(model).get_trace(*args, **kwargs)
        model_trace.compute_log_prob()
        found = {}
        for name, site in sample_sites(model_trace).items():
            if is_deterministic(site):
                found[f"{VALUE_OF}{name}"] = site["value"].numpy(force=True)
            elif site["is_observed"] or not site["fn"].support.is_discrete:
                found[name] = site["log_prob"].numpy(force=True)
        return found


def _side_by_side(columns: list[Tensor]) -> Tensor:
    kind = functools.reduce(torch.promote_types, (x.dtype for x in columns))
    return torch.stack([x.to(kind) for x in columns], 1)


def _with_keys(opened: Opened) -> tuple[list[tuple[Any, Any]], Any]:
    whole = opened.whole
    return [(Place(whole.path(name)), x) for name, x in zip(whole.names, opened.parts, strict=True)], whole


class Place:
    """The place of a container's part, as an element of a tree path.

    Args:
        text: how messages show it.
    """

    def __init__(self, text: str):
        self._text = text

    def __str__(self) -> str:
        return self._text


pytree.register_pytree_node(
    Opened,
    lambda opened: (list(opened.parts), opened.whole),
    lambda parts, whole: whole.build(parts),
    flatten_with_keys_fn=_with_keys,
)

FORMS = Forms(
    Framework(
        tree_map=pytree.tree_map,
        operations=Operations(
            array=lambda x: torch.from_numpy(x.copy()),
            listed=torch.tensor,
            take=lambda x, rows: x[rows.to(x.device)],
            stack=_side_by_side,
            kind=Tensor,
            dtype=tensor_type,
        ),
        is_alike=lambda model, own, opened: False,  # a tensor has other methods than an array of NumPy
        rounding=1e-4,
        is_array=lambda x: isinstance(x, Tensor) and not isinstance(x, torch.nn.Parameter),
        build=_build,
        log_probs=_log_probs,
    )
)
