"""A split proved, or refuted, from the model's expression.

``MIXING`` are models whose rows rest on one another, ``HONEST`` their twins: rows that are each for themselves. The
first are refused where what mixes rows rests on parameters, and otherwise it is held; all of the second are proved with
nothing held. What is proved adds up to the host's potential at random points.
"""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax
from numpyro.infer import MCMC
from numpyro.infer.util import potential_energy
from scipy.stats import truncnorm

from numpyro_split import ModelNotSplittableError, SymmetricSplitHMC, split_model, to_inference_data
from numpyro_split.splitting import row_independence
from numpyro_split.splitting.model_split import ModelSplit
from numpyro_split.splitting.row_independence import by_rule
from numpyro_split.splitting.row_operations import Operation
from numpyro_split.splitting.row_rules import RULES
from split_common.row_independence import NOT_PROVED, PROVED, REFUTED, Free, NotAligned
from tests import models
from tests.backends import NumPyroBackend
from tests.statistics import assert_agree, compare_moments
from tests.test_splitting import needs_plate

NUM_ROWS, SUBSETS = 20, 4
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(NUM_ROWS, 3)), RNG.normal(size=NUM_ROWS)
GROUPS, LABELS = RNG.integers(0, 4, NUM_ROWS), RNG.integers(0, 3, NUM_ROWS)
OUTSIDE = RNG.normal(size=NUM_ROWS)

# from predictors, response, group, label, three weights, four effects, a scale and the plate's indices: the
# distribution of what is observed, and that
MIXING = {
    "divided by the largest of a column": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X / X.max(0)) @ w, s), y),
    "centred": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X - X.mean(0)) @ w, s), y),
    "by the standard deviation": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y / jnp.std(y)),
    "sorted": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), jnp.sort(y)),
    "summed up": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.cumsum(X @ w), s), y),
    "rolled": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.roll(y, 1) * w[0], s), y),
    "softmax over rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jax.nn.softmax(X @ w), s), y),
    "ranks": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), jnp.argsort(jnp.argsort(y)).astype(float)),
    "by the norm": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w / jnp.linalg.norm(X @ w), s), y),
    "lagged": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.concatenate([jnp.zeros(1), y[:-1]]) * w[0], s), y),
    "plus a count": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + jnp.arange(y.shape[0]), s), y),
    "plus the number of the row": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + 0.1 * i, s), y),
    "where the mean is positive": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.where(y.mean() > 0, X @ w, 0.0), s),
        y,
    ),
    "branch on the sum": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.cond(y.sum() > 0, lambda: X @ w, lambda: 0 * y), s),
        y,
    ),
    "branch on the number of rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X @ w, 1.0 if len(y) > 6 else 5.0),
        y,
    ),
    "by the number of rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w / len(y), s), y),
    "by the root of the number of rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s / jnp.sqrt(len(y))), y),
    "by a sum of ones": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s / jnp.ones_like(y).sum()), y),
    "batch norm": lambda X, y, g, lab, w, t, s, i: (dist.Normal(((h := jnp.tanh(X) * w) - h.mean(0)).sum(-1), s), y),
    "Gram matrix": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X @ X.T) @ (X @ w), s), y),
    "minus the first": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w - y[0], s), y),
    "minus the last": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w - y[-1], s), y),
    "reversed": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y[::-1]),
    "permuted": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X[jnp.argsort(g)] @ w, s), y),
    "looked up by data": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X[g] @ w, s), y),
    "pairs": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.exp(-((y[:, None] - y[None, :]) ** 2)).sum(-1) * w[0], s),
        y,
    ),
    "sums of groups": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jax.ops.segment_sum(y, g, 4)[g] * w[0], s), y),
    "sizes of groups": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.bincount(g, length=4)[g] * w[0], s), y),
    "filtered": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.scan(lambda c, x: (0.5 * c + x, c), 0.0, y)[1], s),
        y,
    ),
    "plus a vector from outside": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + OUTSIDE[: X.shape[0]], s), y),
    "from the end": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y[len(y) - 1 - i]),
    "minus the median": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y - jnp.median(y)),
    "plus the place of the largest": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + jnp.argmax(y), s), y),
    "by the squared norm": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y / (y @ y)),
    "laid out anew": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X.T.reshape(-1, 3) @ w, s), y),
    "Fourier transform": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.real(jnp.fft.fft(y)) * w[0], s), y),
    "convolved": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.convolve(y, w, mode="same"), s), y),
    "plus a trend": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + jnp.linspace(0, 1, len(y)), s), y),
    "but for the first two": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.where(jnp.arange(len(y)) < 2, 0.0, X @ w), s),
        y,
    ),
    "the first row overwritten": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X @ w).at[0].set(0.0), s), y),
    "pooled": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.reduce_window(X @ w, -jnp.inf, lax.max, (2,), (1,), "SAME"), s),
        y,
    ),
    "Fourier transform of predictions": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.real(jnp.fft.fft(X @ w)), s),
        y,
    ),
    "whitened": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ jnp.linalg.inv(X.T @ X) @ w, s), y),
    # the next five are the host's near every start
    "plus the two largest, where they are large": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X @ w + jnp.maximum(lax.top_k(X @ w, 2)[0].sum() - 200, 0), s),
        y,
    ),
    "plus a singular value, where it is large": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X @ w + jnp.maximum(jnp.linalg.svd(X * w, compute_uv=False)[0] - 300, 0), s),
        y,
    ),
    "plus a triangular factor, where it is large": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X @ w + jnp.maximum(jnp.linalg.qr(X * w)[1].max() - 300, 0), s),
        y,
    ),
    "the first row overwritten in place, where it is large": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X @ w + jnp.maximum(lax.dynamic_update_slice(X @ w, jnp.zeros(1), (0,)) - 60, 0), s),
        y,
    ),
    "solved with all rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X @ jnp.linalg.solve(jnp.eye(3) * s + (X * w).T @ (X * w), w), s),
        y,
    ),
    "the label in another row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal((X * w)[jnp.arange(len(y)) // 2, lab], s),
        y,
    ),
    "the label's row": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X * w)[lab, jnp.arange(len(y)) % 3], s), y),
    "the label's row, the column by number": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.tile(X * w, (1, 40))[lab, jnp.arange(len(y))], s),
        y,
    ),
    "put at another row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal((X * w).at[g, jnp.arange(len(y)) % 3].add(y).sum(1), s),
        y,
    ),
    "a loop over rows that counts": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.scan(lambda c, x: (c + 1, x @ w * c), 0.0, X)[1], s),
        y,
    ),
    "a loop over rows that looks at all": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.map(lambda x: ((X - x) ** 2 @ w).sum(), X), s),
        y,
    ),
    # in the next five a setting of an operation, not an operand, depends on how many rows there are
    "a column by the number of rows, in place": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X.at[:, 0].apply(lambda v: v * 50 / len(y)) @ w, s),
        y,
    ),
    "missing entries by the number of rows, where they are large": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(
            X @ w + jnp.maximum(jnp.abs(w[0]) * t.at[g + 2].get(mode="fill", fill_value=float(len(y))) - 60, 0),
            s,
        ),
        y,
    ),
    "a loop backwards over many rows, where it is large": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(
            X @ w
            + jnp.maximum(lax.scan(lambda c, x: (0.5 * c + x, c), 0 * y, (X * w).T, reverse=len(y) > 8)[0] - 9, 0),
            s,
        ),
        y,
    ),
    "the other triangle of many rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(
            lax.linalg.triangular_solve(jnp.eye(3) + jnp.outer(w, w), X.T, left_side=True, lower=len(y) > 8).sum(0), s
        ),
        y,
    ),
    "parameters turned round for many rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X @ lax.rev(jnp.outer(w, t[:3]), (0,) if len(y) > 8 else (1,))[0], s),
        y,
    ),
}
HONEST = {
    "plain": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y),
    "largest of a row": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X.max(1) * w[0], s), y),
    "centred rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X - X.mean(1, keepdims=True)) @ w, s), y),
    "sorted rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.sort(X, 1) @ w, s), y),
    "summed up in rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.cumsum(X * w, 1)[:, -1], s), y),
    "softmax of rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jax.nn.softmax(X, 1) @ w, s), y),
    "layer norm": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal((((h := jnp.tanh(X) * w) - h.mean(1, keepdims=True)) / h.std(1, keepdims=True)).sum(-1), s),
        y,
    ),
    "groups": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + t[g], s), y),
    "one-hot": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jax.nn.one_hot(g, 4) @ t, s), y),
    "categorical": lambda X, y, g, lab, w, t, s, i: (dist.Categorical(logits=X * w), lab),
    "Student t": lambda X, y, g, lab, w, t, s, i: (dist.StudentT(3.0, X @ w, s), y),
    "mixture": lambda X, y, g, lab, w, t, s, i: (
        dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(w, s)),
        y,
    ),
    "mixture by row": lambda X, y, g, lab, w, t, s, i: (
        dist.MixtureSameFamily(dist.Categorical(logits=X), dist.Normal(w, s)),
        y,
    ),
    "Poisson": lambda X, y, g, lab, w, t, s, i: (dist.Poisson(jnp.exp(X @ w)), g),
    "negative binomial": lambda X, y, g, lab, w, t, s, i: (dist.NegativeBinomial2(jnp.exp(X @ w), s), g),
    "Bernoulli": lambda X, y, g, lab, w, t, s, i: (dist.Bernoulli(logits=X @ w), (y > 0)),
    "ordinal": lambda X, y, g, lab, w, t, s, i: (dist.OrderedLogistic(X @ w, jnp.sort(t[:2])), lab),
    "zero-inflated": lambda X, y, g, lab, w, t, s, i: (dist.ZeroInflatedPoisson(0.2, jnp.exp(X @ w)), g),
    "beta": lambda X, y, g, lab, w, t, s, i: (dist.Beta(jnp.exp(X @ w), 1 + s), jax.nn.sigmoid(y)),
    "gamma": lambda X, y, g, lab, w, t, s, i: (dist.Gamma(jnp.exp(X @ w), s), jnp.exp(y)),
    "truncated": lambda X, y, g, lab, w, t, s, i: (dist.TruncatedNormal(X @ w, s, low=-10.0), y),
    "network": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal((jnp.tanh(jax.nn.relu(X[:, :, None] * t)).sum(-1)) @ w, s),
        y,
    ),
    "times a count of columns": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X * jnp.arange(3)) @ w, s), y),
    "filtered along columns": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.scan(lambda c, x: (0.5 * c + x, c), 0.0 * y, X.T)[0], s),
        y,
    ),
    "vmap": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jax.vmap(lambda x: jnp.dot(jnp.sort(x), w))(X), s), y),
    "where a row says": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.where(y > 0, X @ w, 0.0), s), y),
    "indexed": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X[i] @ w, s), y[i]),
    "multivariate normal": lambda X, y, g, lab, w, t, s, i: (dist.MultivariateNormal(w, jnp.eye(3) * s), X),
    "factor": lambda X, y, g, lab, w, t, s, i: (dist.Unit(-((y - X @ w) ** 2)), jnp.zeros((X.shape[0], 0))),
    "branch on a parameter": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.cond(s > 1, lambda: X @ w, lambda: 0 * y), s),
        y,
    ),
    "loop": lambda X, y, g, lab, w, t, s, i: (dist.Normal(lax.fori_loop(0, 3, lambda k, c: c * 0.5 + X @ w, y), s), y),
    "looked up in the row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.take_along_axis(X, lab[:, None], 1)[:, 0] * w[0], s),
        y,
    ),
    "clipped": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.clip(X @ w, -1, 1), s), y),
    "log-sum-exp of a row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jax.scipy.special.logsumexp(X * w, axis=1), s),
        y,
    ),
    "quadratic form": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.einsum("ni,ij,nj->n", X, jnp.outer(w, w), X), s),
        y,
    ),
    "polynomial": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.stack([y**k for k in range(3)], 1) @ w, s), y),
    "spline": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.maximum(X[:, :1] - jnp.array([-1.0, 0.0, 1.0]), 0) @ w, s),
        y,
    ),
    "binomial": lambda X, y, g, lab, w, t, s, i: (dist.Binomial(10, logits=X @ w), g),
    "interpolated": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.interp(y, jnp.linspace(-3, 3, 4), t), s), y),
    "a column overwritten": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X.at[:, 0].set(1.0) @ w, s), y),
    "columns put into more": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.zeros((X.shape[0], 5)).at[:, 1:4].add(X * w)[:, :3].sum(1), s),
        y,
    ),
    "convolved rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.conv_general_dilated(X[:, None], w[None, None], (1,), "SAME").sum((1, 2)), s),
        y,
    ),
    "pooled rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.reduce_window(X * w, -jnp.inf, lax.max, (1, 2), (1, 1), "VALID").sum(1), s),
        y,
    ),
    "Fourier transform of rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.real(jnp.fft.fft(X, axis=1)) @ w, s),
        y,
    ),
    "Weibull": lambda X, y, g, lab, w, t, s, i: (dist.Weibull(jnp.exp(X @ w), 1 + s), jnp.exp(y)),
    "Dirichlet-multinomial": lambda X, y, g, lab, w, t, s, i: (
        dist.DirichletMultinomial(jnp.exp(X * w), 6),
        jnp.tile(jnp.array([3, 2, 1]), (X.shape[0], 1)),
    ),
    "multivariate normal by row": lambda X, y, g, lab, w, t, s, i: (
        dist.MultivariateNormal(X * w, scale_tril=jnp.tril(jnp.ones((3, 3)))),
        X,
    ),
    "the label's entry of each row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jax.nn.log_softmax(X * w)[jnp.arange(len(y)), lab], s),
        y,
    ),
    "the label's entry, rows last": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X * w).T[lab, i], s), y),
    "the first entry of each row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal((X * w)[jnp.arange(len(y)), 0], s),
        y,
    ),
    "two labels' entries": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal((X * w)[jnp.arange(len(y))[:, None], jnp.stack([lab, lab], 1)].sum(1), s),
        y,
    ),
    "put at the label's place": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.zeros((len(y), 4)).at[jnp.arange(len(y)), g].add(X @ w) @ t, s),
        y,
    ),
    "the label's entry overwritten": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal((X * w).at[jnp.arange(len(y)), lab].set(s).sum(1), s),
        y,
    ),
    "rows added by number": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal((X * w).at[jnp.arange(len(y))].add(X).sum(1), s),
        y,
    ),
    "mapped one by one": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.map(lambda row: jnp.tanh(row[0]) @ w + t[row[1]], (X, g)), s),
        y,
    ),
    "a loop over rows that carries a parameter": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.scan(lambda c, x: (c, c * (x @ w)), s, X, reverse=True)[1], s),
        y,
    ),
    "solved row by row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.linalg.solve(jnp.eye(3) * s + X[:, :, None] * X[:, None, :], X[..., None]).sum((1, 2)), s),
        y,
    ),
    "solved with one right side": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.linalg.solve(jnp.eye(3) + s * X[:, :, None] * X[:, None, :], w[:, None])[:, 0, 0], s),
        y,
    ),
    "eigenvalues by row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.linalg.eigvalsh(jnp.diag(jnp.arange(3.0)) * s + X[:, :, None] * X[:, None, :]) @ w, s),
        y,
    ),
    "triangular factors by row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.linalg.qr(jnp.eye(3) * s + X[:, :, None] * X[:, None, :])[1].sum((1, 2)), s),
        y,
    ),
    "tridiagonal by row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(
            lax.linalg.tridiagonal_solve(X.at[:, 0].set(0.0), 9 + X, X.at[:, 2].set(0.0), (X * w)[..., None])[:, 0, 0],
            s,
        ),
        y,
    ),
    "two largest of a row": lambda X, y, g, lab, w, t, s, i: (dist.Normal(lax.top_k(X * w, 2)[0].sum(1), s), y),
    "a column overwritten in place": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.dynamic_update_slice(X * w, jnp.ones((len(y), 1)), (0, 1)) @ w, s),
        y,
    ),
    "a column subtracted from": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal((X * w).at[:, 0].subtract(y).sum(1), s),
        y,
    ),
    "gradient by row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jax.vmap(jax.grad(lambda x: jnp.sum(jnp.tanh(x * w) ** 2)))(X).sum(1), s),
        y,
    ),
    "complex": lambda X, y, g, lab, w, t, s, i: (dist.Normal(jnp.abs(lax.complex(X @ w, y)), s), y),
    "behind a barrier": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jnp.matmul(*lax.optimization_barrier((X, w))), s),
        y,
    ),
    "columns one by one": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(sum(a * b for a, b in zip(jnp.unstack(X * s, axis=1), w, strict=True)), s),
        y,
    ),
    "reduced by a function": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(lax.reduce(X * w, jnp.zeros(()), lambda a, b: a + b * b, (1,)), s),
        y,
    ),
    "added at the label's place, by vmap": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jax.vmap(lambda x, k: (x * w).at[k].add(s))(X, lab).sum(1), s),
        y,
    ),
    "overwritten at the label's place, by vmap": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jax.vmap(lambda x, k: lax.dynamic_update_slice(x * w, jnp.ones(1), (k,)))(X, lab) @ w, s),
        y,
    ),
    "one-hot, by vmap": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(jax.vmap(lambda k: jnp.zeros(4).at[k].set(1.0))(g) @ t, s),
        y,
    ),
}


def model_of(row):
    def model(X, y, g, lab):
        w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        t = numpyro.sample("t", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
        s = numpyro.sample("s", dist.HalfNormal(1.0))
        with numpyro.plate("data", X.shape[0]) as i:
            fn, observed = row(X, y, g, lab, w, t, s, i)
            numpyro.sample("y", fn, obs=observed)

    return model


def data():
    return tuple(jnp.asarray(x) for x in (X, Y, GROUPS, LABELS))


def verdict(model, args, plate=None, num_subsets=SUBSETS):
    options = {"data_axes": None, "subset_order": "sequential", "program": None, "plate": plate}
    return ModelSplit.find(
        model, args, {}, num_subsets=num_subsets, init_strategy=numpyro.infer.init_to_uniform, **options
    ).verdict


# what mixes rows in these rests on parameters, or on the number of a cut row beside them
REFUSED = [
    "summed up",
    "softmax over rows",
    "by the norm",
    "plus a count",
    "batch norm",
    "Gram matrix",
    "convolved",
    "the first row overwritten",
    "pooled",
    "Fourier transform of predictions",
    "plus the two largest, where they are large",
    "plus a singular value, where it is large",
    "plus a triangular factor, where it is large",
    "the first row overwritten in place, where it is large",
    "solved with all rows",
    "the label in another row",
    "the label's row",
    "the label's row, the column by number",
    "put at another row",
    "a loop over rows that counts",
    "a loop over rows that looks at all",
    "missing entries by the number of rows, where they are large",
    "a loop backwards over many rows, where it is large",
    "the other triangle of many rows",
    "parameters turned round for many rows",
]
HELD = [name for name in MIXING if name not in REFUSED]


def assert_equal_to_the_host(model):
    """Energies and gradients at five random points."""
    potential = split_model(model, data(), num_subsets=SUBSETS)
    rng = np.random.default_rng(1)
    host = jax.jit(jax.value_and_grad(lambda z: potential_energy(model, data(), {}, z)))
    for _ in range(5):
        z = {"w": rng.normal(size=3), "t": rng.normal(size=4), "s": rng.normal()}
        z = {name: jnp.asarray(u) for name, u in z.items()}
        energy, grad = potential.potential_and_grad(z)
        host_energy, host_grad = host(z)
        np.testing.assert_allclose(energy, host_energy, rtol=1e-9)
        for name in z:
            np.testing.assert_allclose(grad[name], host_grad[name], rtol=1e-7, atol=1e-7)


@pytest.mark.contract
@pytest.mark.parametrize("row", HONEST.values(), ids=HONEST.keys())
def test_honest_models_are_proved(row):
    model = model_of(row)
    found = verdict(model, data())
    assert found.kind == PROVED
    assert not found.held
    assert_equal_to_the_host(model)


@pytest.mark.contract
@pytest.mark.parametrize("name", HELD)
def test_what_mixes_rows_and_rests_on_no_parameter_is_held(name):
    model = model_of(MIXING[name])
    found = verdict(model, data())
    assert found.kind == PROVED
    assert found.held
    assert_equal_to_the_host(model)


@pytest.mark.contract
@pytest.mark.parametrize("name", REFUSED)
def test_mixing_models_are_refused(name):
    with pytest.raises(ModelNotSplittableError, match="does not divide over its data plate"):
        split_model(model_of(MIXING[name]), data(), num_subsets=SUBSETS)


@pytest.mark.parametrize(
    "chosen",
    [
        lambda k: jnp.broadcast_to(k[:, None], (len(k), 2)).sum(1),
        lambda k: jnp.argmax(jnp.broadcast_to(k[:, None], (len(k), 2)), 1),
        lambda k: lax.pad(k[:, None], jnp.zeros((), k.dtype), ((0, 0, 0), (1, 0, 0)))[:, 0],
        lambda k: jnp.where(lax.pad((k < 0)[:, None], True, ((0, 0, 0), (1, 0, 0)))[:, 0], 0, k),
    ],
    ids=["summed", "place of the largest", "padded", "by padded truths"],
)
def test_numbers_of_rows_that_were_changed_are_other_numbers(chosen):
    """Looked up by them, rows are others'; the start, where nothing is looked up, does not show it."""
    model = model_of(
        lambda X, y, g, lab, w, t, s, i: (
            dist.Normal(X @ w + jnp.where(w[0] > 6, (X @ w).at[chosen(jnp.arange(len(y)))].get(mode="clip"), 0), s),
            y,
        )
    )
    with pytest.raises(ModelNotSplittableError, match="a look-up of other rows"):
        split_model(model, data(), num_subsets=SUBSETS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("softmax over rows", r"test_row_independence.py:\d+: max over the data rows"),
        ("by the norm", r"test_row_independence.py:\d+: sum over the data rows"),
        ("plus a count", r"the number of a row as it is cut"),
    ],
)
def test_refusals_name_operation_and_line(name, message):
    with pytest.raises(ModelNotSplittableError, match=message):
        split_model(model_of(MIXING[name]), data(), num_subsets=SUBSETS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("divided by the largest of a column", r"test_row_independence.py:\d+: max over the data rows"),
        ("by the number of rows", r"a number that depends on how many rows there are, 20.0 or 5.0"),
        ("sums of groups", r"rows put together by an index"),
    ],
)
def test_the_verdict_names_what_is_held(name, message):
    assert re.search(message, str(verdict(model_of(MIXING[name]), data())))


def test_a_maximum_that_a_sample_of_the_rows_does_not_hold():
    """S2 of the field tests: a numerical check on a sample of the rows passes this with each subset's own maximum."""

    def model(x):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("y", dist.Normal(b, 1.0), obs=x / x.max())

    x = jnp.ones(20_000).at[777].set(1e4)
    potential = split_model(model, (x,), num_subsets=20)
    z = {"b": jnp.array(0.3)}
    np.testing.assert_allclose(potential.potential(z), potential_energy(model, (x,), {}, z), rtol=1e-9)


def test_few_rows_of_a_model_that_holds_values():
    """Of one row a quantile is another program; what is held is given to as many rows as were proved."""

    def model(x):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("y", dist.Normal(b, 1.0), obs=x / (jnp.quantile(x, 0.9) - jnp.median(x)))

    x, z = jnp.asarray(Y), {"b": jnp.array(0.3)}
    potential = split_model(model, (x,), num_subsets=SUBSETS)
    expected = dist.Normal(0.3, 1.0).log_prob(x / (jnp.quantile(x, 0.9) - jnp.median(x)))
    for rows in ([7], [3, 19], range(NUM_ROWS)):
        found = potential.pointwise_log_likelihood(z, jnp.asarray(list(rows)))
        np.testing.assert_allclose(found, expected[jnp.asarray(list(rows))], rtol=1e-9)


def test_a_support_that_rests_on_all_rows():
    """The bound of a parameter is the data's maximum: positions are mapped by all rows, also in a part's likelihood."""

    def model(y):
        b = numpyro.sample("b", dist.Uniform(0.0, y.max()))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(b, 1.0), obs=y)

    y, z = jnp.asarray(Y), {"b": jnp.array(0.4)}
    potential = split_model(model, (y,), num_subsets=SUBSETS)
    np.testing.assert_allclose(potential.potential(z), potential_energy(model, (y,), {}, z), rtol=1e-9)
    kernel = SymmetricSplitHMC(model, num_subsets=SUBSETS)
    mcmc = MCMC(kernel, num_warmup=200, num_samples=2000, progress_bar=False)
    mcmc.run(jax.random.key(0), y)
    mean, sd = float(y.mean()), len(y) ** -0.5
    exact = truncnorm(-mean / sd, (float(y.max()) - mean) / sd, mean, sd)
    b = mcmc.get_samples()["b"]
    assert_agree(compare_moments("b", np.asarray(b)[None], exact.mean(), exact.var()))
    assert 0 < b.min()
    likelihood = to_inference_data(mcmc, log_likelihood=True).log_likelihood["y"].to_numpy()[0]
    np.testing.assert_allclose(likelihood, dist.Normal(b[:, None], 1.0).log_prob(y), rtol=1e-9)


def test_what_is_held_follows_the_data():
    """The same kernel on other data, and on data that are traced."""

    def model(y):
        b = numpyro.sample("b", dist.Normal(0.0, 10.0))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(b, 1.0), obs=y / y.max())

    kernel = SymmetricSplitHMC(model, num_subsets=SUBSETS)
    for traced in (False, True):
        mcmc = MCMC(kernel, num_warmup=200, num_samples=1000, progress_bar=False, jit_model_args=traced)
        for y in (jnp.asarray(np.abs(Y)), jnp.asarray(np.abs(Y) + 20.0)):
            mcmc.run(jax.random.key(0), y)
            # standard error of the mean: posterior sd 1/sqrt(20) over the root of some 300 effective draws
            assert abs(mcmc.get_samples()["b"].mean() - (y / y.max()).mean()) < 4.5 * 0.224 / np.sqrt(300)


@pytest.mark.parametrize(
    "weak",
    [lambda y: (y > 0) * 1.0, lambda y: jnp.where(y > 0, 1.0, 0.0), lambda y: jnp.arange(len(y)) * 1.0],
    ids=["a truth times a number", "chosen numbers", "a count times a number"],
)
def test_arrays_of_a_weak_type_are_taken_beside_held_values(weak):
    """Which take the type of what they meet, so that conversions stand in the program."""

    def model(x, y, scale):
        b = numpyro.sample("b", dist.Uniform(x.min() - 1.0, x.max() + 9.0))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(b * (x - x.mean()), scale), obs=y)

    x, y = jnp.asarray(Y), weak(jnp.asarray(Y))
    args, z = (y, x, jnp.asarray(2.0)), {"b": jnp.array(0.3)}
    assert all(array.weak_type for array in args[::2])
    potential = split_model(model, args, num_subsets=SUBSETS)
    np.testing.assert_allclose(potential.potential(z), potential_energy(model, args, {}, z), rtol=1e-9)
    kernel = SymmetricSplitHMC(model, num_subsets=SUBSETS)
    mcmc = MCMC(kernel, num_warmup=5, num_samples=5, progress_bar=False, jit_model_args=True)
    mcmc.run(jax.random.key(0), *args)
    found = mcmc.last_state.potential_energy
    np.testing.assert_allclose(found, potential_energy(model, args, {}, mcmc.last_state.z), rtol=1e-9)


@pytest.mark.parametrize("build", models.SPLITTABLE, ids=lambda build: build.__name__)
def test_models_that_divide_are_proved(build):
    model, args = build(NumPyroBackend())
    assert verdict(model, args, needs_plate(build)).kind == PROVED


def test_filters_of_each_row_are_not_held_against_it():
    """By vmap they are one convolution of as many groups as there are rows, which is not followed."""
    model = model_of(
        lambda X, y, g, lab, w, t, s, i: (
            dist.Normal(jax.vmap(lambda x: jnp.convolve(x, x * w, mode="same"))(X).sum(1), s),
            y,
        )
    )
    assert verdict(model, data()).kind == NOT_PROVED
    assert_equal_to_the_host(model)


def test_a_setting_that_depends_on_the_number_of_rows_is_not_proved(monkeypatch):
    """Of every primitive, each setting but those that its rule looks at."""
    parameters = {"axis": 0, "mode": "clip", "anything": 1}

    def operation(**others):
        primitive, shape = SimpleNamespace(name="sin"), SimpleNamespace(aval=SimpleNamespace(shape=(3,)))
        whole = SimpleNamespace(primitive=primitive, params=parameters, invars=[shape], outvars=[shape])
        return Operation(whole, SimpleNamespace(params={**parameters, **others}), [Free()])

    monkeypatch.setattr(row_independence, "RULES", dict.fromkeys(RULES, lambda op: [Free()]))
    assert by_rule(operation()) == [Free()]
    for name in parameters:
        [value] = by_rule(operation(**{name: "another"}))
        assert isinstance(value, NotAligned)
        assert f"whose {name} depends on how many rows" in value.why


def test_callbacks_are_not_proved():
    def model(y):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", y.shape[0]):
            mean = jax.pure_callback(
                lambda b, y: b * y, jax.ShapeDtypeStruct(y.shape, y.dtype), lax.stop_gradient(b), y
            )
            numpyro.sample("y", dist.Normal(b + 0.0 * mean, 1.0), obs=y)

    found = verdict(model, (jnp.asarray(Y),))
    assert found.kind == NOT_PROVED
    assert "pure_callback" in found.why
    assert found.kind != REFUTED


def test_a_loop_is_followed_until_nothing_changes():
    """Rows meet in one value, and that is handed on through fifteen others before it reaches what is observed."""

    def filtered(y):
        def step(carried, _):
            a, b = carried[:8], carried[8:]
            return (y + b[-1], *a[:-1], b[0] + a[-1].max(), *b[:-1]), a[-1]

        zero = jnp.zeros_like(y)
        return lax.scan(step, (*[zero] * 8, *[zero] * 8), None, length=40)[1][-1]

    def model(y):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(1e-12 * filtered(b + y), 1.0), obs=y)

    with pytest.raises(ModelNotSplittableError, match="max over the data rows"):
        verdict(model, (jnp.asarray(Y),))


def test_a_branch_on_the_number_of_rows_is_looked_at_far_away():
    """Another program on fewer rows is not proved; near a start, and on the way down from it, numbers agree."""

    def model(X, y):
        w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        with numpyro.plate("data", len(y)):
            mean = X @ w
            numpyro.sample("y", dist.Normal(mean if len(y) > 12 else jnp.clip(mean, -60, 60), 1.0), obs=y)

    with pytest.raises(ModelNotSplittableError, match="must equal the model's own"):
        split_model(model, data()[:2], num_subsets=SUBSETS)


def test_far_away_a_model_may_be_nan_where_the_user_looks_for_nan():
    """A run is looked at as the user asks; points at which numbers are compared may be where no chain goes."""

    def model(y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", len(y)):
            scale = jnp.sqrt(jnp.stack([25.0 - w**2 + 0.0 * x for x in y]))
            numpyro.sample("y", dist.Normal(w, scale, validate_args=False), obs=y)

    with jax.debug_nans(True):
        assert verdict(model, (jnp.asarray(Y),)).kind == NOT_PROVED


def test_a_loop_in_python_divides_unproved():
    """What is large far away is compared relative to its size: rounding there is more than a nat."""

    def model(X, counts):
        w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        with numpyro.plate("data", len(counts)):
            numpyro.sample("y", dist.Poisson(jnp.exp(jnp.stack([x @ w for x in X]))), obs=counts)

    assert verdict(model, (data()[0], data()[2])).kind == NOT_PROVED


def test_parts_of_one_row_are_proved():
    """An axis of one row is as long as those of length 1 beside it."""

    def row(X, y, g, lab, w, t, s, i):
        mean = (X * w).reshape(-1, 3, 1).sum((1, 2)) + (X[:, None, :] @ w).reshape(-1) + (X @ w).reshape(1, -1)[0]
        return dist.Normal(mean, s), y

    assert verdict(model_of(row), data(), num_subsets=NUM_ROWS).kind == PROVED


def test_row_numbers_in_a_type_too_small_for_them_are_others():
    def model(y):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", len(y)) as i:
            numpyro.sample("y", dist.Normal((b * y)[i.astype(dtype)], 1.0), obs=y)

    y = jnp.asarray(np.random.default_rng(0).normal(size=300))
    dtype = jnp.uint16
    assert verdict(model, (y,)).kind == PROVED
    dtype = jnp.uint8
    with pytest.raises(ModelNotSplittableError, match="a look-up of other rows"):
        verdict(model, (y,))


def test_traced_data_are_proved_too():
    """A proof takes shapes alone; numbers cannot be compared, and a warning says so."""

    def energies(mean):
        def model(x):
            b = numpyro.sample("b", dist.Normal(0.0, 1.0))
            with numpyro.plate("data", x.shape[0]):
                numpyro.sample("y", dist.Normal(mean(x, b), 1.0), obs=x)

        @jax.jit
        def of(x):
            z = {"b": jnp.array(0.3)}
            potential = split_model(model, (x,), num_subsets=SUBSETS, data_axes={"x": 0})
            return potential.potential(z), potential_energy(model, (x,), {}, z)

        return of(jnp.asarray(Y))

    with pytest.warns(UserWarning, match="the data are traced"):
        ours, host = energies(lambda x, b: b * x.max())
    np.testing.assert_allclose(ours, host, rtol=1e-9)
    with pytest.raises(ModelNotSplittableError, match="sum over the data rows"), pytest.warns(match="traced"):
        energies(lambda x, b: (b * x).sum())
