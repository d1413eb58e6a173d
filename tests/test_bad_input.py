"""Bad input gets an error that names the argument, the rule and the value, before anything is sampled."""

import copy
import time

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from split_common.schedule import Reversal, Schedule, naive
from tests import models
from tests.backends import NumPyroBackend, PyroBackend

KERNELS = ["SymmetricSplitHMC", "NaiveSplitHMC", "RandomisedSplitHMC"]


def regression(lib, X=None, y=None):
    default_X, default_y = models.data(lib)
    model, _ = models.plate_from_shape(lib)
    return model, (default_X if X is None else X, default_y if y is None else y)


def kernel(lib, model, name="SymmetricSplitHMC", **options):
    return getattr(lib.split, name)(model, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_subsets": 0}, r"num_subsets must be a whole number of at least 1, got 0"),
        ({"num_subsets": 2.5}, r"num_subsets must be a whole number of at least 1, got 2.5"),
        ({"step_size": 0.0}, r"step_size must be a finite number above 0, got 0.0"),
        ({"step_size": -1.0}, r"step_size must be a finite number above 0, got -1.0"),
        ({"step_size": float("nan")}, r"step_size must be a finite number above 0, got nan"),
        ({"num_steps": 0}, r"num_steps must be a whole number of at least 1, got 0"),
        ({"trajectory_length": -2.0}, r"trajectory_length must be a finite number above 0, got -2.0"),
        ({"num_steps": 5, "trajectory_length": 1.0}, r"must not both be given .*num_steps=5 and trajectory_length=1.0"),
        ({"target_accept_prob": 1.0}, r"target_accept_prob must lie strictly between 0 and 1, got 1.0"),
        ({"subset_order": "random"}, r"subset_order must be one of \['sequential', 'shuffled'\], got 'random'"),
    ],
)
@pytest.mark.parametrize("name", KERNELS)
def test_arguments_of_a_kernel(lib, name, options, message):
    with pytest.raises(ValueError, match=message):
        kernel(lib, lambda: None, name, **options)


def test_model_must_be_callable(lib):
    with pytest.raises(TypeError, match="model must be callable, got int 3"):
        kernel(lib, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"adapt_step_size": "False"}, "adapt_step_size must be True or False, got 'False'"),
        ({"adapt_mass_matrix": np.nan}, "adapt_mass_matrix must be True or False, got nan"),
        ({"find_heuristic_step_size": 1}, "find_heuristic_step_size must be True or False, got 1"),
        ({"num_subsets": True}, "num_subsets must be a whole number of at least 1, got True"),
        ({"step_size": "0.5"}, "step_size must be a finite number above 0, got '0.5'"),
        ({"step_size": 10**400}, "step_size must be a finite number above 0, got 1000"),
        ({"num_steps": 2**31}, "num_steps must be at most 2147483647, got 2147483648"),
        ({"plate": ["data"]}, r"plate must be None or the name of a plate, got \['data'\]"),
        ({"plate": ""}, "plate must be None or the name of a plate, got ''"),
        ({"subset_order": np.array(["shuffled"])}, r"subset_order must be one of .* got array\(\['shuffled'\]"),
        ({"data_axes": {"X": -1}}, r"data_axes\['X'\] must be None or an axis of at least 0, got -1 in \{'X': -1\}"),
        ({"data_axes": {1: 0}}, r"data_axes must name arguments by text, got 1 in \{1: 0\}"),
        ({"inverse_mass_matrix": 1.0}, r"inverse_mass_matrix must be an array of finite real numbers.*got 1.0"),
        ({"inverse_mass_matrix": [1.0, np.nan]}, r"inverse_mass_matrix must be an array of finite.*got \[1.0, nan\]"),
        ({"inverse_mass_matrix": [1.0, 0.0]}, r"inverse_mass_matrix must have entries above 0.*got \[1.0, 0.0\]"),
        ({"inverse_mass_matrix": [[1.0, 2.0]]}, r"inverse_mass_matrix must have shape \(D,\) or \(D, D\).*\(1, 2\)"),
        ({"inverse_mass_matrix": [[2.0, 1.0], [0.0, 2.0]]}, "inverse_mass_matrix must be symmetric"),
        ({"inverse_mass_matrix": [[1.0, 2.0], [2.0, 1.0]]}, "inverse_mass_matrix must be positive definite"),
        ({"inverse_mass_matrix": {"a": [1.0]}}, "inverse_mass_matrix must map tuples of site names.*got {'a'"),
        ({"inverse_mass_matrix": {("a",): None}}, r"inverse_mass_matrix\[\('a',\)\] must be an array.*None"),
    ],
)
def test_types_and_values(lib, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        kernel(lib, lambda: None, **options)


def test_a_potential_of_the_other_package_is_no_model(lib):
    import numpyro_split
    import pyro_split

    other, ones = (pyro_split, torch.ones) if lib.name == "numpyro" else (numpyro_split, jnp.ones)
    potential = other.SplitPotential.from_functions(lambda z: 0.0, lambda z, y: y * z["a"], ones(4), 2)
    with pytest.raises(TypeError, match="model must be callable, got SplitPotential"):
        kernel(lib, potential)


@pytest.mark.parametrize("num_subsets", [10**6, 10**30])
@pytest.mark.parametrize("name", [*KERNELS, "SplitNUTS", "WindowedHMC", "PenaltyMH"])
def test_many_subsets_cost_nothing_before_they_are_compared_with_the_rows(lib, name, num_subsets):
    model, args = regression(lib)
    start = time.process_time()
    made = kernel(lib, model, name, num_subsets=num_subsets)
    shown = repr(made)
    assert time.process_time() - start < 0.05
    assert f"num_subsets={num_subsets}" in shown
    with pytest.raises(ValueError, match=f"num_subsets must be at most .* 15, got {num_subsets}"):
        lib.run(made, *args)


def test_mass_matrix_as_a_list(lib):
    model, args = regression(lib)
    options = {"num_warmup": 0, "num_samples": 2}
    for matrix in ([2.0, 1.0, 3.0, 1.0], np.array([2, 1, 3, 1]), {("b",): [2.0, 1.0, 3.0], ("s",): [1]}):
        lib.run(kernel(lib, model, num_subsets=2, num_steps=2, inverse_mass_matrix=matrix), *args, **options)


def test_a_mass_matrix_is_symmetric_in_all_bits(lib):
    """Momenta are drawn by a root of one triangle or of the mean of both, energies by the whole matrix."""
    single, double = (np.array([[1.0, 0.3], [0.3 + x, 1.0]], dtype) for x, dtype in ((1e-4, "f4"), (1e-9, "f8")))
    for given in (single, double, lib.array(double)):
        options = {"inverse_mass_matrix": given, dense_name(lib): True}
        kernel = lib.split.SplitHMC(models.plate_from_shape(lib)[0], 2, **options)
        kept = lib.to_numpy(lib.array(kernel._method.adaptation.inverse_mass_matrix))
        np.testing.assert_array_equal(kept, kept.T)
        np.testing.assert_allclose(kept[0, 1], 0.30005 if given is single else 0.3, rtol=1e-6)


def dense_name(lib):
    return "dense_mass" if lib.name == "numpyro" else "full_mass"


def test_arrays_given_to_a_kernel_are_its_own(lib):
    """What the user changes in place afterwards is another array."""
    matrix, at = lib.array(np.full(3, 0.5)), lib.array(np.zeros(2))
    for given in (lib.mutable(matrix), lib.to_numpy(matrix).copy()):
        made = kernel(lib, lambda: None, inverse_mass_matrix=given)
        given[...] = -1.0
        np.testing.assert_array_equal(made._method.adaptation.inverse_mass_matrix, 0.5)
    given = {"b": lib.mutable(at)}
    made = kernel(lib, lambda: None, "PenaltyMH", num_subsets=2, reference=given)
    given["b"][...] = np.nan
    np.testing.assert_array_equal(made._method.given_start["b"], 0.0)


def test_repr(lib):
    """In one line, the same before and after a run, of a copy and of a kernel made from a potential."""
    model, args = regression(lib)
    made = kernel(lib, model, num_subsets=3, plate="data", num_steps=2)
    expected = f"SymmetricSplitHMC(model={model.__name__}, num_subsets=3, plate='data', schedule='symmetric')"
    assert repr(made) == repr(copy.copy(made)) == expected
    lib.run(made, *args, num_warmup=0, num_samples=2)
    assert repr(made) == repr(copy.copy(made)) == expected
    potential = lib.split.SplitPotential.from_functions(lambda z: 0.0, lambda z, y: y * z["a"], lib.np.ones(4), 2)
    made = kernel(lib, potential, "SplitNUTS", schedule=naive)
    assert repr(made) == "SplitNUTS(model=SplitPotential, num_subsets=2, plate=None, schedule=naive)"


def test_repr_of_a_schedule_of_ones_own(lib):
    def two_stage(num_subsets):
        return Schedule("two-stage", naive(num_subsets).rows, Reversal.PALINDROMIC)

    for num_subsets in (3, 10**6):  # the rows of many subsets are not built before a run asks for them
        expected = f"SplitHMC(model=print, num_subsets={num_subsets}, plate=None, schedule=two_stage)"
        assert repr(lib.split.SplitHMC(print, num_subsets, schedule=two_stage)) == expected
    mine = Schedule("two-stage", naive(3).rows, Reversal.PALINDROMIC)
    expected = "SplitHMC(model=print, num_subsets=3, plate=None, schedule='two-stage')"
    assert repr(lib.split.SplitHMC(print, 3, schedule=mine)) == expected


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            np.array(["naive"]),
            r"schedule must be 'symmetric', .* 'single_visit' or a function .* got array\(\['naive'\]",
        ),
        ({}, r"schedule must be 'symmetric', .* 'single_visit' or a function .* got \{\}"),
        (lambda m: 3, "schedule must be a function from M to a Schedule of M subsets, .* for M = 2 gives 3"),
        (lambda m: naive(m + 1), "schedule must be a function .* for M = 2 gives one of 3 subsets"),
        (lambda: None, "schedule must be a function .* for M = 2 fails with TypeError"),
        (lambda m: Schedule("bad", [(0, 1, 1)], Reversal.PALINDROMIC), "fails with ValueError: schedule 'bad'"),
    ],
)
@pytest.mark.parametrize("name", ["SplitNUTS", "XHMC", "WindowedHMC", "S3HMC", "BlockGibbsHMC"])
def test_schedules(lib, name, schedule, message):
    with pytest.raises(ValueError, match=message):
        kernel(lib, lambda: None, name, num_subsets=2, schedule=schedule)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            "leapfrog",
            "schedule must be 'symmetric', .* 'single_visit' or a function .* got 'leapfrog'",
        ),
        (naive(3), "schedule must be of num_subsets = 2 subsets, got 'naive' of 3"),
        (lambda m: 3, "schedule must be a function from M to a Schedule of M subsets, .* for M = 2 gives 3"),
    ],
)
def test_schedules_of_split_hmc(lib, schedule, message):
    with pytest.raises(ValueError, match=message):
        lib.split.SplitHMC(lambda: None, 2, schedule=schedule)


def test_at_least_two_subsets_tell_whether_rows_are_apart(lib):
    """And the kernel says how many it uses."""
    assert kernel(lib, lambda y: None, "PenaltyMH", num_subsets=1).num_subsets == 2
    for name in ("SGLD", "SGHMC"):
        assert kernel(lib, lambda y: None, name, batch_size=3, step_size=0.1, num_subsets=1).num_subsets == 2
        assert kernel(lib, lambda y: None, name, step_size=0.1, num_subsets=1).num_subsets == 1


def test_mass_blocks(lib):
    word = "dense_mass" if lib.name == "numpyro" else "full_mass"
    with pytest.raises(ValueError, match=f"{word} must be a bool or a list of tuples"):
        kernel(lib, lambda: None, **{word: "yes"})
    model, args = regression(lib)
    with pytest.raises(ValueError, match=rf"{word} must name latent sites \['b', 's'\], got \['c'\]"):
        lib.run(kernel(lib, model, num_subsets=2, **{word: [("c",)]}), *args)


@pytest.mark.parametrize("shape", [(3,), (4, 4)])
def test_mass_matrix_of_the_wrong_shape(lib, shape):
    model, args = regression(lib)
    message = (
        rf"inverse_mass_matrix for sites \['b', 's'\] must have shape \(4,\).*got \({', '.join(map(str, shape))},?\)"
    )
    matrix = lib.np.ones(shape) if len(shape) == 1 else lib.np.eye(*shape)
    with pytest.raises(ValueError, match=message):
        lib.run(kernel(lib, model, num_subsets=2, inverse_mass_matrix=matrix), *args)


def test_more_subsets_than_rows(lib):
    model, args = regression(lib)
    with pytest.raises(
        ValueError, match="num_subsets must be at most the number of rows in the data plate, 15, got 16"
    ):
        lib.run(kernel(lib, model, num_subsets=16), *args)


def test_no_plate(lib):
    def model(y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
        lib.ppl.sample("y", lib.dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)

    with pytest.raises(ValueError, match="must hold its likelihood in a plate"):
        lib.run(kernel(lib, model, num_subsets=2), models.data(lib)[1])


def test_several_plates_are_listed(lib):
    model, args = models.second_plate_of_another_size(lib)
    with pytest.raises(ValueError, match=r"plate must be given .*'data' \(size 15\), 'other' \(size 7\)"):
        lib.run(kernel(lib, model, num_subsets=2), *args)


def test_unknown_plate(lib):
    model, args = regression(lib)
    with pytest.raises(ValueError, match=r"plate must name a plate of the model, \['data'\], got 'rows'"):
        lib.run(kernel(lib, model, plate="rows"), *args)


def test_a_plate_without_observations(lib):
    def model(group, y):
        with lib.ppl.plate("groups", 5):
            a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", len(y)):
            lib.ppl.sample("y", lib.dist.Normal(a[group], lib.array(1.0)), obs=y)

    args = lib.array(np.arange(20) % 5), lib.array(np.ones(20))
    rule = r"plate must name a plate that holds observations or factors, \['data'\], got 'groups', which holds none"
    with pytest.raises(ValueError, match=rule):
        lib.run(kernel(lib, model, plate="groups", num_subsets=5), *args)


def test_data_of_unequal_length(lib):
    X, y = models.data(lib)
    model, _ = regression(lib)
    with pytest.raises(ValueError, match="data arguments must have equal length .*'X' has 15, 'y' has 14"):
        lib.run(kernel(lib, model, num_subsets=2), X, y[:14])
    with pytest.raises(ValueError, match="'y' must have 15 along axis 0"):
        lib.run(
            kernel(lib, lambda X, y: model(X, y[:15]), num_subsets=2, data_axes={"X": 0, "y": 0}), X, lib.np.ones(16)
        )


def test_empty_data(lib):
    model, _ = regression(lib)
    with pytest.raises(ValueError, match="data argument 'X' must have at least one row, got 0 rows"):
        lib.run(kernel(lib, model), lib.np.zeros((0, 3)), lib.np.zeros(0))


def test_nan_in_data(lib):
    X, y = models.data(lib)
    y = lib.to_numpy(y).copy()
    y[4] = np.nan
    model, _ = regression(lib)
    with pytest.raises(ValueError, match=r"data argument 'y' must not make the log-density NaN, got NaN at \[4\]"):
        lib.run(kernel(lib, model, num_subsets=3), X, lib.array(y))


def test_nan_in_what_a_parameter_is_computed_from(lib):
    """The host refuses the parameter of a distribution before a density is evaluated."""
    X, y = models.data(lib)
    X = lib.to_numpy(X).copy()
    X[4, 1] = np.nan

    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(X.shape[1]), 1.0).to_event(1))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Bernoulli(logits=X @ w), obs=y)

    with pytest.raises(ValueError, match=r"data argument 'X' must not make the log-density NaN, got NaN at \[4, 1\]"):
        lib.run(kernel(lib, model, num_subsets=3), lib.array(X), lib.array((lib.to_numpy(y) > 0) * 1.0))


def test_nan_at_the_start(lib):
    model, args = regression(lib)
    start = {"b": lib.array([np.nan, 0.0, 0.0]), "s": lib.array(0.0)}
    with pytest.raises(ValueError, match="initial parameters must have a finite potential energy, got nan at"):
        lib.run(kernel(lib, model, num_subsets=2), *args, init_params=start)


def test_start_of_the_wrong_size(lib):
    model, args = regression(lib)
    with pytest.raises(
        ValueError, match=r"must hold the unconstrained values of every latent site.*got \{'b': 2, 's': 1\}"
    ):
        lib.run(kernel(lib, model, num_subsets=2), *args, init_params={"b": lib.np.zeros(2), "s": lib.array(0.0)})


@pytest.mark.parametrize("b", [(3, 1), (1, 3)])
def test_start_of_the_wrong_shape(lib, b):
    """Of the right size, it would be another model's where it is broadcast against the rows."""
    model, args = regression(lib)
    with pytest.raises(ValueError, match=r"of every latent site, shapes .*'b': \(3,\).*, got .*'b': \((3, 1|1, 3)\)"):
        lib.run(kernel(lib, model, num_subsets=2), *args, init_params={"b": lib.np.zeros(b), "s": lib.array(0.0)})


@pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
def test_start_of_other_types(lib):
    """Lists and whole numbers are taken; an array is no start."""
    model, args = regression(lib)
    mcmc = lib.run(kernel(lib, model, num_subsets=2), *args, init_params={"b": [0.1, 0.2, 0.3], "s": 0}, num_samples=2)
    assert lib.to_numpy(mcmc.get_samples()["b"]).shape == (2, 3)
    with pytest.raises(TypeError, match="init_params must be a dict of unconstrained values by site, got Array"):
        lib.run(kernel(lib, model, num_subsets=2), *args, init_params=lib.np.zeros(4))


@pytest.mark.parametrize("lib", [PyroBackend], ids=["pyro"], indirect=True)
@pytest.mark.parametrize("num_subsets", [1, 2])
def test_no_latents(lib, num_subsets):
    """NumPyro, as its own HMC, draws nothing."""

    def model(y):
        with lib.ppl.plate("data", len(y)):
            lib.ppl.sample("y", lib.dist.Normal(0.0, 1.0), obs=y)

    with pytest.raises(ValueError, match="model must have a latent site to sample"):
        lib.run(lib.split.SplitHMC(model, num_subsets=num_subsets), lib.array(np.arange(6.0)))


def test_discrete_latents(lib):
    def model(y):
        k = lib.ppl.sample("k", lib.dist.Bernoulli(lib.array(0.5)))
        with lib.ppl.plate("data", len(y)):
            lib.ppl.sample("y", lib.dist.Normal(1.0 * k, 1.0), obs=y)

    with pytest.raises(ValueError, match=r"discrete latent sites \['k'\]; marginalise them: write a mixture"):
        lib.run(kernel(lib, model, num_subsets=2), models.data(lib)[1])


def test_model_that_cannot_be_split(lib):
    model, args = models.statistic_of_all_rows(lib)
    reason = r"models.py:\d+: (sum|mean) over the data rows"
    with pytest.raises(lib.split.ModelNotSplittableError, match=reason):
        lib.run(kernel(lib, model, num_subsets=4), *args)


def test_data_axes(lib):
    model, args = regression(lib)
    with pytest.raises(ValueError, match=r"data_axes must name model arguments \['X', 'y'\], got 'Z'"):
        lib.run(kernel(lib, model, data_axes={"Z": 0}), *args)
    with pytest.raises(TypeError, match="data_axes must map argument names"):
        lib.run(kernel(lib, model, data_axes=[0, 0]), *args)


def test_kernel_of_a_potential_needs_a_start(lib):
    potential = lib.split.SplitPotential.from_functions(lambda z: 0.0, lambda z, y: y * z["a"], lib.np.ones(4), 2)
    with pytest.raises(ValueError, match="params must be given for a kernel made from a SplitPotential"):
        lib.run(kernel(lib, potential))


def test_functions_need_equal_rows(lib):
    with pytest.raises(ValueError, match="data arguments must have equal length"):
        lib.split.SplitPotential.from_functions(
            lambda z: 0.0, lambda z, d: 0.0, {"a": lib.np.ones(4), "b": lib.np.ones(5)}, 2
        )
