"""Pyro models with what PyTorch's users write: readings by PyTorch itself, recurrent networks, caches, flows.

Each is divided and has the host's potential and gradient, or is refused in words that say why.
"""

import functools

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.distributions import transforms
from pyro.infer.reparam import LocScaleReparam
from pyro.nn import PyroModule, PyroSample
from torch.nn import functional as F

from pyro_split import ModelNotSplittableError, split_model
from tests.backends import PyroBackend

N = 23


def check_against_the_host(model, args, z, **options):
    """The host's potential and gradient, at the same point twice."""
    potential = split_model(model, args, **options)
    expected, expected_grad = PyroBackend().host_potential_and_grad(model, args, {}, z)
    for _ in range(2):
        energy, grad = potential.potential_and_grad(z)
        precision = 100 * torch.finfo(next(iter(z.values())).dtype).eps
        np.testing.assert_allclose(float(energy), float(expected), rtol=precision)
        for name in z:
            torch.testing.assert_close(grad[name], expected_grad[name], rtol=precision, atol=precision)
    return potential


def labelled(statistic):
    """A model of a statistic of the labels or the response, after an effect of the label was looked up."""

    def model(g, y):
        a = pyro.sample("a", dist.Normal(torch.zeros(4), 1.0).to_event(1))
        effect = a[g]
        s = statistic(g, y)
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(effect * s, 1.0), obs=y)

    return model


@pytest.mark.parametrize(
    "statistic",
    [
        lambda g, y: torch.full((1,), y.mean()),
        lambda g, y: torch.arange(g.max() + 1).sum(),
        lambda g, y: torch.ones(g.max() + 1).sum(),
        lambda g, y: F.one_hot(g, g.max() + 1).sum(),
        lambda g, y: F.one_hot(g).sum(),
        lambda g, y: float(len(g.unique_consecutive())),
        lambda g, y: float(f"{y.mean():.3f}"),
        lambda g, y: float(y.std()),
        lambda g, y: int(g.max()) + 1,
    ],
    ids=["full", "arange", "ones", "classes", "one hot", "runs", "text", "float", "int"],
)
def test_readings_of_data_after_a_look_up_are_those_of_all_rows(statistic):
    """PyTorch reads the number itself where it is given a tensor in place of one; a look-up chooses no shape."""
    torch.manual_seed(0)
    args = torch.arange(N) // 6, torch.randn(N)
    check_against_the_host(labelled(statistic), args, {"a": torch.tensor([0.3, -1.0, 2.0, 0.5])}, num_subsets=3)


@pytest.mark.parametrize("reads", [lambda g: int(g.max()) + 1, lambda g: g.double().amax() + 1.0])
def test_a_rare_label_counts_where_rows_have_latents(reads):
    """On any sample of the rows it is there, and on most subsets it is not."""
    torch.manual_seed(0)
    num_rows = 4000
    g = torch.where(torch.rand(num_rows) < 0.01, torch.tensor(4), torch.randint(0, 4, (num_rows,)))

    def model(g, y):
        a = pyro.sample("a", dist.Normal(torch.zeros(5), 1.0).to_event(1))
        with pyro.plate("data", len(y)):
            e = pyro.sample("e", dist.Normal(torch.tensor(0.0), 1.0))
            pyro.sample("y", dist.Normal((a[g] + e) / reads(g), 1.0), obs=y)

    z = {"a": torch.ones(5), "e": torch.ones(num_rows)}
    check_against_the_host(model, (g, torch.randn(num_rows)), z, num_subsets=80)


@pytest.mark.filterwarnings("ignore:the model could not be traced")
def test_what_is_not_proved_is_compared_on_all_rows_where_rows_have_latents():
    """Here parameters may choose what is read, so that it is read anew on the rows of each subset."""
    torch.manual_seed(0)
    num_rows = 4000
    g = torch.where(torch.rand(num_rows) < 0.01, torch.tensor(4), torch.randint(0, 4, (num_rows,)))

    def model(g, y):
        a = pyro.sample("a", dist.Normal(torch.zeros(5), 1.0).to_event(1))
        num_groups = int((g if a[0] > -100 else -g).max()) + 1
        with pyro.plate("data", len(y)):
            e = pyro.sample("e", dist.Normal(torch.tensor(0.0), 1.0))
            pyro.sample("y", dist.Normal((a[g] + e) / num_groups, 1.0), obs=y)

    with pytest.raises(ModelNotSplittableError, match="must equal the model's own"):
        split_model(model, (g, torch.randn(num_rows)), num_subsets=80)


@pytest.mark.parametrize("num_subsets", [1, 3])
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(("bidirectional", "dtype"), [(False, torch.float64), (True, torch.float32)])
def test_recurrent_networks(num_subsets, cell, bidirectional, dtype):
    """In single precision MKL-DNN has one operation for a whole LSTM."""
    torch.manual_seed(0)
    network = getattr(torch.nn, cell)(3, 4, batch_first=True, bidirectional=bidirectional, dtype=dtype)

    def model(X, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(3, dtype=dtype), 1.0).to_event(1))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(network(X * w)[0][:, -1].sum(-1), 1.0), obs=y)

    z, args = {"w": torch.tensor([0.5, -1.0, 2.0], dtype=dtype)}, (torch.randn(N, 5, 3), torch.randn(N))
    args = tuple(x.to(dtype) for x in args)
    potential = check_against_the_host(model, args, z, num_subsets=num_subsets)
    assert potential.num_subsets == num_subsets


@pytest.mark.filterwarnings("ignore:the model could not be traced")
def test_a_flow_that_keeps_what_it_transformed():
    """By the tensor's identity, and without its derivative if that was not asked for."""
    torch.manual_seed(0)
    flow = transforms.affine_autoregressive(3)

    def model(X, y):
        w = pyro.sample("w", dist.TransformedDistribution(dist.Normal(torch.zeros(3), 1.0).to_event(1), [flow]))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)

    split_model(model, (torch.randn(N, 3), torch.randn(N)), num_subsets=3)


def test_a_value_that_is_kept_for_each_number_of_rows():
    """It would be one without values from a run on shapes, for the user's own runs too."""

    @functools.cache
    def weights(size):
        return torch.linspace(1.0, 1.0, size)

    def model(X, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(X @ w * weights(len(y)), 1.0), obs=y)

    args = torch.randn(40, 3), torch.randn(40)
    check_against_the_host(model, args, {"w": torch.tensor([0.5, -1.0, 2.0])}, num_subsets=3)
    assert all(type(weights(size)) is torch.Tensor for size in (13, 14, 40))


def test_latents_in_a_sequential_plate_are_refused_by_name():
    def model(y):
        m = pyro.sample("m", dist.Normal(torch.tensor(0.0), 1.0))
        for i in pyro.plate("data", len(y)):
            z = pyro.sample(f"z_{i}", dist.Normal(m, 1.0))
            pyro.sample(f"y_{i}", dist.Normal(z, 1.0), obs=y[i])

    with pytest.raises(ModelNotSplittableError, match="latents in a sequential plate have no axis of rows, got 'z_0'"):
        split_model(model, (torch.randn(12),), num_subsets=3)


def latents_in_turn(X, y):
    """A latent for each turn of a sequential plate."""
    w = [pyro.sample(f"w_{i}", dist.Normal(torch.tensor(0.0), 1.0)) for i in pyro.plate("features", 3)]
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(X @ torch.stack(w), 1.0), obs=y)


def responses_in_turn(X, y):
    """An observed site for each turn, each with all rows."""
    w = [pyro.sample(f"w_{i}", dist.Normal(torch.zeros(3), 1.0).to_event(1)) for i in range(2)]
    data = pyro.plate("data", len(y))
    for i in pyro.plate("responses", 2):
        with data:
            pyro.sample(f"y_{i}", dist.Normal(X @ w[i], 1.0), obs=(i + 1) * y)


def no_rows(X, y):
    """A latent for each turn, in a model that does not divide and reads its data with Python."""
    w = [pyro.sample(f"w_{i}", dist.Normal(torch.tensor(0.0), 1.0)) for i in pyro.plate("features", 3)]
    pyro.factor("y", -(X @ torch.stack(w) / y.abs().max().item() - y).norm())


@pytest.mark.filterwarnings("error:the model could not be traced")
@pytest.mark.parametrize(
    ("model", "size", "num_subsets"),
    [
        (latents_in_turn, (), 1),
        (latents_in_turn, (), 3),
        (responses_in_turn, (3,), 1),
        (responses_in_turn, (3,), 3),
        (no_rows, (), 1),
    ],
    ids=["latents 1", "latents 3", "responses 1", "responses 3", "no rows"],
)
def test_sequential_plates_are_traced(model, size, num_subsets):
    """The numbers that they yield are the same in every run, so that names of sites can be made of them."""
    torch.manual_seed(0)
    args = torch.randn(N, 3), torch.randn(N)
    z = {f"w_{i}": torch.full(size, 0.5 * i - 0.3) for i in range(2 if size else 3)}
    check_against_the_host(model, args, z, num_subsets=num_subsets, plate=None if model is no_rows else "data")


ROWS = np.random.default_rng(0).normal(size=(N, 3))  # not an argument: the plate says which of them are meant


@pytest.mark.parametrize("num_subsets", [1, 3])
def test_row_numbers_of_a_sequential_data_plate_are_those_of_the_subset(num_subsets):
    def model():
        w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        for i in pyro.plate("data", N):
            X, y = torch.as_tensor(ROWS[i, :2]), torch.as_tensor(ROWS[i, 2])
            pyro.sample(f"y_{i}", dist.Normal(X @ w, 1.0), obs=y)

    check_against_the_host(model, (), {"w": torch.tensor([0.5, -1.0])}, num_subsets=num_subsets, jit_compile=False)


@pytest.mark.filterwarnings("ignore:the model could not be traced")
def test_what_is_read_where_a_parameter_says_is_read_anew_in_one_subset():
    def model(y):
        w = pyro.sample("w", dist.Normal(torch.tensor(0.0), 1.0))
        if w > 0:
            read = y.max().item()
        else:
            read = y.min().item()
        pyro.factor("y", -(w - read).abs())

    for w in (0.7, -0.4):
        check_against_the_host(model, (torch.arange(4.0),), {"w": torch.tensor(w)}, num_subsets=1)


class HalfNormalByRejection(dist.HalfNormal):
    """Drawn again until it is positive, which Python looks at, as often as it takes."""

    def sample(self, sample_shape=()):
        x = torch.randn(self.shape(sample_shape))
        while (x < 0).any():
            missing = int((x < 0).sum())
            x[x < 0] = torch.randn(missing)
        return self.scale * x


@pytest.mark.parametrize("num_subsets", [1, 3])
def test_what_a_sampler_reads_is_its_own(num_subsets):
    """The number of its turns is another one in each run, in which no latent begins at a value of an earlier run."""

    def model(X, y):
        s = pyro.sample("s", HalfNormalByRejection(torch.ones(3)).to_event(1))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(X @ s / y.abs().max().item(), 1.0), obs=y)

    torch.manual_seed(0)
    args = torch.randn(N, 3), torch.randn(N)
    for _ in range(5):
        check_against_the_host(model, args, {"s": torch.tensor([0.5, -1.0, 2.0])}, num_subsets=num_subsets)


def test_random_numbers_that_are_read_are_warned_of_in_one_subset():
    def model(y):
        w = pyro.sample("w", dist.Normal(torch.tensor(0.0), 1.0))
        pyro.factor("y", -(w - torch.rand(()).item() - y.sum()).abs())

    with pytest.warns(UserWarning, match="draws will be of no posterior"):
        split_model(model, (torch.arange(4.0),), num_subsets=1)


def test_what_has_no_derivative_has_none_beside_held_values():
    def model(X, y, g):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        t = pyro.sample("t", dist.Normal(torch.zeros(4), 1.0).to_event(1))
        with torch.no_grad():
            c = t**2
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal((X - X.mean(0)) @ w + c[g], 1.0), obs=y)

    torch.manual_seed(0)
    args = torch.randn(N, 3), torch.randn(N), torch.randint(0, 4, (N,))
    z = {"w": torch.tensor([0.5, -1.0, 2.0]), "t": torch.tensor([1.0, 0.3, -2.0, 0.1])}
    check_against_the_host(model, args, z, num_subsets=3)


def test_a_model_that_refuses_values_far_out_itself():
    """It raises there on all rows as on some: this says nothing of how it divides."""

    def model(x, y):
        scale = pyro.sample("scale", dist.Gamma(torch.tensor(2.0), torch.tensor(1.0)))
        assert scale < 10.0, "a scale above 10"
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(x, scale), obs=y)

    x, y = torch.randn(2, N, generator=torch.Generator().manual_seed(0))
    check_against_the_host(model, (x, y), {"scale": torch.tensor(0.3)}, num_subsets=3)


def test_latents_of_two_types_are_compared_in_the_rougher_one():
    """As the host runs them: their energies are rounded in single precision."""

    def model(y):
        pyro.sample("tau", dist.Gamma(torch.tensor(2.0, dtype=torch.float64), 2.0))
        b = pyro.sample("b", dist.Normal(torch.tensor(0.0, dtype=torch.float32), 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(b.sin().exp(), 0.3), obs=y)

    y = torch.randn(1001, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    z = {"tau": torch.tensor(0.3, dtype=torch.float64), "b": torch.tensor(0.1, dtype=torch.float32)}
    potential = split_model(model, (y,), num_subsets=3)
    expected, _ = PyroBackend().host_potential_and_grad(model, (y,), {}, z)
    np.testing.assert_allclose(float(potential.potential_and_grad(z)[0]), float(expected), rtol=1e-5)


class Softmax(PyroModule):
    """A module whose rows rest on one another, where ``mixes``; its call has the signature ``(*args, **kwargs)``."""

    def __init__(self, mixes):
        super().__init__()
        self.axis = 0 if mixes else 1
        self.w = PyroSample(dist.Normal(torch.zeros(3), 1.0).to_event(1))

    def forward(self, X, y=None):
        mean = (torch.softmax(X, 1) * torch.softmax(self.w * X, self.axis)).sum(1)
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


@pytest.mark.parametrize("given", [lambda model: model, lambda model: pyro.condition(model, {})], ids=["", "handled"])
def test_arguments_of_a_module_have_the_names_of_its_forward(given):
    X, y = torch.randn(N, 3), torch.randn(N)
    z = {"w": torch.ones(3)}
    check_against_the_host(given(Softmax(False)), (X, y), z, num_subsets=3, data_axes={"X": 0, "y": 0})
    with pytest.raises(ModelNotSplittableError, match=r"hold rows: 'X', 'y'; .* data_axes=\{'X': 0\}"):
        split_model(given(Softmax(True)), (X, y), num_subsets=3)


def test_a_latent_that_the_host_starts_as_one_value_for_all_rows_is_refused_by_name():
    """A handler inside the plate samples another site, to whose starting value Pyro does not apply the plate."""

    def model(y):
        mu = pyro.sample("mu", dist.Normal(torch.zeros(()), 1.0))
        with pyro.plate("data", len(y)):
            with pyro.poutine.reparam(config={"a": LocScaleReparam(0.0)}):
                a = pyro.sample("a", dist.Normal(mu, 1.0))
            pyro.sample("y", dist.Normal(a, 1.0), obs=y)

    y = torch.randn(N)
    with pytest.raises(ModelNotSplittableError, match="one for all rows of 'a_decentered'"):
        split_model(model, (y,), num_subsets=3)
    z = {"mu": torch.tensor(0.3), "a_decentered": torch.tensor(0.5)}
    check_against_the_host(model, (y,), z, num_subsets=1)  # the host's, on which one value stands for all rows
