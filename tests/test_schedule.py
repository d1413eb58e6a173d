"""The algebra of schedules, in exact fractions."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest

from split_common.schedule import Reversal, Row, Schedule, naive, randomised, single_visit, symmetric
from tests import kernels

HALF = Fraction(1, 2)
SIZES = [1, 2, 3, 7, 20]


@pytest.mark.parametrize("num_subsets", SIZES)
@pytest.mark.parametrize("build", [symmetric, naive, randomised, single_visit])
def test_kicks_of_each_subset_and_drifts_sum_to_one(build, num_subsets):
    schedule = build(num_subsets)
    for subset in range(num_subsets):
        assert sum(row.kick for row in schedule.rows if row.subset == subset) == 1
    assert schedule.leading_drift + sum(row.drift for row in schedule.rows) == 1
    assert schedule.num_subsets == num_subsets


@pytest.mark.parametrize("num_subsets", SIZES)
def test_gradients_of_a_step(num_subsets):
    assert symmetric(num_subsets).grads_per_step == max(2 * num_subsets - 2, 1)
    assert naive(num_subsets).grads_per_step == num_subsets
    assert randomised(num_subsets).grads_per_step == 2 * num_subsets
    assert symmetric(num_subsets).opening_grads == 1
    assert naive(num_subsets).opening_grads == num_subsets
    assert randomised(num_subsets).opening_grads == 0


@pytest.mark.parametrize("num_subsets", SIZES)
def test_which_schedules_close_with_the_whole_gradient(num_subsets):
    """The naive one and leapfrog: the kicks at a step's end are of every subset, with one weight."""
    assert naive(num_subsets).closing_kick == HALF
    assert symmetric(num_subsets).closing_kick == (HALF if num_subsets == 1 else None)
    assert randomised(num_subsets).closing_kick is None


def test_symmetric_is_algorithm_1_with_equal_neighbours_merged():
    quarter = Fraction(1, 4)
    assert symmetric(3).rows == (
        Row(0, HALF, quarter),
        Row(1, HALF, quarter),
        Row(2, Fraction(1), quarter),
        Row(1, HALF, quarter),
        Row(0, HALF, Fraction(0)),
    )


def test_one_subset_is_leapfrog():
    leapfrog = (Row(0, HALF, Fraction(1)), Row(0, HALF, Fraction(0)))
    assert symmetric(1).rows == naive(1).rows == randomised(1).rows == leapfrog


@pytest.mark.parametrize(
    ("rows", "reversal", "message"),
    [
        ([], Reversal.PALINDROMIC, "at least one row"),
        ([(0, HALF, 1)], Reversal.PALINDROMIC, "kicks of each subset must sum to 1, got 1/2 for subset 0"),
        ([(0, HALF, HALF), (0, HALF, 0)], Reversal.PALINDROMIC, "drifts must sum to 1, got 1/2"),
        ([(1, HALF, 1), (1, HALF, 0)], Reversal.PALINDROMIC, "got 0 for subset 0"),
        ([(0, 1, HALF), (1, 1, HALF)], Reversal.PALINDROMIC, "must read the same backwards"),
        ([(0, 1, HALF), (1, 1, HALF)], Reversal.RANDOM_ORDER, "subsets in the opposite order"),
    ],
)
def test_rows_that_are_no_step_are_refused(rows, reversal, message):
    with pytest.raises(ValueError, match=message):
        Schedule("faulty", rows, reversal)


@pytest.mark.parametrize(
    "row", [(-1, 0, 0), (0.5, 0, 0), (True, 0, 0), ("0", 0, 0), (0, math.nan, 0), (0, "half", 0), (0, 1), None]
)
def test_rows_are_whole_numbers_with_exact_numbers(row):
    """Subset -1 would be the last one, which would kick twice."""
    with pytest.raises(ValueError, match=r"a row must be \(subset, kick, drift\).*, got " + re.escape(repr(row))):
        Schedule("faulty", [row, (0, HALF, 1), (0, HALF, 0)], Reversal.PALINDROMIC)


@pytest.mark.parametrize("reversal", ["palindromic", None, True])
def test_a_reversal_is_one_of_two(reversal):
    with pytest.raises(TypeError, match=r"reversal must be Reversal\.PALINDROMIC or .*got"):
        Schedule("leapfrog", [(0, HALF, 1), (0, HALF, 0)], reversal)


def test_a_long_schedule_is_not_printed_whole():
    with pytest.raises(ValueError, match="got .* at place 1 of 2001, and .* there read backwards") as error:
        Schedule("fixed order", randomised(1000).rows, Reversal.PALINDROMIC)
    assert len(str(error.value)) < 1000


def test_a_non_palindromic_order_is_not_taken_for_a_palindrome():
    with pytest.raises(ValueError, match="must read the same backwards"):
        Schedule("fixed order", randomised(3).rows, Reversal.PALINDROMIC)


@pytest.mark.parametrize("num_subsets", [0, -1, 2.0, True])
def test_number_of_subsets_is_checked(num_subsets):
    with pytest.raises(ValueError, match="num_subsets must be a whole number of at least 1"):
        symmetric(num_subsets)


@pytest.mark.parametrize(("name", "schedule"), [("RandomisedSplitHMC", "randomised"), ("NaiveSplitHMC", naive)])
@pytest.mark.filterwarnings("ignore")
def test_split_hmc_by_a_schedule_draws_as_the_kernel_of_that_name(lib, name, schedule):
    """With the metric and the drifts of that kernel; other defaults, also unused, may change rounding."""
    problem = kernels.small(lib)
    made = [
        getattr(lib.split, name)(problem.model, 3, num_steps=2),
        lib.split.SplitHMC(problem.model, 3, num_steps=2, schedule=schedule, metric=None, drift=None),
    ]
    draws = [lib.run(kernel, *problem.args, num_warmup=5, num_samples=5).get_samples() for kernel in made]
    for site in draws[0]:
        np.testing.assert_array_equal(*(lib.to_numpy(found[site]) for found in draws))


@pytest.mark.parametrize("num_subsets", SIZES)
def test_a_step_that_opens_with_a_drift(num_subsets):
    schedule = single_visit(num_subsets)
    assert schedule.leading_drift == schedule.rows[-1].drift == Fraction(1, 2 * num_subsets)
    assert (schedule.grads_per_step, schedule.opening_grads, schedule.closing_kick) == (num_subsets, 0, None)
    assert schedule.draws_order
    assert not schedule.keeps_opening
    assert not any(schedule.closes)


def test_kicks_of_weight_zero_are_none():
    """Wherever they stand: at the top, between drifts, at the end, or as two that cancel."""
    quarter = Fraction(1, 4)
    rows = [(0, 0, quarter), (0, 0, quarter), (0, HALF, 0), (1, 0, 0), (0, HALF, quarter), (0, 1, 0), (0, -1, quarter)]
    verlet = Schedule("position Verlet", rows, Reversal.PALINDROMIC)
    assert verlet.leading_drift == HALF
    assert verlet.rows == (Row(0, Fraction(1), HALF),)


@pytest.mark.parametrize("reversal", Reversal)
def test_a_leading_drift_counts_in_the_reversal(reversal):
    rows = [(0, 0, HALF), (0, 1, Fraction(1, 4)), (1, 1, Fraction(1, 4))]
    with pytest.raises(ValueError, match="backwards"):
        Schedule("lopsided", rows, reversal)
