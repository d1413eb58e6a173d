"""Split kernels inside NumPyro's ``MCMC``: every chain method, resuming, new data, pickling, ArviZ."""

import functools
import os
import pickle
import re
import subprocess
import sys
import warnings

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import HMC, MCMC, NUTS, Predictive, init_to_value

from numpyro_split import (
    S3HMC,
    BlockGibbsHMC,
    ModelNotSplittableError,
    NaiveSplitHMC,
    PenaltyMH,
    RandomisedSplitHMC,
    SplitNUTS,
    SplitPotential,
    SymmetricSplitHMC,
    sample,
    split_model,
    to_inference_data,
)
from numpyro_split.host import GIBBS_SITES

slow = pytest.mark.slow


def model(X, y=None):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    with numpyro.plate("data", X.shape[0]):
        mean = numpyro.deterministic("mean", X @ b)
        numpyro.sample("y", dist.Normal(mean, s), obs=y)


def make_data(seed=0, slope=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 2))
    return jnp.asarray(X), jnp.asarray(slope * X[:, 0] + 0.3 * rng.normal(size=30))


def run(kernel=None, *, num_warmup=60, num_samples=40, num_chains=2, key=0, args=None, **options):
    kernel = kernel or SymmetricSplitHMC(model, num_subsets=4)
    options = {"progress_bar": False, "chain_method": "vectorized", **options}
    mcmc = MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, num_chains=num_chains, **options)
    mcmc.run(random.key(key), *(args or make_data()))
    return mcmc


@pytest.fixture(scope="module")
def standard():
    """Two vectorised chains, for the tests that only look at the result."""
    jax.config.update("jax_enable_x64", True)
    return run(num_samples=100)


@slow
def test_chains_vectorised_by_a_function_draw_the_same(standard):
    expected = standard.get_samples(group_by_chain=True)["b"][:, :40]
    draws = run(chain_method=jax.vmap).get_samples(group_by_chain=True)["b"]
    assert draws.shape == (2, 40, 2)
    np.testing.assert_allclose(draws, expected, atol=1e-6)


@slow
@pytest.mark.parametrize("kernel", [S3HMC, BlockGibbsHMC])
def test_precisions_are_found_where_chains_run_in_parallel(kernel):
    """``init`` is then called inside a transformation."""

    def model(X, y):
        tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
        b = numpyro.sample("b", dist.Normal(jnp.zeros(2), tau**-0.5).to_event(1))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(X @ b, 1.0), obs=y)

    mcmc = run(kernel(model, num_subsets=4), chain_method="parallel", num_warmup=5, num_samples=5)
    assert mcmc.get_samples(group_by_chain=True)["tau"].shape == (2, 5)
    assert "tau -> b" in repr(mcmc.sampler)


@slow
@pytest.mark.parametrize("jit_model_args", [False, True])
def test_new_data_on_the_same_object(jit_model_args):
    mcmc = run(num_chains=1, jit_model_args=jit_model_args, num_samples=200)
    mcmc.run(random.key(1), *make_data(seed=1, slope=-2.0))
    b = np.asarray(mcmc.get_samples()["b"][:, 0])
    assert abs(b.mean() + 2.0) < 0.3


@slow
@pytest.mark.parametrize(
    ("chain_method", "num_chains", "jit_model_args"),
    [("sequential", 1, True), ("vectorized", 2, False), ("sequential", 2, False)],
)
def test_resuming_on_new_data_leaves_the_old_posterior(chain_method, num_chains, jit_model_args):
    """A cached potential of other data would freeze the chain where it was."""
    kernel = SymmetricSplitHMC(model, num_subsets=4, step_size=0.02, num_steps=20, adapt_step_size=False)
    mcmc = run(kernel, num_chains=num_chains, chain_method=chain_method, jit_model_args=jit_model_args)
    mcmc.post_warmup_state = mcmc.last_state
    new = make_data(seed=1, slope=-1.0)
    mcmc.run(random.key(1), *new)
    energy = np.asarray(mcmc.get_extra_fields(group_by_chain=True)["potential_energy"])
    assert np.all(energy[:, -1] < energy[:, 0] - 1.0)  # on its way from the old posterior to the new
    state = jax.tree.map(lambda x: x[0] if num_chains == 2 else x, mcmc.last_state)
    expected = split_model(model, new, num_subsets=4).potential(state.z)
    np.testing.assert_allclose(float(state.potential_energy), float(expected), rtol=1e-9)


@slow
def test_traced_data_of_another_prior_are_refused():
    """What was found of the first prior is constant in the compiled program, which the host runs on the second too."""

    def gamma(X, y, concentration):
        tau = numpyro.sample("tau", dist.Gamma(concentration, 1.0))
        b = numpyro.sample("b", dist.Normal(jnp.zeros(2), tau**-0.5).to_event(1))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(X @ b, 1.0), obs=y)

    kernel = BlockGibbsHMC(gamma, num_subsets=2, trajectory="hmc", num_steps=1, find_heuristic_step_size=False)
    mcmc = MCMC(kernel, num_warmup=1, num_samples=2, progress_bar=False, jit_model_args=True)
    data = make_data()
    for _ in range(2):
        mcmc.run(random.key(0), *data, jnp.array(2.0))
    with pytest.raises(ValueError, match="data that are traced .* must divide like those of earlier runs"):
        mcmc.run(random.key(0), *data, jnp.array(50.0))


def test_warmup_then_run_skips_warmup():
    mcmc = MCMC(SymmetricSplitHMC(model, num_subsets=4), num_warmup=60, num_samples=10, progress_bar=False)
    mcmc.warmup(random.key(0), *make_data(), collect_warmup=True)
    assert mcmc.get_samples()["b"].shape == (60, 2)
    mcmc.run(random.key(1), *make_data())
    assert len(np.unique(np.asarray(mcmc.last_state.adapt_state.step_size))) == 1


@pytest.mark.parametrize("num_chains", [1, pytest.param(2, marks=slow)])
def test_a_run_goes_on_with_a_key_of_the_other_kind(num_chains):
    """The draws do not depend on the kind."""
    data, drawn, kernel = make_data(), [], NaiveSplitHMC(model, num_subsets=2, num_steps=2)
    for first, then in ((random.key, random.key), (random.PRNGKey, random.key), (random.key, random.PRNGKey)):
        mcmc = MCMC(kernel, num_warmup=10, num_samples=5, num_chains=num_chains, chain_method="vectorized")
        mcmc.progress_bar = False
        mcmc.warmup(first(0), *data)
        mcmc.run(then(1), *data)
        drawn.append(np.asarray(mcmc.get_samples()["b"]))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


def test_keys_of_another_generator_are_refused():
    mcmc = MCMC(SymmetricSplitHMC(model, num_subsets=2), num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.warmup(random.key(0), *make_data())
    with pytest.raises(ValueError, match=r"post_warmup_state must be a state of .* at \.adapt_state\.rng_key"):
        mcmc.run(random.key(1, impl="rbg"), *make_data())


def test_a_store_of_one_chain_does_not_ask_how_chains_are_moved(tmp_path):
    for num_samples, method in ((4, "sequential"), (8, "parallel"), (12, "vectorized")):
        kernel = NaiveSplitHMC(model, num_subsets=2, num_steps=2)
        mcmc = MCMC(kernel, num_warmup=5, num_samples=num_samples, chain_method=method, progress_bar=False)
        opened = sample(mcmc, random.key(0), *make_data(), store=tmp_path / "run.zarr")
        assert opened.posterior.sizes["draw"] == num_samples


@pytest.mark.parametrize("is_same_array", [True, False])
def test_a_closure_that_holds_something_else_is_noticed_with_data_as_arguments(is_same_array):
    """What it holds is a constant in the program, which the host keeps for all data of these shapes."""
    y, held = np.linspace(2.0, 4.0, 40), {"scale": 1.0}

    def model(y):
        w = numpyro.sample("w", dist.Normal(0.0, held["scale"]))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(w, 10.0), obs=y)

    mcmc = MCMC(
        SplitNUTS(model, num_subsets=2), num_warmup=100, num_samples=200, progress_bar=False, jit_model_args=True
    )
    given = jnp.asarray(y)
    mcmc.run(random.key(0), given)
    held["scale"] = 100.0
    mcmc.run(random.key(0), given if is_same_array else jnp.asarray(y.copy()))
    assert abs(float(mcmc.get_samples()["w"].mean()) - 3.0) < 0.8  # 0.86 of the first prior; some 5 standard errors


@pytest.mark.parametrize("num_chains", [1, 2])
def test_a_state_within_warmup_is_no_state_to_draw_from(num_chains):
    """Step size, metric and lengths would go on changing among the draws."""
    kernel, key = SymmetricSplitHMC(model, num_subsets=3), jax.random.key(0)
    state = kernel.init(key if num_chains == 1 else jax.random.split(key, 2), 60, None, make_data(), {})
    mcmc = MCMC(kernel, num_warmup=60, num_samples=5, num_chains=num_chains, chain_method="vectorized")
    mcmc.post_warmup_state = state
    with pytest.raises(ValueError, match="post_warmup_state must be a state after warm-up, got one after 0 of 60"):
        mcmc.run(key, *make_data())


def test_a_state_after_warmup_is_no_start_of_a_store(tmp_path):
    """It was ignored: the store's run made a warm-up of its own."""
    mcmc = MCMC(NaiveSplitHMC(model, num_subsets=2, num_steps=2), num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.warmup(random.key(0), *make_data())
    with pytest.raises(ValueError, match=r"mcmc.post_warmup_state must be None for sample"):
        sample(mcmc, random.key(1), *make_data(), store=tmp_path / "run.zarr")
    assert not (tmp_path / "run.zarr").exists()


@slow
@pytest.mark.parametrize("after_run", [False, True])
def test_pickled_kernel_goes_on(after_run):
    mcmc = MCMC(SymmetricSplitHMC(model, num_subsets=4), num_warmup=60, num_samples=20, progress_bar=False)
    args = make_data()
    if after_run:
        mcmc.run(random.key(0), *args)
    loaded = pickle.loads(pickle.dumps(mcmc))
    if after_run:
        loaded.post_warmup_state = loaded.last_state
        mcmc.post_warmup_state = mcmc.last_state
    mcmc.run(random.key(1), *args)
    loaded.run(random.key(1), *args)
    np.testing.assert_allclose(loaded.get_samples()["b"], mcmc.get_samples()["b"], atol=1e-8)


def test_thinning_and_extra_fields():
    mcmc = MCMC(SymmetricSplitHMC(model, num_subsets=4), num_warmup=20, num_samples=20, thinning=4, progress_bar=False)
    mcmc.run(random.key(0), *make_data(), extra_fields=("adapt_state.step_size", "z.s", "mean_accept_prob"))
    fields = mcmc.get_extra_fields()
    assert fields["adapt_state.step_size"].shape == fields["z.s"].shape == (5,)
    assert mcmc.get_samples()["b"].shape == (5, 2)


@slow
@pytest.mark.parametrize("key", [random.key(0), random.PRNGKey(0)], ids=["typed", "raw"])
def test_both_kinds_of_keys(key):
    mcmc = MCMC(
        SymmetricSplitHMC(model, num_subsets=4), num_warmup=5, num_samples=5, num_chains=2, chain_method="vectorized"
    )
    mcmc.progress_bar = False
    mcmc.run(key, *make_data())
    assert mcmc.get_samples()["b"].shape == (10, 2)


def test_progress_bar_and_summary_say_something(capsys, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("CI", raising=False)
    mcmc = run(num_chains=1, num_warmup=10, num_samples=10, progress_bar=True)
    assert "steps of size" in capsys.readouterr().err
    mcmc.print_summary()
    printed = capsys.readouterr().out
    assert "b[0]" in printed
    assert "Number of divergences" in printed


def test_predictive(standard):
    X, _ = make_data()
    draws = Predictive(model, standard.get_samples())(random.key(0), X)
    assert draws["y"].shape == (200, 30)


def test_deterministic_sites_have_all_rows(standard):
    assert standard.get_samples()["mean"].shape == (200, 30)


def test_arviz_gets_everything_as_it_comes(standard):
    for idata in (az.from_numpyro(standard, log_likelihood=False), to_inference_data(standard)):
        expected = {"diverging", "energy", "lp", "acceptance_rate", "n_steps", "num_grads", "step_size"}
        assert expected <= set(idata.sample_stats)
        assert idata.posterior["b"].shape == (2, 100, 2)
        bfmi = az.bfmi(idata)  # by name in ArviZ 1.x
        assert np.all(np.isfinite(bfmi if isinstance(bfmi, np.ndarray) else bfmi["energy"]))
        assert np.all(np.asarray(az.rhat(idata)["b"]) < 1.2)
        assert np.all(np.asarray(az.ess(idata)["b"]) > 10)


def test_arviz_plots(standard):
    import matplotlib

    matplotlib.use("Agg")
    idata = to_inference_data(standard)
    az.plot_energy(idata)
    az.plot_trace(idata, var_names=["b"])
    matplotlib.pyplot.close("all")


def test_length_is_drawn_unless_given(standard):
    fields = standard.get_extra_fields()
    lengths = np.asarray(fields["num_steps"] * fields["step_size"]).reshape(2, -1)
    learned = np.asarray(standard.last_state.trajectory_length)[:, None]
    assert np.all((learned > 1.0) & (learned < 10.0))
    assert np.all((lengths > 0.0) & (lengths <= learned))
    np.testing.assert_allclose(lengths.mean(), learned.mean() / 2, rtol=0.2)
    kernel = SymmetricSplitHMC(model, num_subsets=4, trajectory_length=1.0)
    fields = run(kernel, num_chains=1).get_extra_fields()
    np.testing.assert_allclose(fields["num_steps"] * fields["step_size"], 1.0)


def test_without_warmup_the_step_size_stays():
    """Nothing adapts then, so nothing bounds it either."""
    mcmc = run(SymmetricSplitHMC(model, num_subsets=4, step_size=1.0), num_warmup=0, num_samples=3, num_chains=1)
    assert float(mcmc.last_state.adapt_state.step_size) == 1.0


@pytest.mark.parametrize(("kernel", "per_step"), [(SymmetricSplitHMC, 6), (NaiveSplitHMC, 4), (RandomisedSplitHMC, 8)])
def test_gradients_are_counted(kernel, per_step):
    """``num_grads`` against a counter in the model's own backward pass."""
    counted = []

    @jax.custom_vjp
    def tick(x):
        return x

    def backward(_, g):
        jax.debug.callback(lambda: counted.append(1))
        return (g,)

    tick.defvjp(lambda x: (x, None), backward)

    def counting_model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(tick(mu), 1.0), obs=y)

    y = jnp.arange(10.0)
    kernel = kernel(counting_model, num_subsets=4, num_steps=5, step_size=0.1, adapt_step_size=False)
    state = kernel.init(random.key(0), 0, None, model_args=(y,), model_kwargs={})
    sample = jax.jit(lambda state: kernel.sample(state, (y,), {}))
    sample(state)
    jax.effects_barrier()
    counted.clear()
    state = sample(state)
    jax.effects_barrier()
    assert len(counted) == int(state.num_grads) == 5 * per_step


def test_a_drawn_order_opens_each_trajectory_afresh():
    kernel = SymmetricSplitHMC(model, num_subsets=4, num_steps=5, subset_permutation="per_trajectory")
    mcmc = run(kernel, num_chains=1)
    assert set(np.asarray(mcmc.get_extra_fields()["num_grads"])) == {5 * 6 + 1}


@slow
def test_naive_splitting_draws_what_plain_hmc_would():
    """The same transition whatever M: only rounding differs."""
    draws = [
        run(NaiveSplitHMC(model, num_subsets=m, num_steps=4), num_chains=1, num_warmup=20).get_samples()["b"]
        for m in (1, 7)
    ]
    np.testing.assert_allclose(draws[0], draws[1], atol=1e-5)


@pytest.mark.parametrize("dense_mass", [[("b",)], pytest.param(True, marks=slow), pytest.param(False, marks=slow)])
def test_mass_matrices_adapt(dense_mass):
    kernel = SymmetricSplitHMC(model, num_subsets=4, dense_mass=dense_mass)
    mcmc = run(kernel, num_warmup=150, num_chains=1)
    adapted = jax.tree.leaves(mcmc.last_state.adapt_state.inverse_mass_matrix)
    assert max(np.abs(m - np.eye(m.shape[0])).max() if m.ndim == 2 else np.abs(m - 1).max() for m in adapted) > 0.5


def test_given_mass_matrix_and_step_size_stay():
    kernel = SymmetricSplitHMC(
        model,
        num_subsets=4,
        step_size=0.05,
        num_steps=3,
        step_size_jitter=0,
        inverse_mass_matrix=jnp.array([1.0, 2.0, 3.0]),
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    mcmc = run(kernel, num_chains=1)
    assert set(np.asarray(mcmc.get_extra_fields()["step_size"])) == {0.05}
    (matrix,) = jax.tree.leaves(mcmc.last_state.adapt_state.inverse_mass_matrix)
    np.testing.assert_allclose(matrix, [1.0, 2.0, 3.0])


IN_PARALLEL = """
import jax, jax.numpy as jnp
from numpyro.infer import MCMC
from numpyro_split import SymmetricSplitHMC
from tests.test_mcmc_numpyro import make_data, model
starts = {"b": jnp.array([[0.0, 0.0], [jnp.inf, 0.0]]), "s": jnp.zeros(2)}
mcmc = MCMC(SymmetricSplitHMC(model, num_subsets=4), num_warmup=2, num_samples=2, num_chains=2, progress_bar=False)
mcmc.run(jax.random.key(0), *make_data(), init_params=starts)
jax.block_until_ready(mcmc.get_samples())
"""


@pytest.mark.contract
def test_a_bad_start_of_a_parallel_chain_is_an_error():
    """When the draws are read: JAX carries the chains out in the background."""
    ended = subprocess.run([sys.executable, "-c", IN_PARALLEL], capture_output=True, text=True)
    assert ended.returncode != 0
    assert re.search(r"finite potential energy, got nan at \{'b': array\(\[inf", ended.stderr)


def test_divergences_are_rejections_not_exceptions():
    kernel = SymmetricSplitHMC(model, num_subsets=4, step_size=50.0, num_steps=5, adapt_step_size=False)
    mcmc = run(kernel, num_chains=1, num_warmup=0)
    fields = mcmc.get_extra_fields()
    assert np.all(fields["diverging"])
    assert np.all(np.asarray(fields["accept_prob"]) == 0)
    assert np.all(np.isfinite(mcmc.get_samples()["b"]))


def test_a_start_may_be_of_plain_numbers():
    """Which the host leaves as they are where a site needs no transformation."""
    values = {"float": 0.3, "int": 1, "scalar": np.float64(0.2), "whole": np.int64(2)}

    def model(y):
        total = sum(numpyro.sample(name, dist.Normal(0.0, 1.0)) for name in values)
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(total, 1.0), obs=y)

    kernel = SymmetricSplitHMC(
        model, 2, init_strategy=init_to_value(values=values), step_size=1e-6, adapt_step_size=False, num_steps=1
    )
    draws = run(kernel, num_chains=1, num_warmup=0, num_samples=1, args=(jnp.arange(4.0),)).get_samples()
    for name, value in values.items():
        np.testing.assert_allclose(draws[name], float(value), atol=1e-3)
        assert draws[name].dtype == jnp.result_type(float)


def test_kernel_of_a_split_potential():
    y = jnp.linspace(-1.0, 3.0, 20)
    potential = SplitPotential.from_functions(
        lambda z: -0.5 * z["mu"] ** 2, lambda z, y: -0.5 * (y - z["mu"]) ** 2, y, num_subsets=3
    )
    mcmc = MCMC(SymmetricSplitHMC(potential), num_warmup=100, num_samples=300, progress_bar=False)
    mcmc.run(random.key(0), init_params={"mu": jnp.array(0.0)})
    assert abs(np.asarray(mcmc.get_samples()["mu"]).mean() - 20 / 21) < 0.1
    assert mcmc.sampler.num_subsets == 3


@slow
def test_runs_as_a_block_of_gibbs():
    """NumPyro's composite kernel asks for refresh, wrap_model and get_constrain_fn."""
    gibbs = pytest.importorskip("numpyro.infer.gibbs", reason="numpyro has it since 0.22")
    blocks = [
        (SymmetricSplitHMC(model, num_subsets=4, num_steps=3, find_heuristic_step_size=False), ["b"]),
        (HMC(model, num_steps=3, trajectory_length=None), ["s"]),
    ]
    mcmc = run(gibbs.Gibbs(blocks), num_chains=1, num_warmup=200, num_samples=300, chain_method="sequential")
    assert abs(np.asarray(mcmc.get_samples()["b"])[:, 0].mean() - 1.0) < 0.2


@slow
def test_a_block_of_gibbs_starts_from_constrained_values():
    """Which have another shape in a simplex, and are far out where the scale is large."""
    gibbs = pytest.importorskip("numpyro.infer.gibbs", reason="numpyro has it since 0.22")

    def shares(X, y):
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
        size = numpyro.sample("size", dist.LogNormal(7.0, 0.1))
        s = numpyro.sample("s", dist.HalfNormal(1.0))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(X @ share * size / 1000, s), obs=y)

    block = NaiveSplitHMC(shares, num_subsets=2, num_steps=1, find_heuristic_step_size=False)
    kernel = gibbs.Gibbs([(block, ["share", "size"]), (HMC(shares, num_steps=1, trajectory_length=None), ["s"])])
    state = kernel.init(random.key(0), 1, None, make_data(), {})
    assert gibbs.GIBBS_SITES_KWARG == GIBBS_SITES
    assert state.z["share"].shape == (1,)
    assert 6 < float(state.z["size"]) < 8


def of_gibbs(x):
    a = numpyro.sample("a", dist.Gamma(5.0, 1.0))
    u = numpyro.sample("u", dist.Uniform(0.0, a))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("x", dist.Normal(u, 3.0), obs=x)


def test_a_block_of_gibbs_has_no_support_that_depends_on_other_blocks():
    """As of the host's own kernels: its draws would be mapped by a value from the prior of the other block's site."""
    gibbs = pytest.importorskip("numpyro.infer.gibbs", reason="numpyro has it since 0.22")
    x = jnp.linspace(-1.0, 5.0, 12)
    for num_subsets in (1, 3):
        blocks = [
            (gibbs.CustomGibbs(lambda *args: {"a": jnp.array(5.0)}), ["a"]),
            (SplitNUTS(of_gibbs, num_subsets), None),
        ]
        with pytest.raises(ValueError, match=r"supports of sites \['u'\] must not depend on sites of other blocks"):
            gibbs.Gibbs(blocks).init(random.key(0), 1, None, (x,), {})


@slow
def test_a_block_of_gibbs_may_have_supports_that_depend_on_its_own_sites_and_on_data():
    gibbs = pytest.importorskip("numpyro.infer.gibbs", reason="numpyro has it since 0.22")

    def with_scale(x):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        v = numpyro.sample("v", dist.Uniform(0.0, x.max()))
        numpyro.sample("seen", dist.Normal(v, scale), obs=1.0)
        of_gibbs(x)

    x = jnp.linspace(-1.0, 5.0, 12)
    blocks = [(NUTS(with_scale), ["scale"]), (SplitNUTS(with_scale, 3), None)]
    mcmc = run(gibbs.Gibbs(blocks), args=(x,), num_chains=1, num_warmup=20, num_samples=20, chain_method="sequential")
    draws = mcmc.get_samples()
    assert (draws["u"] < draws["a"]).all()
    assert (draws["v"] < 5.0).all()


@slow
def test_a_block_of_gibbs_beside_discrete_sites():
    """The model divides given the other block's sites, which the host leaves out where it maps a position to values."""
    gibbs = pytest.importorskip("numpyro.infer.gibbs", reason="numpyro has it since 0.22")

    def mixture(x):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        with numpyro.plate("data", x.shape[0]):
            part = numpyro.sample("part", dist.Bernoulli(0.5))
            numpyro.sample("x", dist.Normal(mu[part], 1.0), obs=x)

    x = jnp.concatenate([jnp.linspace(-3.0, -1.0, 8), jnp.linspace(2.0, 4.0, 8)])
    blocks = [(gibbs.DiscreteGibbs(mixture), gibbs.discrete_latent_sites), (SplitNUTS(mixture, 4), None)]
    start = {"mu": jnp.array([-2.0, 3.0])}
    mcmc = MCMC(gibbs.Gibbs(blocks), num_warmup=50, num_samples=100, progress_bar=False)
    mcmc.run(random.key(0), x, init_params=start)
    np.testing.assert_allclose(mcmc.get_samples()["mu"].mean(0), [-2.0, 3.0], atol=0.5)


def hierarchical(X, y, concentration=None):
    a = numpyro.sample("a", dist.Normal(1.0, 1.0))
    tau = numpyro.sample("tau", dist.Gamma(concentration or jnp.exp(a), 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, jnp.exp(a) * tau**-0.5).expand([2]).to_event(1))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(X[:, :2] @ w, 1.0), obs=y)


def test_a_block_of_gibbs_takes_sites_of_other_blocks_for_no_constants():
    """A concentration made of one would be that of its first value in every draw of the precision."""
    gibbs = pytest.importorskip("numpyro.infer.gibbs", reason="numpyro has it since 0.22")
    kernel = gibbs.Gibbs([(NUTS(hierarchical), ["a"]), (BlockGibbsHMC(hierarchical, 2), ["tau", "w"])])
    with pytest.raises(ValueError, match="the concentration of its prior is no constant"):
        kernel.init(random.key(0), 1, None, make_data(), {})


@slow
@pytest.mark.parametrize("make", [BlockGibbsHMC, S3HMC])
def test_a_hierarchical_block_of_gibbs_may_stand_first(make):
    """What its weights' scale has besides the precision is another number once the other block has started."""
    gibbs = pytest.importorskip("numpyro.infer.gibbs", reason="numpyro has it since 0.22")
    model = functools.partial(hierarchical, concentration=3.0)
    kernel = gibbs.Gibbs([(make(model, 2), ["tau", "w"]), (NUTS(model), ["a"])])
    mcmc = MCMC(kernel, num_warmup=3, num_samples=3, num_chains=2, chain_method="sequential", progress_bar=False)
    mcmc.run(random.key(0), *make_data())
    assert np.isfinite(mcmc.get_samples()["tau"]).all()


@slow
def test_a_block_of_gibbs_reads_the_rows_of_great_influence_at_every_step():
    """PenaltyMH: also after another block has moved."""
    gibbs = pytest.importorskip("numpyro.infer.gibbs", reason="numpyro has it since 0.22")
    scale = jnp.full(2000, 40.0).at[1700].set(0.2)

    def model(scale, y):
        a, b = (numpyro.sample(name, dist.Normal(0.0, 1.0)) for name in "ab")
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(a + 0.01 * b, scale), obs=y)

    block = PenaltyMH(model, batch_size=20, num_batches=4, control_variate=None, proposal="random_walk")
    mcmc = MCMC(gibbs.Gibbs([(block, ["a"]), (NUTS(model), ["b"])]), num_warmup=2, num_samples=2, progress_bar=False)
    mcmc.run(random.key(0), scale, scale * random.normal(random.key(1), (2000,)))
    assert 1700 in mcmc.last_state.block_states[0].certainty_rows


def test_sorted_labels_are_warned_of():
    X, y = make_data()
    with pytest.warns(UserWarning, match="subset_order='shuffled'"):
        run(args=(X, jnp.sort(y)), num_chains=1, num_warmup=2, num_samples=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = SymmetricSplitHMC(model, num_subsets=4, subset_order="shuffled")
        run(kernel, args=(X, jnp.sort(y)), num_chains=1, num_warmup=2, num_samples=2)


def test_a_chain_that_leaves_warnings_to_the_report_is_stored(tmp_path):
    """JAX stores no program that calls back, and a second process is to find the chain."""
    code = """
import jax
from numpyro_split.potential.tracing import call_back
hits, told = [], []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name.endswith("cache_hits")))
jax.block_until_ready(jax.jit(lambda x: (call_back(told.append, x), x + 1)[1])(1.0))
jax.effects_barrier()
print(len(told), any(hits))
"""
    stored = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

    def run_with(**chosen):
        environment = {**os.environ, **stored, **chosen}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    for _ in range(2):
        assert run_with().stdout.split() == ["1", "False"]
    found = [run_with(SPLIT_MCMC_WARNINGS="report").stdout.split() for _ in range(2)]
    assert found == [["0", "False"], ["0", "True"]]
    assert "SPLIT_MCMC_WARNINGS must be 'report' or not set, got 'no'" in run_with(SPLIT_MCMC_WARNINGS="no").stderr


@pytest.mark.parametrize("by", ["init_params", "init_strategy"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_start_of_half_precision_is_widened(by, dtype):
    """Chains have the type of their start, and on so coarse a grid they would stand still."""
    value = {"b": jnp.zeros(2, dtype), "s": jnp.ones((), dtype)}
    options = {"init_strategy": init_to_value(values=value)} if by == "init_strategy" else {}
    kernel = NaiveSplitHMC(model, num_subsets=2, num_steps=2, **options)
    mcmc = MCMC(kernel, num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(0), *make_data(), init_params=value if by == "init_params" else None)
    assert mcmc.get_samples()["b"].dtype.itemsize >= 4


def test_a_model_that_keeps_a_tracer_is_told_so_by_a_kernel():
    class Centered:
        mean = None

        def __call__(self, X, y):
            self.mean = X.mean(0) if self.mean is None else self.mean
            model(X - self.mean, y)

    mcmc = MCMC(NaiveSplitHMC(Centered(), num_subsets=2), num_warmup=5, num_samples=5, progress_bar=False)
    with pytest.raises(ModelNotSplittableError, match="^the model must keep nothing of its first run"):
        mcmc.run(jax.random.key(0), *make_data())


def test_numbers_among_traced_arguments_are_told_of():
    def scaled(X, y, sigma):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(X @ b, sigma), obs=y)

    options = {"num_warmup": 5, "num_samples": 5, "progress_bar": False, "jit_model_args": True}
    with pytest.raises(RuntimeError, match=r"pass jnp.asarray\(2.0\) in place of 2.0"):
        MCMC(NaiveSplitHMC(scaled, num_subsets=2, num_steps=2), **options).run(jax.random.key(0), *make_data(), 2.0)
    mcmc = MCMC(NaiveSplitHMC(scaled, num_subsets=2, num_steps=2), **options)
    mcmc.run(jax.random.key(0), *make_data(), jnp.asarray(2.0))
