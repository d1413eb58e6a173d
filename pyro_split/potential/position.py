"""Positions (unconstrained values by site) and arithmetic on them, which also serves momenta and gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import Tensor

Position = dict[str, Tensor]


def zeros(z: Position) -> Position:
    """A position of zeros."""
    return {name: torch.zeros_like(u) for name, u in z.items()}


def add(x: Position, y: Position, scale: float) -> Position:
    """``x + scale * y``, site by site."""
    return {name: torch.add(a, y[name], alpha=scale) for name, a in x.items()}


def subtract(x: Position, y: Position) -> Position:
    """``x - y``, site by site."""
    return {name: a - y[name] for name, a in x.items()}


def hold(x: Position, sites: Collection[str]) -> Position:
    """``x`` with zeros in some sites."""
    return {name: torch.zeros_like(u) if name in sites else u for name, u in x.items()}


def flatten(x: Position, sites: Iterable[str] | None = None, batch_dims: int = 0) -> Tensor:
    """The entries of some sites, or of all, sorted by name, as one vector; leading axes are kept."""
    parts = [x[name].reshape(*x[name].shape[:batch_dims], -1) for name in (sorted(x) if sites is None else sites)]
    return torch.cat(parts, -1)


def in_one_type(x: Position) -> Position:
    """The position with all its sites in the type that holds the types of all."""
    like = flatten(x)
    return {name: u.to(like) for name, u in x.items()}


def unflatten(x: Tensor, like: Position, sites: Iterable[str] | None = None) -> Position:
    """Inverse of :func:`flatten` for values like ``like``; leading axes are kept."""
    names = sorted(like) if sites is None else list(sites)
    parts = x.split([like[name].numel() for name in names], -1)
    return {name: part.reshape((*x.shape[:-1], *like[name].shape)) for name, part in zip(names, parts, strict=True)}
