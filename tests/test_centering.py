"""Centred splitting: sums that vanish, steps that are undone, draws that are exact, and a center that is off where it
does not help.
"""

import importlib

import arviz as az
import numpy as np
import pytest
from jax import random

from split_common.schedule import single_visit, symmetric
from tests import kernels
from tests.backends import NumPyroBackend, PyroBackend
from tests.statistics import assert_agree, compare_moments

NUM_ROWS, DIM, NUM_SUBSETS = 60, 3, 4
LENGTHS = {
    "numpyro": {"num_warmup": 150, "num_samples": 1500, "num_chains": 4, "chain_method": "vectorized"},
    "pyro": {"num_warmup": 150, "num_samples": 2000},
}


def logistic(lib):
    """A potential of a logistic regression with an intercept, from functions, and its data."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(NUM_ROWS, DIM)), rng.integers(0, 2, NUM_ROWS).astype(float)

    def log_likelihood(z, rows):
        X, y = rows
        logits = X @ z["w"] + z["a"]
        return y * logits - lib.np.logaddexp(0.0 * logits, logits)

    def log_prior(z):
        return -0.5 * (z["w"] ** 2).sum() - 0.5 * z["a"] ** 2

    data = lib.array(X), lib.array(y)
    return lib.split.SplitPotential.from_functions(log_prior, log_likelihood, data, NUM_SUBSETS)


def position(lib, seed=0):
    rng = np.random.default_rng(seed)
    return {"a": lib.array(rng.normal(size=())), "w": lib.array(rng.normal(size=DIM))}


def centred(lib, potential, reference, order, sites=("a", "w")):
    """The potential, centred."""
    module = importlib.import_module(f"{lib.split.__name__}.potential.centering")
    center = module.Center.at(potential, reference, sites, order == 2 if lib.name == "numpyro" else order)
    return module.CenteredPotential(potential, center)


def grads(lib, potential, z):
    """Gradients of the subsets, one to a row."""
    found = [potential.subset_energies_and_grad(z, m)[1] for m in range(NUM_SUBSETS)]
    return np.stack([np.concatenate([np.ravel(lib.to_numpy(grad[name])) for name in sorted(z)]) for grad in found])


@pytest.mark.parametrize("order", [1, 2])
def test_the_kicks_sum_to_the_gradient_wherever_the_reference_is(lib, order):
    potential, z = logistic(lib), position(lib)
    plain, found = grads(lib, potential, z), grads(lib, centred(lib, potential, position(lib, 1), order), z)
    assert np.abs(found - plain).max() > 0.1
    np.testing.assert_allclose(found.sum(0), plain.sum(0), atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_at_the_reference_all_subsets_kick_alike(lib, order):
    """And of second order, near it too: what is left is of the order of the distance, or of its square."""
    potential, z = logistic(lib), position(lib)
    followed = centred(lib, potential, z, order)
    found = grads(lib, followed, z)
    np.testing.assert_allclose(found, np.broadcast_to(found.mean(0), found.shape), atol=1e-12)
    left = []
    for distance in (1e-2, 1e-3):
        near = {name: u + distance for name, u in z.items()}
        of_subsets = grads(lib, followed, near)
        left.append(np.abs(of_subsets - of_subsets.mean(0)).max())
    assert np.log10(left[0] / left[1]) == pytest.approx(order, abs=0.05)


def test_sites_that_are_left_out_kick_as_before(lib):
    potential, z = logistic(lib), position(lib)
    plain, found = grads(lib, potential, z), grads(lib, centred(lib, potential, position(lib, 1), 2, ("w",)), z)
    np.testing.assert_array_equal(found[:, 0], plain[:, 0])
    np.testing.assert_allclose(found.sum(0), plain.sum(0), atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_the_packages_agree(order):
    found = []
    for lib in (NumPyroBackend(), PyroBackend()):
        with lib.double_precision():
            found.append(grads(lib, centred(lib, logistic(lib), position(lib, 1), order), position(lib)))
    np.testing.assert_allclose(*found, atol=1e-12)


@pytest.mark.parametrize("build", [symmetric, single_visit])
@pytest.mark.parametrize("order", [1, 2])
def test_steps_are_undone_and_preserve_volume(lib, build, order):
    followed = centred(lib, logistic(lib), position(lib, 1), order)
    integrator = lib.potential_integrator(build(NUM_SUBSETS), followed, position(lib))
    forwards = np.array([2, 0, 3, 1])
    backwards = forwards[::-1].copy() if build is single_visit else forwards

    def run(x, order):
        order = lib.np.asarray(order) if lib.name == "numpyro" else order.tolist()
        z, p = ({"a": lib.array(u[0]), "w": lib.array(u[1:])} for u in (x[: DIM + 1], x[DIM + 1 :]))
        state = integrator.start(z, p, order)
        for _ in range(5):
            state = integrator.step(state, 0.2, order)
        ends = [np.ravel(lib.to_numpy(u[name])) for u in (state.z, state.p) for name in ("a", "w")]
        return np.concatenate(ends)

    x, flip = np.random.default_rng(2).normal(size=2 * (DIM + 1)), np.repeat([1.0, -1.0], DIM + 1)
    np.testing.assert_allclose(flip * run(flip * run(x, forwards), backwards), x, atol=1e-10)
    h, basis = 1e-6, np.eye(len(x))
    jacobian = np.stack([(run(x + h * e, forwards) - run(x - h * e, forwards)) / (2 * h) for e in basis], axis=1)
    assert abs(np.linalg.det(jacobian) - 1) < 1e-6


def pulled(lib):
    """Independent gamma-like coordinates, of density exp(3u - exp(u)), in subsets that pull to modes of their own."""
    rng = np.random.default_rng(1)
    shares, pulls = rng.dirichlet(np.full(6, 2.0)), rng.normal(size=(6, 2)) * 2
    pulls -= pulls.mean(0)

    def log_likelihood(z, rows):
        shares, pulls = rows
        x = z["x"]
        return shares.sum() * (3 * x - lib.np.exp(x)).sum() + (pulls @ x).sum()

    data = lib.array(shares), lib.array(pulls)
    return lib.split.SplitPotential.from_functions(lambda z: 0.0 * z["x"].sum(), log_likelihood, data, 3)


def comparisons(lib, name, **options):
    """exp(x) of the draws beside its law, Gamma(3, 1)."""
    lengths = LENGTHS[lib.name]
    num_chains = lengths.get("num_chains", 1)
    start = lib.array(np.ones((num_chains, 2) if num_chains > 1 else 2))
    kernel = getattr(lib.split, name)(pulled(lib), **options)
    mcmc = lib.run(kernel, init_params={"x": start}, **lengths)
    x = np.exp(lib.to_numpy(mcmc.get_samples(group_by_chain=True)["x"]))
    return compare_moments("gamma", x, np.full(2, 3.0), np.full(2, 3.0))


FAR = {"x": [4.0, -2.0]}  # some three standard deviations from the mode in each direction
VISITS = {"schedule": "single_visit", "trajectory_length": 1.5, "step_size_jitter": 0.5}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SplitHMC", {"center": "auto", **VISITS}),
        ("SplitHMC", {"center": FAR, "center_order": 2, **VISITS}),
        pytest.param("SymmetricSplitHMC", {"center": FAR}, marks=pytest.mark.slow),
        pytest.param(
            "SplitNUTS",
            {"center": "auto", "center_order": 2, "schedule": "single_visit"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "XHMC",
            {"center": FAR, "schedule": "single_visit", "criterion": "boundary", "threshold": 0.5},
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*max_tree_depth")
def test_draws_are_exact(lib, name, options):
    assert_agree(comparisons(lib, name, **options))


@pytest.mark.parametrize("order", [1, 2])
def test_a_reference_that_moves_with_the_state_does_not_lead_back(lib, order):
    """Control: about the start of each trajectory, which differs there and back."""
    potential, z = logistic(lib), position(lib)
    moment = position(lib, 3)
    subsets = lib.np.arange(NUM_SUBSETS) if lib.name == "numpyro" else list(range(NUM_SUBSETS))

    def trajectory(z, p, reference):
        followed = centred(lib, potential, reference, order)
        integrator = lib.potential_integrator(symmetric(NUM_SUBSETS), followed, z)
        state = integrator.start(z, p, subsets)
        for _ in range(3):
            state = integrator.step(state, 0.5, subsets)
        return state.z, {name: -u for name, u in state.p.items()}

    def distance(x, y):
        return max(np.abs(lib.to_numpy(x[name] - y[name])).max() for name in x)

    end = trajectory(z, moment, z)
    assert distance(trajectory(*end, z)[0], z) < 1e-10
    assert distance(trajectory(*end, end[0])[0], z) > 1e-4


def test_differences_that_do_not_sum_to_nothing_cost_acceptance(lib, monkeypatch):
    """Control: the decision still rests on all rows, so draws stay exact, but trajectories go astray."""
    centering = importlib.import_module(f"{lib.split.__name__}.potential.centering")
    right, runs = centering.grad_differences, []
    for shift in (0.0, 3.0):
        monkeypatch.setattr(
            centering, "grad_differences", lambda *args, s=shift: {k: g + s for k, g in right(*args).items()}
        )
        kernel = lib.split.SplitHMC(
            pulled(lib), center={"x": [1.0, 1.0]}, step_size=1.0, adapt_step_size=False, num_steps=1,
            schedule="single_visit", adapt_mass_matrix=False,
        )  # fmt: skip
        mcmc = lib.run(kernel, init_params={"x": lib.array(np.ones(2))}, num_warmup=0, num_samples=100)
        runs.append(float(np.mean(lib.statistics(mcmc)["accept_prob"])))
    assert runs[0] > 0.6
    assert runs[1] < runs[0] - 0.3


@pytest.mark.parametrize("adapts", [True, False], ids=["adapting", "with a step size and metric of before"])
def test_second_order_is_found_to_be_best_near_a_normal_posterior(lib, adapts):
    known = {} if adapts else {"step_size": 0.2, "adapt_step_size": False, "adapt_mass_matrix": False}
    kernel = lib.split.SplitHMC(logistic(lib), center="auto", **VISITS, **known)
    mcmc = lib.run(kernel, init_params=position(lib), num_warmup=150, num_samples=10)
    assert set(np.ravel(lib.statistics(mcmc)["center_order"])) == {2}


@pytest.mark.parametrize(
    ("name", "options"),
    [pytest.param("S3HMC", {}, marks=pytest.mark.slow), ("BlockGibbsHMC", {"trajectory": "hmc"})],
)
@pytest.mark.filterwarnings("ignore")
def test_precisions_are_left_out(lib, name, options):
    """Found, or of the one order that is asked for; the draws' law is that of the kernel without centring."""
    problem = kernels.small(lib)
    draws = []
    for centring in ({}, {"center": "auto", "center_order": 2}):
        kernel = getattr(lib.split, name)(problem.model, 3, **options, **centring)
        mcmc = lib.run(kernel, *problem.args, num_warmup=150, num_samples=1000)
        draws.append(lib.to_numpy(mcmc.get_samples(group_by_chain=True)["a"]))
    assert set(np.ravel(lib.statistics(mcmc)["center_order"])) <= {0, 2}
    plain, centred = draws
    size = min(float(az.ess(x)) for x in draws)
    assert size > 100
    assert abs(plain.mean() - centred.mean()) < 4.5 * plain.std() * (2 / size) ** 0.5


def centers_of_a_moved_chain(lib, kernel, args, moved):
    """Where a chain's splitting is centred, before and after an outer kernel gives it another position."""
    if lib.name == "numpyro":
        state = kernel.init(random.key(0), 0, None, args, {})
        return state.centering.center, kernel.refresh(state._replace(z=moved), args, {}).centering.center
    kernel.setup(0, *args)
    before = kernel._chain.state.centering.center
    kernel.sample(moved)
    return before, kernel._chain.state.centering.center


@pytest.mark.filterwarnings("ignore")
def test_an_outer_kernel_moves_the_chain_and_not_the_center(lib):
    """Gradients at the center depend on the latents of the rows: on the reference's, not on the chain's."""
    rng = np.random.default_rng(0)

    def model(y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", len(y)):
            u = lib.ppl.sample("u", lib.dist.Normal(mu, 1.0))
            lib.ppl.sample("y", lib.dist.Normal(u, 1.0), obs=y)

    y = lib.array(rng.normal(size=NUM_ROWS))
    center = {"mu": lib.array(0.2), "u": lib.array(rng.normal(size=NUM_ROWS))}
    moved = {"mu": lib.array(0.5), "u": lib.array(5.0 * rng.normal(size=NUM_ROWS))}
    kernel = lib.split.SymmetricSplitHMC(model, NUM_SUBSETS, center=center, num_steps=1)
    before, after = centers_of_a_moved_chain(lib, kernel, (y,), moved)
    assert set(before.grads) == {"mu"}
    assert np.abs(lib.to_numpy(before.grads["mu"])).max() > 0.1
    for x, expected in ((after.grads["mu"], before.grads["mu"]), *((after.reference[k], center[k]) for k in center)):
        np.testing.assert_array_equal(lib.to_numpy(x), lib.to_numpy(expected))


def crooked(lib):
    """A potential whose subsets' forces at one place say nothing of those at another: waves of their own."""
    waves = np.array([5.0, 7.0, 11.0, 13.0])

    def log_likelihood(z, rows):
        return (lib.np.cos(rows * z["x"][0]) * 2.0 - 0.125 * z["x"][0] ** 2).sum()

    return lib.split.SplitPotential.from_functions(
        lambda z: 0.0 * z["x"].sum(), log_likelihood, lib.array(waves), NUM_SUBSETS
    )


@pytest.mark.filterwarnings("ignore")
def test_where_it_does_not_help_it_is_off_and_changes_no_draw(lib):
    draws, start = [], lib.array(np.ones(1))
    for options in ({}, {"center": "auto"}):
        kernel = lib.split.SymmetricSplitHMC(crooked(lib), **options)
        mcmc = lib.run(kernel, init_params={"x": start}, num_warmup=100, num_samples=30)
        draws.append(lib.to_numpy(mcmc.get_samples()["x"]))
    assert set(np.ravel(lib.statistics(mcmc)["center_order"])) == {0}
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"center": "mode"}, "center must be None, 'auto' or a dict of unconstrained values by site, got 'mode'"),
        ({"center": {}}, "center must be None, 'auto' or a dict"),
        ({"center": {"x": [np.nan]}}, "center must map names of sites to finite real values"),
        ({"center": "auto", "center_order": 3}, "center_order must be at most 2, got 3"),
        ({"center_order": 1}, "center_order must be None where center is None, got 1"),
    ],
)
def test_bad_arguments(lib, options, message):
    with pytest.raises(ValueError, match=message):
        lib.split.SplitNUTS(lambda: None, 2, **options)


def test_a_reference_of_other_sites_is_refused(lib):
    kernel = lib.split.SplitHMC(logistic(lib), center={"w": np.zeros(DIM)})
    with pytest.raises(
        ValueError, match=r"center must have the unconstrained values of the latent sites.*got \{'w': 3\}"
    ):
        lib.run(kernel, init_params=position(lib))
