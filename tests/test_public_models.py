"""The hosts' own examples and tutorials: right, or refused in words that help (tests/public_models/README.md).

Each module ``tests.public_models.<host>_cases`` lists ``CASES``, and ``<host>_host`` runs one in that host.
"""

import importlib
import importlib.util

import numpy as np
import pytest

from split_common.row_independence import PROVED
from tests.backends import BACKENDS, PACKAGES
from tests.public_models.case import RIGHT
from tests.public_models.checks import difference, fault_of_refusal, host_of
from tests.public_models.origin import Unavailable
from tests.statistics import Comparison, assert_agree

LEAST_PROVED = 0.8  # of the models that divide


def cases():
    """Those of every host that is installed and has any."""
    hosts = [host for host in ("numpyro", "pyro") if host in PACKAGES]
    modules = [f"tests.public_models.{host}_cases" for host in hosts]
    return [case for name in modules if importlib.util.find_spec(name) for case in importlib.import_module(name).CASES]


ALL = cases()
EACH = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
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
    ours, theirs = host.posteriors(case, num_samples=2000, num_chains=2)
    assert_agree([c for name in ours for c in compare(name, ours[name], theirs[name])])


@pytest.mark.contract
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


def compare(name, ours, theirs):
    """The means of every component, with the Monte Carlo errors of both."""
    import arviz as az

    ours, theirs = (x.reshape(*x.shape[:2], -1) for x in (ours, theirs))
    for i in range(ours.shape[-1]):
        (error, ess), (other_error, other_ess) = (
            (float(az.mcse(x, method="mean")), float(az.ess(x, method="mean")))
            for x in (ours[:, :, i], theirs[:, :, i])
        )
        means = float(ours[:, :, i].mean()), float(theirs[:, :, i].mean())
        yield Comparison(f"{name}[{i}]", *means, float(np.hypot(error, other_error)), min(ess, other_ess))
