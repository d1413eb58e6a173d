"""Models that compute with the row numbers that their plate yields, as those of a trend do, in both packages."""

import importlib

import numpy as np
import pytest

from split_common.errors import ModelNotSplittableError, NumberMeetsError, RowsMeetError
from split_common.row_independence import PROVED, rows_meet
from split_common.selection import INDEX, NUMBERED, SLICE, cuts_data, yields_numbers
from tests.backends import NumPyroBackend, PyroBackend
from tests.test_prediction_batches import posterior, predict
from tests.test_splitting import check_against_the_host

NUM_ROWS = 11
TABLE = np.random.default_rng(1).normal(size=NUM_ROWS)
Y = np.random.default_rng(0).normal(size=NUM_ROWS)


def floats(lib, i):
    return i.astype(float) if lib.name == "numpyro" else i.double()


# the mean of a row, of a parameter, the row numbers that the plate yields, and the row's response
TRENDS = {
    "times": lambda lib, p, i, y: p * i,
    "times floats": lambda lib, p, i, y: p * floats(lib, i),
    "plus": lambda lib, p, i, y: p + i,
    "sine": lambda lib, p, i, y: lib.np.sin(p * i),
    "from the middle": lambda lib, p, i, y: p * i - (p * i - 5.0) ** 2 / NUM_ROWS,
    "of all rows' mean": lambda lib, p, i, y: p * i + y.mean(),
    "by how many there are": lambda lib, p, i, y: p * i / len(y),
    "a table that is not cut": lambda lib, p, i, y: p * i + lib.array(TABLE)[i],
    "beside a look-up that is held": lambda lib, p, i, y: p * i + y[i],
    "beside one of other rows": lambda lib, p, i, y: p * i * y[i - 1] + y[i // 2],
}

# what must not be taken: a cut row, with a parameter in it, is looked up by its number among all rows; or rows meet
REFUSED = {
    "looked up": lambda lib, p, i, y: p * i + (p * y)[i],
    "looked up by what is made of it": lambda lib, p, i, y: p * i + (p * y)[i // 2],
    "shifted": lambda lib, p, i, y: p * i + (p * y)[i - 1],
    "turned round": lambda lib, p, i, y: p * i + (p * y)[len(y) - 1 - i],
    "summed": lambda lib, p, i, y: p * i + (p * i).sum(),
    "beside counts": lambda lib, p, i, y: p * i + p * lib.np.arange(len(y)),
}


def trend(lib, mean, size=None):
    def model(y):
        p = lib.ppl.sample("p", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", len(y) if size is None else size) as i:
            lib.ppl.sample("y", lib.dist.Normal(mean(lib, p, i, y), 1.0), obs=y)

    return model


def log_likelihoods(lib, mean, p):
    """Of each row, computed on all rows."""
    y = lib.array(Y)
    means = lib.to_numpy(mean(lib, lib.array(p), lib.np.arange(NUM_ROWS), y))
    return -0.5 * (Y - means) ** 2 - 0.5 * np.log(2 * np.pi)


def split_of(lib, model, args, num_subsets=3, **options):
    """The division of a model."""
    room = importlib.import_module(f"{lib.name}_split.splitting.model_split")
    host = importlib.import_module("numpyro.infer" if lib.name == "numpyro" else "pyro.infer.autoguide.initialization")
    own = {"program": None} if lib.name == "numpyro" else {"jit_compile": False}
    options = {"plate": None, "data_axes": None, "subset_order": "sequential", **own, **options}
    return room.ModelSplit.find(model, args, {}, num_subsets=num_subsets, init_strategy=host.init_to_uniform, **options)


def test_ways_of_selecting_rows():
    assert [(cuts_data(mode), yields_numbers(mode)) for mode in (SLICE, INDEX, NUMBERED)] == [
        (True, False),
        (False, True),
        (True, True),
    ]
    met, other = (rows_meet(why) for why in ("model.py:3: the number of a row as it is cut", "max over the data rows"))
    assert isinstance(met, NumberMeetsError)
    assert "rests on other rows" not in str(met)
    assert (type(other), "rests on other rows" in str(other)) == (RowsMeetError, True)


ONE_EACH = [(name, 3, "shuffled", None) for name in TRENDS]
CASES = [("times", 2, "sequential", None), ("times", NUM_ROWS, "sequential", None), ("times", 3, "shuffled", NUM_ROWS)]


@pytest.mark.parametrize(("name", "num_subsets", "subset_order", "size"), ONE_EACH + CASES)
def test_sums_are_the_hosts(lib, name, num_subsets, subset_order, size):
    """All subsets, each of them, single rows, and minibatches."""
    model, args, z = trend(lib, TRENDS[name], size), (lib.array(Y),), {"p": lib.array(0.3)}
    expected, rows = log_likelihoods(lib, TRENDS[name], 0.3), np.array([9, 2, 7])
    options = {"num_subsets": num_subsets, "subset_order": subset_order}
    split = split_of(lib, model, args, **options)
    potential = split.bind(args, {})
    assert (split.mode, split.verdict.kind) == (NUMBERED, PROVED)
    check_against_the_host(lib, potential, model, args, z, 1e-10)
    for m in range(num_subsets):
        of_subset = expected[np.asarray(potential._density.layout.rows(m))].sum()
        np.testing.assert_allclose(float(potential.subset_log_likelihood(z, m)), of_subset, rtol=1e-10)
    found = lib.to_numpy(potential.pointwise_log_likelihood(z, lib.array(rows)))
    np.testing.assert_allclose(found, expected[rows], rtol=1e-10)
    value = float(potential.batch_potential_and_grad(z, lib.array(rows))[0])
    of_batch = -float(potential.log_prior(z)) - NUM_ROWS / 3 * expected[rows].sum()
    np.testing.assert_allclose(value, of_batch, rtol=1e-10)


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_look_up_no_cut_rows(lib, name):
    with pytest.raises(ModelNotSplittableError, match="with both: "):
        lib.split.split_model(trend(lib, REFUSED[name]), (lib.array(Y),), num_subsets=3)


def test_what_is_not_proved_is_not_compared(lib, monkeypatch):
    """Numbers alone never do here: the last way is not tried where nothing is known, and not taken without a proof."""
    room = importlib.import_module(f"{lib.name}_split.splitting.model_split")
    proof = importlib.import_module("split_common.held").Proof
    verdict = importlib.import_module("split_common.row_independence").Verdict
    own = room.prove

    def prove(density, *args):
        return own(density, *args) if density.mode == SLICE else proof(verdict("not proved"), 0, {})

    monkeypatch.setattr(room, "prove", prove)
    with pytest.raises(ModelNotSplittableError, match="with both: that rows are independent must be proved, got not"):
        lib.split.split_model(trend(lib, TRENDS["times"]), (lib.array(Y),), num_subsets=3)


def test_other_ways_come_first(lib):
    """Numbers that look up cut rows, or that are made before a parameter meets them, are as they were."""

    def of(mean):
        return split_of(lib, trend(lib, mean), (lib.array(Y),)).mode

    assert of(lambda lib, p, i, y: p + y[i]) == SLICE
    assert of(lambda lib, p, i, y: p * (i + 1)) == SLICE
    y = lib.array(Y)

    def model():
        p = lib.ppl.sample("p", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", NUM_ROWS) as i:
            lib.ppl.sample("y", lib.dist.Normal(p * i, 1.0), obs=y[i])

    assert split_of(lib, model, ()).mode == INDEX


def test_refusals_name_the_numbers(lib):
    with pytest.raises(ModelNotSplittableError, match=r"the number of a row as it is cut is used for more than") as e:
        lib.split.split_model(trend(lib, REFUSED["looked up"]), (lib.array(Y),), num_subsets=3)
    assert "pass the numbers 0 to N - 1 as an argument" in str(e.value)


def test_predictions_of_some_rows_at_a_time(lib):
    def model(X, y=None):
        p = lib.ppl.sample("p", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", len(X)) as i:
            lib.ppl.sample("y", lib.dist.Normal(p * i + X, 0.5), obs=y)

    draws = posterior(p=())
    found = predict(lib, model, draws, lib.array(Y), into="summaries", rows_per_batch=4)["y"]
    p = draws["p"].values.reshape(-1, 1)
    np.testing.assert_allclose(found["mean"], (p * np.arange(NUM_ROWS) + Y).mean(0), rtol=1e-6)


def test_log_likelihoods_in_inference_data(lib):
    mcmc = lib.run(
        lib.split.SplitHMC(trend(lib, TRENDS["times"]), num_subsets=3, subset_order="shuffled", step_size=0.05),
        lib.array(Y),
        num_warmup=0,
        num_samples=4,
    )
    idata = lib.split.to_inference_data(mcmc, log_likelihood=True)
    for draw, p in enumerate(idata.posterior["p"].values[0]):
        expected = log_likelihoods(lib, TRENDS["times"], p)
        np.testing.assert_allclose(idata.log_likelihood["y"].values[0, draw], expected, rtol=1e-8)


def test_rows_on_disk(lib, tmp_path):
    np.save(tmp_path / "y.npy", Y)
    args, z = (np.load(tmp_path / "y.npy", mmap_mode="r"),), {"p": lib.array(0.3)}
    potential = lib.split.split_model(trend(lib, TRENDS["times"]), args, num_subsets=3)
    expected, rows = log_likelihoods(lib, TRENDS["times"], 0.3), np.array([9, 2, 7])
    for m in range(3):
        of_subset = expected[np.asarray(potential._density.layout.rows(m))].sum()
        np.testing.assert_allclose(float(potential.subset_log_likelihood(z, m)), of_subset, rtol=1e-10)
    found = lib.to_numpy(potential.pointwise_log_likelihood(z, lib.array(rows)))
    np.testing.assert_allclose(found, expected[rows], rtol=1e-10)


@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
def test_blocks_of_a_subset(lib, monkeypatch):
    from numpyro_split.potential import arguments

    monkeypatch.setattr(arguments, "MIN_BLOCK_ROWS", 2)
    monkeypatch.setattr(arguments, "BLOCK_BYTES", 1)
    expected, z = log_likelihoods(lib, TRENDS["times"], 0.3), {"p": lib.array(0.3)}
    for subset_order in ("sequential", "shuffled"):
        model, args = trend(lib, TRENDS["times"]), (lib.array(Y),)
        potential = lib.split.split_model(model, args, num_subsets=2, subset_order=subset_order)
        assert potential._density.num_blocks == 3
        check_against_the_host(lib, potential, model, args, z, 1e-10)
        for m in range(2):
            of_subset = expected[np.asarray(potential._density.layout.rows(m))].sum()
            np.testing.assert_allclose(float(potential.subset_log_likelihood(z, m)), of_subset, rtol=1e-10)


@pytest.mark.parametrize("lib", [PyroBackend], indirect=True, ids=["pyro"])
def test_ranks_number_their_own_rows(lib):
    split = split_of(lib, trend(lib, TRENDS["times"]), (lib.array(Y),))
    assert "a rank numbers its own rows from 0" in split.depends_on_other_rows((lib.array(Y),), {})
