"""Sum over subsets and its gradient against the host's own potential, model shape by model shape."""

import importlib
import warnings
import weakref

import numpy as np
import pytest

from split_common.errors import ModelNotSplittableError
from split_common.exactness import compare_split
from split_common.row_independence import NOT_PROVED, Verdict
from split_common.schedule import naive, symmetric
from tests import models
from tests.backends import NumPyroBackend, PyroBackend


def unwrapped(build, lib):
    """The model for the host's potential: the host itself refuses a subsampled plate, so give it the whole one."""
    if build is models.subsampled_plate:
        return models.indexed_arguments(lib)[0]
    return build(lib)[0]


def position(lib, shapes, seed=0):
    """An arbitrary point."""
    rng = np.random.default_rng(seed)
    return {name: lib.array(rng.normal(size=shape)) for name, shape in shapes.items()}


def unconstrained_shapes(lib, model, args, kwargs=None):
    if lib.name == "numpyro":
        import jax
        from numpyro.infer.util import initialize_model

        info = initialize_model(jax.random.key(0), model, model_args=args, model_kwargs=kwargs or {})
        return {name: np.shape(u) for name, u in info.param_info.z.items()}
    from pyro.infer.mcmc.util import initialize_model

    z = initialize_model(model, args, kwargs or {})[0]
    return {name: tuple(u.shape) for name, u in z.items()}


def flat(lib, z):
    return np.concatenate([lib.to_numpy(z[name]).ravel() for name in sorted(z)])


def needs_plate(build):
    several = (models.second_plate_of_another_size, models.second_plate_of_the_same_size, models.nested_plates)
    return "data" if build in several or build in models.UNSPLITTABLE else None


def compare(lib, build, num_subsets, tolerance, **options):
    """Value and gradient, summed over subsets, against the host's."""
    model, args = build(lib)
    host_model = unwrapped(build, lib)
    potential = lib.split.split_model(model, args, num_subsets=num_subsets, plate=needs_plate(build), **options)
    z = position(lib, unconstrained_shapes(lib, host_model, args))
    return potential, z, check_against_the_host(lib, potential, host_model, args, z, tolerance)


def check_against_the_host(lib, potential, host_model, args, z, tolerance):
    """The host's value, of which that of a potential and the gradient are no other."""
    whole, whole_grad = lib.host_potential_and_grad(host_model, args, {}, z)
    value, grad = potential.potential_and_grad(z)
    np.testing.assert_allclose(float(value), float(whole), rtol=tolerance)
    scale = np.abs(flat(lib, whole_grad)).max()
    np.testing.assert_allclose(flat(lib, grad), flat(lib, whole_grad), rtol=0, atol=tolerance * scale)
    return float(whole)


@pytest.fixture
def _by_numbers(lib, monkeypatch):
    """Nothing is proved or refuted, so that the comparison of numbers decides."""
    package = lib.split.__name__
    splitting, proof = (
        importlib.import_module(f"{package}.{name}") for name in ("splitting.model_split", "splitting.row_independence")
    )
    unknown = proof.Proof(Verdict(NOT_PROVED), 0, {})
    monkeypatch.setattr(splitting, "prove", lambda *args: unknown)


by_numbers = pytest.mark.usefixtures("_by_numbers")


@pytest.mark.parametrize("build", models.SPLITTABLE + models.HOLDING, ids=lambda build: build.__name__)
def test_subsets_add_up_to_the_hosts_potential(lib, build):
    potential, z, whole = compare(lib, build, 4, 1e-10)
    assert potential.subset_sizes == (4, 4, 4, 3)
    assert (potential.plate, potential.plate_size, potential.num_subsets) == ("data", 15, 4)
    pointwise = lib.to_numpy(potential.pointwise_log_likelihood(z, lib.array(np.arange(15))))
    assert pointwise.shape == (15,)
    np.testing.assert_allclose(-float(potential.log_prior(z)) - pointwise.sum(), whole, rtol=1e-9)


@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
def test_improper_priors_add_up(lib):
    compare(lib, models.improper_prior, 4, 1e-10)


def test_parts_add_up_one_by_one(lib):
    potential, z, whole = compare(lib, models.local_latents_and_factors, 4, 1e-10)
    parts = [float(potential.subset_potential(z, m)) for m in range(4)]
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-10)
    likelihood = sum(float(potential.subset_log_likelihood(z, m)) for m in range(4))
    np.testing.assert_allclose(-float(potential.log_prior(z)) - likelihood, whole, rtol=1e-10)
    np.testing.assert_allclose(float(potential.potential(z)), whole, rtol=1e-10)
    summed = sum(flat(lib, potential.subset_potential_and_grad(z, m)[1]) for m in range(4))
    np.testing.assert_allclose(summed, flat(lib, potential.potential_and_grad(z)[1]), atol=1e-10)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda u, z: u.subset_potential(z, 4), "m must be a whole number from 0 to 3, got 4"),
        (lambda u, z: u.subset_log_likelihood(z, np.int64(9)), r"m must be a whole number from 0 to 3, got .*9"),
        (lambda u, z: u.subset_potential_and_grad(z, 1.5), "m must be a whole number from 0 to 3, got 1.5"),
        (lambda u, z: u.subset_potential(z, "first"), "m must be a whole number from 0 to 3, got 'first'"),
        (lambda u, z: u.pointwise_log_likelihood(z, [15]), r"indices must lie from 0 to 14, got \[15\]"),
        (lambda u, z: u.pointwise_log_likelihood(z, [0, -1]), r"indices must lie from 0 to 14, got \[0, -1\]"),
        (lambda u, z: u.pointwise_log_likelihood(z, [0.5]), r"indices must be whole numbers of rows, .* got \[0.5\]"),
        (lambda u, z: u.pointwise_log_likelihood(z, 3), r"indices must be .* of shape \(n,\), got 3"),
        (lambda u, z: u.pointwise_log_likelihood(z, []), r"indices must be .* at least one, .* got \[\]"),
        (lambda u, z: u.pointwise_log_likelihood(z, slice(3)), "indices must be .* got slice"),
        (lambda u, z: u.potential({}), r"z must hold .* every latent site, got none for '.' among \[\]"),
        (lambda u, z: u.log_prior({"b": z["b"]}), r"z must hold .* got none for 's' among \['b'\]"),
    ],
)
def test_what_a_potential_is_asked_for(lib, ask, message):
    model, args = models.plate_from_shape(lib)
    potential = lib.split.split_model(model, args, num_subsets=4)
    z = {"b": lib.array(np.ones(3)), "s": lib.array(0.0)}
    with pytest.raises(ValueError, match=message):
        ask(potential, z)


def test_rows_are_named_as_users_name_them(lib):
    model, args = models.plate_from_shape(lib)
    potential = lib.split.split_model(model, args, num_subsets=4)
    z = {"b": lib.array(np.ones(3)), "s": lib.array(0.0)}
    rows = lib.to_numpy(potential.pointwise_log_likelihood(z, np.arange(15)))
    for given in ([3, 4], range(3, 5), lib.array(np.array([3, 4]))):
        np.testing.assert_allclose(lib.to_numpy(potential.pointwise_log_likelihood(z, given)), rows[3:5], rtol=1e-12)
    assert repr(potential) == "SplitPotential(plate='data', plate_size=15, num_subsets=4)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model_args": 3}, "model_args must be a tuple of the model's arguments, got int"),
        ({"model_kwargs": [1]}, "model_kwargs must be a dict of the model's arguments, or None, got list"),
        ({"model": 3}, "model must be callable, got int 3"),
    ],
)
def test_arguments_of_a_model(lib, arguments, message):
    with pytest.raises(TypeError, match=message):
        lib.split.split_model(**{"model": print, "num_subsets": 2} | arguments)


def test_an_array_is_no_tuple_of_arguments(lib):
    model, (X, _) = models.plate_from_shape(lib)
    with pytest.raises(TypeError, match="model_args must be a tuple"):
        lib.split.split_model(model, X, num_subsets=2)


@pytest.mark.slow
@pytest.mark.parametrize("num_subsets", [1, 2, 3, 5, 7, 15])
@pytest.mark.parametrize("build", models.SPLITTABLE + models.HOLDING, ids=lambda build: build.__name__)
def test_subsets_add_up_for_every_number_of_subsets(lib, build, num_subsets):
    compare(lib, build, num_subsets, 1e-10)


@pytest.mark.parametrize("build", [models.closure_indexed, models.local_latents_and_factors])
@pytest.mark.parametrize("num_subsets", [1, 15])
def test_extreme_numbers_of_subsets(lib, build, num_subsets):
    compare(lib, build, num_subsets, 1e-10)


FLOAT32 = [models.plate_from_shape, models.closure_indexed, models.nested_plates]


@pytest.mark.parametrize(
    "build",
    FLOAT32 + [pytest.param(build, marks=pytest.mark.slow) for build in models.SPLITTABLE if build not in FLOAT32],
    ids=lambda build: build.__name__,
)
def test_subsets_add_up_in_float32(lib, build):
    lib.set_precision(32)
    compare(lib, build, 4, 1e-5)


@pytest.mark.parametrize("build", [models.closure_indexed, models.local_latents_and_factors])
def test_shuffled_subsets_add_up(lib, build):
    potential, *_ = compare(lib, build, 4, 1e-10, subset_order="shuffled")
    assert potential.subset_sizes == (4, 4, 4, 3)


@pytest.mark.parametrize("build", models.UNSPLITTABLE, ids=lambda build: build.__name__)
def test_models_that_do_not_divide_are_refused(lib, build):
    model, args = build(lib)
    with pytest.raises(ModelNotSplittableError):
        lib.split.split_model(model, args, num_subsets=4, plate="data")


def test_a_latent_for_each_row_in_another_plate_is_named(lib):
    """The rows of such a model are independent, but a latent value of another plate belongs to no row."""

    def model(y):
        with lib.ppl.plate("people", 12):
            ability = lib.ppl.sample("ability", lib.dist.Normal(0.0, 1.0))
        with lib.ppl.plate("answers", 12):
            lib.ppl.sample("y", lib.dist.Normal(ability, 1.0), obs=y)

    with pytest.raises(ModelNotSplittableError, match="latent 'ability' has .* plate 'people': sample it"):
        lib.split.split_model(model, (lib.array(np.arange(12.0)),), num_subsets=3)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
@pytest.mark.parametrize("build", [models.closed_over_size, models.indexed_arguments, models.subsampled_plate])
@pytest.mark.parametrize("plate", [None, "data"])
def test_a_plate_in_a_scope_is_known_by_its_own_name(lib, build, plate):
    """``scope`` puts its prefix before the names of a plate's message and of sites, not before that of the frame."""
    from pyro.contrib.autoname import scope

    model, args = build(lib)
    potential = lib.split.split_model(scope(model, prefix="s"), args, num_subsets=4, plate=plate)
    assert (potential.plate, potential.subset_sizes) == ("data", (4, 4, 4, 3))
    host_model = scope(unwrapped(build, lib), prefix="s")
    z = position(lib, unconstrained_shapes(lib, host_model, args))
    assert all(name.startswith("s/") for name in z)
    check_against_the_host(lib, potential, host_model, args, z, 1e-10)
    with pytest.raises(ValueError, match=r"plate must name a plate of the model, \['data'\], got 's/data'"):
        lib.split.split_model(scope(model, prefix="s"), args, num_subsets=4, plate="s/data")


@by_numbers
def test_the_refusal_names_both_numbers(lib):
    model, args = models.statistic_of_all_rows(lib)
    with pytest.raises(
        ModelNotSplittableError, match=r"must equal the model's own potential, got [\d.]+ against [\d.]+"
    ):
        lib.split.split_model(model, args, num_subsets=4)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_a_convolution_is_traced_without_the_jit(lib, recwarn):
    """PyTorch's JIT refuses the gradient of a convolution; the traced list of operations is run as it is."""

    def model(x, y):
        filters = lib.ppl.sample("filters", lib.dist.Normal(lib.np.zeros(2, 1, 3, 3), 1.0).to_event(4))
        with lib.ppl.plate("data", x.shape[0]):
            mean = lib.np.nn.functional.conv2d(x, filters).tanh().sum((1, 2, 3))
            lib.ppl.sample("y", lib.dist.Normal(mean, 1.0), obs=y)

    rng = np.random.default_rng(0)
    args = lib.array(rng.normal(size=(7, 1, 5, 5))), lib.array(rng.normal(size=7))
    z = {"filters": lib.array(rng.normal(size=(2, 1, 3, 3)))}
    value, grad = lib.split.split_model(model, args, num_subsets=3).potential_and_grad(z)
    whole, whole_grad = lib.host_potential_and_grad(model, args, {}, z)
    np.testing.assert_allclose(float(value), float(whole), rtol=1e-10)
    np.testing.assert_allclose(flat(lib, grad), flat(lib, whole_grad), rtol=1e-9)
    assert not [w for w in recwarn if "replayed" in str(w.message)]


@pytest.mark.parametrize("package", ["pyro_split"])
@pytest.mark.parametrize("build", models.SPLITTABLE, ids=lambda build: build.__name__)
def test_replayed_model_is_the_traced_one(package, build):
    """Pyro: the kept trace gives what the handlers give."""
    import torch

    from tests.backends import PyroBackend

    lib = PyroBackend()
    model, args = build(lib)
    plate = needs_plate(build)
    z = position(lib, unconstrained_shapes(lib, unwrapped(build, lib), args))
    traced, replayed = (
        lib.split.split_model(model, args, num_subsets=4, plate=plate, jit_compile=jit) for jit in (True, False)
    )
    torch.testing.assert_close(traced.energies(z), replayed.energies(z), rtol=1e-12, atol=0)
    for m in (0, 3):
        a, b = (potential.subset_potential_and_grad(z, m)[1] for potential in (traced, replayed))
        np.testing.assert_allclose(flat(lib, a), flat(lib, b), rtol=0, atol=1e-11)


def test_values_are_differentiable(lib):
    """The gradient of ``potential`` by the framework is that of ``potential_and_grad``."""
    model, args = models.local_latents_and_factors(lib)
    z = position(lib, unconstrained_shapes(lib, model, args))
    potential = lib.split.split_model(model, args, num_subsets=4)
    grad = flat(lib, potential.potential_and_grad(z)[1])
    if lib.name == "numpyro":
        import jax

        by_framework = flat(lib, jax.grad(potential.potential)(z))
    else:
        z = {name: u.clone().requires_grad_() for name, u in z.items()}
        potential.potential(z).backward()
        by_framework = flat(lib, {name: u.grad for name, u in z.items()})
    np.testing.assert_allclose(by_framework, grad, atol=1e-10, rtol=0)


@pytest.mark.parametrize("num_subsets", [1, 3, 4])
@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("name", ["plate_from_shape", "local_latents_and_factors"])
def test_a_gradient_without_energies_is_the_same(name, jit_compile, num_subsets):
    lib = PyroBackend()
    model, args = getattr(models, name)(lib)
    z = position(lib, unconstrained_shapes(lib, model, args))
    potential = lib.split.split_model(model, args, num_subsets=num_subsets, jit_compile=jit_compile)
    for m in range(num_subsets):
        expected, grad = potential.subset_energies_and_grad(z, m)[1], potential.subset_grad(z, m)
        assert list(grad) == list(z)
        for site, u in expected.items():
            np.testing.assert_allclose(grad[site], u, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "of_subset"),
    [("energies_and_grad", "_rows_and_grad"), ("potential_and_grad", "subset_energies_and_grad")],
)
def test_gradients_of_subsets_are_summed_as_they_come(method, of_subset, monkeypatch):
    """Of 8 subsets' gradients no more are alive at a time than the last one and the sum."""
    lib = PyroBackend()
    potential = lib.split.split_model(*models.plate_from_shape(lib), num_subsets=8)
    made, alive, honest = [], [], getattr(potential, of_subset)

    def watched(z, m):
        alive.append(sum(grad() is not None for grad in made))
        found = honest(z, m)
        made.append(weakref.ref(found[1] if of_subset == "_rows_and_grad" else found[1]["b"]))
        return found

    monkeypatch.setattr(potential, of_subset, watched)
    getattr(potential, method)({"b": lib.np.ones(models.DIM), "s": lib.np.zeros(())})
    assert len(made) == 8
    assert max(alive) <= 2


def test_energies_are_the_terms_of_the_potential(lib):
    model, args = models.plate_from_shape(lib)
    z = position(lib, unconstrained_shapes(lib, model, args))
    potential = lib.split.split_model(model, args, num_subsets=4)
    energies = potential.energies(z)
    terms = np.asarray(energies.value) if lib.name == "numpyro" else energies.numpy()
    expected = [-float(potential.log_prior(z))] + [-float(potential.subset_log_likelihood(z, m)) for m in range(4)]
    np.testing.assert_allclose(terms, expected, rtol=1e-10)


@pytest.mark.parametrize("subset_order", ["sequential", "shuffled"])
@pytest.mark.parametrize("num_subsets", [2, 3])
@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
def test_blocks_of_a_subset_add_up(lib, monkeypatch, num_subsets, subset_order):
    """A subset too large for the cache is evaluated in blocks, here of two or three rows, the last perhaps shorter.

    All the data at once are not: nothing is copied, so there is nothing to keep in the cache.
    """
    from numpyro_split.potential import arguments

    model, args = models.plate_from_shape(lib)
    z = position(lib, unconstrained_shapes(lib, model, args))
    whole = lib.split.split_model(model, args, num_subsets=num_subsets, subset_order=subset_order)
    monkeypatch.setattr(arguments, "MIN_BLOCK_ROWS", 2)
    monkeypatch.setattr(arguments, "BLOCK_BYTES", 1)
    cut = lib.split.split_model(model, args, num_subsets=num_subsets, subset_order=subset_order)
    assert (whole._density.num_blocks, cut._density.num_blocks) == (1, whole.subset_sizes[0] // 2)
    single = lib.split.split_model(model, args, num_subsets=1, subset_order=subset_order)
    assert single._density.num_blocks == 1
    np.testing.assert_allclose(cut.energies(z).value, whole.energies(z).value, rtol=1e-12)
    for m in range(num_subsets):
        (value, grad), (expected, expected_grad) = (p.subset_potential_and_grad(z, m) for p in (cut, whole))
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(flat(lib, grad), flat(lib, expected_grad), rtol=1e-12)
        energies, grad = cut.subset_energies_and_grad(z, lib.array(m))
        np.testing.assert_allclose(energies.value[1], cut.energies(z).value[m + 1], rtol=1e-12)
        np.testing.assert_allclose(flat(lib, grad), flat(lib, expected_grad), rtol=1e-12)


@pytest.mark.parametrize(("build", "num_subsets"), [(naive, 4), (symmetric, 1), (symmetric, 4)])
def test_energies_where_a_step_ends(lib, build, num_subsets):
    """Those kept from the closing kicks are those of a forward pass, whatever the order of the subsets."""
    model, args = models.plate_from_shape(lib)
    z = position(lib, unconstrained_shapes(lib, model, args))
    potential = lib.split.split_model(model, args, num_subsets=num_subsets)
    integrator = lib.potential_integrator(build(num_subsets), potential, z)
    order = lib.array(np.random.default_rng(0).permutation(num_subsets))
    end = integrator.step(integrator.start(z, z, order), 0.1, order if lib.name == "numpyro" else order.tolist())
    assert (end.energies is None) == (build is symmetric and num_subsets > 1)
    energies, grad = integrator.energies_and_grad(end)
    for kept, forward in [(integrator.energies(end), potential.energies(end.z)), (energies, potential.energies(end.z))]:
        kept, forward = (np.asarray(x.value if lib.name == "numpyro" else x) for x in (kept, forward))
        np.testing.assert_allclose(kept, forward, rtol=1e-10)
    np.testing.assert_allclose(flat(lib, grad), flat(lib, potential.potential_and_grad(end.z)[1]), rtol=1e-10)


@pytest.mark.parametrize("per_row", [True, False], ids=["values per row", "their sum"])
@pytest.mark.parametrize("num_subsets", [1, 3, 4, 10])
def test_potential_from_functions(lib, num_subsets, per_row):
    y = lib.array(np.random.default_rng(0).normal(size=10))

    def log_likelihood(z, batch):
        values = -0.5 * (batch["y"] - z["mu"]) ** 2
        return values if per_row else values.sum()

    potential = lib.split.SplitPotential.from_functions(
        lambda z: -0.5 * z["mu"] ** 2, log_likelihood, {"y": y}, num_subsets
    )
    z = {"mu": lib.array(0.3)}
    value, grad = potential.potential_and_grad(z)
    data = lib.to_numpy(y)
    assert potential.plate is None
    np.testing.assert_allclose(float(value), 0.045 + 0.5 * np.sum((data - 0.3) ** 2), rtol=1e-12)
    np.testing.assert_allclose(float(grad["mu"]), 0.3 - np.sum(data - 0.3), rtol=1e-12)
    pointwise = potential.pointwise_log_likelihood(z, lib.array(np.array([2, 5])))
    np.testing.assert_allclose(lib.to_numpy(pointwise), -0.5 * (data[[2, 5]] - 0.3) ** 2, rtol=1e-12)


@pytest.mark.parametrize("num_subsets", [1, 3])
def test_functions_that_return_no_value_for_each_row_are_refused(lib, num_subsets):
    X, y = models.data(lib)
    potential = lib.split.SplitPotential.from_functions(
        lambda z: -0.5 * (z["b"] ** 2).sum(),
        lambda z, batch: -0.5 * (batch["y"] - batch["X"] @ z["b"][:, None]) ** 2,
        {"X": X, "y": y[:, None]},
        num_subsets,
    )
    with pytest.raises(
        ValueError, match=r"one value for each row, shape \((15|5),\), or their sum, got .*\((15|5), 1\)"
    ):
        potential.potential_and_grad({"b": lib.array(np.ones(3))})


def test_as_many_rows_as_there_are_in_another_order(lib):
    """The host's ``subsample`` takes rows only where they are fewer than all."""

    def model(X, y):
        b = models.coefficients(lib)
        with lib.ppl.plate("data", 15, subsample_size=5) as rows:
            X, y = (lib.ppl.subsample(x, event_dim=d) for x, d in ((X, 1), (y, 0)))
            lib.ppl.sample("y", lib.dist.Normal(X @ b, 1.0), obs=y)
        return rows

    X, y = models.data(lib)
    potential = lib.split.split_model(model, (X, y), num_subsets=3)
    z = {"b": lib.array(np.array([0.3, -1.0, 2.0]))}
    residuals = lib.to_numpy(y) - lib.to_numpy(X) @ np.array([0.3, -1.0, 2.0])
    for rows in (np.arange(15)[::-1].copy(), np.arange(15) % 4, np.arange(40) % 15):
        found = potential.pointwise_log_likelihood(z, lib.array(rows))
        np.testing.assert_allclose(
            lib.to_numpy(found), -0.5 * residuals[rows] ** 2 - 0.5 * np.log(2 * np.pi), rtol=1e-10
        )


@pytest.mark.parametrize(
    ("rows", "looks_all_up", "divides"),
    [
        (np.random.default_rng(0).permutation(15), True, True),
        (np.random.default_rng(0).permutation(15), False, False),
        (np.arange(15) // 2, True, False),
        (np.arange(6), True, False),
    ],
    ids=["another order", "another order of X alone", "several times", "some"],
)
def test_rows_that_a_handler_gives_to_the_plate(lib, rows, looks_all_up, divides):
    """They are the host's: a model that they make another one is not divided."""

    def model(X, y):
        b = models.coefficients(lib)
        with lib.ppl.plate("data", len(X)) as i:
            lib.ppl.sample("y", lib.dist.Normal(X[i] @ b, 1.0), obs=y[i] if looks_all_up else y)

    gives = lib.ppl.handlers.substitute if lib.name == "numpyro" else lib.ppl.poutine.condition
    given = gives(model, data={"data": lib.array(rows)})
    args, z = models.data(lib), {"b": lib.array(np.array([0.3, -1.0, 2.0]))}
    host = float(lib.host_potential_and_grad(given, args, {}, z)[0])
    np.testing.assert_allclose(float(lib.split.split_model(given, args, num_subsets=1).potential(z)), host, rtol=1e-9)
    if divides:
        found = float(lib.split.split_model(given, args, num_subsets=3).potential(z))
        np.testing.assert_allclose(found, host, rtol=1e-9)
    else:
        with pytest.raises(ModelNotSplittableError, match="must equal the model's own potential|must take"):
            lib.split.split_model(given, args, num_subsets=3)


@pytest.mark.parametrize("what", ["bound", "class"])
def test_supports_may_follow_the_number_of_rows(lib, what):
    """Draws are mapped by the support that all rows give, at 25 ± 1, and not by that of one subset's rows."""

    def model(y):
        one, num_rows = lib.array(1.0), len(y)
        if what == "bound":
            low = 0.0 if lib.name == "numpyro" else 0.0 * one  # a bound that is an array is looked up at every draw
            size = lib.ppl.sample("size", lib.dist.Uniform(low, num_rows))
        elif num_rows > 20:
            size = lib.ppl.sample("size", lib.dist.HalfNormal(99.0 * one))
        else:
            size = lib.ppl.sample("size", lib.dist.Normal(0.0 * one, one))
        lib.ppl.sample("seen", lib.dist.Normal(size, one), obs=25.0 * one)
        mu = lib.ppl.sample("mu", lib.dist.Normal(0.0 * one, one))
        with lib.ppl.plate("data", num_rows):
            lib.ppl.sample("y", lib.dist.Normal(mu, one), obs=y)

    kernel = lib.split.SplitNUTS(model, num_subsets=4)
    mcmc = lib.run(kernel, lib.array(np.zeros(40)), num_warmup=100, num_samples=100)
    assert abs(lib.to_numpy(mcmc.get_samples()["size"]).mean() - 25) < 2


def large(lib, closed_over):
    rng = np.random.default_rng(0)
    X = lib.array(rng.normal(size=(5000, 2)))
    y = lib.array(rng.normal(size=5000))

    def model(X, y):
        b = models.coefficients(lib, size=2)
        with lib.ppl.plate("data", 5000 if closed_over else X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ b, 1.0), obs=y)

    return model, (X, y)


@pytest.mark.parametrize(("closed_over", "message"), [(False, "a sample of 2048 of 5000"), (True, "energy only")])
def test_large_data_are_checked_in_little_memory(lib, caplog, closed_over, message):
    model, args = large(lib, closed_over)
    with caplog.at_level("INFO"):
        lib.split.split_model(model, args, num_subsets=6)
    assert any(message in record.getMessage() for record in caplog.records)


@by_numbers
def test_large_data_that_do_not_divide_are_refused(lib):
    rng = np.random.default_rng(0)
    X, y = lib.array(rng.normal(size=(5000, 2))), lib.array(rng.normal(size=5000))

    def model(X, y):
        b = models.coefficients(lib, size=2)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal((X - X.mean(0)) @ b, 1.0), obs=y)

    with pytest.raises(ModelNotSplittableError, match="against"):
        lib.split.split_model(model, (X, y), num_subsets=6)


@pytest.mark.parametrize(("dtype", "near", "far"), [("f4", 2e-5, 5e-4), ("f8", 2e-9, 5e-8)])
def test_precision_of_the_check(dtype, near, far):
    """Energies and gradients that differ by more than rounding are refused, each for itself."""
    energies, grad = np.array([100.0, 400.0, 500.0], dtype), np.array([300.0, 400.0], dtype).astype(float)
    compare_split(1000.0 * (1 + near), energies, grad, grad * (1 + near))
    for whole, split_grad in ((1000.0 * (1 + far), grad), (1000.0, grad * (1 + far))):
        with pytest.raises(ModelNotSplittableError):
            compare_split(whole, energies, grad, split_grad)


def test_a_model_whose_own_gradient_is_not_finite_is_told_so():
    energies, grad = np.array([100.0, 900.0]), np.array([1.0, np.nan])
    with pytest.raises(ModelNotSplittableError, match="against nan, .*the model's own gradient is not finite at this"):
        compare_split(1000.0, energies, grad, grad)


@by_numbers
def test_a_gradient_that_does_not_divide_is_refused(lib):
    """Though the energy does: the rows' term is zero, and its gradient is that of a sum over all rows."""
    held = (lambda x: x.detach()) if lib.name == "pyro" else lib._jax.lax.stop_gradient

    def model(X, y):
        b = models.coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]):
            of_all_rows = X.sum(0) @ b
            lib.ppl.sample("y", lib.dist.Normal(X @ b + of_all_rows - held(of_all_rows), 1.0), obs=y)

    with pytest.raises(ModelNotSplittableError, match="gradient"):
        lib.split.split_model(model, models.data(lib), num_subsets=4)


@by_numbers
def test_a_model_that_divides_at_its_start_alone_is_refused(lib):
    """At coefficients of zero, energy and gradient add up; the check is made near the start and not at it."""
    infer = importlib.import_module("numpyro.infer" if lib.name == "numpyro" else "pyro.infer.autoguide.initialization")

    def model(X, y):
        b = models.coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal((X - X.mean(0)) @ b**2, 1.0), obs=y)

    at_zero = infer.init_to_value(values={"b": lib.np.zeros(models.DIM)})
    with pytest.raises(ModelNotSplittableError, match="against"):
        lib.split.split_model(model, models.data(lib), num_subsets=4, init_strategy=at_zero)


def test_data_axes_name_what_holds_rows(lib):
    """A square matrix has N rows by accident; naming the arguments tells it apart."""
    rng = np.random.default_rng(0)
    transposed, y = lib.array(rng.normal(size=(3, 15))), lib.array(rng.normal(size=15))
    metric = lib.array(np.eye(15))

    def model(Xt, y, metric):
        b = models.coefficients(lib)
        lib.ppl.factor("metric", -0.01 * metric.sum() * (b**2).sum())
        with lib.ppl.plate("data", Xt.shape[1]):
            lib.ppl.sample("y", lib.dist.Normal(b @ Xt, 1.0), obs=y)

    args = (transposed, y, metric)
    potential = lib.split.split_model(model, args, num_subsets=4, data_axes={"Xt": 1, "y": 0, "metric": None})
    z = {"b": lib.array(rng.normal(size=3))}
    whole, _ = lib.host_potential_and_grad(model, args, {}, z)
    np.testing.assert_allclose(float(potential.potential(z)), float(whole), rtol=1e-10)


def test_data_axes_name_arrays_inside_an_argument(lib):
    """As the refusal without them does; other arrays of the argument stay whole, and so does what is named None."""
    rng = np.random.default_rng(0)
    data = {"Xt": lib.array(rng.normal(size=(3, 15))), "loc": lib.array(np.zeros(3)), "few": lib.array(np.ones(15))}
    args = (data, lib.array(rng.normal(size=(1, 15))))

    def model(data, y):
        b = lib.ppl.sample("b", lib.dist.Normal(data["loc"], lib.array(1.0)).to_event(1))
        with lib.ppl.plate("data", y.shape[1]):
            lib.ppl.sample("y", lib.dist.Normal(b @ data["Xt"] * data["few"].mean(), lib.array(1.0)), obs=y[0])

    with pytest.raises(
        ModelNotSplittableError, match=r"hold rows: \"data\['few'\]\"; .* data_axes=.\"data\['few'\]\": 0"
    ):
        lib.split.split_model(model, args, num_subsets=4)
    axes = {"data['Xt']": 1, "y": 1}
    z = {"b": lib.array(rng.normal(size=3))}
    whole, _ = lib.host_potential_and_grad(model, args, {}, z)
    for more in ({}, {"data": None}, {"data['few']": None}):
        potential = lib.split.split_model(model, args, num_subsets=4, data_axes=axes | more)
        np.testing.assert_allclose(float(potential.potential(z)), float(whole), rtol=1e-10)
    with pytest.raises(ValueError, match=r"data_axes must name model arguments \['data', 'y'\], got \"data\['no'\]\""):
        lib.split.split_model(model, args, num_subsets=4, data_axes={"data['no']": 1})


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 271, 272, 4097, 100_003])
def test_compensated_sums_of_any_length(size):
    """Every entry counts, also those that do not fit the parts of the sum; large ones cancel."""
    import jax.numpy as jnp

    from numpyro_split.potential.compensated import compensated_sum

    x = np.random.default_rng(0).integers(-9, 10, size).astype(np.float32) + np.float32(1e7) * (-1) ** np.arange(size)
    x = x.astype(np.float32)
    total = compensated_sum(jnp.asarray(x))
    assert total.high.dtype == np.float32
    assert float(total.high) + float(total.low) == x.astype(float).sum()


def test_differences_take_what_rounding_lost():
    """Of two float32 energies that are one number as rounded."""
    import jax.numpy as jnp

    from numpyro_split.potential.compensated import compensated_sum, difference

    new, old = (compensated_sum(jnp.array([2.0**24, extra], jnp.float32)) for extra in (1.0, 0.25))
    assert float(new.high) == float(old.high)
    assert float(difference(new, old)) == 0.75


def test_float32_sums_survive_a_million_rows(lib):
    """Energy differences of a float32 model of 10⁶ rows, against float64: naive sums are off by tenths."""
    rng = np.random.default_rng(0)
    y64 = rng.normal(size=1_000_000)

    def change(bits):
        lib.set_precision(bits)
        dtype = {"numpyro": "float32", "pyro": getattr(lib.np, "float32", None)}[lib.name] if bits == 32 else None
        potential = lib.split.SplitPotential.from_functions(
            lambda z: -0.5 * z["mu"] ** 2,
            lambda z, y: -0.5 * (y - z["mu"]) ** 2,
            lib.array(y64.astype("f4"), dtype),
            10,
        )
        old, new = (potential.energies({"mu": lib.array(np.float32(mu), dtype)}) for mu in (0.25, 0.2505))
        if lib.name == "numpyro":
            from numpyro_split.potential.compensated import difference

            return float(difference(new, old))
        return float((new - old).sum())

    assert abs(change(32) - change(64)) < 0.02


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_what_a_model_keeps_of_its_first_run_has_values(lib):
    """A network that is built when the model first runs; the model also runs on shapes alone."""
    import torch

    kept = []

    def model(X, y):
        if not kept:
            kept.append(torch.nn.Linear(models.DIM, 1, dtype=torch.float64))
        b = models.coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ b + kept[0](X)[:, 0], 1.0), obs=y)

    potential = lib.split.split_model(model, models.data(lib), num_subsets=4)
    assert np.isfinite(float(potential.potential({"b": lib.np.zeros(models.DIM)}).detach()))
    assert type(kept[0].weight.data) is torch.Tensor


KEPT_BY_A_GLOBAL = {}


def center_of(X):
    if "center" not in KEPT_BY_A_GLOBAL:
        KEPT_BY_A_GLOBAL["center"] = X.mean(0)
    return KEPT_BY_A_GLOBAL["center"]


def model_that_keeps(lib, where, shared=None):
    """A model that keeps the columns' means of its first run: in a closure, in a global, or in an object."""
    import threading

    kept = {}

    def observe(X, y, center):
        b = models.coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal((X - center) @ b, 1.0), obs=y)

    def in_closure(X, y):
        observe(X, y, kept.setdefault("center", X.mean(0)))

    def in_global(X, y):
        observe(X, y, center_of(X))

    def in_class(X, y):
        shared.center = X.mean(0) if shared.center is None else shared.center
        observe(X, y, shared.center)

    class InObject:
        def __init__(self):
            self.center, self.lock = None, threading.Lock() if where == "object without a copy" else None

        def __call__(self, X, y):
            self.center = X.mean(0) if self.center is None else self.center
            observe(X, y, self.center)

    functions = {"closure": in_closure, "global": in_global, "class": in_class}
    return functions[where] if where in functions else InObject()


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
@pytest.mark.parametrize("where", ["closure", "global", "object", "object without a copy"])
def test_what_a_model_keeps_of_its_first_run_comes_from_all_rows(lib, where, monkeypatch):
    """Large data are first run on a few rows, whose means the comparison with all rows could not tell from others."""
    monkeypatch.setattr("pyro_split.splitting.description.LITTLE", 100)
    KEPT_BY_A_GLOBAL.clear()
    X, y = models.data(lib, 60)
    X = X + lib.np.arange(60)[:, None]
    z = {"b": 0.1 * lib.np.ones(models.DIM)}
    found = lib.split.split_model(model_that_keeps(lib, where), (X, y), num_subsets=4).potential(z)
    KEPT_BY_A_GLOBAL.clear()
    monkeypatch.undo()
    expected = lib.split.split_model(model_that_keeps(lib, where), (X, y), num_subsets=1).potential(z)
    assert float(found.detach()) == pytest.approx(float(expected.detach()))


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_a_model_that_shares_what_it_keeps_with_its_copies_is_refused(lib, monkeypatch):
    monkeypatch.setattr("pyro_split.splitting.description.LITTLE", 100)
    shared = type("Shared", (), {"center": None})
    model = model_that_keeps(lib, "class", shared)
    for _ in range(2):  # also when it is asked again, with what it has kept
        with pytest.raises(lib.split.ModelNotSplittableError, match="must keep nothing of its first run"):
            lib.split.split_model(model, models.data(lib), num_subsets=4)
    shared.center = None
    anew = model_that_keeps(lib, "class", shared)
    anew(*models.data(lib))
    lib.split.split_model(anew, models.data(lib), num_subsets=4)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_a_network_that_is_built_lazily_is_built_from_a_few_rows(lib, monkeypatch):
    import torch

    monkeypatch.setattr("pyro_split.splitting.description.LITTLE", 100)
    sizes, build = [], torch.nn.LazyLinear.initialize_parameters

    def record(module, x):
        sizes.append(len(x))
        build(module, x)

    monkeypatch.setattr(torch.nn.LazyLinear, "initialize_parameters", record)
    network = torch.nn.LazyLinear(1, dtype=torch.float64)

    def model(X, y):
        b = models.coefficients(lib)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ b + network(X)[:, 0], 1.0), obs=y)

    lib.split.split_model(model, models.data(lib, 60), num_subsets=4)
    assert sizes == [16, 15, 16]
    assert network.weight.shape == (1, models.DIM)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
@pytest.mark.parametrize("kind", ["dropout", "NumPy"])
def test_an_undivided_model_that_draws_random_numbers_is_run_as_the_host_runs_it(lib, kind):
    import torch

    dropout = torch.nn.Dropout(0.5)

    def model(X, y):
        b = models.coefficients(lib)
        shift = 0.0 if kind == "dropout" else np.random.normal()
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(dropout(X) @ b + shift, 1.0), obs=y)

    given, z = models.data(lib), {"b": lib.np.ones(models.DIM)}
    if kind == "NumPy":
        dropout.eval()
    with pytest.warns(UserWarning, match="draws will be of no posterior: .* from two runs at one point"):
        potential = lib.split.split_model(model, given, num_subsets=1)
    assert float(potential.potential(z)) != float(potential.potential(z))
    with pytest.raises(lib.split.ModelNotSplittableError, match="from two runs at one point"):
        lib.split.split_model(model, given, num_subsets=2)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
@pytest.mark.parametrize("is_model", [True, False])
def test_a_network_that_keeps_its_last_values_keeps_no_tensors_without_values(lib, is_model):
    import pickle

    import torch

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(()))
            self.hidden = None

        def forward(self, X, y):
            self.hidden = X @ models.coefficients(lib)
            self.last = self.hidden.sum()
            self.center = X.mean(0)
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(self.hidden, 1.0), obs=y)

    network = Network()
    model = network if is_model else lambda X, y: network(X, y)
    potential = lib.split.split_model(model, models.data(lib), num_subsets=4)
    potential.potential_and_grad({"b": lib.np.ones(models.DIM)})
    for kept in (network.hidden, network.last, network.center):
        assert np.isfinite(pickle.loads(pickle.dumps(kept.detach())).numpy()).all()


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_what_a_model_keeps_its_last_values_in_keeps_no_tensors_without_values(lib):
    import torch

    class Study:
        def __init__(self, X):
            self.X = X

        def model(self, y):
            self.X = self.X - self.X.mean(0)
            table["mean"] = model.mean = self.X @ models.coefficients(lib)
            with lib.ppl.plate("data", len(y)):
                lib.ppl.sample("y", lib.dist.Normal(table["mean"], 1.0), obs=y)

    def model(y):
        study.model(y)

    X, y = models.data(lib)
    study, table, z = Study(X), {}, {"b": lib.np.ones(models.DIM)}
    by_object, by_function = Study(X).model, model
    for own in (by_object, by_function):
        potential = lib.split.split_model(own, (y,), num_subsets=1)
        host = lib.host_energy(own, (y,), {}, z)
        np.testing.assert_allclose(float(potential.potential(z)), host, rtol=1e-10)
    for kept in (by_object.__self__.X, study.X, table["mean"], model.mean):
        assert type(kept) is torch.Tensor
        assert np.isfinite(kept.detach().numpy()).all()


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_positions_may_lie_otherwise_in_memory(lib):
    import torch

    def model(X, y):
        W = lib.ppl.sample("W", lib.dist.Normal(torch.zeros(3, 4), 1.0).to_event(2))
        with lib.ppl.plate("data", len(X)):
            lib.ppl.sample("y", lib.dist.Normal(X @ W @ W.reshape(-1).view(12)[:4], 1.0), obs=y)

    potential = lib.split.split_model(model, models.data(lib), num_subsets=3)
    W = lib.array(np.random.default_rng(1).normal(size=(3, 4)))
    energy, grad = potential.potential_and_grad({"W": W})
    transposed_energy, transposed_grad = potential.potential_and_grad({"W": W.t().contiguous().t()})
    torch.testing.assert_close(transposed_energy, energy)
    torch.testing.assert_close(transposed_grad["W"], grad["W"])


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_single_precision_within_a_double_model_is_named(lib):
    X, y = models.data(lib, 4000)

    def model(X, y):
        b = models.coefficients(lib)
        with lib.ppl.plate("data", len(X)):
            lib.ppl.sample("y", lib.dist.Normal(X.float() @ b.float(), 1.0), obs=y.float())

    with pytest.raises(lib.split.ModelNotSplittableError, match="part of the model computes in single precision"):
        lib.split.split_model(model, (X, y), num_subsets=7)


@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
def test_what_is_not_proved_is_compared_on_all_rows_where_rows_have_latents(lib):
    """A rare label is on any sample of the rows, and on most subsets it is not; what reads it is not proved."""
    import jax

    num_rows, rng = 4000, np.random.default_rng(0)
    g = np.where(rng.random(num_rows) < 0.01, 4, rng.integers(0, 4, num_rows))

    def model(g, y):
        a = lib.ppl.sample("a", lib.dist.Normal(np.zeros(5), 1.0).to_event(1))
        like = jax.ShapeDtypeStruct((), y.dtype)
        fixed = jax.lax.stop_gradient(a[0])  # else it would rest on no parameter, and be held
        num_groups = jax.pure_callback(lambda g, a: np.asarray(np.max(g) + 1 + 0 * a, y.dtype), like, g, fixed)
        with lib.ppl.plate("data", y.shape[0]):
            e = lib.ppl.sample("e", lib.dist.Normal(0.0, 1.0))
            lib.ppl.sample("y", lib.dist.Normal((a[g] + e) / num_groups, 1.0), obs=y)

    args = lib.np.asarray(g), lib.array(rng.normal(size=num_rows))
    with pytest.raises(lib.split.ModelNotSplittableError, match="must equal the model's own"):
        lib.split.split_model(model, args, num_subsets=80)


@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
@pytest.mark.parametrize("num_subsets", [1, 3])
def test_a_model_that_keeps_an_array_of_its_first_trace_is_told_so(lib, num_subsets):
    import functools

    import jax.numpy as jnp
    import numpyro

    def make():
        @functools.cache
        def grid(size):
            return jnp.linspace(0.0, 1.0, size)

        def model(X, y):
            b = models.coefficients(lib)
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(X @ b + grid(3).sum(), 1.0), obs=y)

        return model

    with pytest.raises(
        lib.split.ModelNotSplittableError, match="must keep nothing of its first run, got one that keeps a tracer"
    ):
        lib.split.split_model(make(), models.data(lib), num_subsets=num_subsets)
    advised = make()
    numpyro.handlers.seed(advised, 0)(*models.data(lib))
    lib.split.split_model(advised, models.data(lib), num_subsets=num_subsets)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_a_list_of_operations_that_the_jit_runs_wrongly(lib):
    """The JIT takes a product of constants' transposed weights for one of another shape."""
    import torch

    torch.manual_seed(0)
    network = torch.nn.Linear(4, 1)

    def model(X, y):
        sigma = lib.ppl.sample("sigma", lib.dist.HalfNormal(1.0))
        with lib.ppl.plate("data", len(X)):
            lib.ppl.sample("y", lib.dist.Normal(network(X).squeeze(-1), sigma), obs=y)

    args, z = (torch.randn(20, 4), torch.randn(20)), {"sigma": torch.tensor(0.3)}
    expected, expected_grad = lib.split.split_model(model, args, num_subsets=4, jit_compile=False).potential_and_grad(z)
    potential = lib.split.split_model(model, args, num_subsets=4)
    for _ in range(3):  # the JIT compiles anew at the second call
        energy, grad = potential.potential_and_grad(z)
        torch.testing.assert_close(energy, expected)
        torch.testing.assert_close(grad["sigma"], expected_grad["sigma"])


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
@pytest.mark.parametrize("num_subsets", [1, 4])
def test_a_distribution_of_the_users_own_that_has_no_shapes(lib, num_subsets):
    import torch

    class Mine(lib.dist.Distribution):
        has_enumerate_support = False

        def __init__(self, loc):
            self.loc, self.batch_shape = loc, loc.shape

        def sample(self, *args, **kwargs):
            return self.loc

        def log_prob(self, x, *args, **kwargs):
            return -0.5 * (x - self.loc) ** 2

    def model(x, y):
        a = lib.ppl.sample("a", lib.dist.Normal(0.0, 1.0))
        lib.ppl.sample("y", Mine(a * x), obs=y)

    x, y, a = torch.linspace(-1.0, 1.0, 20), torch.linspace(0.0, 2.0, 20), torch.tensor(0.4)
    potential = lib.split.split_model(model, (x, y), num_subsets=num_subsets)
    expected = 0.5 * ((y - a * x) ** 2).sum() + 0.5 * a**2 + 0.5 * np.log(2 * np.pi)
    torch.testing.assert_close(potential.potential_and_grad({"a": a})[0], expected.double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_latents_of_a_plate_whose_support_moves_are_refused(lib):
    """Draws are mapped by the transforms of the start, so other supports must not be sampled."""

    def model(y):
        width = lib.ppl.sample("width", lib.dist.HalfNormal(lib.array(1.0)))
        with lib.ppl.plate("data", y.shape[0]):
            u = lib.ppl.sample("u", lib.dist.Uniform(-width, width))
            lib.ppl.sample("y", lib.dist.Normal(u, lib.array(1.0)), obs=y)

    with pytest.raises(ModelNotSplittableError, match="support .* must not depend on other latents, got .* u; sample"):
        lib.split.split_model(model, (lib.array(np.linspace(0.0, 1.0, 10)),), num_subsets=2)


def below_another(lib, inside):
    """A latent between 0 and another latent, in the data plate or outside it; and its data."""

    def model(y):
        width = lib.ppl.sample("width", lib.dist.HalfNormal(lib.array(10.0)))
        bounded = lib.dist.Uniform(lib.array(0.0), width)
        u = None if inside else lib.ppl.sample("u", bounded)
        with lib.ppl.plate("data", y.shape[0]):
            u = lib.ppl.sample("u", bounded) if inside else u
            lib.ppl.sample("y", lib.dist.Normal(u, lib.array(1.0)), obs=y)

    return model, lib.array(np.linspace(1.0, 3.0, 10))


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_latents_outside_the_plate_whose_support_moves_are_refused(lib):
    """Where the width starts at 0.3, say, the host and all kernels would never draw above that."""
    model, y = below_another(lib, inside=False)
    with pytest.raises(ModelNotSplittableError, match="support of a latent must not depend on other .* of u; sample"):
        lib.split.split_model(model, (y,), num_subsets=2)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
@pytest.mark.parametrize("inside", [False, True])
def test_undivided_latents_whose_support_moves_are_warned_of(lib, inside):
    """The host takes such a model, and so does one subset."""
    model, y = below_another(lib, inside)
    with pytest.warns(UserWarning, match="draws will be of no posterior: the support of a latent must not depend"):
        lib.split.split_model(model, (y,), num_subsets=1)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_tensors_are_taken_whole(lib, layout):
    import torch

    model, (X, y) = models.plate_from_shape(lib)
    sparse = X.relu().to_sparse(layout=getattr(torch, layout))
    potential = lib.split.split_model(model, (sparse, y), num_subsets=1)
    z = position(lib, {"b": (3,), "s": ()})
    check_against_the_host(lib, potential, model, (X.relu(), y), z, 1e-10)
    with pytest.raises(ModelNotSplittableError, match=rf"X must be a dense tensor .* layout torch.{layout}"):
        lib.split.split_model(model, (sparse, y), num_subsets=3)


@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
@pytest.mark.parametrize("layout", ["BCOO", "BCSR"])
def test_sparse_arrays_are_taken_whole(lib, layout):
    """As many values as rows: a BCSR array that was cut made XLA read beyond its memory, which ended the process."""
    import jax.numpy as jnp
    from jax.experimental import sparse

    model, (X, y) = models.plate_from_shape(lib)
    dense = jnp.where(jnp.arange(X.shape[1]) == jnp.arange(len(X))[:, None] % X.shape[1], X, 0.0)
    X = getattr(sparse, layout).fromdense(dense)
    assert X.nse == len(y)
    z = position(lib, {"b": (3,), "s": ()})
    check_against_the_host(lib, lib.split.split_model(model, (X, y), num_subsets=1), model, (dense, y), z, 1e-10)
    with pytest.raises(ModelNotSplittableError, match=rf"sparse arrays are taken whole, got 'X' \({layout}\)"):
        lib.split.split_model(model, (X, y), num_subsets=3)
    with pytest.raises(ModelNotSplittableError, match=r"data_axes must name dense arrays, got 'X'; sparse arrays"):
        lib.split.split_model(model, (X, y), num_subsets=3, data_axes={"X": 0, "y": 0})


@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
def test_sparse_arrays_beside_the_rows_are_not_cut(lib):
    """Groups mixed by a sparse array with as many values as there are rows."""
    import jax.numpy as jnp
    from jax.experimental import sparse

    def model(A, g, y):
        u = lib.ppl.sample("u", lib.dist.Normal(0.0, 1.0).expand([5]).to_event(1))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal((A @ u)[g], 1.0), obs=y)

    g, y = jnp.arange(25) % 5, jnp.sin(jnp.arange(25.0))
    dense = jnp.sin(jnp.arange(1.0, 26.0)).reshape(5, 5)
    potential = lib.split.split_model(model, (sparse.BCOO.fromdense(dense), g, y), num_subsets=3)
    check_against_the_host(lib, potential, model, (dense, g, y), position(lib, {"u": (5,)}), 1e-10)


def test_what_is_said_where_no_argument_has_a_row_for_each_row(lib):
    data = lib.array(np.linspace(0.0, 1.0, 21))

    def steps(x):
        slope = lib.ppl.sample("slope", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("steps", 20):
            lib.ppl.sample("y", lib.dist.Normal(slope * x[:-1], lib.array(1.0)), obs=x[1:])

    def entries(x):
        with lib.ppl.plate("other", 21):
            u = lib.ppl.sample("u", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", 21):
            lib.ppl.sample("y", lib.dist.Normal(u, lib.array(1.0)), obs=x)

    def vector(x):
        u = lib.ppl.sample("u", lib.dist.Normal(lib.np.zeros(21), lib.array(1.0)).to_event(1))
        with lib.ppl.plate("data", 21):
            lib.ppl.sample("y", lib.dist.Normal(u, lib.array(1.0)), obs=x)

    for model, args, words in [
        (steps, (data,), r"no array has 20 entries along an axis, got shapes \{'x': \(21,\)\}"),
        (lambda: steps(_HELD[lib.name]), (), "the model is given no arrays as arguments"),
        (entries, (data,), r"latent 'u' has an entry for each row \(21\), but in plate 'other'"),
        (vector, (data,), r"latent 'u' has an entry for each row \(21\), but in no plate"),
    ]:
        _HELD[lib.name] = data
        with pytest.raises(lib.split.ModelNotSplittableError, match=words):
            lib.split.split_model(model, args, num_subsets=4)


_HELD = {}  # data that a model takes from where no argument is


@pytest.mark.parametrize("num_subsets", [1, 4])
def test_params_begin_with_values_of_all_rows(lib, num_subsets):
    """As the host's do; they are no latent sites, and stay as they are."""

    def model(y):
        center = lib.ppl.param("center", y.mean())
        mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(mu + center, lib.array(1.0)), obs=y)

    y = np.linspace(-3.0, 5.0, 15)
    potential = lib.split.split_model(model, (lib.array(y),), num_subsets=num_subsets)
    expected = 0.5 * ((y - 0.3 - y.mean()) ** 2).sum() + 0.5 * 0.3**2 + 16 * 0.5 * np.log(2 * np.pi)
    z = {"mu": lib.array(0.3)}
    np.testing.assert_allclose(float(potential.potential_and_grad(z)[0]), expected, rtol=1e-10)
    check_against_the_host(lib, potential, model, (lib.array(y),), z, 1e-10)


@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
@pytest.mark.parametrize(("num_subsets", "is_divided"), [(1, False), (1, True), (4, True)])
def test_params_of_other_data_are_others(lib, num_subsets, is_divided):
    """What is compiled for the first data has their values in it."""

    def model(y):
        center = lib.ppl.param("center", y.mean())
        mu = lib.ppl.sample("mu", lib.dist.Normal(0.0, 1.0))
        if not is_divided:
            lib.ppl.factor("likelihood", lib.dist.Normal(mu + center, 1.0).log_prob(y).sum())
            return
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(mu + center, 1.0), obs=y)

    for y in (np.linspace(-3.0, 5.0, 15), np.linspace(4.0, 9.0, 15)):
        potential = lib.split.split_model(model, (lib.array(y),), num_subsets=num_subsets)
        expected = 0.5 * ((y - 0.3 - y.mean()) ** 2).sum() + 0.5 * 0.3**2 + 16 * 0.5 * np.log(2 * np.pi)
        np.testing.assert_allclose(float(potential.potential_and_grad({"mu": lib.array(0.3)})[0]), expected, rtol=1e-10)


@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
@pytest.mark.parametrize("num_subsets", [1, 4])
@pytest.mark.parametrize("of_a_latent", [False, True], ids=["of the data", "of a latent"])
def test_draws_have_the_supports_of_all_rows_and_of_each_draw(lib, of_a_latent, num_subsets):
    """Also where ``to_event`` hides the bounds from the host, which maps all draws by the bounds at its start."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(X, y):
        s = numpyro.sample("s", dist.LogNormal())
        highest = s * jnp.ones(3) if of_a_latent else jnp.abs(X).max(0)
        scale = numpyro.sample("scale", dist.Uniform(jnp.zeros(3), highest).to_event(1))
        least = numpyro.sample("least", dist.TruncatedNormal(0.0, 1.0, high=-s if of_a_latent else y.min()))
        w = numpyro.sample("w", dist.Normal(least, scale).to_event(1))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)

    X, y = models.data(lib)
    kernel = lib.split.SplitNUTS(model, num_subsets=num_subsets)
    z = position(lib, {"s": (), "scale": (3,), "least": (), "w": (3,)})
    kernel.init(jax.random.key(0), 0, z, (X, y), {})
    found = kernel.postprocess_fn((X, y), {})(z)
    highest = jnp.exp(z["s"]) * jnp.ones(3) if of_a_latent else jnp.abs(X).max(0)
    np.testing.assert_allclose(found["scale"], highest / (1 + jnp.exp(-z["scale"])), rtol=1e-10)
    assert float(found["least"]) < (-float(jnp.exp(z["s"])) if of_a_latent else float(y.min()))
    split = kernel._runs.latest().known_split
    again = split.unconstrain_fn((X, y), {})(found)
    np.testing.assert_allclose(flat(lib, again), flat(lib, z), rtol=1e-9)


@pytest.mark.parametrize(("num_rows", "num_subsets"), [(15, 1), (15, 3), (15, 15), (3000, 3)])
def test_latents_with_as_many_entries_as_rows_have_those_of_all(lib, num_rows, num_subsets):
    """Found on a subset's rows they would be other latents, and a look-up out of range does not fail in JAX."""

    def model(y, g):
        num = y.shape[0]
        u = lib.ppl.sample("u", lib.dist.Normal(lib.np.zeros(num), lib.np.ones(num)).to_event(1))
        pairs = lib.ppl.sample("pairs", lib.dist.Normal(lib.np.zeros(num // 2 + 1), 1.0).to_event(1))
        with lib.ppl.plate("data", num):
            lib.ppl.sample("y", lib.dist.Normal(u[g] + pairs[g // 2], 1.0), obs=y)

    rng = np.random.default_rng(0)
    args = lib.array(rng.normal(size=num_rows)), lib.array(rng.permutation(num_rows))
    potential = lib.split.split_model(model, args, num_subsets=num_subsets)
    z = position(lib, {"u": (num_rows,), "pairs": (num_rows // 2 + 1,)})
    check_against_the_host(lib, potential, model, args, z, 1e-9)
    if num_rows < 100:
        mcmc = lib.run(lib.split.SplitNUTS(model, num_subsets=num_subsets), *args, num_warmup=2, num_samples=2)
        assert lib.to_numpy(mcmc.get_samples()["u"]).shape == (2, num_rows)


def test_a_latent_for_each_row_outside_the_plate_is_no_single_value(lib):
    """Of subsets of one row it would be one value, that all rows share."""

    def model(y, sigma):
        tau = lib.ppl.sample("tau", lib.dist.HalfCauchy(lib.array(5.0)))
        theta = lib.ppl.sample("theta", lib.dist.Normal(lib.array(0.0), tau).expand([len(sigma)]).to_event(1))
        with lib.ppl.plate("data", len(sigma)):
            lib.ppl.sample("y", lib.dist.Normal(theta, sigma), obs=y)

    y = np.linspace(-3.0, 5.0, 8)
    with pytest.raises(ModelNotSplittableError):
        lib.split.split_model(model, (lib.array(y), lib.array(1 + y**2)), num_subsets=8)


def test_rows_that_rest_on_their_neighbours_are_no_minibatches(lib):
    """Deviations from the means of five rows each: subsets of whole fives add up, rows drawn at random do not."""
    y = lib.array(np.sin(np.arange(20.0)))

    def model(x, y):
        b = lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        by_group = (b * x).reshape(-1, 5)
        with lib.ppl.plate("data", y.shape[0]):
            mean = (by_group - by_group.sum(-1)[:, None] / 5).reshape(-1)
            lib.ppl.sample("y", lib.dist.Normal(mean, lib.array(1.0)), obs=y)

    args = lib.array(np.cos(np.arange(20.0))), y
    _, potential = lib.prepared(lib.split.SymmetricSplitHMC(model, num_subsets=4), args)
    check_against_the_host(lib, potential, model, args, position(lib, {"b": ()}), 1e-10)
    for kernel in (
        lib.split.SGLD(model, step_size=1e-4, batch_size=5),
        lib.split.SGHMC(model, num_subsets=4, step_size=1e-4, batch_size=5),
        lib.split.PenaltyMH(model, batch_size=5, num_batches=2),
    ):
        with pytest.raises(ModelNotSplittableError, match="the sum over subsets must equal the model's own potential"):
            lib.prepared(kernel, args)


@pytest.mark.parametrize(
    "of_all",
    [lambda x: 100.0 * x / len(x), lambda x: x - float(x.mean())],
    ids=["the number of rows", "a mean that Python reads"],
)
def test_what_a_sample_of_the_rows_would_not_have(lib, of_all):
    """More rows than the check looks at: numbers of all of them are no others on its sample."""

    def model(x, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", len(x)):
            lib.ppl.sample("y", lib.dist.Normal(w * of_all(x), lib.array(1.0)), obs=y)

    rng = np.random.default_rng(0)
    args = lib.array(1.0 + rng.normal(size=3000)), lib.array(rng.normal(size=3000))
    potential = lib.split.split_model(model, args, num_subsets=3)
    check_against_the_host(lib, potential, model, args, {"w": lib.array(0.7)}, 1e-9)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_what_is_held_of_data_in_another_order_of_memory(lib):
    """Images with their channels last, as seen by a model that has them first."""

    def model(images, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(8), 1.0).to_event(1))
        with lib.ppl.plate("data", len(y)):
            lib.ppl.sample("y", lib.dist.Normal((images - images.mean(0)).flatten(1) @ w, 1.0), obs=y)

    rng = np.random.default_rng(0)
    args = lib.array(rng.normal(size=(12, 2, 2, 2))).permute(0, 3, 1, 2), lib.array(rng.normal(size=12))
    potential = lib.split.split_model(model, args, num_subsets=3)
    check_against_the_host(lib, potential, model, args, position(lib, {"w": (8,)}), 1e-9)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_matrix_that_cannot_be_factorised_is_a_rejection(lib, jit_compile):
    """Also where the density would be finite without the pivots' signs, as PyTorch raises an error of its own."""
    import torch
    from pyro.infer.autoguide.initialization import init_to_value

    def model(y):
        r = lib.ppl.sample("r", lib.dist.Normal(2.0, 1.0))
        root = torch.linalg.cholesky(torch.exp(-((y[:, None] - y) ** 2)) * r + torch.eye(5))
        solved = torch.cholesky_solve(y[:, None], root)[:, 0]
        lib.ppl.factor("likelihood", -0.5 * (y @ solved) - root.diagonal().abs().log().sum())

    start = init_to_value(values={"r": torch.tensor(1.0)})
    options = {"num_subsets": 1, "jit_compile": jit_compile, "init_strategy": start}
    potential = lib.split.split_model(model, (torch.arange(5.0),), **options)
    energies = [float(potential.potential_and_grad({"r": torch.tensor(r)})[0]) for r in (0.5, -0.1, -1.2, -3.0)]
    assert np.isfinite(energies).tolist() == [True, True, False, False]
    assert not np.isfinite(float(potential.energies({"r": torch.tensor(-3.0)}).sum()))


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_a_matrix_that_cannot_be_factorised_is_a_rejection_beside_held_values(lib):
    import torch
    from pyro.infer.autoguide.initialization import init_to_value

    def model(y):
        r = lib.ppl.sample("r", lib.dist.Normal(2.0, 1.0))
        root = torch.linalg.cholesky(torch.ones(5, 5) * r + torch.eye(5))
        scale = torch.cholesky_solve(torch.ones(5, 1), root).abs().sum()
        with lib.ppl.plate("data", len(y)):
            lib.ppl.sample("y", lib.dist.Normal((y - y.mean()) * r, 1.0 + scale), obs=y)

    start = init_to_value(values={"r": torch.tensor(1.0)})
    potential = lib.split.split_model(model, (torch.arange(50.0),), num_subsets=4, init_strategy=start)
    energies = [float(potential.potential_and_grad({"r": torch.tensor(r)})[0]) for r in (0.5, -0.1, -1.2, -3.0)]
    assert np.isfinite(energies).tolist() == [True, True, False, False]


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
@pytest.mark.parametrize("last", [0, 1])
def test_labels_that_are_not_sorted_are_not_warned_of(lib, dtype, last):
    """Truths have no differences, and those of unsigned numbers are never below 0."""
    y = np.append(np.arange(29) % 3 == 0, False) ^ bool(last)

    def model(X, y):
        logit = X @ models.coefficients(lib)
        classes = lib.dist.Categorical(logits=lib.np.stack([0 * logit, logit], -1))
        with lib.ppl.plate("data", len(y)):
            # of both hosts each takes truths in one of the two
            lib.ppl.sample("y", lib.dist.Bernoulli(logits=logit) if lib.name == "numpyro" else classes, obs=y)

    args = models.data(lib, 30)[0], lib.array(y, getattr(lib.np, dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lib.split.split_model(model, args, num_subsets=2)
