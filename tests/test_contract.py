"""What is asked of every kernel: one table (tests/kernels.py), one suite of asks, both packages.

The first test of a kernel is a bundle of the cheapest asks and runs with the default tests; the others are marked
``contract`` (`make test-contract`). Runs are of a few iterations: nothing here is about how well a kernel samples, only
about what it samples, and that it does so wherever the host lets it.
"""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from typing import Any

import numpy as np
import pytest

from tests import kernels
from tests.backends import NumPyroBackend
from tests.kernels import TABLE, Entry

every_kernel = pytest.mark.parametrize("entry", TABLE.values(), ids=TABLE.keys())
of_potentials = pytest.mark.parametrize(
    "entry", [e for e in TABLE.values() if e.takes_potential], ids=[k for k, e in TABLE.items() if e.takes_potential]
)
contract = pytest.mark.contract
numpyro_only = pytest.mark.skipif(
    os.environ.get("SPLIT_TEST_PACKAGES", "numpyro,pyro").find("numpyro") < 0, reason="no NumPyro in this environment"
)
STATISTICS = {"diverging", "energy", "potential_energy", "accept_prob", "num_steps", "num_grads", "step_size"}
SITES = {"tau", "w", "m", "p", "a"}


@pytest.fixture(autouse=True)
def _expected_warnings():
    """Runs as short as these warn of what is no concern here."""
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


@every_kernel
def test_runs_and_tells(lib, entry):
    """A model of sites of every shape: draws, statistics, the same draws again, ArviZ, predictions, repr."""
    problem = kernels.mixed(lib)
    kernel = entry.make(lib, problem.model)
    mcmc = lib.run(kernel, *problem.args, num_warmup=20, num_samples=20)
    draws = draws_of(lib, mcmc)
    assert {name: x.shape[2:] for name, x in draws.items() if name in SITES} == {
        "tau": (), "w": (2,), "m": (2, 2), "p": (3,), "a": (),
    }  # fmt: skip
    assert all(np.all(np.isfinite(x)) for x in draws.values())
    np.testing.assert_allclose(draws["p"].sum(-1), 1.0)
    assert np.all(draws["tau"] > 0)
    statistics_are_sound(lib, entry, mcmc, 20)
    idata = lib.split.to_inference_data(mcmc)
    np.testing.assert_allclose(np.asarray(idata.observed_data["y"]), lib.to_numpy(problem.args[1]))
    assert {"lp", "acceptance_rate", "diverging", "n_steps", *entry.statistics} <= set(idata.sample_stats)
    assert lib.predictive(problem.model, mcmc, problem.args[0])["y"].shape == (20, kernels.NUM_ROWS)
    assert_same(draws, draws_of(lib, lib.run(kernel, *problem.args, num_warmup=20, num_samples=20)))
    assert f"{entry.name}(" in repr(kernel)
    assert "num_subsets=2" in repr(kernel)


@contract
@every_kernel
def test_small_models_and_numbers_of_subsets(lib, entry):
    """One scalar under a precision; one subset, two, and seven of unequal size."""
    problem = kernels.small(lib)
    for num_subsets in sorted({entry.least_subsets, 2, 7}):
        kernel = entry.make(lib, problem.model, num_subsets)
        mcmc = lib.run(kernel, *problem.args, num_warmup=5, num_samples=5)
        statistics_are_sound(lib, entry, mcmc, 5)
        assert_rests_on(lib, entry, lib.state(mcmc), problem.model, problem.args, {})


@contract
@every_kernel
@pytest.mark.parametrize("num_warmup", [0, 1, 20])
def test_any_length_of_warmup(lib, entry, num_warmup):
    problem = kernels.small(lib)
    mcmc = lib.run(entry.make(lib, problem.model), *problem.args, num_warmup=num_warmup, num_samples=4)
    statistics_are_sound(lib, entry, mcmc, 4)


@contract
@every_kernel
def test_single_precision(lib, entry):
    lib.set_precision(32)
    problem = kernels.mixed(lib)
    args = tuple(lib.array(lib.to_numpy(x).astype(np.float32)) for x in problem.args)
    mcmc = lib.run(entry.make(lib, problem.model), *args, num_warmup=5, num_samples=5)
    statistics_are_sound(lib, entry, mcmc, 5)
    draws = draws_of(lib, mcmc)
    assert {draws[name].dtype for name in SITES} == {np.dtype(np.float32)}
    assert all(np.all(np.isfinite(x)) for x in draws.values())


@contract
@of_potentials
@pytest.mark.parametrize("num_subsets", [2, 7])
def test_runs_on_a_potential(lib, entry, num_subsets):
    potential, start = kernels.potential(lib, num_subsets)
    kernel = entry.make(lib, potential)
    mcmc = lib.run(kernel, num_warmup=10, num_samples=10, init_params=start)
    statistics_are_sound(lib, entry, mcmc, 10)
    assert {name: x.shape[2:] for name, x in draws_of(lib, mcmc).items()} == {"a": (), "w": (2,)}
    assert kernel.num_subsets == num_subsets
    with pytest.raises(ValueError, match=r"(init|initial)_params must be given"):
        lib.run(entry.make(lib, potential), num_warmup=2, num_samples=2)


@contract
@every_kernel
def test_thinning(lib, entry):
    """Every second draw of the same chain (the hosts differ in where thinning is asked for)."""
    problem = kernels.small(lib)
    whole = draws_of(lib, lib.run(entry.make(lib, problem.model), *problem.args, num_warmup=4, num_samples=8))
    thinned = lib.run_thinned(entry.make(lib, problem.model), *problem.args, num_warmup=4, num_samples=8, thinning=2)
    assert_same({name: x[:, 1::2] for name, x in whole.items()}, draws_of(lib, thinned))


def other_arguments(lib: Any, problem: Any) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments that differ from the problem's, far enough for the energy to tell."""
    X, y = problem.args
    return {
        "other values": ((X, y + 30.0), {}),
        "more rows": (kernels.data(lib, 2 * kernels.NUM_ROWS + 1, 30.0), {}),
        "fewer rows": (kernels.data(lib, kernels.NUM_ROWS // 2, 30.0), {}),
        "another number": ((X, y), {"scale": 0.1}),
        "another flag": ((X, y), {"centred": False}),
    }


def assert_rests_on(lib, entry, state, model, args, kwargs) -> None:
    """The state's energy is that of the model on these data, where it is no estimate; its expansion always."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        potential = lib.split.split_model(model, args, kwargs, num_subsets=1)
    taylor = lib.taylor(state)
    if taylor is not None:
        value, found = potential.subset_log_likelihood(taylor.reference, 0), taylor.value
        assert float(found) == pytest.approx(float(value), rel=1e-8)
    found, energy = float(lib.energy_of(state)), float(potential.potential(state.z))
    if entry.is_noisy:
        assert found == pytest.approx(energy, rel=0.7)
    else:
        assert found == pytest.approx(energy, rel=1e-9)


@contract
@every_kernel
def test_new_data(lib, entry):
    """On the same kernel: other values, more and fewer rows, other numbers and flags; and the first ones again."""
    problem = kernels.mixed(lib)
    kernel = entry.make(lib, problem.model)
    session = lib.session(kernel, num_warmup=2, num_samples=2)
    cases = {"first": (problem.args, {}), **other_arguments(lib, problem), "first again": (problem.args, {})}
    for args, kwargs in cases.values():
        state = session.fresh(*args, **kwargs)
        assert_rests_on(lib, entry, state, problem.model, args, kwargs)
    one, other = (lib.session(kernel, num_warmup=2, num_samples=2) for _ in range(2))
    args, kwargs = cases["more rows"]
    assert_rests_on(lib, entry, one.fresh(*problem.args), problem.model, problem.args, {})
    assert_rests_on(lib, entry, other.fresh(*args, **kwargs), problem.model, args, kwargs)
    assert_rests_on(lib, entry, one.again(*problem.args), problem.model, problem.args, {})


@contract
@every_kernel
def test_arrays_changed_in_place_and_closures(lib, entry):
    """What an array or a closure holds when a run begins counts, not which object it is."""
    problem = kernels.mixed(lib)
    session = lib.session(entry.make(lib, problem.model), num_warmup=2, num_samples=2)
    X, y = lib.mutable(problem.args[0]), lib.mutable(problem.args[1])
    assert_rests_on(lib, entry, session.fresh(X, y), problem.model, (X, y), {})
    for begin in (session.fresh, session.again):
        y[...] += 30.0
        assert_rests_on(lib, entry, begin(X, y), problem.model, (X, y), {})
        problem.held["offset"] = problem.held["offset"] + 20.0
        assert_rests_on(lib, entry, begin(X, y), problem.model, (X, y), {})
    problem.held["offset"] = lib.mutable(problem.held["offset"])
    for begin in (session.fresh, session.again):
        assert_rests_on(lib, entry, begin(X, y), problem.model, (X, y), {})
        problem.held["offset"][...] += 25.0
        assert_rests_on(lib, entry, begin(X, y), problem.model, (X, y), {})


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
    for seed in range(3):
        mcmc = lib.run(entry.make(lib, model), *args, num_warmup=2, num_samples=3, seed=seed, num_chains=2)
        if not entry.is_noisy:
            assert np.all(draws_of(lib, mcmc)["a"] > 0)
    starts = {"tau": lib.array([0.0, 0.0]), "a": lib.array([0.5, -0.25])}
    with pytest.raises(ValueError, match=r"(?s)finite potential energy.*(chain 1|-0\.25)"):
        lib.run(entry.make(lib, model), *args, num_warmup=2, num_samples=2, num_chains=2, init_params=starts)


@contract
@every_kernel
def test_pickled(lib, entry):
    """Before and after a run, and going on from where it was."""
    model, args = lib.picklable_model(), kernels.data(lib)
    kernel = entry.make(lib, model)
    copied = pickle.loads(pickle.dumps(kernel))
    assert repr(copied) == repr(kernel)
    session = lib.session(kernel, num_warmup=3, num_samples=3)
    session.fresh(*args)
    first = lib.session(copied, num_warmup=3, num_samples=3)
    first.fresh(*args)
    assert_same(draws_of(lib, session.mcmc), draws_of(lib, first.mcmc))
    going_on = pickle.loads(pickle.dumps(session))
    assert_same(draws_of(lib, session.mcmc), draws_of(lib, going_on.mcmc))
    session.again(*args)
    going_on.again(*args)
    assert_same(draws_of(lib, session.mcmc), draws_of(lib, going_on.mcmc))


@contract
@every_kernel
def test_two_runs_at_once(lib, entry):
    """In NumPyro two threads share a kernel; Pyro, whose handlers are the process's, refuses the second by name."""
    problem = kernels.small(lib)
    kernel = entry.make(lib, problem.model)
    sets = [kernels.data(lib), kernels.data(lib, kernels.NUM_ROWS + 5, 3.0)]
    alone = [draws_of(lib, lib.run(kernel, *args, num_warmup=5, num_samples=5)) for args in sets]
    found, errors = [None, None], []
    meet = threading.Barrier(2)

    def work(place: int) -> None:
        try:
            with lib.double_precision():
                meet.wait()
                found[place] = draws_of(lib, lib.run(kernel, *sets[place], num_warmup=5, num_samples=5))
        except RuntimeError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    if lib.name == "pyro":
        hook, told = threading.Event(), threading.Event()

        def pause(*_: Any) -> None:
            hook.set()
            told.wait(60)

        slow = threading.Thread(
            target=lambda: lib.run(kernel, *sets[0], num_warmup=1, num_samples=1, hook_fn=pause), daemon=True
        )
        slow.start()
        hook.wait(60)
        with pytest.raises(RuntimeError, match="one MCMC at a time"):
            lib.run(entry.make(lib, problem.model), *sets[1], num_warmup=1, num_samples=1)
        told.set()
        slow.join()
        return
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for mine, theirs in zip(found, alone, strict=True):
        assert mine is not None
        assert_same(mine, theirs)


@numpyro_only
class TestNumPyro:
    @pytest.fixture
    def lib(self):
        return NumPyroBackend()

    @contract
    @every_kernel
    def test_chain_methods(self, lib, entry):
        """Sequential, vectorised and parallel chains are the same over 20 iterations."""
        problem = kernels.mixed(lib)
        options = {"num_warmup": 10, "num_samples": 10, "num_chains": 2}
        sequential, *others = (
            draws_of(lib, lib.run(entry.make(lib, problem.model), *problem.args, chain_method=method, **options))
            for method in ("sequential", "vectorized", "parallel")
        )
        for draws in others:
            assert_same(sequential, draws, atol=1e-10)

    @contract
    @every_kernel
    def test_keys_and_compilations(self, lib, entry):
        """No key is used twice in an iteration, and the model is traced for one iteration alone."""
        import jax

        problem, traces = kernels.small(lib), []

        def counting(X, y=None):
            traces.append(1)
            problem.model(X, y)

        kernel = entry.make(lib, counting)
        state = kernel.init(jax.random.key(0), 5, None, model_args=problem.args, model_kwargs={})
        with jax.debug_key_reuse(True):
            sample = jax.jit(lambda state: kernel.sample(state, problem.args, {}))
            state = sample(state)
            count = len(traces)
            for _ in range(3):
                state = sample(state)
        assert len(traces) == count

    @contract
    @every_kernel
    def test_going_on(self, lib, entry):
        """A run in two halves is the run in one, with the data as constants and as arguments."""
        problem = kernels.small(lib)
        for jit_model_args in (False, True):
            session = lib.session(
                entry.make(lib, problem.model), num_warmup=3, num_samples=6, jit_model_args=jit_model_args
            )
            session.fresh(*problem.args)
            whole = draws_of(lib, session.mcmc)
            half = lib.session(
                entry.make(lib, problem.model), num_warmup=3, num_samples=3, jit_model_args=jit_model_args
            )
            half.fresh(*problem.args)
            first = draws_of(lib, half.mcmc)
            half.go_on(*problem.args)
            joined = {name: np.concatenate([x, draws_of(lib, half.mcmc)[name]], 1) for name, x in first.items()}
            assert_same(whole, joined)

    @contract
    @every_kernel
    def test_going_on_with_other_data(self, lib, entry):
        """Other values, another number of rows, other numbers and flags: what rests on them is computed afresh."""
        problem = kernels.mixed(lib)
        session = lib.session(entry.make(lib, problem.model), num_warmup=2, num_samples=2)
        session.fresh(*problem.args)
        left = session.mcmc.last_state
        for args, kwargs in other_arguments(lib, problem).values():
            session.mcmc.post_warmup_state = left
            assert_rests_on(lib, entry, session.again(*args, **kwargs), problem.model, args, kwargs)

    @contract
    @every_kernel
    def test_going_on_with_other_data_as_arguments(self, lib, entry):
        """With ``jit_model_args=True`` the digest is in the compiled program, which is not compiled again."""
        problem = kernels.mixed(lib)
        session = lib.session(entry.make(lib, problem.model), num_warmup=2, num_samples=2, jit_model_args=True)
        session.fresh(*problem.args)
        other = (problem.args[0], problem.args[1] + 30.0)
        for args in (other, problem.args):
            assert_rests_on(lib, entry, session.again(*args), problem.model, args, {})

    @contract
    @every_kernel
    def test_states_of_other_kernels_are_refused(self, lib, entry):
        problem, other = kernels.small(lib), kernels.mixed(lib)
        session = lib.session(entry.make(lib, problem.model), num_warmup=2, num_samples=2)
        session.fresh(*problem.args)
        session.mcmc.post_warmup_state = session.mcmc.last_state
        wrong = lib.session(entry.make(lib, other.model), num_warmup=2, num_samples=2)
        wrong.mcmc.post_warmup_state = session.mcmc.last_state
        with pytest.raises((ValueError, TypeError), match="post_warmup_state must be a state of"):
            wrong.again(*other.args)


class TestPyro:
    @contract
    @every_kernel
    def test_spawned_chains(self, entry, monkeypatch):
        """A chain in a process of its own is the chain of a run with its seed."""
        torch = pytest.importorskip("torch")
        from tests.backends import PyroBackend

        lib = PyroBackend()
        monkeypatch.setattr(torch.multiprocessing, "cpu_count", lambda: 4)
        model, args = lib.picklable_model(), kernels.data(lib)
        kernel = entry.make(lib, model)
        both = draws_of(
            lib,
            lib.run(kernel, *args, num_warmup=3, num_samples=3, num_chains=2, seed=7, mp_context="spawn"),
        )
        for chain in range(2):
            alone = draws_of(lib, lib.run(entry.make(lib, model), *args, num_warmup=3, num_samples=3, seed=7 + chain))
            assert_same({name: x[chain : chain + 1] for name, x in both.items()}, alone)
