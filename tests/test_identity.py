"""What a store belongs to, in texts: whatever may change a run changes a text, and nothing else does."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import logging
import sys
import types
from collections import defaultdict, deque

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


def named(lib, name):
    """Values that a function names, two that differ and a use after which each must be what it was."""
    import pandas

    dist, two = lib.dist, lib.array(2.0)
    if name == "class":
        return dist.Normal, dist.Laplace, None
    if name == "partial":
        return functools.partial(dist.Normal, 0.0), functools.partial(dist.Normal, 1.0), None
    if name == "table":
        return pandas.DataFrame({"a": [1.0]}), pandas.DataFrame({"a": [2.0]}), None
    makes = {
        "normal": lambda x: dist.Normal(lib.array(0.0), x),
        "categorical": lambda x: dist.Categorical(lib.array([0.5, 0.5]) / x),
        "transformed": lambda x: dist.LogNormal(lib.array(0.0), x),
        "independent": lambda x: dist.Normal(lib.np.zeros(3), x).to_event(1),
        "mixture": lambda x: dist.MixtureSameFamily(
            dist.Categorical(lib.array([0.5, 0.5])), dist.Normal(lib.np.zeros(2), x)
        ),
    }
    make = makes[name]
    other = dist.Categorical(lib.array([0.9, 0.1])) if name == "categorical" else make(two)
    return (
        make(lib.array(1.0)),
        other,
        lambda prior: prior.log_prob(lib.np.ones(3) if name == "independent" else 1 / two),
    )


@pytest.mark.parametrize(
    "name", ["class", "partial", "table", "normal", "categorical", "transformed", "independent", "mixture"]
)
def test_what_is_installed_and_named_counts_by_what_it_is_made_of(monkeypatch, lib, name):
    """A prior of the library's, and what a script calls it by."""
    first, second, use = named(lib, name)
    monkeypatch.setitem(globals(), "SCALE", first)
    before = code_of(scaled)
    if use is not None and name != "categorical":
        use(first)
    elif name == "categorical":
        assert first.logits is not None
    assert code_of(scaled) == before
    monkeypatch.setitem(globals(), "SCALE", second)
    assert code_of(scaled) != before


def test_a_distribution_of_the_users_own_counts_whole():
    torch = pytest.importorskip("torch")

    class Own(torch.distributions.Distribution):  # says no arg_constraints, which is an error when asked
        def __init__(self, rate):
            self._rate = rate
            super().__init__(validate_args=False)

    assert code_of(holding(Own(1.0))) == code_of(holding(Own(1.0)))
    assert code_of(holding(Own(1.0))) != code_of(holding(Own(2.0)))


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


class Bounded:
    limit = 5.0

    def bound(self, x):
        return min(x, 5.0)

    def __call__(self, x):
        return self.bound(x)


def bounded_otherwise():
    """The class as after an edit of one of its methods."""

    class Bounded:
        limit = 5.0

        def bound(self, x):
            return min(x, 0.5)

        def __call__(self, x):
            return self.bound(x)

    Bounded.__qualname__ = "Bounded"
    return Bounded


def test_code_of_an_objects_methods_counts():
    assert code_of(Bounded()) == code_of(Bounded())
    assert code_of(Bounded()) != code_of(bounded_otherwise()())
    assert code_of(Bounded().__call__) != code_of(bounded_otherwise()().__call__)


CONFIG, NAMESPACE = types.SimpleNamespace(bound=5.0), argparse.Namespace(bound=5.0)


def named_settings(x):
    return min(x, CONFIG.bound), min(x, Bounded.limit), min(x, NAMESPACE.bound)


@pytest.mark.parametrize(("owner", "name"), [(CONFIG, "bound"), (Bounded, "limit"), (NAMESPACE, "bound")])
def test_settings_that_a_function_names_count(monkeypatch, owner, name):
    before = code_of(named_settings)
    monkeypatch.setattr(owner, name, 0.5)
    assert code_of(named_settings) != before


@pytest.mark.parametrize(
    "body",
    [
        "from own_settings import limit; return min(x, limit)",
        "from own_settings import bounded; return bounded(x)",
        "import own_settings as settings; return min(x, settings.limit)",
        "import own_settings; return min(x, getattr(own_settings, 'limit'))",
        "import own_settings; return min(x, vars(own_settings)['limit'])",
        "import missing_settings; from own_settings import limit; return min(x, limit)",
        "def inner(y):\n        from own_settings import limit\n        return min(y, limit)\n    return inner(x)",
    ],
)
def test_what_a_function_imports_when_it_runs_counts(monkeypatch, tmp_path, body):
    (tmp_path / "own_settings.py").write_text("limit = 5.0\n\n\ndef bounded(x):\n    return min(x, limit)\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = {}
    exec(f"def function(x):\n    {body}\n", names)
    before = code_of(names["function"])
    assert code_of(names["function"]) == before
    import own_settings

    monkeypatch.setattr(own_settings, "limit", 0.5)
    assert code_of(names["function"]) != before
    monkeypatch.delitem(sys.modules, "own_settings")


@pytest.mark.parametrize(
    "text",
    [
        "import own_package.limits\ndef function(x): return min(x, own_package.limits.limit)",
        "import own_package.limits\ndef function(x): return own_package.limits.bounded(x)",
        "from own_package import limits\ndef function(x): return min(x, limits.limit)",
        "def function(x):\n    from own_package import limits\n    return min(x, limits.limit)",
        "def function(x):\n    from own_package import other, limits as found\n    return min(x, found.limit)",
        "def function(x):\n    import own_package.limits\n    return min(x, own_package.limits.limit)",
        "__package__ = 'own_package'\ndef function(x):\n    from . import limits\n    return min(x, limits.limit)",
        "__package__ = 'own_package'\ndef function(x):\n    from .limits import limit\n    return min(x, limit)",
    ],
)
def test_modules_within_packages_count(monkeypatch, tmp_path, text):
    folder = tmp_path / "own_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("from own_package import other\n")
    (folder / "other.py").write_text("import own_package\n")  # each names the other
    (folder / "limits.py").write_text("limit = 5.0\nunread = 1\n\n\ndef bounded(x):\n    return min(x, limit)\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = {"__name__": "own_script"}
    exec(text, names)
    before = code_of(names["function"])
    assert code_of(names["function"]) == before
    limits = importlib.import_module("own_package.limits")
    monkeypatch.setattr(limits, "unread", 2)
    assert code_of(names["function"]) == before
    monkeypatch.setattr(limits, "limit", 0.5)
    assert code_of(names["function"]) != before
    for name in ("own_package", "own_package.limits", "own_package.other"):
        monkeypatch.delitem(sys.modules, name)


class Slotted:
    __slots__ = ("bound",)

    def __init__(self, bound):
        self.bound = bound


@dataclasses.dataclass
class Settings:
    bound: int
    names: set = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Derived:
    """Has attributes that are no fields."""

    name: str = "a"

    def __post_init__(self):
        self._bound = 5.0

    @functools.cached_property
    def half(self):
        return self._bound / 2


class Mapped(dict):
    pass


class Listed(list):
    pass


def with_attribute(value, bound):
    value._bound = bound
    return value


def five():
    return 5.0


def six():
    return 6.0


@pytest.mark.parametrize(
    "make",
    [
        lambda x: with_attribute(Derived(), x),
        lambda x: with_attribute(Mapped(a=1), x),
        lambda x: with_attribute(Listed([1]), x),
        lambda x: with_attribute(lambda y: y, x),
        lambda x: defaultdict(five if x == 5 else six, a=1),
        lambda x: type("Meta", (type,), {"_bound": x, "__module__": __name__})("Made", (), {"__module__": __name__}),
    ],
    ids=["dataclass", "dict", "list", "function", "default", "metaclass"],
)
def test_attributes_beside_the_content_count(make):
    assert code_of(holding(make(5))) == code_of(holding(make(5)))
    assert code_of(holding(make(5))) != code_of(holding(make(6)))


def test_what_a_cached_property_keeps_does_not_count():
    settings = Derived()
    before = code_of(holding(settings))
    assert settings.half == 2.5
    assert code_of(holding(settings)) == before


@pytest.mark.parametrize("make", [lambda x: deque([x]), range, Slotted, Settings, lambda x: {x}])
def test_values_without_a_dict_count(make):
    assert code_of(holding(make(5))) == code_of(holding(make(5)))
    assert code_of(holding(make(5))) != code_of(holding(make(6)))


class Encoder:
    """Has a method that a model may name alone."""

    def __init__(self, scale):
        self.scale = scale

    def encode(self, x):
        return self.scale * x


def cached(scale):
    return functools.lru_cache(lambda x: scale * x)


@pytest.mark.parametrize("make", [lambda scale: Encoder(scale).encode, cached])
def test_methods_and_functions_that_keep_results_count_where_a_model_names_them(make):
    def naming(value):
        names = {"outside": value, "__name__": __name__}
        exec("def model(x):\n    return outside(x)", names)
        return names["model"]

    assert code_of(naming(make(5.0))) == code_of(naming(make(5.0)))
    assert code_of(naming(make(5.0))) != code_of(naming(make(6.0)))


def test_what_logs_does_not_count():
    before = code_of(holding(logging.getLogger("of a model")))
    logging.getLogger("of another").addHandler(logging.NullHandler())
    assert code_of(holding(logging.getLogger("of a model"))) == before


def test_an_object_that_knows_all_others_is_read_once():
    everyone = [types.SimpleNamespace(value=i) for i in range(40)]
    for one in everyone:
        one.others = everyone
    assert code_of(holding(everyone)) == code_of(holding(everyone))


LONG = """
def long(x):
    a = x * 2 + x * 3 - x * 4 + x * 5
    b = a * 2 + x * 3 - a * 4 + x * 5
    c = b * 2 + x * 3 - b * 4 + a * 5
    d = c * 2 + b * 3 - c * 4 + a * 5
    e = d * 2 + b * 3 OPERATOR d * 4 + a * 5
    f = e * 2 + b * 3 - e * 4 + a * 5
    g = f * 2 + e * 3 - f * 4 + a * 5
    h = g * 2 + e * 3 - g * 4 + a * 5
    return h * 2 + g * 3 - h * 4 + a * 5
"""


def test_an_operator_in_the_middle_of_long_code_counts():
    found = []
    for operator in "-+":
        names = {}
        exec(LONG.replace("OPERATOR", operator), names)
        found.append(code_of(names["long"]))
    assert found[0] != found[1]


@pytest.mark.parametrize("kind", [str, str.encode, int, lambda text: {text: 1}, lambda text: frozenset([text])])
def test_the_middle_of_a_long_value_counts(kind):
    first, second = (kind("1" * 2000 + digit + "1" * 2000) for digit in "12")
    assert texts_of(first, "x") != texts_of(second, "x")


def test_bfloat16_counts_by_its_numbers():
    torch = pytest.importorskip("torch")
    first, second = torch.zeros(5000, dtype=torch.bfloat16), torch.zeros(5000, dtype=torch.bfloat16)
    second[2500] = 1.0
    assert texts_of(first, "x") != texts_of(second, "x")


def test_which_object_is_met_again_counts():
    a, b = Settings(1), Settings(2)
    assert texts_of([a, b, a], "x") != texts_of([a, b, b], "x")
    c, d = Settings(1), Settings(2)
    assert texts_of([a, b, a], "x") == texts_of([c, d, c], "x")


def reading(**arguments):
    """Functions of a script's arguments: one reads an attribute, in a comprehension; one has all of them."""
    args = argparse.Namespace(**arguments)

    def reads_one(x):
        return [args.scale * number for number in x]

    def has_all(x):
        return len(vars(args)) * x

    return reads_one, has_all


def test_of_a_scripts_arguments_those_count_that_a_function_reads():
    first, longer, other = (reading(**x) for x in ({"scale": 1, "draws": 50}, {"scale": 1, "draws": 80}, {"scale": 2}))
    assert code_of(first[0]) == code_of(longer[0]) != code_of(other[0])
    assert code_of(first[1]) != code_of(longer[1])


class Rates(types.SimpleNamespace):
    """A namespace with a method, which reads what its caller does not name."""

    @property
    def ratio(self):
        return self.above / self.below


def of_rates(rates):
    def in_function():
        return rates.ratio

    def in_class():
        class Inner:
            ratio = rates.above

        return Inner

    return in_function, in_class


def test_what_a_namespaces_own_methods_read_counts():
    for place in (0, 1):
        assert code_of(of_rates(Rates(above=1, below=2))[place]) == code_of(of_rates(Rates(above=1, below=2))[place])
    assert code_of(of_rates(Rates(above=1, below=2))[0]) != code_of(of_rates(Rates(above=1, below=3))[0])
    one, other = (of_rates(types.SimpleNamespace(above=x, below=2))[1] for x in (1, 2))
    assert code_of(one) != code_of(other)
