"""The path of a run's store: what there is at it, its lock, and errors of reading and writing in words.

On local paths a lock beside the store, which the system releases when a process dies, keeps other processes from
writing to it.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from split_common.errors import StoreError

NOT_WRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)  # errors of a disk, not of a damaged store
FORMAT = 2
"""Number of the layout of a store, in its attributes; a store with another number is not taken for one."""


def open_group(path: str, mode: str = "r") -> Any:
    """The zarr group of a run's store; None where there is nothing at a path.

    Raises:
        StoreError: for something that is no store of a run.
        PermissionError: for a path that may not be read.
    """
    if is_local(path) and _is_nothing(path):
        return None
    try:
        group = zarr_module().open_group(path, mode=mode)
        is_ours = group.attrs.get("format") == FORMAT
    except FileNotFoundError:
        if not is_local(path):
            return None
        is_ours = False
    except (ValueError, TypeError, KeyError, NotADirectoryError, FileExistsError) as error:
        raise StoreError(f"store must be the path of a run's store, or of nothing, got {path!r}: {error}") from error
    if not is_ours:
        raise StoreError(f"store must be the path of a run's store, or of nothing, got {path!r}, which is neither")
    return group


def is_local(path: str) -> bool:
    """Whether a path is one of this machine's files."""
    return "://" not in path


def checked_path(store: Any) -> str:
    """A path as a text, with the user's folder in place of ``~``; a ``file://`` address as its path.

    Raises:
        TypeError: for something else.

    Example:
        >>> checked_path("file:///tmp/run.zarr"), checked_path("s3://bucket/run.zarr")
        ('/tmp/run.zarr', 's3://bucket/run.zarr')
    """
    if not isinstance(store, str | os.PathLike) or not str(store):
        raise TypeError(f"store must be a path, got {store!r}")
    path = os.fspath(store)
    if not isinstance(path, str):
        raise TypeError(f"store must be a path in text, got {store!r}")
    for scheme in ("file://", "local://"):
        path = path.removeprefix(scheme)
    return os.path.expanduser(path) if is_local(path) else path


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Context that locks a store against other processes, on local paths.

    Raises:
        StoreError: where another process holds it.
        PermissionError: where nothing can be written beside the store.
    """
    if not is_local(path):
        yield
        return
    from filelock import FileLock, Timeout

    place = _lock_of(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place)
    try:
        lock.acquire(timeout=1)  # :func:`is_held` holds the lock for a moment
    except Timeout as error:
        raise StoreError(f"store must not be in use, got {path!r}, which another process writes to") from error
    try:
        yield
    finally:
        lock.release()


def is_held(path: str) -> bool | None:
    """Whether a process writes to a store; None where that cannot be known.

    Args:
        path: a local path, or an address, which has no lock.
    """
    if not is_local(path):
        return None
    try:
        import fcntl

        with open(_lock_of(path)) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return None
    return False


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Context in which an error of reading a store is raised as one that says that the store is damaged.

    Raises:
        StoreError: in place of such an error.
        OSError: where nothing can be written, as on a full disk.
    """
    try:
        yield
    except (StoreError, PermissionError):
        raise
    except OSError as error:
        if error.errno in NOT_WRITABLE:
            raise _not_written(path, "its description", error, is_begun=True) from error
        raise _damaged(path, error) from error
    except Exception as error:  # whatever zarr raises of descriptions of arrays that are missing or cut off
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> StoreError:
    return StoreError(
        f"store {path!r} is damaged where it says what its arrays are, and the run cannot go on from it: "
        f"{type(error).__name__}: {error}. Its draws may still be read by zarr; give the run another path"
    )


@contextmanager
def explained(path: str, what: str, is_begun: bool = True) -> Iterator[None]:
    """Context in which an error of the file system says what was being written, and that the rest is safe."""
    try:
        yield
    except OSError as error:
        raise _not_written(path, what, error, is_begun) from error


def _not_written(path: str, what: str, error: OSError, is_begun: bool) -> OSError:
    full = "; free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    safe = (
        "What was committed before is whole, and the same call goes on from there"
        if is_begun
        else "Nothing was drawn yet"
    )
    text = f"{error.strerror or error}: {what} could not be written to store {path!r}{full}. {safe}"
    return type(error)(error.errno, text)


def zarr_module() -> Any:
    """The module ``zarr``, or an error that says how to install it."""
    try:
        import zarr
    except ImportError as error:
        raise ImportError("a store needs zarr: pip install 'split-mcmc[store]'") from error
    return zarr


def _lock_of(path: str) -> Path:
    """Path of the lock file beside a store, the same by whichever links the path leads there."""
    place = Path(path).resolve()
    return place.parent / f".{place.name}.lock"


def _is_nothing(path: str) -> bool:
    """Whether there is nothing at a path, an empty folder, or what is left where the first file could not be written.

    Where the disk is full or the process dies, that is a file of zarr's for what is not written yet, an empty
    description, or one of a group without attributes.
    """
    place = Path(path)
    if not place.is_dir():
        return not place.exists()
    described = place / "zarr.json"
    if any(file != described and not file.name.endswith(".partial") for file in place.iterdir()):
        return False
    try:
        text = described.read_text() if described.exists() else ""
        found = json.loads(text) if text else {"node_type": "group"}
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("node_type") == "group" and not found.get("attributes")
