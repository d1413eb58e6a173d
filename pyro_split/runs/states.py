"""Conversion of the states of a chain and of the random number generators to arrays and plain values, and back.

A state is a value made of named tuples, dicts, lists, tensors and numbers. It is written as a tree of JSON, in which an
array's name stands for a tensor and the name of a class for a named tuple. Only classes that are listed here, or that
occur in a new chain's state, are made again, so reading a state does not execute code from the store.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from pyro.ops.dual_averaging import DualAveraging
from torch import Tensor

from pyro_split.adaptation.centering import CenterState
from pyro_split.adaptation.health import Health
from pyro_split.adaptation.step_size_and_metric import WindowMean
from pyro_split.adaptation.threshold import ThresholdState
from pyro_split.host import AdaptState
from pyro_split.kernels.state import ChainState
from pyro_split.potential.expansion import Taylor
from pyro_split.subsampling.num_batches import NoiseState
from split_common.errors import StoreError
from split_common.low_rank_metric import LowRank
from split_common.runs.packed import Packed
from split_common.settling import Settled

TOOLS = ("adapter", "estimator", "forces")  # fields whose objects hold no state, and are made anew
CLASSES = (
    AdaptState,
    CenterState,
    ChainState,
    Health,
    LowRank,
    NoiseState,
    Settled,
    Taylor,
    ThresholdState,
    WindowMean,
)
OBJECTS = {DualAveraging.__name__: DualAveraging}  # classes of the host that are not named tuples
ALIGNMENT = 64  # alignment in bytes of the memory that torch allocates
PLAIN = (bool, int, float, str, type(None))


def pack_state(state: ChainState) -> Packed:
    """A state without its tools.

    Raises:
        TypeError: for an object in the state that cannot be written.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = _tree(state._replace(**dict.fromkeys(TOOLS)), arrays)
    return Packed({"state": tree}, arrays)


def unpack_state(packed: Packed, like: ChainState) -> ChainState:
    """The state that was packed.

    Args:
        packed: made by :func:`pack_state`.
        like: the state of a new chain of the same run, whose tools (``TOOLS``) it takes.

    Raises:
        StoreError: for a class that this package does not know.
    """
    classes = {cls.__name__: cls for cls in (*CLASSES, *_classes_in(like))} | OBJECTS
    device = next(iter(like.z.values())).device
    state = _value(packed.values["state"], packed.arrays, classes, device)
    return state._replace(**{name: getattr(like, name) for name in TOOLS})


def pack_random_state() -> dict[str, np.ndarray]:
    """State of all random number generators that a model may use: torch's, NumPy's and Python's."""
    _, keys, place, has_gauss, cached = np.random.get_state()
    version, words, gauss = random.getstate()
    found = {
        "random/torch": torch.get_rng_state().numpy(),
        "random/numpy": np.array([*keys, place, has_gauss], np.uint64),
        "random/numpy_cached": np.array([cached], float),
        "random/python": np.array([version, *words], np.uint64),
        "random/python_cached": np.array([np.nan if gauss is None else gauss], float),
    }
    if torch.cuda.is_available():
        found |= {f"random/cuda_{i}": x.cpu().numpy() for i, x in enumerate(torch.cuda.get_rng_state_all())}
    return found


def set_random_state(arrays: Mapping[str, np.ndarray]) -> None:
    """Set the random number generators to a state."""
    torch.set_rng_state(torch.from_numpy(arrays["random/torch"]))
    *keys, place, has_gauss = (int(x) for x in arrays["random/numpy"])
    np.random.set_state(
        ("MT19937", np.array(keys, np.uint32), place, has_gauss, float(arrays["random/numpy_cached"][0]))
    )
    version, *words = (int(x) for x in arrays["random/python"])
    gauss = float(arrays["random/python_cached"][0])
    random.setstate((version, tuple(words), None if np.isnan(gauss) else gauss))
    on_devices = [arrays[name] for name in sorted(arrays) if name.startswith("random/cuda_")]
    if on_devices and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([torch.from_numpy(x) for x in on_devices])


def _tree(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON; its arrays are added to ``arrays``."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Tensor):
        return _tree_of_tensor(value.detach().cpu(), arrays)
    if isinstance(value, np.ndarray):
        return {"kind": "array", "name": _added(value.copy(), arrays)}
    if isinstance(value, Mapping):
        return {"kind": "dict", "items": [[_tree(k, arrays), _tree(x, arrays)] for k, x in value.items()]}
    if (fields := _fields(value)) is not None:
        return {"kind": type(value).__name__, "fields": {name: _tree(x, arrays) for name, x in fields.items()}}
    if isinstance(value, tuple | list):
        return {"kind": type(value).__name__, "items": [_tree(x, arrays) for x in value]}
    raise TypeError(f"a state must be made of tensors, numbers, texts and containers to be stored, got {type(value)}")


def _value(tree: Any, arrays: Mapping[str, np.ndarray], classes: Mapping[str, type], device: torch.device) -> Any:
    """The value from JSON made by :func:`_tree`."""
    if not isinstance(tree, dict):
        return tree
    kind = tree["kind"]
    if kind == "tensor":
        return _tensor(tree, arrays).to(device)
    if kind == "array":
        return arrays[tree["name"]]
    if kind == "dict":
        return {_value(k, arrays, classes, device): _value(x, arrays, classes, device) for k, x in tree["items"]}
    if kind in ("tuple", "list"):
        items = [_value(x, arrays, classes, device) for x in tree["items"]]
        return tuple(items) if kind == "tuple" else items
    if kind not in classes:
        raise StoreError(f"store must hold states of this kernel, got one with a {kind}, which its states do not have")
    fields = {name: _value(x, arrays, classes, device) for name, x in tree["fields"].items()}
    if kind not in OBJECTS:
        return classes[kind](**fields)
    made = classes[kind]()
    vars(made).update(fields)
    return made


def _tree_of_tensor(x: Tensor, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """A tensor with its layout in memory, because rounding in sums and products depends on strides and alignment."""
    kept = x[tuple(slice(1) if step == 0 else slice(None) for step in x.stride())]  # one copy of expanded values
    at = x.storage_offset() % max(ALIGNMENT // x.element_size(), 1)
    return {
        "kind": "tensor",
        "name": _added(kept.numpy().copy(), arrays),
        "shape": list(x.shape),
        "stride": list(x.stride()),
        "offset": at,
    }


def _tensor(tree: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Tensor:
    """The tensor of :func:`_tree_of_tensor`."""
    kept, shape, stride, offset = torch.from_numpy(arrays[tree["name"]]), tree["shape"], tree["stride"], tree["offset"]
    extent = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)) if kept.numel() else 0
    memory = torch.empty(offset + extent, dtype=kept.dtype)
    memory.as_strided(kept.shape, stride, offset).copy_(kept)
    return memory.as_strided(shape, stride, offset)


def _added(x: np.ndarray, arrays: dict[str, np.ndarray]) -> str:
    """Add an array to ``arrays`` and return its name."""
    name = str(len(arrays))
    arrays[name] = x
    return name


def _fields(value: Any) -> dict[str, Any] | None:
    """Fields of a named tuple or a dataclass; None for anything else."""
    if type(value).__name__ in OBJECTS:
        return dict(vars(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: getattr(value, name) for name in value._fields}  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _classes_in(value: Any) -> Iterator[type]:
    """Classes of the named tuples and dataclasses in a state."""
    fields = _fields(value)
    if fields is not None:
        yield type(value)
        parts = [x for name, x in fields.items() if name not in TOOLS]
    elif isinstance(value, Mapping):
        parts = list(value.values())
    else:
        parts = list(value) if isinstance(value, tuple | list) else []
    for part in parts:
        yield from _classes_in(part)
