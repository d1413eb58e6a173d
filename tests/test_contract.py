"""What is asked of every kernel: one table (tests/kernels.py), one suite of asks, both packages.

The first test of a kernel is a bundle of the cheapest asks and runs with the default tests; the others are marked
``contract`` (`make test-contract`). Runs are of a few iterations: nothing here is about how well a kernel samples, only
about what it samples, and that it does so wherever the host lets it.
"""

from __future__ import annotations

import importlib
import pickle
import threading
import warnings
from typing import Any

import numpy as np
import pytest

from tests import kernels
from tests.backends import NumPyroBackend, PyroBackend
from tests.kernels import TABLE, Entry

# Those that differ from a neighbour by what tests of their own look at: asked in the slow suite, for time.
VARIANTS = (
    "SymmetricSplitHMC in a drawn order",
    "XHMC adapted",
    "PenaltyMH without control variate",
    "PenaltyMH of first order",
    "BlockGibbsHMC by HMC",
)


def asked_of(table: dict[str, Entry]) -> Any:
    """A test for each kernel of a table."""
    marked = [pytest.param(e, id=k, marks=[pytest.mark.slow] * (k in VARIANTS)) for k, e in table.items()]
    return pytest.mark.parametrize("entry", marked)


every_kernel = asked_of(TABLE)
of_potentials = asked_of({name: entry for name, entry in TABLE.items() if entry.takes_potential})
contract = pytest.mark.contract
in_numpyro = pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
in_pyro = pytest.mark.parametrize("lib", [PyroBackend], ids=["pyro"], indirect=True)
STATISTICS = {"diverging", "energy", "potential_energy", "accept_prob", "num_steps", "num_grads", "step_size"}
SITES = {"tau", "w", "m", "p", "a"}


@pytest.fixture(autouse=True)
def _quick(lib, monkeypatch, request):
    """That subsets add up is tested elsewhere; runs as short as these warn of what is no concern here."""
    splitting = importlib.import_module(f"{lib.split.__name__}.splitting.model_split")
    if request.node.originalname != "test_spawned_chains":  # in whose processes it is made, and draws random numbers
        monkeypatch.setattr(splitting, "check_exact", lambda *args: None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(available_cpu|left by other data|depth|cut off|noise|χ²).*")
        yield


def draws_of(lib: Any, mcmc: Any) -> dict[str, np.ndarray]:
    return {name: lib.to_numpy(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}


def assert_same(first: dict[str, np.ndarray], second: dict[str, np.ndarray], atol: float = 0.0) -> None:
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=0, atol=atol, err_msg=name)


def statistics_are_sound(lib: Any, entry: Entry, mcmc: Any, num_draws: int, num_chains: int = 1) -> None:
    found = lib.statistics(mcmc)
    expected = STATISTICS | set(entry.statistics)
    assert expected <= set(found)
    for name in expected:
        assert found[name].shape[:2] == (num_chains, num_draws), name
        assert np.all(np.isfinite(found[name].astype(float))), name
    assert np.all(found["num_steps"] >= 1)
    assert np.all((found["accept_prob"] >= 0) & (found["accept_prob"] <= 1))


def assert_rests_on(lib, entry, state, model, args, kwargs) -> None:
    """The state's energy is that of the model on these data, where it is no estimate; its expansion always."""
    taylor = lib.taylor(state)
    if taylor is not None:
        expected = lib.log_likelihood(model, args, kwargs, taylor.reference)
        assert float(taylor.value) == pytest.approx(expected, rel=1e-8)
    found, energy = float(state.potential_energy), lib.host_energy(model, args, kwargs, state.z)
    assert found == pytest.approx(energy, rel=0.7 if entry.is_noisy else 1e-9)


@every_kernel
def test_runs_and_tells(lib, entry):
    """A model of sites of every shape: draws, statistics, the same draws again, ArviZ, predictions, repr."""
    problem = kernels.mixed(lib)
    kernel = entry.make(lib, problem.model)
    session = lib.session(kernel, num_warmup=20, num_samples=20)
    state = session.fresh(*problem.args)
    mcmc, draws = session.mcmc, draws_of(lib, session.mcmc)
    assert {name: x.shape[2:] for name, x in draws.items() if name in SITES} == {
        "tau": (), "w": (2,), "m": (2, 2), "p": (3,), "a": (),
    }  # fmt: skip
    assert all(np.all(np.isfinite(x)) for x in draws.values())
    np.testing.assert_allclose(draws["p"].sum(-1), 1.0)
    assert np.all(draws["tau"] > 0)
    statistics_are_sound(lib, entry, mcmc, 20)
    assert_rests_on(lib, entry, state, problem.model, problem.args, {})
    idata = lib.split.to_inference_data(mcmc)
    np.testing.assert_allclose(np.asarray(idata.observed_data["y"]), lib.to_numpy(problem.args[1]))
    assert {"lp", "acceptance_rate", "diverging", "n_steps", *entry.statistics} <= set(idata.sample_stats)
    assert ("settled_step_size" in idata.sample_stats.attrs) == entry.adapts
    assert lib.predictive(problem.model, mcmc, problem.args[0])["y"].shape == (20, kernels.NUM_ROWS)
    assert f"{entry.name}(" in repr(kernel)
    assert "num_subsets=2" in repr(kernel)


@contract
@every_kernel
def test_subsets_and_warmup(lib, entry):
    """One subset and seven of unequal size; no warm-up and one iteration of it."""
    problem = kernels.small(lib)
    for num_subsets, num_warmup in ((entry.least_subsets, 0), (7, 1)):
        session = lib.session(entry.make(lib, problem.model, num_subsets), num_warmup=num_warmup, num_samples=4)
        assert_rests_on(lib, entry, session.fresh(*problem.args), problem.model, problem.args, {})
        statistics_are_sound(lib, entry, session.mcmc, 4)


@contract
@every_kernel
def test_single_precision(lib, entry):
    lib.set_precision(32)
    problem = kernels.small(lib)
    args = tuple(lib.array(lib.to_numpy(x).astype(np.float32)) for x in problem.args)
    mcmc = lib.run(entry.make(lib, problem.model), *args, num_warmup=5, num_samples=5)
    statistics_are_sound(lib, entry, mcmc, 5)
    assert {(x.dtype, bool(np.all(np.isfinite(x)))) for x in draws_of(lib, mcmc).values()} == {
        (np.dtype(np.float32), True)
    }


@contract
@in_numpyro
@every_kernel
def test_settings_that_look_for_errors(lib, entry):
    """JAX may be asked to stop at any NaN, and where axes are added unasked: nothing of the kernel's does either."""
    import jax

    ppl, dist, X, y = lib.ppl, lib.dist, *kernels.data(lib)

    def model(X, y):
        tau = ppl.sample("tau", dist.Gamma(3.0, 2.0))
        w = ppl.sample("w", dist.Normal(lib.np.zeros(2), lib.np.full(2, tau**-0.5)).to_event(1))
        with ppl.plate("data", len(y)):
            ppl.sample("y", dist.Normal(X @ w, 1.0), obs=y)

    with jax.debug_nans(True), jax.numpy_rank_promotion("raise"):
        mcmc = lib.run(entry.make(lib, model), X, y, num_warmup=20, num_samples=3)
    statistics_are_sound(lib, entry, mcmc, 3)


@contract
@of_potentials
def test_runs_on_a_potential(lib, entry):
    potential, start = kernels.potential(lib, 7)
    kernel = entry.make(lib, potential)
    mcmc = lib.run(kernel, num_warmup=10, num_samples=10, init_params=start)
    statistics_are_sound(lib, entry, mcmc, 10)
    assert {name: x.shape[2:] for name, x in draws_of(lib, mcmc).items()} == {"a": (), "w": (2,)}
    assert kernel.num_subsets == 7
    with pytest.raises(ValueError, match=r"(init|initial)_params must be given"):
        lib.run(entry.make(lib, potential), num_warmup=2, num_samples=2)


@contract
@every_kernel
def test_new_data(lib, entry):
    """What arrays, numbers, flags and closures hold when a run begins counts, on one kernel, going on or anew."""
    problem = kernels.small(lib)
    kernel = entry.make(lib, problem.model)
    session, other = (lib.session(kernel, num_warmup=2, num_samples=2) for _ in range(2))
    X, y = lib.mutable(problem.args[0]), lib.mutable(problem.args[1])
    more, fewer = kernels.data(lib, 2 * kernels.NUM_ROWS + 1, 30.0), kernels.data(lib, kernels.NUM_ROWS // 2, 30.0)

    def check(begin: Any, *args: Any, **kwargs: Any) -> None:
        assert_rests_on(lib, entry, begin(*args, **kwargs), problem.model, args, kwargs)

    check(session.fresh, X, y)
    y[...] += 30.0
    problem.held["offset"] = lib.mutable(problem.held["offset"]) + 20.0
    check(session.again, X, y)  # an array changed in place, another one in the closure
    check(other.fresh, *fewer, centred=False)  # the kernel has other data since
    check(session.again, X, y, scale=0.5)  # nothing but a number
    problem.held["offset"][...] += 45.0
    check(session.again, *more, scale=0.5)


@contract
@every_kernel
def test_starts(lib, entry):
    """A start of infinite energy: a drawn one is drawn again, a given one is an error that says where."""

    def model(X, y):
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(3.0), lib.array(2.0)))
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), tau**-0.5))
        with lib.ppl.plate("data", X.shape[0]):
            inside = lib.np.where(a > 0, lib.array(0.0), lib.array(-np.inf))
            lib.ppl.factor("half", inside + 0.0 * y)
            lib.ppl.sample("y", lib.dist.Normal(a * X[:, 0], 1.0), obs=y)

    args = kernels.data(lib)
    kernel = entry.make(lib, model)
    mcmc = lib.run(kernel, *args, num_warmup=2, num_samples=3, seed=1, num_chains=3)
    if not entry.is_noisy:
        assert np.all(draws_of(lib, mcmc)["a"] > 0)
    starts = {"tau": lib.array([0.0, 0.0]), "a": lib.array([0.5, -0.25])}
    with pytest.raises(ValueError, match=r"(?s)finite potential energy.*(chain 1|-0\.25)"):
        lib.run(kernel, *args, num_warmup=2, num_samples=2, num_chains=2, init_params=starts)


@contract
@every_kernel
def test_two_runs_at_once(lib, entry):
    """In NumPyro two threads share a kernel; Pyro, whose handlers are the process's, refuses the second by name.

    The first is also that of a kernel which was pickled before.
    """
    model = lib.picklable_model()
    kernel = entry.make(lib, model)
    copied = pickle.loads(pickle.dumps(kernel))
    assert repr(copied) == repr(kernel)
    sets = [kernels.data(lib), kernels.data(lib, kernels.NUM_ROWS + 5, 3.0)]
    alone = draws_of(lib, lib.run(copied, *sets[0], num_warmup=3, num_samples=3))
    if lib.name == "pyro":
        assert_same(alone, draws_of(lib, lib.run(kernel, *sets[0], num_warmup=3, num_samples=3)))
        refuse_second_thread(lib, kernel, sets)
        return
    sessions = [lib.session(kernel, num_warmup=3, num_samples=3) for _ in sets]

    def work(place: int) -> None:
        with lib.double_precision():
            sessions[place].fresh(*sets[place])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    at_once = [draws_of(lib, session.mcmc) for session in sessions]
    sessions[1].fresh(*sets[1])
    for draws, expected in zip(at_once, (alone, draws_of(lib, sessions[1].mcmc)), strict=True):
        assert_same(draws, expected)


def refuse_second_thread(lib: Any, kernel: Any, sets: Any) -> None:
    """Start a run in a thread while another is in the middle of one."""
    refused = []

    def second(*_: Any) -> None:
        def work() -> None:
            with pytest.raises(RuntimeError, match="one MCMC at a time") as caught:
                kernel.setup(1, *sets[1])
            refused.append(caught)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    lib.run(kernel, *sets[0], num_warmup=0, num_samples=1, hook_fn=second)
    assert len(refused) == 1


@contract
@in_numpyro
@every_kernel
def test_chain_methods(lib, entry):
    """Sequential, vectorised and parallel chains are the same over 20 iterations, of a model that scales its data."""
    problem = kernels.small(lib)

    def model(X, y):  # the scale is held: computed once on all rows
        problem.model(X / X.std(0), y)

    options = {"num_warmup": 10, "num_samples": 10, "num_chains": 2}
    sequential, *others = (
        draws_of(lib, lib.run(entry.make(lib, model), *problem.args, chain_method=method, **options))
        for method in ("sequential", "vectorized", "parallel")
    )
    for draws in others:
        assert_same(sequential, draws, atol=1e-10)


@contract
@in_numpyro
@every_kernel
def test_keys_and_compilations(lib, entry):
    """No key is used twice in an iteration, and one compilation serves all of them."""
    import jax

    problem, traces = kernels.small(lib), []

    def counting(X, y=None):
        traces.append(1)
        problem.model(X, y)

    kernel = entry.make(lib, counting)
    state = kernel.init(jax.random.key(0), 5, None, model_args=problem.args, model_kwargs={})
    sample = jax.jit(lambda state: kernel.sample(state, problem.args, {}))
    with jax.debug_key_reuse(True):
        sample(state)
    sample = jax.jit(lambda state: kernel.sample(state, problem.args, {}))
    state = sample(state)
    count = len(traces)
    for _ in range(3):
        state = sample(state)
    assert len(traces) == count


@contract
@in_numpyro
@every_kernel
def test_going_on(lib, entry):
    """A run in two halves, pickled in between, is the run in one, of which thinning keeps every second draw."""
    model, args = lib.picklable_model(), kernels.data(lib)
    half = lib.session(entry.make(lib, model), num_warmup=3, num_samples=4)
    half.fresh(*args)
    first, half = draws_of(lib, half.mcmc), pickle.loads(pickle.dumps(half))
    half.go_on(*args)
    joined = {name: np.concatenate([x, draws_of(lib, half.mcmc)[name]], 1) for name, x in first.items()}
    thinned = lib.run(entry.make(lib, model), *args, num_warmup=3, num_samples=8, thinning=2)
    assert_same({name: x[:, 1::2] for name, x in joined.items()}, draws_of(lib, thinned))


@contract
@in_numpyro
@every_kernel
def test_data_as_arguments(lib, entry):
    """With ``jit_model_args=True``, where one program serves them all, other data are noticed too."""
    import jax

    problem = kernels.small(lib)
    kernel = entry.make(lib, problem.model)
    session = lib.session(kernel, num_warmup=2, num_samples=2, jit_model_args=True)
    state, sample = session.fresh(*problem.args), jax.jit(lambda state, args: kernel.sample(state, args, {}))
    other = (problem.args[0], problem.args[1] + 30.0)
    for args in (other, problem.args):
        state = sample(state._replace(rng_key=state.rng_key), args)  # as the host goes on from a state
        assert_rests_on(lib, entry, state, problem.model, args, {})


@contract
@in_numpyro
@every_kernel
def test_states_of_other_models_are_refused(lib, entry):
    import jax

    args = kernels.data(lib)
    state = entry.make(lib, kernels.small(lib).model).init(jax.random.key(0), 2, None, args, {})
    wrong = lib.session(entry.make(lib, kernels.mixed(lib).model), num_warmup=2, num_samples=2)
    wrong.mcmc.post_warmup_state = state
    with pytest.raises((ValueError, TypeError), match="post_warmup_state must be a state of"):
        wrong.again(*args)


# one of each method, and of a system with precisions; a process imports and traces anew, so the others are slow
SPAWNED = ("SymmetricSplitHMC", "BlockGibbsHMC by NUTS", "PenaltyMH")


@contract
@in_pyro
@pytest.mark.parametrize(
    "entry", [pytest.param(e, id=k, marks=[pytest.mark.slow] * (k not in SPAWNED)) for k, e in TABLE.items()]
)
def test_spawned_chains(lib, entry, monkeypatch):
    """A chain in a process of its own is the chain of a run with its seed."""
    monkeypatch.setattr(lib.np.multiprocessing, "cpu_count", lambda: 4)
    model, args = lib.picklable_model(), kernels.data(lib)
    options = {"num_warmup": 3, "num_samples": 3}
    kernel = entry.make(lib, model)
    both = draws_of(lib, lib.run(kernel, *args, num_chains=2, seed=7, mp_context="spawn", **options))
    for chain in range(2):
        alone = draws_of(lib, lib.run(entry.make(lib, model), *args, seed=7 + chain, **options))
        assert_same({name: x[chain : chain + 1] for name, x in both.items()}, alone)
