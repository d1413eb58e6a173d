"""What a store belongs to, in texts: whatever may change a run changes a text, and nothing else does."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from split_common.errors import StoreError
from split_common.runs.identity import check_same, check_same_density, code_of, texts_of

SCALE = 1.0


def scaled(x):
    def inner(y):
        return SCALE * y

    return inner(x)


def test_names_of_inner_functions_count(monkeypatch):
    before = code_of(scaled)
    assert code_of(scaled) == before
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert code_of(scaled) != before


def holding(value):
    return lambda x: (x, value)


@pytest.mark.parametrize("kind", ["array", "table", "objects", "list", "partial"])
def test_a_change_deep_in_what_is_held_is_seen(kind):
    import pandas

    numbers = np.arange(3000.0)
    changed = numbers.copy()
    changed[1500] += 1e-9
    make = {
        "array": lambda x: x,
        "table": lambda x: pandas.DataFrame({"a": x, "b": np.arange(3000)}),
        "objects": lambda x: x.astype(object),
        "list": list,
        "partial": lambda x: functools.partial(np.add, x),
    }[kind]
    assert code_of(holding(make(numbers))) == code_of(holding(make(numbers.copy())))
    assert code_of(holding(make(numbers))) != code_of(holding(make(changed)))


def test_what_differs_is_said():
    stored, now = texts_of({"rate": 0.8, "depth": 10}, "kernel"), texts_of({"rate": 0.9, "depth": 10}, "kernel")
    with pytest.raises(StoreError, match=r"another kernel.rate: 0.8 in the store, got 0.9\."):
        check_same(stored, now, "run.zarr")
    check_same(stored, dict(stored), "run.zarr")


def test_a_density_may_round():
    check_same_density([1e6, np.inf, np.nan], [1e6 + 1.0, np.inf, np.nan], "run.zarr")
    with pytest.raises(StoreError, match="potential energy"):
        check_same_density([1e6], [1e6 + 50.0], "run.zarr")
