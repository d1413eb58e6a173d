"""Rules for arguments. Each failure names the argument, the rule and the value, before any work starts."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from split_common.values import finite_number, is_name, shown, whole_number

LIKELY_REASON = (
    "likely the model uses a statistic of all rows (a column mean), rows depend on one another, or an argument "
    "is not what it seems (name the ones that hold rows with data_axes)"
)
WHOLE_RUNS = "num_subsets=1 of an exact kernel, such as SplitNUTS, runs the model as it is"
LARGEST_DIFFERENCE = 1e-3  # nats, of a change of energy
MAX_COUNT = 2**31 - 1  # steps and batches are counted in 32 bits on a device
ROUNDINGS = 32  # of the sum of a potential's terms, that may add up


class ModelNotSplittableError(ValueError):
    """The model does not divide: no plate can be divided, or the sum over subsets is not the model's own potential.

    Example:
        >>> issubclass(ModelNotSplittableError, ValueError)
        True
    """


class RowsMeetError(ModelNotSplittableError):
    """The likelihood of a row is known to rest on other rows."""


class NoDataPlateError(ModelNotSplittableError):
    """The model has no plate that holds observations."""


class ReadingError(ModelNotSplittableError):
    """Python reads a value of traced data that has no one value."""


class NoFiniteStartError(ValueError):
    """The log-density is not finite where sampling would start."""


def check_positive_int(name: str, value: Any, at_most: int | None = None) -> int:
    """Return ``value`` as an int, or raise unless it is a whole number of at least 1, and at most ``at_most``."""
    number = whole_number(value)
    if number is None or number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {shown(value)}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{name} must be at most {at_most}, got {shown(value)}")
    return number


def check_chain(chain: Any, num_chains: int) -> int:
    """Return ``chain`` as an int, or raise unless it is the number of one of so many chains, counted from 0."""
    number = whole_number(chain)
    if number is None or not 0 <= number < num_chains:
        raise ValueError(f"chain must be a whole number from 0 to {num_chains - 1}, got {shown(chain)}")
    return number


def check_positive_float(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise unless it is finite and above 0."""
    number = finite_number(value)
    if number is None or number <= 0:
        raise ValueError(f"{name} must be a finite number above 0, got {shown(value)}")
    return number


def check_probability(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise unless it lies strictly between 0 and 1."""
    number = finite_number(value)
    if number is None or not 0 < number < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {shown(value)}")
    return number


def check_fraction(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise unless it is at least 0 and below 1."""
    number = finite_number(value)
    if number is None or not 0 <= number < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {shown(value)}")
    return number


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` as a bool, or raise unless it is one, of Python's kind or NumPy's."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return ``value``, or raise unless it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {shown(value)}")
    return value


def check_optional_choice(name: str, value: Any, choices: Sequence[str]) -> str | None:
    """Return ``value``, or raise unless it is None or one of ``choices``."""
    if value is not None and (not isinstance(value, str) or value not in choices):
        raise ValueError(f"{name} must be one of {list(choices)}, or None, got {shown(value)}")
    return value


def check_callable(name: str, value: Any) -> Any:
    """Return ``value``, or raise unless it can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be callable, got {type(value).__name__} {shown(value)}")
    return value


def check_plate(value: Any) -> str | None:
    """Return ``value``, or raise unless it is None or may be the name of a plate."""
    if value is not None and not is_name(value):
        raise ValueError(f"plate must be None or the name of a plate, got {shown(value)}")
    return value


def check_site_names(name: str, value: Any) -> list[str] | None:
    """Return ``value`` as a list, or None; raise unless it is a sequence of at least one name, each once."""
    if value is None:
        return None
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_sequence or not value or not all(is_name(site) for site in value) or len(set(value)) < len(value):
        raise ValueError(f"{name} must be None or a list of site names, each once, got {shown(value)}")
    return list(value)


def check_num_subsets(num_subsets: Any, num_rows: int) -> int:
    """Return ``num_subsets``, or raise unless every subset gets at least one of ``num_rows`` rows."""
    number = check_positive_int("num_subsets", num_subsets)
    if number > num_rows:
        raise ValueError(
            f"num_subsets must be at most the number of rows in the data plate, {num_rows}, got {shown(num_subsets)}"
        )
    return number


def choose_plate(requested: str | None, sizes: Mapping[str, int], candidates: Sequence[str]) -> str:
    """Return the name of the data plate.

    Args:
        requested: the user's ``plate``, or None to take the only candidate.
        sizes: size of every plate in the model.
        candidates: the plates that hold observations.

    Raises:
        ValueError: for an unknown name.
        NoDataPlateError: for no candidate.
        ModelNotSplittableError: for several.
    """
    if requested is not None:
        check_plate(requested)
        if requested not in sizes:
            raise ValueError(
                f"plate must name a plate of the model, {sorted(sizes) or 'which has none'}, got {requested!r}"
            )
        return requested
    if not candidates:
        raise NoDataPlateError("the model must hold its likelihood in a plate over the data rows, got none")
    if len(candidates) > 1:
        listed = ", ".join(f"{name!r} (size {sizes[name]})" for name in candidates)
        raise ModelNotSplittableError(
            f"plate must be given when several plates hold observations: {listed}; got plate=None; {WHOLE_RUNS}"
        )
    return candidates[0]


def check_no_discrete(sites: Sequence[str]) -> None:
    """Raise when the model has discrete latent sites."""
    if sites:
        raise ModelNotSplittableError(
            f"every latent site must be continuous, got discrete latent sites {list(sites)}; marginalise them: "
            "write a mixture as MixtureSameFamily, or sum the likelihood over their values yourself (logsumexp, in a "
            f"factor or a distribution of your own); {WHOLE_RUNS}, summing over finitely many values"
        )


def check_none_summed_out(sites: Sequence[str]) -> None:
    """Raise when log-likelihoods are asked for that rest on discrete latent sites of which there are no draws."""
    if sites:
        raise ValueError(
            f"log_likelihood=True needs draws of every latent site, got none of {list(sites)}, which were summed out"
        )


def check_data_axes(data_axes: Any, argument_names: Sequence[str] | None = None) -> dict[str, int | None] | None:
    """Return ``data_axes``, or raise unless it is None or maps argument names to an axis or None.

    Args:
        data_axes: what was given.
        argument_names: the model's; None where they are not known yet.
    """
    if data_axes is None:
        return None
    if not isinstance(data_axes, Mapping):
        raise TypeError(f"data_axes must map argument names to an axis or None, got {shown(data_axes)}")
    found = {}
    for name, axis in data_axes.items():
        if not is_name(name):
            raise ValueError(f"data_axes must name arguments by text, got {shown(name)} in {shown(data_axes)}")
        if argument_names is not None and name not in argument_names:
            raise ValueError(f"data_axes must name model arguments {list(argument_names)}, got {name!r}")
        found[name] = whole_number(axis)
        if axis is not None and (found[name] is None or found[name] < 0):
            raise ValueError(
                f"data_axes[{name!r}] must be None or an axis of at least 0, got {shown(axis)} in {shown(data_axes)}"
            )
    return found


def check_lengths(lengths: Mapping[str, int]) -> None:
    """Raise unless every data argument has the same number of rows, and at least one."""
    for name, length in lengths.items():
        if length == 0:
            raise ValueError(f"data argument {name!r} must have at least one row, got 0 rows")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise ValueError(f"data arguments must have equal length (rows), got: {listed}")


def raise_if_unequal(lengths: Mapping[str, int], error: Exception) -> None:
    """Raise a model's ``error`` as one of unequal data arguments, where they are unequal."""
    try:
        check_lengths(lengths)
    except ValueError as unequal:
        raise ValueError(f"{unequal} (the model fails with: {first_line(error)})") from error


def check_row_axis(name: str, shape: tuple[int, ...], axis: int | None, num_rows: int) -> None:
    """Raise unless an argument named in ``data_axes`` has the plate's number of rows along its axis."""
    if axis is None:
        return
    if axis >= len(shape) or shape[axis] != num_rows:
        raise ValueError(
            f"data arguments must have equal length (rows): {name!r} must have {num_rows} along axis {axis}, "
            f"the size of the data plate, got shape {shape}"
        )


def argument_names(function: Callable[..., Any] | None, num_positional: int, kwargs: Mapping[str, Any]) -> list[str]:
    """Name of each positional argument as the signature has it, then of each keyword argument."""
    try:
        parameters = list(inspect.signature(function).parameters.values()) if function else []
    except (TypeError, ValueError):
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    positional = [named[i] if i < len(named) else f"argument {i}" for i in range(num_positional)]
    return positional + list(kwargs)


def no_finite_start(arrays: Iterable[tuple[str, np.ndarray]]) -> NoFiniteStartError:
    """The error for a model whose log-density is finite nowhere, naming the data that make it so."""
    for name, x in arrays:
        if np.issubdtype(x.dtype, np.floating) and np.isnan(x).any():
            where = tuple(int(i) for i in np.argwhere(np.isnan(x))[0])
            return NoFiniteStartError(
                f"data argument {name!r} must not make the log-density NaN, got NaN at {list(where)}"
            )
    return NoFiniteStartError(
        "the model's log-density and its gradient must be finite at the start, got no such point in 100 tries; "
        "check the model, or give init_strategy or initial parameters"
    )


def check_sites(name: str, sizes: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Raise unless a position holds every latent site, with its number of unconstrained values."""
    if dict(sizes) != dict(expected):
        raise ValueError(
            f"{name} must hold the unconstrained values of every latent site, sizes {dict(expected)}, got {dict(sizes)}"
        )


def check_finite_start(energy: Any, z: Mapping[str, Any]) -> None:
    """Raise unless the potential energy of every chain is finite at its initial parameters.

    Args:
        energy: of one chain, a scalar, or of several, shape (chains,).
        z: the initial parameters by site, unconstrained; with a leading axis of chains where there are several.
    """
    energy = np.asarray(energy)
    if np.all(np.isfinite(energy)):
        return
    chain = int(np.argmin(np.isfinite(np.atleast_1d(energy))))
    of_chain = {name: np.asarray(u)[chain] if energy.ndim else np.asarray(u) for name, u in z.items()}
    raise NoFiniteStartError(
        f"initial parameters must have a finite potential energy, got {np.atleast_1d(energy)[chain]}"
        f"{f' in chain {chain} of those that start together,' if energy.ndim else ''} at {reprlib.repr(of_chain)}"
    )


def check_is_state(kernel: str, state: Any) -> None:
    """Raise unless ``state`` is one of these kernels' states."""
    if not hasattr(state, "data_digest"):
        raise TypeError(f"post_warmup_state must be a state of {kernel}, got {type(state).__name__}")


def check_state_form(kernel: str, expected: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise unless a state has the arrays that a kernel's chains have on a model and its data.

    Args:
        kernel: name of the kernel.
        expected: shape and type of each array, by its place in the state.
        given: those of the state.
    """
    for place in sorted({*expected, *given}):
        if expected.get(place) != given.get(place):
            raise ValueError(
                f"post_warmup_state must be a state of {kernel} with these arguments on this model and data of this "
                f"shape, got {given.get(place, 'nothing')} at {place}, where {expected.get(place, 'nothing')} is needed"
            )


def compare_split(
    whole: float,
    energies: np.ndarray,
    whole_grad: np.ndarray | None = None,
    split_grad: np.ndarray | None = None,
) -> None:
    """Raise unless the terms of a split potential add up to the whole, in value and gradient.

    Args:
        whole: the model's own potential.
        energies: the prior's energy and those of the subsets, shape (M + 1,).
        whole_grad: its gradient, flat; None to compare values only.
        split_grad: the gradient summed over subsets, flat.

    Raises:
        ModelNotSplittableError: with both numbers and the likely reason.
    """
    tolerance = 1e-8 if energies.dtype == np.float64 else 1e-4
    energies = energies.astype(np.float64)
    split = float(energies.sum())
    if not np.any(energies[1:]):
        raise ModelNotSplittableError(
            f"the data plate must hold the likelihood, got a log-likelihood of 0 for all {len(energies) - 1} subsets "
            f"(the whole potential is {whole:.10g}): nothing in the plate depends on the data"
        )
    if not abs(whole - split) <= tolerance * max(np.abs(energies).sum(), 1.0):
        raise ModelNotSplittableError(
            f"the sum over subsets must equal the model's own potential, got {split:.10g} against {whole:.10g}; "
            + LIKELY_REASON
        )
    if whole_grad is None or split_grad is None:
        return
    norm, off = np.linalg.norm(whole_grad), np.linalg.norm(whole_grad - split_grad)
    if not off <= tolerance * max(norm, 1.0):
        raise ModelNotSplittableError(
            f"the gradient summed over subsets must equal the model's own, got norm {np.linalg.norm(split_grad):.10g} "
            f"against {norm:.10g}, a difference of {off:.3g}; " + LIKELY_REASON
        )


def compare_differences(wholes: Sequence[float], energies: Sequence[np.ndarray]) -> None:
    """Raise unless differences of energy between points are the model's own, in nats.

    Args:
        wholes: the model's own potential at each point.
        energies: there the prior's energy and those of the subsets, shape (M + 1,).

    Raises:
        ModelNotSplittableError: with both numbers.
    """
    for whole, terms in zip(wholes[1:], energies[1:], strict=True):
        change = whole - wholes[0]
        split = float(terms.astype(np.float64).sum() - energies[0].astype(np.float64).sum())
        rounding = ROUNDINGS * float(np.finfo(terms.dtype).eps * max(np.abs(x).sum() for x in (terms, energies[0])))
        if not abs(change - split) <= LARGEST_DIFFERENCE + rounding:
            raise ModelNotSplittableError(
                f"between two points the energy must change as the model's own, got a change by {split:.10g} against "
                f"{change:.10g}; {LIKELY_REASON}"
            )


def rows_meet(why: str) -> RowsMeetError:
    """The error for a model whose likelihood of one row rests on other rows; ``why`` is the operation and its line."""
    return RowsMeetError(
        f"{why}, so the likelihood of a row rests on other rows (compute what rests on all rows outside the model and "
        "pass it as an argument, or take num_subsets=1)"
    )


def must_be_converted(names: Sequence[str], failures: Sequence[Exception]) -> ValueError:
    """The error for a model that does not take, in place of a user's objects, the arrays that can be cut to rows.

    Args:
        names: of the arguments that hold such objects.
        failures: of the model; none where it runs, but computes something else than with the objects themselves.
    """
    listed = ", ".join(map(repr, names))
    reason = f"the model fails with {first_line(failures[0])}" if failures else "the model then computes something else"
    return ValueError(
        "data arguments that are no arrays of the framework must be such that the model takes arrays of it in their "
        f"place, got {listed} ({reason}); pass arrays, as in df['x'].to_numpy() or torch.tensor(x), and compute "
        "outside the model what needs the methods of another library"
    )


def tables_advice(names: Sequence[str]) -> str:
    """Advice about arguments that hold objects of pandas, in a model that does not divide."""
    return (
        f"; what functions of pandas make of {', '.join(map(repr, names))} has all rows, not some: call them outside "
        "the model, and pass arrays, as in df['x'].to_numpy()"
    )


def reading_advice(readings: Sequence[tuple[str, np.ndarray, Sequence[str]]]) -> str:
    """Advice about values that a model reads with Python, each with its line and the data that it rests on."""
    listed = []
    for line, value, names in readings:
        data = " and ".join(map(repr, names)) or "constants"
        what = f"an array of shape {value.shape}" if value.ndim else f"{value.item()!r}"
        count = f" ({len(np.unique(value))} different values)" if value.ndim and value.dtype.kind in "biu" else ""
        listed.append(f"{line}: Python reads {what}{count} from {data}")
    if not listed:
        return ""
    return f"; {'; '.join(listed)}: compute what the model needs of it outside, on all rows, and pass it as an argument"


def axes_advice(names: Sequence[str], shapes: Mapping[str, tuple[int, ...]], num_rows: int) -> str:
    """Advice for rows that may lie along other axes than was taken.

    Args:
        names: the arguments that were taken to hold rows.
        shapes: of all array arguments, by name.
        num_rows: N.
    """
    if names:
        return (
            f"; arrays with {num_rows} entries along axis 0 were taken to hold rows: {', '.join(map(repr, names))}; "
            "where one of them holds none, or rows lie along another axis, name all that do, as in "
            f"data_axes={{{names[0]!r}: 0}}"
        )
    along = {name: shape.index(num_rows) for name, shape in shapes.items() if num_rows in shape}
    if not along:
        return ""
    return f"; no array has {num_rows} entries along axis 0; if rows lie along another axis, pass data_axes={along}"


def neither_mode_splits(failures: Mapping[str, Exception], advice: str = "") -> ModelNotSplittableError:
    """The error for a model that neither sliced data nor plate indices divide exactly; ``advice`` comes last."""
    tried = {
        "slice": "with the data arguments cut to a subset's rows",
        "index": "with the plate yielding a subset's row numbers",
    }
    reports = "; ".join(f"{tried[mode]}: {first_line(error)}" for mode, error in failures.items())
    all_meet = all(isinstance(error, RowsMeetError) for error in failures.values())
    return (RowsMeetError if all_meet else ModelNotSplittableError)(
        f"the model does not divide over its data plate: {reports}{advice}; {WHOLE_RUNS}"
    )


def first_line(error: Exception) -> str:
    """First line of an error's message."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
