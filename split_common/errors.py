"""Errors of models that do not divide over their rows, of rows that cannot be read, and of stores."""

from __future__ import annotations

WHOLE_RUNS = "num_subsets=1 of an exact kernel, such as SplitNUTS, runs the model as it is"

LIBRARIES = ("numpy", "pandas", "jax", "jaxlib", "numpyro", "torch", "pyro", "contextlib", "functools")
NOT_A_USERS = (*LIBRARIES, "numpyro_split", "pyro_split", "split_common")


class ModelNotSplittableError(ValueError):
    """The model cannot be divided: it has no plate for that, or the sum over subsets is not the model's own potential.

    Example:
        >>> issubclass(ModelNotSplittableError, ValueError)
        True
    """


class RowsMeetError(ModelNotSplittableError):
    """The likelihood of a row is known to depend on other rows."""


class NumberMeetsError(RowsMeetError):
    """The number of a row among the cut rows is used for something else than to look up that row."""


class NoDataPlateError(ModelNotSplittableError):
    """The model has no plate that holds observations."""


class ReadingError(ModelNotSplittableError):
    """Python code in the model reads a value of traced data, which has no value yet."""


class ConversionError(ReadingError):
    """The model does not take arrays of the framework in place of a user's objects, or computes something else."""


class StoreError(ValueError):
    """A store cannot be opened, or a run cannot go on from it: absent, of another run, in use, or damaged.

    Example:
        >>> issubclass(StoreError, ValueError)
        True
    """


class RanksError(ValueError):
    """Processes that share the rows of a run cannot begin it, or go on with it, together; it is raised on all of them.

    Example:
        >>> issubclass(RanksError, ValueError)
        True
    """


class SourceError(ValueError):
    """Rows cannot be read from where they lie: not there, of another kind, or no longer what they were.

    Example:
        >>> issubclass(SourceError, ValueError)
        True
    """


def line_of_user(error: BaseException) -> str:
    """The line of the user's code that an error went through last, as ``model.py:12``."""
    line, traceback = "the model", error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_globals.get("__name__", "").partition(".")[0] not in NOT_A_USERS:
            line = f"{frame.f_code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line


def first_line(error: Exception) -> str:
    """First line of an error's message."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
