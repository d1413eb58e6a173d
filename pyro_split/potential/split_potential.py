r"""A potential as a sum over subsets of the data rows, and the gradient of each subset.

.. math:: U(z) = \sum_{m=1}^M U_m(z), \qquad U_m(z) = -\tfrac1M \log p(z) - \ell_m(z),

with :math:`\ell_m` the log-likelihood of the rows in subset m (local latents, factors and Jacobians inside the
data plate go with their rows) and :math:`p(z)` everything outside the plate. The sum is exact for every M,
also where M does not divide N.

Evaluating :math:`U_m` takes the memory of one subset, whose rows are cut out as views where they are contiguous.
The model is traced once for each size of subset (there are at most two), not replayed at every gradient.

Where several processes hold rows (:mod:`pyro_split.potential.ranks`), subset m is made of each one's own subset m; and
where one of them holds several shards of rows, of each shard's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyro_split.host import pytree
from pyro_split.potential.arguments import Data
from pyro_split.potential.capture import Traced, ValueAndGrad, uses, value_and_grad
from pyro_split.potential.densities import Density, FunctionDensity
from pyro_split.potential.forms import FORMS
from pyro_split.potential.position import Position, add, zeros
from pyro_split.potential.ranks import Ranks
from pyro_split.potential.row_block import RowBlock, subset_block
from pyro_split.potential.sources import is_source, placeholder, sources_in, take
from split_common.checks import check_callable
from split_common.containers import Given
from split_common.data_axes import check_lengths
from split_common.sources.rows import wants_sequential
from split_common.subsets import SubsetLayout, check_rows, check_subset

COMPARED_ROWS = 8  # rows of which ranks compare the likelihood
RowFunction = Callable[[list[Position], Callable[[Position], Tensor]], Tensor]


class BoundRows(NamedTuple):
    """Some rows of the data that a potential is bound to.

    Attributes:
        block: the numbers of the rows.
        data: the data tensors on these rows.
    """

    block: RowBlock
    data: Data


class SplitPotential:
    """A potential energy that is a sum over subsets of the data.

    Made by :func:`split_model` from a Pyro model, or by :meth:`from_functions` from two functions. A position
    ``z`` is a dict of unconstrained values by site name. Values are differentiable by autograd; the gradients
    returned by the ``_and_grad`` methods take the memory of one subset.

    Args:
        density: the log-density, which knows how its rows divide; the two functions above make it.
        data: its data tensors, with sources in place of some.
        jit_compile: whether to trace the density once and keep its tensor operations; False runs it at every gradient.
        ranks: which process holds which rows; None where this one holds all.

    Attributes:
        num_subsets: M.
        plate: name of the data plate; None for a potential made from functions.
        plate_size: N, the number of rows.
        subset_sizes: rows in each subset, a tuple of M numbers; in one process they differ by at most one.
        ranks: which process holds which rows.

    Example:
        >>> import torch
        >>> potential = SplitPotential.from_functions(
        ...     lambda z: -0.5 * z["mu"] ** 2, lambda z, y: -0.5 * (y - z["mu"]) ** 2, torch.arange(4.0), num_subsets=2
        ... )
        >>> z = {"mu": torch.tensor(1.0)}
        >>> energy, grad = potential.potential_and_grad(z)
        >>> float(energy), float(grad["mu"])
        (3.5, -1.0)
        >>> sum(float(potential.subset_potential(z, m)) for m in range(2))
        3.5
    """

    held: Any = None  # the user's data, kept alive as long as the potential: tables in them are referred to weakly

    def __init__(self, density: Density, data: Data, jit_compile: bool = True, ranks: Ranks | None = None):
        self._density, self._data, self._jit_compile = density, data, jit_compile
        self._whole = tuple(map(placeholder, data))  # data of the prior, which may depend on no row of a source
        self.ranks = ranks or Ranks((density.layout.num_rows,))
        self._holds_all = self.ranks.is_one  # asked at every gradient
        self._layouts = tuple(map(self._layout, self.ranks.rows_here))
        self._subsets: dict[int, list[BoundRows]] = {}
        self._sites: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The plate, its number of rows, and how many subsets they are divided into."""
        return f"SplitPotential(plate={self.plate!r}, plate_size={self.plate_size}, num_subsets={self.num_subsets})"

    def __getstate__(self) -> dict[str, Any]:
        """The state without views of the data, each of which would be pickled with all the data."""
        return {**self.__dict__, "_subsets": {}}

    @classmethod
    def from_functions(
        cls,
        log_prior: Callable[[Position], Tensor],
        log_likelihood: Callable[[Position, Any], Tensor],
        data: Any,
        num_subsets: int,
        *,
        subset_order: str = "sequential",
        jit_compile: bool = True,
    ) -> SplitPotential:
        """Make a split potential without a probabilistic program.

        Args:
            log_prior: ``log_prior(z)``, a scalar.
            log_likelihood: ``log_likelihood(z, batch)`` for some rows of ``data``: one value per row, shape
                (n,), or their sum, a scalar.
            data: tensor or nested container of tensors; axis 0 of each is the rows, N of them.
            num_subsets: M, from 1 to N.
            subset_order: "sequential" or "shuffled".
            jit_compile: trace the functions once and keep their tensor operations.

        Returns:
            The potential; pass it to a kernel in place of a model.

        Raises:
            ValueError: for tensors of unequal length, no rows, or M outside 1 to N.

        Example:
            >>> import torch
            >>> potential = SplitPotential.from_functions(
            ...     lambda z: -0.5 * z["mu"] ** 2, lambda z, y: -0.5 * (y - z["mu"]) ** 2, torch.ones(10), 3
            ... )
            >>> potential.subset_sizes, float(potential.potential({"mu": torch.tensor(1.0)}))
            ((4, 3, 3), 0.5)
        """
        check_callable("log_prior", log_prior)
        check_callable("log_likelihood", log_likelihood)
        leaves, treedef = pytree.tree_flatten(FORMS.open(None, (data,), {})[0][0])
        leaves = [leaf.array if isinstance(leaf, Given) else leaf for leaf in leaves]
        leaves = [leaf if is_source(leaf) else torch.as_tensor(leaf) for leaf in leaves]
        check_lengths({f"data[{i}]": leaf.shape[0] if leaf.ndim else 0 for i, leaf in enumerate(leaves)})
        if not leaves:
            raise ValueError("data must hold at least one tensor, got none")
        layout = SubsetLayout(leaves[0].shape[0], num_subsets, subset_order)
        wants_sequential(subset_order, [source.where for source in sources_in(leaves)])
        potential = cls(FunctionDensity(log_prior, log_likelihood, treedef, layout), tuple(leaves), jit_compile)
        potential.held = data
        return potential

    def over(self, ranks: Ranks) -> SplitPotential:
        """The potential of the rows of all ranks, of which this process has those of one.

        What autograd differentiates (:meth:`potential`, :meth:`subset_log_likelihood` and what is made of them), and
        :meth:`pointwise_log_likelihood`, stay those of this process's rows.
        """
        potential = SplitPotential(self._density, self._data, self._jit_compile, ranks)
        potential.held = self.held
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
        return self.ranks.total

    @property
    def subset_sizes(self) -> tuple[int, ...]:
        """Rows in each subset."""
        by_shard = (self._layout(num_rows).sizes for num_rows in self.ranks.num_rows)
        return tuple(map(sum, zip(*by_shard, strict=True)))

    def potential(self, z: Position) -> Tensor:
        """U(z), a float64 scalar."""
        subsets = (self.subset_log_likelihood(z, m) for m in range(self.num_subsets))
        return -sum(subsets, self.log_prior(z))

    def log_prior(self, z: Position) -> Tensor:
        """Log-density of everything outside the data plate, Jacobians included; a float64 scalar."""
        return self._density.prior(z, self._whole)

    def subset_potential(self, z: Position, m: int) -> Tensor:
        """U_m(z), a float64 scalar; ``m`` from 0 to M - 1."""
        return -self.log_prior(z) / self.num_subsets - self.subset_log_likelihood(z, m)

    def subset_log_likelihood(self, z: Position, m: int) -> Tensor:
        """Log-likelihood of the rows in subset ``m``, a float64 scalar."""
        axes, of_shards = self._density.local_axes, self._subset(m)
        terms = [self._density.likelihood(x.block.local(z, axes), x.data, x.block.indices) for x in of_shards]
        return sum(terms[1:], terms[0])

    def potential_and_grad(self, z: Position) -> tuple[Tensor, Position]:
        """U(z) and its gradient, a dict like ``z``, summed subset by subset."""
        total, grad = torch.zeros((), dtype=torch.float64), zeros(z)
        for m in range(self.num_subsets):
            value, subset_grad = self.subset_potential_and_grad(z, m)
            total, grad = total + value, {name: grad[name] + subset_grad[name] for name in z}
        return total, grad

    def subset_potential_and_grad(self, z: Position, m: int) -> tuple[Tensor, Position]:
        """U_m(z) and its gradient, a dict like ``z``."""
        energies, grad = self.subset_energies_and_grad(z, m)
        return energies[0] / self.num_subsets + energies[1], grad

    def subset_energies_and_grad(self, z: Position, m: int) -> tuple[tuple[Tensor, Tensor], Position]:
        """The prior's and subset ``m``'s terms of U(z), and the gradient of U_m, from one evaluation."""
        share = 1.0 / self.num_subsets
        prior_value, prior_grad = self._compiled(z)[0].value_and_grad(*self._inputs(z, self._whole))
        value, *grads = self.ranks.sum(z, *(self._rows_and_grad(z, rows) for rows in self._subset(m)))
        total = {name: -(share * p + grad) for name, p, grad in zip(self._sites, prior_grad, grads, strict=True)}
        return (-prior_value, -value), {name: total[name] for name in z}

    def subset_grad(self, z: Position, m: int) -> Position:
        """The gradient of U_m, a dict like ``z``: the same as with the energies, to rounding, and cheaper.

        One trace for prior and likelihood; on a small model most of the time of a kick is that of starting operations.
        """
        prior, likelihood = self._compiled(z)
        if not (prior.traced and likelihood.traced):
            return self.subset_energies_and_grad(z, m)[1]
        whole, program = self._inputs(z, self._whole), "grad" if self._holds_all else "parts"
        by_shard = [self._subset_grad.run(program, *whole, *self._row_inputs(z, rows)) for rows in self._subset(m)]
        found = [grads for grads in by_shard if grads is not None]
        if len(found) < len(by_shard):
            return self.subset_energies_and_grad(z, m)[1]
        grads = found[0]
        if not self._holds_all:
            num_sites, none = len(self._sites), torch.zeros((), dtype=torch.float64)
            # with an unused energy, so that the message is as long as that of a rank where this trace fails
            _, *summed = self.ranks.sum(z, *([none, *parts[num_sites:]] for parts in found))
            grads = [p + grad for p, grad in zip(grads[:num_sites], summed, strict=True)]
        by_site = dict(zip(self._sites, grads, strict=True))
        return {name: by_site[name] for name in z}

    def prior_energy(self, z: Position) -> Tensor:
        """The prior's term of U(z), a float64 scalar, from the model's trace."""
        return -self._compiled(z)[0].value(*self._inputs(z, self._whole))

    def prior_energy_and_grad(self, z: Position) -> tuple[Tensor, Position]:
        """The prior's term of U(z), a float64 scalar, and its gradient, a dict like ``z``."""
        value, grads = self._compiled(z)[0].value_and_grad(*self._inputs(z, self._whole))
        return -value, {name: -grad for name, grad in zip(self._sites, grads, strict=True)}

    def check_ranks(self, z: Position) -> None:
        """Raise unless the ranks have the same prior, and the same likelihood of the first rank's first rows.

        The rows are sent to all ranks. What a model keeps from its first run, closes over or reads elsewhere may be
        another number on each rank, of which no rank can know alone.

        Args:
            z: position, the same on all ranks.

        Raises:
            RanksError: on every rank, where they differ.
        """
        points = [z, {name: u + 0.5 for name, u in z.items()}]  # at a start of 0 much of a model may not count
        rests_on = "a rank's own rows, or on numbers that differ"
        self.ranks.check_same([float(self.prior_energy(x)) for x in points], "outside its data plate", rests_on)
        sent = self._first_rows_of_rank_0(min(COMPARED_ROWS, *self.ranks.num_rows))
        energies = [-float(self._compiled(x)[1].value(*self._row_inputs(x, sent))) for x in points]
        rests_on = "what it keeps from its first run, closes over or reads elsewhere; pass that as an argument"
        self.ranks.check_same(energies, f"of the first {len(sent.block.indices)} rows of rank 0", rests_on)

    def _first_rows_of_rank_0(self, num: int) -> BoundRows:
        """The first rows of rank 0 in place of this process's own, with the data as the likelihood takes them."""
        block, axes = RowBlock(torch.arange(num), 0), self._density.row_axes
        cut = take(block, self._data, axes)
        # copies, as a view is sent with all that it views
        rows = [None if axis is None else x.cpu().clone() for x, axis in zip(cut, axes, strict=True)]
        of_first = self.ranks.of_all(rows if self.ranks.rank == 0 else [])[0]
        data = []
        for own, row, axis in zip(self.bound(block).data, of_first, axes, strict=True):
            if row is None or axis is None:
                data.append(own)
            else:  # as many rows as are cut, or all with others in front where the model itself selects
                data.append(torch.cat([row.to(own.device), own.narrow(axis, num, own.shape[axis] - num)], axis))
        return BoundRows(block, tuple(data))

    def likelihood_uses(self, z: Position, names: Collection[str]) -> bool:
        """Whether the likelihood of any row may depend on one of these sites, at whatever position.

        Args:
            z: a position, of which only shapes count.
            names: names of the sites.
        """
        sites, density = sorted(z, key=lambda name: name not in names), self._density  # those asked about first

        def likelihood(*tensors: Tensor) -> Tensor:
            return density.likelihood(dict(zip(sites, tensors, strict=False)), tensors[len(sites) : -1], tensors[-1])

        def inputs(rows: BoundRows) -> tuple[Tensor, ...]:
            z_cut = rows.block.local(z, density.local_axes)
            return (*(z_cut[name] for name in sites), *rows.data, rows.block.indices)

        try:
            of_each_size = [rows for m in dict.fromkeys((0, self.num_subsets - 1)) for rows in self._subset(m)]
            return any(uses(likelihood, inputs(rows), len(names)) for rows in of_each_size)
        except Exception:  # a model that cannot be traced may use any site
            return True

    def pointwise_log_likelihood(self, z: Position, indices: Tensor) -> Tensor:
        """Log-likelihood of single rows.

        Args:
            z: position.
            indices: row numbers, shape (n,).

        Returns:
            Shape (n,): all that the model says inside the plate about each row, local latents included, so
            that the values of all rows add up to the subsets' log-likelihoods.

        Raises:
            ValueError: for indices that are no row numbers, where no transformation of PyTorch's hides them;
                a model that is run undivided has one row, number 0.
        """
        block, data = self.bound(RowBlock(_row_numbers(indices, self._density.layout.num_rows)))
        return self._density.pointwise(block.local(z, self._density.local_axes), data, block.indices)

    def batch_potential_and_grad(
        self, z: Position, indices: Tensor, row_weight: float | None = None
    ) -> tuple[Tensor, Position]:
        """An estimate of U(z) from some rows, and its gradient, a dict like ``z``.

        Args:
            z: position.
            indices: row numbers, shape (n,), among those of all ranks.
            row_weight: weight of each row; None for N/n, which makes the estimate unbiased for rows drawn
                uniformly.

        Returns:
            -log p(z) - w Σ_i ℓ_i(z) with w the weight, a float64 scalar; and its gradient.
        """
        weight = self.plate_size / len(indices) if row_weight is None else row_weight
        prior_value, prior_grad = self._compiled(z)[0].value_and_grad(*self._inputs(z, self._whole))
        of_rows = self.ranks.of_rows(indices, lambda rows: self._rows_and_grad(z, self.bound(RowBlock(rows))))
        value, *grads = self.ranks.sum(z, of_rows)
        total = {name: -(p + weight * grad) for name, p, grad in zip(self._sites, prior_grad, grads, strict=True)}
        return -(prior_value + weight * value), {name: total[name] for name in z}

    def likelihood_hessian_products(self, z: Position, directions: Position) -> Position:
        """Products of the Hessian of the log-likelihood of all rows, summed subset by subset.

        Args:
            z: position.
            directions: what to multiply the Hessian with, a dict like ``z`` with a leading axis of r directions.

        Returns:
            The products, a dict like ``directions``.
        """
        by_shard = [zeros(directions) for _ in self._layouts]
        for m in range(self.num_subsets):
            of_subset = [self._hessian_products(z, rows, directions) for rows in self._subset(m)]
            by_shard = [add(total, one, 1.0) for total, one in zip(by_shard, of_subset, strict=True)]
        return self._summed(z, by_shard)

    def subset_hessian_products(self, z: Position, m: int, directions: Position) -> Position:
        """Products of the Hessian of the log-likelihood of the rows in subset ``m``; shapes as for all rows."""
        return self._summed(z, [self._hessian_products(z, rows, directions) for rows in self._subset(m)])

    def _hessian_products(self, z: Position, rows: BoundRows, directions: Position) -> Position:
        """Products of the Hessian of the log-likelihood of some of this process's rows."""
        total, (block, data) = zeros(directions), rows
        leaves = {name: u.detach().clone().requires_grad_() for name, u in z.items()}
        with torch.enable_grad():
            value = self._density.likelihood(block.local(leaves, self._density.local_axes), data, block.indices)
            grads = _gradient(value, leaves, create_graph=True)
            for i in range(len(next(iter(directions.values())))):
                slope = sum((grads[name] * directions[name][i]).sum() for name in z)
                product = _gradient(slope, leaves, retain_graph=True)
                for name in z:
                    total[name][i] += product[name]
        return total

    def row_function(self, function: RowFunction, num_positions: int, sites: Sequence[str]) -> ValueAndGrad:
        """A function of positions and some rows, run without the model after its first call.

        Args:
            function: ``function(positions, row_terms)``, a tensor, from positions and the map from a position to the
                log-likelihoods of the rows, shape (n,).
            num_positions: number of positions that it takes.
            sites: names of the latent sites.

        Returns:
            To be called with the tensors that :meth:`row_inputs` makes of positions and row numbers.
        """
        sites, density = sorted(sites), self._density

        def evaluate(*tensors: Tensor) -> Tensor:
            by_position = [tensors[i * len(sites) : (i + 1) * len(sites)] for i in range(num_positions)]
            data, indices = tensors[num_positions * len(sites) : -1], tensors[-1]
            positions = [dict(zip(sites, values, strict=True)) for values in by_position]
            return function(positions, lambda z: density.pointwise(z, data, indices))

        return ValueAndGrad(evaluate, len(sites), self._jit_compile, writes=True)

    def row_inputs(self, positions: Sequence[Position], indices: Tensor) -> tuple[Tensor, ...]:
        """Inputs of a :meth:`row_function`: the positions' values, the rows of the data, their numbers.

        Args:
            positions: the positions at which the function is taken.
            indices: numbers of the rows, shape (n,), in any order and with repeats.
        """
        return self.row_inputs_of([positions], indices)[0]

    def row_inputs_of(self, groups: Sequence[Sequence[Position]], indices: Tensor) -> list[tuple[Tensor, ...]]:
        """Inputs as :meth:`row_inputs` makes them, for each group of positions, of the same rows, read once.

        Args:
            groups: the positions of each call of the function.
            indices: numbers of the rows, shape (n,), in any order and with repeats.
        """
        rows = self.bound(RowBlock(indices)).data
        return [(*(z[name] for z in positions for name in sorted(z)), *rows, indices) for positions in groups]

    @property
    def reads_sources(self) -> bool:
        """Whether some of the rows are read from sources when they are needed."""
        return bool(sources_in(self._data))

    def row_sum(self, function: ValueAndGrad, positions: Sequence[Position], indices: Tensor) -> Tensor:
        """Value of a :meth:`row_function` that is a sum over rows.

        Args:
            function: the function.
            positions: the positions at which it is taken.
            indices: numbers of the rows, shape (n,), in any order and with repeats.
        """

        def of_rows(rows: Tensor) -> list[Tensor]:
            return [function.value(*self.row_inputs(positions, rows))]

        return self.ranks.sum(positions[0], self.ranks.of_rows(indices, of_rows))[0]

    def row_values(self, function: ValueAndGrad, positions: Sequence[Position], indices: Tensor) -> Tensor:
        """Values of a :meth:`row_function`, rows on its last axis, in float64 on the CPU; 0 for rows not held here.

        Args:
            function: the function.
            positions: the positions at which it is taken.
            indices: numbers of the rows, shape (n,), in any order and with repeats.
        """
        return self.ranks.values(indices, lambda rows: function.value(*self.row_inputs(positions, rows)).double().cpu())

    def energies(self, z: Position) -> Tensor:
        """The terms of U(z) in float64, shape (M + 1,): the prior's, then each subset's."""
        prior, likelihood = self._compiled(z)
        terms = [prior.value(*self._inputs(z, self._whole)).cpu()]
        subsets = map(self._subset, range(self.num_subsets))
        by_subset = [[likelihood.value(*self._row_inputs(z, rows)).cpu() for rows in shards] for shards in subsets]
        by_shard = list(zip(*by_subset, strict=True))
        return -torch.stack([*terms, *(by_shard[0] if self._holds_all else self.ranks.sum(z, *by_shard))])

    def energies_and_grad(self, z: Position) -> tuple[Tensor, Position]:
        """The terms of U(z), shape (M + 1,), as :meth:`energies` gives them, and the gradient of their sum."""
        prior_value, prior_grad = self._compiled(z)[0].value_and_grad(*self._inputs(z, self._whole))
        summed = self.ranks.sum(z, *(self._shard_and_grad(z, shard) for shard in range(len(self._layouts))))
        values, grads = summed[: self.num_subsets], summed[self.num_subsets :]
        total = {name: -(p + grad) for name, p, grad in zip(self._sites, prior_grad, grads, strict=True)}
        return -torch.stack([prior_value.cpu(), *values]), {name: total[name] for name in z}

    def _shard_and_grad(self, z: Position, shard: int) -> list[Tensor]:
        """Log-likelihoods of a shard's subsets, and the gradient of their sum in each site."""
        values, totals = [], list(zeros({name: z[name] for name in self._sites}).values())
        for m in range(self.num_subsets):
            value, *grads = self._rows_and_grad(z, self._subset(m)[shard])
            values.append(value.cpu())
            totals = [total + grad for total, grad in zip(totals, grads, strict=True)]
        return [*values, *totals]

    def _rows_and_grad(self, z: Position, rows: BoundRows) -> list[Tensor]:
        """Log-likelihood of some of this process's rows, and its gradient in each site, as wide as ``z``."""
        likelihood = self._compiled(z)[1]
        value, grads = likelihood.value_and_grad(*self._row_inputs(z, rows))
        local = dict(zip(self._sites, grads, strict=True))
        grad = rows.block.spread(local, z, self._density.local_axes)
        return [value, *(grad[name] for name in self._sites)]

    def _summed(self, z: Position, by_shard: Sequence[Position]) -> Position:
        """Sums over ranks of what each has computed at ``z``, for each of its shards."""
        return dict(zip(by_shard[0], self.ranks.sum(z, *(list(x.values()) for x in by_shard)), strict=True))

    def _compiled(self, z: Position) -> tuple[ValueAndGrad, ValueAndGrad]:
        """Prior and likelihood as functions of a flat list of tensors, for positions with the sites of ``z``."""
        sites = tuple(sorted(z))
        if self._sites != sites:
            self._sites, density, num_sites = sites, self._density, len(sites)
            num_data, share = len(self._data), 1.0 / self.num_subsets

            def prior(*tensors: Tensor) -> Tensor:
                return density.prior(dict(zip(sites, tensors, strict=False)), tensors[num_sites:])

            def likelihood(*tensors: Tensor) -> Tensor:
                z_cut = dict(zip(sites, tensors, strict=False))
                return density.likelihood(z_cut, tensors[num_sites:-1], tensors[-1])

            def subset_parts(*tensors: Tensor) -> list[Tensor]:
                whole, of_rows = tensors[: num_sites + num_data], tensors[num_sites + num_data :]
                prior_grad = value_and_grad(prior, num_sites, *whole, factor=-share)[1:]
                return [*prior_grad, *value_and_grad(likelihood, num_sites, *of_rows, factor=-1.0)[1:]]

            def subset_grad(*tensors: Tensor) -> list[Tensor]:
                parts, whole = subset_parts(*tensors), dict(zip(sites, tensors, strict=False))
                local = dict(zip(sites, parts[num_sites:], strict=True))
                grad = RowBlock(tensors[-1]).spread(local, whole, density.local_axes)
                return [p + grad[name] for name, p in zip(sites, parts[:num_sites], strict=True)]

            self._prior = ValueAndGrad(prior, num_sites, self._jit_compile)
            self._likelihood = ValueAndGrad(likelihood, num_sites, self._jit_compile)
            self._subset_grad = Traced({"grad": subset_grad, "parts": subset_parts}, self._jit_compile)
        return self._prior, self._likelihood

    def _inputs(self, z: Position, data: Data) -> tuple[Tensor, ...]:
        return (*(z[name] for name in self._sites), *data)

    def _row_inputs(self, z: Position, rows: BoundRows) -> tuple[Tensor, ...]:
        block, axes = rows.block, self._density.local_axes
        return (*self._inputs(block.local(z, axes) if axes else z, rows.data), block.indices)

    def _subset(self, m: int) -> list[BoundRows]:
        """The rows of subset ``m`` in each shard here; cached where they are views, as copies of all might not fit."""
        if m in self._subsets:
            return self._subsets[m]
        m = check_subset(m, self.num_subsets)
        firsts = [0, *accumulate(layout.num_rows for layout in self._layouts[:-1])]
        blocks = [subset_block(layout, m, first) for layout, first in zip(self._layouts, firsts, strict=True)]
        rows = [self.bound(block) for block in blocks]
        if all(block.start is not None for block in blocks) and not self.reads_sources:
            self._subsets[m] = rows
        return rows

    def _layout(self, num_rows: int) -> SubsetLayout:
        """How a shard of so many rows is divided."""
        own = self._density.layout
        return own if num_rows == own.num_rows else SubsetLayout(num_rows, own.num_subsets, own.subset_order)

    def bound(self, block: RowBlock) -> BoundRows:
        """Some of this process's rows, with their data.

        Args:
            block: the numbers of the rows.
        """
        return BoundRows(block, self._density.take(self._data, block))


def _row_numbers(indices: Any, num_rows: int) -> Tensor:
    """Row numbers as a tensor, checked where their values can be read."""
    try:
        numbers = check_rows(indices.cpu() if isinstance(indices, Tensor) else indices, num_rows)
    except RuntimeError:  # as `torch.func.jvp` and `vmap` raise for the values of any tensor
        return torch.as_tensor(indices)
    return indices if isinstance(indices, Tensor) else torch.as_tensor(numbers)


def _gradient(value: Any, leaves: Position, **options: Any) -> Position:
    """Gradient of a scalar in each leaf, zero where it does not depend on it."""
    if not (isinstance(value, Tensor) and value.requires_grad):
        return zeros(leaves)
    grads = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, **options)
    return {name: torch.zeros_like(u) if g is None else g for (name, u), g in zip(leaves.items(), grads, strict=True)}


def collect_energies(by_subset: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """The terms of a potential, shape (M + 1,), from the prior's and the subset's as each subset gave them."""
    return torch.stack([by_subset[0][0], *(likelihood for _, likelihood in by_subset)]).cpu()
