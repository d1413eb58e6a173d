"""Private names of the hosts stand in ``host.py`` of each package alone, and do what the package leans on them for.

A new version of a host that moves one, or changes what it does, is named here by the test that fails.
"""

import ast
import gc
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from tests.backends import NumPyroBackend, PyroBackend

ROOT = Path(__file__).parents[1]
OWN = ("split_common", "numpyro_split", "pyro_split", "__future__")
in_numpyro = pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
in_pyro = pytest.mark.parametrize("lib", [PyroBackend], ids=["pyro"], indirect=True)


# private in form only: of named tuples, and documented
PUBLIC = {"_fields", "_replace", "_asdict", "_make", "_getframe", "_current_frames"}


def is_private(name):
    return any(part.startswith("_") and not part.endswith("__") and part not in PUBLIC for part in name.split("."))


def private_names(path):
    """Private names of other packages that a file imports, or reads off what it imports, or off a run."""
    tree, foreign, found = ast.parse(path.read_text()), {"mcmc"}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] not in OWN:
            found += [name for name in (f"{node.module}.{a.name}" for a in node.names) if is_private(name)]
            foreign |= {a.asname or a.name for a in node.names}
        elif isinstance(node, ast.Import):
            foreign |= {a.asname or a.name.partition(".")[0] for a in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            whole = ast.unparse(node)
            if (
                "(" not in whole
                and whole.partition(".")[0] in foreign
                and not whole.startswith(("mcmc.kernel.", "mcmc.sampler."))
            ):
                found.append(whole)
    return found


@pytest.mark.parametrize("package", ["numpyro_split", "pyro_split"])
def test_private_names_of_the_host_stand_in_one_file(package):
    host = ROOT / package / "host.py"
    assert private_names(host)
    others = {str(path.relative_to(ROOT)): private_names(path) for path in (ROOT / package).rglob("*.py")}
    assert not {path: names for path, names in others.items() if names and path != str(host.relative_to(ROOT))}


@in_numpyro
def test_unconstrained_values_become_draws(lib):
    import jax
    from numpyro.handlers import seed, substitute, trace

    from numpyro_split.host import unconstrain_reparam

    def model():
        lib.ppl.sample("s", lib.dist.HalfNormal(1.0))

    z = {"s": lib.array(0.5)}
    held = substitute(seed(model, jax.random.key(0)), substitute_fn=lambda site: unconstrain_reparam(z, site))
    found = trace(held).get_trace()
    assert float(found["s"]["value"]) == pytest.approx(np.exp(0.5))
    assert float(found["_s_log_det"]["fn"].log_factor) == pytest.approx(0.5)  # of the exponential


@in_numpyro
def test_velocities_are_the_metrics(lib):
    from numpyro_split.host import kinetic_grad

    p = {"a": lib.array([1.0, 2.0]), "b": lib.array(3.0)}
    found = kinetic_grad(lib.array([2.0, 3.0, 4.0]), p)
    np.testing.assert_allclose(np.append(found["a"], found["b"]), [2.0, 6.0, 12.0])


@in_numpyro
def test_what_an_expression_uses(lib):
    import jax

    from numpyro_split.host import dce_jaxpr

    expression = jax.make_jaxpr(lambda x, y: x + 1.0)(1.0, 2.0).jaxpr
    assert dce_jaxpr(expression, [True])[1] == [True, False]


def small_run(lib):
    def model(y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(mu, 1.0), obs=y)

    y = lib.array(np.zeros(4))
    return lib.run(lib.split.NaiveSplitHMC(model, num_steps=1), y, num_warmup=5, num_samples=3), y


@in_numpyro
def test_a_run_knows_its_arguments(lib):
    from numpyro.infer import MCMC

    from numpyro_split.host import arguments_of_run, has_draws

    mcmc, y = small_run(lib)
    (found,), kwargs = arguments_of_run(mcmc)
    assert found is y
    assert kwargs == {}
    assert has_draws(mcmc)
    assert not has_draws(MCMC(mcmc.sampler, num_warmup=1, num_samples=1))


@in_pyro
def test_a_run_knows_its_arguments_and_diagnostics(lib):
    from pyro.infer import MCMC

    from pyro_split.host import arguments_of_run, diagnostics_by_chain, has_draws

    mcmc, y = small_run(lib)
    (found,), kwargs = arguments_of_run(mcmc)
    assert found is y
    assert kwargs == {}
    assert has_draws(mcmc)
    assert not has_draws(MCMC(mcmc.kernel, num_samples=1))
    assert len(diagnostics_by_chain(mcmc)[0]["diverging"]) == 3


@in_pyro
@pytest.mark.parametrize("is_disabled", [True, False])
@pytest.mark.parametrize("num_chains", [1, 2])
def test_a_run_knows_whether_it_shows_its_progress(lib, monkeypatch, is_disabled, num_chains):
    from pyro.infer import MCMC

    from pyro_split.host import moves_in_processes, shows_progress

    monkeypatch.setattr("pyro.infer.mcmc.api.mp.cpu_count", lambda: 4)
    kernel = lib.split.NaiveSplitHMC(lambda y: None, num_subsets=2)
    mcmc = MCMC(kernel, 2, num_chains=num_chains, disable_progbar=is_disabled)
    assert (moves_in_processes(mcmc) is not None) == (num_chains > 1)
    assert shows_progress(mcmc) is not is_disabled
    mcmc.sampler.terminate()


@in_pyro
def test_what_the_adapter_has_learned(lib):
    from pyro.infer.mcmc.adaptation import WarmupAdapter

    from pyro_split.host import covariances, log_average_step_size

    adapter = WarmupAdapter(0.1, adapt_step_size=True, adapt_mass_matrix=True)
    adapter.configure(
        200, mass_matrix_shape={("a",): (2,)}, find_reasonable_step_size_fn=lambda z: 0.1, options={"dtype": None}
    )
    adapter.reset_step_size_adaptation({"a": lib.array([0.0, 0.0])})
    draws = [[1.0, 0.0], [3.0, 1.0], [5.0, 5.0]]
    for draw in draws:
        adapter.mass_matrix_adapter.update({"a": lib.array(draw)}, None)
    np.testing.assert_allclose(covariances(adapter.mass_matrix_adapter)[("a",)], np.var(draws, axis=0, ddof=1))
    for t in range(1, 40):
        adapter.step(t, {"a": lib.array([0.0, 0.0])}, lib.array(0.8))
    assert -10.0 < log_average_step_size(adapter) < 10.0


def plate_of(lib, size=10, subsample_size=3):
    """How many rows a plate holds, and of how many."""
    plate = lib.ppl.plate("data", size, subsample_size=subsample_size)
    return plate.subsample_size, plate.size


@in_pyro
def test_plates_ask_for_their_rows(lib):
    from pyro import poutine

    from pyro_split.host import Subsample

    def model():
        with lib.ppl.plate("data", 10, subsample_size=3):
            lib.ppl.sample("x", lib.dist.Normal(0.0, 1.0))

    assert isinstance(poutine.trace(model).get_trace().nodes["data"]["fn"], Subsample)
    assert plate_of(lib) == (3, 10)
    assert lib.ppl.plate("data").size == -1
    with pytest.raises(ValueError, match="subsample_size does not match"):
        lib.ppl.plate("data", 10, subsample_size=3, subsample=lib.np.arange(4))


@in_pyro
def test_a_plate_takes_any_number_of_rows_where_it_may(lib):
    """Inside the handler and not outside, where handlers lie in one another, and after one that failed."""
    from pyro_split.potential.model_rows import SelectRows

    def rows(number):
        return SelectRows("data", lib.np.arange(number))

    with rows(4):
        assert plate_of(lib) == (4, 10)
        with SelectRows("others", None):
            assert plate_of(lib) == (4, 10)
        with rows(5):  # the outer handler is asked last
            assert plate_of(lib) == (4, 10)

    def fails():
        with SelectRows("data", None):
            assert plate_of(lib) == (10, 10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with SelectRows("others", None):
        assert plate_of(lib) == (3, 10)


@in_pyro
def test_threads_that_run_models_leave_plates_as_they_were(lib):
    """Two threads whose models begin and end in turn, on Pyro's one stack, in the order that does not nest."""
    from pyro.poutine.runtime import _PYRO_STACK
    from pyro.poutine.subsample_messenger import SubsampleMessenger

    from pyro_split.potential.model_rows import SelectRows

    own, events, refused = SubsampleMessenger._subsample, [threading.Event() for _ in range(3)], []

    def run_first_model():
        with SelectRows("data", lib.np.arange(4)):
            events[0].set()
            events[1].wait(10)
            assert SubsampleMessenger._subsample is own

    def first():
        with pytest.raises(ValueError, match="not on the bottom of the stack"):
            run_first_model()
        refused.append(True)
        events[2].set()

    def second():
        events[0].wait(10)
        with SelectRows("data", lib.np.arange(4)):
            events[1].set()
            events[2].wait(10)

    threads = [threading.Thread(target=work) for work in (first, second)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        _PYRO_STACK.clear()  # Pyro leaves the first thread's handler there
    assert refused
    assert SubsampleMessenger._subsample is own
    assert plate_of(lib) == (3, 10)


@in_pyro
def test_errors_of_values_are_known_from_others(lib):
    from pyro_split.host import is_numerical

    assert is_numerical(RuntimeError("singular U."))
    assert not is_numerical(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@in_pyro
def test_operations_are_captured_on_shapes(lib):
    from torch.func import functionalize

    from pyro_split.host import FakeTensor, FakeTensorMode, is_functional, make_fx, pytree, without_modes, writes

    seen = []

    def function(x):
        seen.append(is_functional(x))
        return x.clone().mul_(2.0)

    graph = make_fx(function, tracing_mode="fake")(lib.np.ones(3))
    written = [node for node in graph.graph.nodes if node.op == "call_function" and writes(node.target)]
    assert [str(node.target) for node in written] == ["aten.mul_.Tensor"]
    make_fx(functionalize(function))(lib.np.ones(3))
    assert seen == [False, True]
    with FakeTensorMode():
        assert isinstance(lib.np.ones(3), FakeTensor)
        with without_modes():
            assert not isinstance(lib.np.ones(3), FakeTensor)
    leaves, form = pytree.tree_flatten({"a": [1, 2]})
    assert pytree.tree_unflatten(leaves, form) == {"a": [1, 2]}


@in_pyro
def test_a_compiled_program_is_freed_with_what_it_holds(lib):
    import torch

    from pyro_split.host import compiled

    def constant_of_program():
        x, constant = torch.ones(3), torch.arange(3.0)
        program = compiled(lambda x: [x + constant, x.sum()], (x,))
        for _ in range(3):  # the JIT optimises a program by its first calls
            assert [found.tolist() for found in program(2.0 * x)] == [[2.0, 3.0, 4.0], 6.0]
        return weakref.ref(constant)

    held = constant_of_program()
    gc.collect()
    assert held() is None


@in_pyro
def test_attention_is_random_only_with_dropout(lib):
    import torch

    from pyro_split.host import is_random

    attention, x = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default, torch.ones(1, 1, 2, 2)
    assert not is_random(attention, {}, x, x, x)
    assert is_random(attention, {"dropout_p": 0.5}, x, x, x)
    assert is_random(torch.ops.aten.bernoulli.default, {}, x)
