"""Digests: two contents have two, wherever they are computed, and no iteration pays for it."""

import importlib
import re
import types

import numpy as np
import pytest

from split_common.digest import Digest, digest_of_arrays
from tests import kernels
from tests.backends import NumPyroBackend

NUM_ROWS = 10_007


def base():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(300, 7)), rng.integers(0, 2, 300), rng.normal(size=5).astype(np.float32)]


def changes():
    """Arrays that differ from the first, each in one way."""
    a, b, c = base()
    swapped, flipped, last = a.copy(), b.copy(), c.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    flipped[[10, 11]] = 1 - flipped[[10, 11]]
    last[-1] = np.nextafter(last[-1], np.float32(9))
    return {
        "rows in another order": [swapped, b, c],
        "two labels": [a, flipped, c],
        "the last bit": [a, b, last],
        "columns for rows": [a.T, b, c],
        "another shape": [a.reshape(7, 300), b, c],
        "another type": [a, b.astype(float), c],
        "arrays in another order": [a, b, c][::-1],
        "one fewer": [a, b],
        "the sign of zero": [np.where(a == a[0, 0], -a, a), b, c],
    }


def traced(arrays, program="program"):
    import jax
    import jax.numpy as jnp

    from numpyro_split.potential.content import traced_digest

    return np.asarray(jax.jit(lambda data: traced_digest(data, program))(tuple(jnp.asarray(x) for x in arrays)))


@pytest.mark.parametrize("kind", list(changes()))
def test_any_change_is_seen(kind):
    assert digest_of_arrays(base()).key != digest_of_arrays(changes()[kind]).key


@pytest.mark.parametrize("package", ["numpyro_split"])
@pytest.mark.parametrize("kind", sorted(set(changes()) - {"another shape", "another type", "columns for rows"}))
def test_any_change_is_seen_in_the_graph(kind, package):
    """But for shapes and types, which are in the digest of the program."""
    first, second = traced(base()), traced(changes()[kind])
    assert np.all(first[:2] != second[:2])
    assert np.all(first[2:] == second[2:])
    assert np.all(traced(base(), "another program")[2:] != first[2:])


def test_only_the_content_counts():
    a, b, c = base()
    wide = np.zeros((300, 14))
    wide[:, ::2] = a
    same = [[np.asfortranarray(a), b, c], [wide[:, ::2], b, c], [np.concatenate([a, a])[:300], b.copy(), c]]
    assert {digest_of_arrays(arrays).key for arrays in same} == {digest_of_arrays(base()).key}
    assert Digest().add("ab", "c").key != Digest().add("a", "bc").key


@pytest.mark.parametrize("package", ["numpyro_split"])
def test_relabellings_are_told_apart(package):
    """4,000 ways to give 100 of 200 rows the label 1, in float32: no two digests are the same (2⁻⁴¹ by chance)."""
    import jax
    import jax.numpy as jnp

    from numpyro_split.potential.content import traced_digest

    rng = np.random.default_rng(1)
    labels = np.array([rng.permutation(np.repeat([0.0, 1.0], 100)) for _ in range(4000)], np.float32)
    assert len({digest_of_arrays([y]).key for y in labels}) == 4000
    in_graph = jax.jit(jax.vmap(lambda y: traced_digest((y,), "")))(jnp.asarray(labels))
    assert len({tuple(words) for words in np.asarray(in_graph)[:, :2]}) == 4000


@pytest.mark.parametrize("package", ["numpyro_split"])
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
)
def test_arrays_of_every_type(dtype, package):
    import jax.numpy as jnp

    x = jnp.asarray(np.arange(6).reshape(2, 3) % 2, dtype)
    assert traced([x]).shape == (4,)
    assert np.any(traced([x]) != traced([x.at[0, 0].set(1)]))
    assert digest_of_arrays([np.asarray(x)]).key != digest_of_arrays([np.asarray(x.at[0, 0].set(1))]).key


@pytest.mark.parametrize("package", ["numpyro_split"])
def test_whatever_reaches_the_density_is_in_the_program(package):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    from numpyro_split.potential.arguments import Arguments
    from numpyro_split.potential.content import program_of_model

    held = {"prior": 1.0, "table": np.arange(4.0), "site": "mu"}

    class Settings:
        width = 2.0

    def helper(mu):
        return mu * Settings.width

    def model(y, power=1, flag=False):
        mu = numpyro.sample(held["site"], dist.Normal(0.0, held["prior"]))
        with numpyro.plate("data", y.shape[0]):
            mean = helper(mu) ** power + jnp.asarray(held["table"]).sum() * flag
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    def program(**options):
        return program_of_model(model, Arguments((jnp.ones(5),), options))

    seen = [program(), program(power=2), program(flag=True)]
    held["prior"] = 1.5
    seen.append(program())
    held["site"] = "nu"
    seen.append(program())
    Settings.width = 3.0
    seen.append(program())
    held["table"] = np.array([0.0, 1.0, 2.0, 3.5])
    seen.append(program(flag=True))
    assert len(set(seen)) == len(seen)
    assert program(flag=True) == seen[-1]
    assert program_of_model(model, Arguments((jnp.zeros(5),), {"flag": True})) == seen[-1]  # values are no part of it
    assert program_of_model(model, Arguments((jnp.zeros(6),), {"flag": True})) != seen[-1]


@pytest.mark.parametrize("package", ["numpyro_split"])
@pytest.mark.parametrize("name", ["SymmetricSplitHMC", "PenaltyMH"])
def test_no_iteration_digests_the_data(name, package):
    """Of a loop over iterations whose data are arguments, only a branch that is taken once makes words of the rows."""
    import jax

    lib = NumPyroBackend()
    args = kernels.data(lib, NUM_ROWS)
    kernel = kernels.TABLE[name].make(lib, kernels.small(lib).model)
    state = kernel.init(jax.random.key(0), 5, None, args, {})

    def run(state, args):
        return jax.lax.fori_loop(0, 10, lambda _, state: kernel.sample(state, args, {}), state)

    text = jax.jit(run).lower(state, args).compile().as_text()
    computations = dict(re.findall(r"^(?:ENTRY )?%?([\w.-]+) [^\n]*\{\n(.*?)^\}", text, re.M | re.S))
    words = re.compile(rf"= u32\[(?:\d+,)*{NUM_ROWS}(?:,\d+)*\]")
    assert any(words.search(body) for body in computations.values())  # there is a digest at all

    def reached(name, found):
        """Computations called from one, but for the branches of conditionals."""
        if name in found or name not in computations:
            return found
        found.add(name)
        for line in computations[name].splitlines():
            if " conditional(" not in line:
                for called in re.findall(r"(?:calls|to_apply|body|condition)=%?([\w.-]+)", line):
                    reached(called, found)
        return found

    loops = re.findall(r" while\(.*?body=%?([\w.-]+)", text)
    assert loops
    for loop in set().union(*(reached(loop, set()) for loop in loops)):
        made = [line for line in computations[loop].splitlines() if words.search(line)]
        assert all(re.search(r"\b(parameter|get-tuple-element)\(", line) for line in made), made[:3]


TABLE = np.arange(3.0)


def from_outside(y):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu + jnp.asarray(TABLE).sum(), 1.0), obs=y)


class Settings:
    """Holds an array, as users' own objects do."""

    def __init__(self, table):
        self.table = table


class InSlots(Settings):
    """The same, with its array in a slot."""

    __slots__ = ("table",)


class WithNothingInASlot(InSlots):
    """A subclass has a value under the name of a slot in which nothing is."""

    __slots__ = ("own",)
    table = 0.0


@pytest.mark.parametrize("package", ["numpyro_split"])
def test_objects_with_nothing_in_a_slot_are_searched(package):
    captured_arrays = importlib.import_module(f"{package}.splitting.captured").captured_arrays
    found = WithNothingInASlot.__new__(WithNothingInASlot)
    found.own = np.arange(3.0)
    assert [name for name, _ in captured_arrays([found], None)] == ["own"]


class Holding(dict):
    """A dict with attributes."""


def of_package():
    return package.inner.table


def elsewhere(table):
    """A function of another module of the user's that reads a global."""
    names = {"__name__": "another_of_the_users", "table": table}
    exec("def function(): return table", names)
    return names["function"]


package = types.ModuleType("package")  # stands for one of the user's own
package.inner = types.ModuleType("package.inner")
package.inner.package = package


@pytest.mark.parametrize("kind", ["module in a package", "function", "dict", "function of another module"])
@pytest.mark.parametrize("package_of_kernels", ["numpyro_split"])
def test_arrays_in_out_of_the_way_places_are_found(kind, package_of_kernels):
    captured_arrays = importlib.import_module(f"{package_of_kernels}.splitting.captured").captured_arrays
    table, holding = np.arange(3.0), Holding()
    package.inner.table = holding.table = table

    def function():
        return function.table

    function.table = table
    outside = elsewhere(table)
    places = {
        "module in a package": of_package,
        "function": function,
        "dict": lambda: holding.table,
        "function of another module": lambda: outside(),
    }
    found = [x for name, x in captured_arrays([places[kind]], __name__) if name.endswith("table")]
    assert len(found) == 1
    assert found[0] is table


constants = types.ModuleType("constants")  # stands for one of the user's own


@pytest.mark.parametrize("package", ["numpyro_split"])
@pytest.mark.parametrize(
    "kind",
    [
        "global",
        "closure",
        "default",
        "function of a function",
        "object in a closure",
        "object among the arguments",
        "object with slots in a closure",
        "module",
    ],
)
def test_arrays_from_outside_that_jax_does_not_see_changing(kind, package):
    """In float32 JAX keeps its copy of a float64 array; NumPyro alone would go on with the old values."""
    lib = NumPyroBackend()
    lib.set_precision(32)
    dist, table = lib.dist, np.arange(3.0)
    settings, in_slots, constants.table = Settings(table), InSlots(table), table

    def total():
        return lib.np.asarray(table).sum()

    def of_closure(y):
        mu = lib.ppl.sample("mu", dist.Normal(0.0, 1.0))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", dist.Normal(mu + lib.np.asarray(table).sum(), 1.0), obs=y)

    def of_function(y):
        mu = lib.ppl.sample("mu", dist.Normal(0.0, 1.0))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", dist.Normal(mu + total(), 1.0), obs=y)

    def of_default(y, table=table):
        of_object(y, Settings(table))

    def of_object(y, settings):
        mu = lib.ppl.sample("mu", dist.Normal(0.0, 1.0))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", dist.Normal(mu + lib.np.asarray(settings.table).sum(), 1.0), obs=y)

    def of_object_outside(y):
        of_object(y, settings)

    def of_slots_outside(y):
        of_object(y, in_slots)

    def of_module(y):
        mu = lib.ppl.sample("mu", dist.Normal(0.0, 1.0))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", dist.Normal(mu + lib.np.asarray(constants.table).sum(), 1.0), obs=y)

    models = {
        "global": from_outside,
        "closure": of_closure,
        "default": of_default,
        "function of a function": of_function,
        "object in a closure": of_object_outside,
        "object among the arguments": of_object,
        "object with slots in a closure": of_slots_outside,
        "module": of_module,
    }
    model, rest = models[kind], [settings] if kind == "object among the arguments" else []
    session = lib.session(lib.split.SymmetricSplitHMC(model, num_subsets=2, num_steps=2), num_warmup=1, num_samples=1)
    y = lib.array(np.linspace(-1.0, 1.0, 9)[[3, 1, 4, 0, 5, 2, 6, 8, 7]])
    session.fresh(y, *rest)
    changed = TABLE if kind == "global" else table
    changed += 1.0
    with pytest.raises(ValueError, match=r"(?i)'(constants\.)?table'.*changed in place"):
        session.fresh(y, *rest)
    changed -= 1.0
    session.fresh(y, *rest)


@pytest.mark.parametrize("package", ["numpyro_split"])
def test_a_terminal_changes_no_digest(package, monkeypatch):
    """JAX colours the text of expressions where output goes to a terminal or a notebook."""
    from numpyro_split.potential.arguments import Arguments
    from numpyro_split.potential.content import program_of_model

    problem, found = kernels.mixed(NumPyroBackend()), []
    for has_color in (False, True):
        monkeypatch.setattr("jax._src.pretty_printer.CAN_USE_COLOR", has_color)
        found.append(program_of_model(problem.model, Arguments(problem.args, {}), "owner"))
    assert found[0] == found[1]
