"""Bad input gets an error that names the argument, the rule and the value, before anything is sampled."""

import numpy as np
import pytest

from tests import models

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
    with pytest.raises(TypeError, match="model must be callable, got int"):
        kernel(lib, 3)


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
        lib.run(kernel(lib, model), models.data(lib)[1])


def test_several_plates_are_listed(lib):
    model, args = models.second_plate_of_another_size(lib)
    with pytest.raises(ValueError, match=r"plate must be given .*'data' \(size 15\), 'other' \(size 7\)"):
        lib.run(kernel(lib, model), *args)


def test_unknown_plate(lib):
    model, args = regression(lib)
    with pytest.raises(ValueError, match=r"plate must name a plate of the model, \['data'\], got 'rows'"):
        lib.run(kernel(lib, model, plate="rows"), *args)


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


def test_nan_at_the_start(lib):
    model, args = regression(lib)
    start = {"b": lib.array([np.nan, 0.0, 0.0]), "s": lib.array(0.0)}
    with pytest.raises(ValueError, match="initial parameters must have a finite potential energy, got nan in chain 0"):
        lib.run(kernel(lib, model, num_subsets=2), *args, init_params=start)


def test_start_of_the_wrong_size(lib):
    model, args = regression(lib)
    with pytest.raises(
        ValueError, match=r"must hold the unconstrained values of every latent site.*got \{'b': 2, 's': 1\}"
    ):
        lib.run(kernel(lib, model, num_subsets=2), *args, init_params={"b": lib.np.zeros(2), "s": lib.array(0.0)})


def test_discrete_latents(lib):
    def model(y):
        k = lib.ppl.sample("k", lib.dist.Bernoulli(lib.array(0.5)))
        with lib.ppl.plate("data", len(y)):
            lib.ppl.sample("y", lib.dist.Normal(1.0 * k, 1.0), obs=y)

    with pytest.raises(ValueError, match=r"discrete latent sites \['k'\].*MixtureSameFamily"):
        lib.run(kernel(lib, model), models.data(lib)[1])


def test_model_that_cannot_be_split(lib):
    model, args = models.statistic_of_all_rows(lib)
    with pytest.raises(lib.split.ModelNotSplittableError, match="against"):
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
