r"""May a precision be drawn given everything else? Decided from the model's expression, for all values.

Write u for the unconstrained precisions, τ = e^u (or e^-u, of a variance), x for everything else. The log-density is a
sum of terms, one for each site. Precisions are drawn when

* the term of a precision itself is that of Gamma(α, β) (of a variance, InverseGamma), α constant, β free of precisions;
* terms of weights are those of Normal(m, s) at w, m and w free of precisions, s = c τ_l^{-1/2} for all values, c free
  of precisions, l one fixed element for each weight;
* no other term depends on a precision.

Then the log-density is, but for a term free of u,

.. math:: \sum_l (\alpha_l + Q_l / 2) \log \tau_l - \beta'_l(x)\, \tau_l ,

so that given x the precisions are independent gamma variables, of shape α + Q/2 and rate β' for Q weights. In the
unconstrained u = log τ the energy of one is β' e^u - (α + Q/2) u, so that one gradient of the prior gives β', whatever
constant factors, means or hyperparameters go into it:

.. math:: \beta' = e^{-u} \left( \partial_u U_{prior} + \alpha + \tfrac Q2 \right).

The condition is sufficient, not necessary: another use may cancel out, a mask could be taken into account. What is not
established is refused.

The form of each value of the model, as a function of the precisions, is followed through its operations. A value is
:class:`Free` of them; :class:`Power`, each entry c e^{a u_l}; :class:`Log`, each entry a u_l + c; or :class:`Other`, of
which only the precisions are known that it may depend on. :func:`result` gives the form of an operation's result from
those of its operands; the packages read the operations off their hosts' traces and give them the names used here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from split_common.hierarchy import Group


class Free(NamedTuple):
    """A value that depends on no precision.

    Attributes:
        fixed: whether it depends on no other latent either.
        number: its value, where it is one number that is known from the expression.
    """

    fixed: bool = True
    number: float | None = None

    @property
    def of(self) -> frozenset[str]:
        """The precisions that it depends on."""
        return frozenset()


class Power(NamedTuple):
    """A value whose entries are each c e^{exponent · u_l}, with u_l an element of the precision ``name``."""

    name: str
    exponent: float

    @property
    def of(self) -> frozenset[str]:
        """The precisions that it depends on."""
        return frozenset({self.name})


class Log(NamedTuple):
    """A value whose entries are each exponent · u_l + c, with u_l an element of the precision ``name``."""

    name: str
    exponent: float

    @property
    def of(self) -> frozenset[str]:
        """The precisions that it depends on."""
        return frozenset({self.name})


class Other(NamedTuple):
    """Any other value.

    Attributes:
        of: the precisions that it may depend on.
        why: the operation that made it so.
        where: file and line of the user's model, or "".
    """

    of: frozenset[str]
    why: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.why} at {self.where}" if self.where else self.why


Value = Free | Power | Log | Other
NUMBERS: dict[str, Callable[..., Any]] = {
    "same": lambda x, *_: x,
    "neg": operator.neg,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}


def result(operation: str, operands: Sequence[Value]) -> Value:
    """Knowledge of an operation's result from that of its operands.

    Args:
        operation: its name: "exp", "log", "sqrt", "rsqrt", "reciprocal", "neg", "add", "sub", "mul", "div", "pow", or
            "same" for one that moves, repeats or picks entries, by numbers that are further operands; any other is not
            followed.
        operands: what is known of each operand.

    Example:
        >>> result("rsqrt", [result("mul", [Free(), Power("tau", 1.0)])])
        Power(name='tau', exponent=-0.5)
    """
    others = [value for value in operands if isinstance(value, Other)]
    of = frozenset().union(*(value.of for value in operands))
    if others:
        return others[0]._replace(of=of)
    if not of:
        return _free(operation, [value for value in operands if isinstance(value, Free)])
    found = RULES[operation](*operands) if operation in RULES else None
    return Other(of, operation) if found is None else found


def _free(operation: str, operands: Sequence[Free]) -> Free:
    numbers = [value.number for value in operands]
    known = operation in NUMBERS and None not in numbers
    return Free(all(value.fixed for value in operands), NUMBERS[operation](*numbers) if known else None)


def _exp(x: Value) -> Value | None:
    return Power(*x) if isinstance(x, Log) else None


def _log(x: Value) -> Value | None:
    return Log(*x) if isinstance(x, Power) else None


def _neg(x: Value) -> Value | None:
    return x._replace(exponent=-x.exponent) if isinstance(x, Log) else x


def _pow(x: Value, y: Value) -> Value | None:
    if isinstance(x, Power) and isinstance(y, Free) and y.number is not None:
        return x._replace(exponent=x.exponent * y.number)
    return None


def _mul(x: Value, y: Value) -> Value | None:
    x, y = (y, x) if isinstance(x, Free) else (x, y)
    if isinstance(x, Power) and isinstance(y, Free):
        return x
    if isinstance(x, Log) and isinstance(y, Free) and y.number is not None:
        return x._replace(exponent=x.exponent * y.number)
    return None


def _div(x: Value, y: Value) -> Value | None:
    if isinstance(x, Free) and isinstance(y, Power):
        return y._replace(exponent=-y.exponent)
    if isinstance(x, Power) and isinstance(y, Free):
        return x
    if isinstance(x, Log) and isinstance(y, Free) and y.number:
        return x._replace(exponent=x.exponent / y.number)
    return None


def _add(x: Value, y: Value) -> Value | None:
    x, y = (y, x) if isinstance(x, Free) else (x, y)
    if isinstance(x, Log) and isinstance(y, Free):
        return x
    return x if isinstance(x, Power) and y == Free(number=0.0) else None


def _sub(x: Value, y: Value) -> Value | None:
    return _add(_neg(y) or y, x) if isinstance(x, Free) else _add(x, y)


def _same(x: Value, *numbers: Value) -> Value | None:
    return x if all(isinstance(value, Free) and value.fixed for value in numbers) else None


RULES: dict[str, Callable[..., Value | None]] = {
    "exp": _exp,
    "log": _log,
    "neg": _neg,
    "pow": _pow,
    "sqrt": lambda x: _pow(x, Free(number=0.5)),
    "rsqrt": lambda x: _pow(x, Free(number=-0.5)),
    "reciprocal": lambda x: _pow(x, Free(number=-1.0)),
    "mul": _mul,
    "div": _div,
    "add": _add,
    "sub": _sub,
    "same": _same,
}


SUPPORT = "the support of site"
PARAMETERS = {"Normal": ("loc", "scale"), "Gamma": ("concentration",), "InverseGamma": ("concentration",)}


class Term(NamedTuple):
    """One term of the log-density outside the data plate.

    Attributes:
        site: the name of its site.
        kind: "site", "observed site" or "factor"; :data:`SUPPORT` for the Jacobian of a site, where that is a term.
        log_density: what is known of the term.
        family: "Normal", "Gamma" or "InverseGamma" where the site is that distribution itself; else the name of its
            class.
        under: "a mask" or "a scale" where the term is not the distribution's log-probability alone, else "".
        value: what is known of the value of the site.
        parameters: for those three families, what is known of the parameters in :data:`PARAMETERS`, by name.
    """

    site: str
    kind: str
    log_density: Value
    family: str = ""
    under: str = ""
    value: Value = Free()
    parameters: Mapping[str, Value] = {}


class Fault(NamedTuple):
    """Reason why a precision must not be drawn from a gamma distribution."""

    precision: str
    why: str


def check_conjugacy(terms: Sequence[Term], groups: Sequence[Group]) -> None:
    """Raise unless the precisions may be drawn given everything else.

    Args:
        terms: all terms of the log-density that may depend on a precision.
        groups: for each precision, the weights or observations whose scale it sets.

    Raises:
        ValueError: naming the precision, the site and the reason.
    """
    exponents = {group.precision: group.exponent for group in groups}
    weights = {group.weights: group for group in groups}
    for term in terms:
        if term.site in exponents and term.under:
            fault = Fault(term.site, f"its prior is under {term.under}")
        elif term.site in exponents and term.kind != SUPPORT:
            fault = _fault_of_prior(term, "Gamma" if exponents[term.site] < 0 else "InverseGamma")
        elif term.site in weights:
            fault = _fault_of_weights(term, weights[term.site])
        else:
            own = {term.site} if term.kind == SUPPORT else set()
            fault = _use(f"{term.kind} {term.site!r}", term.log_density, own)
        if fault is not None:
            raise not_conjugate(*fault)


def not_conjugate(precision: str, why: str) -> ValueError:
    """The error for a precision that is not known to have a gamma distribution given everything else."""
    return ValueError(
        f"given the weights precision site {precision!r} must have a gamma distribution, for all values, but {why}; "
        "use S3HMC, or name other precision_sites"
    )


def _use(what: str, value: Value, own: Collection[str] = ()) -> Fault | None:
    """Fault of a value that uses a precision other than its own, or None."""
    used = sorted(value.of.difference(own))
    return Fault(used[0], f"{what} rests on it{_reason(value)}") if used else None


def _reason(value: Value) -> str:
    return f" ({value})" if isinstance(value, Other) else ""


def _fault_of_prior(term: Term, family: str) -> Fault | None:
    """Fault of the term of a precision itself, or None."""
    name, concentration = term.site, term.parameters.get("concentration")
    if term.family != family:
        return Fault(name, f"its prior is a distribution {term.family}, not {family}")
    if term.value != Power(name, 1.0):
        return Fault(name, f"its logarithm is not what is sampled{_reason(term.value)}")
    if not (isinstance(concentration, Free) and concentration.fixed):
        return Fault(name, "the concentration of its prior is no constant")
    return _use(f"the prior of {name!r}", term.log_density, {name})


def _fault_of_weights(term: Term, group: Group) -> Fault | None:
    """Fault of the term of weights, or None."""
    name, site = group.precision, f"{term.kind} {term.site!r}"
    if term.family != "Normal":
        return Fault(name, f"{site} has a distribution {term.family}, not Normal")
    if term.under:
        return Fault(name, f"{site} is under {term.under}")
    scale, wanted = term.parameters["scale"], f"{group.exponent:g}"
    if not (isinstance(scale, Power) and scale.name == name):
        why = f"the scale of {site} is no constant times its power {wanted} for all values{_reason(scale)}"
        return Fault(name, why)
    if scale.exponent != group.exponent:
        return Fault(name, f"the scale of {site} is its power {scale.exponent:g}, not {wanted}")
    return _use(f"the mean of {site}", term.parameters["loc"]) or _use(f"the value of {site}", term.value)
