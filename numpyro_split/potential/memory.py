"""How much memory one gradient of a subset takes, by XLA's own analysis of the program that it compiles for it.

XLA lays out all buffers of a program when it compiles it, so what the gradient will take is known and nothing is run:
its temporary buffers, rows that are cut out of the data and intermediate values among them, and its results, the
gradient and two energies. The data and the position are there before and are not counted. Where rows lie in shards on
several devices, the program is that of one device, and so are the bytes.

A run makes its gradients inside a larger program, whose own buffers (positions and gradients that it keeps, some
vectors of D numbers) come on top, and do not fall with the number of subsets.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from numpyro_split.potential.position import Position
from numpyro_split.potential.split_potential import SplitPotential


def bytes_of_gradient(potential: SplitPotential, z: Position, num_chains: int = 1) -> int:
    """Bytes that one gradient of a subset takes besides the data and the position.

    Args:
        potential: bound to the data.
        z: a position, of which shapes count.
        num_chains: number of chains whose gradients are evaluated at once (``chain_method="vectorized"``).

    Raises:
        ValueError: where XLA makes no such analysis for the device.

    Example:
        >>> potential = SplitPotential.from_functions(
        ...     lambda z: -0.5 * z["w"] @ z["w"], lambda z, x: -jnp.tanh(x @ z["w"]), jnp.ones((1000, 3)), num_subsets=1
        ... )
        >>> 0 < bytes_of_gradient(potential, {"w": jnp.zeros(3)}) < 100_000
        True
    """

    def gradient(potential: SplitPotential, z: Position, m: jax.Array) -> object:
        return potential.subset_energies_and_grad(z, m)

    if num_chains > 1:
        gradient = jax.vmap(gradient, (None, 0, None))
        z = jax.tree.map(lambda u: jax.ShapeDtypeStruct((num_chains, *u.shape), u.dtype), z)
    analysis = jax.jit(gradient).lower(potential, z, jnp.zeros((), jnp.int32)).compile().memory_analysis()
    if analysis is None:
        raise ValueError(
            f"num_subsets must be a number on {jax.default_backend()!r}, for whose programs XLA does not say what "
            "memory they take, got 'auto'"
        )
    return int(analysis.temp_size_in_bytes) + int(analysis.output_size_in_bytes)
