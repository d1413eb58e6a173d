"""Split kernels inside Pyro's ``MCMC``: chains in one process and in several, streaming, hooks, ArviZ."""

import pickle

import arviz as az
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC, Predictive
from pyro.infer.autoguide.initialization import init_to_value
from pyro.infer.mcmc.api import StreamingMCMC

from pyro_split import (
    NaiveSplitHMC,
    PenaltyMH,
    RandomisedSplitHMC,
    SplitNUTS,
    SplitPotential,
    SymmetricSplitHMC,
    sample,
    to_inference_data,
)
from split_common.errors import StoreError
from split_common.runs.stopping import StopWhen

KERNELS = [SymmetricSplitHMC, NaiveSplitHMC, RandomisedSplitHMC]


def model(X, y=None):
    b = pyro.sample("b", dist.Normal(torch.zeros(2), torch.ones(2)).to_event(1))
    s = pyro.sample("s", dist.HalfNormal(torch.tensor(1.0)))
    with pyro.plate("data", X.shape[0]):
        mean = pyro.deterministic("mean", X @ b.unsqueeze(-1)).squeeze(-1)
        return pyro.sample("y", dist.Normal(mean, s), obs=y)


def make_data(seed=0, slope=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 2))
    return torch.tensor(X), torch.tensor(slope * X[:, 0] + 0.3 * rng.normal(size=30))


def run(kernel=None, *, warmup_steps=60, num_samples=40, num_chains=1, seed=0, args=None, **options):
    pyro.set_rng_seed(seed)
    kernel = kernel or SymmetricSplitHMC(model, num_subsets=4)
    mcmc = MCMC(kernel, num_samples, warmup_steps, num_chains=num_chains, disable_progbar=True, **options)
    mcmc.run(*(make_data() if args is None else args))
    return mcmc


@pytest.fixture(scope="module")
def standard():
    """Two sequential chains, for the tests that only look at the result."""
    torch.set_default_dtype(torch.float64)
    with pytest.warns(UserWarning, match="available_cpu"):
        return run(num_chains=2, num_samples=100)


def test_sequential_chains_start_apart():
    starts = []

    def hook(kernel, params, stage, i):
        if i == 0 and stage.startswith("Warmup"):
            starts.append(kernel.initial_params["b"])

    with pytest.warns(UserWarning, match="available_cpu"):
        run(num_chains=2, warmup_steps=3, num_samples=2, hook_fn=hook)
    assert len(starts) == 2
    assert not torch.equal(*starts)


@pytest.mark.slow
@pytest.mark.parametrize("mp_context", ["fork", "spawn"])
def test_chains_in_processes_of_their_own(mp_context, monkeypatch):
    monkeypatch.setattr("pyro.infer.mcmc.api.mp.cpu_count", lambda: 3)
    mcmc = run(num_chains=2, warmup_steps=20, num_samples=10, mp_context=mp_context)
    draws = mcmc.get_samples(group_by_chain=True)
    assert draws["b"].shape == (2, 10, 2)
    assert (draws["s"] > 0).all()
    assert to_inference_data(mcmc).sample_stats["energy"].shape == (2, 10)


@pytest.mark.slow
def test_pickled_before_and_after_a_run():
    kernel = pickle.loads(pickle.dumps(SymmetricSplitHMC(model, num_subsets=4)))
    mcmc = run(kernel)
    again = run(pickle.loads(pickle.dumps(mcmc.kernel)))
    torch.testing.assert_close(again.get_samples()["b"], mcmc.get_samples()["b"])


@pytest.mark.slow
def test_seed_decides_the_draws():
    torch.testing.assert_close(run(seed=3).get_samples()["b"], run(seed=3).get_samples()["b"], rtol=0, atol=0)


def test_traced_and_replayed_models_give_the_same_draws():
    traced, replayed = (
        run(SymmetricSplitHMC(model, num_subsets=4, jit_compile=jit), warmup_steps=20).get_samples()["b"]
        for jit in (True, False)
    )
    torch.testing.assert_close(traced, replayed, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_new_data_on_the_same_object():
    mcmc = run(num_samples=200)
    mcmc.run(*make_data(seed=1, slope=-2.0))
    assert abs(float(mcmc.get_samples()["b"][:, 0].mean()) + 2.0) < 0.3


def test_streaming():
    pyro.set_rng_seed(0)
    mcmc = StreamingMCMC(SymmetricSplitHMC(model, num_subsets=4), 100, 60, disable_progbar=True)
    mcmc.run(*make_data())
    statistics = mcmc.get_statistics(group_by_chain=False)
    assert abs(float(statistics["b"]["mean"][0]) - 1.0) < 0.3


def test_hook_and_saved_parameters():
    stages = []
    mcmc = run(
        warmup_steps=3, num_samples=2, hook_fn=lambda kernel, z, stage, i: stages.append((stage, i)), save_params=["b"]
    )
    assert stages == [("Warmup", 0), ("Warmup", 1), ("Warmup", 2), ("Sample", 0), ("Sample", 1)]
    assert set(mcmc.get_samples()) == {"b"}


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_model_is_not_at_fault(context):
    """A potential takes its own, so that it runs there too."""
    message = rf"mcmc.run must be called with gradients enabled, got it inside torch.{context.__name__}\(\)"
    with context(), pytest.raises(RuntimeError, match=message):
        run()
    likelihood, prior = (lambda z, batch: -((batch[0] - z["b"]) ** 2)), (lambda z: -(z["b"] ** 2))
    potential = SplitPotential.from_functions(prior, likelihood, (torch.arange(6.0),), 2)
    with context():
        kernel = SymmetricSplitHMC(potential)
        run(kernel, warmup_steps=2, num_samples=2, args=(), initial_params={"b": torch.tensor(0.5)})


def test_autocast_is_named_where_numbers_differ():
    """Its half precision is no statistic of all rows."""
    X, y = (x.float() for x in make_data())
    message = r"autocast is on \(cpu\), whose half precision rounds more than the comparison allows: switch it off"
    with torch.autocast("cpu"), pytest.raises(ValueError, match=message):
        run(args=(X.repeat(20, 1), y.repeat(20)))


def of_truths(X, y):
    b = pyro.sample("b", dist.Normal(torch.zeros(2), torch.ones(2)).to_event(1))
    with pyro.plate("data", X.shape[0]):
        pyro.sample("y", dist.Bernoulli(logits=X @ b), obs=y)


@pytest.mark.parametrize("num_subsets", [1, 3])
def test_where_the_host_validates_observations_are_checked(num_subsets):
    """Labels of -1 and 1 have a log-density like any numbers, which the host samples where it does not validate."""
    X, y = make_data()
    kernel = SymmetricSplitHMC(of_truths, num_subsets, num_steps=1, jit_compile=False)
    few = {"warmup_steps": 1, "num_samples": 1}
    run(kernel, args=(X, y.sign()), **few)
    run(kernel, args=(X, (y > 0).double()), disable_validation=False, **few)
    with pytest.raises(ValueError, match=r"site 'y':\n.*within the support"):
        run(kernel, args=(X, y.sign()), disable_validation=False, **few)


def test_where_the_host_validates_latents_may_have_an_entry_for_each_row():
    """Observations are checked on a subset's rows, on which such a latent outside the plate is of another shape."""

    def of_rows(y):
        tau = pyro.sample("tau", dist.Gamma(torch.tensor(2.0), 3.0))
        u = pyro.sample("u", dist.Normal(torch.zeros(len(y)), tau**-0.5).to_event(1))
        with pyro.plate("data", len(y)) as i:
            pyro.sample("y", dist.Normal(u[i], 1.0), obs=y)

    kernel = SymmetricSplitHMC(of_rows, 3, num_steps=1, jit_compile=False)
    run(kernel, args=(make_data()[1],), disable_validation=False, warmup_steps=1, num_samples=1)


@pytest.mark.parametrize("full_mass", [False, True])
def test_latents_of_several_types(full_mass):
    """The first step makes one type of them, in the host too, which a matrix must have from the start."""

    def of_two_types(X, y):
        b = pyro.sample("b", dist.Normal(torch.zeros(2, dtype=torch.float32), 1.0).to_event(1))
        s = pyro.sample("s", dist.HalfNormal(torch.tensor(1.0, dtype=torch.float64)))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Normal((X * b).sum(-1), s), obs=y)

    kernel = SymmetricSplitHMC(of_two_types, 2, num_steps=2, full_mass=full_mass, jit_compile=False)
    draws = run(kernel, warmup_steps=5, num_samples=2).get_samples()
    assert {x.dtype for x in draws.values()} == {torch.float64}


def test_where_the_host_validates_a_stored_run_does(tmp_path):
    X, y = make_data()
    mcmc = MCMC(SymmetricSplitHMC(of_truths, 3, num_steps=1), 1, 1, disable_progbar=True, disable_validation=False)
    with pytest.raises(ValueError, match=r"site 'y':\n.*within the support"):
        sample(mcmc, X, y.sign(), store=tmp_path / "run.zarr")


def test_given_start():
    start = {"b": torch.tensor([5.0, 5.0]), "s": torch.tensor(0.0)}
    seen = []
    run(initial_params=start, warmup_steps=1, num_samples=1, hook_fn=lambda k, z, s, i: seen.append(k.initial_params))
    torch.testing.assert_close(seen[0]["b"], start["b"])


def test_a_caller_may_move_the_chain():
    """Another position than the last draw is taken up, its potential computed afresh."""
    kernel = SymmetricSplitHMC(model, num_subsets=4, step_size=1e-6, num_steps=1, adapt_step_size=False)
    kernel.setup(0, *make_data())
    elsewhere = {"b": torch.tensor([1.0, 2.0]), "s": torch.tensor(0.5)}
    draw = kernel.sample(elsewhere)
    torch.testing.assert_close(draw["b"], elsewhere["b"], atol=1e-3, rtol=0)


def test_progress_bar_and_summary_say_something(capsys, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("CI", raising=False)
    mcmc = MCMC(SymmetricSplitHMC(model, num_subsets=4), 10, 10)
    mcmc.run(*make_data())
    printed = capsys.readouterr().err
    assert "step size" in printed
    assert "acc. prob" in printed
    mcmc.summary()
    assert "Number of divergences" in capsys.readouterr().out


def test_predictive(standard):
    X, _ = make_data()
    draws = Predictive(model, standard.get_samples())(X)
    assert draws["y"].shape == (200, 30)


def test_arviz_gets_everything(standard):
    idata = to_inference_data(standard)
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


def test_arviz_needs_a_kernel_of_ours():
    from pyro.infer import NUTS

    mcmc = run(NUTS(model), warmup_steps=2, num_samples=2)
    with pytest.raises(ValueError, match="kernel of pyro_split"):
        to_inference_data(mcmc)


def test_without_warmup_the_step_size_stays():
    """Nothing adapts then, so nothing bounds it either."""
    sizes = []
    kernel = SymmetricSplitHMC(model, num_subsets=4, step_size=1.0)
    run(
        kernel,
        warmup_steps=0,
        num_samples=3,
        hook_fn=lambda kernel, *_: sizes.append(kernel._chain.state.adapt_state.step_size),
    )
    assert sizes == [1.0] * 3


def test_length_is_drawn_unless_given(standard):
    lengths = [n * size for d in standard._diagnostics for n, size in zip(d["num_steps"], d["step_size"], strict=True)]
    assert 0.0 < min(lengths) < 0.7 < 2.0 < max(lengths) < 10.0
    (d,) = run(SymmetricSplitHMC(model, num_subsets=4, trajectory_length=1.0))._diagnostics
    np.testing.assert_allclose(np.multiply(d["num_steps"], d["step_size"]), 1.0)


@pytest.mark.parametrize(("kernel", "per_step"), [(SymmetricSplitHMC, 6), (NaiveSplitHMC, 4), (RandomisedSplitHMC, 8)])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_gradients_are_counted(kernel, per_step, jit_compile):
    """``num_grads`` against a counter wrapped round the subset gradient, and, replayed, round the model."""
    calls = []

    def counting_model(y):
        mu = pyro.sample("mu", dist.Normal(torch.tensor(0.0), 1.0))
        if mu.requires_grad and torch.is_grad_enabled() and len(y) < 10:
            calls.append(len(y))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    kernel = kernel(
        counting_model, num_subsets=4, num_steps=5, step_size=0.1, adapt_step_size=False, jit_compile=jit_compile
    )
    kernel.setup(0, torch.arange(10.0))
    z = kernel.sample(kernel.initial_params)
    counted, potential = [], kernel._chain.prepared.potential

    def counting(gradient):
        def count(z, m):
            counted.append(m)
            place, result = len(counted), gradient(z, m)
            del counted[place:]  # one that takes the other's result is one gradient
            return result

        return count

    for name in ("subset_energies_and_grad", "subset_grad"):
        setattr(potential, name, counting(getattr(potential, name)))
    calls.clear()
    kernel.sample(z)
    assert len(counted) == kernel._chain.state.num_grads == 5 * per_step
    if not jit_compile:  # the model itself: its rows once, and one row for the prior, at each gradient
        assert sum(size > 1 for size in calls) == 5 * per_step
    else:
        assert not calls


def test_a_drawn_order_opens_each_trajectory_afresh():
    kernel = SymmetricSplitHMC(model, num_subsets=4, num_steps=5, subset_permutation="per_trajectory")
    mcmc = run(kernel, warmup_steps=5, num_samples=5)
    assert set(mcmc.diagnostics()["num_grads"]["chain 0"]) == {5 * 6 + 1}


def test_naive_splitting_draws_what_plain_hmc_would():
    draws = [run(NaiveSplitHMC(model, num_subsets=m, num_steps=4), warmup_steps=20).get_samples()["b"] for m in (1, 7)]
    torch.testing.assert_close(draws[0], draws[1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("full_mass", [[("b",)], *(pytest.param(x, marks=pytest.mark.slow) for x in (True, False))])
def test_mass_matrices_adapt(full_mass):
    kernel = SymmetricSplitHMC(model, num_subsets=4, full_mass=full_mass)
    matrices = []
    run(
        kernel,
        warmup_steps=150,
        num_samples=1,
        hook_fn=lambda k, z, s, i: matrices.append(k._chain.state.adapt_state.inverse_mass_matrix),
    )
    adapted = matrices[-1].values()
    assert max(float((m - (torch.eye(len(m)) if m.dim() == 2 else 1)).abs().max()) for m in adapted) > 0.5


def test_given_mass_matrix_and_step_size_stay():
    kernel = SymmetricSplitHMC(
        model,
        num_subsets=4,
        step_size=0.05,
        num_steps=3,
        step_size_jitter=0,
        inverse_mass_matrix=torch.tensor([1.0, 2.0, 3.0]),
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    matrices = []
    mcmc = run(
        kernel,
        num_samples=5,
        hook_fn=lambda k, z, s, i: matrices.append(k._chain.state.adapt_state.inverse_mass_matrix),
    )
    assert set(mcmc.diagnostics()["step_size"]["chain 0"]) == {0.05}
    torch.testing.assert_close(matrices[-1][("b", "s")], torch.tensor([1.0, 2.0, 3.0]))


def test_divergences_are_rejections_not_exceptions():
    kernel = SymmetricSplitHMC(model, num_subsets=4, step_size=50.0, num_steps=5, adapt_step_size=False)
    mcmc = run(kernel, warmup_steps=0)
    assert mcmc.diagnostics()["divergences"]["chain 0"] == list(range(40))
    assert torch.isfinite(mcmc.get_samples()["b"]).all()


def test_singular_matrices_are_rejections_not_exceptions():
    def singular(y):
        s = pyro.sample("s", dist.Normal(torch.tensor(0.0), 0.1))
        matrix = torch.stack([torch.stack([1.0 + 0 * s, s]), torch.stack([s, 1.0 + 0 * s])])
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.MultivariateNormal(torch.zeros(2), matrix), obs=y)

    near = init_to_value(values={"s": torch.tensor(0.1)})
    kernel = SymmetricSplitHMC(
        singular, num_subsets=2, step_size=3.0, num_steps=2, adapt_step_size=False, init_strategy=near
    )
    mcmc = run(kernel, warmup_steps=0, args=(torch.randn(10, 2),))
    assert mcmc.get_samples()["s"].abs().max() < 1.0


def test_kernel_of_a_split_potential():
    potential = SplitPotential.from_functions(
        lambda z: -0.5 * z["mu"] ** 2, lambda z, y: -0.5 * (y - z["mu"]) ** 2, torch.linspace(-1.0, 3.0, 20), 3
    )
    pyro.set_rng_seed(0)
    mcmc = MCMC(SymmetricSplitHMC(potential), 300, 100, initial_params={"mu": torch.tensor(0.0)}, disable_progbar=True)
    mcmc.run()
    assert abs(float(mcmc.get_samples()["mu"].mean()) - 20 / 21) < 0.1


def test_sorted_labels_are_warned_of():
    X, y = make_data()
    with pytest.warns(UserWarning, match="subset_order='shuffled'"):
        run(args=(X, y.sort().values), warmup_steps=2, num_samples=2)


def bounded(X, y, *, low=None, high=None):
    """A bound that does nothing where a chain starts, so that the energy there tells nothing."""
    b = pyro.sample("b", dist.Normal(torch.zeros(2), torch.ones(2)).to_event(1))
    with pyro.plate("data", X.shape[0]):
        pyro.sample("y", dist.Normal(X @ b.clamp(low, high), 1.0), obs=y)


def stored(path, num_samples, function=model, data=None, kwargs=None, **options):
    pyro.set_rng_seed(0)
    kernel = NaiveSplitHMC(function, num_subsets=2, num_steps=2)
    mcmc = MCMC(kernel, num_samples, 5, disable_progbar=True, **options)
    return mcmc, sample(mcmc, *(data or make_data()), store=path, **(kwargs or {}))


def test_a_store_knows_the_names_of_arguments(tmp_path):
    start = {"initial_params": {"b": torch.tensor([0.1, -0.1])}}
    stored(tmp_path / "run.zarr", 4, bounded, kwargs={"low": -0.2}, **start)
    with pytest.raises(StoreError, match=r"another data\['low'\]: -0.2 in the store, got nothing"):
        stored(tmp_path / "run.zarr", 8, bounded, kwargs={"high": -0.2}, **start)


@pytest.mark.parametrize(("first", "then"), [({}, {"save_params": ["b"]}), ({"save_params": ["b"]}, {})])
def test_a_store_knows_which_sites_are_kept(tmp_path, first, then):
    stored(tmp_path / "run.zarr", 4, **first)
    with pytest.raises(StoreError, match="another save_params"):
        stored(tmp_path / "run.zarr", 8, **then)


def test_transforms_of_a_run_are_those_of_its_store(tmp_path):
    """Two sites, one of which is not transformed."""
    given = {"b": torch.distributions.transforms.ExpTransform().inv}
    plain, _ = stored(tmp_path / "plain.zarr", 4)
    mcmc, opened = stored(tmp_path / "run.zarr", 4, transforms=given)
    of_host = run(NaiveSplitHMC(model, num_subsets=2, num_steps=2), warmup_steps=5, num_samples=4, transforms=given)
    assert torch.equal(mcmc.get_samples()["b"], of_host.get_samples()["b"])
    assert torch.equal(mcmc.get_samples()["b"], plain.get_samples()["b"].exp())
    np.testing.assert_array_equal(opened.posterior["b"][0], mcmc.get_samples()["b"])
    with pytest.raises(StoreError, match="another transforms"):
        stored(tmp_path / "run.zarr", 8)


def bounded_mean(y, high):
    """Mean of ``y`` between 0 and ``high``, which is an argument."""
    mu = pyro.sample("mu", dist.Uniform(torch.tensor(0.0), high))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y)


# Data and bounds of two runs: transforms of the first would squeeze the second's draws into an interval of length 1.
TENTH, WHOLE = (
    (scale * (6.0 + torch.randn(200, generator=torch.Generator().manual_seed(0))), torch.tensor(10.0 * scale))
    for scale in (0.1, 1.0)
)


@pytest.mark.parametrize("load", [True, False])
def test_a_run_that_is_stored_again_maps_draws_by_its_own_transforms(tmp_path, load):
    kernel = NaiveSplitHMC(bounded_mean, num_subsets=2, num_steps=3)
    mcmc = MCMC(kernel, warmup_steps=30, num_samples=20, disable_progbar=True)
    sample(mcmc, *TENTH, store=tmp_path / "a.zarr", load=load)
    opened = sample(mcmc, *WHOLE, store=tmp_path / "b.zarr", load=load)
    assert abs(float(opened.posterior["mu"].mean()) - 6.0) < 0.5


@pytest.mark.parametrize("start", [None, {"mu": torch.tensor(0.0)}], ids=["drawn start", "given start"])
@pytest.mark.parametrize("kernel_class", [NaiveSplitHMC, SplitNUTS, PenaltyMH])
def test_a_later_run_maps_draws_by_its_own_transforms(kernel_class, start):
    """Of its first run each MCMC keeps the kernel's dict of transforms, and maps the draws of later ones by it."""
    torch.manual_seed(1)
    kernel = kernel_class(bounded_mean, **({} if kernel_class is PenaltyMH else {"num_subsets": 2}))
    options = {"warmup_steps": 40, "num_samples": 40, "initial_params": start, "disable_progbar": True}
    one, other = MCMC(kernel, **options), MCMC(kernel, **options)
    for mcmc, args in ((one, TENTH), (one, WHOLE), (other, TENTH), (one, WHOLE)):
        mcmc.run(*args)
        assert abs(float(mcmc.get_samples()["mu"].mean() / args[1]) - 0.6) < 0.05


def test_the_same_call_goes_on_with_the_same_mcmc(tmp_path):
    """As where a cell of a notebook is run again, after a run that ended before its first draw."""
    kernel = NaiveSplitHMC(model, num_subsets=2, num_steps=2)
    mcmc = MCMC(kernel, warmup_steps=30, num_samples=5, disable_progbar=True)
    for stop_when in (StopWhen(seconds=1e-9), None, None):
        opened = sample(mcmc, *make_data(), store=tmp_path / "run.zarr", every=10, load=False, stop_when=stop_when)
    assert opened.posterior.sizes["draw"] == 5
