"""Pyro models whose rows rest on one another, and their honest twins, for the proof of row independence.

Each is a function of predictors, response, group, label, three weights, four effects, a scale and the plate's indices,
and gives the distribution of what is observed, and that.
"""

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch.nn import functional as F

NUM_ROWS = 20
RNG = np.random.default_rng(0)
OUTSIDE = RNG.normal(size=200)


def draw_data(rng, num_rows=NUM_ROWS):
    """Predictors, response, group and label."""
    X, y = rng.normal(size=(num_rows, 3)), rng.normal(size=num_rows)
    columns = X, y, rng.integers(0, 4, num_rows), rng.integers(0, 3, num_rows)
    return tuple(torch.as_tensor(x) for x in columns)


def model_of(row):
    def model(X, y, g, lab):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), torch.ones(3)).to_event(1))
        t = pyro.sample("t", dist.Normal(torch.zeros(4), torch.ones(4)).to_event(1))
        s = pyro.sample("s", dist.HalfNormal(torch.tensor(1.0)))
        with pyro.plate("data", X.shape[0]) as i:
            fn, observed = row(X, y, g, lab, w, t, s, i)
            pyro.sample("y", fn, obs=observed)

    return model


def lagged(y):
    shifted = torch.zeros_like(y)
    shifted[1:] = y[:-1]
    return shifted


def running_mean(y):
    carried, means = y[0], []
    for value in y:
        carried = 0.5 * carried + 0.5 * value
        means.append(carried)
    return torch.stack(means)


def loop_over_columns(X):
    carried = torch.zeros_like(X[:, 0])
    for column in X.unbind(1):
        carried = 0.5 * carried + column
    return carried


def written_by_column(X, w):
    h = torch.empty_like(X)
    for k in range(3):
        h[:, k] = X[:, k] * w[k]
    h[h > 1.0] = 1.0
    h += 0.1
    return h.sum(-1)


def convolved_rows(X, w):
    return F.conv1d(X[:, None, :], w[None, None, :], padding=1)[:, 0, :].sum(-1)


MIXING = {
    "divided by the largest of a column": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X / X.max(0)[0]) @ w, s), y),
    "centred": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X - X.mean(0)) @ w, s), y),
    "by the standard deviation": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y / y.std()),
    "sorted": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y.sort()[0]),
    "summed up": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.cumsum(X @ w, 0), s), y),
    "rolled": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.roll(y, 1) * w[0], s), y),
    "softmax over rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.softmax(X @ w, 0), s), y),
    "ranks": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y.argsort().argsort().to(y.dtype)),
    "by the norm": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w / torch.linalg.norm(X @ w), s), y),
    "lagged": lambda X, y, g, lab, w, t, s, i: (dist.Normal(lagged(y) * w[0], s), y),
    "plus a count": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + torch.arange(len(y)), s), y),
    "plus the number of the row": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + 0.1 * i, s), y),
    "where the mean is positive": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.where(y.mean() > 0, X @ w, 0.0 * y), s),
        y,
    ),
    "branch on the sum": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w if y.sum() > 0 else 0 * y, s), y),
    "branch on the number of rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X @ w, 1.0 if len(y) > 6 else 5.0),
        y,
    ),
    "by the number of rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w / len(y), s), y),
    "by the root of the number of rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X @ w, s / torch.tensor(float(y.shape[0])).sqrt()),
        y,
    ),
    "by a sum of ones": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s / torch.ones_like(y).sum()), y),
    "batch norm": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(F.batch_norm(torch.tanh(X) * w, None, None, training=True).sum(-1), s),
        y,
    ),
    "Gram matrix": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X @ X.T) @ (X @ w), s), y),
    "minus the first": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w - y[0], s), y),
    "minus the last": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w - y[-1], s), y),
    "reversed": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y.flip(0)),
    "permuted": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X[g.argsort()] @ w, s), y),
    "looked up by data": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X[g] @ w, s), y),
    "pairs": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.exp(-((y[:, None] - y[None, :]) ** 2)).sum(-1) * w[0], s),
        y,
    ),
    "sums of groups": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.zeros(4).index_add(0, g, y)[g] * w[0], s),
        y,
    ),
    "sizes of groups": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.zeros(4).scatter_add(0, g, torch.ones_like(y))[g] * w[0], s),
        y,
    ),
    "filtered": lambda X, y, g, lab, w, t, s, i: (dist.Normal(running_mean(y), s), y),
    "plus a vector from outside": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X @ w + torch.as_tensor(OUTSIDE)[: X.shape[0]], s),
        y,
    ),
    "from the end": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y[len(y) - 1 - i]),
    "minus the median": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y - y.median()),
    "plus the place of the largest": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + y.argmax(), s), y),
    "by the squared norm": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y / (y @ y)),
    "laid out anew": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X.T.reshape(-1, 3) @ w, s), y),
    "Fourier transform": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.fft.fft(y).real * w[0], s), y),
    "convolved": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(F.conv1d(y[None, None, :], w[None, None, :], padding=1)[0, 0], s),
        y,
    ),
    "plus a trend": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + torch.linspace(0, 1, len(y)), s), y),
    "but for the first two": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.where(torch.arange(len(y)) < 2, 0.0 * y, X @ w), s),
        y,
    ),
    "whitened": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ torch.linalg.inv(X.T @ X) @ w, s), y),
    "in place": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X @ w).sub_(y.sum()), s), y),
    "counted": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s * len(torch.unique(g))), y),
    "by a mean that is taken out": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y - y.mean().item()),
    "whether a group occurs": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + (2.0 if 3 in g else 0.0), s), y),
    "the largest, found by Python": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s * (1 + float(max(g)))), y),
    "from a table of the first rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.as_tensor(OUTSIDE).reshape(-1, 1).expand(200, 4).gather(1, g[:, None])[:, 0] * w[0], s),
        y,
    ),
}
HONEST = {
    "plain": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y),
    "largest of a row": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X.max(1)[0] * w[0], s), y),
    "centred rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X - X.mean(1, keepdim=True)) @ w, s), y),
    "by the standard deviation of a row": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w, s), y / X.std(1)),
    "sorted rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X.sort(1)[0] @ w, s), y),
    "summed up in rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.cumsum(X * w, 1)[:, -1], s), y),
    "rolled rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.roll(X, 1, 1) @ w, s), y),
    "softmax of rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.softmax(X, 1) @ w, s), y),
    "ranks in rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X.argsort(1).argsort(1).to(X.dtype) @ w, s), y),
    "by the norm of a row": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w / torch.linalg.norm(X, dim=1), s), y),
    "layer norm": lambda X, y, g, lab, w, t, s, i: (dist.Normal(F.layer_norm(torch.tanh(X), (3,), w).sum(-1), s), y),
    "reversed rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X.flip(1) @ w, s), y),
    "minus the first column": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X - X[:, :1]) @ w, s), y),
    "groups": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X @ w + t[g], s), y),
    "one-hot": lambda X, y, g, lab, w, t, s, i: (dist.Normal(F.one_hot(g, 4).to(t.dtype) @ t, s), y),
    "scattered in rows": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.zeros(len(y), 4).scatter(1, g[:, None], 1.0) @ t, s),
        y,
    ),
    "categorical": lambda X, y, g, lab, w, t, s, i: (dist.Categorical(logits=X * w), lab),
    "Student t": lambda X, y, g, lab, w, t, s, i: (dist.StudentT(3.0, X @ w, s), y),
    "mixture": lambda X, y, g, lab, w, t, s, i: (
        dist.MixtureSameFamily(dist.Categorical(torch.ones(3) / 3), dist.Normal(w, s)),
        y,
    ),
    "mixture by row": lambda X, y, g, lab, w, t, s, i: (
        dist.MixtureSameFamily(dist.Categorical(logits=X), dist.Normal(w.expand(X.shape), s)),
        y,
    ),
    "Poisson": lambda X, y, g, lab, w, t, s, i: (dist.Poisson(torch.exp(X @ w)), g),
    "negative binomial": lambda X, y, g, lab, w, t, s, i: (dist.NegativeBinomial(1 + s, logits=X @ w), g),
    "Bernoulli": lambda X, y, g, lab, w, t, s, i: (dist.Bernoulli(logits=X @ w), (y > 0).to(y.dtype)),
    "ordinal": lambda X, y, g, lab, w, t, s, i: (dist.OrderedLogistic(X @ w, t[:2].sort()[0]), lab),
    "zero-inflated": lambda X, y, g, lab, w, t, s, i: (
        dist.ZeroInflatedPoisson(torch.exp(X @ w), gate=torch.tensor(0.2)),
        g,
    ),
    "beta": lambda X, y, g, lab, w, t, s, i: (dist.Beta(torch.exp(X @ w), 1 + s), torch.sigmoid(y)),
    "gamma": lambda X, y, g, lab, w, t, s, i: (dist.Gamma(torch.exp(X @ w), s), torch.exp(y)),
    "network": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.tanh(torch.relu(X[:, :, None] * t)).sum(-1) @ w, s),
        y,
    ),
    "times a count of columns": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X * torch.arange(3)) @ w, s), y),
    "filtered along columns": lambda X, y, g, lab, w, t, s, i: (dist.Normal(loop_over_columns(X), s), y),
    "vmap": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.vmap(lambda x: torch.dot(x.sort()[0], w))(X), s), y),
    "where a row says": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.where(y > 0, X @ w, 0.0), s), y),
    "indexed": lambda X, y, g, lab, w, t, s, i: (dist.Normal(X[i] @ w, s), y[i]),
    "multivariate normal": lambda X, y, g, lab, w, t, s, i: (dist.MultivariateNormal(w, torch.eye(3) * s), X),
    "factor": lambda X, y, g, lab, w, t, s, i: (dist.Unit(-((y - X @ w) ** 2)), torch.zeros(X.shape[0], 0)),
    "in place by column": lambda X, y, g, lab, w, t, s, i: (dist.Normal(written_by_column(X, w), s), y),
    "looked up in the row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X.gather(1, lab[:, None])[:, 0] * w[0], s),
        y,
    ),
    "looked up by row and column": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(X[torch.arange(len(y)), lab] * w[0], s),
        y,
    ),
    "clipped": lambda X, y, g, lab, w, t, s, i: (dist.Normal((X @ w).clamp(-1, 1), s), y),
    "log-sum-exp of a row": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.logsumexp(X * w, 1), s), y),
    "quadratic form": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.einsum("ni,ij,nj->n", X, torch.outer(w, w), X), s),
        y,
    ),
    "polynomial": lambda X, y, g, lab, w, t, s, i: (dist.Normal(torch.stack([y**k for k in range(3)], 1) @ w, s), y),
    "spline": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.clamp(X[:, :1] - torch.tensor([-1.0, 0.0, 1.0]), min=0) @ w, s),
        y,
    ),
    "binomial": lambda X, y, g, lab, w, t, s, i: (dist.Binomial(10, logits=X @ w), g),
    "Weibull": lambda X, y, g, lab, w, t, s, i: (dist.Weibull(torch.exp(X @ w), 1 + s), torch.exp(y)),
    "Dirichlet-multinomial": lambda X, y, g, lab, w, t, s, i: (
        dist.DirichletMultinomial(torch.exp(X * w), 6),
        torch.tensor([3.0, 2.0, 1.0]).expand(X.shape),
    ),
    "multivariate normal by row": lambda X, y, g, lab, w, t, s, i: (
        dist.MultivariateNormal(X * w, scale_tril=torch.ones(3, 3).tril()),
        X,
    ),
    "convolved rows": lambda X, y, g, lab, w, t, s, i: (dist.Normal(convolved_rows(X, w), s), y),
    "batch norm by given statistics": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(F.batch_norm(X, torch.zeros(3), torch.ones(3), w).sum(-1), s),
        y,
    ),
    "distances to centres": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(torch.cdist(X, torch.eye(3)) @ w, s),
        y,
    ),
    "solved by row": lambda X, y, g, lab, w, t, s, i: (
        dist.Normal(
            torch.linalg.solve(torch.eye(3) + X[:, :, None] * X[:, None, :], w.expand(X.shape)[..., None])[:, 0, 0], s
        ),
        y,
    ),
}
