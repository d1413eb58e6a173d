"""Nothing is proved wrongly: of what is proved, a row's terms are the same whatever rows stand beside it.

Row i is evaluated among all rows, then among others: drawn from the data with repetition, put in another order, changed
for other values, and fewer of them. No rule of the proof is used here, only the model, in float64.
"""

import importlib

import numpy as np
import pytest

from split_common.held import Proof
from split_common.row_independence import PROVED, Verdict
from tests import models
from tests.backends import NumPyroBackend, PyroBackend
from tests.test_splitting import needs_plate

SUBSETS = 4
POINTS = 20


class NumPyroRows:
    """The terms of some rows in NumPyro."""

    def __init__(self, model, args, plate):
        import jax
        from numpyro.infer import init_to_uniform

        from numpyro_split.potential.arguments import Arguments
        from numpyro_split.splitting.model_split import ModelSplit

        options = {"data_axes": None, "subset_order": "sequential", "init_strategy": init_to_uniform, "program": None}
        self.split = ModelSplit.find(model, args, {}, num_subsets=SUBSETS, plate=plate, **options)
        arguments = Arguments(args, {}, self.split._row_axes)
        self.data, self.axes = [np.asarray(x) for x in arguments.data], arguments.axes
        self.shapes = {name: np.shape(u) for name, u in self.split.reference_position.items()}
        self._density = self.split._density(arguments)
        self._terms = jax.jit(self._compute)

    def _compute(self, z, data, rows):
        import jax.numpy as jnp

        from numpyro_split.potential.row_block import RowBlock

        block = RowBlock(rows)
        is_cut = self.split.mode == "slice"
        taken = self._density.arguments.take(block, data) if is_cut else data
        numbers = jnp.arange(len(rows)) if is_cut else rows
        return [
            jnp.moveaxis(x, axis, 0) for x, axis in self._density.terms(self._density.local(z, block), taken, numbers)
        ]

    def terms(self, z, data, rows):
        return [np.asarray(x) for x in self._terms(z, tuple(data), np.asarray(rows))]


class PyroRows:
    """The same in Pyro."""

    def __init__(self, model, args, plate):
        from pyro.infer.autoguide.initialization import init_to_uniform

        from pyro_split.splitting.model_split import ModelSplit

        options = {"data_axes": None, "subset_order": "sequential", "init_strategy": init_to_uniform}
        self.split = ModelSplit.find(model, args, {}, num_subsets=SUBSETS, plate=plate, jit_compile=False, **options)
        self._density = self.split._density(args, {})
        self.data, self.axes = [x.numpy() for x in self._density.arguments.data], self._density.arguments.axes
        self.shapes = {name: tuple(u.shape) for name, u in self.split.reference_position(args, {}).items()}

    def terms(self, z, data, rows):
        import pyro
        import torch

        from pyro_split.potential.row_block import RowBlock

        z = {name: torch.as_tensor(u) for name, u in z.items()}
        block = RowBlock(torch.as_tensor(rows))
        local = block.local(z, self._density.local_axes)
        taken = self._density.take(tuple(torch.as_tensor(x) for x in data), block)
        numbers = torch.arange(len(rows)) if self.split.mode == "slice" else block.indices
        with torch.no_grad(), pyro.validation_enabled(False):
            return [x.movedim(axis, 0).numpy() for x, axis in self._density.terms(local, taken, numbers)]


ROWS = {"numpyro": NumPyroRows, "pyro": PyroRows}


def check_rows(found, others, num_points):
    """Compare a row among all rows with the same row among others; ``others`` are data to change rows for, or None."""
    assert found.split.verdict.kind == PROVED
    rng = np.random.default_rng(2)
    n, m = found.split.layout.num_rows, found.split.layout.sizes[0]
    for _ in range(num_points):
        z = {name: rng.normal(size=shape) for name, shape in found.shapes.items()}
        row, place, size = rng.integers(n), rng.integers(m), rng.choice([m, n])
        rows = rng.integers(n, size=size)
        rows[place] = row
        changed = [
            x if axis is None or others is None else np.where(_is_row(x, axis, row), x, other)
            for x, axis, other in zip(found.data, found.axes, others or found.data, strict=True)
        ]
        alone = [term[row] for term in found.terms(z, found.data, np.arange(n))]
        beside = [term[place] for term in found.terms(z, changed, rows)]
        for a, b in zip(alone, beside, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)


def _is_row(x, axis, row):
    return np.expand_dims(np.arange(x.shape[axis]) == row, [a for a in range(x.ndim) if a != axis])


def honest(lib, name):
    """A model, its data, and as many other rows."""
    if lib.name == "numpyro":
        from tests import test_row_independence as room

        rng = np.random.default_rng(3)
        args = room.data()
        others = [rng.normal(size=x.shape) if np.asarray(x).dtype.kind == "f" else rng.permutation(x) for x in args]
        return room.model_of(room.HONEST[name]), args, others
    from tests import row_models_pyro as room

    args, others = (room.draw_data(np.random.default_rng(seed)) for seed in (0, 3))
    return room.model_of(room.HONEST[name]), args, [x.numpy() for x in others]


def names_of(lib):
    room = "tests.test_row_independence" if lib is NumPyroBackend else "tests.row_models_pyro"
    try:
        return list(importlib.import_module(room).HONEST)
    except ModuleNotFoundError:  # without that framework
        return []


HONEST = [(lib, name) for lib in (NumPyroBackend, PyroBackend) for name in names_of(lib)]
each_honest_model = pytest.mark.parametrize(
    ("lib", "name"), HONEST, ids=[f"{lib.name}-{name}" for lib, name in HONEST], indirect=["lib"]
)


@pytest.mark.contract
@each_honest_model
def test_rows_of_honest_models_are_independent(lib, name):
    model, args, others = honest(lib, name)
    check_rows(ROWS[lib.name](model, args, None), others, POINTS)


@pytest.mark.slow
@each_honest_model
def test_rows_of_honest_models_are_independent_at_many_points(lib, name):
    model, args, others = honest(lib, name)
    check_rows(ROWS[lib.name](model, args, None), others, 100)


@pytest.mark.contract
@pytest.mark.parametrize("build", models.SPLITTABLE, ids=lambda build: build.__name__)
def test_rows_of_models_that_divide_are_independent(lib, build):
    model, args = build(lib)
    check_rows(ROWS[lib.name](model, args, needs_plate(build)), None, POINTS)


def test_a_row_that_rests_on_others_is_seen(lib, monkeypatch):
    """The comparison itself: with a proof that says yes to everything, it finds the rows that it is wrong of."""
    model, args = models.statistic_of_all_rows(lib)
    splitting = importlib.import_module(f"{lib.split.__name__}.splitting.model_split")
    monkeypatch.setattr(splitting, "prove", lambda *args: Proof(Verdict(PROVED), 0, {}))
    monkeypatch.setattr(splitting, "check_exact", lambda *args: None)
    with pytest.raises(AssertionError):
        check_rows(ROWS[lib.name](model, args, "data"), None, POINTS)
