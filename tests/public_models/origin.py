"""The hosts' examples and tutorials, read from a checkout of the host's repository.

No code of theirs is kept here: a definition is taken from the file where it stands, unchanged, and keeps that file's
lines. The folder named by the environment variable ``SPLIT_PUBLIC_MODELS`` holds one checkout per host.
"""

from __future__ import annotations

import ast
import functools
import json
import linecache
import os
from pathlib import Path
from typing import Any

VARIABLE = "SPLIT_PUBLIC_MODELS"
COMMITS = {"numpyro": "0b935d488056ae1775b4ab05cbe2812f51f21a4f"}


class Unavailable(Exception):
    """The file, or something that it imports, is not on this machine."""


class Origin:
    """What one file of a host defines: functions and classes, without running the rest of the file.

    Args:
        host: "numpyro" or "pyro", the name of the checkout's folder.
        path: of the file in the checkout; Python or a notebook.
        keep: names of assignments that the definitions need, which run too.
        given: values of global names that the file makes of its data.
    """

    def __init__(self, host: str, path: str, keep: tuple[str, ...] = (), given: dict[str, Any] | None = None):
        self.path = _checkout(host) / path
        if not self.path.exists():
            raise Unavailable(f"{self.path} does not exist; {VARIABLE} names a folder of checkouts, see README.md")
        self._names: dict[str, Any] = {"__name__": f"{host}_{self.path.stem}"}
        self._definitions: dict[str, list[Any]] = {}
        self._missing: list[str] = []
        for node in ast.parse(_text(self.path)).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                self._define(node)
            elif isinstance(node, ast.Assign) and {t.id for t in node.targets if isinstance(t, ast.Name)} & {*keep}:
                self._run(node)
        self._names.update(given or {})

    def __getattr__(self, name: str) -> Any:
        return self.definition(name)

    def definition(self, name: str, which: int = -1) -> Any:
        """What the file calls ``name``; where it defines that several times, one of these."""
        if name in self._definitions:
            return self._definitions[name][which]
        if name in self._names:
            return self._names[name]
        raise Unavailable(f"{name} of {self.path.name}: {', '.join(self._missing) or 'no such definition'}")

    def _run(self, *nodes: ast.stmt) -> None:
        exec(compile(ast.Module([*nodes], []), str(self.path), "exec"), self._names)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        try:
            self._run(node)
        except ImportError as error:
            self._missing.append(str(error))

    def _define(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        try:
            self._run(node)
        except NameError as error:
            self._missing.append(str(error))
        else:
            self._definitions.setdefault(node.name, []).append(self._names[node.name])


@functools.lru_cache
def _text(path: Path) -> str:
    """The file's code; of a notebook, its code cells without the lines for the notebook itself."""
    if path.suffix == ".py":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    lines = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code").split("\n")
    text = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    return text


def _checkout(host: str) -> Path:
    if VARIABLE not in os.environ:
        raise Unavailable(f"{VARIABLE} is not set: it names a folder of checkouts, see tests/public_models/README.md")
    return Path(os.environ[VARIABLE]) / host
