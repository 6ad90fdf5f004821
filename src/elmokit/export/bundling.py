"""The runner and everything of the package that it uses, in one file that needs neither elmokit nor torch.

`runner.py` arrives as it stands in the package, with its imports from other modules; the source of `run_elmo.py`
leaves. In it are the definitions that the runner reaches, word for word, each module's in their order, and the imports
that they need. So the rules that split text and the numbers of characters are written once, in `text/`.

A name that the runner defines itself stands in the place of the same name of another module. Annotations, which nothing
evaluates, are followed to imports and to names of types, not to classes: those would bring half of the package along.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from elmokit.version import find_version

__all__ = ["bundle_runner"]

RUNNER = "elmokit.export.runner"
PACKAGE = "elmokit."


def bundle_runner() -> str:
    """The source of `run_elmo.py`."""
    bundle = _Bundle(RUNNER)
    return bundle.write()


class _Module:
    """The source of a module, and which top-level statement defines each of its names."""

    def __init__(self, name: str) -> None:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        self.text = Path(spec.origin).read_text(encoding="utf-8")
        self.lines = self.text.splitlines()
        self.tree = ast.parse(self.text)
        self.definitions: dict[str, ast.stmt] = {}
        self.imports: dict[str, tuple[ast.Import | ast.ImportFrom, ast.alias]] = {}
        for statement in self.tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                for alias in statement.names:
                    self.imports[alias.asname or alias.name] = statement, alias
            for name in _list_defined(statement):
                self.definitions[name] = statement

    def write(self, statement: ast.stmt) -> str:
        """The lines of a statement, with the decorators and comments above it."""
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))]) - 1
        while first and self.lines[first - 1].startswith("#"):
            first -= 1
        return "\n".join(self.lines[first : statement.end_lineno])


class _Bundle:
    def __init__(self, runner: str) -> None:
        self._runner = runner
        self._needed: dict[str, set[ast.stmt]] = {}  # by module, those that others use first
        self._imports: set[str] = set()
        self._homes: dict[str, str] = {}  # of each name, to notice two of the same
        module = _read_module(runner)
        for name in module.definitions:
            self._reach(runner, name)
        self._entry = next(each for each in module.tree.body if isinstance(each, ast.If))
        self._reach_all(runner, self._entry)

    def write(self) -> str:
        """The whole source."""
        runner = _read_module(self._runner)
        docstring = ast.get_docstring(runner.tree, clean=False)
        origin = f"# Written by elmokit {find_version()} (Apache-2.0) from its own modules."
        linted = "# ruff: noqa: F821 (annotations may name a class that is not in here)"
        parts = [
            f'"""{docstring}"""\n\n{origin}\n{linted}\n\nfrom __future__ import annotations',
            "\n".join(self._list_imports()),
        ]
        for name in self._sort_modules():
            source = _read_module(name)
            written = f"# From {name.removeprefix(PACKAGE).replace('.', '/')}.py"
            for statement in (each for each in source.tree.body if each in self._needed[name]):
                lines = 2 if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else 0
                written = written.rstrip("\n") + "\n" * (1 + max(lines, _count_blank_lines(written)))
                written += source.write(statement) + "\n" * (lines + 1)
            parts.append(written.rstrip("\n"))
        return "\n\n\n".join([*parts, runner.write(self._entry)]) + "\n"

    def _sort_modules(self) -> list[str]:
        """Those with something needed, each after the modules that it imports."""
        order: list[str] = []

        def visit(name: str) -> None:
            for statement, _ in _read_module(name).imports.values():
                if isinstance(statement, ast.ImportFrom) and statement.module in self._needed:
                    visit(statement.module)
            if name not in order:
                order.append(name)

        visit(self._runner)
        return order

    def _reach(self, module_name: str, name: str) -> None:
        """Take what a name of a module means, and all that it needs."""
        if name in _read_module(self._runner).definitions:
            module_name = self._runner
        module = _read_module(module_name)
        if name in module.definitions:
            statement = module.definitions[name]
            needed = self._needed.setdefault(module_name, set())
            home = self._homes.setdefault(name, module_name)
            assert home == module_name, f"{name} is defined in {home} and in {module_name}: rename one"
            if statement not in needed and name != "__all__":
                needed.add(statement)
                self._reach_all(module_name, statement)
        elif name in module.imports:
            statement, alias = module.imports[name]
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(PACKAGE):
                self._reach(statement.module or "", alias.name)
            else:
                self._imports.add(_write_import(statement, alias))
        else:
            assert name in dir(builtins) or name == "__file__", f"{module_name} uses {name}, which nothing defines"

    def _reach_all(self, module_name: str, statement: ast.stmt) -> None:
        module = _read_module(module_name)
        for name in dict.fromkeys(_list_used(statement, annotations=False)):
            known = name in module.definitions or name in module.imports
            if known or name in _read_module(self._runner).definitions:
                self._reach(module_name, name)
        for name in dict.fromkeys(_list_used(statement, annotations=True)):
            if _names_type(module_name, name):
                self._reach(module_name, name)

    def _list_imports(self) -> list[str]:
        plain = sorted(line for line in self._imports if line.startswith("import "))
        return [*plain, *sorted(self._imports.difference(plain, ["from __future__ import annotations"]))]


@cache
def _read_module(name: str) -> _Module:
    return _Module(name)


def _list_defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _list_used(node: ast.AST, *, annotations: bool) -> Iterator[str]:
    """The names that a statement mentions, in annotations too or only outside of them."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        if annotations or field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _list_used(child, annotations=annotations)


def _names_type(module_name: str, name: str) -> bool:
    """Whether a name in an annotation stands for an import of another package or for a type such as `list[str]`."""
    module = _read_module(module_name)
    if name in module.imports:
        statement, alias = module.imports[name]
        home = (statement.module if isinstance(statement, ast.ImportFrom) else None) or ""
        return _names_type(home, alias.name) if home.startswith(PACKAGE) else not home.startswith("torch")
    return isinstance(module.definitions.get(name), (ast.Assign, ast.AnnAssign))


def _count_blank_lines(written: str) -> int:
    return len(written) - len(written.rstrip("\n")) - 1 if written.endswith("\n") else 0


def _write_import(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    name = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
    return f"import {name}" if isinstance(statement, ast.Import) else f"from {statement.module} import {name}"
