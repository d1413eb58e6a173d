"""Stochastic-gradient Langevin dynamics and Hamiltonian Monte Carlo: approximate, without an accept-reject decision.

Target: p(z|y)^(1/T), only approximately at any step size. Both kernels use one transition. For its step, its bias and
the references, see :mod:`split_common.stochastic_gradient`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.kernels.method import Setup
from numpyro_split.kernels.options import SPLITTING_DEFAULTS, SplittingOptions
from numpyro_split.kernels.state import ChainState, Warmup
from numpyro_split.potential.content import DataDigest
from numpyro_split.potential.derivatives import value_and_grad
from numpyro_split.potential.local_rows import LocalRows
from numpyro_split.potential.position import Position, zeros
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.splitting.settings import Splitting
from numpyro_split.subsampling.rows import draw_from_shard, draw_minibatch
from split_common.minibatches import LEAST_SUBSETS, check_no_local_latents
from split_common.options import with_options
from split_common.stochastic_gradient import (
    STATISTICS,
    Dynamics,
    Kick,
    StepSizes,
    adapts,
    check_batch_size,
    check_can_adapt,
    check_preconditioner,
    check_preconditioner_sizes,
    check_step_size,
    rms_diagonal,
    rms_update,
    site_diagonals,
    step_size_at,
)


class Point(NamedTuple):
    """A point of a trajectory.

    Attributes:
        z: position.
        momentum: momentum r.
        mean_square: mean square of gradients divided by N; None where no preconditioner adapts.
        energy: estimate of U before the last step.
        is_finite: whether all estimates of U so far are finite.
    """

    z: Position
    momentum: Position
    mean_square: Position | None
    energy: jax.Array
    is_finite: jax.Array


def noisy_steps(
    state: ChainState,
    potential: SplitPotential,
    dynamics: Dynamics,
    preconditioner: Any,
    step_size: Any,
    in_warmup: jax.Array,
) -> ChainState:
    """One iteration: L steps, each with a gradient from newly drawn rows.

    Args:
        state: current state of the chain.
        potential: potential, bound to the data.
        dynamics: number and form of the steps.
        preconditioner: None, "rmsprop", or a diagonal as :func:`~split_common.stochastic_gradient.site_diagonals`
            takes it.
        step_size: step size η.
        in_warmup: whether this is an iteration of warm-up, in which a preconditioner may adapt.

    Returns:
        The next state, with ``i`` and ``step_size`` those of this iteration.
    """
    rng_key, key_momentum, key_steps = random.split(state.rng_key, 3)
    momentum = draw_momentum(state.z, dynamics.temperature, key_momentum) if dynamics.draws_momentum else state.momentum
    num_steps, rows = dynamics.num_steps, potential.plate_size

    def step(point: Point, part: tuple[Kick, jax.Array, jax.Array]) -> tuple[Point, None]:
        kick, t, rng_key = part
        key_rows, key_noise = random.split(rng_key)
        energy, grad = estimate(potential, point.z, dynamics.batch_size, key_rows)
        mean_square = point.mean_square
        if mean_square is not None:
            adapted = {name: rms_update(v, grad[name] / rows, t) for name, v in mean_square.items()}
            mean_square = {k: jnp.where(in_warmup, adapted[k], v).astype(v.dtype) for k, v in mean_square.items()}
        diagonal = _diagonal(preconditioner, mean_square, point.z)
        noise = draw_momentum(point.z, 1.0, key_noise)
        z, momentum = {}, {}
        for name, u in point.z.items():
            scale, r = jnp.sqrt(step_size * diagonal[name]), point.momentum[name]
            r = (1 - kick.friction) * r - kick.weight * scale * grad[name] + kick.noise * noise[name]
            z[name], momentum[name] = (u + scale * r).astype(u.dtype), r.astype(u.dtype)
        energy = energy.astype(point.energy.dtype)
        return Point(z, momentum, mean_square, energy, point.is_finite & jnp.isfinite(energy)), None

    start = Point(state.z, momentum, state.mean_square, state.potential_energy, jnp.array(True))
    kicks = Kick(*(jnp.array(column) for column in zip(*dynamics.kicks, strict=True)))
    parts = (kicks, state.i * num_steps + jnp.arange(num_steps), random.split(key_steps, num_steps))
    end = lax.scan(step, start, parts)[0]
    return _arrived(state, start, end, dynamics)._replace(rng_key=rng_key)


def estimate(
    potential: SplitPotential, z: Position, batch_size: int | None, rng_key: jax.Array
) -> tuple[jax.Array, Position]:
    """Unbiased estimates of U(z) and its gradient from newly drawn rows; exact ones for a ``batch_size`` of None.

    If rows lie in shards, each shard draws its share of the rows (:mod:`numpyro_split.subsampling.rows`).
    """
    if batch_size is None:
        energies, grad = potential.energies_and_grad(z)
        return jnp.sum(energies.value), grad

    if potential.shards is None:
        return potential.batch_potential_and_grad(z, draw_minibatch(rng_key, potential.plate_size, batch_size))

    def of_likelihood(rows: LocalRows, z: Position, rng_key: jax.Array) -> tuple[jax.Array, Position]:
        drawn = draw_from_shard(rows, batch_size, rng_key)
        return value_and_grad(lambda z: -drawn.weight * jnp.sum(rows.drawn(z, drawn.rows)), potential.forward_mode)(z)

    return potential.with_prior(z, potential.over_rows(of_likelihood, z, rng_key))


def draw_momentum(z: Position, temperature: float, rng_key: jax.Array) -> Position:
    """A draw from N(0, T I), a dict like ``z``."""
    keys = random.split(rng_key, len(z))
    return {
        name: temperature**0.5 * random.normal(key, z[name].shape, z[name].dtype)
        for name, key in zip(sorted(z), keys, strict=True)
    }


def _diagonal(preconditioner: Any, mean_square: Position | None, z: Position) -> Position:
    """The diagonal of G, a dict like ``z``."""
    if mean_square is not None:
        return {name: rms_diagonal(v) for name, v in mean_square.items()}
    given = site_diagonals(preconditioner, {name: u.shape for name, u in z.items()})
    return {name: jnp.asarray(x, z[name].dtype) for name, x in given.items()}


def _arrived(state: ChainState, start: Point, end: Point, dynamics: Dynamics) -> ChainState:
    """``state`` at the end of a trajectory, or at its start if the end is not finite."""
    moved = jax.tree.leaves((end.z, end.momentum, end.mean_square))
    is_finite = end.is_finite & jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in moved]))
    z, momentum, mean_square = jax.tree.map(
        lambda new, old: jnp.where(is_finite, new, old),
        (end.z, end.momentum, end.mean_square),
        (start.z, start.momentum, start.mean_square),
    )
    energy = end.energy
    if dynamics.has_kinetic_energy:
        energy = energy + sum(0.5 * jnp.sum(r**2) for r in end.momentum.values())
    return state._replace(
        z=z,
        momentum=momentum,
        mean_square=mean_square,
        potential_energy=end.energy,
        energy=energy.astype(state.energy.dtype),
        diverging=~is_finite,
    )


@dataclass(frozen=True)
class StochasticGradient:
    """Steps by noisy gradients without an accept-reject decision, a :class:`~numpyro_split.kernels.method.Method`.

    Attributes:
        name: name of the kernel in messages.
        dynamics: number and form of the steps.
        step_size: step size η, or a function of the iteration number.
        preconditioner: None, "rmsprop", or a diagonal.
        num_warmup: number of warm-up iterations; 0 before it is known.
    """

    name: str
    dynamics: Dynamics
    step_size: float | StepSizes
    preconditioner: Any
    num_warmup: int = 0
    statistics = STATISTICS
    layout = ()
    plan = ""
    rests_on_data = False
    given_start = None
    free_fields = ()

    @classmethod
    def checked(cls, name: str, dynamics: Dynamics, step_size: Any, preconditioner: Any) -> StochasticGradient:
        """The method that a kernel's arguments ask for.

        Raises:
            ValueError: for an argument out of range.
        """
        return cls(name, dynamics, check_step_size(step_size), check_preconditioner(preconditioner))

    @property
    def details(self) -> list[str]:
        """No text besides the kernel's own."""
        return []

    @property
    def shared_fields(self) -> Mapping[str, Any]:
        """No field is shared between chains."""
        return {}

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Number of rows of a gradient, unless all rows are read."""
        size = check_batch_size(self.dynamics.batch_size, num_rows)
        return [] if size is None else [size]

    def check_warmup(self, num_warmup: int) -> None:
        """Raise if there is no warm-up in which the preconditioner could adapt."""
        check_can_adapt(self.preconditioner, "num_warmup", num_warmup)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise unless a given preconditioner fits the sites."""
        check_preconditioner_sizes(self.preconditioner, sizes)

    def for_subsets(self, num_subsets: int) -> StochasticGradient:
        """The method itself: its steps do not depend on the number of subsets."""
        return self

    def prepare(self, setup: Setup) -> StochasticGradient:
        """The method with the length of warm-up.

        Raises:
            ValueError: for latent sites inside the data plate, unless all rows are read.
        """
        if setup.split is not None and self.dynamics.batch_size is not None:
            check_no_local_latents(self.name, setup.split.local_sites)
        return replace(self, num_warmup=setup.num_warmup)

    def without_data(self) -> StochasticGradient:
        """The method itself: nothing in it depends on the data."""
        return self

    def find_start(self, rng_key: jax.Array) -> None:
        """No start of its own: the host's strategy finds the starting point."""

    def start(self, potential: SplitPotential, z: Position, rng_key: jax.Array) -> ChainState:
        """The state of a chain at its starting point."""
        check_batch_size(self.dynamics.batch_size, potential.plate_size)
        key_momentum, key_chain = random.split(rng_key)
        energy = jnp.sum(potential.energies(z).value)
        num_grads, rows_touched = self.dynamics.cost(potential.plate_size, potential.num_subsets, potential.num_shards)
        return ChainState(
            i=jnp.zeros((), jnp.result_type(int)),
            z=z,
            momentum=draw_momentum(z, self.dynamics.temperature, key_momentum),
            mean_square=zeros(z) if adapts(self.preconditioner) else None,
            potential_energy=energy,
            energy=energy,
            num_steps=jnp.array(self.dynamics.num_steps),
            num_grads=jnp.array(num_grads),
            rows_touched=jnp.array(rows_touched),
            accept_prob=jnp.ones(()),
            mean_accept_prob=jnp.ones(()),
            diverging=jnp.array(False),
            step_size=self._step_size_at(jnp.zeros((), jnp.result_type(int))),
            data_digest=DataDigest.unknown(),
            warmup=Warmup(self.num_warmup),
            rng_key=key_chain,
        )

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state after one iteration."""
        step_size, in_warmup = self._step_size_at(state.i), state.i < self.num_warmup
        moved = noisy_steps(state, potential, self.dynamics, self.preconditioner, step_size, in_warmup)
        return moved._replace(i=state.i + 1, step_size=step_size)

    def refresh(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state as it is: it caches nothing that depends on the data."""
        return state

    def shorten_step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state as it is: the step size is given."""
        return state

    def watch(self, state: ChainState) -> None:
        """No warnings: the report says that draws are approximate."""

    def _step_size_at(self, i: jax.Array) -> jax.Array:
        return jnp.asarray(step_size_at(self.step_size, i), jnp.result_type(float))


class SGLD(SplitKernel):
    """Approximate: stochastic-gradient Langevin dynamics (Welling and Teh 2011).

    An iteration is z ← z - (ε/2) G ∇Ũ(z) + N(0, εTG), with ∇Ũ from ``batch_size`` newly drawn rows. There is no
    accept-reject decision, so **at any fixed step size the draws come from another distribution than the posterior**.
    For T = G = 1 the variance of the draws is too large by a relative error of about εN²/(4n) times the variance of a
    row's gradient (minibatch noise) plus εU''/4 (discretisation). Both vanish only as ε → 0, when the chain no longer
    moves. For exact draws use :class:`~numpyro_split.SymmetricSplitHMC` or :class:`~numpyro_split.SplitNUTS`.

    ``batch_size=None`` uses all rows, subset by subset, in every iteration: the unadjusted Langevin algorithm (ULA).

    Statistics: ``accept_prob`` is always 1; ``potential_energy`` (``lp`` in ArviZ, with the other sign) is the estimate
    from the same rows as the gradient, taken before the step; ``diverging`` says that a value was not finite, so that
    the chain stayed where it was; ``rows_touched`` counts the rows read. If many draws diverge, the step size is too
    large.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        batch_size: n, the number of rows that a gradient reads, at most N; None for all rows.
        step_size: ε, or a function of the iteration number, counted from 0 through warm-up and sampling, such as
            :func:`~split_common.stochastic_gradient.polynomial_decay` makes; optax's schedules are such functions. It
            has no default, because without accepted and rejected proposals nothing shows which step size is good.
        temperature: T, the temperature; the target is p(z|y)^(1/T).
        preconditioner: diagonal of G: None for the identity; an array over all sites (sorted by name), shape (D,); a
            dict of arrays by site; or "rmsprop" (Li et al. 2016), 1/(1e-5 + sqrt(V)) with V a mean of squared gradients
            of U/N. V adapts in warm-up only. Li et al. adapt it throughout, and leave out the term Γ(z) that a G which
            depends on z needs, which adds a bias; a constant G needs no such term.
        num_subsets: M, the number of subsets in which all rows are read: at the start, and in every iteration for
            ``batch_size=None``. With a ``batch_size`` at least 2 are used, because whether rows are independent given
            the parameters cannot be checked with one: 1 counts as 2, which ``kernel.num_subsets`` shows.
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows to the axis they lie along; None takes every
            array whose axis 0 has length N.
        subset_order: "sequential" divides the rows into subsets in their order; "shuffled" deals them out at random by
            a fixed seed.
        init_strategy: NumPyro's initialisation strategy.

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range; at ``run``, for a batch larger than the data, a
            preconditioner of the wrong size, one that adapts in a run without warm-up, latent sites inside the data
            plate unless all rows are used, and the faults of the model or the data that
            :func:`~numpyro_split.split_model` lists.

    Example:
        >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> from numpyro.infer import MCMC
        >>> def model(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 1))
        ...     with numpyro.plate("data", y.shape[0]):
        ...         numpyro.sample("y", dist.Normal(mu, 1), obs=y)
        >>> mcmc = MCMC(SGLD(model, batch_size=5, step_size=1e-3), num_warmup=50, num_samples=50, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), jnp.sin(jnp.arange(100.0)))
        >>> mcmc.get_samples()["mu"].shape
        (50,)
    """

    @with_options(SPLITTING_DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        batch_size: int | None = None,
        *,
        step_size: float | StepSizes,
        temperature: float = 1.0,
        preconditioner: Any = None,
        num_subsets: int | str = 1,
        **options: Unpack[SplittingOptions],
    ):
        least_subsets = 1 if batch_size is None else LEAST_SUBSETS
        splitting = Splitting.checked(model, num_subsets, least_subsets=least_subsets, **options)
        dynamics = Dynamics.langevin(batch_size, temperature)
        super().__init__(model, splitting, StochasticGradient.checked("SGLD", dynamics, step_size, preconditioner))


class SGHMC(SplitKernel):
    """Approximate: stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014).

    A step is v ← (1-α) v - ηG ∇Ũ(z) + N(0, 2(α-β̂)ηTG), z ← z + v, with ∇Ũ from ``batch_size`` newly drawn rows; an
    iteration has L of them. There is no accept-reject decision, so **at any fixed step size the draws come from another
    distribution than the posterior**. Friction balances the minibatch noise only as η → 0, or where β̂ is right.

    The notation of Chen et al. and of algorithm 16 of Lau (2018), both with G = T = 1: their step size ε is sqrt(η), so
    v = ε M⁻¹r in the momentum r; learning rate η, friction α and noise estimate β̂ are as here. Chen et al. have α =
    εM⁻¹C and β̂ = εM⁻¹B̂; with V the variance of ∇Ũ, β̂ = ηV/2. As printed, algorithm 16 loses the momentum that the
    friction leaves (its v is -η∇Ṽ - αv + z) and has β̂ times η inside the noise and η not outside, 2(α - β̂η). It
    updates v and z in another order; see ``resample_momentum``.

    Statistics: those of :class:`SGLD`; ``energy`` includes the kinetic energy ½ vᵀ(ηG)⁻¹v of the last step.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        batch_size: n, the number of rows that a gradient reads; None for all rows.
        step_size: η, the square of a leapfrog step size, or a function of the iteration number.
        friction: α, the friction, above 0 and at most 1.
        noise_estimate: β̂, an estimate of the noise of the gradients, at least 0 and below α.
        num_steps: L, the number of steps of an iteration.
        resample_momentum: True draws v ~ N(0, ηTG) at the start of each iteration, whose first step is then a leapfrog
            step, with half a kick and no friction, so that ``num_steps=1`` is :class:`SGLD` of the same step size.
            False keeps v: the recursion of Chen et al., of which every L-th z is a draw.
        temperature: T, the temperature; the target is p(z|y)^(1/T).
        preconditioner: diagonal of G: None for the identity; an array over all sites (sorted by name), shape (D,); a
            dict of arrays by site; or "rmsprop" (Li et al. 2016), 1/(1e-5 + sqrt(V)) with V a mean of squared gradients
            of U/N. V adapts in warm-up only. Li et al. adapt it throughout, and leave out the term Γ(z) that a G which
            depends on z needs, which adds a bias; a constant G needs no such term.
        num_subsets: M, the number of subsets in which all rows are read: at the start, and in every iteration for
            ``batch_size=None``. With a ``batch_size`` at least 2 are used, because whether rows are independent given
            the parameters cannot be checked with one: 1 counts as 2, which ``kernel.num_subsets`` shows.
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows to the axis they lie along; None takes every
            array whose axis 0 has length N.
        subset_order: "sequential" divides the rows into subsets in their order; "shuffled" deals them out at random by
            a fixed seed.
        init_strategy: NumPyro's initialisation strategy.

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range; at ``run``, for a batch larger than the data, a
            preconditioner of the wrong size, one that adapts in a run without warm-up, latent sites inside the data
            plate unless all rows are used, and the faults of the model or the data that
            :func:`~numpyro_split.split_model` lists.

    Example:
        >>> kernel = SGHMC(lambda y: None, batch_size=10, step_size=1e-4, num_steps=5)
        >>> kernel.num_subsets  # at least 2 with a batch size
        2
    """

    @with_options(SPLITTING_DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        batch_size: int | None = None,
        *,
        step_size: float | StepSizes,
        friction: float = 0.01,
        noise_estimate: float = 0.0,
        num_steps: int = 10,
        resample_momentum: bool = True,
        temperature: float = 1.0,
        preconditioner: Any = None,
        num_subsets: int | str = 1,
        **options: Unpack[SplittingOptions],
    ):
        least_subsets = 1 if batch_size is None else LEAST_SUBSETS
        splitting = Splitting.checked(model, num_subsets, least_subsets=least_subsets, **options)
        dynamics = Dynamics.hamiltonian(
            batch_size,
            num_steps=num_steps,
            temperature=temperature,
            resample_momentum=resample_momentum,
            friction=friction,
            noise_estimate=noise_estimate,
        )
        super().__init__(model, splitting, StochasticGradient.checked("SGHMC", dynamics, step_size, preconditioner))
