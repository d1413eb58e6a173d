"""Models in both frameworks, written once: each function returns ``(model, args)`` for 15 rows or so.

Together they are the rows of the table of model shapes that splitting must get right, and those it must refuse.
"""

from __future__ import annotations

import numpy as np

NUM_ROWS, DIM = 15, 3


def data(lib, num_rows=NUM_ROWS, dtype=None):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, DIM))
    y = X @ np.array([1.0, -1.0, 0.5]) + 0.5 * rng.normal(size=num_rows)
    return lib.array(X, dtype), lib.array(y, dtype)


def coefficients(lib, name="b", size=DIM):
    zero, one = lib.np.zeros(size), lib.np.ones(size)
    return lib.ppl.sample(name, lib.dist.Normal(zero, one).to_event(1))


def plate_from_shape(lib):
    def model(X, y):
        b = coefficients(lib)
        s = lib.ppl.sample("s", lib.dist.HalfNormal(lib.array(1.0)))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ b, s), obs=y)

    return model, data(lib)


def closed_over_size(lib):
    def model(X, y):
        b = coefficients(lib)
        with lib.ppl.plate("data", NUM_ROWS):
            lib.ppl.sample("y", lib.dist.Normal(X @ b, 1.0), obs=y)

    return model, data(lib)


def size_from_labels_and_deterministic(lib):
    def model(X, y):
        b = coefficients(lib)
        with lib.ppl.plate("data", len(y)):
            mean = lib.ppl.deterministic("mean", X @ b)
            lib.ppl.sample("y", lib.dist.Normal(mean, 1.0), obs=y)

    return model, data(lib)


def indexed_arguments(lib):
    def model(X, y):
        b = coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]) as ind:
            lib.ppl.sample("y", lib.dist.Normal(X[ind] @ b, 1.0), obs=y[ind])

    return model, data(lib)


def subsampled_plate(lib):
    def model(X, y):
        b = coefficients(lib)
        with lib.ppl.plate("data", X.shape[0], subsample_size=5):
            X_batch = lib.ppl.subsample(X, event_dim=1)
            y_batch = lib.ppl.subsample(y, event_dim=0)
            lib.ppl.sample("y", lib.dist.Normal(X_batch @ b, 1.0), obs=y_batch)

    return model, data(lib)


def closure_indexed(lib):
    X, y = data(lib)

    def model():
        b = coefficients(lib)
        with lib.ppl.plate("data", NUM_ROWS) as ind:
            lib.ppl.sample("y", lib.dist.Normal(X[ind] @ b, 1.0), obs=y[ind])

    return model, ()


def local_latents_and_factors(lib):
    def model(X, y):
        t = lib.ppl.sample("t", lib.dist.HalfNormal(lib.array(1.0)))
        with lib.ppl.plate("data", X.shape[0]):
            u = lib.ppl.sample("u", lib.dist.LogNormal(lib.array(0.0), t))
            w = lib.ppl.sample("w", lib.dist.Dirichlet(lib.np.ones(DIM)))
            lib.ppl.factor("tensor", -0.1 * u**2)
            lib.ppl.factor("constant", lib.array(0.3))
            lib.ppl.sample("y", lib.dist.Normal((X * w).sum(-1), u), obs=y)

    return model, data(lib)


def nested_plates(lib):
    rng = np.random.default_rng(1)
    Y = lib.array(rng.normal(size=(NUM_ROWS, 4)))

    def model(Y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", Y.shape[0], dim=-2):
            shift = lib.ppl.sample("shift", lib.dist.Normal(lib.array(0.0), 1.0))
            with lib.ppl.plate("columns", 4, dim=-1):
                lib.ppl.sample("y", lib.dist.Normal(mu + shift, 1.0), obs=Y)

    return model, (Y,)


def event_observations(lib):
    X, _ = data(lib)

    def model(X):
        mu = coefficients(lib, "mu")
        with lib.ppl.plate("data", X.shape[0]):
            cov = lib.np.eye(DIM) + 0.1
            lib.ppl.sample("x", lib.dist.MultivariateNormal(mu, covariance_matrix=cov), obs=X)

    return model, (X,)


def group_effects(lib):
    g = lib.array(np.arange(NUM_ROWS) % 4)

    def model(X, y, g):
        with lib.ppl.plate("groups", 4):
            a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), 1.0))
        b = coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ b + a[g], 1.0), obs=y)

    return model, (*data(lib), g)


def user_mask_and_scale(lib):
    mask = lib.array(np.arange(NUM_ROWS) % 3 > 0)
    handlers = lib.ppl.handlers if lib.name == "numpyro" else lib.ppl.poutine

    def model(X, y, mask):
        b = coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]), handlers.mask(mask=mask), handlers.scale(scale=0.3):
            lib.ppl.sample("y", lib.dist.Normal(X @ b, 1.0), obs=y)

    return model, (*data(lib), mask)


def second_plate_of_another_size(lib):
    rng = np.random.default_rng(2)
    other = lib.array(rng.normal(size=7))

    def model(X, y, other):
        b = coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ b, 1.0), obs=y)
        with lib.ppl.plate("other", other.shape[0]):
            lib.ppl.sample("o", lib.dist.Normal(b[0], 1.0), obs=other)

    return model, (*data(lib), other)


def second_plate_of_the_same_size(lib):
    rng = np.random.default_rng(2)
    other = lib.array(rng.normal(size=NUM_ROWS))

    def model(X, y, other):
        b = coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ b, 1.0), obs=y)
        with lib.ppl.plate("other", other.shape[0]):
            lib.ppl.sample("o", lib.dist.Normal(b[0], 1.0), obs=other)

    return model, (*data(lib), other)


def observation_and_factor_outside(lib):
    def model(X, y):
        b = coefficients(lib)
        lib.ppl.sample("outside", lib.dist.Normal(b[0], 1.0), obs=lib.array(0.7))
        lib.ppl.factor("penalty", -0.5 * (b**2).sum())
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ b, 1.0), obs=y)

    return model, data(lib)


def reentered_plate(lib):
    def model(X, y):
        b = coefficients(lib)
        plate = lib.ppl.plate("data", X.shape[0], dim=-1)
        with plate:
            lib.ppl.sample("y", lib.dist.Normal(X @ b, 1.0), obs=y)
        with plate:
            lib.ppl.sample("x", lib.dist.Normal(b[0], 1.0), obs=X[:, 0])

    return model, data(lib)


def parameter_per_row_outside_the_plate(lib):
    def model(X, y):
        u = coefficients(lib, "u", size=NUM_ROWS)
        with lib.ppl.plate("data", NUM_ROWS) as ind:
            lib.ppl.sample("y", lib.dist.Normal(u[ind], 1.0), obs=y[ind])

    return model, data(lib)


def constrained_everything(lib):
    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Dirichlet(lib.np.ones(DIM)))
        p = lib.ppl.sample("p", lib.dist.Beta(lib.array(2.0), 3.0))
        s = lib.ppl.sample("s", lib.dist.Gamma(lib.array(2.0), 1.0))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.StudentT(4.0, (X @ w) * p, s), obs=y)

    return model, data(lib)


def nested_arguments(lib):
    X, y = data(lib)

    def model(batch, scale=1.0):
        b = coefficients(lib)
        with lib.ppl.plate("data", batch["y"].shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(batch["X"] @ b, scale), obs=batch["y"])

    return model, ({"X": X, "y": y},)


def statistic_of_all_rows(lib):
    """Not splittable: every row depends on all rows and on parameters."""

    def model(X, y):
        b = coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]):
            f = X @ b
            lib.ppl.sample("y", lib.dist.Normal(f - f.mean(), 1.0), obs=y)

    return model, data(lib)


def likelihood_outside(lib):
    """Exact but pointless: the plate is empty of data, all of it sits in a factor outside."""

    def model(X, y):
        b = coefficients(lib)
        lib.ppl.factor("likelihood", -0.5 * ((y - X @ b) ** 2).sum())
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.factor("nothing", lib.np.zeros(X.shape[0]))

    return model, data(lib)


def improper_prior(lib):
    """A prior that cannot be sampled from, which Pyro's own HMC refuses."""

    def model(X, y):
        b = lib.ppl.sample("b", lib.dist.ImproperUniform(lib.dist.constraints.real_vector, (), (DIM,)))
        s = lib.ppl.sample("s", lib.dist.ImproperUniform(lib.dist.constraints.positive, (), ()))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ b, s), obs=y)

    return model, data(lib)


def bounds_of_each_row(lib):
    """Latents in the plate, each with a support of its own."""

    def model(X, y):
        s = lib.ppl.sample("s", lib.dist.HalfNormal(lib.array(1.0)))
        with lib.ppl.plate("data", X.shape[0]):
            u = lib.ppl.sample("u", lib.dist.Uniform(X[:, 0], X[:, 0] + 2.0))
            lib.ppl.sample("y", lib.dist.Normal(u, s), obs=y)

    return model, data(lib)


def deviation_of_a_column_constant_at_first(lib):
    """A column is scaled by its deviation over all rows; it has none over those of the first subset."""

    def model(X, y):
        b = coefficients(lib)
        scaled = X / X.std(0)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(scaled @ b, 1.0), obs=y)

    X, y = (lib.to_numpy(x).copy() for x in data(lib))
    X[:5, 0] = 0.0
    return model, (lib.array(X), lib.array(y))


SPLITTABLE = [
    plate_from_shape,
    closed_over_size,
    size_from_labels_and_deterministic,
    indexed_arguments,
    subsampled_plate,
    closure_indexed,
    local_latents_and_factors,
    nested_plates,
    event_observations,
    group_effects,
    user_mask_and_scale,
    second_plate_of_another_size,
    second_plate_of_the_same_size,
    observation_and_factor_outside,
    reentered_plate,
    parameter_per_row_outside_the_plate,
    constrained_everything,
    nested_arguments,
    bounds_of_each_row,
]
HOLDING = [deviation_of_a_column_constant_at_first]  # splittable, with values that are computed on all rows
UNSPLITTABLE = [statistic_of_all_rows, likelihood_outside]
