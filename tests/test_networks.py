"""Networks in a model: their parameters and sites, what they compute against the frameworks' own, and a run."""

from functools import partial

import numpy as np
import pytest

from tests.test_priors import priors, shapes_of, trace_of


def networks(lib):
    if lib.name == "numpyro":
        from numpyro_split import networks
    else:
        from pyro_split import networks
    return networks


def lifted(lib, module, prior, x):
    """The values of a module's sites by name, and its output at them."""

    def run():
        outputs = []
        sites = trace_of(lib, lambda: outputs.append(networks(lib).random_module("net", module, prior)(x)))
        return {name: site["value"] for name, site in sites.items() if name.startswith("net.")}, outputs[0]

    if lib.name == "numpyro":
        import jax

        run = jax.jit(run)
    values, output = run()
    return {name.removeprefix("net."): lib.to_numpy(x) for name, x in values.items()}, lib.to_numpy(output)


def torch_output(module, values, x):
    """What a PyTorch module computes with given parameters set in place."""
    import torch

    module.load_state_dict({path: torch.tensor(x) for path, x in values.items()})
    with torch.no_grad():
        return module(torch.as_tensor(x)).numpy()


def test_mlp_computes_what_pytorch_does(lib):
    from torch import nn

    x = np.random.default_rng(0).normal(size=(4, 3))
    values, found = lifted(lib, networks(lib).mlp([3, 5, 2, 1]), priors(lib).normal, lib.array(x))
    own = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2), nn.Tanh(), nn.Linear(2, 1))
    np.testing.assert_allclose(found, torch_output(own, values, x), rtol=1e-12)


def test_mlp_without_biases_and_with_an_activation_of_ones_own(lib):
    module = networks(lib).mlp([2, 3, 1], lambda x: 2 * x, bias=False)
    values, found = lifted(lib, module, priors(lib).normal, lib.array(np.eye(2)))
    assert list(values) == ["0.weight", "2.weight"]
    np.testing.assert_allclose(found, 2 * values["0.weight"].T @ values["2.weight"].T)


def test_cnn_of_the_paper_has_431080_parameters(lib):
    module = networks(lib).cnn()
    shapes, _ = shapes_of(lib, lambda: networks(lib).random_module("net", module, priors(lib).normal))
    assert list(shapes.values()) == [(20, 1, 5, 5), (20,), (50, 20, 5, 5), (50,), (500, 800), (500,), (10, 500), (10,)]
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 431_080


def test_cnn_computes_what_pytorch_does(lib):
    """On images that are in colour, not square, and of odd sides where they are pooled."""
    from torch import nn

    x = np.random.default_rng(0).normal(size=(2, 3, 15, 12))
    module = networks(lib).cnn((3, 15, 12), 2, channels=(4, 5), kernel_size=3, hidden=(6,))
    values, found = lifted(lib, module, priors(lib).normal, lib.array(x))
    own = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(5 * 2 * 1, 6), nn.ReLU(), nn.Linear(6, 2)),
    )
    np.testing.assert_allclose(found, torch_output(own, values, x), rtol=1e-9)


def test_equinox_module_computes_what_it_does():
    import equinox as eqx
    import jax

    from tests.backends import NumPyroBackend

    lib = NumPyroBackend()
    module = eqx.nn.MLP(3, 2, width_size=5, depth=1, key=jax.random.key(0))
    values, found = lifted(lib, module, priors(lib).normal, lib.array(np.ones(3)))
    assert sorted(values) == ["layers.0.bias", "layers.0.weight", "layers.1.bias", "layers.1.weight"]
    own = eqx.tree_at(
        lambda m: [m.layers[0].bias, m.layers[0].weight, m.layers[1].bias, m.layers[1].weight],
        module,
        [jax.numpy.asarray(values[path]) for path in sorted(values)],
    )
    np.testing.assert_allclose(found, own(lib.array(np.ones(3))), rtol=1e-12)


def test_flax_module_computes_what_it_does():
    """With its units along the last axis, and no parameter site of the host's left in the model."""
    nnx = pytest.importorskip("flax.nnx")
    from tests.backends import NumPyroBackend

    lib = NumPyroBackend()
    module = nnx.Sequential(nnx.Linear(3, 5, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(5, 2, rngs=nnx.Rngs(1)))
    per_unit = {"kernel": partial(priors(lib).normal_gamma, per_unit=True), "bias": priors(lib).normal}
    shapes, _ = shapes_of(lib, lambda: networks(lib).random_module("net", module, per_unit))
    assert shapes["net.layers.0.kernel_precision"] == (5,)
    values, found = lifted(lib, module, priors(lib).normal, lib.array(np.ones((4, 3))))
    assert sorted(values) == ["layers.0.bias", "layers.0.kernel", "layers.2.bias", "layers.2.kernel"]
    hidden = np.maximum(np.ones((4, 3)) @ values["layers.0.kernel"] + values["layers.0.bias"], 0)
    np.testing.assert_allclose(found, hidden @ values["layers.2.kernel"] + values["layers.2.bias"], rtol=1e-12)


def test_each_parameter_has_its_own_prior(lib):
    """By whole path first, then by its last part; units of these layers lie along axis 0, unless bound otherwise."""
    p = priors(lib)
    prior = {
        "0.weight": partial(p.normal_gamma, per_unit=True),
        "2.weight": partial(p.normal_gamma, per_unit=True, unit_axis=-1),
        "weight": p.horseshoe,
        "bias": lambda name, shape: 0.0 * lib.np.ones(shape),
    }
    module = networks(lib).mlp([3, 5, 4, 2])
    shapes, _ = shapes_of(lib, lambda: networks(lib).random_module("net", module, prior))
    assert shapes["net.0.weight_precision"] == (5,)
    assert shapes["net.2.weight_precision"] == (5,)
    assert shapes["net.4.weight_local_scale"] == (2, 4)
    assert not any("bias" in name for name in shapes)  # a prior may also fix a parameter


def test_width_scaling_counts_the_inputs(lib):
    values, _ = lifted(lib, networks(lib).mlp([400, 2]), priors(lib).width_scaled_normal, lib.array(np.ones((1, 400))))
    weight = values["0.weight"]
    assert weight.shape == (2, 400)
    assert 0.8 < weight.std() * 20 < 1.2  # within 20 %: 5.6 standard errors


def network_model(lib, module, bias):
    p = priors(lib)
    prior = {"0.weight": partial(p.normal_gamma, concentration=2.0, rate=2.0, per_unit=True), "weight": p.normal}
    if bias:
        prior["bias"] = p.normal

    def model(X, y):
        net = networks(lib).random_module("net", module, prior)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(net(X)[:, 0], 0.1), obs=y)

    return model


def test_run_on_split_data(lib):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9, 1))
    model = network_model(lib, networks(lib).mlp([1, 3, 1], bias=False), bias=False)
    kernel = lib.split.SymmetricSplitHMC(
        model, num_subsets=2, step_size=1e-3, num_steps=2, adapt_step_size=False, adapt_mass_matrix=False
    )
    start = {"net.0.weight": np.ones((3, 1)), "net.0.weight_precision": np.zeros(3), "net.2.weight": np.ones((1, 3))}
    data, start = (lib.array(X), lib.array(np.sin(X[:, 0]))), {name: lib.array(x) for name, x in start.items()}
    mcmc = lib.run(kernel, *data, num_warmup=0, num_samples=5, init_params=start)
    samples = mcmc.get_samples()
    assert sorted(samples) == ["net.0.weight", "net.0.weight_precision", "net.2.weight"]
    weight = lib.to_numpy(samples["net.0.weight"])
    assert weight.shape == (5, 3, 1)
    assert len(np.unique(weight[:, 0, 0])) > 1
    assert np.all(np.isfinite(weight))


def test_cnn_can_be_split():
    """Pyro's traced gradient of a convolution; the split is checked in value and gradient."""
    from tests.backends import PyroBackend

    lib = PyroBackend()
    module = networks(lib).cnn((1, 6, 6), 1, channels=(2,), kernel_size=3, hidden=())
    images = lib.array(np.random.default_rng(0).normal(size=(5, 1, 6, 6)))
    y = lib.array(np.zeros(5))
    assert lib.split.split_model(network_model(lib, module, bias=True), (images, y), num_subsets=2).num_subsets == 2


@pytest.mark.parametrize(
    ("prior", "error", "message"),
    [
        (3, TypeError, r"prior must be callable, got int"),
        ({"weight": 3, "bias": 3}, TypeError, r"prior\['weight'\] must be callable, got int"),
        (
            {"weight": len},
            ValueError,
            r"prior must name each parameter.*got none for \['0.bias'\] and unknown names \[\]",
        ),
        (
            {"weight": len, "bias": len, "1.bias": len},
            ValueError,
            r"of \['0.weight', '0.bias'\], got none for \[\] and unknown names \['1.bias'\]",
        ),
        (
            lambda name, shape: np.zeros(3),
            ValueError,
            r"prior must return an array of shape \(2, 3\) for parameter '0.weight', got \(3,\)",
        ),
        (lambda name, shape: None, ValueError, r"of shape \(2, 3\) for parameter '0.weight', got NoneType"),
    ],
)
def test_bad_priors(lib, prior, error, message):
    with pytest.raises(error, match=message):
        networks(lib).random_module("net", networks(lib).mlp([3, 2]), prior)


def test_a_distribution_is_no_prior(lib):
    with pytest.raises(TypeError, match=r"prior must be a function \(name, shape\) -> weights.*distribution Normal"):
        networks(lib).random_module("net", networks(lib).mlp([3, 2]), lib.dist.Normal(0.0, 1.0))


def test_bad_modules(lib):
    with pytest.raises(TypeError, match="module must be .*, got int"):
        networks(lib).random_module("net", 3, priors(lib).normal)
    empty = len if lib.name == "numpyro" else lib.np.nn.Identity()
    with pytest.raises(ValueError, match="module must hold floating-point parameters, got none"):
        networks(lib).random_module("net", empty, priors(lib).normal)


@pytest.mark.parametrize(
    ("helper", "args", "options", "message"),
    [
        ("mlp", ([3],), {}, r"widths must be a sequence of at least 2 widths, got \[3\]"),
        ("mlp", ([3, 0],), {}, r"widths\[1\] must be a whole number of at least 1, got 0"),
        ("mlp", ([3, 2], "gelu"), {}, r"activation must be one of \['tanh', 'relu'\], got 'gelu'"),
        ("cnn", ((28, 28),), {}, r"image_shape must be a sequence of at least 3 widths, got \(28, 28\)"),
        ("cnn", ((1, 1, 28, 28),), {}, r"image_shape must be \(channels, height, width\), got \(1, 1, 28, 28\)"),
        ("cnn", ((1, 12, 28),), {}, r"image_shape must leave at least one pixel after 2 conv.*got \(1, 12, 28\)"),
        ("cnn", (), {"kernel_size": 0}, r"kernel_size must be a whole number of at least 1, got 0"),
        ("cnn", (), {"channels": ()}, r"channels must be a sequence of at least 1 widths, got \(\)"),
        ("cnn", ((1, 28, 28), 0), {}, r"num_outputs must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_sizes(lib, helper, args, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(networks(lib), helper)(*args, **options)


def test_same_functions_and_defaults():
    import inspect

    from numpyro_split import networks as ours
    from pyro_split import networks as theirs

    for name in ("random_module", "mlp", "cnn"):
        first, second = (inspect.signature(getattr(module, name)).parameters.values() for module in (ours, theirs))
        assert [(p.name, p.kind, p.default) for p in first] == [(p.name, p.kind, p.default) for p in second], name


def test_a_network_in_training_is_not_changed_by_its_draws():
    torch = pytest.importorskip("torch")
    from pyro_split import networks, priors

    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    before = {name: x.clone() for name, x in network.state_dict().items()}
    networks.random_module("net", network, priors.normal)(torch.randn(10, 3))
    for name, x in network.state_dict().items():
        assert torch.equal(x, before[name])
