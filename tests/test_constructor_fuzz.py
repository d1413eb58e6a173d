"""Nasty values for random arguments of every kernel: each is refused by name and value, or is a value that makes sense.

What makes sense is said here again, argument by argument, without the rules of ``split_common``; only the way a message
shows a value is taken from there. Of every call is asked:

* a value that makes no sense raises ``ValueError`` or ``TypeError``, with the argument's name and the value's repr;
* a value that makes sense, given alone, is taken, unless the rule is one between two arguments;
* it takes less than a second and little memory, and a kernel that was made has a repr of one line.

``python -m tests.test_constructor_fuzz --calls 6000 --seed 1`` makes more calls, and counts what went wrong.
"""

import argparse
import functools
import inspect
import time
import tracemalloc
import warnings
from collections import Counter, OrderedDict
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from split_common.schedule import Schedule, naive, randomised, symmetric
from split_common.stochastic_gradient import polynomial_decay
from split_common.values import shown

KERNELS = [
    "SymmetricSplitHMC",
    "NaiveSplitHMC",
    "RandomisedSplitHMC",
    "SplitNUTS",
    "XHMC",
    "WindowedHMC",
    "S3HMC",
    "BlockGibbsHMC",
    "PenaltyMH",
    "SGLD",
    "SGHMC",
]
FAULTS = [
    "bare error",
    "missing name",
    "missing repr",
    "accepted nonsense",
    "refused sense",
    "slow",
    "large memory",
    "faulty repr",
]
SEED, CALLS = 0, 200  # of the default test, for each kernel of each package
MAX_SECONDS, MAX_BYTES = 1.0, 50e6
# Whether such a value is taken depends on another argument.
OF_SEVERAL = {
    *("num_steps", "trajectory_length", "window_size", "friction", "noise_estimate"),
    *("center_order", "metric", "drift", "dense_mass", "full_mass", "adapt_mass_matrix"),
    *("proposal", "control_variate", "hessian_rank", "gradient", "memory"),
}


# --- what makes sense ------------------------------------------------------------------------------------------------


def number(value):
    """A real number as Python's own, or None."""
    if type(value) in (int, float, Fraction):
        return value
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    is_scalar = getattr(value, "shape", None) == () and dtype.startswith(("int", "uint", "float"))
    return value.item() if is_scalar else None


def count(most=None):
    def makes_sense(value):
        found = number(value)
        return type(found) is int and 1 <= found and (most is None or found <= most)

    return makes_sense


def real(value):
    """A finite real number as a float, or NaN."""
    found = number(value)
    try:
        return np.nan if found is None else float(found)
    except OverflowError:
        return np.nan


def positive(value):
    return 0 < real(value) < np.inf


def between(low, high, includes_low=False, includes_high=False):
    def makes_sense(value):
        found = real(value)
        return low < found < high or (includes_low and found == low) or (includes_high and found == high)

    return makes_sense


def flag(value):
    return type(value) in (bool, np.bool_)


def choice(*names):
    return lambda value: isinstance(value, str) and str(value) in names


def name(value):
    return isinstance(value, str) and str(value) != ""


def axes(value):
    return isinstance(value, dict) and all(
        name(key) and (axis is None or (type(number(axis)) is int and number(axis) >= 0)) for key, axis in value.items()
    )


def array(value):
    """Finite real numbers as NumPy's, or None."""
    if type(value) in (list, tuple):
        leaves = list(value)
        while any(type(leaf) in (list, tuple) for leaf in leaves):
            leaves = [x for leaf in leaves for x in (leaf if type(leaf) in (list, tuple) else [leaf])]
        if any(not isinstance(leaf, int | float | np.number) or isinstance(leaf, bool) for leaf in leaves):
            return None
        try:
            value = np.array(value)
        except ValueError:  # ragged
            return None
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    if not hasattr(value, "dtype"):
        value = np.array(number(value))
    try:
        value = np.asarray(value)
    except TypeError:  # keys of random numbers
        return None
    return value if value.dtype.kind in "iuf" and value.size and np.all(np.isfinite(value)) else None


def metric(value):
    found = array(value)
    if found is None or found.ndim not in (1, 2):
        return False
    if found.ndim == 1:
        return bool(np.all(found > 0))
    if found.shape[0] != found.shape[1] or not np.allclose(found, found.T):
        return False
    return bool(np.linalg.eigvalsh(found.astype(float)).min() > 0)


def mass_matrix(value):
    if not isinstance(value, dict):
        return metric(value)
    return len(value) > 0 and block_list(list(value)) and all(map(metric, value.values()))


def block_list(value):
    if type(value) is not list or not all(type(block) is tuple and block for block in value):
        return False
    names = [site for block in value for site in block]
    return all(map(name, names)) and len(set(names)) == len(names)


def blocks(value):
    return flag(value) or block_list(value)


def sites(value):
    return type(value) in (list, tuple) and len(value) > 0 and all(map(name, value)) and len(set(value)) == len(value)


def reference(value):
    return (
        isinstance(value, dict)
        and len(value) > 0
        and all(name(site) and array(x) is not None for site, x in value.items())
    )


def diagonal(value):
    if isinstance(value, str):
        return str(value) == "rmsprop"
    if isinstance(value, dict):
        return reference(value) and all(np.all(array(x) > 0) for x in value.values())
    return metric(value) and array(value).ndim == 1


def step_sizes(value):
    return positive(value) or value is constant or value is one or getattr(value, "func", None) is DECAY.func


def threshold(value):
    return positive(value) or choice("adapt")(value)


def constant(t):
    return 0.1


def memory(value):
    if isinstance(value, str):
        return str(value) in ("2GiB", "500MB", "1.5 GB")
    return count()(value)


def one(*args):
    return 1


def fails(*args):
    raise KeyError("as it is meant to")


DECAY = polynomial_decay(0.1, 10.0, 0.55)
DEVICE_COUNT = count(2**31 - 1)
SENSE = {
    "model": callable,
    "init_strategy": callable,
    "num_subsets": count(),
    "memory": memory,
    "batch_size": count(),
    "gradient_batch_size": count(),
    "hessian_rank": count(),
    "num_batches": lambda value: DEVICE_COUNT(value) and number(value) >= 2,
    "num_steps": DEVICE_COUNT,
    "weight_steps": DEVICE_COUNT,
    "precision_steps": DEVICE_COUNT,
    "max_tree_depth": count(30),
    "window_size": count(17),
    "step_size": positive,
    "trajectory_length": positive,
    "temperature": positive,
    "target_noise": positive,
    "threshold": threshold,
    "target_accept_prob": between(0, 1),
    "friction": between(0, 1, includes_high=True),
    "step_size_jitter": between(0, 1, includes_low=True),
    "noise_estimate": between(0, 0.01, includes_low=True),
    "plate": name,
    "data_axes": axes,
    "subset_order": choice("sequential", "shuffled"),
    "subset_permutation": choice("fixed", "per_trajectory"),
    "criterion": choice("per_length", "mean", "boundary"),
    "trajectory": choice("nuts", "hmc"),
    "proposal": choice("random_walk", "langevin", "hamiltonian"),
    "target": choice("posterior", "expected"),
    "control_variate": choice("taylor1", "taylor2"),
    "gradient": choice("surrogate", "minibatch"),
    "inverse_mass_matrix": mass_matrix,
    "dense_mass": blocks,
    "full_mass": blocks,
    "precision_sites": sites,
    "reference": reference,
    "center": lambda value: choice("auto")(value) or reference(value),
    "center_order": count(2),
    "metric": choice("auto"),
    "drift": choice("auto"),
    "preconditioner": diagonal,
    "process_group": lambda value: False,  # of none of these a group has been made
}
FLAGS = [
    *("adapt_step_size", "adapt_mass_matrix", "find_heuristic_step_size", "jit_compile"),
    *("output_precision", "variance_correction", "resample_momentum"),
    *("forward_mode_differentiation", "regularize_mass_matrix"),
]
SENSE |= dict.fromkeys(FLAGS, flag)


def makes_sense(package, kernel, argument, value, given):
    """Whether a value is one that the argument may have; None where that is its default."""
    parameter = inspect.signature(getattr(package, kernel)).parameters[argument]
    if value is None:
        return parameter.default is None or argument in ("control_variate", "metric", "drift")
    if isinstance(value, Hostile):
        return False
    if isinstance(value, package.SplitPotential):
        return argument == "model" and kernel not in ("S3HMC", "BlockGibbsHMC")
    if argument == "schedule":
        num_subsets = given.get("num_subsets", 1)
        is_large = count()(num_subsets) and number(num_subsets) > 1000
        is_deferred = callable(value) and (is_large or choice("auto")(num_subsets))
        is_named = choice("auto", "symmetric", "naive", "randomised", "single_visit")(value)
        return is_named or any(value is known for known in (symmetric, naive, randomised)) or is_deferred
    if argument == "num_subsets" and choice("auto")(value):
        return memory(given.get("memory"))
    if argument in ("metric", "drift") and kernel == "SplitHMC" and choice("default")(value):
        return True
    if argument == "step_size" and kernel in ("SGLD", "SGHMC"):
        return step_sizes(value)
    return SENSE[argument](value)


# --- what is given ---------------------------------------------------------------------------------------------------


class Hostile:
    """Fails whatever it is asked."""

    def _fail(self, *args):
        raise RuntimeError("leave me alone")

    __eq__ = __ne__ = __lt__ = __gt__ = __bool__ = __len__ = __iter__ = __float__ = __int__ = __index__ = _fail
    __hash__ = __contains__ = __array__ = __getattr__ = __getitem__ = _fail

    def __repr__(self):
        return "a hostile object"


class WithoutRepr(Hostile):
    def __repr__(self):
        raise RuntimeError("leave me alone")


class Shaped:
    """Looks like an array."""

    shape, dtype, ndim = (3,), np.dtype(float), 1


def plain_values():
    return [
        *(None, True, False, 0, 1, 2, 3, 17, 1000, 1001, -1, -0.0, 0.0, 0.5, 1.0, 2.5, -3.5, 1e-300, 5e-324, 1e308),
        *(float("nan"), float("inf"), -float("inf"), 30, 31, 2**31 - 1, 2**31, 2**63, 10**6, 10**30, 10**400),
        *(-(10**400), 10**5000, Fraction(1, 3), Fraction(1, 10**400), Fraction(10**400), Decimal("0.5"), 1j),
        *("", " ", "False", "True", "0.5", "1", "nan", "adapt", "symmetric", "randomised", "naive", "hmc", "é\n", "\0"),
        *("x" * 10**6, b"", b"1", bytearray(b"x"), memoryview(b"x"), np.str_("symmetric"), np.bytes_(b"x")),
        *([], [0.5], [1, 2], [1.0, -1.0], [[1.0, 0.5], [0.5, 2.0]], [[1.0], [2.0, 3.0]], [True, 1.0], ["a"], [None]),
        *(["0.5"], [("a",)], [("a", "b"), ("c",)], [("a",), ("a",)], [("a", 1)], [()], [["a"]], [("",)], [([],)]),
        *([10**400], list(range(10**5)), [[[1.0]]], (), (1.0, 2.0), ("a", "b"), ("a", "a"), (None,), {}, {"a": 1}),
        *({"a": None}, {"a": -1}, {"a": 0.5}, {"a": True}, {"a": "0"}, {"": 0}, {1: 0}, {None: None}, {(): 1.0}),
        *({("a",): [1.0]}, {("a", "b"): [1.0, 2.0], "c": 3}, {("a",): None}, {("a",): [1.0], ("a", "b"): [1.0, 1.0]}),
        *({"a": [1.0]}, {"a": [float("nan")]}, {"a": [-1.0]}, {"a": "x"}, {"a": {"b": 1.0}}, {float("nan"): 1}),
        *({i: i for i in range(10**5)}, OrderedDict(a=1), {"b": 2, "a": 1}, Counter("abca"), {1, 2}, {"a"}, set()),
        *(frozenset({"a"}), range(3), iter([1]), (x for x in [1.0]), {}.keys(), slice(1), Ellipsis, NotImplemented),
        *(object(), Hostile(), WithoutRepr(), Hostile, Shaped(), int, float, str, dict, type, Exception),
        *(len, repr, one, lambda: None, lambda *args: None, lambda *args: float("nan"), fails, constant),
        *(functools.partial(fails), np, np.sin, DECAY, symmetric, naive, randomised, symmetric(2), Schedule),
        *(lambda m: naive(m + 1), lambda t: "0.1", lambda t: -t, ValueError("x")),
    ]


def arrays():
    import jax
    import jax.numpy as jnp
    import torch

    lists = [1.0, 0, -1, True, [1.0], [2, 3], [0.5, -0.5], [0.0, 1.0], [True, False], [float("nan"), 1.0], [], [[]]]
    lists += [[float("inf")], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.4, 1.0]]]
    lists += [[[1.0, 2.0]], [[[1.0]]], 1j, [1j]]
    made = [make(x) for x in lists for make in (np.array, jnp.array, torch.tensor)]
    made += [np.float32(0.5), np.float16(0.5), np.int8(3), np.uint64(2**63), np.bool_(True), np.longdouble("1e4000")]
    made += [np.array(None), np.array([None, 1.0]), np.array([object()]), np.array("x"), np.array(["a", "b"])]
    made += [np.datetime64("2020-01-01"), np.timedelta64(3, "ns"), np.array(np.timedelta64(3, "ns")), np.complex64(1)]
    made += [np.zeros(3, [("a", int)]), np.zeros(2, "V4"), np.ones(10**6), np.eye(300), np.full((300, 300), 2.0)]
    made += [np.ma.array([1.0, 2.0]), np.array([1, 2], "uint8"), np.array([1.0, 2.0], np.float16)]
    made += [jax.random.key(0), jax.random.PRNGKey(0), jnp.ones(3, jnp.float16), torch.ones(2, requires_grad=True)]
    made += [
        torch.ones(2, dtype=torch.float16),
        torch.eye(2, dtype=torch.int64),
        torch.nn.Linear(1, 1),
        np.array([1.0], ">f4"),
    ]
    return made


def potentials():
    import jax.numpy as jnp
    import torch

    import numpyro_split
    import pyro_split

    return [
        package.SplitPotential.from_functions(lambda z: 0.0, lambda z, y: y * z["a"], ones, 2)
        for package, ones in ((numpyro_split, jnp.ones(4)), (pyro_split, torch.ones(4)))
    ]


@functools.cache
def pool():
    return [*plain_values(), *arrays(), *potentials()]


GOOD = {
    "schedule": ["symmetric", "naive", symmetric],
    "step_size": [0.1, np.float32(0.2), np.array(0.3), 1],
    "data_axes": [{"X": 0, "y": None}, {"X": np.int64(1)}],
    "inverse_mass_matrix": [np.ones(3), [1.0, 2.0], {("a", "b"): np.eye(2), ("c",): np.ones(1)}],
    "dense_mass": [[("a", "b")]],
    "full_mass": [[("a", "b")]],
    "precision_sites": [["tau"], ("tau", "lam")],
    "reference": [{"w": np.zeros(3), "b": 0.5}],
    "preconditioner": ["rmsprop", [1.0, 2.0], {"w": np.ones((2, 2))}],
    "noise_estimate": [0.0, 0.005, Fraction(1, 1000)],
    "window_size": [1, 4],
    "num_subsets": ["auto", 3],
    "memory": ["2GiB", "500MB", "1.5 GB", 10**9],
    "plate": ["data"],
}
NAMES = ["sequential", "shuffled", "fixed", "per_trajectory", "per_length", "mean", "boundary", "nuts", "hmc"]
NAMES += [
    "langevin",
    "random_walk",
    "hamiltonian",
    "posterior",
    "expected",
    "taylor1",
    "taylor2",
    "surrogate",
    "minibatch",
]


def model(y): ...


def draw_arguments(rng, package, kernel):
    """One argument, or some of them, with values of the pool; and those that have no default."""
    parameters = list(inspect.signature(getattr(package, kernel)).parameters)
    how_many = 1 if rng.random() < 0.7 else 1 + rng.integers(3)
    given = {}
    for i in rng.permutation(len(parameters))[:how_many]:
        values = pool()
        if rng.random() < 0.15:
            values = GOOD.get(parameters[i], NAMES)
        given[parameters[i]] = values[rng.integers(len(values))]
    return given


def faults_of(package, kernel, given):
    """What is wrong with how a kernel takes some arguments: a list of ``FAULTS``."""
    required = {"model": model, **({"step_size": 0.1} if kernel in ("SGLD", "SGHMC") else {})}
    bad = [name for name, value in given.items() if not makes_sense(package, kernel, name, value, given)]
    tracemalloc.reset_peak()
    before, start, error, faults = tracemalloc.get_traced_memory()[0], time.process_time(), None, []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = getattr(package, kernel)(**{**required, **given})
    except (ValueError, TypeError) as raised:
        error = str(raised)
    except Exception:
        return ["bare error"]
    if time.process_time() - start > MAX_SECONDS:
        faults.append("slow")
    if tracemalloc.get_traced_memory()[1] - before > MAX_BYTES:
        faults.append("large memory")
    if error is None:
        line = repr(made)
        is_line = line.startswith(f"{kernel}(model=") and "\n" not in line and "num_subsets=" in line
        return faults + ["accepted nonsense"] * bool(bad) + ["faulty repr"] * (not is_line)
    if not bad and not (OF_SEVERAL & set(given)):
        return [*faults, "refused sense"]
    suspects = {*bad, *(OF_SEVERAL & set(given))}
    blamed = [name for name in suspects if name in error]
    if not blamed:
        faults.append("missing name")
    elif not any(shown(given[name]) in error for name in blamed):
        faults.append("missing repr")
    return faults


def fuzz(rng, package, kernel, calls):
    """Counts of faults, and the first call of each kind."""
    counts, examples = Counter(), {}
    tracemalloc.start()
    try:
        for _ in range(calls):
            given = draw_arguments(rng, package, kernel)
            for fault in faults_of(package, kernel, given):
                counts[fault] += 1
                examples.setdefault(fault, {name: shown(value) for name, value in given.items()})
    finally:
        tracemalloc.stop()
    return counts, examples


@pytest.mark.parametrize("kernel", KERNELS)
def test_bad_arguments_are_named_and_good_ones_taken(lib, kernel):
    rng = np.random.default_rng([SEED, KERNELS.index(kernel)])
    counts, examples = fuzz(rng, lib.split, kernel, CALLS)
    assert not counts, examples


def test_careless_kernels_are_caught():
    """The negative control."""

    class Careless:
        def __init__(self, model, num_subsets=1, *, step_size=1.0):
            self.num_subsets = 2 * num_subsets
            if step_size <= 0:
                raise ValueError("step_size must be above 0")

    package = SimpleNamespace(Careless=Careless, SplitPotential=())
    counts, _ = fuzz(np.random.default_rng(SEED), package, "Careless", 400)
    assert {"bare error", "missing name", "missing repr", "accepted nonsense", "faulty repr"} <= set(counts)


def test_every_argument_has_a_rule(lib):
    """So that a new argument is not forgotten here."""
    for kernel in KERNELS:
        arguments = set(inspect.signature(getattr(lib.split, kernel)).parameters)
        assert arguments <= {*SENSE, "schedule"}, kernel


def main():
    import numpyro_split
    import pyro_split

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=6000, help="over all kernels of both packages")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cases = [(package, kernel) for package in (numpyro_split, pyro_split) for kernel in KERNELS]
    total, calls = Counter(), -(-options.calls // len(cases))
    for i, (package, kernel) in enumerate(cases):
        counts, examples = fuzz(np.random.default_rng([options.seed, i]), package, kernel, calls)
        total += counts
        for fault, given in examples.items():
            print(f"{package.__name__}.{kernel}: {fault}: {given}")
    print(
        f"{calls * len(cases)} calls, seed {options.seed}: " + ", ".join(f"{fault} {total[fault]}" for fault in FAULTS)
    )
    return 1 if total else 0


if __name__ == "__main__":
    raise SystemExit(main())
