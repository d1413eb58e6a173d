"""The two frameworks under common names, so that a test is written once."""

from __future__ import annotations

import contextlib
import functools
import os
import sys

import numpy as np


class Forces:
    """A potential known by the gradients of its subsets alone, enough to integrate."""

    def __init__(self, subset_grad, subset_energies, energies):
        self.subset_grad, self._subset_energies, self._energies = subset_grad, subset_energies, energies

    def subset_energies_and_grad(self, z, m):
        return self._subset_energies, self.subset_grad(z, m)

    def energies(self, z):
        return self._energies


@functools.lru_cache(maxsize=1)
def compiled_trajectory(integrator):
    """NumPyro's trajectory of an integrator, compiled once for all its lengths."""
    import jax

    from numpyro_split.integrators.integrator import make_steps

    def run(z, p, step_size, num_steps, order):
        state = integrator.start({"x": z}, {"x": p}, order)
        end = make_steps(integrator, state, step_size, num_steps, order)
        return end.z["x"], end.p["x"]

    return jax.jit(run)


def picklable_numpyro(X, y=None):
    """A model at module level, which pickles."""
    import numpyro
    import numpyro.distributions as dist

    tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    w = numpyro.sample("w", dist.Normal(np.zeros(2), tau**-0.5).to_event(1))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)


def picklable_pyro(X, y=None):
    """The same in Pyro."""
    import pyro
    import pyro.distributions as dist
    import torch

    tau = pyro.sample("tau", dist.Gamma(torch.tensor(3.0), torch.tensor(2.0)))
    w = pyro.sample("w", dist.Normal(torch.zeros(2), tau**-0.5 * torch.ones(2)).to_event(1))
    with pyro.plate("data", X.shape[0]):
        pyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)


class NumPyroSession:
    """One kernel in one MCMC of one chain, run again and again."""

    def __init__(self, kernel, num_warmup, num_samples, **options):
        from numpyro.infer import MCMC

        self.mcmc = MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False, **options)

    def fresh(self, *args, **kwargs):
        """A run from the beginning; its last state."""
        self.mcmc.post_warmup_state = None
        return self._run(0, args, kwargs)

    def again(self, *args, **kwargs):
        """A run that goes on from the state that was set, or else from the last one."""
        if self.mcmc.post_warmup_state is None:
            self.mcmc.post_warmup_state = self.mcmc.last_state
        state = self._run(1, args, kwargs)
        self.mcmc.post_warmup_state = None
        return state

    def go_on(self, *args, **kwargs):
        """A run that goes on as if the last one had not stopped."""
        self.mcmc.post_warmup_state = state = self.mcmc.last_state
        self.mcmc.run(state.rng_key, *args, **kwargs)

    def _run(self, seed, args, kwargs):
        import jax

        self.mcmc.run(jax.random.key(seed), *args, **kwargs)
        return self.mcmc.last_state


class PyroSession:
    """One kernel, run again and again; Pyro's MCMC begins afresh each time."""

    def __init__(self, kernel, num_warmup, num_samples):
        self.kernel, self.num_warmup, self.num_samples, self.mcmc = kernel, num_warmup, num_samples, None

    def fresh(self, *args, seed=0, **kwargs):
        import pyro
        from pyro.infer import MCMC

        last = []
        pyro.set_rng_seed(seed)
        self.mcmc = MCMC(
            self.kernel,
            self.num_samples,
            self.num_warmup,
            disable_progbar=True,
            hook_fn=KeepState(last),
        )
        self.mcmc.run(*args, **kwargs)
        self.mcmc.sampler.hook = None
        return last[-1]

    again = fresh


class KeepState:
    """Keeps a Pyro kernel's state after each iteration, with its expansion, as one value."""

    def __init__(self, states):
        self.states = states

    def __call__(self, kernel, params, stage, i):
        self.states[:] = [kernel._chain.state]


class NumPyroBackend:
    name = "numpyro"

    def __init__(self):
        import jax
        import jax.numpy as jnp
        import numpyro
        import numpyro.distributions as dist

        import numpyro_split

        self.ppl, self.dist, self.np, self.split = numpyro, dist, jnp, numpyro_split
        if (funsor := sys.modules.get("funsor")) is not None:
            funsor.set_backend("jax")  # which a model of Pyro's may have set otherwise, for the process
        self._jax = jax

    def array(self, x, dtype=None):
        return self.np.asarray(np.asarray(x), dtype=dtype)

    def to_numpy(self, x):
        return np.asarray(x)

    def set_precision(self, bits):
        self._jax.config.update("jax_enable_x64", bits == 64)

    def normal(self, rng, shape, dtype=None):
        return self.array(rng.normal(size=shape), dtype)

    def host_potential_and_grad(self, model, args, kwargs, z):
        """The host's own potential of the untouched model, and its gradient."""
        from numpyro.infer.util import potential_energy

        return self._jax.value_and_grad(lambda z: potential_energy(model, args, kwargs, z))(z)

    def run(self, kernel, *args, num_warmup=10, num_samples=10, seed=0, num_chains=1, init_params=None, **options):
        from numpyro.infer import MCMC

        options = {"progress_bar": False, "chain_method": "vectorized", **options}
        mcmc = MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, num_chains=num_chains, **options)
        mcmc.run(self._jax.random.key(seed), *args, init_params=init_params)
        return mcmc

    def mcmc(self, kernel, num_warmup, num_samples, **options):
        """The host's ``MCMC``."""
        from numpyro.infer import MCMC

        return MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False, **options)

    def sample(self, mcmc, *args, seed=0, **options):
        """A run with a store."""
        return self.split.sample(mcmc, self._jax.random.key(seed), *args, **options)

    def host_draws(self, mcmc, *args, seed=0):
        """Draws of a run without a store, by chain."""
        mcmc.run(self._jax.random.key(seed), *args)
        return {name: np.asarray(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}

    def session(self, kernel, **options):
        """One kernel in one MCMC, run again and again."""
        return NumPyroSession(kernel, **options)

    def host_energy(self, model, args, kwargs, z):
        """The host's own potential of the untouched model, a number."""
        from numpyro.infer.util import potential_energy

        return float(potential_energy(model, args, kwargs, z))

    def log_likelihood(self, model, args, kwargs, z):
        """Of the observed site y at an unconstrained position, a number."""
        from numpyro.handlers import seed, substitute, trace
        from numpyro.infer.util import _unconstrain_reparam

        at_z = substitute(seed(model, 0), substitute_fn=lambda site: _unconstrain_reparam(z, site))
        site = trace(at_z).get_trace(*args, **kwargs)["y"]
        return float(site["fn"].log_prob(site["value"]).sum())

    def taylor(self, state):
        """The expansion that a state rests on, or None."""
        return getattr(state, "taylor", None)

    def mutable(self, x):
        """An array of the kind that users change in place."""
        return np.array(x)

    def predictive(self, model, mcmc, X):
        from numpyro.infer import Predictive

        return Predictive(model, mcmc.get_samples())(self._jax.random.key(0), X)

    def picklable_model(self):
        return picklable_numpyro

    def double_precision(self):
        """In a thread: JAX's precision is the thread's."""
        return self._jax.enable_x64(True)

    def statistics(self, mcmc):
        """Every statistic by name, shape (chains, draws)."""
        return {k: np.asarray(v) for k, v in mcmc.get_extra_fields(group_by_chain=True).items()}

    def integrator(self, schedule, subset_grad, inverse_mass, reference=None):
        from numpyro_split.integrators.euclidean import EuclideanKinetic
        from numpyro_split.integrators.harmonic import HarmonicDrift
        from numpyro_split.integrators.integrator import Integrator
        from numpyro_split.potential.compensated import Compensated

        zeros = self.np.zeros(2)
        forces = Forces(
            subset_grad, Compensated(zeros, zeros), Compensated(*2 * [self.np.zeros(schedule.num_subsets + 1)])
        )
        if reference is None:
            return Integrator(schedule, forces, EuclideanKinetic(inverse_mass))
        kinetic = EuclideanKinetic.of_inverse({("x",): inverse_mass})
        return Integrator(
            schedule, forces, kinetic, HarmonicDrift(kinetic, {"x": self.array(reference)}, self.np.array(True))
        )

    def potential_integrator(self, schedule, potential, z):
        """The integrator of a split potential, of unit mass, for positions like ``z``."""
        from numpyro_split.integrators.euclidean import EuclideanKinetic
        from numpyro_split.integrators.integrator import Integrator

        size = sum(u.size for u in z.values())
        return Integrator(schedule, potential, EuclideanKinetic(self.np.ones(size)))

    def prepared(self, kernel, args):
        """A kernel that has studied its model, and its split potential; nothing is compiled or sampled."""
        prepared, potential, _ = kernel._prepare(0, args, {})
        return prepared.method, potential

    def kinetic(self, inverse_mass_matrix):
        """The kinetic energy of an inverse mass matrix, a dict from tuples of sites to arrays."""
        from numpyro_split.integrators.euclidean import EuclideanKinetic

        return EuclideanKinetic.of_inverse({sites: self.array(x) for sites, x in inverse_mass_matrix.items()})

    def window_mean(self, num_warmup):
        """Of the numbers of iterations, as the host counts them, where the mass matrix was adapted."""
        from numpyro_split.adaptation.step_size_and_metric import WindowMean

        def update(i, mean):
            return mean.update(i, {"x": i.astype(float)}, num_warmup)

        start = WindowMean.start({"x": self.np.zeros(())})
        return float(self._jax.lax.fori_loop(0, num_warmup, update, start).adapted["x"])

    def draw_momenta(self, kinetic, z, num, seed=0):
        """``num`` momenta at ``z``, each entry with a leading axis."""
        keys = self._jax.random.split(self._jax.random.key(seed), num)
        return self._jax.vmap(lambda key: kinetic.draw(z, key))(keys)

    def reference(self, potential, z, settings):
        """What a kernel of these settings learns of a reference."""
        from numpyro_split.potential.expansion import expand

        return expand(potential, z, 1.0, settings)

    def estimates(self, potential, batches, target, taylor, new, old, num, seed=0, certain=()):
        """``num`` estimates of a change of energy and of their variance, shape (num,) each; ``certain`` rows stay."""
        from numpyro_split.subsampling.estimates import Estimator

        rows, groups = self.np.array(certain, int), self.np.array(batches.max_groups)
        estimator = Estimator(potential, batches, target, taylor, rows)
        keys = self._jax.random.split(self._jax.random.key(seed), num)
        found = self._jax.jit(lambda: self._jax.lax.map(lambda key: estimator(new, old, groups, key), keys))()
        return np.asarray(found.change), np.asarray(found.chi2)

    def force(self, settings, batches, potential, taylor, seed=0):
        from numpyro_split.subsampling.proposals import draw_force

        return draw_force(settings, batches, potential, taylor, self._jax.random.key(seed))

    def force_grad(self, force, z):
        return force.energies_and_grad(z)[1]

    def noisy_chains(self, settings, variance, known_variance, num_draws, step_size, seed=0):
        """Draws of a standard normal in 2 dimensions, its energy known with noise; shape (chains, draws, 2).

        Args:
            settings: the proposal, its surrogate the target itself.
            variance: of the noise.
            known_variance: what the penalty is told.
            num_draws: of each of 4 chains.
            step_size: of the proposal.
            seed: draws everything.
        """
        from numpyro_split.integrators.euclidean import EuclideanKinetic
        from numpyro_split.kernels.penalty import decide
        from numpyro_split.subsampling.estimates import Estimate
        from numpyro_split.subsampling.proposals import Force, propose

        jax, jnp = self._jax, self.np
        pulls = settings.gradient is not None
        force = Force(lambda z: jax.tree.map(lambda x: pulls * x, z))
        kinetic = EuclideanKinetic.of_inverse(jnp.ones(2))

        def one(z, key):
            key_move, key_noise, key_accept = jax.random.split(key, 3)
            start, end = propose(settings, force, kinetic, {"x": z}, step_size, key_move)
            change = 0.5 * (jnp.sum(end.z["x"] ** 2) - jnp.sum(z**2))
            noise = jnp.sqrt(variance) * jax.random.normal(key_noise)
            estimate = Estimate(change + noise, jnp.array(known_variance), jnp.array(2), jnp.zeros(2), jnp.zeros(()))
            chosen, _, _ = decide(start, end, estimate, kinetic, False, key_accept)
            return chosen.z["x"], chosen.z["x"]

        keys = jax.random.split(jax.random.key(seed), (4, num_draws))
        return np.asarray(jax.jit(jax.vmap(lambda keys: jax.lax.scan(one, jnp.zeros(2), keys)[1]))(keys))

    def compiled(self, function):
        return self._jax.jit(function)

    def integrate(self, integrator, z, p, step_size, num_steps, order):
        """A trajectory, from plain arrays to plain arrays."""
        run = compiled_trajectory(integrator)
        end = run(self.array(z), self.array(p), step_size, num_steps, self.np.asarray(order))
        return tuple(np.asarray(x) for x in end)


class PyroBackend:
    name = "pyro"

    def __init__(self):
        import pyro
        import pyro.distributions as dist
        import torch

        import pyro_split

        self.ppl, self.dist, self.np, self.split = pyro, dist, torch, pyro_split
        pyro.clear_param_store()

    def array(self, x, dtype=None):
        tensor = self.np.as_tensor(np.asarray(x))
        if dtype is not None:
            return tensor.to(dtype)
        return tensor.to(self.np.get_default_dtype()) if tensor.is_floating_point() else tensor

    def to_numpy(self, x):
        return x.detach().numpy()

    def set_precision(self, bits):
        self.np.set_default_dtype(self.np.float64 if bits == 64 else self.np.float32)

    def normal(self, rng, shape, dtype=None):
        return self.array(rng.normal(size=shape), dtype)

    def host_potential_and_grad(self, model, args, kwargs, z):
        from pyro.infer.mcmc.util import initialize_model
        from pyro.ops.integrator import potential_grad

        potential_fn = initialize_model(model, args, kwargs, initial_params=z)[1]
        grad, value = potential_grad(potential_fn, {k: v.clone() for k, v in z.items()})
        return value, grad

    def run(self, kernel, *args, num_warmup=10, num_samples=10, seed=0, num_chains=1, init_params=None, **options):
        from pyro.infer import MCMC

        self.ppl.set_rng_seed(seed)
        last = []
        if num_chains == 1:
            options.setdefault("hook_fn", KeepState(last))
        mcmc = MCMC(
            kernel,
            num_samples,
            num_warmup,
            num_chains=num_chains,
            initial_params=init_params,
            disable_progbar=True,
            **options,
        )
        mcmc.run(*args)
        mcmc.last_state = last[-1] if last else None
        return mcmc

    def mcmc(self, kernel, num_warmup, num_samples, **options):
        """The host's ``MCMC``."""
        from pyro.infer import MCMC

        return MCMC(kernel, num_samples, num_warmup, disable_progbar=True, **options)

    def sample(self, mcmc, *args, seed=0, **options):
        """A run with a store."""
        self.ppl.set_rng_seed(seed)
        return self.split.sample(mcmc, *args, **options)

    def host_draws(self, mcmc, *args, seed=0):
        """Draws of a run without a store, by chain."""
        self.ppl.set_rng_seed(seed)
        mcmc.run(*args)
        return {name: x.numpy() for name, x in mcmc.get_samples(group_by_chain=True).items()}

    def session(self, kernel, **options):
        return PyroSession(kernel, **options)

    def host_energy(self, model, args, kwargs, z):
        return float(self.host_potential_and_grad(model, args, kwargs, z)[0])

    def log_likelihood(self, model, args, kwargs, z):
        from pyro import poutine
        from pyro.infer.mcmc.util import initialize_model

        transforms = initialize_model(model, args, kwargs, initial_params=z)[2]
        values = {name: transforms[name].inv(u) if name in transforms else u for name, u in z.items()}
        site = poutine.trace(poutine.condition(model, values)).get_trace(*args, **kwargs).nodes["y"]
        return float(site["fn"].log_prob(site["value"]).sum())

    def taylor(self, state):
        return getattr(state, "taylor", None)

    def mutable(self, x):
        return x.clone()

    def predictive(self, model, mcmc, X):
        from pyro.infer import Predictive

        return Predictive(model, mcmc.get_samples())(X)

    def picklable_model(self):
        return picklable_pyro

    def double_precision(self):
        return contextlib.nullcontext()

    def statistics(self, mcmc):
        names = mcmc.kernel._method.statistics
        return {name: np.array([chain[name] for chain in mcmc._diagnostics]) for name in names}

    def integrator(self, schedule, subset_grad, inverse_mass, reference=None):
        from pyro_split.integrators.euclidean import EuclideanKinetic
        from pyro_split.integrators.harmonic import HarmonicDrift
        from pyro_split.integrators.integrator import Integrator

        zero = self.np.zeros(())
        forces = Forces(subset_grad, (zero, zero), self.np.zeros(schedule.num_subsets + 1))
        kinetic = EuclideanKinetic.of_inverse({("x",): inverse_mass})
        drift = None if reference is None else HarmonicDrift(kinetic, {"x": self.array(reference)})
        return Integrator(schedule, forces, kinetic, drift)

    def potential_integrator(self, schedule, potential, z):
        from pyro_split.integrators.euclidean import EuclideanKinetic
        from pyro_split.integrators.integrator import Integrator

        inverse = {tuple(z): self.np.ones(sum(u.numel() for u in z.values()))}
        return Integrator(schedule, potential, EuclideanKinetic.of_inverse(inverse))

    def prepared(self, kernel, args):
        kernel._prepared = prepared = kernel._prepare(0, args, {})
        return prepared.method, prepared.potential

    def kinetic(self, inverse_mass_matrix):
        from pyro_split.integrators.euclidean import EuclideanKinetic

        return EuclideanKinetic.of_inverse({sites: self.array(x) for sites, x in inverse_mass_matrix.items()})

    def window_mean(self, num_warmup):
        from pyro.infer.mcmc.adaptation import WarmupAdapter

        from pyro_split.adaptation.step_size_and_metric import WindowMean

        host, mean = WarmupAdapter(1.0, adapt_mass_matrix=True), WindowMean.start({"x": self.np.zeros(())})
        host.configure(num_warmup, mass_matrix_shape={("x",): (1,)})
        for t in range(1, num_warmup + 1):
            mean = mean.update(t, {"x": self.array(float(t))}, [window.end for window in host.adaptation_schedule])
        return float(mean.adapted["x"])

    def draw_momenta(self, kinetic, z, num, seed=0):
        self.ppl.set_rng_seed(seed)
        draws = [kinetic.draw(z) for _ in range(num)]
        return {name: self.np.stack([p[name] for p in draws]) for name in z}

    def reference(self, potential, z, settings):
        from pyro_split.potential.expansion import expand

        return expand(potential, z, 1.0, settings)

    def estimates(self, potential, batches, target, taylor, new, old, num, seed=0, certain=()):
        from pyro_split.subsampling.estimates import Estimator

        self.ppl.set_rng_seed(seed)
        rows = self.np.tensor(certain, dtype=self.np.int64)
        estimator = Estimator(potential, batches, target, taylor, rows, list(new))
        found = [estimator(new, old, batches.max_groups) for _ in range(num)]
        return np.array([estimate.change for estimate in found]), np.array([estimate.chi2 for estimate in found])

    def force(self, settings, batches, potential, taylor, seed=0):
        from pyro_split.subsampling.proposals import Forces

        self.ppl.set_rng_seed(seed)
        return Forces(settings, batches, potential, taylor, ["a", "b"]).draw()

    def force_grad(self, force, z):
        return force.energies_and_grad(z)[1]

    def noisy_chains(self, settings, variance, known_variance, num_draws, step_size, seed=0):
        from pyro_split.integrators.euclidean import EuclideanKinetic
        from pyro_split.kernels.penalty import decide
        from pyro_split.subsampling.estimates import Estimate
        from pyro_split.subsampling.proposals import Force, propose

        self.ppl.set_rng_seed(seed)
        pulls = float(settings.gradient is not None)
        force = Force(lambda z: {"x": pulls * z["x"]})
        kinetic = EuclideanKinetic.of_inverse({("x",): self.np.ones(2)})
        z, draws = {"x": self.np.zeros(2)}, []
        for _ in range(num_draws):
            start, end = propose(settings, force, kinetic, z, step_size)
            change = 0.5 * float((end.z["x"] ** 2).sum() - (z["x"] ** 2).sum())
            noise = variance**0.5 * float(self.np.randn(()))
            estimate = Estimate(change + noise, known_variance, 2, (0.0, 0.0), 0.0)
            z = decide(start, end, estimate, kinetic, False)[0].z
            draws.append(z["x"].numpy())
        return np.array(draws)[None]

    def compiled(self, function):
        return function

    def integrate(self, integrator, z, p, step_size, num_steps, order):
        from pyro_split.integrators.integrator import make_steps

        z, p, order = {"x": self.array(z)}, {"x": self.array(p)}, [int(m) for m in order]
        state = integrator.start(z, p, order)
        end = make_steps(integrator, state, step_size, num_steps, order)
        return end.z["x"].numpy(), end.p["x"].numpy()


_ALL = {backend.name: backend for backend in (NumPyroBackend, PyroBackend)}
# Both, unless the one who starts the tests says otherwise: a package that fails to import fails its tests.
PACKAGES = os.environ.get("SPLIT_TEST_PACKAGES", ",".join(_ALL)).split(",")
BACKENDS = [_ALL[name] for name in PACKAGES]
ABSENT = [backend for name, backend in _ALL.items() if name not in PACKAGES]
