r"""The integrator of S3HMC: half a step of the weights, a step of the precisions, half a step of the weights.

H(z, p) = U(z) + K (:mod:`numpyro_split.integrators.hierarchical_kinetic`) is not separable, because the mass of the
weights ω depends on the precisions. But each block is separable while the other is fixed:

* at fixed (u, p_u), (ω, p_ω) moves under U(·, u) + ½ p̃ᵀVp̃, by steps of any schedule over subsets;
* at fixed (ω, p_ω), (u, p_u) moves under U(ω, ·) + ½ p̃(u)ᵀVp̃(u) - Σ log ρ(u) + ½ Σ p_u²/c, whose mass c is constant,
  by leapfrog steps.

Each map is explicit, preserves volume and is reversible by a flip of its momenta. The step composes them as a
palindrome (the alternating block-wise leapfrog algorithm of Zhang and Sutton, 2014), so it has these properties too,
and is of second order. The accept-reject decision uses the same H, with each term once. In u = log τ the Riemannian
metric of Cobb et al. (2019) is the constant c, so this is their dynamics without a fixed-point solver.

Gradients are reused where possible. If the likelihood does not depend on the precisions, the second block needs no
data, and the kicks that open the next half step differ from those that closed the last only by the gradient of the
prior. Otherwise each leapfrog step of the second block needs the whole gradient, which costs M subset gradients. If
every subset kicks where a step ends, the first whole gradient is known from the closing kicks, and the last also opens
the next half step.

References:
    Cobb, Baydin, Kiskin, Markham and Roberts (2019), Semi-separable Hamiltonian Monte Carlo for inference in Bayesian
    neural networks, NeurIPS workshop on Bayesian deep learning. Zhang and Sutton (2014), Semi-separable Hamiltonian
    Monte Carlo for inference in Bayesian hierarchical models, NIPS.
"""

from __future__ import annotations

import jax
from jax import lax

from numpyro_split.integrators.hierarchical_kinetic import HierarchicalKinetic
from numpyro_split.integrators.integrator import Integrator, IntegratorBase, IntegratorState, make_steps
from numpyro_split.potential.centering import FollowedPotential
from numpyro_split.potential.position import Position
from split_common.schedule import Schedule


class AlternatingIntegrator(IntegratorBase):
    """Runs the steps of S3HMC.

    Args:
        schedule: the schedule of one step of the weights.
        potential: the potential; its subsets give the kicks.
        kinetic: the kinetic energy, with the hierarchy that defines the two blocks.
        weight_steps: number of steps of the weights in each half step.
        precision_steps: number of leapfrog steps of the precisions in a step.

    Attributes:
        grads_per_step: subset gradients of a step inside a trajectory.
    """

    potential: FollowedPotential
    kinetic: HierarchicalKinetic

    def __init__(
        self,
        schedule: Schedule,
        potential: FollowedPotential,
        kinetic: HierarchicalKinetic,
        weight_steps: int = 1,
        precision_steps: int = 1,
    ):
        super().__init__(schedule, potential, kinetic)
        self._weight_steps, self._precision_steps = weight_steps, precision_steps
        self.grads_per_step = 2 * weight_steps * schedule.grads_per_step
        if kinetic.hierarchy.needs_data:
            is_whole = schedule.closing_kick is not None
            self.grads_per_step += schedule.num_subsets * (precision_steps + (not is_whole))
            self.grads_per_step += 0 if is_whole else schedule.opening_grads

    def step(self, state: IntegratorState, step_size: jax.Array, order: jax.Array) -> IntegratorState:
        """Advance by one step; arguments as of :meth:`IntegratorBase.step`."""
        state = self._move_weights(state, step_size / 2, order)
        state = self._move_precisions(state, step_size, order)
        return self._move_weights(state, step_size / 2, order)

    def _move_weights(self, state: IntegratorState, time: jax.Array, order: jax.Array) -> IntegratorState:
        integrator = Integrator(self.schedule, self.potential, self.kinetic.at(state.z))
        h = time / self._weight_steps
        end = integrator.step(state, h, order)  # outside of the loop, because a state of a tree has no energies
        if self._weight_steps > 1:
            end = make_steps(integrator, end, h, self._weight_steps - 1, order)
        # kicks change the momenta of every site; those of the precisions, which are fixed here, are restored
        return end._replace(p={**end.p, **self.kinetic.hierarchy.of_precisions(state.p)})

    def _move_precisions(self, state: IntegratorState, time: jax.Array, order: jax.Array) -> IntegratorState:
        h = time / self._precision_steps
        needs_data, closing_kick = self.kinetic.hierarchy.needs_data, self.schedule.closing_kick

        def gradient(z: Position) -> Position:
            if needs_data:
                return self.potential.energies_and_grad(z)[1]
            return self.potential.prior_energy_and_grad(z)[1]

        def kick(z: Position, p: Position, grad: Position) -> Position:
            coupling = self.kinetic.coupling_grad(z, p)
            return {**p, **{name: _moved(p[name], -0.5 * h * (grad[name] + coupling[name])) for name in coupling}}

        def leapfrog(_: int, point: tuple[Position, Position, Position]) -> tuple[Position, Position, Position]:
            z, p, grad = point
            p = kick(z, p, grad)
            z = {**z, **{name: _moved(z[name], h * v) for name, v in self.kinetic.precision_velocity(p).items()}}
            grad = gradient(z)
            return z, kick(z, p, grad), grad

        first = self.energies_and_grad(state)[1] if needs_data else gradient(state.z)
        z, p, last = lax.fori_loop(0, self._precision_steps, leapfrog, (state.z, state.p, first))
        if not needs_data:
            opening_grad = self.with_prior_changed(state.opening_grad, last, first)
        elif closing_kick is not None:
            opening_grad = jax.tree.map(lambda grad: float(closing_kick) * grad, last)
        else:
            opening_grad = self.opening_grad_at(z, order)
        return IntegratorState(z, p, opening_grad, state.energies)


def _moved(x: jax.Array, by: jax.Array) -> jax.Array:
    """``x + by`` in the dtype of ``x``."""
    return x + by.astype(x.dtype)
