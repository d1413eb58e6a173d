"""A split proved, or refuted, from a Pyro model's tensor operations.

Models that mix rows and their honest twins are those of :mod:`tests.row_models_pyro`. The first are refused where what
mixes rows rests on parameters, and otherwise it is held; all of the second are proved with nothing held. What is proved
adds up to the host's potential at random points.
"""

import logging
import re
import time

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC
from pyro.infer.autoguide.initialization import init_to_uniform
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from pyro_split import ModelNotSplittableError, PenaltyMH, SymmetricSplitHMC, priors, split_model
from pyro_split.models.networks import cnn, random_module
from pyro_split.potential.flat_program import FlatProgram
from pyro_split.splitting.model_split import ModelSplit
from pyro_split.splitting.row_independence import prove
from split_common.row_independence import NOT_PROVED, PROVED
from tests import models
from tests.backends import PyroBackend
from tests.row_models_pyro import HONEST, MIXING, draw_data, model_of
from tests.test_splitting import needs_plate

SUBSETS = 4


def data():
    return draw_data(np.random.default_rng(0))


def find(model, args, num_subsets=SUBSETS, plate=None, jit_compile=False):
    options = {"data_axes": None, "subset_order": "sequential", "init_strategy": init_to_uniform, "plate": plate}
    return ModelSplit.find(model, args, {}, num_subsets=num_subsets, jit_compile=jit_compile, **options)


def verdict(model, args, **options):
    return find(model, args, **options).verdict


def observed(mean):
    """A model of the response alone, with a mean of the response, a parameter and the plate's indices."""

    def model(y):
        b = pyro.sample("b", dist.Normal(torch.tensor(0.0), 1.0))
        with pyro.plate("data", y.shape[0]) as i:
            pyro.sample("y", dist.Normal(mean(y, b, i), 1.0), obs=y)

    return model


# what mixes rows in these rests on parameters, or it is not known what does, or rows are numbered as they are cut
REFUSED = [
    "summed up",
    "softmax over rows",
    "by the norm",
    "plus a count",
    "batch norm",
    "Gram matrix",
    "filtered",
    "convolved",
]
READ = [  # in Python, from the data: read from all rows
    "branch on the sum",
    "counted",
    "by a mean that is taken out",
    "whether a group occurs",
    "the largest, found by Python",
]
HELD = [name for name in MIXING if name not in (*REFUSED, *READ)]


def assert_equal_to_the_host(model, num_subsets, jit_compile=False):
    """Energies and gradients at five random points."""
    potential = split_model(model, data(), num_subsets=num_subsets, jit_compile=jit_compile)
    rng = np.random.default_rng(1)
    for _ in range(5):
        z = {"w": rng.normal(size=3), "t": rng.normal(size=4), "s": rng.normal()}
        z = {name: torch.as_tensor(u) for name, u in z.items()}
        host, host_grad = PyroBackend().host_potential_and_grad(model, data(), {}, z)
        energy, grad = potential.potential_and_grad(z)
        np.testing.assert_allclose(float(energy), float(host), rtol=1e-9)
        for name in z:
            np.testing.assert_allclose(grad[name], host_grad[name], rtol=1e-7, atol=1e-7)


@pytest.mark.contract
@pytest.mark.parametrize("num_subsets", [pytest.param(4, marks=pytest.mark.slow), 3])  # 3 leaves sizes that differ
@pytest.mark.parametrize("row", HONEST.values(), ids=HONEST.keys())
def test_honest_models_are_proved(row, num_subsets):
    model = model_of(row)
    found = verdict(model, data(), num_subsets=num_subsets)
    assert found.kind == PROVED
    assert not found.held
    assert_equal_to_the_host(model, num_subsets)


@pytest.mark.contract
@pytest.mark.parametrize("jit_compile", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", HELD)
def test_what_mixes_rows_and_rests_on_no_parameter_is_held(name, jit_compile):
    model = model_of(MIXING[name])
    found = verdict(model, data(), num_subsets=3)
    assert found.kind == PROVED
    assert found.held
    assert_equal_to_the_host(model, 3, jit_compile)


@pytest.mark.contract
@pytest.mark.parametrize("name", READ)
def test_what_is_read_from_data_is_read_from_all_rows(name):
    model = model_of(MIXING[name])
    assert verdict(model, data(), num_subsets=3).kind == PROVED
    assert_equal_to_the_host(model, 3)


@pytest.mark.contract
@pytest.mark.parametrize("name", REFUSED)
def test_mixing_models_are_refused(name):
    with pytest.raises(ModelNotSplittableError, match="does not divide over its data plate"):
        split_model(model_of(MIXING[name]), data(), num_subsets=SUBSETS, jit_compile=False)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("softmax over rows", r"row_models_pyro.py:\d+: softmax over the data rows"),
        ("by the norm", r"row_models_pyro.py:\d+: norm over the data rows"),
        ("plus a count", r"the number of a row as it is cut"),
        ("batch norm", r"batch normalisation over the data rows"),
    ],
)
def test_refusals_name_operation_and_line(name, message, jit_compile):
    with pytest.raises(ModelNotSplittableError, match=message):
        split_model(model_of(MIXING[name]), data(), num_subsets=SUBSETS, jit_compile=jit_compile)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("divided by the largest of a column", r"row_models_pyro.py:\d+: max over the data rows"),
        ("by the number of rows", r"a number that depends on how many rows there are, 20 or 5"),
        ("branch on the number of rows", r"a number that depends on how many rows there are, 1.0 or 5.0"),
        ("sums of groups", r"rows put together by an index"),
        ("lagged", r"slice along the data rows"),
        ("in place", r"sum over the data rows"),
    ],
)
def test_the_verdict_names_what_is_held(name, message):
    assert re.search(message, str(verdict(model_of(MIXING[name]), data())))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("filtered", r"row_models_pyro.py:\d+: the program is another one on fewer rows"),
    ],
)
def test_what_is_not_proved_has_a_reason(name, reason, caplog):
    with caplog.at_level(logging.INFO, "pyro_split.splitting.model_split"), pytest.raises(ModelNotSplittableError):
        split_model(model_of(MIXING[name]), data(), num_subsets=SUBSETS, jit_compile=False)
    assert re.match(f"split by slice not proved: {reason}", caplog.messages[0])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_branch_that_rows_take_together_is_compared_where_some_subsets_take_it(seed):
    """Near the start none takes it, far away all do, and energies agree."""

    def model(X, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        mu = X @ w
        if (mu.abs() > 8).any():
            mu = 0.9 * mu.clamp(-8, 8)
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    rng = np.random.default_rng(seed)
    rows = torch.as_tensor(rng.normal(size=(60, 3))), torch.as_tensor(rng.normal(size=60))
    with pytest.raises(ModelNotSplittableError, match="does not divide over its data plate"):
        split_model(model, rows, num_subsets=7, jit_compile=False)


def test_a_maximum_that_a_sample_of_the_rows_does_not_hold():
    """S2 of the field tests: a numerical check on a sample of the rows passes this with each subset's own maximum."""

    def model(x):
        b = pyro.sample("b", dist.Normal(torch.tensor(0.0), 1.0))
        with pyro.plate("data", x.shape[0]):
            pyro.sample("y", dist.Normal(b, 1.0), obs=x / x.max())

    x = torch.ones(20_000)
    x[777] = 1e4
    potential, z = split_model(model, (x,), num_subsets=20), {"b": torch.tensor(0.3)}
    host = PyroBackend().host_potential_and_grad(model, (x,), {}, z)[0]
    np.testing.assert_allclose(float(potential.potential(z)), float(host), rtol=1e-9)


@pytest.mark.parametrize("kernel", [SymmetricSplitHMC, PenaltyMH])
def test_what_is_held_follows_the_data(kernel):
    """Draws of a mean of values that are divided by the largest; from one kernel on two data sets."""

    def model(y):
        b = pyro.sample("b", dist.Normal(torch.tensor(0.0), 10.0))
        with pyro.plate("data", y.shape[0]):
            pyro.sample("y", dist.Normal(b, 1.0), obs=y / y.max())

    y = data()[1].abs()
    options = {"batch_size": 2, "num_batches": 5} if kernel is PenaltyMH else {"num_subsets": SUBSETS}
    kernel = kernel(model, **options)
    pyro.set_rng_seed(0)
    for values in (y, y + 20.0):
        mcmc = MCMC(kernel, warmup_steps=200, num_samples=600, disable_progbar=True)
        mcmc.run(values)
        # standard error of the mean: posterior sd 1/sqrt(20) over the root of at least 60 effective draws
        assert abs(mcmc.get_samples()["b"].mean() - (values / values.max()).mean()) < 4.5 * 0.224 / np.sqrt(60)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("build", models.SPLITTABLE, ids=lambda build: build.__name__)
def test_models_that_divide_are_proved(build, jit_compile):
    model, args = build(PyroBackend())
    assert verdict(model, args, plate=needs_plate(build), jit_compile=jit_compile).kind == PROVED


def test_the_verdict_is_logged(caplog):
    with caplog.at_level(logging.INFO, "pyro_split.splitting.model_split"):
        split_model(observed(lambda y, b, i: b), (torch.zeros(12),), num_subsets=SUBSETS)
    assert caplog.messages == ["split by slice proved"]


@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_support_that_rests_on_data_is_that_of_all_rows(jit_compile):
    """The start is found on a subset's rows; the largest of all of them is not there."""

    def model(y):
        a = pyro.sample("a", dist.Uniform(0.0, y.max()))
        with pyro.plate("data", y.shape[0]):
            pyro.sample("y", dist.Normal(a, 1.0), obs=y)

    y = torch.tensor([1.0, 2.0, 0.5, 1.5, 7.0, 1.0, 2.0, 3.0])
    split = find(model, (y,), jit_compile=jit_compile)
    assert split.verdict.kind == PROVED
    assert float(split.transforms["a"].inv(torch.tensor(30.0))) == pytest.approx(7.0)


def test_a_term_outside_the_plate_that_rests_on_data_is_computed_on_all_rows():
    """Replayed, the prior is computed on one row where it may be; a comparison of numbers does not see this term."""

    def model(y, x):
        b = pyro.sample("b", dist.Normal(torch.tensor(0.0), 1.0))
        pyro.factor("penalty", -1e-12 * b**2 * x.sum())
        with pyro.plate("data", y.shape[0]):
            pyro.sample("y", dist.Normal(b, 1.0), obs=y)

    split = find(model, (torch.zeros(12), torch.eye(12)[7]), jit_compile=False)
    assert split._prior_rows is None
    assert split.verdict.kind == PROVED


def test_indices_of_the_plate_look_up_what_the_model_holds():
    """Rows of a table in a closure, centred outside the rows that are looked up, or among them."""
    X, y = torch.randn(12, 3), torch.randn(12)

    def model_with(centre):
        def model():
            b = pyro.sample("b", dist.Normal(torch.zeros(3), 1.0).to_event(1))
            with pyro.plate("data", 12) as i:
                pyro.sample("y", dist.Normal((X[i] - centre(i)) @ b, 1.0), obs=y[i])

        return model

    outside = find(model_with(lambda i: X.mean(0)), ())
    assert (outside.mode, outside.verdict.kind, outside.verdict.held) == ("index", PROVED, ())
    among = find(model_with(lambda i: X[i].mean(0)), ()).verdict
    assert among.kind == PROVED
    assert re.search("mean over the data rows", str(among.held))


def test_networks_are_proved_and_statistics_of_their_rows_are_not():
    def model_with(network):
        def model(X, y):
            net = random_module("net", network, priors.normal)
            with pyro.plate("data", X.shape[0]):
                pyro.sample("y", dist.Categorical(logits=net(X)), obs=y)

        return model

    args = torch.randn(12, 1, 12, 12), torch.randint(0, 10, (12,))
    network = cnn((1, 12, 12), channels=(2,), hidden=(5,))
    assert verdict(model_with(network), args).kind == PROVED
    normalised = torch.nn.Sequential(torch.nn.BatchNorm2d(1), network)
    assert verdict(model_with(normalised.eval()), args).kind == PROVED
    with pytest.raises(ModelNotSplittableError):
        find(model_with(normalised.train()), args)


CELL = torch.nn.GRUCell(1, 2).double().requires_grad_(False)


def far_away(w):
    """Zero where a sampler starts."""
    return torch.relu(w[0] - 6)


def chosen_and_written(X, w):
    h = X @ w
    h[h > 0] *= 2.0
    return h


def regression(row):
    def model(X, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Normal(row(X, y, w), 1.0), obs=y)

    return model


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            lambda X, y, w: torch.as_strided(X * w[1], (len(X),), (3,)) + far_away(w) * torch.softmax(X @ w, 0),
            "softmax",
        ),
        (
            lambda X, y, w: X @ w + far_away(w) * (X @ w)[y > 0].mean(),
            r"must equal .*_pyro.py:\d+: an array whose length",
        ),
    ],
    ids=["beside what is not followed", "not recorded"],
)
@pytest.mark.filterwarnings("ignore:the model could not be traced")
def test_what_mixes_rows_far_from_the_start_is_refused(row, message, jit_compile):
    with pytest.raises(ModelNotSplittableError, match=message):
        split_model(regression(row), data()[:2], num_subsets=3, jit_compile=jit_compile)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize(
    "row",
    [lambda X, y, w: chosen_and_written(X, w), lambda X, y, w: X @ w * (1 + w[0].item() ** 2)],
    ids=["as many entries as a mask chooses", "a number of a parameter"],
)
@pytest.mark.filterwarnings("ignore:the model could not be traced")
def test_numbers_that_rest_on_values_are_those_of_each_point(row, jit_compile):
    potential = split_model(regression(row), data()[:2], num_subsets=3, jit_compile=jit_compile)
    for z in ({"w": torch.tensor([0.1, 2.0, -1.0])}, {"w": torch.tensor([-3.0, 0.4, 1.5])}):
        host = PyroBackend().host_potential_and_grad(regression(row), data()[:2], {}, z)[0]
        np.testing.assert_allclose(float(potential.potential_and_grad(z)[0]), float(host), rtol=1e-9)


def numbers_of(X):
    return torch.arange(len(X))


def with_a_zero(X):
    numbers = numbers_of(X)[:, None].repeat(1, 2)
    numbers[:, torch.tensor([0])] = 0
    return numbers[:, 0]


def with_a_label(X):
    numbers = numbers_of(X)[:, None].repeat(1, 3)
    numbers[numbers_of(X), (X[:, 0] > 0).long()] = 0
    return numbers[:, 0]


def as_truths(X):
    truths = torch.zeros(len(X), dtype=torch.bool)
    truths[:] = numbers_of(X)
    return truths.long()


@pytest.mark.parametrize(
    "chosen",
    [
        with_a_zero,
        with_a_label,
        as_truths,
        lambda X: numbers_of(X).bool().long(),
        lambda X: F.pad(numbers_of(X)[:, None], (1, 0))[:, 0],
        lambda X: torch.diag_embed(numbers_of(X)[:, None].repeat(1, 2))[:, 0, 1],
    ],
    ids=["zero", "label", "copied truths", "truths", "padded", "on a diagonal"],
)
def test_numbers_of_rows_that_were_changed_are_other_numbers(chosen):
    """Looked up by them, rows are others'; the start, where nothing is looked up, does not show it."""

    def row(X, y, w):
        h = X @ w
        return h + torch.where(w[0] > 6, h[chosen(X)], 0.0)

    with pytest.raises(ModelNotSplittableError):
        split_model(regression(row), data()[:2], num_subsets=3)


@pytest.mark.parametrize(
    "placed",
    [
        lambda y, order: y[order],
        lambda y, order: torch.zeros_like(y).scatter(0, order, y),
        lambda y, order: torch.zeros_like(y).scatter_add_(0, order, y),
        lambda y, order: torch.zeros_like(y).index_add(0, order, y),
        lambda y, order: y.gather(0, order),
    ],
    ids=["looked up", "scattered", "added", "added by index", "gathered"],
)
def test_an_order_of_all_rows_is_held(placed):
    """On a subset's rows there is no row of many of its numbers, so that the start is found on all rows."""
    y = torch.as_tensor(np.random.default_rng(0).normal(size=20))

    def model(y, order):
        b = pyro.sample("b", dist.Normal(torch.tensor(0.0), 1.0))
        with pyro.plate("data", y.shape[0]):
            pyro.sample("y", dist.Normal(b * placed(y, order), 1.0), obs=y)

    args = y, torch.arange(20).flip(0)
    assert verdict(model, args, num_subsets=3).held
    host, _ = PyroBackend().host_potential_and_grad(model, args, {}, {"b": torch.tensor(0.7)})
    energy, _ = split_model(model, args, num_subsets=3).potential_and_grad({"b": torch.tensor(0.7)})
    np.testing.assert_allclose(float(energy), float(host), rtol=1e-6)


@pytest.mark.parametrize("num_subsets", [1, 3])
@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize(
    "read",
    [
        lambda y, w: (y.max() if w.sum() > 0 else y.min()).item(),
        lambda y, w: [y.max(), y.min(), y.mean()][w.argmax()].item(),
        lambda y, w: y.sort()[0][w[w > 0].numel() * 2].item(),
    ],
    ids=["by a truth", "by an index", "by a length"],
)
@pytest.mark.filterwarnings("ignore:the model could not be traced")
def test_what_parameters_choose_to_read_is_read_at_each_point(read, num_subsets, jit_compile):
    """By the host's potential with one subset, or refused with more."""
    model = regression(lambda X, y, w: X @ w + read(y, w))
    try:
        potential = split_model(model, data()[:2], num_subsets=num_subsets, jit_compile=jit_compile)
    except ModelNotSplittableError:
        assert num_subsets > 1
        return
    for z in ({"w": torch.tensor([0.1, 2.0, -1.0])}, {"w": torch.tensor([-3.0, -0.4, -1.5])}):
        host = PyroBackend().host_potential_and_grad(model, data()[:2], {}, z)[0]
        np.testing.assert_allclose(float(potential.potential_and_grad(z)[0]), float(host), rtol=1e-9)


@pytest.mark.parametrize("num_subsets", [1, 3])
@pytest.mark.parametrize(
    "row",
    [
        lambda X, y, w: X @ w + torch.linspace(0, 1, 6, dtype=X.dtype).exp().unsafe_chunk(2)[0].add_(w).sum(),
        lambda X, y, w: CELL((X * w)[:, :1], torch.zeros(len(X), 2, dtype=X.dtype)).sum(1),
    ],
    ids=["a constant written over", "a recurrent cell"],
)
def test_potentials_are_the_same_at_every_call(row, num_subsets):
    """PyTorch's JIT would keep what such operations wrote over in the call before."""
    model, z = regression(row), {"w": torch.tensor([0.1, 2.0, -1.0])}
    potential = split_model(model, data()[:2], num_subsets=num_subsets)
    host = PyroBackend().host_potential_and_grad(model, data()[:2], {}, z)[0]
    for _ in range(4):
        np.testing.assert_allclose(float(potential.potential_and_grad(z)[0]), float(host), rtol=1e-9)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize(
    ("row", "what"),
    [
        (lambda X, y, w: X @ w + 1e-3 * torch.randn(()), r"random numbers \(randn\)"),
        (lambda X, y, w: X[torch.randperm(len(X))] @ w, r"random numbers \(randperm\)"),
        (lambda X, y, w: F.dropout(X) @ w, r"random numbers \("),
        (lambda X, y, w: X @ w + np.random.rand(), "a number that is another one in each run"),
        (lambda X, y, w: X @ w + torch.tensor(np.random.rand()), "a number that is another one in each run"),
    ],
    ids=["randn", "randperm", "dropout", "NumPy", "NumPy, as a tensor"],
)
@pytest.mark.filterwarnings("ignore:the model could not be traced")
def test_a_model_that_is_another_one_in_each_run_is_refused(row, what, jit_compile):
    message = rf"must be a function of its parameters .*draw random numbers outside.*_pyro.py:\d+: {what}"
    with pytest.raises(ModelNotSplittableError, match=message):
        split_model(regression(row), data()[:2], num_subsets=3, jit_compile=jit_compile)


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.filterwarnings("ignore:the model could not be traced")
def test_random_numbers_of_a_fixed_seed_are_those_of_the_host(jit_compile):
    def row(X, y, w):
        return torch.cos(X @ torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=X.dtype)) @ w

    potential, z = (
        split_model(regression(row), data()[:2], num_subsets=3, jit_compile=jit_compile),
        {"w": torch.ones(3)},
    )
    host = PyroBackend().host_potential_and_grad(regression(row), data()[:2], {}, z)[0]
    for _ in range(2):
        np.testing.assert_allclose(float(potential.potential_and_grad(z)[0]), float(host), rtol=1e-9)


def test_the_line_that_is_named_is_the_users():
    """Pyro scales log-probabilities after the model has run."""

    def model(X, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0]), pyro.poutine.scale(scale=10 / len(y)):
            pyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)

    [held] = verdict(model, data()[:2]).held
    assert held.startswith("a number that depends on how many rows there are")


@pytest.mark.parametrize("scale", [lambda y: y.abs(), lambda y: torch.tensor(0.3)], ids=["of each row", "of all"])
def test_weights_inside_the_plate_are_the_rows_own(scale):
    """Pyro multiplies them by N/n for n of N rows, which is no number of the model's."""

    def model(X, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0]), pyro.poutine.scale(scale=scale(y)):
            pyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)

    found = verdict(model, data()[:2])
    assert (found.kind, list(found.held)) == (PROVED, [])
    potential, z = split_model(model, data()[:2], num_subsets=3, jit_compile=False), {"w": torch.ones(3)}
    host = PyroBackend().host_potential_and_grad(model, data()[:2], {}, z)[0]
    np.testing.assert_allclose(float(potential.potential_and_grad(z)[0]), float(host), rtol=1e-12)


def test_what_a_network_notes_of_a_run_is_not_what_it_computes():
    """Batch normalisation counts its batches in place."""
    network = torch.nn.BatchNorm1d(3).double()
    with pytest.raises(ModelNotSplittableError, match="batch normalisation over the data rows"):
        split_model(regression(lambda X, y, w: network(X * w).sum(1)), data()[:2], num_subsets=3)


def test_what_a_model_keeps_of_its_first_run_is_that_of_all_rows():
    def keeping():
        kept = {}

        def row(X, y, w):
            kept.setdefault("mean", X.mean(0))
            return (X - kept["mean"]) @ w

        return regression(row)

    potential, z = split_model(keeping(), data()[:2], num_subsets=3), {"w": torch.ones(3)}
    host = PyroBackend().host_potential_and_grad(keeping(), data()[:2], {}, z)[0]
    np.testing.assert_allclose(float(potential.potential_and_grad(z)[0]), float(host), rtol=1e-9)


def test_rows_that_a_model_chooses_itself_are_refused():
    def model(X, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0], subsample=torch.arange(5)) as i:
            pyro.sample("y", dist.Normal(X[i] @ w, 1.0), obs=y[i])

    with pytest.raises(ModelNotSplittableError, match="must take all of its rows, got .* with 5 of them"):
        split_model(model, data()[:2], num_subsets=3)
    whole, z = split_model(model, data()[:2], num_subsets=1), {"w": torch.ones(3)}
    host = PyroBackend().host_potential_and_grad(model, data()[:2], {}, z)[0]
    np.testing.assert_allclose(float(whole.potential(z)), float(host), rtol=1e-9)


def test_rows_that_a_model_takes_several_times_are_refused():
    def model(X, y, chosen):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0], subsample=chosen) as i:
            pyro.sample("y", dist.Normal(X[i] @ w, 1.0), obs=y[i])

    (X, y), z = data()[:2], {"w": torch.ones(3)}
    permuted, several = torch.arange(len(y)).flip(0), torch.arange(len(y)) // 2
    with pytest.raises(ModelNotSplittableError, match="must take each of its rows once"):
        split_model(model, (X, y, several), num_subsets=3)
    for chosen, num_subsets in ((permuted, 3), (several, 1)):
        found = split_model(model, (X, y, chosen), num_subsets=num_subsets).potential(z)
        host = PyroBackend().host_potential_and_grad(model, (X, y, chosen), {}, z)[0]
        np.testing.assert_allclose(float(found), float(host), rtol=1e-9)
    for chosen in (permuted, torch.arange(len(y))):
        potential = split_model(model, (X, y, chosen), num_subsets=3)
        of_rows = potential.pointwise_log_likelihood(z, torch.arange(len(y)))
        of_drawn = potential.pointwise_log_likelihood(z, torch.tensor([3, 3, 0]))  # with replacement
        np.testing.assert_allclose(of_drawn.numpy(), of_rows[[3, 3, 0]].numpy(), rtol=1e-9)


def test_values_given_to_a_plate_as_its_rows_are_refused():
    """The plate yields them on the host, so that they are no rows to choose."""

    def model(y):
        mu = pyro.sample("mu", dist.Normal(torch.tensor(0.0), 1.0))
        with pyro.plate("data", len(y), subsample=y) as values:
            pyro.sample("y", dist.Normal(mu, 1.0), obs=values)

    args, z = (torch.randn(12),), {"mu": torch.tensor(0.3)}
    with pytest.raises(ModelNotSplittableError, match="used for more than to look up"):
        split_model(model, args, num_subsets=3)
    host = PyroBackend().host_potential_and_grad(model, args, {}, z)[0]
    np.testing.assert_allclose(float(split_model(model, args, num_subsets=1).potential(z)), float(host), rtol=1e-9)


def test_what_a_model_asks_of_parameters_is_not_proved():
    def model(y):
        b = pyro.sample("b", dist.Normal(torch.tensor(0.0), 1.0))
        if torch.isnan(b * y).any():
            raise ValueError("not a number")
        with pyro.plate("data", y.shape[0]):
            pyro.sample("y", dist.Normal(b, 1.0), obs=y)

    found = verdict(model, (torch.zeros(12),))
    assert found.kind == NOT_PROVED
    assert re.match(r"test_row_independence_pyro.py:\d+: a number taken out of a tensor", found.why)


def test_what_is_written_over_in_passing_may_be_given():
    """Cosine similarity bounds norms in place: those before, given or asked for, stay what they are."""
    X = torch.randn(5, 3)
    program = FlatProgram(lambda X: [F.cosine_similarity(0.01 * X, X, dim=1, eps=0.5)], [X])
    places = [(step.number, 0) for step in program.steps]
    assert any(step.overload._schema.is_mutable for step in program.steps)
    results = dict(zip(places, program.results(places, [X]), strict=True))
    copies = {place: x.clone() for place, x in results.items()}
    for step in program.steps:
        if step.name == "clone":
            torch.testing.assert_close(results[step.number, 0], results[step.number - 1, 0])
    for place in places:
        torch.testing.assert_close(program.evaluate([X], {place: results[place]}), program.evaluate([X]))
    torch.testing.assert_close(results, copies)


def test_what_is_written_over_in_passing_has_derivatives():
    """A quantile is put together in place; a program is run inside derivatives along a direction."""
    X, w = torch.randn(5, 3), torch.ones(3)
    program = FlatProgram(lambda w, X: [(X * w).quantile(0.3, dim=1)], [w, X])
    found, expected = (
        torch.func.jvp(function, (w,), (w,))[1]
        for function in (lambda w: program.evaluate([w, X])[0], lambda w: (X * w).quantile(0.3, dim=1))
    )
    torch.testing.assert_close(found, expected)


def test_a_program_is_listed_unseen_by_who_traces():
    """Else a check of a matrix without values would be among the operations that are run."""

    def function(x):
        return FlatProgram(lambda x: [torch.linalg.inv(x)], [x]) and 2 * x

    graph = make_fx(function, tracing_mode="fake")(torch.eye(3)).graph
    assert [node.name for node in graph.nodes if node.op == "call_function"] == ["mul"]


def test_a_proof_looks_at_shapes_alone():
    def model(X, y):
        b = pyro.sample("b", dist.Normal(torch.zeros(50), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Bernoulli(logits=X @ b), obs=y)

    num_rows = 10**6
    args = torch.zeros(1, 1).expand(num_rows, 50), torch.zeros(1).expand(num_rows)
    split = find(model, args, num_subsets=10**4)
    started = time.perf_counter()
    assert prove(split._density(args, {}), args, {"b": torch.zeros(50)}, 100).verdict.kind == PROVED
    assert time.perf_counter() - started < 2
