"""Rules of the proof, operation by operation: what mixes rows is never proved, what stays within a row is.

The predictors are as many as there are rows, so that only the meaning of an axis tells it from another. What an
operation makes of the data is added to a mean times 1e-9: a comparison of numbers does not see it. A value that mixes
rows may be held, since it rests on no parameter here; then the split is not one by the rules alone.
"""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.nn import functional as F

from pyro_split import ModelNotSplittableError
from split_common.row_independence import PROVED
from tests.test_row_independence_pyro import verdict

NUM_ROWS = 20
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=50)


def table():
    return torch.as_tensor(TABLE)


def places():
    return torch.tensor([0, 1])


def within(y):
    """Zeros, one for each row, to write in."""
    return torch.zeros(len(y))


def written(x, *place_and_value):
    x.__setitem__(*place_and_value)
    return x


class Doubled(torch.autograd.Function):
    """An operation with a derivative of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class Summed(torch.autograd.Function):
    """The same, which mixes rows."""

    @staticmethod
    def forward(ctx, x):
        return x.sum(0).expand(x.shape)

    @staticmethod
    def backward(ctx, grad):
        return grad.sum(0).expand(grad.shape)


NETWORKS = {name: getattr(torch.nn, name)(1, 3, batch_first=True).double() for name in ("LSTM", "GRU", "RNN")}


def states(name, sequences):
    """Outputs of a recurrent network for each sequence of numbers."""
    return NETWORKS[name](sequences[..., None])[0]


def in_parts(X):
    """One part of a tensor written over, and the other read."""
    left, right = (2 * X).chunk(2, 1)
    left.mul_(2.0)
    return left.sum(1) + right.sum(1)


def own_matrix(X):
    """A positive definite matrix for each row."""
    return torch.eye(3) + X[:, :3, None] * X[:, None, :3]


def data():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=NUM_ROWS), rng.normal(size=(NUM_ROWS, NUM_ROWS)), rng.integers(0, 4, NUM_ROWS)
    return tuple(torch.as_tensor(x) for x in columns)


def is_proved_by_rules(of_rows):
    def model(y, X, g):
        b = pyro.sample("b", dist.Normal(torch.tensor(0.0), 1.0))
        u = pyro.sample("u", dist.Normal(torch.zeros(NUM_ROWS), 1.0).to_event(1))
        with pyro.plate("data", y.shape[0]) as i:
            value = 1e-9 * of_rows(y, X, g, i, u)
            pyro.sample("y", dist.Normal(b + value.reshape(len(y), -1).sum(1), 1.0), obs=y)

    try:
        found = verdict(model, data())
        return found.kind == PROVED and not found.held
    except ModelNotSplittableError:
        return False


MIXING = {
    "latent vector": lambda y, X, g, i, u: u[: len(y)],
    "held vector": lambda y, X, g, i, u: table()[: len(y)],
    "held vector by number": lambda y, X, g, i, u: table()[i],
    "held vector by the next number": lambda y, X, g, i, u: table()[i + 1],
    "held vector as an embedding": lambda y, X, g, i, u: F.embedding(torch.arange(len(y)), table()[:, None]),
    "sum": lambda y, X, g, i, u: X.sum(0)[:1] + 0 * y,
    "transposed": lambda y, X, g, i, u: X.t()[: len(y)].sum(1),
    "viewed as one row": lambda y, X, g, i, u: y.view(1, -1).sum(1) + 0 * y,
    "viewed in groups": lambda y, X, g, i, u: X.reshape(20, -1).sum(1)[0] + 0 * y,
    "strided": lambda y, X, g, i, u: y.as_strided((len(y),), (0,)),
    "taken": lambda y, X, g, i, u: torch.take(y, g),
    "differences": lambda y, X, g, i, u: torch.diff(y, prepend=y[:1]),
    "triangle": lambda y, X, g, i, u: torch.tril(torch.ones(len(y), len(y))) @ y,
    "list of places": lambda y, X, g, i, u: y[list(reversed(range(len(y))))],
    "counted outside": lambda y, X, g, i, u: y.new_tensor(range(len(y))),
    "random": lambda y, X, g, i, u: torch.rand_like(y),
    "dropout": lambda y, X, g, i, u: F.dropout(y, 0.5, True),
    "numbers reversed": lambda y, X, g, i, u: y[i.flip(0)],
    "twice as many numbers": lambda y, X, g, i, u: y[torch.arange(2 * len(y))[::2] // 2],
    "running sum of ones": lambda y, X, g, i, u: torch.ones(len(y)).cumsum(0),
    "order of ones": lambda y, X, g, i, u: torch.ones(len(y)).argsort(),
    "largest of ones": lambda y, X, g, i, u: torch.ones(len(y)).max(0)[1] + 0 * y,
    "softmax of ones": lambda y, X, g, i, u: torch.ones(len(y)).softmax(0),
    "product of ones": lambda y, X, g, i, u: torch.ones(len(y), len(y)) @ torch.ones(len(y)),
    "diagonal of ones": lambda y, X, g, i, u: torch.diag_embed(torch.ones(len(y)))[0],
    "first written": lambda y, X, g, i, u: written(within(y), 0, 1.0),
    "first two written": lambda y, X, g, i, u: written(within(y), slice(2), 1.0),
    "every other written": lambda y, X, g, i, u: written(within(y), slice(None, None, 2), 1.0),
    "places written": lambda y, X, g, i, u: written(within(y), places(), 1.0),
    "places filled": lambda y, X, g, i, u: within(y).index_fill(0, places(), 1.0),
    "places copied": lambda y, X, g, i, u: within(y).index_copy(0, places(), torch.ones(2)),
    "places scattered": lambda y, X, g, i, u: within(y).scatter(0, places(), 1.0),
    "groups scattered": lambda y, X, g, i, u: within(y).scatter(0, g, 1.0),
    "a view written": lambda y, X, g, i, u: written(X.clone().t(), 0, X.sum()).t()[:, 0],
    "data written": lambda y, X, g, i, u: written(X, (slice(None), 0), X.sum())[:, 0],
    "repeated": lambda y, X, g, i, u: y.repeat(2)[1 : len(y) + 1],
    "each repeated": lambda y, X, g, i, u: y.repeat_interleave(2)[: len(y)],
    "three at most": lambda y, X, g, i, u: y[: min(len(y), 3)].sum() + 0 * y,
    "normalised": lambda y, X, g, i, u: F.normalize(X, dim=0),
    "a sum in Python": lambda y, X, g, i, u: sum(y) + 0 * y,
    "chunks": lambda y, X, g, i, u: torch.cat(torch.chunk(y, 2)[::-1]),
    "single rows": lambda y, X, g, i, u: torch.cat(list(torch.split(y, 1))[::-1]),
    "interleaved": lambda y, X, g, i, u: torch.stack([y, 2 * y]).t().reshape(-1)[: len(y)],
    "windows": lambda y, X, g, i, u: y.unfold(0, 2, 1).sum() + 0 * y,
    "group norm": lambda y, X, g, i, u: F.group_norm(y[None, :, None], 1)[0, :, 0],
    "layer norm": lambda y, X, g, i, u: F.layer_norm(X, X.shape),
    "instance norm": lambda y, X, g, i, u: F.instance_norm(y[None, None, :])[0, 0],
    "convolution": lambda y, X, g, i, u: F.conv1d(y[None, None], torch.ones(1, 1, 3), padding=1)[0, 0],
    "pooled": lambda y, X, g, i, u: F.max_pool1d(y[None, None], 3, 1, 1)[0, 0],
    "pooled to one": lambda y, X, g, i, u: F.adaptive_avg_pool1d(y[None, None], 1)[0, 0] + 0 * y,
    "padded": lambda y, X, g, i, u: F.pad(y, (1, 0))[:-1],
    "interpolated": lambda y, X, g, i, u: F.interpolate(y[None, None], scale_factor=2)[0, 0][: len(y)],
    "inner product": lambda y, X, g, i, u: torch.tensordot(y, y, 1) + 0 * y,
    "outer product": lambda y, X, g, i, u: torch.einsum("n,m->n", y, y),
    "attention": lambda y, X, g, i, u: F.scaled_dot_product_attention(X[None], X[None], X[None])[0],
    "solved": lambda y, X, g, i, u: torch.linalg.solve_triangular(X.T @ X, X.T, upper=False).T,
    "solved by itself": lambda y, X, g, i, u: torch.linalg.inv(X[:, : len(y)]),
    "distances": lambda y, X, g, i, u: torch.cdist(X, X).sum(1),
    "determinant": lambda y, X, g, i, u: torch.logdet(torch.eye(3) + X[:, :3].T @ X[:, :3]) + 0 * y,
    "decomposed": lambda y, X, g, i, u: torch.linalg.qr(X[:, :3])[0],
    "largest so far": lambda y, X, g, i, u: torch.cummax(y, 0)[0],
    "quantile": lambda y, X, g, i, u: y.quantile(0.3) + 0 * y,
    "some one large": lambda y, X, g, i, u: torch.where((y > 2).any(), y, 0 * y),
    "searched": lambda y, X, g, i, u: torch.searchsorted(y.sort()[0], y),
    "searched in rows": lambda y, X, g, i, u: torch.searchsorted(y, torch.zeros(1)) + 0 * y,
    "largest of groups": lambda y, X, g, i, u: torch.zeros(4).scatter_reduce(0, g, y, "amax")[g],
    "means of groups": lambda y, X, g, i, u: (F.one_hot(g, 4).double().T @ y)[g],
    "chosen": lambda y, X, g, i, u: y[y > 0].sum() + 0 * y,
    "mean loss": lambda y, X, g, i, u: F.mse_loss(y, 0 * y) + 0 * y,
    "mean cross-entropy": lambda y, X, g, i, u: F.cross_entropy(X, g) + 0 * y,
    "grid": lambda y, X, g, i, u: torch.meshgrid(y, y, indexing="ij")[0].sum(0),
    "diagonal by number": lambda y, X, g, i, u: X[i, i],
    "column by number": lambda y, X, g, i, u: X.gather(1, i[:, None]),
    "rows and columns by number": lambda y, X, g, i, u: X[i[:, None], i[None, :]],
    "number of entries": lambda y, X, g, i, u: y / X.numel(),
    "stride": lambda y, X, g, i, u: y * X[:, :2].clone().t().contiguous().stride(0),
    "shape as a tensor": lambda y, X, g, i, u: y * torch.tensor(X.shape).prod(),
    "filled": lambda y, X, g, i, u: torch.full_like(y, len(y)),
    "filled outside": lambda y, X, g, i, u: torch.as_tensor(np.full(len(y), 1 / len(y))),
    "laid out outside": lambda y, X, g, i, u: torch.as_tensor(np.linspace(0, 1, len(y))),
    "rolled flat": lambda y, X, g, i, u: torch.roll(X, 1),
    "flipped both ways": lambda y, X, g, i, u: X.flip([0, 1]),
    "one row spread": lambda y, X, g, i, u: y[:1].expand(len(y)),
    "rows spread": lambda y, X, g, i, u: y[None].expand(len(y), len(y)).sum(1),
    "row of a unit matrix": lambda y, X, g, i, u: torch.eye(len(y))[0],
    "clamped by the largest": lambda y, X, g, i, u: y.clamp(max=y.max()),
    "mixed with the next": lambda y, X, g, i, u: torch.lerp(y, y.roll(1), 0.5),
    "where a number is": lambda y, X, g, i, u: torch.where(i == 0, y, 0 * y),
    "pairs of rows": lambda y, X, g, i, u: torch.cartesian_prod(y, y)[: len(y), 0],
    "similarity": lambda y, X, g, i, u: F.cosine_similarity(y, y, dim=0) + 0 * y,
    "steps of rows rolled": lambda y, X, g, i, u: X.view(-1, 5).roll(1, 0).view(-1, 20),
    "steps of rows added up": lambda y, X, g, i, u: X.view(-1, 5).sum(0).sum() + 0 * y,
    "steps of rows laid out anew": lambda y, X, g, i, u: X.view(-1, 4, 5).transpose(0, 1).reshape(-1, 20),
    "steps beside other steps": lambda y, X, g, i, u: (
        X.view(-1, 4, 5).transpose(0, 1).reshape(-1, 5) * X.view(-1, 5)
    ).view(-1, 20),
    "recurrent along rows": lambda y, X, g, i, u: states("LSTM", y[None])[0],
    "quantiles of all": lambda y, X, g, i, u: X.quantile(torch.tensor([0.2, 0.7], dtype=X.dtype), dim=0).sum() + 0 * y,
    "derivative of its own": lambda y, X, g, i, u: Summed.apply(X),
    "covariance": lambda y, X, g, i, u: torch.cov(X.T)[0, 0] + 0 * y,
    "diagonal filled": lambda y, X, g, i, u: (X[:, : len(y)] * 2).fill_diagonal_(0.0),
    "written by the number of another row": lambda y, X, g, i, u: written(within(y), i, y.flip(0)),
    "written by number, twice": lambda y, X, g, i, u: written(X.clone(), (i, i), 1.0),
    "written by group, twice": lambda y, X, g, i, u: written(X.clone(), (g, g), 1.0),
    "mapped derivatives": lambda y, X, g, i, u: torch.func.grad(lambda x: x.softmax(0).square().sum())(y),
    "normalised in channels": lambda y, X, g, i, u: F.instance_norm(X.T[None])[0].T,
}
WITHIN = {
    "sum": lambda y, X, g, i, u: X.sum(1),
    "mean": lambda y, X, g, i, u: X.mean(-1),
    "largest": lambda y, X, g, i, u: X.amax(1) + X.max(1)[1],
    "spread": lambda y, X, g, i, u: X.std(1) + X.var(1, keepdim=True)[:, 0] + torch.var_mean(X, 1)[1],
    "norm": lambda y, X, g, i, u: torch.linalg.norm(X, dim=1) + X.norm(dim=1),
    "log-sum-exp": lambda y, X, g, i, u: X.logsumexp(1),
    "running": lambda y, X, g, i, u: X.cumsum(1) + X.cumprod(1) + X.logcumsumexp(1) + X.cummax(1)[0],
    "order": lambda y, X, g, i, u: X.sort(1)[0][:, 0] + X.topk(2, 1)[0].sum(1) + X.kthvalue(2, 1)[0],
    "median": lambda y, X, g, i, u: X.median(1)[0] + X.mode(1)[0] + X.nanmedian(1)[0],
    "moved": lambda y, X, g, i, u: X.flip(1) + X.roll(1, 1),
    "differences": lambda y, X, g, i, u: X.diff(dim=1).sum(1),
    "windows": lambda y, X, g, i, u: X.unfold(1, 3, 1).sum((1, 2)),
    "softmax": lambda y, X, g, i, u: X.softmax(1) + F.log_softmax(X, 1),
    "layer norm": lambda y, X, g, i, u: F.layer_norm(X, (NUM_ROWS,), u) + F.rms_norm(X, (NUM_ROWS,)),
    "group norm": lambda y, X, g, i, u: F.group_norm(X[:, :, None], 4)[..., 0],
    "batch norm by given statistics": lambda y, X, g, i, u: F.batch_norm(X, torch.zeros(20), torch.ones(20)),
    "convolution": lambda y, X, g, i, u: F.conv1d(X[:, None], torch.ones(2, 1, 3)),
    "convolution of images": lambda y, X, g, i, u: F.conv2d(X.view(-1, 1, 4, 5), torch.ones(2, 1, 3, 3), padding=1),
    "convolution upwards": lambda y, X, g, i, u: F.conv_transpose2d(X.view(-1, 1, 4, 5), torch.ones(1, 2, 3, 3)),
    "pooled": lambda y, X, g, i, u: F.max_pool1d(X[:, None], 2) + F.avg_pool1d(X[:, None], 2),
    "images pooled": lambda y, X, g, i, u: F.avg_pool2d(X.view(-1, 1, 4, 5), 2) + F.max_pool2d(X.view(-1, 1, 4, 5), 2),
    "pooled to one": lambda y, X, g, i, u: F.adaptive_avg_pool2d(X.view(-1, 1, 4, 5), 1),
    "padded": lambda y, X, g, i, u: F.pad(X, (1, 1)),
    "padded by reflection": lambda y, X, g, i, u: F.pad(X[:, None], (1, 1), mode="reflect"),
    "interpolated": lambda y, X, g, i, u: F.interpolate(X[:, None], scale_factor=2),
    "embedded": lambda y, X, g, i, u: F.embedding(g, table()[:, None]) + table()[g][:, None] + u[g][:, None],
    "one-hot": lambda y, X, g, i, u: F.one_hot(g, 4).double() @ u[:4],
    "gathered": lambda y, X, g, i, u: X.gather(1, g[:, None]) + torch.take_along_dim(X, g[:, None], 1),
    "gathered from a table": lambda y, X, g, i, u: table().gather(0, g),
    "scattered": lambda y, X, g, i, u: X.scatter(1, g[:, None], 1.0) + X.scatter_add(1, g[:, None], y[:, None]),
    "columns": lambda y, X, g, i, u: X.index_select(1, places()) + X[:, places()] + X[:, 1:3] + X[:, 3:4],
    "by number": lambda y, X, g, i, u: X[i][:, 0] + X[i, g] + y[torch.arange(len(y))],
    "columns added": lambda y, X, g, i, u: X.index_add(1, places(), X[:, :2]) + X.index_fill(1, places(), 0.0),
    "columns written": lambda y, X, g, i, u: written(X.clone(), (slice(None), places()), 0.0),
    "masked": lambda y, X, g, i, u: X.masked_fill(X > 0, 0.0) + written(X.clone(), X < 0, 1.0),
    "chosen": lambda y, X, g, i, u: torch.where(y > 0, y, 0.0) + y.clamp(-1, 1) + torch.maximum(y, 2 * y),
    "product": lambda y, X, g, i, u: X @ u + F.linear(X, torch.ones(3, NUM_ROWS), torch.ones(3)).sum(1),
    "product with a term": lambda y, X, g, i, u: torch.addmm(u[:3], X, torch.ones(NUM_ROWS, 3)),
    "products of batches": lambda y, X, g, i, u: torch.bmm(X[:, None], X[:, :, None])[:, 0, 0],
    "quadratic form": lambda y, X, g, i, u: torch.einsum("ni,ij,nj->n", X, torch.outer(u, u), X),
    "outer product": lambda y, X, g, i, u: torch.outer(y, u) + y[:, None] * X,
    "distances": lambda y, X, g, i, u: torch.cdist(X, torch.ones(2, NUM_ROWS)),
    "Fourier transform": lambda y, X, g, i, u: torch.fft.rfft(X).abs() + torch.fft.fft(X, dim=1).real[:, :11],
    "viewed": lambda y, X, g, i, u: X.view(-1, 4, 5).transpose(1, 2).reshape(len(y), -1) + X.flatten(1),
    "turned": lambda y, X, g, i, u: X.t().cumsum(0).t() + X.movedim(0, 1).permute(1, 0),
    "decomposed": lambda y, X, g, i, u: torch.linalg.cholesky(own_matrix(X)),
    "inverted": lambda y, X, g, i, u: torch.linalg.inv(own_matrix(X)) + torch.linalg.matrix_exp(own_matrix(X)),
    "solved": lambda y, X, g, i, u: torch.linalg.solve(own_matrix(X), X[:, :3, None]),
    "solved by a full matrix": lambda y, X, g, i, u: torch.linalg.solve(torch.outer(u, u) + torch.eye(20), X.T).T,
    "solved by one matrix": lambda y, X, g, i, u: torch.linalg.solve_triangular(torch.eye(20), X.T, upper=False).T,
    "determinant": lambda y, X, g, i, u: torch.logdet(own_matrix(X)) + torch.linalg.det(own_matrix(X)),
    "eigenvalues": lambda y, X, g, i, u: torch.linalg.eigvalsh(own_matrix(X)) + torch.linalg.svdvals(own_matrix(X)),
    "triangle": lambda y, X, g, i, u: own_matrix(X).tril() + own_matrix(X).triu(1) + torch.diag_embed(X[:, :3]),
    "diagonal": lambda y, X, g, i, u: torch.diagonal(own_matrix(X), dim1=1, dim2=2),
    "attention": lambda y, X, g, i, u: F.scaled_dot_product_attention(*[X.view(-1, 1, 4, 5)] * 3),
    "losses": lambda y, X, g, i, u: F.cross_entropy(X, g, reduction="none") + F.mse_loss(y, 2 * y, reduction="none"),
    "similarity": lambda y, X, g, i, u: F.cosine_similarity(X, 2 * X + 1, dim=1) + F.normalize(X, dim=1)[:, 0],
    "searched": lambda y, X, g, i, u: torch.bucketize(y, table()) + torch.searchsorted(table(), y),
    "joined": lambda y, X, g, i, u: torch.cat([X, X], 1).sum(1) + torch.stack([y, y], 1).sum(1),
    "parted": lambda y, X, g, i, u: X.chunk(2, 1)[0] + X.split([10, 10], 1)[1] + X[:, :10].unbind(1)[0][:, None],
    "repeated": lambda y, X, g, i, u: X.repeat(1, 2)[:, :20] + y[:, None].expand(-1, 20) + y[:, None].tile(1, 20),
    "filled": lambda y, X, g, i, u: torch.full((len(y),), 0.3) + torch.ones_like(y).mean() * y.new_zeros(len(y)),
    "ones from outside": lambda y, X, g, i, u: torch.tensor([1.0] * len(y)) + torch.as_tensor(np.ones(len(y))),
    "activations": lambda y, X, g, i, u: (
        F.gelu(y) + F.silu(y) + F.elu(y) + F.softplus(y) + F.leaky_relu(y) + F.relu6(y)
    ),
    "more activations": lambda y, X, g, i, u: F.logsigmoid(y) + F.selu(y) + F.mish(y) + F.hardswish(y),
    "special functions": lambda y, X, g, i, u: torch.lgamma(y) + torch.erf(y) + torch.digamma(y) + torch.special.i0e(y),
    "steps of rows": lambda y, X, g, i, u: (
        (X.view(-1, 4, 5) @ u[:5]).tanh() + F.layer_norm(X.view(-1, 5), (5,)).view(-1, 4, 5)[..., 0]
    ),
    "recurrent": lambda y, X, g, i, u: states("LSTM", X) + states("GRU", X) + states("RNN", X),
    "quantiles": lambda y, X, g, i, u: X.quantile(0.3, dim=1) + X.nanquantile(0.8, dim=1, keepdim=True)[:, 0],
    "derivative of its own": lambda y, X, g, i, u: Doubled.apply(X),
    "covariance of columns": lambda y, X, g, i, u: X @ torch.cov(torch.outer(u, u) + torch.eye(NUM_ROWS)),
    "diagonal filled": lambda y, X, g, i, u: X @ torch.outer(u, u).fill_diagonal_(0.0),
    "written in the own row": lambda y, X, g, i, u: written(X.clone(), (i, g), y) + written(X * 0, (i, g), 1.0),
    "written in parts": lambda y, X, g, i, u: in_parts(X),
    "mapped derivatives": lambda y, X, g, i, u: torch.vmap(torch.func.grad(lambda x: (x @ u).tanh().sigmoid()))(X),
    "mapped derivative of softmax": lambda y, X, g, i, u: torch.vmap(torch.func.grad(lambda x: x.softmax(0) @ u))(X),
    "leaky": lambda y, X, g, i, u: F.prelu(X, u[:1]),
    "each row mapped": lambda y, X, g, i, u: torch.vmap(lambda x: x.sort()[0].cumsum(0) @ u)(X),
}


@pytest.mark.contract
@pytest.mark.parametrize("of_rows", MIXING.values(), ids=MIXING.keys())
def test_what_mixes_rows_is_seen(of_rows):
    assert not is_proved_by_rules(of_rows)


@pytest.mark.contract
@pytest.mark.parametrize("of_rows", WITHIN.values(), ids=WITHIN.keys())
def test_what_stays_within_a_row_is_proved(of_rows):
    assert is_proved_by_rules(of_rows)
