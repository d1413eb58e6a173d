"""Single rows of one subset, of which nothing had to divide: they were evaluated as if they were all the rows."""

import numpy as np
import pytest

from split_common.errors import ModelNotSplittableError

NUM_ROWS, SOME = 8, [1, 5, 7]


def centred(lib):
    """Each row's mean rests on that of all rows, which can be held."""

    def model(y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(0.0, 1.0))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(mu + y.mean(), 1.0), obs=y)

    return model


def accumulated(lib):
    """Rows meet in a value that rests on a parameter."""

    def model(y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(0.0, 1.0))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal((mu * y).cumsum(0), 1.0), obs=y)

    return model


def of_numbers(lib):
    """A trend."""

    def model(y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(0.0, 1.0))
        with lib.ppl.plate("data", y.shape[0]) as i:
            lib.ppl.sample("y", lib.dist.Normal(mu * i, 1.0), obs=y)

    return model


def split(lib, make):
    y = np.random.default_rng(0).normal(5.0, 3.0, NUM_ROWS)
    return lib.split.split_model(make(lib), (lib.array(y),), num_subsets=1), {"mu": lib.array(np.array(0.7))}


@pytest.mark.parametrize("make", [centred, of_numbers])
def test_some_rows_are_those_of_all(lib, make):
    potential, z = split(lib, make)
    of_all = lib.to_numpy(potential.pointwise_log_likelihood(z, lib.np.arange(NUM_ROWS)))
    of_some = lib.to_numpy(potential.pointwise_log_likelihood(z, lib.array(np.array(SOME))))
    np.testing.assert_allclose(of_some, of_all[SOME], rtol=1e-12)
    energy, _ = potential.batch_potential_and_grad(z, lib.array(np.array(SOME)))
    prior = -0.5 * 0.7**2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(lib.to_numpy(energy), -prior - NUM_ROWS / len(SOME) * of_all[SOME].sum(), rtol=1e-12)


def test_rows_that_meet_are_not_told_apart(lib):
    """The model runs, undivided; a row of it is no question."""
    potential, z = split(lib, accumulated)
    with pytest.raises(ValueError, match="indices must lie from 0 to 0"):
        potential.pointwise_log_likelihood(z, lib.array(np.array(SOME)))
    y = lib.array(np.arange(1.0, 9.0))
    with pytest.raises(ModelNotSplittableError):
        lib.split.split_model(accumulated(lib), (y,), num_subsets=2)


def test_rows_that_are_given_twice_count_twice(lib):
    """In the gradient by a latent with an entry a row too."""

    def model(y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(0.0, 1.0))
        with lib.ppl.plate("data", y.shape[0]):
            a = lib.ppl.sample("a", lib.dist.Normal(mu, 1.0))
            lib.ppl.sample("y", lib.dist.Normal(a, 1.0), obs=y)

    y = np.random.default_rng(0).normal(5.0, 3.0, NUM_ROWS)
    potential = lib.split.split_model(model, (lib.array(y),), num_subsets=2)
    mu, a, rows = 0.7, np.linspace(-1.0, 1.0, NUM_ROWS), np.array([1, 4, 1, 1])
    z = {"mu": lib.array(np.array(mu)), "a": lib.array(a)}
    _, grad = potential.batch_potential_and_grad(z, lib.array(rows), 1.0)
    times = np.bincount(rows, minlength=NUM_ROWS)
    np.testing.assert_allclose(lib.to_numpy(grad["a"]), times * ((a - mu) + (a - y)), rtol=1e-12)
    np.testing.assert_allclose(lib.to_numpy(grad["mu"]), mu - (times * (a - mu)).sum(), rtol=1e-12)
