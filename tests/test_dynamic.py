"""Trajectories that double or end in windows: what they cost, what they record, and that their draws are exact."""

import importlib
import itertools
import math
from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import scipy.stats

from split_common.schedule import Reversal, Schedule, naive, symmetric
from split_common.termination import Rule
from tests.backends import NumPyroBackend, PyroBackend
from tests.statistics import assert_agree
from tests.test_posteriors import compare, linear_regression

# no search for a first step size, which takes as long to compile as sampling
OPTIONS = {"step_size": 0.1, "find_heuristic_step_size": False}
LENGTHS = {
    "numpyro": {"num_warmup": 300, "num_samples": 500, "num_chains": 8},
    "pyro": {"num_warmup": 300, "num_samples": 2500},
}
slow = pytest.mark.slow
WINDOWS = {"num_steps": 8, "window_size": 3}
KERNELS = [
    pytest.param("SplitNUTS", {}, 5),
    pytest.param("SplitNUTS", {}, 1, marks=slow),
    pytest.param("XHMC", {}, 1),
    pytest.param("XHMC", {}, 5, marks=slow),
    pytest.param("XHMC", {"criterion": "boundary"}, 5, marks=slow),
    pytest.param("XHMC", {"criterion": "mean"}, 1, marks=slow),
    pytest.param("XHMC", {"threshold": "adapt"}, 5, marks=slow),
    pytest.param("WindowedHMC", WINDOWS, 5),
    pytest.param("WindowedHMC", WINDOWS, 1, marks=slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "num_subsets"), KERNELS)
def test_moments_are_exact(lib, name, options, num_subsets):
    """Six moments of a conjugate regression; a false alarm has probability 2.7e-5 each, 0.26 % for all 96."""
    target = linear_regression()
    kernel = getattr(lib.split, name)(target.model(lib), num_subsets=num_subsets, **OPTIONS, **options)
    assert_agree(compare(lib, kernel, target, seed=1, **LENGTHS[lib.name]))


def harmonic(lib, num_rows=6):
    """A standard normal in two dimensions as a sum over ``num_rows`` equal rows."""
    weights = lib.array(np.full(num_rows, 1 / num_rows))
    return lib.split.SplitPotential.from_functions(
        lambda z: 0.0 * z["x"].sum(), lambda z, w: -0.5 * w * (z["x"] ** 2).sum(), weights, 3
    )


def run(lib, kernel, **options):
    start = np.tile([0.5, -0.3], (options["num_chains"], 1)) if "num_chains" in options else np.array([0.5, -0.3])
    return lib.run(kernel, init_params={"x": lib.array(start)}, **options)


@pytest.mark.parametrize("schedule", ["symmetric", "naive"])
@pytest.mark.parametrize("criterion", ["per_length", "boundary"])
def test_statistics_of_a_tree(lib, schedule, criterion):
    kernel = lib.split.XHMC(
        harmonic(lib), schedule=schedule, criterion=criterion, threshold=0.3, step_size=0.4, adapt_step_size=False
    )
    options = {"num_chains": 1} if lib.name == "numpyro" else {}
    mcmc = run(lib, kernel, num_warmup=5, num_samples=30, **options)
    found = {name: x[0] for name, x in lib.statistics(mcmc).items()}
    states, per_step = found["num_steps"], {"symmetric": 4, "naive": 3}[schedule]
    whole = 3 * (states + 1) if (schedule, criterion) == ("symmetric", "per_length") else 0
    np.testing.assert_array_equal(found["num_grads"], per_step * states + whole)
    assert np.all((states >= 2.0 ** (found["tree_depth"] - 1)) & (states <= 2.0 ** found["tree_depth"] - 1))
    assert np.all(found["threshold"] == np.float32(0.3)) or np.all(found["threshold"] == 0.3)
    assert not found["reached_max_treedepth"].any()


def test_depth_limit_is_recorded_and_warned_of(lib):
    """Steps so small that no trajectory turns in three doublings."""
    kernel = lib.split.SplitNUTS(harmonic(lib), max_tree_depth=3, step_size=0.01, adapt_step_size=False)
    options = {"num_chains": 2} if lib.name == "numpyro" else {}
    with pytest.warns(UserWarning, match=r"100% of the first 100 trajectories ended at max_tree_depth=3"):
        found = lib.statistics(run(lib, kernel, num_warmup=0, num_samples=110, **options))
    assert found["reached_max_treedepth"].all()
    assert np.all(found["num_steps"] == 7)
    assert np.all(found["tree_depth"] == 3)


def test_windows_of_one_state_are_plain_hmc_in_cost(lib):
    kernel = lib.split.WindowedHMC(harmonic(lib), num_steps=5, window_size=1, step_size=0.3, adapt_step_size=False)
    options = {"num_chains": 1} if lib.name == "numpyro" else {}
    found = lib.statistics(run(lib, kernel, num_warmup=0, num_samples=5, **options))
    assert np.all(found["num_grads"] == 5 * 4)
    assert np.all(found["num_steps"] == 5)


@pytest.mark.parametrize(("num_steps", "window_size"), [(9, 3), (4, 4)])
def test_windows_hold_as_many_states_as_they_should(lib, num_steps, window_size):
    """Where every state has the same weight: together twice as many, wherever in its window the start is."""
    windows, selection = (
        importlib.import_module(f"{lib.split.__name__}.{name}")
        for name in ("trajectories.windows", "trajectories.selection")
    )
    integrator = lib.integrator(naive(1), lambda z, m: {"x": 0.0 * z["x"]}, lib.np.ones(2))
    z, order = {"x": lib.np.ones(2)}, lib.array([0]) if lib.name == "numpyro" else [0]
    start = integrator.start(z, z, order)
    path = selection.Path(integrator, None, 0.1, order, start, start.energies)
    if lib.name == "numpyro":
        keys, run = lib._jax.random.split(lib._jax.random.key(0), 6), partial(windows.windowed, path)
        choice, visits = lib._jax.jit(lib._jax.vmap(lambda key: run(num_steps, window_size, key)))(keys)
        weights, counts = choice.log_weight, visits.num_states
    else:
        found = [windows.windowed(path, num_steps, window_size) for _ in range(6)]
        weights, counts = zip(*((choice.log_weight, visits.num_states) for choice, visits in found), strict=True)
    np.testing.assert_allclose(weights, math.log(2 * window_size))
    np.testing.assert_array_equal(counts, min(2 * window_size, num_steps + 1) - 1)


def of_doublings(weight, depth):
    """Probability of each state (by its number of steps from the start) of a trajectory of ``depth`` doublings."""
    found = Counter()
    for directions in itertools.product([True, False], repeat=depth):
        states, chosen = range(1), {0: 1.0}
        for forwards in directions:
            size = len(states)
            new = range(states.stop, states.stop + size) if forwards else range(states.start - size, states.start)
            old_weight, new_weight = (sum(map(weight, half)) for half in (states, new))
            moves = min(1.0, new_weight / old_weight)
            chosen = {i: prob * (1 - moves) for i, prob in chosen.items()}
            chosen |= {i: moves * weight(i) / new_weight for i in new}
            states = range(min(states.start, new.start), max(states.stop, new.stop))
        found.update({i: prob / 2**depth for i, prob in chosen.items()})
    return found


def of_windows(weight, num_steps, window_size):
    """Probability of each state of a trajectory of ``num_steps`` steps that is accepted by windows."""
    found = Counter()
    for place in range(window_size):
        states = range(-place, num_steps + 1 - place)
        first, last = (sum(map(weight, window)) for window in (states[:window_size], states[-window_size:]))
        moves = min(1.0, last / first)
        for window, prob in ((states[:window_size], (1 - moves) / first), (states[-window_size:], moves / last)):
            found.update({i: prob * weight(i) / window_size for i in window})
    return found


class Nothing(NamedTuple):
    """Summary of states for a rule that looks at none."""

    @classmethod
    def of(cls, path, state, log_weight, grad):
        return cls()

    def joined(self, second):
        return self

    def reversed(self):
        return self


@pytest.mark.parametrize("kind", ["doublings", "windows"])
def test_each_state_is_chosen_with_its_probability(lib, kind):
    """Of one trajectory whose energies differ by more than one: frequencies by chi-square (false alarm 1e-4).

    Seeds 0 to 4 pass. Choices of halves, of states or of windows with their probabilities exchanged do not.
    """
    doubling, selection, windows = (
        importlib.import_module(f"{lib.split.__name__}.trajectories.{name}")
        for name in ("doubling", "selection", "windows")
    )
    z, p, order = {"x": lib.array([0.5, -0.3])}, {"x": lib.array([1.5, 0.7])}, lib.np.arange(3)
    integrator = lib.potential_integrator(symmetric(3), harmonic(lib), z)
    start = integrator.start(z, p, order)
    path = selection.Path(integrator, None, 4.0, order, start, integrator.energies(start))
    never = Rule(Nothing, lambda *_: lib.array(False))

    states = {0: start}
    for direction, i in itertools.product((-1, 1), range(3)):
        states[direction * (i + 1)] = path.step(states[direction * i], direction)
    weights = {i: math.exp(-float(path.energy_change(s, integrator.energies(s)))) for i, s in states.items()}
    assert max(weights.values()) > 3 * min(weights.values())
    if lib.name == "numpyro":

        def choose(key):
            if kind == "doublings":
                return doubling.doubling(path, never, 2, key).choice.z["x"]
            return windows.windowed(path, 3, 2, key)[0].z["x"]

        chosen = lib._jax.jit(lib._jax.vmap(choose))(lib._jax.random.split(lib._jax.random.key(0), 20_000))
    else:
        lib.np.manual_seed(0)
        chosen = lib.np.stack(
            [
                doubling.doubling(path, never, 2).choice.z["x"]
                if kind == "doublings"
                else windows.windowed(path, 3, 2)[0].z["x"]
                for _ in range(800)
            ]
        )
    places, points = zip(*((i, lib.to_numpy(s.z["x"])) for i, s in states.items()), strict=True)
    distances = np.linalg.norm(lib.to_numpy(chosen)[:, None] - np.array(points), axis=-1)
    assert distances.min(axis=1).max() < 1e-9
    counts = Counter(np.array(places)[distances.argmin(axis=1)].tolist())
    probabilities = of_doublings(weights.get, 2) if kind == "doublings" else of_windows(weights.get, 3, 2)
    kept = [i for i, prob in probabilities.items() if prob > 0]
    assert set(counts) <= set(kept)
    expected = len(chosen) * np.array([probabilities[i] for i in kept])
    assert scipy.stats.chisquare([counts[i] for i in kept], expected).pvalue > 1e-4


@pytest.mark.parametrize("change", [-math.inf, math.nan, math.inf])
def test_an_undefined_change_of_energy_is_refused(lib, change):
    """An energy of minus infinity is a density that has overflowed, not a state to go to."""
    metropolis = importlib.import_module(f"{lib.split.__name__}.trajectories.fixed_length").metropolis
    selection = importlib.import_module(f"{lib.split.__name__}.trajectories.selection")
    decision = metropolis(lib.np.asarray(change) if lib.name == "numpyro" else change, lambda: 0.0)
    assert (bool(decision.accepted), float(decision.accept_prob), bool(decision.diverging)) == (False, 0.0, True)

    z, energies = {"x": lib.np.zeros(2)}, lib.array([0.0, change])
    integrator = lib.potential_integrator(naive(3), harmonic(lib), z)
    start = integrator.start(z, z, lib.np.arange(3))._replace(energies=None)
    found, known = energies, lib.np.zeros(2)
    if lib.name == "numpyro":
        compensated = importlib.import_module("numpyro_split.potential.compensated").Compensated
        found, known = compensated(energies, lib.np.zeros(2)), compensated(known, known)
    path = selection.Path(integrator, None, 0.1, lib.np.arange(3), start, known)
    assert float(path.energy_change(start, found)) == math.inf


CLIFF = [
    ("SymmetricSplitHMC", {"num_steps": 2}),
    ("SplitNUTS", {}),
    ("WindowedHMC", {"num_steps": 3, "window_size": 2}),
]


@pytest.mark.parametrize(("name", "options"), CLIFF)
@pytest.mark.parametrize("backend", [pytest.param(NumPyroBackend, marks=slow), PyroBackend])
def test_no_draw_has_an_overflowing_density(backend, name, options):
    """Of a normal whose density is infinite outside the unit square: its draws stay inside, divergences are marked."""
    lib = backend()

    def log_likelihood(z, w):
        inside = (lib.np.abs(z["x"]) < 1).all()
        return w * lib.np.where(inside, -0.5 * (z["x"] ** 2).sum(), math.inf)

    target = lib.split.SplitPotential.from_functions(
        lambda z: 0.0 * z["x"].sum(), log_likelihood, lib.array(np.full(4, 0.25)), 2
    )
    options = {**options, "step_size": 0.5, "adapt_step_size": False, "find_heuristic_step_size": False}
    chains = {"num_chains": 1} if lib.name == "numpyro" else {}
    mcmc = run(lib, getattr(lib.split, name)(target, **options), num_warmup=0, num_samples=40, **chains)
    found = lib.statistics(mcmc)
    assert np.abs(lib.to_numpy(mcmc.get_samples()["x"])).max() < 1
    assert 0 < found["diverging"].sum() < 40
    assert np.isfinite(found["energy"]).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("XHMC", {"threshold": 0.0}, r"threshold must be 'adapt' or a finite number above 0, got 0.0"),
        ("XHMC", {"threshold": "auto"}, r"threshold must be 'adapt' or a finite number above 0, got 'auto'"),
        ("XHMC", {"criterion": "median"}, r"criterion must be one of .* got 'median'"),
        ("SplitNUTS", {"max_tree_depth": 0}, r"max_tree_depth must be a whole number of at least 1, got 0"),
        (
            "SplitNUTS",
            {"schedule": "leapfrog"},
            r"schedule must be 'symmetric', .* 'single_visit' or a function",
        ),
        ("WindowedHMC", {"num_steps": 4, "window_size": 6}, r"window_size must be at most num_steps \+ 1"),
        ("SplitNUTS", {"max_tree_depth": 31}, r"max_tree_depth must be at most 30, got 31"),
        ("WindowedHMC", {"window_size": 0}, r"window_size must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments(lib, name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(lib.split, name)(lambda: None, num_subsets=2, **options)


def test_a_schedule_of_ones_own(lib):
    def twice(num_subsets):
        """Two naive steps of half the size."""
        rows = [(row.subset, row.kick / 2, row.drift / 2) for row in naive(num_subsets).rows]
        return Schedule("twice", rows + rows, Reversal.PALINDROMIC)

    kernel = lib.split.WindowedHMC(
        harmonic(lib), num_steps=4, window_size=2, schedule=twice, step_size=0.3, adapt_step_size=False
    )
    options = {"num_chains": 1} if lib.name == "numpyro" else {}
    found = lib.statistics(run(lib, kernel, num_warmup=0, num_samples=3, **options))
    assert found["accept_prob"].min() > math.exp(-0.1)


def test_a_merged_tree_is_stopped_by_its_parts():
    """The rule sees every aligned part of a run, once, and a part that meets it refuses the run."""
    from pyro_split.trajectories.doubling import _merge
    from pyro_split.trajectories.termination import Virial

    seen, waiting = [], []

    def holds(first, second, whole):
        seen.append((first.first, first.last, second.last))
        return False

    for i in range(8):
        _merge(waiting, Virial(float(i), float(i), 0.0, None, 1), i, Rule(Virial, holds))
    assert seen == [(0, 0, 1), (2, 2, 3), (0, 1, 3), (4, 4, 5), (6, 6, 7), (4, 5, 7), (0, 3, 7)]


def test_virial_average_of_the_ends_is_that_of_the_rates(lib):
    """On short trajectories, where dG/dt hardly changes, its mean over time and its mean by weight are one."""
    common = {"step_size": 0.01, "max_tree_depth": 3, "adapt_step_size": False, "find_heuristic_step_size": False}
    by_ends = lib.split.SplitNUTS(harmonic(lib), **common)
    by_rates = lib.split.XHMC(harmonic(lib), criterion="mean", threshold=1e-9, **common)
    options = {"num_chains": 1} if lib.name == "numpyro" else {}
    found = [lib.statistics(run(lib, k, num_warmup=0, num_samples=10, seed=3, **options)) for k in (by_ends, by_rates)]
    assert np.all(found[0]["num_steps"] == 7)
    np.testing.assert_allclose(*(x["virial_average"] for x in found), rtol=1e-3, atol=1e-3)


def test_turns_are_seen_at_all_six_places(lib):
    """The rule in one pass agrees with its definition, also where a single one of the six products decides."""
    termination = importlib.import_module(f"{lib.split.__name__}.trajectories.termination")
    rng, decided = np.random.default_rng(0), set()
    for _ in range(400):
        first, second = rng.normal(size=(2, 3, 2)) + rng.normal(size=2)
        p_sums = [first[2] + second[2], first[2] + second[0], first[1] + second[2]]
        ends = [(first[0], second[1]), (first[0], second[0]), (first[1], second[1])]
        turns = [end @ p_sum <= 0 for p_sum, pair in zip(p_sums, ends, strict=True) for end in pair]
        spans = [termination.Momenta(lib.array(rows)) for rows in (first, second)]
        assert bool(termination.turns_back(*spans, spans[0].joined(spans[1]))) == any(turns)
        if sum(turns) == 1:
            decided.add(turns.index(True))
    assert decided == set(range(6))


def test_momenta_of_a_run(lib):
    """Joined two by two, and joined and turned round, those of four states are first, last and sum."""
    termination = importlib.import_module(f"{lib.split.__name__}.trajectories.termination")
    p = np.random.default_rng(0).normal(size=(4, 2))
    one, two, three, four = (termination.Momenta(lib.array(np.tile(row, (3, 1)))) for row in p)
    whole = one.joined(two).joined(three.joined(four))
    np.testing.assert_allclose(lib.to_numpy(whole.rows), [p[0], p[3], p.sum(axis=0)])
    np.testing.assert_allclose(lib.to_numpy(whole.reversed().rows), [p[3], p[0], p.sum(axis=0)])


def test_uniforms_are_each_taken_once():
    """Fifty numbers are those of four blocks, in order, and of each chain its own."""
    import jax

    from numpyro_split.trajectories.selection import AT_A_TIME, Uniforms

    def fifty(key):
        return jax.lax.scan(lambda uniforms, _: uniforms.take()[::-1], Uniforms.of(key), length=50)[1]

    keys = jax.random.split(jax.random.key(0), 3)
    blocks = [
        [jax.random.uniform(jax.random.fold_in(key, start), (AT_A_TIME,)) for start in range(0, 50, AT_A_TIME)]
        for key in keys
    ]
    expected = np.array(blocks).reshape(3, -1)[:, :50]
    np.testing.assert_array_equal(jax.vmap(fifty)(keys), expected)
    np.testing.assert_array_equal(fifty(keys[1]), expected[1])


@pytest.mark.slow
def test_threshold_adapts_in_warmup_and_stays(lib):
    """In warm-up until draws of the wide coordinate correlate by about one half (0.14 to 0.77 in 100 runs)."""
    scales = np.array([1.0, 20.0])
    target = lib.split.SplitPotential.from_functions(
        lambda z: 0.0 * z["x"].sum(),
        lambda z, w: -0.5 * w * ((z["x"] / lib.array(scales)) ** 2).sum(),
        lib.array(np.full(4, 0.25)),
        1,
    )
    kernel = lib.split.XHMC(
        target, threshold="adapt", adapt_mass_matrix=False, adapt_step_size=False, step_size=1.0, max_tree_depth=8
    )
    options = {"num_chains": 1} if lib.name == "numpyro" else {}
    mcmc = run(lib, kernel, num_warmup=600, num_samples=600, **options)
    assert len(set(lib.statistics(mcmc)["threshold"][0])) == 1
    wide = lib.to_numpy(mcmc.get_samples()["x"]).reshape(-1, 2)[:, 1]
    correlation = np.corrcoef(wide[1:], wide[:-1])[0, 1]
    assert 0.1 < correlation < 0.8


def test_draws_of_a_window_agree_between_packages():
    from numpyro_split.adaptation.threshold import Draws as NumPyroDraws
    from pyro_split.adaptation.threshold import Draws as PyroDraws

    numpyro, pyro = NumPyroBackend(), PyroBackend()
    path = np.random.default_rng(0).normal(size=(20, 3)).cumsum(0) * [1.0, 0.1, 3.0]
    one, other = NumPyroDraws.none(numpyro.array(path[0])), PyroDraws.none(pyro.array(path[0]))
    for old, new in itertools.pairwise(path):
        one = one.add(numpyro.array(old), numpyro.array(new))
        other = other.add(pyro.array(old), pyro.array(new))
    changes = np.mean(np.diff(path, axis=0) ** 2, axis=0) / (2 * path[1:].var(0))
    weights = changes**-4.0
    expected = np.sum(weights * (path[-1] - path[-2]) ** 2 / (2 * path[1:].var(0))) / weights.sum()
    for found in (
        one.change_of_slowest(numpyro.array(path[-2]), numpyro.array(path[-1])),
        other.change_of_slowest(pyro.array(path[-2]), pyro.array(path[-1])),
    ):
        np.testing.assert_allclose(float(found), expected, rtol=1e-5)


def test_threshold_does_not_fall_at_the_depth_limit(lib):
    """Of steps so small that no coordinate moves and nearly every trajectory ends at the limit (else below 1e-4)."""
    kernel = lib.split.XHMC(
        harmonic(lib), threshold="adapt", max_tree_depth=2, step_size=1e-4, adapt_step_size=False, schedule="naive"
    )
    options = {"num_chains": 1} if lib.name == "numpyro" else {}
    found = lib.statistics(run(lib, kernel, num_warmup=150, num_samples=2, **options))
    assert found["threshold"].min() > 0.01
