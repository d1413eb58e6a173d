"""The hosts' own examples and tutorials: right, or refused in words that help (tests/public_models/README.md).

Each module ``tests.public_models.<host>_cases`` lists ``CASES``, and ``<host>_host`` runs one in that host.
"""

import importlib
import importlib.util
import re

import arviz as az
import numpy as np
import pytest

from split_common.row_independence import PROVED
from tests.backends import BACKENDS, PACKAGES
from tests.public_models.case import RIGHT
from tests.public_models.checks import difference, fault_of_refusal, host_of
from tests.public_models.origin import Unavailable
from tests.statistics import MIN_ESS, Comparison, Inconclusive, assert_agree

LEAST_PROVED = 0.8  # of the models that divide
MOST_RHAT = 1.02  # of the host's chains, where a component is compared


def cases():
    """Those of every host that is installed and has any."""
    hosts = [host for host in ("numpyro", "pyro") if host in PACKAGES]
    modules = [f"tests.public_models.{host}_cases" for host in hosts]
    return [case for name in modules if importlib.util.find_spec(name) for case in importlib.import_module(name).CASES]


ALL = cases()
# At M = 1 all go through the host's own potential, and most of the time is the compiling of the host's: of NumPyro's
# one of each kind is asked by default, a recursion, a Gaussian process, an enumeration and a hierarchy.
ASKED_WHOLE = re.compile(r"ar2\.py:ar2_scan|examples/gp\.py|capture_recapture\.py:model_5|funnel\.py")
LONG = re.compile(r"ucbadmit\.py:glmm:M=3")


def is_long(case):
    """Whether a case is left to the slow suite."""
    is_whole = case.host == "numpyro" and case.expected == RIGHT and case.num_subsets == 1
    return bool(LONG.search(case.name)) or (is_whole and not ASKED_WHOLE.search(case.name))


EACH = pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=[pytest.mark.slow] * is_long(c)) for c in ALL],
)
EACH_DIVIDING = pytest.mark.parametrize("case", [c for c in ALL if c.divides], ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def _float32(_float64):
    """As users have it: some of the models carry 32-bit integers and fail in 64 bits in the host as well."""
    for backend in BACKENDS:
        backend().set_precision(32)


@pytest.fixture
def host(case):
    """How the case's host runs a model, where what the model imports is at hand."""
    for backend in BACKENDS:
        backend().set_precision(getattr(case, "bits", 32))
    try:
        case.build()
    except Unavailable as why:
        pytest.skip(str(why))
    return host_of(case)


@pytest.mark.contract
@EACH
def test_it_is_the_hosts_potential_or_refused_in_words_that_help(case, host):
    if case.expected != RIGHT:
        error = host.refusal(case)
        assert error is not None, "taken, and to be refused"
        assert not (fault := fault_of_refusal(case, error)), fault
        return
    try:
        ours, theirs = host.energies(case)
    except Unavailable as why:
        pytest.skip(str(why))
    assert not (fault := difference(ours, theirs)), fault


@pytest.mark.slow
@EACH_DIVIDING
def test_the_posterior_is_the_hosts(case, host):
    """Of every component that the host's own chains agree on; more draws where there are too few to tell."""
    too_few = None
    for num_samples in (case.num_samples * 4**i for i in range(3)):
        try:
            ours, theirs = host.posteriors(case, num_samples, num_chains=2)
            found = compare_posteriors(ours, theirs, case.by_logarithm)
        except Unavailable as why:
            pytest.skip(str(why))
        if not found:
            continue
        try:
            return assert_agree(found)
        except Inconclusive as error:
            too_few = error
    if too_few is None:
        pytest.skip("the host's own chains agree on nothing")
    raise too_few


@pytest.mark.slow
def test_most_of_those_that_divide_are_proved():
    verdicts = {}
    for case in (c for c in ALL if c.divides):
        try:
            case.build()
        except Unavailable:
            continue
        verdicts[case.name] = host_of(case).verdict(case)
    if not verdicts:
        pytest.skip("what the models import is not at hand")
    not_proved = {name: str(v) for name, v in verdicts.items() if v.kind != PROVED}
    print("\n".join(f"{name}: {v}" for name, v in verdicts.items()))
    assert len(not_proved) <= (1 - LEAST_PROVED) * len(verdicts), not_proved


def compare_posteriors(ours, theirs, by_logarithm=()):
    """The means of every component on which the host's chains agree, with the Monte Carlo errors of both.

    Of sites without a variance, ``by_logarithm``, the means of the logarithms.
    """
    found, left_out = [], 0
    for name in theirs:
        mine, host = (x.reshape(*x.shape[:2], -1) for x in (ours[name], theirs[name]))
        mine, host = (np.log(mine), np.log(host)) if name in by_logarithm else (mine, host)
        for i in range(host.shape[-1]):
            a, b = mine[:, :, i], host[:, :, i]
            if np.ptp(b) == 0.0:  # such as the corner of a Cholesky factor
                np.testing.assert_array_equal(a, b)
            elif az.rhat(b) < MOST_RHAT and az.ess(b, method="mean") >= MIN_ESS:
                error = float(np.hypot(az.mcse(a, method="mean"), az.mcse(b, method="mean")))
                ess = float(az.ess(a, method="mean"))
                found.append(Comparison(f"{name}[{i}]", float(a.mean()), float(b.mean()), error, ess))
            else:
                left_out += 1
    print(f"{len(found)} compared, largest |z| {max((abs(c.z) for c in found), default=0.0):.2f}; {left_out} left out")
    return found
