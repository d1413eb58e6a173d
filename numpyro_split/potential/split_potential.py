r"""A potential as a sum over subsets of the data rows, and the gradient of each subset.

.. math:: U(z) = \sum_{m=1}^M U_m(z), \qquad U_m(z) = -\tfrac1M \log p(z) - \ell_m(z),

with :math:`\ell_m` the log-likelihood of the rows in subset m (local latents, factors and Jacobians inside the
data plate go with their rows) and :math:`p(z)` everything outside the plate. The sum is exact for every M,
also where M does not divide N.

Evaluating :math:`U_m` takes the memory of one subset. Subsets are cut out by position inside the compiled
function, so one trace serves all of them and compile time does not grow with M. A subset too large for a CPU's cache is
evaluated in blocks (:data:`numpyro_split.potential.arguments.BLOCK_BYTES`), whose sum it is.

Where the rows lie in shards on several devices, a subset is a part of each shard, and what is said of rows is summed
over shards by one all-reduce (:mod:`numpyro_split.potential.shards`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from numpyro_split.potential.arguments import Data, as_array, filled_sizes, is_rows
from numpyro_split.potential.compensated import Compensated, compensated_total
from numpyro_split.potential.densities import Density, FunctionDensity
from numpyro_split.potential.derivatives import grad, value_and_grad
from numpyro_split.potential.forms import FORMS
from numpyro_split.potential.local_rows import LocalRows, energy_and_grad, total_of
from numpyro_split.potential.position import Position, zeros
from numpyro_split.potential.shards import Shards
from numpyro_split.potential.sources import read_rows, sources_in
from split_common.checks import check_callable
from split_common.data_axes import check_lengths
from split_common.sources.rows import wants_sequential
from split_common.subsets import SubsetLayout, check_rows, check_subset


@jax.tree_util.register_pytree_node_class
class SplitPotential:
    """A potential energy that is a sum over subsets of the data.

    Made by :func:`split_model` from a NumPyro model, or by :meth:`from_functions` from two functions. A
    position ``z`` is a dict of unconstrained values by site name. Every method is pure, differentiable, and
    may be called inside JAX transformations.

    Args:
        density: the log-density, which knows how its rows divide; the two functions above make it.
        data: its data arrays, with sources in place of some.

    Attributes:
        num_subsets: M.
        plate: name of the data plate; None for a potential made from functions.
        plate_size: N, the number of rows.
        subset_sizes: rows in each subset, a tuple of M numbers that differ by at most one.
        shards: how the rows lie on several devices; None where they do not.
        num_shards: P, on how many devices the rows lie; 1 where they are not in shards.

    Example:
        >>> import jax.numpy as jnp
        >>> potential = SplitPotential.from_functions(
        ...     lambda z: -0.5 * z["mu"] ** 2, lambda z, y: -0.5 * (y - z["mu"]) ** 2, jnp.arange(4.0), num_subsets=2
        ... )
        >>> z = {"mu": jnp.array(1.0)}
        >>> energy, grad = potential.potential_and_grad(z)
        >>> float(energy), float(grad["mu"])
        (3.5, -1.0)
        >>> sum(float(potential.subset_potential(z, m)) for m in range(2))
        3.5
    """

    held: Any = None  # the user's data, kept alive as long as the potential: tables in them are referred to weakly

    def __init__(self, density: Density, data: Data):
        self._density, self._data = density, data

    def __repr__(self) -> str:
        """The plate, its number of rows, and how many subsets they are divided into."""
        return f"SplitPotential(plate={self.plate!r}, plate_size={self.plate_size}, num_subsets={self.num_subsets})"

    @classmethod
    def from_functions(
        cls,
        log_prior: Callable[[Position], jax.Array],
        log_likelihood: Callable[[Position, Any], jax.Array],
        data: Any,
        num_subsets: int,
        *,
        subset_order: str = "sequential",
    ) -> SplitPotential:
        """Make a split potential without a probabilistic program.

        Args:
            log_prior: ``log_prior(z)``, a scalar.
            log_likelihood: ``log_likelihood(z, batch)`` for some rows of ``data``: one value per row, shape
                (n,), or their sum, a scalar.
            data: array or pytree of arrays; axis 0 of each is the rows, N of them.
            num_subsets: M, from 1 to N.
            subset_order: "sequential" or "shuffled".

        Returns:
            The potential; pass it to a kernel in place of a model.

        Raises:
            ValueError: for arrays of unequal length, no rows, or M outside 1 to N.

        Example:
            >>> import jax.numpy as jnp
            >>> potential = SplitPotential.from_functions(
            ...     lambda z: -0.5 * z["mu"] ** 2, lambda z, y: -0.5 * (y - z["mu"]) ** 2, jnp.ones(10), 3
            ... )
            >>> potential.subset_sizes, float(potential.potential({"mu": jnp.array(1.0)}))
            ((4, 3, 3), 0.5)
        """
        check_callable("log_prior", log_prior)
        check_callable("log_likelihood", log_likelihood)
        opened = FORMS.open(None, (data,), {})[0][0]
        given, treedef = jax.tree.flatten(opened, is_leaf=is_rows)
        leaves = [as_array(leaf) for leaf in given]
        check_lengths({f"data[{i}]": leaf.shape[0] if leaf.ndim else 0 for i, leaf in enumerate(leaves)})
        if not leaves:
            raise ValueError("data must hold at least one array, got none")
        named = [(f"data[{i}]", x) for i, x in enumerate(leaves)]
        wants_sequential(subset_order, [source.where for source in sources_in(leaves)])
        shards = Shards.of(named, [0] * len(leaves), filled_sizes(given))
        num_rows = leaves[0].shape[0] if shards is None else shards.length
        density = FunctionDensity(
            log_prior, log_likelihood, treedef, SubsetLayout(num_rows, num_subsets, subset_order), shards
        )
        potential = cls(density, tuple(leaves))
        potential.held = data
        return potential

    @property
    def num_subsets(self) -> int:
        """M, the number of subsets."""
        return self._density.layout.num_subsets

    @property
    def plate(self) -> str | None:
        """Name of the data plate."""
        return self._density.plate

    @property
    def plate_size(self) -> int:
        """N, the number of rows."""
        shards = self.shards
        return self._density.layout.num_rows if shards is None else shards.num_rows

    @property
    def subset_sizes(self) -> tuple[int, ...]:
        """Rows in each subset."""
        layout, shards = self._density.layout, self.shards
        return layout.sizes if shards is None else shards.subset_sizes(layout)

    @property
    def shards(self) -> Shards | None:
        """How the rows lie on several devices; None where they do not."""
        return self._density.shards

    @property
    def num_shards(self) -> int:
        """P, on how many devices the rows lie; 1 where they are not in shards."""
        return 1 if self.shards is None else self.shards.num

    def over_rows(self, function: Callable[..., Any], *args: Any) -> Any:
        """A function of the rows; where they lie in shards, the sum of its values over these, by one all-reduce.

        Args:
            function: ``function(rows, *args)`` of :class:`~numpyro_split.potential.local_rows.LocalRows`, a tree of
                numbers and compensated ones.
            *args: further arguments of the function; traced values must come this way, not from a closure.
        """
        density, shards = self._density, self.shards
        if shards is None:
            return function(LocalRows(density, self._data), *args)

        def on_shard(data: Data, filled: jax.Array | None, number: jax.Array, *args: Any) -> Any:
            return function(LocalRows(density, data, filled, number), *args)

        return shards.total(on_shard, self._data, density.row_axes(self._data), args, density.layout.sizes[0])

    @jax.jit
    def potential(self, z: Position) -> jax.Array:
        """U(z), a scalar, evaluated (and differentiated) in the memory of one subset."""

        def log_likelihood(rows: LocalRows, z: Position) -> jax.Array:
            subset = lambda m: rows.log_likelihood(z, m)  # noqa: E731
            if self.reads_sources:  # a gradient reads rows again, so that not all of them are kept
                subset = jax.checkpoint(subset)
            return jnp.sum(lax.map(subset, jnp.arange(self.num_subsets)))

        return -total_of(self._density.prior(z, self._data)) - self.over_rows(log_likelihood, z)

    @jax.jit
    def log_prior(self, z: Position) -> jax.Array:
        """Log-density of everything outside the data plate, Jacobians included; a scalar."""
        return total_of(self._density.prior(z, self._data))

    def subset_potential(self, z: Position, m: int | jax.Array) -> jax.Array:
        """U_m(z), a scalar; ``m`` from 0 to M - 1."""
        return self._subset_potential(z, self._subset_index(m))

    def subset_log_likelihood(self, z: Position, m: int | jax.Array) -> jax.Array:
        """Log-likelihood of the rows in subset ``m``, a scalar."""
        return self._subset_log_likelihood(z, self._subset_index(m))

    @jax.jit
    def potential_and_grad(self, z: Position) -> tuple[jax.Array, Position]:
        """U(z) and its gradient, a dict like ``z``, summed subset by subset."""

        def add_subset(total: Any, m: jax.Array) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, self.subset_potential_and_grad(z, m)), None

        zero = (jnp.zeros((), jnp.result_type(float)), zeros(z))
        return lax.scan(add_subset, zero, jnp.arange(self.num_subsets))[0]

    def subset_potential_and_grad(self, z: Position, m: int | jax.Array) -> tuple[jax.Array, Position]:
        """U_m(z) and its gradient, a dict like ``z``."""
        index = self._subset_index(m)
        return value_and_grad(lambda z: self._subset_potential(z, index), self.forward_mode)(z)

    @jax.jit
    def subset_energies_and_grad(self, z: Position, m: jax.Array) -> tuple[Compensated, Position]:
        """The prior's and subset ``m``'s terms of U(z), shape (2,), and the gradient of U_m, from one evaluation."""
        share = 1.0 / self.num_subsets
        prior, prior_grad = self.prior_energy_and_grad(z)
        likelihood, grad = self.over_rows(LocalRows.energy_and_grad, z, m)
        total = jax.tree.map(lambda p, rest: (share * p).astype(rest.dtype) + rest, prior_grad, grad)
        return jax.tree.map(lambda first, second: jnp.stack([first, second]), prior, likelihood), total

    @jax.jit
    def prior_energy_and_grad(self, z: Position) -> tuple[Compensated, Position]:
        """The prior's term of U(z), a scalar, and its gradient, a dict like ``z``."""
        return energy_and_grad(lambda z: self._density.prior(z, self._data), z, self.forward_mode)

    def pointwise_log_likelihood(self, z: Position, indices: jax.Array) -> jax.Array:
        """Log-likelihood of single rows.

        Args:
            z: position.
            indices: row numbers, shape (n,).

        Returns:
            Shape (n,): all that the model says inside the plate about each row, local latents included, so
            that the values of all rows add up to the subsets' log-likelihoods.

        Raises:
            ValueError: for indices that are no row numbers, where they are not traced;
                a model that is run undivided has one row, number 0.
        """
        if not isinstance(indices, Tracer):
            indices = jnp.asarray(check_rows(indices, self.plate_size))
        return self._pointwise_log_likelihood(z, indices)

    @jax.jit
    def _pointwise_log_likelihood(self, z: Position, indices: jax.Array) -> jax.Array:
        return self.over_rows(LocalRows.pointwise, z, indices)

    def row_terms(self, indices: jax.Array) -> Callable[[Position], jax.Array]:
        """The log-likelihood of single rows as a function of the position; rows of sources are read once, here.

        Args:
            indices: row numbers, shape (n,).
        """
        rows = self if self.shards is not None else type(self)(self._density, read_rows(self._data, indices))
        return lambda z: rows._pointwise_log_likelihood(z, indices)

    @jax.jit
    def batch_potential_and_grad(
        self, z: Position, indices: jax.Array, row_weight: float | jax.Array | None = None
    ) -> tuple[jax.Array, Position]:
        """An estimate of U(z) from some rows, and its gradient, a dict like ``z``.

        Args:
            z: position.
            indices: row numbers, shape (n,).
            row_weight: weight of each row; None for N/n, which makes the estimate unbiased for rows drawn
                uniformly.

        Returns:
            -log p(z) - w Σ_i ℓ_i(z) with w the weight, a scalar; and its gradient.
        """
        weight = self.plate_size / indices.shape[0] if row_weight is None else row_weight

        if self.shards is None:
            data = read_rows(self._data, indices)

            def potential(z: Position) -> jax.Array:
                rows = self._density.pointwise(z, data, indices)
                return -total_of(self._density.prior(z, self._data)) - weight * jnp.sum(rows)

            return value_and_grad(potential, self.forward_mode)(z)

        def estimate(rows: LocalRows, z: Position, weight: Any, indices: jax.Array) -> tuple[jax.Array, Position]:
            return value_and_grad(lambda z: -weight * jnp.sum(rows.pointwise(z, indices)), self.forward_mode)(z)

        return self.with_prior(z, self.over_rows(estimate, z, weight, indices))

    def with_prior(self, z: Position, likelihood: tuple[jax.Array, Position]) -> tuple[jax.Array, Position]:
        """The prior's term of U(z) and its gradient added to an energy and its gradient."""
        prior = value_and_grad(lambda z: -self.log_prior(z), self.forward_mode)(z)
        return jax.tree.map(lambda first, rest: first.astype(rest.dtype) + rest, prior, likelihood)

    @jax.jit
    def likelihood_hessian_products(self, z: Position, directions: Position) -> Position:
        """Products of the Hessian of the log-likelihood of all rows, summed subset by subset.

        Args:
            z: position.
            directions: what to multiply the Hessian with, a dict like ``z`` with a leading axis of r directions.

        Returns:
            The products, a dict like ``directions``.
        """

        def products(rows: LocalRows, z: Position, directions: Position) -> Position:
            def add_block(total: Position, place: jax.Array) -> tuple[Position, None]:
                m, b = jnp.divmod(place, self._density.num_blocks)
                of_block = rows.of_block(m, b)
                gradient = grad(lambda z: total_of(of_block.block(z, m, b)), self.forward_mode)
                products = jax.vmap(lambda v: jax.jvp(gradient, (z,), (v,))[1])(directions)
                return jax.tree.map(jnp.add, total, products), None

            zero, places = zeros(directions), self.num_subsets * self._density.num_blocks
            return lax.scan(add_block, zero, jnp.arange(places))[0]

        return self.over_rows(products, z, directions)

    @jax.jit
    def energies(self, z: Position) -> Compensated:
        """The terms of U(z), shape (M + 1,): the prior's, then each subset's, summed without rounding error."""
        prior = compensated_total(self._density.prior(z, self._data))

        def subsets(rows: LocalRows, z: Position) -> Compensated:
            return lax.map(lambda m: rows.energy(z, m), jnp.arange(self.num_subsets))

        return jax.tree.map(lambda first, rest: -jnp.append(first, rest), prior, self.over_rows(subsets, z))

    @jax.jit
    def energies_and_grad(self, z: Position) -> tuple[Compensated, Position]:
        """The terms of U(z), shape (M + 1,), as :meth:`energies` gives them, and the gradient of their sum."""
        if self.shards is None:

            def add_subset(total: Position, m: jax.Array) -> tuple[Position, Compensated]:
                energies, grad = self.subset_energies_and_grad(z, m)
                return jax.tree.map(jnp.add, total, grad), energies

            grad, by_subset = lax.scan(add_subset, zeros(z), jnp.arange(self.num_subsets))
            return jax.tree.map(lambda terms: jnp.append(terms[0, 0], terms[:, 1]), by_subset), grad
        prior, prior_grad = self.prior_energy_and_grad(z)
        by_subset, grad = self.over_rows(LocalRows.energies_and_grad, z)
        total = jax.tree.map(lambda p, rest: p.astype(rest.dtype) + rest, prior_grad, grad)
        return jax.tree.map(jnp.append, prior, by_subset), total

    @jax.jit
    def _subset_potential(self, z: Position, m: jax.Array) -> jax.Array:
        prior = total_of(self._density.prior(z, self._data))
        return -prior / self.num_subsets - self._subset_log_likelihood(z, m)

    @jax.jit
    def _subset_log_likelihood(self, z: Position, m: jax.Array) -> jax.Array:
        return self.over_rows(LocalRows.log_likelihood, z, m)

    def _subset_index(self, m: int | jax.Array) -> jax.Array:
        return jnp.asarray(m if isinstance(m, Tracer) else check_subset(m, self.num_subsets))

    @property
    def data(self) -> Data:
        """The arrays that the potential is bound to."""
        return self._data

    @property
    def reads_sources(self) -> bool:
        """Whether some of the rows are read from sources when they are needed."""
        return bool(sources_in(self._data))

    @property
    def forward_mode(self) -> bool:
        """Whether gradients are taken in forward mode."""
        return self._density.forward_mode

    def in_forward_mode(self) -> SplitPotential:
        """The same potential, with gradients taken in forward mode."""
        density = copy.copy(self._density)
        density.forward_mode = True
        return type(self)(density, self._data)

    def for_program(self, program: str) -> SplitPotential:
        """The same potential; its compiled functions are cached by the digest ``program`` of what it computes."""
        return type(self)(self._density.for_program(program), self._data)

    def tree_flatten(self) -> tuple[Data, Density]:
        """Data arrays as leaves, so that compiled functions take them as arguments, not as constants."""
        return self._data, self._density

    @classmethod
    def tree_unflatten(cls, density: Density, data: Data) -> SplitPotential:
        """Inverse of :meth:`tree_flatten`."""
        return cls(density, tuple(data))
