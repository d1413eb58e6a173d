"""NumPyro's examples and tutorials, as they stand in ``numpyro_models``: one definition after the other.

A file may define one name several times, may import what is not on this machine, and may need a global value that its
origin makes of downloaded data; so a definition is taken from the file's text.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parent / "numpyro_models"


class Unavailable(Exception):
    """Something that the file imports is not on this machine."""


class Origin:
    """What one file defines: functions and classes.

    Args:
        path: of the file in the host's repository; a notebook's definitions are kept as ``tutorial_<name>.py``.
        keep: names of assignments that the definitions need, which run too.
        given: values of global names that the file makes of its data.
    """

    def __init__(self, path: str, keep: tuple[str, ...] = (), given: dict[str, Any] | None = None):
        prefix = "tutorial_" if path.endswith(".ipynb") else ""
        self.path = MODELS / f"{prefix}{Path(path).stem}.py"
        self._names: dict[str, Any] = {"__name__": self.path.stem}
        self._definitions: dict[str, list[Any]] = {}
        self._missing: list[str] = []
        for node in ast.parse(self.path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                self._define(node)
            elif isinstance(node, ast.Assign) and {t.id for t in node.targets if isinstance(t, ast.Name)} & {*keep}:
                self._run(node)
        if self._missing:
            raise Unavailable(f"{self.path.name}: {', '.join(self._missing)}")
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
