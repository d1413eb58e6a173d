"""num_subsets="auto": the fewest subsets whose gradient fits into a memory; what is measured, kept and refused."""

import importlib
import logging
import re
from unittest import mock

import numpy as np
import pytest

from split_common.errors import ModelNotSplittableError, StoreError
from split_common.memory import AutoSubsets, check_memory, check_subsets, choose_num_subsets
from split_common.schedule import naive
from tests.backends import NumPyroBackend, PyroBackend
from tests.kernels import NUM_ROWS as NUM_SMALL
from tests.kernels import TABLE, mixed, small
from tests.stored_run import Run, draws_in

NUM_ROWS, WIDTH, HIDDEN = 3000, 10, 40
AT_ONCE = {"num_steps": 1, "find_heuristic_step_size": False}
only_numpyro = pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
only_pyro = pytest.mark.parametrize("lib", [PyroBackend], ids=["pyro"], indirect=True)


def network(lib, hidden=HIDDEN):
    """A model whose gradient needs much more memory than its data; each hidden unit of a row is a number to keep."""

    def model(X, y=None):
        zero, one = lib.np.zeros((WIDTH, hidden)), lib.np.ones((WIDTH, hidden))
        w = lib.ppl.sample("w", lib.dist.Normal(zero, one).to_event(2))
        mean = lib.np.tanh(X @ w).sum(-1)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(mean, 1.0), obs=y)

    return model


def rows(lib, num_rows=NUM_ROWS):
    rng = np.random.default_rng(0)
    return lib.array(rng.normal(size=(num_rows, WIDTH))), lib.array(rng.normal(size=num_rows))


def begin(lib, kernel, args, num_chains=1):
    """What the host does first; no chain moves."""
    if lib.name == "pyro":
        kernel.setup(1, *args)
        return kernel.cleanup()
    import jax

    key = jax.random.key(0)
    return kernel.init(key if num_chains == 1 else jax.random.split(key, num_chains), 1, model_args=args)


def taken(lib, model, args, num_subsets, num_chains=1):
    """Bytes of a gradient, of a split that was given its number of subsets."""
    measure = importlib.import_module(f"{lib.split.__name__}.potential.memory").bytes_of_gradient
    potential = lib.split.split_model(model, args, num_subsets=num_subsets)
    z = {"w": lib.np.zeros((WIDTH, HIDDEN))}
    return measure(potential, z, num_chains if lib.name == "numpyro" else potential.subset_sizes[0])


# --- what a memory is, and the search ---------------------------------------------------------------------------------


GOOD = [(1, 1), (np.int64(5), 5), ("7B", 7), ("2GiB", 2**31), ("500MB", 5e8), ("1.5 GB", 1.5e9), (".5kb", 500)]
BAD = [0, -1, 1.5, True, "2", "2G", "GiB", "-1GB", "0.1B", "1e3MB", "nan GB", b"1GB", "\u0661GB", [1]]


@pytest.mark.parametrize(("memory", "expected"), GOOD)
def test_memory_is_bytes_or_text_with_a_unit(memory, expected):
    assert check_memory(memory) == expected


@pytest.mark.parametrize("memory", BAD)
def test_what_is_no_memory_is_refused(memory):
    with pytest.raises(ValueError, match="memory must be a whole number of bytes .*'2GiB', '500MB' or '1.5 GB', got "):
        check_memory(memory)


def test_auto_and_memory_come_together():
    with pytest.raises(ValueError, match="memory must be given where num_subsets is 'auto'.*got None"):
        check_subsets("auto", None)
    with pytest.raises(ValueError, match="memory must be None unless num_subsets is 'auto', got '2GiB'"):
        check_subsets(4, "2GiB")
    with pytest.raises(ValueError, match="num_subsets must be 'auto' or a whole number of at least 1, got 'Auto'"):
        check_subsets("Auto", None)


class Line:
    """Bytes that grow with the rows of a subset; each number of subsets may be measured once."""

    def __init__(self, num_rows, fixed, row):
        self.num_rows, self.fixed, self.row, self.measured = num_rows, fixed, row, {}

    def rows(self, num_subsets):
        return -(-self.num_rows // num_subsets)

    def bytes(self, num_subsets):
        return self.fixed + self.row * self.rows(num_subsets)

    def __call__(self, num_subsets):
        assert 1 <= num_subsets <= self.num_rows
        assert num_subsets not in self.measured
        self.measured[num_subsets] = self.bytes(num_subsets)
        return self.measured[num_subsets]


@pytest.mark.parametrize("takes_memory", [False, True])
def test_the_search_finds_the_smallest_and_measures_few(takes_memory):
    rng = np.random.default_rng(1)
    numbers = []
    for _ in range(500):
        num_rows, fixed, row = (int(10 ** rng.uniform(*bounds)) for bounds in ((0, 6), (0, 7), (1, 6)))
        memory = int(10 ** rng.uniform(3, 11))
        line = Line(num_rows, fixed, row)
        if fixed + row > memory:
            with pytest.raises(ValueError, match=f"of one row, which takes .*{fixed + row} bytes.* got memory="):
                choose_num_subsets(line, num_rows, AutoSubsets(memory), takes_memory=takes_memory)
            continue
        chosen = choose_num_subsets(line, num_rows, AutoSubsets(memory), takes_memory=takes_memory)
        numbers.append(len(line.measured))
        assert line.measured[chosen.num_subsets] == chosen.taken <= memory
        fewer = chosen.num_subsets - 1 - chosen.num_subsets // 64
        assert fewer < 1 or line.bytes(fewer) > memory
        if takes_memory:  # never much more than the memory, but for the first few rows
            assert all(line.rows(m) <= 16 or taken <= 1.1 * memory for m, taken in line.measured.items())
    assert np.mean(numbers) < 5
    assert max(numbers) <= 16


# --- the measure, and the choice --------------------------------------------------------------------------------------


def test_the_number_is_the_smallest_that_fits(lib, caplog):
    model, args = network(lib), rows(lib)
    memory = taken(lib, model, args, 4) + 100
    with caplog.at_level(logging.INFO):
        potential = lib.split.split_model(model, args, num_subsets="auto", memory=memory)
    assert potential.num_subsets == 4
    assert "num_subsets=4 chosen for memory=" in caplog.text
    assert taken(lib, model, args, 4) <= memory < taken(lib, model, args, 3)


def test_a_kernel_chooses_when_it_runs_and_draws_as_if_it_was_told(lib):
    model, args = network(lib), rows(lib)
    memory = taken(lib, model, args, 3)
    kernel = lib.split.SplitHMC(model, num_subsets="auto", memory=memory, num_steps=2)
    assert kernel.num_subsets == "auto"
    assert "num_subsets='auto', plate=None, memory=" in repr(kernel)
    told = lib.run(lib.split.SplitHMC(model, num_subsets=3, num_steps=2), *args, num_warmup=3, num_samples=4)
    chose = lib.run(kernel, *args, num_warmup=3, num_samples=4)
    assert kernel.num_subsets == 3
    assert "num_subsets=3, plate=None, memory=" in repr(kernel)
    assert "num_subsets=3 chosen for memory=" in kernel.report(chose).verdict
    np.testing.assert_array_equal(lib.to_numpy(told.get_samples()["w"]), lib.to_numpy(chose.get_samples()["w"]))


def test_other_data_are_divided_anew(lib):
    """The same object on four times the rows; and on the first again."""
    model, few, many = network(lib), rows(lib, 400), rows(lib, 1600)
    kernel = lib.split.NaiveSplitHMC(model, "auto", memory=taken(lib, model, few, 1), **AT_ONCE)
    for args, least in ((few, 1), (many, 4), (few, 1)):
        begin(lib, kernel, args)
        assert least <= kernel.num_subsets <= least + 1


def test_kernels_that_read_few_rows_have_at_least_two(lib):
    kernel = lib.split.SGLD(network(lib), 12, step_size=1e-6, num_subsets="auto", memory="1GB")
    begin(lib, kernel, rows(lib, 100))
    assert kernel.num_subsets == 2


@only_numpyro
def test_vectorised_chains_share_the_memory(lib):
    model, args = network(lib), rows(lib)
    memory = taken(lib, model, args, 2)
    kernel = lib.split.NaiveSplitHMC(model, "auto", memory=memory, **AT_ONCE)
    begin(lib, kernel, args)
    assert kernel.num_subsets == 2
    begin(lib, kernel, args, num_chains=3)
    assert kernel.num_subsets >= 5
    assert taken(lib, model, args, kernel.num_subsets, 3) <= memory


@pytest.mark.slow
@only_numpyro
def test_each_run_is_reported_with_its_own_number(lib):
    model, args = network(lib), rows(lib)
    kernel = lib.split.NaiveSplitHMC(model, "auto", memory=taken(lib, model, args, 2), **AT_ONCE)
    one, three = (lib.run(kernel, *args, num_warmup=0, num_samples=4, num_chains=n) for n in (1, 3))
    number = kernel.num_subsets
    assert number >= 5
    assert "num_subsets=2 chosen" in kernel.report(one).verdict
    assert f"num_subsets={number} chosen" in kernel.report(three).verdict
    assert kernel.num_subsets == number


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_every_kernel_takes_it(lib, name):
    """And draws as if it was told the number."""
    problem, entry = mixed(lib), TABLE[name]
    kernel = entry.make(lib, problem.model, "auto", memory="1.5kB" if lib.name == "numpyro" else "0.7kB")
    chose = lib.run(kernel, *problem.args, num_warmup=4, num_samples=4)
    told = lib.run(entry.make(lib, problem.model, kernel.num_subsets), *problem.args, num_warmup=4, num_samples=4)
    assert 1 < kernel.num_subsets <= NUM_SMALL
    for site, x in told.get_samples().items():
        np.testing.assert_array_equal(lib.to_numpy(chose.get_samples()[site]), lib.to_numpy(x))


@only_numpyro
def test_rows_in_shards_count_where_they_lie(lib):
    import jax

    model, args = network(lib), rows(lib)
    mesh = jax.make_mesh((2,), ("rows",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
    whole, halves = (
        lib.split.split_model(model, x, num_subsets="auto", memory=taken(lib, model, args, 4)).num_subsets
        for x in (args, tuple(jax.device_put(x, sharding) for x in args))
    )
    assert (whole, halves) == (4, 2)


@only_pyro
def test_rows_that_are_read_from_disk_are_measured_by_their_number(lib, tmp_path):
    from pyro_split.potential.memory import bytes_of_gradient

    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(NUM_ROWS, WIDTH)))
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    flat, likelihood = lambda z: -0.5 * z["w"] @ z["w"], lambda z, x: -lib.np.tanh(x @ z["w"])
    potential = lib.split.SplitPotential.from_functions(flat, likelihood, on_disk, num_subsets=2)
    few, many = (bytes_of_gradient(potential, {"w": lib.np.zeros(WIDTH)}, number) for number in (30, 1500))
    assert potential.reads_sources
    assert 0 < 20 * few < many < 100 * few


@only_pyro
def test_storages_are_counted_while_they_are_there(lib):
    import torch

    from pyro_split.potential.memory import StorageCount, bytes_of_gradient

    with StorageCount() as count:
        x = torch.ones(1000, dtype=torch.float64)
        y = x.reshape(10, 100).exp()  # a view, and 8,000 bytes
        del x
        y = y.sum(0)  # 800 bytes; then 8,000 less
        z = torch.zeros(1000, dtype=torch.float64)
    assert (count.peak, count.alive) == (16_000, 8_800)
    assert len(y) + len(z) == 1100
    # of n rows: the hidden layer twice (its tanh, and the gradient in it), and a few vectors of D and of n numbers
    potential = lib.split.split_model(network(lib), rows(lib), num_subsets=1)
    for num_rows in (500, 3000):
        found = bytes_of_gradient(potential, {"w": torch.zeros(WIDTH, HIDDEN)}, num_rows)
        assert 0 < found - 2 * 8 * HIDDEN * num_rows <= 4 * 8 * (WIDTH * HIDDEN + num_rows)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_model_that_does_not_divide_runs_whole_or_not_at_all(lib):
    def model(y):
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        lib.ppl.sample("y", lib.dist.Normal(a + y.mean(), 1.0).expand([y.shape[0]]).to_event(1), obs=y)

    y = lib.array(np.arange(1000.0))
    potential = lib.split.split_model(model, (y,), num_subsets="auto", memory="1GB")
    assert potential.num_subsets == 1
    with pytest.raises(ModelNotSplittableError, match=r"memory must hold the gradient of the model undivided \(.*10 B"):
        lib.split.split_model(model, (y,), num_subsets="auto", memory="10B")


def test_parameters_that_are_too_large_are_an_error_with_the_figure(lib):
    model, args = network(lib), rows(lib, 50)
    with pytest.raises(
        ValueError, match=r"the gradient of one row, which takes .* bytes\).*got memory='1 kB' \(1000 bytes"
    ):
        lib.split.split_model(model, args, num_subsets="auto", memory=1000)


def test_what_brings_its_own_number_is_refused(lib):
    potential = lib.split.split_model(network(lib), rows(lib, 50), num_subsets=2)
    with pytest.raises(ValueError, match="num_subsets must be a number for a SplitPotential.*'auto'"):
        lib.split.SplitHMC(potential, "auto", memory="1GB")
    with pytest.raises(ValueError, match="schedule must be a name or a function .* of num_subsets=3"):
        lib.split.SplitHMC(network(lib), "auto", memory="1GB", schedule=naive(3))
    assert "schedule=naive" in repr(lib.split.SplitHMC(network(lib), "auto", memory="1GB", schedule=naive))


@only_numpyro
def test_traced_data_are_refused_and_jit_model_args_are_not(lib):
    import jax

    model, args = network(lib), rows(lib, 200)
    kernel = lib.split.NaiveSplitHMC(model, "auto", memory="1GB", **AT_ONCE)
    lib.run(kernel, *args, num_warmup=0, num_samples=1, jit_model_args=True)
    assert kernel.num_subsets == 1
    with pytest.raises(ValueError, match="num_subsets must be a number where the data are traced"):
        jax.jit(lambda X, y: kernel.init(jax.random.key(0), 0, None, (X, y)).z)(*args)


def test_a_store_keeps_the_number(lib, tmp_path):
    """It goes on with the same number, whoever chose it, and with no other."""
    module = importlib.import_module(f"{lib.split.__name__}.splitting.choice")
    own = module.bytes_of_gradient

    def run(num_subsets, memory=None):
        options = {"memory": memory} if memory else {}
        return Run(lib, Entry(num_subsets), str(tmp_path / "run.zarr"), 2, 4, options=options)

    class Entry:
        def __init__(self, num_subsets):
            self.num_subsets = num_subsets

        def make(self, lib, model, **options):
            return TABLE["NaiveSplitHMC"].make(lib, model, self.num_subsets, **options)

    def of_few(per_row):
        """As if a gradient took so much a row, of 24 rows."""

        def measure(potential, z, given=1):
            size = potential.subset_sizes[0] if lib.name == "numpyro" else given
            assert own(potential, z, given) > 0
            return per_row * size

        return mock.patch.object(module, "bytes_of_gradient", measure)

    with of_few(10):
        run("auto", 120).sample(every=2, num_samples=4)
        with pytest.raises(StoreError, match=r"another kernel argument splitting.num_subsets: 2 in the store, got 4"):
            run("auto", 60).sample(every=2, num_samples=8)
        again = run("auto", 120)
        first = draws_in(again.sample(every=2, num_samples=8))
    with of_few(20), pytest.raises(StoreError, match="Repeat the call that began it, with num_subsets=2, or"):
        run("auto", 120).sample(every=2, num_samples=12)
    assert again.kernel.num_subsets == 2
    assert draws_in(run(2).sample(every=2, num_samples=8)) == first


@only_numpyro
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore")
def test_vectorised_chains_share_one_copy_of_the_data(lib, name):
    """A branch that chains decide one by one would be given the data once for each of them."""
    import jax

    num_chains, problem = 7, small(lib)
    entry = TABLE[name]
    few_rows = {"batch_size": 6, "num_batches": 3} if entry.name == "PenaltyMH" else {}
    kernel = getattr(lib.split, entry.name)(problem.model, num_subsets=4, **few_rows, **entry.options)
    state = kernel.init(jax.random.split(jax.random.key(0), num_chains), 200, model_args=problem.args)
    made = jax.make_jaxpr(lambda state: kernel.sample(state, problem.args, {}))(state)
    copies = {(num_chains, *x.shape) for x in problem.args if x.ndim == 2}
    assert copies
    assert not copies & set(shapes_of("broadcast_in_dim", made.jaxpr))


@only_numpyro
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_chain_holds_its_data_once(lib, name):
    """XLA would copy rows that are constants into every loop and branch that reads them."""
    import jax

    problem, entry = small(lib), TABLE[name]
    few_rows = {"batch_size": 6, "num_batches": 3} if entry.name == "PenaltyMH" else {}
    kernel = getattr(lib.split, entry.name)(problem.model, num_subsets=4, **few_rows, **entry.options)
    state = kernel.init(jax.random.key(0), 200, model_args=problem.args)
    program = jax.jit(lambda state: kernel.sample(state, problem.args, {})).lower(state).compile().as_text()
    for x in problem.args:
        size = ",".join(map(str, x.shape))
        assert len(re.findall(rf"\w+\[{size}\]\S* constant\(", program)) <= 1


def shapes_of(operation, jaxpr):
    """Shapes of the results of an operation, in a program and in the programs inside it."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == operation:
            yield from (variable.aval.shape for variable in equation.outvars)
        for value in equation.params.values():
            for inside in value if isinstance(value, tuple) else (value,):
                program = getattr(inside, "jaxpr", inside)
                if hasattr(program, "eqns"):
                    yield from shapes_of(operation, program)
